"""The paper's Algorithm 1: its objective, Proposition 1, and its steps."""

import numpy as np
import pytest

from onebit import HingeCompleter, Observations, simulate
from onebit.engine.algorithm_1 import _Factor, _squared_change, minimise_avb
from onebit.engine.cpu.threads import Threads
from onebit.engine.descent import Schedule
from onebit.engine.start import spectral_start
from onebit.model.hierarchy import Hierarchy
from onebit.model.priors import Gamma, InverseGamma

PRIORS = pytest.mark.parametrize("prior", ["inverse-gamma", "gamma"])


@pytest.fixture(scope="module")
def world():
    return simulate.world("A2", rank=2, shape=(60, 50), density=0.4, seed=2)


def avb(seen, row_mean, row_variance, column_mean, column_variance):
    """Hinge risk and spread of Definition 2, written out answer by answer."""
    view = seen.by_row
    i, j = view.owners(), view.index
    s_row, s_column = np.sqrt(2 * row_variance / np.pi), np.sqrt(2 * column_variance / np.pi)
    margin = view.sign * (row_mean[i] * column_mean[j]).sum(axis=1)
    spread = (
        s_row[i] * s_column[j] + np.abs(column_mean[j]) * s_row[i] + np.abs(row_mean[i]) * s_column[j]
    )
    return np.maximum(0, 1 - margin).mean(), spread.sum() / seen.n


@PRIORS
def test_the_avb_read_from_a_model_is_the_definition(world, prior):
    model = HingeCompleter(4, method="paper", prior=prior, temperature=2.0, calibrate=False)
    model.fit(world.pairs, world.answers)
    posterior = model.posterior_
    seen = Observations.from_pairs(world.pairs, world.answers)
    hinge, spread = avb(
        seen,
        posterior.rows.mean,
        posterior.rows.covariance,
        posterior.columns.mean,
        posterior.columns.covariance,
    )
    assert model.avb_.hinge_risk == pytest.approx(hinge, rel=1e-10)
    assert model.avb_.spread == pytest.approx(spread, rel=1e-10)
    assert model.avb_.divergence == pytest.approx(posterior.kl, rel=1e-10)
    assert model.avb_.total == pytest.approx(hinge + spread + posterior.kl / (2.0 * seen.n), rel=1e-10)
    assert model.objective_ == model.avb_.total


@PRIORS
def test_proposition_1_holds_by_monte_carlo(world, prior):
    rng = np.random.default_rng(0)
    model = HingeCompleter(4, method="paper", prior=prior, temperature=1.0).fit(
        world.pairs, world.answers
    )
    rows, columns = model._codes(world.pairs)
    risks = [
        np.maximum(0, 1 - world.answers * model.posterior_.sample(rng).scores(rows, columns)).mean()
        for _ in range(400)
    ]
    left = np.mean(risks) + model.posterior_.kl / len(world.answers)
    assert left + 3 * np.std(risks) / np.sqrt(400) <= model.avb_.total
    # ... and says something: it is not above it by more than its spread.
    assert model.avb_.total <= left + model.avb_.spread


def make_factors(world, rng):
    seen = Observations.from_pairs(world.pairs, world.answers)
    rows = _Factor(seen.by_row, rng.standard_normal((60, 3)), rng.random((60, 3)) + 0.05)
    columns = _Factor(seen.by_column, rng.standard_normal((50, 3)), rng.random((50, 3)) + 0.05)
    return seen, rows, columns


def test_the_sub_gradient_is_the_derivative_of_the_hinge_risk(world, rng):
    seen, rows, columns = make_factors(world, rng)
    rows.walk(columns, Threads(1, None))
    direction = rng.standard_normal(rows.mean.shape)
    step = 1e-7
    values = [
        avb(seen, rows.mean + t * direction, rows.variance, columns.mean, columns.variance)[0] * seen.n
        for t in (-step, step)
    ]
    assert (values[1] - values[0]) / (2 * step) == pytest.approx(
        (rows.gradient * direction).sum(), rel=1e-5
    )


def test_the_closed_form_of_the_variances_is_the_minimum(world, rng):
    seen, rows, columns = make_factors(world, rng)
    temperature, precision = 1.5, np.array([0.5, 3.0, 40.0])
    rows.walk(columns, Threads(1, None))
    rows.solve_variances(temperature, precision)

    def objective(variance):
        spread = avb(seen, rows.mean, variance, columns.mean, columns.variance)[1]
        return temperature * seen.n * spread + 0.5 * (precision * variance - np.log(variance)).sum()

    best = objective(rows.variance)
    for factor in (0.98, 1.02):
        assert objective(rows.variance * factor) > best
    for _ in range(5):
        assert objective(rows.variance * np.exp(0.05 * rng.standard_normal(rows.variance.shape))) > best


def test_the_change_of_the_scores_is_that_of_the_matrices(rng):
    new = rng.standard_normal((7, 3)), rng.standard_normal((5, 3))
    old = rng.standard_normal((7, 3)), rng.standard_normal((5, 3))
    change, size = _squared_change(new, old)
    assert change == pytest.approx(((new[0] @ new[1].T - old[0] @ old[1].T) ** 2).sum())
    assert size == pytest.approx(((new[0] @ new[1].T) ** 2).sum())


@pytest.mark.parametrize("prior", [InverseGamma(1.0, 0.1), Gamma(1.0, 1.0)], ids=repr)
def test_the_loop_runs_while_scores_change_and_lowers_the_avb(world, prior):
    seen = Observations.from_pairs(world.pairs, world.answers)
    hierarchy = Hierarchy(seen.shape, 4, False, False, prior, prior)
    start = spectral_start(seen, hierarchy, np.random.default_rng(0))
    fit, best = minimise_avb(
        seen, hierarchy, start, temperature=2.0, schedule=Schedule(300, 1e-5), pool=Threads(1, None)
    )
    assert fit.n_iter > 10
    assert fit.converged
    assert best.total == fit.path.min()
    assert fit.path.min() < 0.7 * fit.path[0]


def test_world_a2_is_recovered(world):
    model = HingeCompleter(5, method="paper", temperature=2.0, calibrate=False)
    model.fit(world.pairs, world.answers)
    assert world.error(model.complete("score").to_numpy()) < 0.01
    assert model.rank_ == 2


@pytest.mark.parametrize("setting", [{"effects": True}, {"covariance": "full"}, {"tol": "auto"}])
def test_what_the_paper_does_not_have_is_refused(world, setting):
    with pytest.raises(ValueError, match='method="paper"'):
        HingeCompleter(method="paper", **setting).fit(world.pairs, world.answers)
