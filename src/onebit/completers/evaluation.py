"""How good a model is on answers that it has not seen, held out or later, beside two baselines."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from onebit.completers.base import PairClassifier
from onebit.completers.logistic import LogisticCompleter
from onebit.data.observations import Observations
from onebit.data.sorting import Entries

Array = NDArray[np.float64]

MEASURES = ("accuracy", "log_loss", "brier", "calibration_error")
# Groups of later answers.
ALL, KNOWN, STRANGE = "all", "rows and columns with earlier answers", "others"
_BINS = 10


@dataclass(frozen=True)
class Evaluation:
    """The measures of every method on every fold.

    Attributes
    ----------
    folds : pandas.DataFrame
        Columns ``method``, ``fold`` and the measures: accuracy (a score of zero is wrong), log-loss in
        nats, Brier score, and the calibration error, the mean gap between the stated probability of yes
        and the share of yes over ten bins of about equal size; by chance it is above zero for right
        probabilities too, the more so the fewer answers there are.
    n_answers : int
        All answers.
    """

    folds: pd.DataFrame
    n_answers: int

    def table(self) -> pd.DataFrame:
        """Return means over the folds, and their standard errors (``..._se``), a method a line."""
        groups = self.folds.groupby("method", sort=False)[list(MEASURES)]
        means, errors = groups.mean(), groups.sem()
        return means.join(errors.add_suffix("_se"))


def evaluate(
    model: PairClassifier,
    seen: Observations,
    folds: int = 5,
    seed: int = 0,
    tell: Callable[[int, int, str], None] | None = None,
) -> Evaluation:
    """Cross-validate a model, the effects alone and the commoner answer on the same random folds.

    Parameters
    ----------
    model : completer
        Cloned for every fold.
    seen : Observations
        The answers.
    folds : int
        Parts to cut the answered entries into; each is predicted from the others.
    seed : int
        Of the cut.
    tell : callable, optional
        Called with the fits done, all fits, and the name of the method that comes next.

    Examples
    --------
    >>> from onebit import LogisticCompleter, Observations, simulate
    >>> from onebit.completers.evaluation import evaluate
    >>> world = simulate.world("B1", rank=2, shape=(60, 50), density=0.5, seed=0)
    >>> result = evaluate(LogisticCompleter(4), Observations.from_pairs(world.pairs, world.answers), 3)
    >>> result.table().index.tolist()
    ['LogisticCompleter', 'effects only', 'commoner answer']
    """
    first = ~seen.again()
    entries = int(first.sum())
    if not 2 <= folds <= entries // 2:
        what = f"{seen.n} answers" + (f" of {entries} entries" if entries < seen.n else "")
        if entries < 4:
            raise ValueError(f"{what} are too few to evaluate by: 2 folds need 4 entries")
        raise ValueError(f"{what} can be cut into 2 to {entries // 2} folds, not {folds}")
    # Whole entries, so that no fold is predicted from other answers of its own.
    of_entries = np.random.default_rng(seed).permutation(np.arange(entries) % folds)
    part = of_entries[np.cumsum(first) - 1]
    methods = _methods(model, seed)
    lines = []
    for fold in range(folds):
        train, test = seen.take(part != fold), seen.entries(part == fold)
        for k, (name, method) in enumerate(methods):
            if tell is not None:
                tell(fold * len(methods) + k, folds * len(methods), name)
            score, yes = _predicted(method, train, test)
            lines.append({"method": name, "fold": fold} | _measures(test.sign, score, yes))
    if tell is not None:
        tell(folds * len(methods), folds * len(methods), "")
    return Evaluation(pd.DataFrame(lines), seen.n)


def evaluate_later(
    model: PairClassifier,
    seen: Observations,
    later: Observations,
    seed: int = 0,
    tell: Callable[[int, int, str], None] | None = None,
) -> pd.DataFrame:
    """Fit a model, and the same baselines, to some answers and predict others that came after them.

    Later answers to pairs that were answered before are left out: they would be foreseen too well.

    Parameters
    ----------
    model : completer
        Cloned.
    seen, later : Observations
        Earlier and later answers, over the same rows and columns, some of which have no earlier ones.
    seed : int
        Of the baselines.
    tell : callable, optional
        As in ``evaluate``.

    Returns
    -------
    pandas.DataFrame
        A line for each method and each group of the later answers (``KNOWN``: of rows and columns with
        earlier answers; ``STRANGE``: of the others; ``ALL``), with their number, the measures of
        ``evaluate`` and standard errors (``..._se``) by which rows are drawn at random; the calibration
        error has none.
    """
    entries = later.entries(np.isin(later.entry_numbers(), seen.entry_numbers(), invert=True))
    if not len(entries.sign):
        raise ValueError("no later answer is about a pair that was not answered before")
    before = seen.by_row.counts[entries.rows], seen.by_column.counts[entries.columns]
    known = (before[0] > 0) & (before[1] > 0)
    groups = {ALL: np.ones(len(known), dtype=bool), KNOWN: known, STRANGE: ~known}
    methods = _methods(model, seed)
    lines = {}
    for k, (name, method) in enumerate(methods):
        if tell is not None:
            tell(k, len(methods), name)
        score, yes = _predicted(method, seen, entries)
        for group, marks in groups.items():
            if marks.any() and not (group == ALL and known.all() == known.any()):
                found = _measures(entries.sign[marks], score[marks], yes[marks])
                errors = _errors_by_row(
                    entries.rows[marks], entries.sign[marks], score[marks], yes[marks]
                )
                lines[name, group] = {"answers": int(marks.sum())} | found | errors
    if tell is not None:
        tell(len(methods), len(methods), "")
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis(["method", "of"])


def _methods(model: PairClassifier, seed: int) -> list[tuple[str, PairClassifier | None]]:
    """Return a model and what it is held against."""
    jobs = {"n_jobs": model.n_jobs} if hasattr(model, "n_jobs") else {}
    return [
        (type(model).__name__, model),
        ("effects only", LogisticCompleter(0, random_state=seed, **jobs)),
        ("commoner answer", None),
    ]


def _errors_by_row(
    rows: NDArray[np.int32], sign: NDArray[np.int8], score: Array, yes: Array
) -> dict[str, float]:
    """Return standard errors of means over answers whose rows, not they themselves, are independent."""
    count, errors = len(np.unique(rows)), {}
    for name, values in _terms(sign, score, yes).items():
        sums = np.bincount(rows, values - values.mean())
        spread = np.sqrt((sums**2).sum() * count / (count - 1)) if count > 1 else np.nan
        errors[f"{name}_se"] = float(spread / len(values))
    return errors | {"calibration_error_se": float("nan")}


def _predicted(method: PairClassifier | None, train: Observations, test: Entries) -> tuple[Array, Array]:
    if method is None:
        yes = (np.count_nonzero(train.by_row.sign > 0) + 1) / (train.n + 2)
        return np.full(len(test.sign), 1.0 if yes >= 0.5 else -1.0), np.full(len(test.sign), yes)
    fitted: Any = clone(method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted.fit(train)
    found = fitted.predictions(test.rows, test.columns)
    return found.decision, found.probability


def _measures(sign: NDArray[np.int8], score: Array, yes: Array) -> dict[str, float]:
    means = {name: float(values.mean()) for name, values in _terms(sign, score, yes).items()}
    return means | {"calibration_error": calibration_error(yes, sign > 0)}


def _terms(sign: NDArray[np.int8], score: Array, yes: Array) -> dict[str, Array]:
    """Return what the measures that are means are the means of."""
    outcome = sign > 0
    return {
        "accuracy": (score * sign > 0).astype(float),
        "log_loss": -np.log(np.where(outcome, yes, 1.0 - yes)),
        "brier": (yes - outcome) ** 2,
    }


def calibration_error(probability: Array, happened: NDArray[np.bool_]) -> float:
    """Return the mean gap between stated and observed probability, over bins of about equal size.

    Equal probabilities share a bin, so that their order does not matter.

    >>> calibration_error(np.full(4, 0.5), np.array([True, True, False, False]))
    0.0
    """
    _, place, counts = np.unique(probability, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - 0.5 * counts
    bins = np.minimum((_BINS * middle / len(probability)).astype(int), _BINS - 1)[place]
    gaps = np.bincount(bins, probability - happened, _BINS)
    return float(np.abs(gaps).sum() / len(probability))
