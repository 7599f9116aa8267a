"""Answers by row and by column: sorted the same way by any number of threads, and in any order."""

import numpy as np
import pytest

from onebit import AutoCompleter, HingeCompleter, LogisticCompleter, Observations
from onebit.data import sorting
from onebit.data.sorting import Entries
from onebit.engine.cpu.threads import Threads, threads

SHAPE = (40, 30)


@pytest.fixture
def small_pieces(monkeypatch):
    """Let threads take part however few the answers are."""
    monkeypatch.setattr(sorting, "_FEWEST_A_THREAD", 1)


def some_entries(rng, n, shape, weighted):
    rows, columns = (rng.integers(0, size, n).astype(np.int32) for size in shape)
    sign = np.where(rng.random(n) < 0.5, 1, -1).astype(np.int8)
    return Entries(rows, columns, sign, rng.integers(1, 4, n).astype(np.float32) if weighted else None)


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def entries(request):
    # Some rows and columns have no answers, and some entries several, of both signs.
    found = some_entries(np.random.default_rng(1), 900, (32, 26), request.param)
    return found._replace(rows=found.rows + 3, columns=found.columns + 2)


class Counting:
    """Threads that count what they are given."""

    def __init__(self, pool: Threads) -> None:
        self.pool, self.count, self.pieces = pool, pool.count, []

    def each(self, task, count):
        self.pieces.append(count)
        self.pool.each(task, count)


def arrays(views):
    return [array for view in views for array in (view.start, view.index, view.sign, view.weight)]


def assert_same(found, wanted):
    for one, other in zip(arrays(found), arrays(wanted), strict=True):
        np.testing.assert_array_equal(one, other)


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
        counting = Counting(pool)
        assert_same(sorting.sorted_views(entries, SHAPE, counting), alone)
    assert set(counting.pieces) == {count}


@pytest.mark.parametrize("shape", [(1, 1), (2, 300), (300, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_more_threads_than_rows_and_pieces_without_answers_change_nothing(small_pieces, shape, weighted):
    rng = np.random.default_rng(2)
    skewed = some_entries(rng, 700, shape, weighted)
    skewed.rows[50:] = shape[0] - 1  # nearly all answers are one row's
    with threads(9) as pool:
        found = sorting.sorted_views(skewed, shape, pool)
    assert_same(found, sorting.sorted_views(skewed, shape))


def test_pieces_are_as_many_as_have_enough_to_do(monkeypatch):
    monkeypatch.setattr(sorting, "_FEWEST_A_THREAD", 100)
    with threads(8) as pool:
        for n, shape, pieces in ((250, (9, 9), 2), (9000, (9, 9), 8), (9000, (9, 4000), 2)):
            found = some_entries(np.random.default_rng(3), n, shape, False)
            counting = Counting(pool)
            sorting.sorted_views(found, shape, counting)
            assert set(counting.pieces) == {pieces}


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
    assert_same(found, sorting.sorted_views(own, (len(rows), SHAPE[1])))


@pytest.mark.parametrize("rows", [[3, 3], [5, 4], [-1, 2], [39, 40], [True, False]])
def test_rows_to_take_ascend_and_are_there(entries, rows):
    view = sorting.sorted_views(entries, SHAPE)[0]
    with pytest.raises(ValueError, match="codes below 40, in ascending order, each once"):
        sorting.views_of_rows(view, np.array(rows), SHAPE[1])


@pytest.mark.parametrize(
    "model",
    [
        LogisticCompleter(1, max_iter=1, pattern=None, n_jobs=2),
        LogisticCompleter(1, max_iter=1, n_jobs=2),
        HingeCompleter(1, max_iter=1, n_jobs=2),
        AutoCompleter(n_jobs=2, sampling_seconds=0),
    ],
    ids=["logistic", "pattern", "hinge", "auto"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_whatever_a_fit_sorts_its_threads_sort(entries, monkeypatch, model):
    seen = []

    def sorted_views(entries, shape, pool=None):
        seen.append(None if pool is None else pool.count)
        return sorting.sorted_views(entries, shape, pool)

    monkeypatch.setattr("onebit.data.observations.sorted_views", sorted_views)
    model.fit(np.column_stack(entries[:2]), entries.sign, entries.weight)
    assert set(seen) == {2}


def test_rows_are_taken_with_their_ids(entries):
    seen = Observations.from_pairs(np.column_stack(entries[:2]) + 100, entries.sign, entries.weight)
    few = seen.of_rows(np.array([1, 5]))
    assert few.rows.values.tolist() == seen.rows.values[[1, 5]].tolist()
    assert few.n == int(seen.by_row.counts[[1, 5]].sum())
    assert few.weighted == seen.weighted
    assert few.columns is seen.columns
