"""From scores to probabilities.

* The logistic loss is a likelihood: the probability is ``E[sigmoid(x)]`` over the score's posterior.
* The hinge loss is not. Its scores become probabilities by a logistic curve in the standardised score
  ``mean / sqrt(1 + variance)``, fitted on answers that the fit had not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, ndtr

Array = NDArray[np.float64]

# Probabilities are kept off 0 and 1: no finite table of answers justifies certainty, and one wrong
# answer given with certainty would make the log-loss infinite.
CERTAINTY = 1e-6
STEEPEST = 50.0


def _normal_mixture(nodes: int) -> tuple[Array, Array]:
    """Return weights ``p`` and scales ``s`` with ``sigmoid(x) = sum p Phi(x / s)``.

    The logistic distribution is a normal one whose standard deviation is twice a Kolmogorov-Smirnov
    variable ``k`` (Andrews and Mallows, 1974), with density
    ``8 k sum_j (-1)^(j-1) j^2 exp(-2 j^2 k^2)``; Gauss-Legendre over its range.
    """
    position, weight = np.polynomial.legendre.leggauss(nodes)
    k = 1.625 + 1.375 * position  # from 0.25 to 3, all but 1e-7 of the mass
    j = np.arange(1, 30)[:, None]
    density = 8.0 * k * ((-1.0) ** (j - 1) * j**2 * np.exp(-2.0 * j**2 * k**2)).sum(axis=0)
    mass = weight * density
    return mass / mass.sum(), 2.0 * k


# Sixteen terms are right to 1e-5, for every score and every variance.
_WEIGHTS, _SCALES = _normal_mixture(16)


def expected_sigmoid(mean: ArrayLike, variance: ArrayLike) -> Array:
    """Return ``E[sigmoid(x)]`` for ``x ~ N(mean, variance)``.

    With the sigmoid as a mixture of normal distribution functions the integral is in closed form:
    ``sum p Phi(mean / sqrt(s^2 + variance))``.

    Examples
    --------
    >>> from onebit.calibration import expected_sigmoid
    >>> expected_sigmoid([2.0, 2.0], [0.0, 10.0]).round(4).tolist()
    [0.8808, 0.7097]
    """
    mean, variance = np.asarray(mean, dtype=float), np.asarray(variance, dtype=float)
    total = np.zeros_like(mean)
    for weight, scale in zip(_WEIGHTS, _SCALES, strict=True):
        total += weight * ndtr(mean / np.sqrt(scale * scale + variance))
    return np.clip(total, CERTAINTY, 1.0 - CERTAINTY)


@dataclass(frozen=True)
class Calibration:
    """The curve ``sigmoid(slope z)`` in the standardised score ``z``.

    It has no intercept, so that a probability above one half goes with a positive score.
    """

    slope: float

    def probability(self, mean: Array, variance: Array) -> Array:
        """Return the probability of "yes" for scores with these moments."""
        curve = expit(self.slope * standardised(mean, variance))
        return np.clip(curve, CERTAINTY, 1.0 - CERTAINTY)


def standardised(mean: Array, variance: Array) -> Array:
    """Return ``mean / sqrt(1 + variance)``: uncertain scores move towards zero."""
    return mean / np.sqrt(1.0 + variance)


def natural_calibration(temperature: float) -> Calibration:
    """Return the curve of the hinge pseudo-likelihood itself.

    Within the margins ``loss(-x) - loss(x) = 2 x``, so the odds of "yes" are ``exp(2 temperature x)``.
    """
    return Calibration(min(2.0 * temperature, STEEPEST))


def fit_calibration(
    mean: Array, variance: Array, sign: NDArray[np.int8], weight: ArrayLike | None = None
) -> Calibration:
    """Fit the curve to held-out answers, by their log-loss.

    As Platt does, one answer of either kind is added in thought, so that scores which happen to
    separate the held-out answers do not ask for certainty. The slope is not negative.
    """
    margin = standardised(mean, variance) * sign
    weight = np.ones_like(margin) if weight is None else np.asarray(weight, dtype=float)
    doubt = 1.0 / (weight.sum() / weight.max() + 2.0)

    def loss(slope: float) -> float:
        right, wrong = np.logaddexp(0.0, -slope * margin), np.logaddexp(0.0, slope * margin)
        return float((weight * ((1.0 - doubt) * right + doubt * wrong)).sum())

    # In one parameter the log-loss is convex.
    slope = float(minimize_scalar(loss, bounds=(0.0, STEEPEST), method="bounded").x)
    return Calibration(slope if loss(slope) < loss(0.0) else 0.0)
