"""The nuclear-norm baseline: feasible, and optimal by its duality gap."""

import numpy as np
import pytest

from onebit import NuclearNormCompleter, Observations, simulate
from onebit.engine import nuclear
from onebit.engine.nuclear import project_to_simplex


@pytest.fixture(scope="module")
def world():
    return simulate.world("B3", rank=2, shape=(25, 20), density=0.5, seed=1)


def log_loss(world, scores):
    margin = world.answers * scores[world.pairs[:, 0], world.pairs[:, 1]]
    return np.logaddexp(0, -margin).mean()


@pytest.mark.parametrize("bounded", [False, True])
def test_the_result_is_feasible_and_nothing_feasible_is_better_than_the_gap_allows(world, bounded, rng):
    model = NuclearNormCompleter(2, alpha=0.7, bounded=bounded, tol=1e-5, max_iter=3000)
    model.fit(world.pairs, world.answers)
    scores = model.complete("score").to_numpy()
    assert model.converged_
    assert np.linalg.svd(scores, compute_uv=False).sum() <= model.radius_ * (1 + 1e-9)
    if bounded:
        assert np.abs(scores).max() <= 0.7 * (1 + 1e-9)
    loss = log_loss(world, scores)
    assert model.objective_ == pytest.approx(loss, rel=1e-9)
    for _ in range(200):  # feasible points near the optimum and far from it
        other = scores + rng.choice([0.01, 0.1, 1.0]) * rng.standard_normal(scores.shape)
        if bounded:
            other = np.clip(other, -0.7, 0.7)
        norm = np.linalg.svd(other, compute_uv=False).sum()
        other *= min(1.0, model.radius_ / norm)
        assert log_loss(world, other) >= loss - model.gap_ - 1e-12


def test_the_optimum_meets_the_conditions_of_optimality(world):
    """At the boundary the gradient, on the range of M, is -theta U V' with theta = |G|_op."""
    model = NuclearNormCompleter(1, tol=1e-9, max_iter=5000).fit(world.pairs, world.answers)
    scores = model.complete("score").to_numpy()
    gradient = np.zeros_like(scores)
    margin = world.answers * scores[world.pairs[:, 0], world.pairs[:, 1]]
    np.add.at(gradient, tuple(world.pairs.T), -world.answers / (1 + np.exp(margin)))
    u, values, vt = np.linalg.svd(scores)
    rank = int((values > 1e-6 * values[0]).sum())
    theta = np.linalg.norm(gradient, 2)
    assert values.sum() == pytest.approx(model.radius_, rel=1e-6)
    np.testing.assert_allclose(
        u[:, :rank].T @ gradient @ vt[:rank].T, -theta * np.eye(rank), atol=1e-3 * theta
    )


def test_the_sparse_route_agrees_with_the_dense_one(world, monkeypatch):
    dense = NuclearNormCompleter(2, tol=1e-7, max_iter=3000).fit(world.pairs, world.answers)
    monkeypatch.setattr(nuclear, "_DENSE_SIZE", 0)
    sparse = NuclearNormCompleter(2, tol=1e-7, max_iter=3000, random_state=0).fit(
        world.pairs, world.answers
    )
    assert sparse.objective_ == pytest.approx(dense.objective_, abs=1e-6)
    np.testing.assert_allclose(sparse.complete("score"), dense.complete("score"), atol=1e-2)


def test_the_projection_onto_the_simplex(rng):
    values = rng.random(8) * 3
    projected, threshold = project_to_simplex(values, 2.0)
    assert projected.sum() == pytest.approx(2.0)
    np.testing.assert_allclose(projected, np.maximum(values - threshold, 0))
    for _ in range(100):  # no point of the simplex is nearer
        other = rng.dirichlet(np.ones(8)) * 2.0
        assert ((other - values) ** 2).sum() >= ((projected - values) ** 2).sum() - 1e-12
    inside, threshold = project_to_simplex(np.array([0.5, 0.2]), 2.0)
    assert inside.tolist() == [0.5, 0.2]
    assert threshold == 0.0


def test_repeats_count_and_an_unknown_row_is_the_average_one(world):
    doubled = Observations.from_pairs(np.repeat(world.pairs, 2, axis=0), np.repeat(world.answers, 2))
    model = NuclearNormCompleter(2, tol=1e-6, max_iter=2000).fit(world.pairs, world.answers)
    again = NuclearNormCompleter(2, tol=1e-6, max_iter=2000).fit(doubled)
    assert again.objective_ == pytest.approx(model.objective_, abs=1e-5)
    average = model.complete("score").to_numpy().mean(axis=0)[3]
    assert model.decision_function([(999, 3)])[0] == pytest.approx(average)


@pytest.mark.parametrize("shape", [(1, 30), (2, 300), (5, 200)])
def test_short_and_long_matrices_take_the_sparse_route_as_well(shape, monkeypatch):
    world = simulate.world("B3", rank=1, shape=shape, density=0.8, seed=0)
    monkeypatch.setattr(nuclear, "_DENSE_SIZE", 0)
    model = NuclearNormCompleter(1, tol=1e-4, max_iter=1000, random_state=0).fit(
        world.pairs, world.answers
    )
    assert model.converged_
