"""From scores to probabilities.

* The logistic loss is a likelihood: the probability is ``E[sigmoid(x)]`` over the score's posterior.
* The hinge loss is not. Its scores become probabilities by a logistic curve in the standardised score
  ``mean / sqrt(1 + variance)``, fitted on answers that the fit had not seen.
* The Gibbs loss does not see the scale of its scores either: its curve is one in ``mean / sd``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, ndtr

from onebit.data import checked

Array = NDArray[np.float64]

# Probabilities are kept off 0 and 1: no finite table of answers justifies certainty, and one wrong
# answer given with certainty would make the log-loss infinite.
CERTAINTY = 1e-6
STEEPEST = 50.0


def _normal_mixture(nodes: int) -> tuple[Array, Array]:
    """Return weights ``p`` and scales ``s`` with ``sigmoid(x) = sum p Phi(x / s)``.

    The logistic distribution is a normal one whose standard deviation is twice a Kolmogorov-Smirnov
    variable ``k`` (Andrews and Mallows, 1974), with density
    ``8 k sum_j (-1)^(j-1) j^2 exp(-2 j^2 k^2)``. This is the Gauss rule for that distribution in
    ``log(k)``, from the recurrence of its orthogonal polynomials (Golub and Welsch, 1969).
    """
    # All but 1e-8 of the mass, which falls off smoothly at both ends: even steps integrate it.
    k = 0.2 + 3.0 * (np.arange(400) + 0.5) / 400
    j = np.arange(1, 40)[:, None]
    mass = k * ((-1.0) ** (j - 1) * j**2 * np.exp(-2.0 * j**2 * k**2)).sum(axis=0)
    mass /= mass.sum()
    place = np.log(k)
    last, present, norm = np.zeros_like(k), np.ones_like(k), 1.0
    jacobi = np.zeros((nodes, nodes))
    for n in range(nodes):
        jacobi[n, n] = (mass * place * present**2).sum() / norm
        last, present = (
            present,
            (place - jacobi[n, n]) * present - (jacobi[n, n - 1] ** 2 * last if n else 0.0),
        )
        before, norm = norm, (mass * present**2).sum()
        if n + 1 < nodes:
            jacobi[n, n + 1] = jacobi[n + 1, n] = np.sqrt(norm / before)
    values, vectors = np.linalg.eigh(jacobi)
    return vectors[0] ** 2, 2.0 * np.exp(values)


# Six terms are right to 2e-6, for every score and every variance.
WEIGHTS, SCALES = _normal_mixture(6)


def expected_sigmoid(mean: ArrayLike, variance: ArrayLike) -> Array:
    """Return ``E[sigmoid(x)]`` for ``x ~ N(mean, variance)``.

    With the sigmoid as a mixture of normal distribution functions the integral is in closed form:
    ``sum p Phi(mean / sqrt(s^2 + variance))``.

    Examples
    --------
    >>> from onebit.model.calibration import expected_sigmoid
    >>> expected_sigmoid([2.0, 2.0], [0.0, 10.0]).round(4).tolist()
    [0.8808, 0.7097]
    """
    mean, variance = np.asarray(mean, dtype=float), np.asarray(variance, dtype=float)
    total = np.zeros_like(mean)
    for weight, scale in zip(WEIGHTS, SCALES, strict=True):
        total += weight * ndtr(mean / np.sqrt(scale * scale + variance))
    return np.clip(total, CERTAINTY, 1.0 - CERTAINTY)


@dataclass(frozen=True)
class Calibration:
    """The curve ``sigmoid(slope z)`` in the standardised score ``z``.

    It has no intercept, so that a probability above one half goes with a positive score. Where it is
    ``scale_free``, ``z`` is the score in its standard deviations.
    """

    slope: float
    scale_free: bool = False

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Calibration:
        """Restore a curve from ``dataclasses.asdict`` of it, checked."""
        checked.only(settings, ("slope", "scale_free"), "the calibration")
        slope = checked.number(settings, "slope", least=0.0, most=STEEPEST)
        # Files of the hinge loss that are older do not say it.
        return cls(slope, "scale_free" in settings and checked.flag(settings, "scale_free"))

    def probability(self, mean: Array, variance: Array) -> Array:
        """Return the probability of "yes" for scores with these moments."""
        curve = expit(self.slope * standardised(mean, variance, self.scale_free))
        return np.clip(curve, CERTAINTY, 1.0 - CERTAINTY)


def standardised(mean: Array, variance: Array, scale_free: bool = False) -> Array:
    """Return ``mean / sqrt(1 + variance)``: uncertain scores move towards zero.

    Scale-free it is ``mean / sqrt(variance)``, and zero where there is no variance.
    """
    if scale_free:
        return np.divide(mean, np.sqrt(variance), out=np.zeros_like(mean), where=variance > 0)
    return mean / np.sqrt(1.0 + variance)


def natural_calibration(temperature: float) -> Calibration:
    """Return the curve of the hinge pseudo-likelihood itself.

    Within the margins ``loss(-x) - loss(x) = 2 x``, so the odds of "yes" are ``exp(2 temperature x)``.
    """
    return Calibration(min(2.0 * temperature, STEEPEST))


def fit_calibration(
    mean: Array,
    variance: Array,
    sign: NDArray[np.int8],
    weight: ArrayLike | None = None,
    *,
    scale_free: bool = False,
) -> Calibration:
    """Fit the curve to held-out answers, by their log-loss.

    As Platt does, one answer of either kind is added in thought, so that scores which happen to
    separate the held-out answers do not ask for certainty. The slope is not negative.
    """
    margin = standardised(mean, variance, scale_free) * sign
    weight = np.ones_like(margin) if weight is None else np.asarray(weight, dtype=float)
    doubt = 1.0 / (weight.sum() / weight.max() + 2.0)

    def loss(slope: float) -> float:
        right, wrong = np.logaddexp(0.0, -slope * margin), np.logaddexp(0.0, slope * margin)
        return float((weight * ((1.0 - doubt) * right + doubt * wrong)).sum())

    # In one parameter the log-loss is convex.
    slope = float(minimize_scalar(loss, bounds=(0.0, STEEPEST), method="bounded").x)
    return Calibration(slope if loss(slope) < loss(0.0) else 0.0, scale_free)


@dataclass(frozen=True)
class Sigmoid:
    """The curve of the logistic loss: ``E[sigmoid(x)]`` over the score's posterior."""

    def probability(self, mean: Array, variance: Array) -> Array:
        """Return the probability of "yes" for scores with these moments."""
        return expected_sigmoid(mean, variance)


@dataclass(frozen=True)
class DrawnShare:
    """The share of predictors drawn from a posterior that say "yes": no calibrated probability."""

    def probability(self, mean: Array, variance: Array) -> Array:
        """Return the share for scores with these moments."""
        margin = standardised(mean, variance, scale_free=True)
        return np.clip(ndtr(margin), CERTAINTY, 1.0 - CERTAINTY)
