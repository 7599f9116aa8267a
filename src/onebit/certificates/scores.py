"""Bounds on more than the error rate: log-loss, Brier score, calibration, and gains over simpler answers.

All count the held-out answers that ``hold_out`` counts, and hold under the same assumption. Means of
numbers between 0 and 1 are bounded by betting. The log-loss is that of probabilities held between 1 and
99 %, so that it has a largest value. Gains are means of paired differences: +1 where the simpler answer
is wrong and the model right, -1 where it is the other way round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from onebit.certificates.betting import betting_upper_bound
from onebit.certificates.hold_out import HeldOut, check_hold_out_delta

Array = NDArray[np.float64]

# Probabilities are held this far from 0 and 1 for the log-loss.
FLOOR = 0.01
BINS = 10


@dataclass(frozen=True)
class Mean:
    """A bound on a mean, what was observed, and how many answers were counted."""

    bound: float
    observed: float
    answers: int


def yes_probability(held: HeldOut) -> Array:
    """Return the probability of "yes" that each held-out answer was given."""
    return np.where(held.yes, held.confidence, 1.0 - held.confidence)


def log_loss_bound(held: HeldOut, delta: float) -> Mean:
    """Bound the mean log-loss, in nats, of probabilities held between 1 and 99 %."""
    check_hold_out_delta(delta)
    chance = np.clip(yes_probability(held), FLOOR, 1.0 - FLOOR)
    loss = -np.log(np.where(held.sign > 0, chance, 1.0 - chance))
    least, most = -math.log(1.0 - FLOOR), -math.log(FLOOR)
    scaled = (loss - least) / (most - least)
    bound = betting_upper_bound(np.clip(scaled, 0.0, 1.0)[held.in_random_order()], delta)
    return Mean(least + (most - least) * bound, float(loss.mean()), len(loss))


def brier_bound(held: HeldOut, delta: float) -> Mean:
    """Bound the Brier score: the mean squared distance of the probability from the answer."""
    check_hold_out_delta(delta)
    loss = (yes_probability(held) - (held.sign > 0)) ** 2
    return Mean(betting_upper_bound(loss[held.in_random_order()], delta), float(loss.mean()), len(loss))


def gain_bound(held: HeldOut, other_wrong: NDArray[np.bool_], delta: float) -> Mean:
    """Bound from below by how much the error rate is lower than that of other answers."""
    check_hold_out_delta(delta)
    gain = other_wrong.astype(float) - held.wrong
    low = 1.0 - 2.0 * betting_upper_bound((0.5 * (1.0 - gain))[held.in_random_order()], delta)
    return Mean(low, float(gain.mean()), len(gain))


def mcnemar(held: HeldOut, other_wrong: NDArray[np.bool_]) -> float:
    """Return the exact p-value of McNemar's test that the model is not better than the other answers."""
    from scipy.stats import binomtest

    better, worse = int((other_wrong & ~held.wrong).sum()), int((~other_wrong & held.wrong).sum())
    if better + worse == 0:
        return 1.0
    return float(binomtest(better, better + worse, 0.5, alternative="greater").pvalue)


@dataclass(frozen=True)
class Band:
    """Of predictions with a probability of "yes" in a bin: its frequency, and where the true one lies."""

    begin: float
    end: float
    answers: int
    predicted: float
    observed: float
    low: float
    high: float


def calibration_bands(held: HeldOut, delta: float) -> list[Band]:
    """Return intervals for the frequencies of "yes" in ten bins of the probability, all at once.

    The bins are fixed beforehand. Given how many held-out answers fall into one, they are independent
    draws from it (Clopper and Pearson, at a tenth of ``delta`` each, both sides).
    """
    check_hold_out_delta(delta)
    chance = yes_probability(held)
    place = np.minimum((chance * BINS).astype(int), BINS - 1)
    bands = []
    for k in range(BINS):
        inside = place == k
        n, yes = int(inside.sum()), int((held.sign[inside] > 0).sum())
        each = delta / (2 * BINS)
        low = float(betaincinv(yes, n - yes + 1, each)) if yes else 0.0
        high = float(betaincinv(yes + 1, n - yes, 1.0 - each)) if yes < n else 1.0
        mean = float(chance[inside].mean()) if n else (k + 0.5) / BINS
        bands.append(Band(k / BINS, (k + 1) / BINS, n, mean, yes / n if n else float("nan"), low, high))
    return bands
