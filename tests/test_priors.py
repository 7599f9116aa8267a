"""The priors on the column variances, against quadrature."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln

from onebit.model.priors import Gamma, InverseGamma, prior_from_settings

PRIORS = [InverseGamma(1.0, 0.3), InverseGamma(3.5, 20.0), Gamma(0.6, 2.0), Gamma(4.0, 0.5)]


def log_prior(prior, log_gamma):
    gamma = np.exp(log_gamma)
    if prior.name == "gamma":
        constant = prior.shape * np.log(prior.rate) - gammaln(prior.shape)
        return constant + (prior.shape - 1) * log_gamma - prior.rate * gamma
    constant = prior.shape * np.log(prior.scale) - gammaln(prior.shape)
    return constant - (prior.shape + 1) * log_gamma - prior.scale / gamma


def by_quadrature(prior, count, energy):
    """Integrate the optimal rho^gamma numerically, in t = log gamma."""
    grid = np.linspace(-80, 40, 400_001)

    def log_density(t):  # the Jacobian of gamma = exp(t) adds t
        return log_prior(prior, t) - 0.5 * count * t - 0.5 * energy * np.exp(-t) + t

    with np.errstate(over="ignore"):
        mode = grid[np.argmax(log_density(grid))]
    top = log_density(mode)

    def mean_of(function):
        return quad(lambda t: function(t) * np.exp(log_density(t) - top), mode - 12, mode + 12,
                    points=[mode], limit=400, epsabs=0, epsrel=1e-11)[0]  # fmt: skip

    total = mean_of(lambda t: 1.0)
    log_total = np.log(total) + top
    inverse = mean_of(lambda t: np.exp(-t)) / total
    log = mean_of(lambda t: t) / total
    gamma = mean_of(np.exp) / total
    # KL = E[log rho - log prior], with log rho = -count t / 2 - energy e^-t / 2 + log prior - log total
    kl = -0.5 * count * log - 0.5 * energy * inverse - log_total
    return inverse, log, gamma, kl


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@pytest.mark.parametrize(("count", "energy"), [(7, 0.4), (40, 12.0), (400, 35.0), (400, 4e-3)])
def test_moments_and_divergence_agree_with_quadrature(prior, count, energy):
    posterior = prior.posterior(count, energy)
    inverse, log, mean, kl = by_quadrature(prior, count, energy)
    assert float(posterior.inverse) == pytest.approx(inverse, rel=1e-8)
    assert float(posterior.log) == pytest.approx(log, rel=1e-8, abs=1e-8)
    assert float(posterior.mean) == pytest.approx(mean, rel=1e-8)
    assert float(posterior.kl) == pytest.approx(kl, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@pytest.mark.parametrize("count", [2, 50, 10_000, 10_000_000])
@pytest.mark.parametrize("energy_each", [1e-30, 1e-6, 1.0, 1e3])
def test_everything_stays_finite_from_two_to_ten_million_and_for_vanishing_columns(
    prior, count, energy_each
):
    posterior = prior.posterior(count, count * energy_each)
    for value in (posterior.inverse, posterior.log, posterior.mean, posterior.kl):
        assert np.isfinite(value)
    assert posterior.inverse > 0
    assert posterior.mean > 0
    assert posterior.kl >= -1e-6 * count
    # Jensen: E[1/gamma] >= exp(-E[log gamma]), and E[log gamma] <= log E[gamma]
    assert posterior.inverse >= np.exp(-posterior.log) * (1 - 1e-9)
    assert posterior.log <= np.log(posterior.mean) + 1e-9


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_the_update_minimises_the_objective_over_the_energy_it_was_made_for(prior):
    # rho^gamma(energy) is optimal for that energy: another one's distribution costs more.
    count, energy = 120.0, 30.0
    best = float(prior.posterior(count, energy).gaussian_kl(count, energy))
    for other in (0.5, 0.9, 1.1, 2.0):
        assert float(prior.posterior(count, other * energy).gaussian_kl(count, energy)) > best


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_the_divergence_from_the_prior_agrees_at_ten_million_with_its_derivative(prior):
    # Envelope theorem: d/d energy of the minimised objective is E[1/gamma] / 2.
    count, energy = 1e7, 2e6
    step = 1e-3 * energy

    def minimum(e):
        return float(prior.posterior(count, e).gaussian_kl(count, e))

    slope = (minimum(energy + step) - minimum(energy - step)) / (2 * step)
    assert slope == pytest.approx(0.5 * float(prior.posterior(count, energy).inverse), rel=1e-5)


def test_columns_are_handled_one_by_one():
    prior = Gamma(1.0, 1.0)
    both = prior.posterior([400, 400], [10.0, 20.0])
    alone = prior.posterior(400, 20.0)
    np.testing.assert_allclose(both.kl[1], alone.kl, rtol=1e-14)


def test_what_is_kept_of_a_count_belongs_to_its_prior():
    """Priors whose posteriors have one shape, a count for all columns or one each, any kind of number."""
    for prior, count in ((InverseGamma(1.0, 0.5), 402), (InverseGamma(2.0, 0.5), 400)):
        one, each = prior.posterior(count, [80.0, 3.0]), prior.posterior([count] * 2, [80.0, 3.0])
        for name in ("inverse", "log", "mean", "kl"):
            assert getattr(one, name).tolist() == getattr(each, name).tolist()
    single, double = (InverseGamma(kind(1.5), 0.5).posterior(401, [80.0]) for kind in (np.float32, float))
    assert single.kl.tolist() == double.kl.tolist()


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_parameter_that_is_not_positive_is_refused(bad):
    with pytest.raises(ValueError, match="shape must be a positive number"):
        InverseGamma(bad, 1.0)
    with pytest.raises(ValueError, match="rate must be a positive number"):
        Gamma(1.0, bad)


def test_a_prior_survives_its_settings():
    from dataclasses import asdict

    for prior in PRIORS:
        assert prior_from_settings(asdict(prior)) == prior
