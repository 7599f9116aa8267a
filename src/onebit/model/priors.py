"""The priors on the column variances, and what the data makes of them.

In the paper's hierarchical model a column ``k`` of both factors has one variance ``gamma_k``. Given
the factors' posterior, only two numbers of column ``k`` matter: how many Gaussians share the variance
(``count``, ``m1 + m2`` for a column of factors) and their summed second moment (``energy``,
``E[sum L_ik^2 + sum R_jk^2]``). The optimal ``rho^gamma_k`` is then

* inverse-Gamma prior: ``InvGamma(shape + count / 2, scale + energy / 2)``;
* Gamma prior: ``GIG(a = 2 rate, b = energy, order = shape - count / 2)``. The paper prints
  ``b = energy / 2``; its own density ``exp(-b / (2 x))`` makes it ``energy``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, gammaln

from onebit.data import checked
from onebit.model.bessel import log_bessel_k
from onebit.model.gig import generalised_inverse_gaussian

Array = NDArray[np.float64]


@dataclass(frozen=True)
class VariancePosterior:
    """The distributions ``rho^gamma`` of some column variances, through what the model needs.

    Attributes
    ----------
    inverse : ndarray
        ``E[1 / gamma]``, the prior precision that the factors' update sees.
    log : ndarray
        ``E[log gamma]``.
    mean : ndarray
        ``E[gamma]``, the variance of a row that has not been seen.
    kl : ndarray
        ``KL(rho^gamma, prior)``, a column at a time.
    """

    inverse: Array
    log: Array
    mean: Array
    kl: Array

    def gaussian_kl(self, count: ArrayLike, energy: ArrayLike) -> Array:
        """Return each column's share of ``KL(rho, pi)``, without the factors' own entropy.

        It is ``E[1/gamma] energy / 2 + count (E[log gamma] - 1) / 2 + KL(rho^gamma, prior)``: the
        terms of the paper's ``R(rho, lambda)`` but ``-sum log v / 2``.
        """
        count, energy = np.asarray(count, dtype=float), np.asarray(energy, dtype=float)
        return 0.5 * self.inverse * energy + 0.5 * count * (self.log - 1.0) + self.kl


class VariancePrior(Protocol):
    """A prior on column variances that has a closed-form update."""

    @property
    def name(self) -> str:
        """The prior's name."""
        ...

    def posterior(self, count: ArrayLike, energy: ArrayLike) -> VariancePosterior:
        """Return the optimal ``rho^gamma`` for columns of this ``count`` and ``energy``."""
        ...

    def log_marginal(self, count: ArrayLike, energy: ArrayLike) -> Array:
        """Return the log density of ``count`` values of this ``energy``, over all variances."""
        ...

    def draw(self, count: float, energy: Array, rng: np.random.Generator) -> Array:
        """Draw variances given how many values share each and the sum of their squares."""
        ...

    @property
    def terms(self) -> tuple[float, float, float]:
        """``p``, ``q``, ``r`` of the log density ``p log v - q / v - r v``, up to a constant."""
        ...


def _set_positive(prior: Any, name: str) -> None:
    """Check a number of a prior, and make it one of Python's: what is reckoned from it is kept."""
    value = getattr(prior, name)
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    object.__setattr__(prior, name, float(value))


def _checked(count: ArrayLike, energy: ArrayLike) -> tuple[Array, Array]:
    count = np.asarray(count, dtype=float)
    energy = np.asarray(energy, dtype=float)
    # A column without energy is a limit that the updates only approach; the floor keeps logs finite.
    return count, np.maximum(energy, 1e-290)


def _of_shape(prior: float, shape: Any) -> tuple[Any, Any]:
    """Return ``digamma`` of an inverse Gamma's shape, and what of its KL from a prior is no scale's."""
    psi = digamma(shape)
    return psi, (shape - prior) * psi - gammaln(shape) + gammaln(prior)


_of_one_shape = lru_cache(maxsize=256)(_of_shape)


@dataclass(frozen=True)
class InverseGamma:
    """``gamma ~ InvGamma(shape, scale)``, density ``~ gamma^(-shape-1) exp(-scale / gamma)``.

    Examples
    --------
    >>> from onebit.model.priors import InverseGamma
    >>> posterior = InverseGamma(shape=1.0, scale=0.5).posterior(count=400, energy=[80.0, 1e-9])
    >>> posterior.inverse.round(2).tolist()
    [4.96, 402.0]
    """

    shape: float
    scale: float
    name: str = "inverse-gamma"

    def __post_init__(self) -> None:
        _set_positive(self, "shape")
        _set_positive(self, "scale")

    def posterior(self, count: ArrayLike, energy: ArrayLike) -> VariancePosterior:
        """Return ``InvGamma(shape + count / 2, scale + energy / 2)``, a column at a time."""
        count, energy = _checked(count, energy)
        shape, scale = self.shape + 0.5 * count, self.scale + 0.5 * energy
        same = count.ndim == 0  # for all columns, and so in every round of a fit
        psi, constant = _of_one_shape(self.shape, float(shape)) if same else _of_shape(self.shape, shape)
        kl = constant + self.shape * np.log(scale / self.scale) - shape * (scale - self.scale) / scale
        # The mean exists for shapes above one; the mode stands in for it where it does not.
        mean = scale / np.where(shape > 1.0, shape - 1.0, shape + 1.0)
        return VariancePosterior(shape / scale, np.log(scale) - psi, mean, kl)

    def log_marginal(self, count: ArrayLike, energy: ArrayLike) -> Array:
        """Return the log density of ``count`` values of this ``energy``, their variance integrated out.

        ``log E[(2 pi gamma)^(-count / 2) exp(-energy / (2 gamma))]``: a multivariate Student density.
        """
        count, energy = _checked(count, energy)
        shape = self.shape + 0.5 * count
        return (
            gammaln(shape)
            - gammaln(self.shape)
            + self.shape * np.log(self.scale)
            - shape * np.log(self.scale + 0.5 * energy)
            - 0.5 * count * np.log(2.0 * np.pi)
        )

    def draw(self, count: float, energy: Array, rng: np.random.Generator) -> Array:
        """Draw from ``InvGamma(shape + count / 2, scale + energy / 2)``, a column at a time."""
        return (self.scale + 0.5 * energy) / rng.standard_gamma(self.shape + 0.5 * count, len(energy))

    @property
    def terms(self) -> tuple[float, float, float]:
        """``p``, ``q``, ``r`` of the log density ``p log v - q / v - r v``, up to a constant."""
        return -(self.shape + 1.0), self.scale, 0.0

    def scale_mixture(self, square: ArrayLike) -> tuple[Array, Array]:
        """Return what a coordinate pays whose own variance ``psi`` has this prior, and its precision.

        For ``square = E[x^2] / gamma``, the least divergence over the distributions of ``psi`` (up to
        the coordinate's own entropy) is ``-log E[psi^-1/2 exp(-square / (2 psi))]``, and
        ``E[1 / psi]`` at that point is twice its derivative. It grows with the logarithm of ``square``:
        a large coordinate costs little more than a middling one, so few large ones are cheapest.
        """
        inside = self.scale + 0.5 * np.asarray(square, dtype=float)
        constant = gammaln(self.shape) - gammaln(self.shape + 0.5) - self.shape * np.log(self.scale)
        return (self.shape + 0.5) * np.log(inside) + constant, (self.shape + 0.5) / inside


@dataclass(frozen=True)
class Gamma:
    """``gamma ~ Gamma(shape, rate)``, density ``~ gamma^(shape-1) exp(-rate gamma)``.

    Examples
    --------
    >>> from onebit.model.priors import Gamma
    >>> posterior = Gamma(shape=1.0, rate=2.0).posterior(count=400, energy=[80.0, 1e-9])
    >>> bool((posterior.kl >= 0).all())
    True
    """

    shape: float
    rate: float
    name: str = "gamma"

    def __post_init__(self) -> None:
        _set_positive(self, "shape")
        _set_positive(self, "rate")

    def posterior(self, count: ArrayLike, energy: ArrayLike) -> VariancePosterior:
        """Return ``GIG(2 rate, energy, shape - count / 2)``, a column at a time."""
        count, energy = _checked(count, energy)
        a, b, order = 2.0 * self.rate, energy, self.shape - 0.5 * count
        log_scale = 0.5 * np.log(b / a)
        bessel = log_bessel_k(order, np.sqrt(a * b))
        # E[gamma] = scale K_{order+1} / K_order;  E[1/gamma] = K_{order-1} / (scale K_order), where
        # K_{order-1} = K_{order+1} - (2 order / z) K_order is taken at -order to stay positive.
        mean = np.exp(log_scale + bessel.log_ratio)
        below = log_bessel_k(-order, np.sqrt(a * b)).log_ratio
        inverse = np.exp(below - log_scale)
        log = log_scale + bessel.order_derivative
        log_normaliser = np.log(2.0) + bessel.log_value + order * log_scale
        kl = (
            -log_normaliser
            + (order - self.shape) * log
            - 0.5 * b * inverse
            - self.shape * np.log(self.rate)
            + gammaln(self.shape)
        )
        return VariancePosterior(inverse, log, mean, kl)

    def log_marginal(self, count: ArrayLike, energy: ArrayLike) -> Array:
        """Return the log density of ``count`` values of this ``energy``, their variance integrated out.

        The integral is the normaliser of the ``GIG(2 rate, energy, shape - count / 2)`` distribution.
        """
        count, energy = _checked(count, energy)
        a, b, order = 2.0 * self.rate, energy, self.shape - 0.5 * count
        log_normaliser = (
            np.log(2.0) + log_bessel_k(order, np.sqrt(a * b)).log_value + 0.5 * order * np.log(b / a)
        )
        return (
            log_normaliser
            + self.shape * np.log(self.rate)
            - gammaln(self.shape)
            - 0.5 * count * np.log(2.0 * np.pi)
        )

    def draw(self, count: float, energy: Array, rng: np.random.Generator) -> Array:
        """Draw from ``GIG(2 rate, energy, shape - count / 2)``, one for each column."""
        orders, energy = _checked(np.full(len(energy), self.shape - 0.5 * count), energy)
        return generalised_inverse_gaussian(orders, 2.0 * self.rate, energy, rng)

    @property
    def terms(self) -> tuple[float, float, float]:
        """``p``, ``q``, ``r`` of the log density ``p log v - q / v - r v``, up to a constant."""
        return self.shape - 1.0, 0.0, self.rate


def prior_from_settings(settings: Any) -> VariancePrior:
    """Restore a prior from ``dataclasses.asdict`` of it, checked."""
    name = checked.text(settings, "name")
    if name not in ("gamma", "inverse-gamma"):
        raise checked.FileError(f"the prior {name[:40]!r} is unknown")
    second = "rate" if name == "gamma" else "scale"
    checked.only(settings, ("name", "shape", second), "a prior")
    first, last = (checked.number(settings, part, positive=True) for part in ("shape", second))
    return Gamma(first, last) if name == "gamma" else InverseGamma(first, last)
