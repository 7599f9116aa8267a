"""New rows of a fitted model: where one stands given its answers, and which answers would tell most.

A column asks a row for ``s_j = c_j . u + b_j``, where ``u`` are the row's factors and its effect. Rows
are taken to be drawn from a normal population, whose mean and covariance are those of the fitted rows; a
row's answers make a normal posterior of ``u`` by Laplace's method. Columns are not known exactly either:
with variance ``v_j`` of the score that comes from the column, ``sigmoid(s_j)`` is taken as
``sigmoid(s_j / sqrt(1 + pi v_j / 8))`` (MacKay, 1992), so that an uncertain column tells less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from onebit.model.gaussians import lower_triangle
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

# A row may be unlike those that were fitted, such as one better than all seen: along the direction in
# which the share of "yes" grows, the variance of the population that it comes from is then so many times
# larger. The odds of that are taken to be n to 30 after n answers, times how well the answers bear it
# out: a guess from the population is worth most where there are few answers, and costs most, 2 to 5
# points of the share, where there are a hundred that contradict it (see docs/asking.md).
WIDER, LOYALTY = 16.0, 30.0
_PROBIT = np.pi / 8.0
_TURNS = 3
_STEPS = 50
_SETTLED = 1e-6
# Rows of the population for which a set of questions that all are asked is chosen.
_TYPICAL = 24
# Numbers of questions after which it is seen how far off a known row is; the first of these are asked one
# by one, the others so many at once.
MARKS = (40, 100, 200)
_ONE_BY_ONE, _AT_ONCE = 20, 10


@dataclass(frozen=True)
class Standing:
    """What is known of one row: mean and covariance of its coordinates."""

    mean: Array
    covariance: Array


@dataclass(frozen=True)
class Forecast:
    """What is expected of one row's answers.

    Attributes
    ----------
    probability : ndarray
        Of "yes", for each column.
    slope : ndarray of shape (columns, coordinates)
        How each probability changes with the row's coordinates.
    faced : ndarray of shape (columns, coordinates)
        What each column multiplies the coordinates with, the column's own uncertainty allowed for.
    """

    probability: Array
    slope: Array
    faced: Array

    @cached_property
    def variance(self) -> Array:
        """The variance of each answer."""
        return self.probability * (1.0 - self.probability)


@dataclass(frozen=True)
class Goal:
    """What is to be learnt: the variance ``|root' u|^2`` in expectation, and that of single answers.

    Attributes
    ----------
    root : ndarray of shape (coordinates, n)
        The part that depends on the row: ``trace(root' S root)`` for a covariance ``S``.
    own : ndarray
        The part of each column's own answer, which is gone once that answer is known.
    """

    root: Array
    own: Array

    def variance(self, standing: Standing, left: NDArray[np.bool_]) -> float:
        """Return the variance that is left."""
        part = np.einsum("qn,qp,pn->", self.root, standing.covariance, self.root)
        return float(part + self.own[left].sum())


@dataclass(frozen=True)
class Population:
    """The columns as questions, and the rows as a population.

    Attributes
    ----------
    design, offset : ndarray
        ``c_j`` and ``b_j`` of each column.
    spread : ndarray
        Covariances of the columns' own coordinates: packed lower triangles, or variances.
    full : bool
        Which of the two.
    rank : int
        The number of factors.
    mean, covariance : ndarray
        Of the population of rows.
    rows : ndarray
        Means of the fitted rows.
    """

    design: Array
    offset: Array
    spread: Array
    full: bool
    rank: int
    column_effect: bool
    mean: Array
    covariance: Array
    rows: Array

    @classmethod
    def of(cls, posterior: Posterior) -> Population:
        """Return the population of a fitted model's rows, facing its columns."""
        hierarchy = posterior.hierarchy
        rank, columns = hierarchy.rank, posterior.columns
        effect = hierarchy.has_effect(1)
        rows = posterior.rows
        n, q = rows.mean.shape
        spread = np.cov(rows.mean, rowvar=False, bias=True).reshape(q, q)
        spread = spread + rows.dense_covariance().mean(axis=0)
        prior = np.diag(hierarchy.prior_moments(0, posterior.hyper)[1])
        # As many rows as there are coordinates are lent by the prior: few rows say little of covariances.
        covariance = (n * spread + q * prior) / (n + q)
        return cls(
            *_questions(posterior), columns.covariance, columns.full, rank, effect,
            rows.mean.mean(axis=0), covariance, rows.mean,
        )  # fmt: skip

    def facing(self, posterior: Posterior) -> Population:
        """Return the same rows, facing the columns of another posterior."""
        design, offset = _questions(posterior)
        return replace(self, design=design, offset=offset, spread=posterior.columns.covariance)

    @cached_property
    def wide(self) -> Array:
        """The covariance of rows that are unlike the fitted ones."""
        slope = self.forecast(self.unknown).slope.mean(axis=0)
        along = self.covariance @ slope
        size = float(slope @ along)
        return self.covariance + (WIDER - 1.0) * np.outer(along, along) / max(size, 1e-300)

    @property
    def size(self) -> int:
        """The number of columns."""
        return len(self.offset)

    @property
    def unknown(self) -> Standing:
        """Where a row stands that has answered nothing."""
        return Standing(self.mean, self.covariance)

    def column_variance(self, standing: Standing, columns: Codes | slice = slice(None)) -> Array:
        """Return the variance of a row's scores that comes from what is not known of the columns."""
        factors = standing.mean[: self.rank]
        second = np.outer(factors, factors) + standing.covariance[: self.rank, : self.rank]
        if self.column_effect:
            one = np.append(factors, 1.0)
            second = np.block([[second, factors[:, None]], [one]])
        if self.full:
            lower = lower_triangle(len(second))
            weights = np.where(lower[0] == lower[1], 1.0, 2.0) * second[lower]
        else:
            weights = np.diag(second)
        return self.spread[columns] @ weights

    def faced(self, standing: Standing, columns: Codes | slice = slice(None)) -> tuple[Array, Array]:
        """Return what columns multiply the coordinates with and add, softened by their uncertainty."""
        soft = 1.0 / np.sqrt(1.0 + _PROBIT * self.column_variance(standing, columns))
        return self.design[columns] * soft[:, None], self.offset[columns] * soft

    def score_moments(self, standing: Standing, columns: Codes) -> tuple[Array, Array]:
        """Return mean and variance of a row's scores, of what is not known of it and of the columns."""
        design = self.design[columns]
        mean = design @ standing.mean + self.offset[columns]
        own = ((design @ standing.covariance) * design).sum(axis=1)
        return mean, own + self.column_variance(standing, columns)

    def standing(self, columns: Codes, signs: NDArray[np.integer]) -> Standing:
        """Return where a row stands that gave these answers (+1 and -1) about these columns.

        The two populations that it may come from are weighed by how well they explain the answers, and
        mean and covariance are those of their mixture.
        """
        if len(columns) == 0 or len(self.mean) == 0:
            return self.unknown
        usual, likely = self._standing(columns, signs, self.covariance)
        strange, unlikely = self._standing(columns, signs, self.wide)
        share = float(expit(unlikely - likely + np.log(len(columns) / LOYALTY)))
        gap = strange.mean - usual.mean
        covariance = (1.0 - share) * usual.covariance + share * strange.covariance
        return Standing(usual.mean + share * gap, covariance + share * (1.0 - share) * np.outer(gap, gap))

    def _standing(
        self, columns: Codes, signs: NDArray[np.integer], covariance: Array
    ) -> tuple[Standing, float]:
        """Return where a row of one population stands, and the log of how likely its answers were."""
        found = Standing(self.mean, covariance)
        precision = np.asarray(np.linalg.inv(covariance), float)
        for _ in range(_TURNS):
            design, offset = self.faced(found, columns)
            found, objective = _laplace(self.mean, precision, design, offset, signs, found.mean)
        inside, outside = (np.linalg.slogdet(part)[1] for part in (found.covariance, covariance))
        return found, float(0.5 * (inside - outside) - objective)

    def forecast(self, standing: Standing) -> Forecast:
        """Return what is expected of a row's answers."""
        design, offset = self.faced(standing)
        spread = np.einsum("jq,jq->j", design @ standing.covariance, design)
        soft = 1.0 / np.sqrt(1.0 + _PROBIT * spread)
        probability = expit((design @ standing.mean + offset) * soft)
        slope = design * (soft * probability * (1.0 - probability))[:, None]
        return Forecast(probability, slope, design)

    def goal(self, kind: str, forecast: Forecast, wanted: NDArray[np.bool_]) -> Goal:
        """Return what is to be learnt.

        "mean": the share of "yes" over the wanted columns. "answers": the answers to each of them. "row":
        the probabilities of all of them, as far as they depend on the row.
        """
        if kind == "mean":
            count = max(int(wanted.sum()), 1)
            root = forecast.slope[wanted].sum(axis=0)[:, None] / count
            return Goal(root, np.where(wanted, forecast.variance / count**2, 0.0))
        slope = forecast.slope[wanted]
        values, vectors = np.linalg.eigh(slope.T @ slope)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        own = np.where(wanted, forecast.variance, 0.0) if kind == "answers" else np.zeros(self.size)
        return Goal(root, own)

    def gains(self, standing: Standing, forecast: Forecast, goal: Goal) -> Array:
        """Return by how much each column's answer lowers the goal's variance, in expectation.

        To first order an answer adds ``w c c'`` to the precision, ``w`` the variance of the answer.
        """
        weight = forecast.variance
        moved = forecast.faced @ standing.covariance
        spread = np.einsum("jq,jq->j", moved, forecast.faced)
        return weight * ((moved @ goal.root) ** 2).sum(axis=1) / (1.0 + weight * spread) + goal.own

    def after(self, standing: Standing, forecast: Forecast, column: int) -> Standing:
        """Return what is expected to be known once a column's answer is there, whatever it will be."""
        moved = standing.covariance @ forecast.faced[column]
        weight = forecast.variance[column]
        drop = weight * np.outer(moved, moved) / (1.0 + weight * forecast.faced[column] @ moved)
        return Standing(standing.mean, standing.covariance - drop)

    def share(
        self, standing: Standing, forecast: Forecast, known: Array, wanted: NDArray[np.bool_]
    ) -> tuple[float, float]:
        """Return mean and variance of the share of "yes" over the wanted columns.

        ``known`` holds the answers that are known, as 0 and 1, and NaN elsewhere.
        """
        blank = np.isnan(known) & wanted
        count = int(wanted.sum())
        values = np.where(np.isnan(known), forecast.probability, known)
        slope = forecast.slope[blank].sum(axis=0)
        variance = slope @ standing.covariance @ slope + forecast.variance[blank].sum()
        return float(values[wanted].mean()), float(variance) / count**2

    def surprises(self, answers: Array) -> dict[int, float]:
        """Ask a known row (0, 1, and NaN for a blank) some of its answers; return how far off that is.

        At each number of ``MARKS`` that leaves half of its answers (of a row with few, at half of them):
        the error of its share of "yes" over all that it has answered, in the standard errors stated.
        """
        told, known = np.isfinite(answers), np.full(self.size, np.nan)
        most = int(told.sum()) // 2
        marks = [mark for mark in MARKS if mark <= most] or [MARKS[0]]
        found: dict[int, float] = {}
        asked: list[int] = []
        standing = self.unknown
        for mark in marks:
            while len(asked) < min(mark, most):
                count = 1 if len(asked) < _ONE_BY_ONE else min(_AT_ONCE, min(mark, most) - len(asked))
                asked += self._next(standing, told & np.isnan(known), count)
                known[asked] = answers[asked]
                standing = self.standing(np.array(asked), np.where(answers[asked] > 0.5, 1, -1))
            mean, variance = self.share(standing, self.forecast(standing), known, told)
            found[mark] = abs(float(answers[told].mean()) - mean) / max(variance, 1e-300) ** 0.5
        return found

    def _next(self, standing: Standing, left: NDArray[np.bool_], count: int) -> list[int]:
        """Return the columns that tell most about the share of "yes" over all that are left, together."""
        forecast, chosen = self.forecast(standing), []
        for _ in range(count):
            gains = self.gains(standing, forecast, self.goal("mean", forecast, left))
            best = int(np.argmax(np.where(left, gains, -np.inf)))
            left[best] = False
            chosen.append(best)
            standing = self.after(standing, forecast, best)
        return chosen

    def fixed_set(
        self, count: int, kind: str, wanted: NDArray[np.bool_], allowed: NDArray[np.bool_]
    ) -> list[int]:
        """Return the columns to ask every future row, the most telling first.

        Each lowers the goal's variance most on average over rows from all parts of the population.
        """
        order = np.argsort([self._level(row) for row in self.rows], kind="stable")
        places = np.linspace(0, len(order) - 1, min(_TYPICAL, len(order))).round().astype(int)
        standings = [Standing(self.rows[row], self.covariance) for row in order[places]]
        forecasts = [self.forecast(standing) for standing in standings]
        goals = [self.goal(kind, forecast, wanted) for forecast in forecasts]
        scales = [
            max(goal.variance(standing, wanted), 1e-300)
            for goal, standing in zip(goals, standings, strict=True)
        ]
        left, chosen = allowed.copy(), []
        for _ in range(min(count, int(left.sum()))):
            total = np.zeros(self.size)
            for standing, forecast, goal, scale in zip(standings, forecasts, goals, scales, strict=True):
                total += self.gains(standing, forecast, goal) / scale
            best = int(np.argmax(np.where(left, total, -np.inf)))
            left[best] = False
            chosen.append(best)
            standings = [
                self.after(standing, forecast, best)
                for standing, forecast in zip(standings, forecasts, strict=True)
            ]
        return chosen

    def _level(self, row: Array) -> float:
        """Return the share of "yes" that is expected of a row with these coordinates."""
        return float(expit(self.design @ row + self.offset).mean())


def widening(surprises: Sequence[float]) -> float:
    """Return by how much standard errors are to be multiplied so that they hold; at least one.

    ``surprises`` are those of rows that what they are held against has not met. That of one more row,
    drawn like them and asked as much, is exchangeable with them, so that an interval of 90 %, widened to
    hold for this many of them, holds for it with a probability of nine in ten (Vovk, Gammerman and
    Shafer, 2005). Of fewer than nine rows, it is widened to hold for all.

    Examples
    --------
    >>> from onebit.model.population import widening
    >>> round(widening([0.1] * 22 + [3.29, 9.0]), 3)
    2.0
    """
    count = len(surprises)
    if count == 0:
        return 1.0
    place = min(math.ceil(0.9 * (count + 1)), count)
    return max(1.0, float(np.sort(surprises)[place - 1] / ndtri(0.95)))


def _questions(posterior: Posterior) -> tuple[Array, Array]:
    """Return what columns multiply a row's coordinates with, and what they add."""
    hierarchy, columns = posterior.hierarchy, posterior.columns
    design = columns.mean[:, : hierarchy.rank]
    if hierarchy.has_effect(0):
        design = np.column_stack([design, np.ones(len(design))])
    effect = hierarchy.has_effect(1)
    return design, columns.mean[:, hierarchy.rank] if effect else np.zeros(len(design))


def _laplace(
    centre: Array,
    precision: Array,
    design: Array,
    offset: Array,
    signs: NDArray[np.integer],
    begin: Array,
) -> tuple[Standing, float]:
    """Return the normal approximation at the mode, by Newton's method with halved steps.

    With it comes the negative log density there, but for the prior's constant.
    """

    def objective(point: Array) -> float:
        loss = np.logaddexp(0.0, -signs * (design @ point + offset)).sum()
        return float(loss + 0.5 * (point - centre) @ precision @ (point - centre))

    point, value = begin, objective(begin)
    for _ in range(_STEPS):
        chance = expit(design @ point + offset)
        slope = design.T @ (0.5 * (signs + 1.0) - chance) - precision @ (point - centre)
        curvature = (design.T * (chance * (1.0 - chance))) @ design + precision
        step = np.linalg.solve(curvature, slope)
        while (new := objective(point + step)) > value + 1e-9 and np.abs(step).max() > _SETTLED:
            step = 0.5 * step
        if new <= value + 1e-9:
            point, value = point + step, min(new, value)
        if np.abs(step).max() <= _SETTLED:
            break
    chance = expit(design @ point + offset)
    curvature = (design.T * (chance * (1.0 - chance))) @ design + precision
    return Standing(point, np.asarray(np.linalg.inv(curvature), float)), value
