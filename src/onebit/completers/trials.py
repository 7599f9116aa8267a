"""A trial of a search: a recipe, and what it scored on held-out answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onebit.engine.recipe import Recipe
from onebit.model.calibration import Calibration, fit_calibration
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Trial:
    """What a recipe scored on the held-out answers."""

    recipe: Recipe
    losses: Array
    weights: Array
    accuracy: float
    rounds: int
    posteriors: tuple[Posterior, ...]
    calibration: Calibration | None

    @property
    def log_loss(self) -> float:
        """The mean log-loss of the held-out answers."""
        return float(np.average(self.losses, weights=self.weights))

    def beats(self, other: Trial) -> bool:
        """Say whether this trial's log-loss is lower by more than the difference's standard error.

        Without that margin a search over many settings follows the noise of its few held-out answers
        away from good defaults.
        """
        difference = other.losses - self.losses
        gain = np.average(difference, weights=self.weights)
        share = self.weights / self.weights.sum()
        error = np.sqrt((share**2 * (difference - gain) ** 2).sum())
        return bool(gain > error)


def cross_fitted(
    mean: Array,
    variance: Array,
    sign: NDArray[np.int8],
    weight: Array,
    scale_free: bool,
    half: NDArray[np.bool_],
) -> Array:
    """Return calibrated probabilities in which no answer helped to fit the curve that it is scored by."""
    probability = np.empty_like(mean)
    for part in (half, ~half):
        others = mean[~part], variance[~part], sign[~part], weight[~part]
        curve = fit_calibration(*others, scale_free=scale_free)
        probability[part] = curve.probability(mean[part], variance[part])
    return probability
