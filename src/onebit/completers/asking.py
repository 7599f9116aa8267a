"""What to ask next: questions for one row, a set for all, and a row's share of "yes" from its answers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from onebit.certificates.row_means import MeanInterval, policy_share, uniform_share
from onebit.completers.filling import known_answers, known_shares
from onebit.data.ids import pair_columns
from onebit.engine.seeds import generator
from onebit.model.losses import LOGISTIC
from onebit.model.population import Forecast, Goal, Population, Standing

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
# Fitted rows on which it is judged how far intervals hold, and the answers that each must have.
JUDGED, FEWEST_KNOWN = 24, 20
KINDS = {
    "predictions": "confidence: predictions corrected by answers chosen at random; assumes no model",
    "exact": "confidence: exact, from the answers alone; assumes no model",
    "certain": "certain: what the answers leave possible; too few for more",
}


def population_of(model: Any) -> Population:
    """Return a fitted model's rows as a population facing its columns; made once."""
    kept = model.__dict__.get("_population")
    if kept is not None and kept[0] is model.predictor_:
        return kept[1]
    check_log_odds(model, "asking")
    posterior = model.predictor_.posterior
    if posterior.hierarchy.n_free(0) == 0:
        raise ValueError(
            "in this model all rows are alike (rank 0 and no row effects), so no answer tells more than "
            "another; fit with effects"
        )
    found = Population.of(posterior)
    model._population = (model.predictor_, found)
    return found


def misfit_of(model: Any) -> float:
    """Return how many times wider intervals of shares must be than the model says; see ``Population``.

    Found once, on some fitted rows whose answers the model has kept; one where it has not.
    """
    population = population_of(model)
    kept = model.__dict__.get("_misfit")
    if kept is not None and kept[0] is model.predictor_:
        return kept[1]
    rows: list[Array] = []
    if model.answers_kept:
        known = known_answers(model)
        enough = np.flatnonzero(known.counts >= FEWEST_KNOWN)
        some = enough[np.linspace(0, len(enough) - 1, min(JUDGED, len(enough))).astype(int)]
        for code in some:
            _, columns, shares = known_shares(known, np.array([code], np.int32))
            answers = np.full(population.size, np.nan)
            answers[columns] = shares
            rows.append(answers)
    found = population.misfit(rows)
    model._misfit = (model.predictor_, found)
    return found


def check_log_odds(model: Any, what: str) -> None:
    """Refuse models whose scores are no log-odds."""
    loss = getattr(getattr(model.predictor_, "start", model.predictor_), "loss", None)
    if loss is not LOGISTIC or model.probability_note is not None:
        raise ValueError(
            f"{what} needs a posterior of log-odds, which {type(model).__name__} does not have here; use "
            "LogisticCompleter, or AutoCompleter where it chose the logistic loss"
        )


def column_mask(model: Any, columns: Any, name: str) -> NDArray[np.bool_]:
    """Return which columns are named; all, where none is."""
    size = len(model.columns_)
    if columns is None:
        return np.ones(size, dtype=bool)
    named = [columns] if isinstance(columns, str) or np.ndim(columns) == 0 else list(columns)
    codes = model.columns_.encode(named)
    if (codes < 0).any():
        unknown = named[int(np.argmax(codes < 0))]
        raise ValueError(f"{name} names the column {unknown!r}, which the model does not know")
    if len(codes) == 0:
        raise ValueError(f"{name} names no column")
    mask = np.zeros(size, dtype=bool)
    mask[codes] = True
    return mask


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
        The share of "yes" over all columns, known answers as they are, and its credible interval at
        ``level``: it believes that the row is one of a population like the fitted rows.

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
        self._model, self._population = model, population_of(model)
        self._kind, self._wanted = _goal(model, goal)
        self._among = column_mask(model, among, "among")
        self._allowed = self._among.copy()
        if not 0.0 <= explore <= 1.0:
            raise ValueError(f"explore is a share of questions, from 0 to 1; got {explore!r}")
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level!r}")
        if width is not None and not 0.0 < width < 1.0:
            raise ValueError(f"width is that of an interval of a share, between 0 and 1; got {width!r}")
        if n is not None and (isinstance(n, bool) or n < 1 or n != int(n)):
            raise ValueError(f"n is the number of questions, at least one; got {n!r}")
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
        self._know()
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
        self._forecast: Forecast = self._population.forecast(self.standing)
        self._known = _known(codes, signs, self._population.size)
        blank = np.isnan(self._known)
        self._left = self._allowed & blank
        self._goal: Goal = self._population.goal(self._kind, self._forecast, self._wanted & blank)
        if self._kind == "mean":  # of all wanted columns, not of the blank ones alone
            shrink = (self._wanted & blank).sum() / max(self._wanted.sum(), 1)
            self._goal = Goal(self._goal.root * shrink, self._goal.own * shrink**2)
        self.share, self._variance = self._population.share(self.standing, self._known, self._wanted)

    @property
    def error(self) -> float:
        """The standard error of the share, widened by how far the model was off on fitted rows."""
        return float(misfit_of(self._model) * self._variance**0.5)

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
            return self._forecast.probability.copy()
        codes = self._model.columns_.encode(columns)
        if (codes < 0).any():
            unknown = list(columns)[int(np.argmax(codes < 0))]
            raise ValueError(f"the model does not know the column {unknown!r}")
        return self._forecast.probability[codes]

    @property
    def askable(self) -> int:
        """The number of columns that could be asked at the beginning."""
        return int(self._among.sum())

    @property
    def finished(self) -> str | None:
        """Why there is no further question; None where there is one."""
        if not self._left.any():
            return "nothing is left to ask"
        if self.n is not None and self.asked >= self.n:
            return f"{self.n} questions are answered"
        if self.width is not None and self.asked and self.high - self.low <= self.width:
            return f"the interval is {self.high - self.low:.3g} wide"
        return None

    def _policy(self, gains: Array, left: NDArray[np.bool_], forecast: Forecast) -> Array:
        """Return the probabilities of the random policy.

        A share ``explore`` goes to all questions alike. Half of the rest follows the gains; the other
        half the standard deviation of the answers, which is what a correction by random answers needs.
        """
        parts = [np.where(left, gains, 0.0), np.where(left, np.sqrt(forecast.variance), 0.0)]
        informed = sum(part / part.sum() if part.sum() > 0 else left / left.sum() for part in parts)
        found = self.explore * left / left.sum() + (1.0 - self.explore) * 0.5 * informed
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
            gains = self._population.gains(standing, self._forecast, self._goal)
            if self.explore > 0.0:
                policy = self._policy(gains, left, self._forecast)
                code = int(self._rng.choice(len(policy), p=policy))
                chance = float(policy[code])
            else:
                code, chance = int(np.argmax(np.where(left, gains, -np.inf))), 1.0
            left[code] = False
            found.append(
                Question(
                    self._model.columns_.labels[code],
                    float(self._forecast.probability[code]),
                    float(gains[code] / total) if total > 0 else 0.0,
                    chance,
                )
            )
            standing = self._population.after(standing, self._forecast, code)
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
        sign = int(self._model._signs([value], 1)[0])
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
        pairs = [("", column) for column in self.columns]
        return mean_of_row(
            self._model, pairs, self.answers, np.array(self.chances),
            self._among, self.level if level is None else level, 0,
        )  # fmt: skip


def mean_of_row(
    model: Any,
    pairs: Any,
    answers: Any,
    chances: Array | None,
    wanted: NDArray[np.bool_],
    level: float,
    seed: Any,
) -> MeanInterval:
    """Return the share of one row over the wanted columns, from questions drawn at random from them."""
    population = population_of(model)
    names = pair_columns(pairs)[1]
    codes = model.columns_.encode(names).astype(np.int64)
    signs = np.asarray(model._signs(answers, len(codes)), np.int64)
    place = np.cumsum(wanted) - 1
    for position, code in enumerate(codes):
        if code < 0 or not wanted[code]:
            raise ValueError(
                f"the column {list(names)[position]!r} is not among those over which the mean is taken, "
                "so it was not drawn from them"
            )
    if len(np.unique(codes)) < len(codes):
        first, count = np.unique(codes, return_counts=True)
        twice = model.columns_.labels[int(first[np.argmax(count > 1)])]
        raise ValueError(f"the column {twice!r} is there twice: questions are drawn without replacement")
    order = np.flatnonzero(wanted)

    def forecast(asked: Codes, values: Array) -> Array:
        standing = population.standing(order[asked], np.where(values > 0.5, 1, -1))
        return population.forecast(standing).probability[order]

    places, values = place[codes], (signs > 0).astype(float)
    if chances is None:
        return uniform_share(places, values, len(order), forecast, level, generator(seed))
    _check_chances(chances, len(order))
    return policy_share(places, values, chances, len(order), forecast, level)


def row_means(
    model: Any, pairs: Any, answers: Any, probabilities: Any, columns: Any, level: float, seed: Any
) -> pd.DataFrame:
    """Return the shares of rows from questions drawn at random; see ``PairClassifier.row_mean``."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level!r}")
    rows, names = pair_columns(pairs)
    ids, wanted = pd.Series(np.asarray(rows)), column_mask(model, columns, "columns")
    values = pd.Series(np.asarray(answers))
    names = pd.Series(np.asarray(names))
    if len(ids) == 0:
        raise ValueError("row_mean needs at least one answer")
    if len(values) != len(ids):
        raise ValueError(f"{len(ids)} pairs and {len(values)} answers")
    named = ids.drop_duplicates()
    known = model.rows_.labels.intersection(pd.Index(named))
    if len(known):
        fitted = known[0]
        raise ValueError(
            f"the row {fitted!r} is one of the model's own: predictions have seen its answers, so the "
            "interval would not hold; use a model fitted without it, or row_summary"
        )
    chances = None
    if probabilities is not None:
        chances = np.asarray(probabilities, dtype=float)
        if chances.shape != (len(ids),):
            raise ValueError(f"{len(ids)} pairs and probabilities of shape {chances.shape}")
    lines = []
    for row, places in ids.groupby(ids, sort=False).groups.items():
        at = np.asarray(places)
        found = mean_of_row(
            model,
            pd.DataFrame({"row": ids.iloc[at], "column": names.iloc[at]}),
            values.iloc[at].to_numpy(),
            None if chances is None else chances[at],
            wanted,
            level,
            seed,
        )
        worth = len(at) + 0.0
        size = int(wanted.sum())
        if found.error > 0 and size > 1:
            # A uniform draw of n has the variance p (1 - p) / n * (size - n) / (size - 1).
            spread = found.share * (1.0 - found.share) * size / (size - 1)
            worth = spread / (found.error**2 + spread / size)
        lines.append((row, len(at), found.share, found.low, found.high, found.error, worth, found.kind))
    name = model.rows_.labels.name
    frame = pd.DataFrame(
        lines,
        columns=["row", "answers", "share", "share_low", "share_high", "se", "worth", "kind"],
    ).set_index("row")
    frame.index.name = name if isinstance(name, str) else "row"
    frame.attrs["interval"] = {kind: KINDS[kind] for kind in frame["kind"].unique()}
    return frame


def chosen_columns(model: Any, n: int, goal: Any, among: Any) -> list[Any]:
    """Return one fixed set of questions; see ``PairClassifier.choose_columns``."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"n is the number of columns, at least one; got {n!r}")
    kind, wanted = _goal(model, goal)
    allowed = column_mask(model, among, "among")
    if n > allowed.sum():
        raise ValueError(f"{n} columns were asked for and there are {int(allowed.sum())}")
    codes = population_of(model).fixed_set(int(n), kind, wanted, allowed)
    return [model.columns_.labels[code] for code in codes]


def _goal(model: Any, goal: Any) -> tuple[str, NDArray[np.bool_]]:
    if isinstance(goal, str) and goal in ("mean", "row"):
        return goal, column_mask(model, None, "goal")
    if isinstance(goal, str):
        raise ValueError(f'goal is "mean", "row" or a list of columns; got {goal!r}')
    return "answers", column_mask(model, goal, "goal")


def _check_chances(chances: Array, size: int) -> None:
    bad = ~((chances > 0.0) & (chances <= 1.0))
    if bad.any():
        place = int(np.argmax(bad))
        raise ValueError(
            f"the probability of question {place + 1} is {chances[place]!r}: it must be above 0 and at "
            "most 1"
        )
    left = size - np.arange(len(chances))
    sure = (chances >= 1.0) & (left > 1)
    if sure.any():
        place = int(np.argmax(sure))
        raise ValueError(
            f"question {place + 1} was chosen with probability 1 while {left[place]:,} were left: what "
            "was never to be asked cannot be judged; choose questions with explore above 0"
        )


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
