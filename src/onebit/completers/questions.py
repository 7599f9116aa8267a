"""What asking needs of a fitted model: its rows as a population, its columns as questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from onebit.completers.filling import known_answers, known_shares
from onebit.model.losses import LOGISTIC
from onebit.model.population import Population

Array = NDArray[np.float64]
# What has scores that are log-odds.
OF_LOG_ODDS = 'LogisticCompleter, or AutoCompleter(losses=("logistic",)) (onebit fit --loss logistic)'
# Fitted rows on which it is judged how far intervals hold, and the answers that each must have.
JUDGED, FEWEST_KNOWN = 24, 20
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


def misfit_of(model: Any) -> float:
    """Return the variance of shares that the model does not know of; see ``Population.misfit``.

    Found once, on some fitted rows whose answers the model has kept; zero where it has not.
    """
    return kept_for(model, "_misfit", lambda: population_of(model, "a share").misfit(_judged(model)))


def _judged(model: Any) -> list[Array]:
    """Return the answers of some fitted rows, as shares of "yes", NaN where there is none."""
    rows: list[Array] = []
    if not model.answers_kept:
        return rows
    known = known_answers(model)
    enough = np.flatnonzero(known.counts >= FEWEST_KNOWN)
    some = enough[np.linspace(0, len(enough) - 1, min(JUDGED, len(enough))).astype(int)]
    for code in some:
        _, columns, shares = known_shares(known, np.array([code], np.int32))
        answers = np.full(len(model.columns_), np.nan)
        answers[columns] = shares
        rows.append(answers)
    return rows


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
