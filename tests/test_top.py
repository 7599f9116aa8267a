"""The highest scores of every row are those of the whole matrix."""

import numpy as np
import pytest

from onebit import LogisticCompleter, Observations, simulate
from onebit.engine import top
from onebit.engine.top import top_columns


@pytest.fixture(scope="module")
def seen():
    world = simulate.world("B1", rank=2, shape=(60, 45), density=0.3, seed=0)
    return Observations.from_pairs(world.pairs, world.answers)


@pytest.mark.parametrize("effects", [True, False, "rows", "columns"])
@pytest.mark.parametrize("count", [1, 7, 45, 60])
@pytest.mark.parametrize("leave_out", [True, False])
def test_it_agrees_with_sorting_the_whole_matrix(seen, effects, count, leave_out):
    model = LogisticCompleter(3, effects=effects, max_iter=5, random_state=0).fit(seen)
    rows = np.array([5, 0, 59, 5], dtype=np.int32)
    best = top_columns(model.posterior_, rows, count, seen.by_row if leave_out else None, n_jobs=2)
    scores = model.complete("score").to_numpy()
    for line, row in zip(best, rows, strict=True):
        view = seen.by_row
        answered = view.index[view.start[row] : view.start[row + 1]] if leave_out else []
        allowed = np.setdiff1d(np.arange(scores.shape[1]), answered)
        expected = allowed[np.argsort(-scores[row, allowed], kind="stable")][:count]
        found = line[line >= 0]
        assert len(found) == len(expected)
        # Scores are compared in single precision: near ties may change places.
        np.testing.assert_allclose(scores[row, found], scores[row, expected], rtol=1e-5, atol=1e-5)
        assert len(np.unique(found)) == len(found)
        assert (line[len(found) :] == -1).all()


def test_many_columns_go_block_by_block(seen):
    model = LogisticCompleter(3, max_iter=5, random_state=0).fit(seen)
    posterior = model.posterior_
    repeats = 2 * top._BLOCK // 45 + 3
    wide = type(posterior)(
        posterior.rows,
        type(posterior.columns)(
            np.tile(posterior.columns.mean, (repeats, 1)),
            np.tile(posterior.columns.covariance, (repeats, 1)),
            True,
        ),
        posterior.hyper,
        posterior.hierarchy,
    )
    rows = np.arange(60, dtype=np.int32)
    best = top_columns(wide, rows, repeats)
    single = top_columns(posterior, rows, 1)
    assert (np.sort(best % 45, axis=1) == single).all()


def test_bad_codes_and_counts_are_refused(seen):
    model = LogisticCompleter(1, max_iter=3, random_state=0).fit(seen)
    rows = np.array([0], dtype=np.int32)
    with pytest.raises(ValueError, match="count must be at least one"):
        model._top_columns(rows, 0)
    for bad in (-1, 60):
        with pytest.raises(ValueError, match=r"row codes must lie in 0\.\.59"):
            model._top_columns(np.array([bad], dtype=np.int32), 2)
