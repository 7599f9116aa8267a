"""Answers on a GPU: sorted and coded as the host does it, and what the host checks is checked."""

import numpy as np
import pandas as pd
import pytest
import torch
from gpu_worlds import needs_gpu

from onebit import LogisticCompleter, Observations
from onebit.data.holding import divided as host_divided
from onebit.data.ids import IdIndex
from onebit.engine.gpu import holding, sorting
from onebit.engine.gpu.data import uploaded
from onebit.engine.gpu.intake import taken_in
from onebit.engine.gpu.transfer import to_device, to_host


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("at_once", [2**27, 300])
def test_a_sort_on_the_device_is_the_hosts(weighted, at_once, device, rng, monkeypatch):
    monkeypatch.setattr(sorting, "AT_ONCE", at_once)
    n, shape = 2000, (37, 23)
    rows, columns = (rng.integers(0, size, n).astype(np.int32) for size in shape)
    sign = rng.choice([-1, 1], n).astype(np.int8)
    weight = rng.choice([0.5, 1.0, 2.0], n).astype(np.float32)
    indexes = (
        IdIndex(np.arange(size), name) for size, name in zip(shape, ("row", "column"), strict=True)
    )
    seen = Observations.from_codes(*indexes, rows, columns, sign, weight if weighted else None)
    loose = (rows, columns, sign, weight if weighted else weight[:0])
    found = sorting.sorted_views(*(to_device(part, device) for part in loose), shape)
    for view, host in zip(found, (seen.by_row, seen.by_column), strict=True):
        expected = uploaded(host, device, streamed=False)
        for part in ("start", "answers", "weight", "row_chunk", "chunk_row"):
            assert torch.equal(getattr(view, part), getattr(expected, part)), part


TABLES = {
    "an array": lambda rows, columns: np.column_stack([rows, columns]),
    "a frame": lambda rows, columns: pd.DataFrame({"who": rows, "what": columns.astype(np.int16)}),
    "far apart": lambda rows, columns: np.column_stack([rows * 10**12, columns - 10**15]),
}
ANSWERS = {
    "signs": lambda yes: np.where(yes, 1, -1),
    "zeros": lambda yes: yes.astype(np.int8),
    "floats": lambda yes: yes.astype(float),
    "booleans": lambda yes: yes,
    "all yes": lambda yes: np.ones(len(yes), int),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("answer", ANSWERS)
def test_ids_and_answers_are_taken_in_as_the_host_does(table, answer, device, rng):
    rows, columns = rng.integers(-5, 30, 500), rng.integers(3, 20, 500)
    pairs, answers = TABLES[table](rows, columns), ANSWERS[answer](rng.random(500) < 0.5)
    expected, found = Observations.from_pairs(pairs, answers), taken_in(pairs, answers, device)
    assert found is not None
    for side in ("rows", "columns"):
        pd.testing.assert_index_equal(getattr(found, side).labels, getattr(expected, side).labels)
    np.testing.assert_array_equal(found.classes, expected.classes)
    assert found.classes.dtype == expected.classes.dtype
    assert (found.n, found.shape, found.total_weight) == (expected.n, expected.shape, 500.0)
    for part in ("start", "index", "sign"):
        np.testing.assert_array_equal(getattr(found.by_row, part), getattr(expected.by_row, part))


WRONG = {
    "text": ([("a", 1)], [1]),
    "a list": ([(1, 1), (2, 2)], [1, 0]),
    "ratings": (np.array([[1, 1], [2, 2]]), np.array([1, 5])),
    "three values": (np.array([[1, 1], [2, 2], [3, 3]]), np.array([1, 0, -1])),
    "a missing answer": (np.array([[1, 1], [2, 2]]), np.array([1.0, np.nan])),
    "too few answers": (np.array([[1, 1], [2, 2]]), np.array([1])),
    "none": (np.zeros((0, 2), int), np.zeros(0, int)),
    "three columns": (np.zeros((2, 3), int), np.array([1, 0])),
    "floats as ids": (np.array([[1.0, 2.0]]), np.array([1])),
    "a masked answer": (np.array([[1, 1], [2, 2]]), np.ma.MaskedArray([1, -1], mask=[0, 1])),
    "an answer of 255": (np.array([[1, 1], [2, 2]]), np.array([1, 255], dtype=np.uint8)),
    "unsigned ids": (np.array([[1, 2]], dtype=np.uint64), np.array([1])),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_or_unusual_is_left_to_the_host(case, device):
    assert taken_in(*WRONG[case], device) is None


def test_pairs_that_do_not_fit_are_left_to_the_host(device, monkeypatch):
    monkeypatch.setattr("onebit.engine.gpu.intake.usable_bytes", lambda device: 100)
    assert taken_in(np.array([[1, 1], [2, 2]]), np.array([1, 0]), device) is None


def test_sorted_on_the_device_the_answers_still_come_to_the_host(device, gpu, rng):
    pairs, signs = rng.integers(0, 9, (200, 2)), rng.choice([-1, 1], 200)
    expected, found = Observations.from_pairs(pairs, signs), taken_in(pairs, signs, device)
    gpu._brought(found, 0)
    assert repr(found) == repr(expected)
    for part in ("start", "index", "sign"):
        np.testing.assert_array_equal(getattr(found.by_row, part), getattr(expected.by_row, part))


def test_a_wrong_answer_is_named_as_on_the_cpu():
    pairs = np.array([[1, 1], [2, 2]])
    with pytest.raises(ValueError, match="answer 5 at position 1"):
        LogisticCompleter(device="cuda").fit(pairs, np.array([1, 5]))


@needs_gpu
@pytest.mark.parametrize("size", [0, 1, 2**24, 2**24 + 3, 10**8])
def test_arrays_go_there_and_back(size, device, rng):
    array = rng.integers(-128, 127, size, dtype=np.int8)
    array.setflags(write=False)
    np.testing.assert_array_equal(to_host(to_device(array, device)), array)


@pytest.mark.parametrize("repeats", [False, True])
def test_the_gpu_holds_the_same_answers_out_as_the_host(device, repeats):
    rng = np.random.default_rng(0)
    size = 700 if repeats else 2000
    pairs = np.stack([rng.integers(0, 40, size), rng.integers(0, 30, size)], axis=1)
    if not repeats:
        pairs = np.unique(pairs, axis=0)
    answers = rng.choice([0, 1], len(pairs))
    there = taken_in(pairs, answers, device)
    here = Observations.from_pairs(pairs, answers)
    share = len(pairs) // 7
    ours, theirs = holding.divided(there, share, 12345), host_divided(here, share, 12345)
    assert ours is not None
    assert ours.cut == theirs.cut
    assert (ours.entries, ours.commoner) == (theirs.entries, theirs.commoner)
    assert (ours.entries < len(pairs)) == repeats

    def listed(held):
        parts = (held.rows, held.columns, held.sign, held.fitted_too, held.open)
        return sorted(zip(*(part.tolist() for part in parts), strict=True))

    assert listed(ours.held) == listed(theirs.held)
    for side in ("by_row", "by_column"):
        np.testing.assert_array_equal(
            getattr(ours.fitted, side).index, getattr(theirs.fitted, side).index
        )
        np.testing.assert_array_equal(getattr(ours.fitted, side).sign, getattr(theirs.fitted, side).sign)
