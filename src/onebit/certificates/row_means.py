"""Shares of "yes" of one row from questions chosen at random: intervals that assume no model.

The questions were drawn without replacement from a known set, with known chances; predictions only make
the interval narrower. What they are worth shows in its width, never in its validity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom
from scipy.stats import t as student

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
# Given some questions and their answers, the probability of "yes" of every question of the set.
Forecaster = Callable[[Codes, Array], Array]

# A normal approximation needs some answers, and some that predictions did not foresee.
FEWEST, FEWEST_SURPRISES = 20, 5
FOLDS = 10


@dataclass(frozen=True)
class MeanInterval:
    """A share of "yes" and its interval.

    Attributes
    ----------
    share, low, high : float
        The estimate and the ends of its confidence interval.
    error : float
        The standard error; NaN of an exact interval.
    kind : {"predictions", "exact", "too few"}
        How it was found. "predictions": the mean of the predictions, corrected by the answers, with a
        normal approximation. "exact": from the answers alone, by the hypergeometric distribution.
        "too few": all that so few answers say, whatever the others are.
    """

    share: float
    low: float
    high: float
    error: float
    kind: str


def exact_share(yes: int, asked: int, size: int, level: float) -> MeanInterval:
    """Return the exact interval of a share from ``asked`` of ``size`` questions, drawn uniformly.

    Examples
    --------
    >>> from onebit.certificates.row_means import exact_share
    >>> found = exact_share(yes=3, asked=5, size=10, level=0.9)
    >>> found.low, found.high
    (0.3, 0.8)
    """
    total = np.arange(yes, size - (asked - yes) + 1)
    tail = 0.5 * (1.0 - level)
    # At least so many, and at most so many, if there are ``total`` in all.
    above = hypergeom.sf(yes - 1, size, total, asked)
    below = hypergeom.cdf(yes, size, total, asked)
    possible = total[(above > tail) & (below > tail)]
    if len(possible) == 0:  # between two values, of which neither is excluded by one tail alone
        possible = total[[int(np.argmax(np.minimum(above, below)))]]
    low, high = float(possible[0] / size), float(possible[-1] / size)
    return MeanInterval(yes / asked, low, high, float("nan"), "exact")


def uniform_share(
    asked: Codes,
    answers: Array,
    size: int,
    forecast: Forecaster,
    level: float,
    rng: np.random.Generator,
) -> MeanInterval:
    """Return the interval of a share from questions drawn uniformly without replacement.

    The questions are divided into folds. Of each, predictions are made from the others' answers; given
    these, the fold is a uniform draw from what is left, so that the known answers, the predictions of
    the rest and the fold's mean residual add up to an unbiased estimate. The estimate is the mean over
    folds, with the finite population's variance of the residuals.
    """
    n = len(asked)
    exact = exact_share(int(answers.sum()), n, size, level)
    if n < FEWEST or n == size:
        return exact
    folds = np.array_split(rng.permutation(n), FOLDS)
    parts, residual = [], np.empty(n)
    for fold in folds:
        others = np.setdiff1d(np.arange(n), fold)
        predicted = forecast(asked[others], answers[others])
        residual[fold] = answers[fold] - predicted[asked[fold]]
        rest = np.ones(size, dtype=bool)
        rest[asked[others]] = False
        correction = rest.sum() * residual[fold].mean()
        parts.append((answers[others].sum() + predicted[rest].sum() + correction) / size)
    if (np.abs(residual) > 0.5).sum() < FEWEST_SURPRISES:
        return exact
    variance = residual.var(ddof=1) / n * (1.0 - n / size)
    return _normal(float(np.mean(parts)), float(np.sqrt(variance)), n - 1.0, level, answers, size)


def policy_share(
    asked: Codes,
    answers: Array,
    chances: Array,
    size: int,
    forecast: Forecaster,
    level: float,
) -> MeanInterval:
    """Return the interval of a share from questions drawn one after the other, with known chances.

    Before each question, the known answers and predictions of the others add up to a guess of the share;
    its error at the question drawn, divided by the chance of that draw, makes it unbiased whatever was
    asked before (augmented inverse probability weighting; Zrnic and Candès, 2024). The estimate is the
    mean of these, weighted by how well they are expected to do.
    """
    n = len(asked)
    if n == size:
        return exact_share(int(answers.sum()), n, size, level)
    terms, weight = np.empty(n), np.empty(n)
    surprises = 0
    known = np.full(size, np.nan)
    for k in range(n):
        predicted = forecast(asked[:k], answers[:k])
        left = np.isnan(known)
        guess = np.where(left, predicted, known).mean()
        residual = answers[k] - predicted[asked[k]]
        surprises += abs(residual) > 0.5
        terms[k] = guess + residual / (chances[k] * size)
        # The variance of the best policy under these predictions.
        weight[k] = 1.0 / np.sqrt(predicted[left] * (1.0 - predicted[left])).sum() ** 2
        known[asked[k]] = answers[k]
    if n < FEWEST or surprises < FEWEST_SURPRISES:
        low, high = certain(answers, size)
        middle = np.where(np.isnan(known), forecast(asked, answers), known).mean()
        return MeanInterval(float(middle), low, high, float("nan"), "too few")
    weight /= weight.sum()
    share = float(weight @ terms)
    squares = float((weight**2).sum())
    variance = float((weight**2) @ (terms - share) ** 2) / (1.0 - squares)
    return _normal(share, float(np.sqrt(variance)), 1.0 / squares - 1.0, level, answers, size)


def certain(answers: Array, size: int) -> tuple[float, float]:
    """Return the least and the largest share that the answers leave possible, whatever the others are."""
    yes = float(answers.sum())
    return yes / size, 1.0 - (len(answers) - yes) / size


def _normal(
    share: float, error: float, freedom: float, level: float, answers: Array, size: int
) -> MeanInterval:
    half = float(student.ppf(0.5 + 0.5 * level, freedom)) * error
    least, largest = certain(answers, size)
    share = min(max(share, least), largest)
    return MeanInterval(share, max(share - half, least), min(share + half, largest), error, "predictions")
