"""From scores to probabilities.

* The logistic loss is a likelihood: the probability is ``E[sigmoid(x)]`` over the score's posterior.
* The hinge loss is not. Its scores become probabilities by a logistic curve in the standardised score
  ``mean / sqrt(1 + variance)``, fitted on answers that the fit had not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]

_NODES, _WEIGHTS = hermegauss(21)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()

# Probabilities are kept off 0 and 1: no finite table of answers justifies certainty, and one wrong
# answer given with certainty would make the log-loss infinite.
CERTAINTY = 1e-6


def expected_sigmoid(mean: Array, variance: Array) -> Array:
    """Return ``E[sigmoid(x)]`` for ``x ~ N(mean, variance)``, by Gauss-Hermite quadrature.

    Examples
    --------
    >>> from onebit.calibration import expected_sigmoid
    >>> expected_sigmoid([2.0, 2.0], [0.0, 10.0]).round(2).tolist()
    [0.88, 0.71]
    """
    mean, deviation = np.asarray(mean, dtype=float), np.sqrt(np.asarray(variance, dtype=float))
    total = np.zeros_like(mean)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += weight * expit(mean + node * deviation)
    return np.clip(total, CERTAINTY, 1.0 - CERTAINTY)


@dataclass(frozen=True)
class Calibration:
    """The curve ``sigmoid(slope z + intercept)`` in the standardised score ``z``."""

    slope: float
    intercept: float = 0.0

    def probability(self, mean: Array, variance: Array) -> Array:
        """Return the probability of "yes" for scores with these moments."""
        curve = expit(self.slope * standardised(mean, variance) + self.intercept)
        return np.clip(curve, CERTAINTY, 1.0 - CERTAINTY)


def standardised(mean: Array, variance: Array) -> Array:
    """Return ``mean / sqrt(1 + variance)``: uncertain scores move towards zero."""
    return mean / np.sqrt(1.0 + variance)


def natural_calibration(temperature: float) -> Calibration:
    """Return the curve of the hinge pseudo-likelihood itself.

    Within the margins ``loss(-x) - loss(x) = 2 x``, so the odds of "yes" are ``exp(2 temperature x)``.
    """
    return Calibration(2.0 * temperature)


def fit_calibration(
    mean: Array, variance: Array, sign: NDArray[np.int8], natural: Calibration
) -> Calibration:
    """Fit the curve to held-out answers, with the natural curve as a weak Gaussian prior.

    Newton's method on two parameters; the slope is kept non-negative.
    """
    z = standardised(mean, variance)
    design = np.column_stack([z, np.ones_like(z)])
    target = (np.asarray(sign) + 1) / 2
    centre = np.array([natural.slope, natural.intercept])
    # Standard deviation of the slope: the natural one; of the intercept: 1.
    strength = np.array([1.0 / max(natural.slope, 1e-3) ** 2, 1.0])
    parameters = centre.copy()

    def objective(p: Array) -> float:
        margin = (2 * target - 1) * (design @ p)
        return float(np.logaddexp(0.0, -margin).sum() + 0.5 * (strength * (p - centre) ** 2).sum())

    value = objective(parameters)
    for _ in range(50):
        probability = expit(design @ parameters)
        gradient = design.T @ (probability - target) + strength * (parameters - centre)
        weight = probability * (1.0 - probability)
        hessian = (design * weight[:, None]).T @ design + np.diag(strength)
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while objective(parameters - size * step) > value and size > 1e-6:
            size *= 0.5
        parameters = parameters - size * step
        last, value = value, objective(parameters)
        if last - value < 1e-10 * (1.0 + abs(value)):
            break
    return Calibration(float(max(parameters[0], 0.0)), float(parameters[1]))
