"""A pass in two steps is the pass at once."""

import numpy as np
import pytest

from onebit import LogisticCompleter, simulate
from onebit.data.observations import Observations
from onebit.engine.cpu.side import Side
from onebit.engine.cpu.threads import Threads
from onebit.model.losses import HINGE, LOGISTIC


@pytest.fixture(scope="module")
def state():
    world = simulate.world("B2", rank=2, shape=(37, 29), density=0.6, seed=0)
    posterior = (
        LogisticCompleter(3, max_iter=5, random_state=0).fit(world.pairs, world.answers).posterior_
    )
    return posterior, Observations.from_pairs(world.pairs, world.answers)


def sides(posterior, seen):
    pool = Threads(1, None)
    views = (seen.by_row, seen.by_column)
    return [
        Side(gaussians, posterior.hierarchy, k, views[k], pool)
        for k, gaussians in enumerate(posterior.sides)
    ]


def moved(posterior, seen, loss, side):
    """Return one side after the pass at once, and the arguments of the same in two steps."""
    both = sides(posterior, seen)
    prior = posterior.hierarchy.precision_and_linear(side, posterior.hyper, both[side].sums())
    before = both[side].pass_over(both[1 - side].table, prior, 1.3, loss, relaxation=1.4)
    return both[side], prior, before


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=["logistic", "hinge"])
def test_accumulating_and_solving_apart_is_the_fused_pass(state, loss, side):
    posterior, seen = state
    once, prior, before = moved(posterior, seen, loss, side)
    both = sides(posterior, seen)
    natural = both[side].accumulate(both[1 - side].table, loss)
    both[side].solve(natural, prior, 1.3, 1.4)
    assert natural.loss.sum() == pytest.approx(before, rel=1e-12)
    np.testing.assert_allclose(both[side].mean, once.mean, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(both[side].covariance, once.covariance, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(both[side].log_determinant, once.log_determinant, rtol=1e-12)
    np.testing.assert_array_equal(both[side].table, once.table)


def test_natural_parameters_of_parts_of_the_answers_add_up(state):
    posterior, seen = state
    once, prior, before = moved(posterior, seen, LOGISTIC, 0)
    part = np.arange(seen.n) % 3
    pieces = [sides(posterior, seen.take(part == k)) for k in range(3)]
    naturals = [piece[0].accumulate(piece[1].table, LOGISTIC) for piece in pieces]
    together = naturals[0] + naturals[1] + naturals[2]
    whole = pieces[0][0]
    whole.solve(together, prior, 1.3, 1.4)
    assert together.loss.sum() == pytest.approx(before, rel=1e-6)
    np.testing.assert_allclose(whole.mean, once.mean, rtol=1e-4, atol=1e-5)


def diagonal(seen, rank):
    settings = {"covariance": "diagonal", "max_iter": 3, "random_state": 0, "pattern": None}
    return LogisticCompleter(rank, **settings).fit(seen).posterior_


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=["logistic", "hinge"])
def test_independent_coordinates_go_where_three_conjugate_steps_lead(state, loss):
    # Two factors and an effect: three steps of conjugate gradients are all there are.
    _, seen = state
    posterior = diagonal(seen, 2)
    once, prior, before = moved(posterior, seen, loss, 0)
    both = sides(posterior, seen)
    part = np.arange(seen.n) % 2
    pieces = [sides(posterior, seen.take(part == k)) for k in range(2)]
    natural = pieces[0][0].accumulate(both[1].table, loss) + pieces[1][0].accumulate(both[1].table, loss)
    both[0].solve(natural, prior, 1.3, 1.4)
    assert natural.loss.sum() == pytest.approx(before, rel=1e-5)
    np.testing.assert_allclose(both[0].mean, once.mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(both[0].covariance, once.covariance, rtol=1e-5)
    np.testing.assert_allclose(both[0].log_determinant, once.log_determinant, rtol=1e-4, atol=1e-4)


def test_independent_coordinates_apart_are_no_worse_than_a_few_steps(state):
    _, seen = state
    posterior = diagonal(seen, 6)
    both = sides(posterior, seen)
    prior = posterior.hierarchy.precision_and_linear(0, posterior.hyper, both[0].sums())
    before = both[0].pass_over(both[1].table, prior, 1.0, LOGISTIC, relaxation=1.0)
    stepped = both[0].pass_over(both[1].table, prior, 1.0, LOGISTIC, solve=False)
    apart = sides(posterior, seen)
    apart[0].solve(apart[0].accumulate(apart[1].table, LOGISTIC), prior, 1.0)
    solved = apart[0].pass_over(apart[1].table, prior, 1.0, LOGISTIC, solve=False)

    def objective(side, loss):
        spread = (side.mean**2 + side.covariance) * prior[0] / 2 - side.mean * prior[1]
        return loss + spread.sum() - side.log_determinant.sum() / 2

    assert objective(apart[0], solved) <= objective(both[0], stepped) + 1e-4
    assert objective(apart[0], solved) < objective(sides(posterior, seen)[0], before)
