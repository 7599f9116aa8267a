"""Answers by row and by column: sorted the same way by any number of threads, and in any order."""

import numpy as np
import pytest

from onebit import Observations
from onebit.data import sorting
from onebit.data.sorting import Entries
from onebit.engine.cpu.threads import threads

SHAPE = (40, 30)


@pytest.fixture
def small_pieces(monkeypatch):
    """Let threads take part however few the answers are."""
    monkeypatch.setattr(sorting, "_FEWEST_A_THREAD", 1)


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def entries(request):
    # Some rows and columns have no answers, and some entries several, of both signs.
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(3, 35, 900), rng.integers(2, 28, 900)
    sign = np.where(rng.random(900) < 0.5, 1, -1).astype(np.int8)
    weight = rng.integers(1, 4, 900).astype(np.float32) if request.param else None
    return Entries(rows.astype(np.int32), columns.astype(np.int32), sign, weight)


def arrays(views):
    return [array for view in views for array in (view.start, view.index, view.sign, view.weight)]


def in_order(entries, first, second):
    """Return the places of answers, sorted by owner, partner, sign and weight."""
    weight = np.ones(len(entries.sign)) if entries.weight is None else entries.weight
    return np.lexsort((weight, entries.sign, second, first))


def test_views_list_owners_partners_signs_and_weights_in_order(entries):
    views = sorting.sorted_views(entries, SHAPE)
    for view, own, other in zip(views, entries[:2], entries[1::-1], strict=True):
        order = in_order(entries, own, other)
        np.testing.assert_array_equal(view.owners(), own[order])
        np.testing.assert_array_equal(view.index, other[order])
        np.testing.assert_array_equal(view.sign, entries.sign[order])
        if entries.weight is not None:
            np.testing.assert_array_equal(view.weight, entries.weight[order])


@pytest.mark.parametrize("count", [2, 3, 7])
def test_threads_sort_answers_as_one_does(entries, small_pieces, count):
    alone = sorting.sorted_views(entries, SHAPE)
    with threads(count) as pool:
        together = sorting.sorted_views(entries, SHAPE, pool)
    for one, other in zip(arrays(alone), arrays(together), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("count", [1, 3])
def test_the_answers_of_some_rows_are_those_of_a_table_of_their_own(entries, small_pieces, count):
    whole = sorting.sorted_views(entries, SHAPE)
    rows = np.array([0, 4, 9, 10, 33, 39])
    new = np.full(SHAPE[0], -1)
    new[rows] = np.arange(len(rows))
    kept = new[entries.rows] >= 0
    weight = None if entries.weight is None else entries.weight[kept]
    own = Entries(new[entries.rows[kept]], entries.columns[kept], entries.sign[kept], weight)
    with threads(count) as pool:
        found = sorting.views_of_rows(whole[0], rows, SHAPE[1], pool)
    for one, other in zip(
        arrays(found), arrays(sorting.sorted_views(own, (len(rows), SHAPE[1]))), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_fit_sorts_on_its_threads(entries, small_pieces, monkeypatch):
    from onebit import LogisticCompleter

    seen = []
    monkeypatch.setattr(
        "onebit.data.observations.sorted_views",
        lambda entries, shape, pool=None: (
            seen.append(pool.count) or sorting.sorted_views(entries, shape, pool)
        ),
    )
    pairs = np.column_stack(entries[:2])
    LogisticCompleter(1, max_iter=1, pattern=None, n_jobs=2).fit(pairs, entries.sign)
    assert seen == [2]


def test_rows_are_taken_with_their_ids(entries):
    seen = Observations.from_pairs(np.column_stack(entries[:2]) + 100, entries.sign, entries.weight)
    few = seen.of_rows(np.array([1, 5]))
    assert few.rows.values.tolist() == seen.rows.values[[1, 5]].tolist()
    assert few.n == int(seen.by_row.counts[[1, 5]].sum())
    assert few.weighted == seen.weighted
    assert few.columns is seen.columns
