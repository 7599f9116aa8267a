"""The sparse prior: what a coordinate pays, that the fit descends, and what it is good for."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gamma

from onebit import HingeCompleter, LogisticCompleter, Observations, simulate
from onebit.engine.rotation import simple_structure
from onebit.model.hierarchy import LOCAL_PRIOR
from onebit.model.priors import InverseGamma


@pytest.mark.parametrize("square", [0.0, 0.3, 5.0, 400.0])
def test_what_a_coordinate_pays_agrees_with_quadrature(square):
    prior = InverseGamma(0.4, 0.7)

    def density(log_psi):
        psi = np.exp(log_psi)
        inverse_gamma = prior.scale**prior.shape * psi**-prior.shape * np.exp(-prior.scale / psi)
        return inverse_gamma * psi**-0.5 * np.exp(-square / (2 * psi))

    # The integral is over log psi, whose density has lost one power of psi.
    mass = quad(density, -30, 40, limit=500)[0] / gamma(prior.shape)
    penalty, precision = prior.scale_mixture(square)
    assert penalty == pytest.approx(-np.log(mass), rel=1e-6)
    step = 1e-5 * (1 + square)
    slope = (prior.scale_mixture(square + step)[0] - prior.scale_mixture(square - step)[0]) / (2 * step)
    assert precision == pytest.approx(2 * slope, rel=1e-6)


def test_it_is_the_divergence_with_the_best_distribution_of_the_local_variance():
    squares = np.array([0.01, 1.0, 30.0])
    best = LOCAL_PRIOR.posterior(1.0, squares)
    whole = 0.5 * best.inverse * squares + 0.5 * best.log + best.kl
    penalty, precision = LOCAL_PRIOR.scale_mixture(squares)
    np.testing.assert_allclose(penalty, whole, rtol=1e-9)
    np.testing.assert_allclose(precision, best.inverse, rtol=1e-12)


@pytest.mark.parametrize("side", ["rows", "columns"])
@pytest.mark.parametrize("completer", [LogisticCompleter, HingeCompleter])
@pytest.mark.parametrize("prior", ["inverse-gamma", "gamma"])
def test_the_objective_never_rises_and_holds_the_whole_divergence(small_world, completer, side, prior):
    seen = Observations.from_pairs(small_world.pairs, small_world.answers)
    model = completer(4, prior=prior, sparse=side, tol=1e-7, random_state=0).fit(seen)
    path = model.objective_path_
    assert np.diff(path).max() <= 1e-7 * abs(path[-1])
    view = seen.by_row
    mean, variance = model.posterior_.score_moments(view.owners(), view.index)
    loss = model._loss.bound(view.sign, mean, mean**2 + variance).mean()
    assert model.objective_ == pytest.approx(loss + model.posterior_.kl / seen.n, rel=1e-6)


def test_the_rotation_finds_the_axes_that_sparse_factors_came_from(rng):
    sparse = np.zeros((60, 4))
    sparse[np.arange(60), rng.integers(3, size=60)] = rng.choice([-2.0, 2.0], size=60)
    turn = np.eye(4)
    turn[:3, :3] = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    change = simple_structure(sparse @ turn)
    np.testing.assert_allclose(change @ change.T, np.eye(4), atol=1e-12)
    found = np.abs(sparse @ turn @ change)
    assert np.sort(found, axis=1)[:, :3].max() < 1e-3
    # Nothing to turn: one column alone, or none.
    np.testing.assert_array_equal(simple_structure(sparse[:, :1]), np.eye(1))
    np.testing.assert_array_equal(simple_structure(np.zeros((5, 0))), np.eye(0))


def test_where_every_column_belongs_to_one_factor_it_errs_less():
    dense, sparse = [], []
    for seed in range(2):
        world = simulate.world("A2", rank=5, seed=seed)
        for errors, side in ((dense, None), (sparse, "columns")):
            model = HingeCompleter(10, effects=False, sparse=side, calibrate=False, random_state=0)
            model.fit(world.pairs, world.answers)
            errors.append(world.error(model.complete("score").to_numpy()))
    assert np.mean(sparse) < 0.6 * np.mean(dense)
    # The columns' factors are nearly one-hot then.
    strength = np.sort(np.abs(model.posterior_.columns.mean), axis=1)
    assert np.median(strength[:, -2] / strength[:, -1]) < 0.1


def test_folded_in_columns_are_sparse_too():
    world = simulate.world("A2", rank=3, shape=(150, 80), density=0.4, seed=0)
    new = world.pairs[:, 1] >= 70
    model = HingeCompleter(8, effects=False, sparse="columns", calibrate=False, random_state=0)
    model.fit(world.pairs[~new], world.answers[~new])
    model.fold_in(world.pairs[new], world.answers[new])
    strength = np.sort(np.abs(model.posterior_.columns.mean[70:]), axis=1)
    assert np.median(strength[:, -2] / strength[:, -1]) < 0.2
    everyone = np.stack(np.meshgrid(np.arange(150), np.arange(70, 80), indexing="ij"), axis=-1).reshape(
        -1, 2
    )
    right = np.sign(model.decision_function(everyone)) == np.sign(world.truth[tuple(everyone.T)])
    assert right.mean() > 0.97


def test_independent_coordinates_cannot_be_sparse(small_world):
    with pytest.raises(ValueError, match='needs covariance="full"'):
        LogisticCompleter(covariance="diagonal", sparse="rows").fit(
            small_world.pairs, small_world.answers
        )
    with pytest.raises(ValueError, match='needs covariance="full"'):
        HingeCompleter(method="paper", sparse="rows").fit(small_world.pairs, small_world.answers)
    with pytest.raises(ValueError, match="sparse"):
        LogisticCompleter(sparse="both").fit(small_world.pairs, small_world.answers)
