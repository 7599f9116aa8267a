"""What asking needs of a fitted model: its rows as a population, its columns as questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from onebit.completers.filling import known_shares
from onebit.model.left_out import without_row
from onebit.model.losses import LOGISTIC
from onebit.model.population import MARKS, Population, widening

Array = NDArray[np.float64]
# What has scores that are log-odds.
OF_LOG_ODDS = 'LogisticCompleter, or AutoCompleter(losses=("logistic",)) (onebit fit --loss logistic)'
# Fitted rows on which it is judged how far intervals hold, the answers that each must have, and the rows
# that more than the fewest questions need.
JUDGED, FEWEST_KNOWN, FEWEST_JUDGED = 24, 20, 9
Kept = TypeVar("Kept")
NUMBERS = (int, float, np.integer, np.floating)


def kept_for(model: Any, name: str, make: Callable[[], Kept]) -> Kept:
    """Return what was made for a model's present predictor; make it where there is none yet."""
    kept = model.__dict__.get(name)
    if kept is None or kept[0] is not model.predictor_:
        kept = (model.predictor_, make())
        setattr(model, name, kept)
    return kept[1]


def population_of(model: Any, what: str) -> Population:
    """Return a fitted model's rows as a population facing its columns; made once.

    ``what`` is asked of it, for a refusal.
    """
    return kept_for(model, "_population", lambda: _population(model, what))


def _population(model: Any, what: str) -> Population:
    check_log_odds(model, what)
    posterior = model.predictor_.posterior
    if posterior.hierarchy.n_free(0) == 0:
        raise ValueError(
            "in this model all rows are alike (rank 0 and no row effects), so no answer tells more than "
            "another; fit with effects"
        )
    return Population.of(posterior)


def widening_of(model: Any, answers: int) -> float:
    """Return by how much the standard error of a share is widened after so many answers, to hold.

    Found once for a few numbers of answers, on some fitted rows that are asked as many, each held against
    columns that have not met it; one where the model has not kept its answers.
    """
    marks, factors, _ = kept_for(model, "_widening", lambda: _widenings(model))
    return float(np.interp(np.log(max(answers, 1)), np.log(marks), factors))


def rows_judged(model: Any) -> int:
    """Return on how many fitted rows it was found by how much standard errors are widened."""
    return int(kept_for(model, "_widening", lambda: _widenings(model))[2])


def _widenings(model: Any) -> tuple[list[int], list[float], int]:
    """Return numbers of answers, by how much errors are widened after each, and the rows that say so."""
    rows = _surprises(model)
    found = {mark: [row[mark] for row in rows if mark in row] for mark in MARKS}
    marks = [mark for mark in MARKS if mark == MARKS[0] or len(found[mark]) >= FEWEST_JUDGED]
    return marks, [widening(found[mark]) for mark in marks], len(rows)


def _surprises(model: Any) -> list[dict[int, float]]:
    """Return how far off some fitted rows are, each as if it had not been fitted."""
    if not model.answers_kept:
        return []
    population = population_of(model, "a share")
    posterior = model.predictor_.posterior
    temperature = getattr(model.predictor_, "start", model.predictor_).temperature
    fitted = model.kept_answers().fitted.by_row
    enough = np.flatnonzero(fitted.counts >= FEWEST_KNOWN)
    some = enough[np.linspace(0, len(enough) - 1, min(JUDGED, len(enough))).astype(int)]
    found = []
    for code in some:
        _, columns, shares = known_shares(fitted, np.array([code], np.int32))
        answers = np.full(population.size, np.nan)
        answers[columns] = shares
        left = without_row(posterior, int(code), columns, shares, temperature)
        found.append(population.facing(left).surprises(answers))
    return found


def check_log_odds(model: Any, what: str, instead: str = OF_LOG_ODDS) -> None:
    """Refuse models whose scores are no log-odds, and say which to use ``instead``."""
    loss = getattr(getattr(model.predictor_, "start", model.predictor_), "loss", None)
    if loss is not LOGISTIC or model.probability_note is not None:
        raise ValueError(
            f"{what} takes a posterior of log-odds, which {_named(model)} does not have; use {instead}"
        )


def _named(model: Any) -> str:
    """Return the kind of a model; of one that was searched for, with the loss that was chosen."""
    chosen = getattr(model, "best_params_", None)
    return type(model).__name__ + ("" if chosen is None else f", which chose the {chosen['loss']} loss,")


def check_share(value: Any, name: str) -> None:
    """Refuse what is no number between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, NUMBERS) or not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be between 0 and 1, got {value!r}")


def check_count(value: Any, what: str) -> None:
    """Refuse what is no whole number from one on."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"n is the number of {what}, at least one; got {value!r}")


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


def goal_of(model: Any, goal: Any) -> tuple[str, NDArray[np.bool_]]:
    """Return the kind of a goal, and the columns that it is about."""
    if isinstance(goal, str) and goal in ("mean", "row"):
        return goal, column_mask(model, None, "goal")
    if isinstance(goal, str):
        raise ValueError(f'goal is "mean", "row" or a list of columns; got {goal!r}')
    named = list(goal) if np.ndim(goal) else [goal]
    if all(isinstance(one, tuple) and len(one) == 2 for one in named):  # pairs of the row with columns
        named = [column for _, column in named]
    return "answers", column_mask(model, named, "goal")


def chosen_columns(model: Any, n: int, goal: Any, among: Any) -> list[Any]:
    """Return one fixed set of questions; see ``PairClassifier.choose_columns``."""
    check_count(n, "columns")
    kind, wanted = goal_of(model, goal)
    allowed = column_mask(model, among, "among")
    if n > allowed.sum():
        raise ValueError(f"{n} columns were asked for and there are {int(allowed.sum())}")
    codes = population_of(model, "choose_columns").fixed_set(int(n), kind, wanted, allowed)
    return [model.columns_.labels[code] for code in codes]
