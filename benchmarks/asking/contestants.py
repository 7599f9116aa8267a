"""Ways to estimate a new row's share of "yes" from some of its answers."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from onebit import LogisticCompleter
from onebit.model.population import Population

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
LEVEL = 0.9


@dataclass(frozen=True)
class Estimate:
    """A share of "yes" and, where there is one, its interval."""

    share: float
    low: float = float("nan")
    high: float = float("nan")


def fitted(train: Array, rank: int, effects: bool | str = True) -> LogisticCompleter:
    """Fit our model to a full table of -1 and +1."""
    rows, columns = np.indices(train.shape)
    pairs = np.column_stack([rows.ravel(), columns.ravel()])
    model = LogisticCompleter(rank, effects=effects, random_state=0, n_jobs=1)
    return model.fit(pairs, train.ravel().astype(int))


def ridge(train: Array, asked: Codes, answers: Array) -> Estimate:
    """Regress the share on the answers to the items asked, the penalty by leave-one-out."""
    design, target = (train[:, asked] + 1) / 2, (train.mean(axis=1) + 1) / 2
    middle, centre = design.mean(axis=0), target.mean()
    design, target = design - middle, target - centre
    values, vectors = np.linalg.eigh(design @ design.T)

    def left_out(penalty: float) -> float:
        hat = (vectors * (values / (values + penalty))) @ vectors.T
        return float((((target - hat @ target) / (1 - np.diag(hat) - 1 / len(target))) ** 2).mean())

    best = min(PENALTIES, key=left_out)
    weight = vectors @ ((vectors.T @ target) / (values + best))
    return Estimate(float(centre + ((answers + 1) / 2 - middle) @ design.T @ weight))


class TwoParameter:
    """The two-parameter logistic model: abilities by their posterior mean over a grid."""

    def __init__(self, train: Array) -> None:
        posterior = fitted(train, 1, "columns").posterior_
        self.slope, self.intercept = posterior.columns.mean.T
        ability = posterior.rows.mean[:, 0]
        self.grid = ability.mean() + ability.std() * np.linspace(-4.0, 4.0, 81)
        self.prior = -0.5 * np.linspace(-4.0, 4.0, 81) ** 2
        self.chance = expit(np.outer(self.grid, self.slope) + self.intercept)
        self.log = np.log(self.chance), np.log1p(-self.chance)

    def weights(self, asked: Codes, answers: Array) -> Array:
        yes, no = (log[:, asked] for log in self.log)
        total = self.prior + np.where(answers > 0, yes, no).sum(axis=1)
        found = np.exp(total - total.max())
        return found / found.sum()

    def estimate(self, asked: Codes, answers: Array) -> Estimate:
        values = self.weights(asked, answers) @ self.chance
        values[asked] = (answers + 1) / 2
        return Estimate(float(values.mean()))

    def most_informative(self, row: Array, count: int) -> Codes:
        """Ask, one after the other, the item with the largest information at the ability so far."""
        asked: list[int] = []
        left = np.ones(len(row), dtype=bool)
        for _ in range(count):
            places = np.array(asked, dtype=np.int64)
            ability = self.weights(places, row[places]) @ self.grid
            chance = expit(self.slope * ability + self.intercept)
            best = int(np.argmax(np.where(left, self.slope**2 * chance * (1 - chance), -1.0)))
            left[best] = False
            asked.append(best)
        return np.array(asked)


class Ours:
    """Our model: credible intervals from any answers, confidence intervals from random ones."""

    def __init__(self, train: Array, rank: int) -> None:
        self.model = fitted(train, rank)

    def credible(self, asked: Codes, answers: Array) -> Estimate:
        told = dict(zip(asked.tolist(), answers.astype(int).tolist(), strict=True))
        found = self.model.interview(told, level=LEVEL)
        return Estimate(found.share, found.low, found.high)

    def confident(self, asked: Codes, answers: Array, chances: Array | None = None) -> Estimate:
        pairs = [("new", column) for column in asked.tolist()]
        found = self.model.row_mean(pairs, answers, probabilities=chances, level=LEVEL).iloc[0]
        return Estimate(found["share"], found["share_low"], found["share_high"])

    def asked(self, row: Array, count: int, explore: float, seed: int) -> tuple[Codes, Array]:
        """Ask one question after the other; return them and their chances."""
        interview = self.model.interview(n=count, explore=explore, random_state=seed)
        for question in interview:
            interview.answer(int(row[question.column]))
        return np.array(interview.columns), np.array(interview.chances)


def question_time(columns: int, rank: int, answers: int, repeats: int) -> float:
    """Return the median seconds from an answer to the next question, in a made-up model of this size."""
    rng = np.random.default_rng(0)
    width = rank + 1
    spread = np.zeros((columns, width * (width + 1) // 2))
    diagonal = np.arange(width)
    spread[:, diagonal * (diagonal + 3) // 2] = 0.02
    population = Population(
        np.column_stack([rng.normal(0, 0.5, (columns, rank)), np.ones(columns)]),
        rng.normal(0, 1, columns), spread, True, rank, True, np.zeros(width), np.eye(width),
        rng.normal(0, 1, (50, width)),
    )  # fmt: skip
    asked = rng.choice(columns, answers, replace=False)
    signs = np.where(rng.random(answers) < 0.6, 1, -1)
    known = np.full(columns, np.nan)
    known[asked] = signs > 0
    everything = np.ones(columns, dtype=bool)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        standing = population.standing(asked, signs)
        forecast = population.forecast(standing)
        population.share(standing, forecast, known, everything)
        gains = population.gains(standing, forecast, population.goal("mean", forecast, everything))
        np.argmax(np.where(np.isnan(known), gains, -np.inf))
        times.append(time.perf_counter() - begin)
    return float(np.median(times))
