"""An interview: question after question, and what is known of the row after each answer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from onebit.certificates.row_means import MeanInterval
from onebit.completers.filling import known_answers, known_shares
from onebit.completers.questions import (
    NUMBERS,
    check_count,
    check_share,
    column_mask,
    goal_of,
    population_of,
    rows_judged,
    widening_of,
)
from onebit.completers.row_means import mean_of_row
from onebit.data.ids import pair_columns
from onebit.engine.seeds import generator
from onebit.model.population import Forecast, Goal, Standing

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Question:
    """A question to ask next.

    Attributes
    ----------
    column : id
        The column.
    yes : float
        The probability of "yes" that is expected.
    gain : float
        The share of the goal's variance that the answer takes away, in expectation.
    chance : float
        The probability with which this question was chosen among those left; one where it was the best.
    """

    column: Any
    yes: float
    gain: float
    chance: float


class Interview:
    """One row that is asked question after question; see ``model.interview``.

    Iterating gives questions until ``n`` are answered, the interval is at most ``width`` wide, or nothing
    is left to ask.

    Attributes
    ----------
    columns, answers, chances : list
        What was asked, in order; the answers as signs; the probabilities with which it was chosen (NaN
        for answers that were there before).
    skipped : int
        Answers about columns that the model does not know.
    share, low, high : float
        The share of "yes" over all columns (or those that ``goal`` names), known answers as they are, and
        its credible interval at ``level``: it believes that the row is one of a population like the
        fitted rows, and is as much wider than the model says as an interval of 90 % must be to hold for
        nine in ten of these: of 24 at most, evenly spaced, so that another fit may give another width.
        Each is asked as if it were new: forty questions at least, or half of what it has answered. Rows
        with fewer than twenty answers judge nothing; where there are no others, the interval is the
        model's.

    Examples
    --------
    >>> from onebit import LogisticCompleter, simulate
    >>> world = simulate.world("B3", rank=1, shape=(60, 40), density=0.8, seed=0)
    >>> model = LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers)
    >>> interview = model.interview(n=5)
    >>> for question in interview:
    ...     interview.answer(question.yes > 0.5)
    >>> len(interview.columns), interview.low <= interview.share <= interview.high
    (5, True)
    """

    def __init__(
        self,
        model: Any,
        answers: Any = None,
        *,
        goal: Any = "mean",
        among: Any = None,
        explore: float = 0.0,
        n: int | None = None,
        width: float | None = None,
        level: float = 0.9,
        random_state: Any = None,
    ) -> None:
        self._model, self._population = model, population_of(model, "an interview")
        self._kind, self._wanted = goal_of(model, goal)
        self._among = column_mask(model, among, "among")
        self._allowed = self._among.copy()
        if not isinstance(explore, NUMBERS) or not 0.0 <= explore <= 1.0:
            raise ValueError(f"explore is a share of questions, from 0 to 1; got {explore!r}")
        check_share(level, "level")
        if width is not None:
            check_share(width, "width")
        if n is not None:
            check_count(n, "questions")
        self.explore, self.n, self.width, self.level = explore, n, width, level
        self._rng = generator(random_state)
        self.columns: list[Any] = []
        self.answers: list[int] = []
        self.chances: list[float] = []
        self.asked = 0
        self.skipped = 0
        self._left_out = False
        self._codes: list[int] = []
        self._pending: tuple[int, float] | None = None
        for code, sign in self._given(answers):
            self._take(code, sign, float("nan"))
        self._know()

    def _given(self, answers: Any) -> Iterator[tuple[int, int]]:
        """Yield codes and signs of the answers that are there before."""
        model = self._model
        if answers is None:
            return
        if not isinstance(answers, (Mapping, pd.Series, pd.DataFrame, list, tuple, np.ndarray)):
            yield from _answers_of(model, answers)
            return
        names, values = _columns_and_answers(answers)
        if len(names) == 0:
            return
        codes, signs = model.columns_.encode(names), model._signs(values, len(names))
        self.skipped = int((codes < 0).sum())
        if self.skipped:
            warnings.warn(
                f"{self.skipped:,} of {len(codes):,} answers skipped: the model does not know their "
                "columns",
                stacklevel=4,
            )
        for code, sign in zip(codes, signs, strict=True):
            if code >= 0:
                yield int(code), int(sign)

    def _take(self, code: int, sign: int, chance: float) -> None:
        self._codes.append(code)
        self.columns.append(self._model.columns_.labels[code])
        self.answers.append(sign)
        self.chances.append(chance)

    def _know(self) -> None:
        """Work out where the row stands."""
        codes, signs = np.array(self._codes, np.int64), np.array(self.answers, np.int64)
        self.standing: Standing = self._population.standing(codes, signs)
        self.forecast: Forecast = self._population.forecast(self.standing)
        self._known = _known(codes, signs, self._population.size)
        blank = np.isnan(self._known)
        self._left = self._allowed & blank
        self._goal: Goal = self._population.goal(self._kind, self.forecast, self._wanted & blank)
        self.share, self._variance = self._population.share(
            self.standing, self.forecast, self._known, self._wanted
        )

    @property
    def error(self) -> float:
        """The standard error of the share, widened by how far the model was off on fitted rows."""
        return float(self._variance**0.5 * widening_of(self._model, len(self._codes)))

    @property
    def judged_by(self) -> int:
        """The number of fitted rows that the interval's width was held against."""
        return rows_judged(self._model)

    def _end(self, side: float) -> float:
        return self.share + side * float(ndtri(0.5 + 0.5 * self.level)) * self.error

    @property
    def low(self) -> float:
        """The lower end of the share's credible interval."""
        return max(self._end(-1.0), float(np.nan_to_num(self._known, nan=0.0)[self._wanted].mean()))

    @property
    def high(self) -> float:
        """The upper end of the share's credible interval."""
        return min(self._end(1.0), float(np.nan_to_num(self._known, nan=1.0)[self._wanted].mean()))

    def probability(self, columns: Any = None) -> Array:
        """Return the probability of "yes" that is expected of columns, known answers or not; of all."""
        if columns is None:
            return self.forecast.probability.copy()
        columns = [columns] if isinstance(columns, str) or np.ndim(columns) == 0 else list(columns)
        codes = self._model.columns_.encode(columns)
        if (codes < 0).any():
            unknown = list(columns)[int(np.argmax(codes < 0))]
            raise ValueError(f"the model does not know the column {unknown!r}")
        return self.forecast.probability[codes]

    def score_moments(self, codes: Codes) -> tuple[Array, Array]:
        """Return mean and variance of the row's scores on some columns, given by their codes."""
        return self._population.score_moments(self.standing, codes)

    @property
    def askable(self) -> int:
        """The number of columns that could be asked at the beginning."""
        return int(self._among.sum())

    @property
    def unaskable(self) -> int:
        """The number of columns that could not."""
        return len(self._among) - self.askable

    @property
    def wanted(self) -> int:
        """The number of columns that the share is taken over."""
        return int(self._wanted.sum())

    @property
    def over(self) -> str:
        """The columns that the share is taken over, in words."""
        return "all" if self._wanted.all() else f"the {self.wanted:,} wanted"

    @property
    def finished(self) -> str | None:
        """Why there is no further question; None where there is one."""
        if not self._left.any():
            return "nothing is left to ask"
        if self.n is not None and self.asked >= self.n:
            return "as many as were wanted"
        if self.width is not None and self.asked and self.high - self.low <= self.width:
            return f"the interval is {self.high - self.low:.3g} wide"
        return None

    def _policy(self, gains: Array, left: NDArray[np.bool_]) -> Array:
        """Return the probabilities of the random policy.

        A share ``explore`` goes to all questions alike. The rest follows the gains; of the share of
        "yes", the standard deviation of the answers, which is best for a mean that the answers correct
        (Neyman, 1934): following the gains, ``row_mean`` was worth a seventh less.
        """
        lean = np.sqrt(self.forecast.variance) if self._kind == "mean" else gains
        lean = np.where(left, lean, 0.0)
        uniform = left / left.sum()
        informed = lean / lean.sum() if lean.sum() > 0 else uniform
        found = self.explore * uniform + (1.0 - self.explore) * informed
        return found / found.sum()

    def questions(self, n: int = 1) -> list[Question]:
        """Return the next ``n`` questions, chosen together: none waits for the answer of another."""
        if not self._left.any():
            raise ValueError(
                f"nothing is left to ask: all {int(self._allowed.sum()):,} columns have answers"
            )
        standing, left, found = self.standing, self._left.copy(), []
        total = self._goal.variance(standing, self._left & self._wanted)
        for _ in range(min(n, int(left.sum()))):
            gains = self._population.gains(standing, self.forecast, self._goal)
            if self.explore > 0.0:
                policy = self._policy(gains, left)
                code = int(self._rng.choice(len(policy), p=policy))
                chance = float(policy[code])
            else:
                code, chance = int(np.argmax(np.where(left, gains, -np.inf))), 1.0
            left[code] = False
            found.append(
                Question(
                    self._model.columns_.labels[code],
                    float(self.forecast.probability[code]),
                    float(gains[code] / total) if total > 0 else 0.0,
                    chance,
                )
            )
            standing = self._population.after(standing, self.forecast, code)
        return found

    def __iter__(self) -> Iterator[Question]:
        while self.finished is None:
            yield self.next()

    def next(self) -> Question:
        """Return the next question, which ``answer`` then answers."""
        if self._pending is not None:
            raise ValueError(
                f"the question about {self._model.columns_.labels[self._pending[0]]!r} is open: answer "
                "it, or skip it"
            )
        question = self.questions()[0]
        code = int(self._model.columns_.encode([question.column])[0])
        self._pending = (code, question.chance)
        return question

    def answer(self, value: Any) -> None:
        """Give the answer to the last question, written as in the training answers or as a boolean."""
        if self._pending is None:
            raise ValueError("there is no open question: call next() first")
        model = self._model
        sign = int(model._signs([value], 1)[0])
        code, chance = self._pending
        self._pending = None
        self.asked += 1
        self._take(code, sign, chance)
        self._know()

    def skip(self) -> None:
        """Leave the last question unanswered; it is not asked again, and the others are not chosen anew.

        Who leaves out what they cannot answer is not a random draw: ``row_mean`` then refuses.
        """
        if self._pending is None:
            raise ValueError("there is no open question: call next() first")
        self._allowed[self._pending[0]] = False
        self._left[self._pending[0]] = False
        self._pending = None
        self._left_out = True

    def row_mean(self, level: float | None = None) -> MeanInterval:
        """Return the share of "yes" with an interval that assumes no model: see ``model.row_mean``.

        It is the share over the columns that could be asked: those of ``among``.
        """
        if np.isnan(self.chances).any():
            raise ValueError(
                "some answers were there before the interview: how they were chosen is not known, so "
                "only the model's own interval can be given (share, low, high)"
            )
        if self._left_out:
            raise ValueError("questions were skipped, and not at random: only the model's own interval")
        return mean_of_row(
            self._model, self.columns, self.answers, np.array(self.chances),
            self._among, self.level if level is None else level, 0,
        )  # fmt: skip


def _known(codes: Codes, signs: Codes, size: int) -> Array:
    """Return the known answers as shares of "yes" (repeats average), NaN where there is none."""
    count = np.bincount(codes, minlength=size)
    yes = np.bincount(codes[signs > 0], minlength=size)
    return np.where(count > 0, yes / np.maximum(count, 1), np.nan)


def _columns_and_answers(answers: Any) -> tuple[list[Any], list[Any]]:
    """Return columns and answers of one row, given as a mapping, a series, a table or pairs."""
    if isinstance(answers, Mapping):
        return list(answers.keys()), list(answers.values())
    if isinstance(answers, pd.Series):
        told = answers.dropna()
        return list(told.index), list(told)
    if len(answers) == 0:
        return [], []
    names, values = pair_columns(answers)
    return list(names), list(values)


def _answers_of(model: Any, row: Any) -> Iterator[tuple[int, int]]:
    """Yield codes and signs of the answers that the model knows of a row."""
    code = int(model.rows_.encode([row])[0])
    if code < 0:
        raise ValueError(
            f"the model does not know the row {row!r}; for a new row give its answers, such as "
            "{column: answer}, or nothing"
        )
    known = known_answers(model)
    _, columns, shares = known_shares(known, np.array([code], np.int32))
    for column, share in zip(columns, shares, strict=True):
        yes, no = (1, 0) if share == 1.0 else (0, 1) if share == 0.0 else (1, 1)
        yield from [(int(column), 1)] * yes + [(int(column), -1)] * no
