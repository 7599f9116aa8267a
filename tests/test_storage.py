"""Files: versioned, checked, written whole, and never run."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import onebit
from onebit import LogisticCompleter
from onebit.data import storage


@pytest.fixture(scope="module")
def saved(tmp_path_factory, small_world):
    path = tmp_path_factory.mktemp("models") / "model.onebit"
    LogisticCompleter(2, max_iter=5).fit(small_world.pairs, small_world.answers).save(path)
    return path


def test_every_damaged_byte_is_noticed(saved, tmp_path, rng):
    content = saved.read_bytes()
    for position in rng.integers(len(content), size=60):
        damaged = bytearray(content)
        damaged[position] ^= 0x41
        path = tmp_path / "damaged.onebit"
        path.write_bytes(bytes(damaged))
        with pytest.raises(storage.FileError):
            onebit.load(path)


def test_the_same_numbers_in_another_shape_are_noticed(saved, tmp_path):
    with safe_open(saved, "np") as file:
        metadata = file.metadata()
    tensors, path = load_file(saved), tmp_path / "turned.onebit"
    save_file(tensors, path, metadata)
    onebit.load(path)
    name = next(
        name for name, part in tensors.items() if part.ndim == 2 and part.shape[0] > part.shape[1]
    )
    save_file(tensors | {name: tensors[name].reshape(tensors[name].shape[::-1])}, path, metadata)
    with pytest.raises(storage.FileError, match="its checksum does not match"):
        onebit.load(path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_is_noticed(saved, tmp_path, share):
    content = saved.read_bytes()
    path = tmp_path / "short.onebit"
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(storage.FileError, match=r"short\.onebit"):
        onebit.load(path)


class Explosive:
    def __reduce__(self):
        return (exec, ("raise SystemExit('a pickle was run')",))


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Explosive()),
        b"PK\x03\x04" + bytes(100),
        b"{}",
        b"",
        b"\xff" * 64,
        (1 << 62).to_bytes(8, "little"),
    ],
    ids=["pickle", "zip", "json", "empty", "noise", "huge header"],
)
def test_foreign_files_are_refused_and_not_run(tmp_path, content):
    path = tmp_path / "foreign.onebit"
    path.write_bytes(content)
    with pytest.raises(storage.FileError, match="not a onebit file"):
        onebit.load(path)


@given(content=st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail_in_another_way(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzz.onebit"
    path.write_bytes(content)
    with pytest.raises(storage.FileError):
        onebit.load(path)


def test_a_safetensors_file_of_someone_else_is_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"w": np.zeros(3)}, path)
    with pytest.raises(storage.FileError, match="is not a onebit file"):
        onebit.load(path)


def test_a_newer_version_asks_for_an_upgrade(tmp_path):
    path = tmp_path / "new.onebit"
    save_file({"w": np.zeros(3)}, path, metadata={"format": "onebit", "version": "99", "kind": "model"})
    with pytest.raises(storage.FileError, match=r"version '99'.*upgrade"):
        onebit.load(path)


def test_a_posterior_is_not_a_model(tmp_path, saved):
    path = tmp_path / "posterior.onebit"
    onebit.load(saved).posterior_.save(path)
    with pytest.raises(storage.FileError, match="holds a posterior, not a model"):
        onebit.load(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        onebit.load(tmp_path / "nothing.onebit")


def test_a_folder_that_is_not_there(tmp_path, saved):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        onebit.load(saved).save(tmp_path / "no" / "model.onebit")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(saved, tmp_path, monkeypatch):
    path = tmp_path / "model.onebit"
    path.write_bytes(saved.read_bytes())

    def full_disk(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(storage, "save_file", full_disk)
    with pytest.raises(OSError, match="no space"):
        onebit.load(saved).save(path)
    assert path.read_bytes() == saved.read_bytes()
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onebit"]


@pytest.mark.parametrize(
    "index",
    [
        pd.Index([3, 1, 2]),
        pd.Index([0.5, 1.5]),
        pd.Index(["a", "ü", "日本", 'with "quotes", commas\n']),
        pd.Index([True, False]),
        pd.DatetimeIndex(["2020-01-01 12:00", "2021-05-05"]),
        pd.DatetimeIndex(["2020-01-01", "2021-05-05"], tz="Europe/Paris"),
        pd.Index([1, "a", 2.5], dtype=object),
        pd.Index([("a", 1), ("b", 2)], tupleize_cols=False),
        pd.Index([pd.Timestamp("2020-01-01").date(), pd.Timestamp("2020-01-02").date()]),
        pd.Index([], dtype=object),
        pd.Index(np.array([2**63 + 5, 7], dtype=np.uint64)),
        pd.Index([2**70, 3], dtype=object),
        pd.DatetimeIndex(np.array(["1500-01-01", "9999-01-01"], dtype="datetime64[s]")),
        pd.Index(
            [("a", pd.Timestamp(1, unit="ns")), ("b", pd.Timestamp(2, unit="ns"))], tupleize_cols=False
        ),
    ],
    ids=repr,
)
def test_ids_of_every_kind_come_back(index):
    tensors, content = storage.pack_ids(index, "ids")
    again = storage.unpack_ids(tensors, json.loads(json.dumps(content)), "ids")
    assert list(again) == list(index)
    assert again.get_indexer(index).tolist() == list(range(len(index)))


def test_ids_that_cannot_be_saved_are_named():
    with pytest.raises(TypeError, match="ids of type frozenset cannot be saved"):
        storage.pack_ids(pd.Index([frozenset([1])]), "rows")


def test_a_saved_file_has_the_permissions_of_any_other(saved, tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    onebit.load(saved).save(tmp_path / "model.onebit")
    assert (tmp_path / "model.onebit").stat().st_mode == plain.stat().st_mode
