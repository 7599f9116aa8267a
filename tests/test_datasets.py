"""Data sets from elsewhere: found, checked, or refused with advice."""

import io
import urllib.error
import zipfile

import numpy as np
import pytest

from onebit import datasets
from onebit.data.datasets import DatasetError, load_movielens_100k


@pytest.fixture(autouse=True)
def no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEBIT_CACHE", str(tmp_path / "cache"))


def answer_with(monkeypatch, content):
    def urlopen(address, timeout):
        if isinstance(content, Exception):
            raise content
        return io.BytesIO(content)

    monkeypatch.setattr(datasets.urllib.request, "urlopen", urlopen)


def archive(ratings):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("ml-100k/u.data", ratings)
    return buffer.getvalue()


def test_a_folder_is_read_with_or_without_its_inner_folder(movielens_folder):
    data = load_movielens_100k(movielens_folder)
    assert data.pairs.shape == (100_000, 2)
    assert set(np.unique(data.answers)) == {-1, 1}
    # 55,375 of the ratings are four or five stars.
    assert (data.answers > 0).sum() == 55_375
    np.testing.assert_array_equal(load_movielens_100k(movielens_folder.parent).pairs, data.pairs)


def test_a_download_is_checked_and_kept(movielens_folder, monkeypatch):
    ratings = (movielens_folder / "u.data").read_bytes()
    answer_with(monkeypatch, archive(ratings))
    first = load_movielens_100k()
    answer_with(monkeypatch, AssertionError("downloaded twice"))
    np.testing.assert_array_equal(load_movielens_100k().answers, first.answers)


def test_a_missing_folder_says_what_to_do(tmp_path):
    with pytest.raises(DatasetError, match=r"no u\.data in .* unpack https"):
        load_movielens_100k(tmp_path)


def test_without_network_it_says_what_to_do(monkeypatch):
    answer_with(monkeypatch, urllib.error.URLError("no route"))
    with pytest.raises(DatasetError, match=r"could not be downloaded .*no route.*--movielens FOLDER"):
        load_movielens_100k()


@pytest.mark.parametrize("content", [b"not a zip", archive(b"1\t2\t3\t4\n")], ids=["page", "ratings"])
def test_a_wrong_download_is_refused_and_not_kept(monkeypatch, tmp_path, content):
    answer_with(monkeypatch, content)
    with pytest.raises(DatasetError):
        load_movielens_100k()
    assert not (tmp_path / "cache" / "ml-100k" / "u.data").exists()


def test_another_file_of_that_name_is_refused(tmp_path):
    (tmp_path / "u.data").write_text("1\t2\t3\t4\n")
    with pytest.raises(DatasetError, match="checksum differs"):
        load_movielens_100k(tmp_path)
