"""Compiled functions are kept on disk, and a disk that is full, closed or damaged ends no fit."""

import errno
import os
from pathlib import Path

import numba
import pytest
from numba.core import caching

from onebit.data import kernels
from onebit.data.kernels import kernel, worth_compiling


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder for what is compiled, of which nothing was said yet."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "_TELLER", kernels._Teller())
    return tmp_path


def made():
    @kernel(nogil=True)
    def thrice(x):
        return 3 * x

    return thrice


def hits(function):
    return sum(function.stats.cache_hits.values())


def test_what_was_compiled_is_found_by_the_next_process(folder, capsys):
    first = made()
    assert worth_compiling(first)
    assert first(2) == 6
    assert (hits(first), worth_compiling(first)) == (0, False)
    second = made()
    assert not worth_compiling(second)
    assert second(2) == 6
    assert hits(second) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("left", [0.0, 0.5, 0.99])
def test_a_file_that_was_cut_short_is_written_again(folder, kind, left, capsys):
    made()(2)
    (path,) = Path(folder).rglob(f"*.{kind}")
    content = path.read_bytes()
    path.write_bytes(content[: int(left * len(content))])
    damaged = made()
    assert worth_compiling(damaged) == (kind == "nbi")
    assert damaged(2) == 6
    assert hits(damaged) == 0
    mended = made()
    assert mended(2) == 6
    assert hits(mended) == 1
    assert capsys.readouterr().err == ""


def test_a_full_disk_ends_nothing_and_is_told_of_once(folder, monkeypatch, capsys):
    def full(self, path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(caching.IndexDataCacheFile, "_open_for_write", full)
    function = made()
    assert (function(2), function(2.0), made()(3)) == (6, 6.0, 9)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(folder) in said
    assert os.strerror(errno.ENOSPC) in said
    assert "NUMBA_CACHE_DIR names another folder" in said


def test_without_any_folder_functions_are_compiled_all_the_same(folder, monkeypatch, capsys):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    function = made()
    assert capsys.readouterr().err == ""  # before there is something to keep
    assert not worth_compiling(function)
    assert function(2) == 6
    assert "no folder for it may be written to" in capsys.readouterr().err


def test_a_program_without_standard_error_is_told_nothing(folder, monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    monkeypatch.setattr("sys.stderr", None)
    assert made()(2) == 6


def test_what_numba_keeps_elsewhere_is_not_compiled_by_others(folder):
    """Else every process that samples would start others for nothing."""
    first = made()
    assert worth_compiling(first)
    del first._cache._cache_file
    assert not worth_compiling(first)


def another():
    @kernel(nogil=True)
    def twice(x):
        return 2 * x

    return twice


def test_a_file_that_holds_something_else_is_not_taken_up(folder):
    """Two processes that save at once may leave one's code under the other's name."""
    assert made()(2) == 6
    assert another()(2) == 4
    ours, theirs = (next(Path(folder).rglob(f"*{name}*.nbc")) for name in ("thrice", "twice"))
    ours.write_bytes(theirs.read_bytes())
    mended = made()
    assert mended(2) == 6
    assert hits(mended) == 0
    first = made()
    first(2.0)
    files = sorted(Path(folder).rglob("*thrice*.nbc"))
    assert len(files) == 2
    contents = [path.read_bytes() for path in files]
    for path, content in zip(files, reversed(contents), strict=True):
        path.write_bytes(content)
    swapped = made()
    assert (swapped(2), swapped(2.0)) == (6, 6.0)
    assert hits(swapped) == 0


def test_what_was_compiled_under_other_settings_is_another_thing(folder, monkeypatch):
    made()(2)
    monkeypatch.setattr(numba.config, "OPT", type(numba.config.OPT)(0))
    slow = made()
    assert slow(2) == 6
    assert hits(slow) == 0
