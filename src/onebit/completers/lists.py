"""Lists of the best of each row, and what can be certified of them.

A list holds the columns that a row most likely says "yes" to, of those without a fitted answer, held-out
ones included: which entries it holds depends on nothing that was held out. So the held-out answers that
fall into the lists are a sample of what the lists hold, as the held-out answers are of all entries, and
the share of "no" among them is binomial. A list claims "yes" of all it holds: whatever is answered with
"no" is wrong in it.

*Which part can be kept* is tested threshold by threshold, from the surest entries of the lists down, each
at the whole ``delta``, until one fails (fixed sequence testing: learn then test, Angelopoulos et al.,
2021). The thresholds are quantiles of the probabilities in the lists, which are known beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.certificates.bounds import binomial_upper_bound
from onebit.certificates.hold_out import HeldOut, check_hold_out_delta, counted_terms
from onebit.certificates.statements import ASSUMPTIONS, Certificate, at_most, confidence
from onebit.completers.filling import known_answers, listed_columns, with_later
from onebit.data.observations import View

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

# Thresholds that are tested at most.
STEPS = 20


@dataclass(frozen=True)
class ListCertificate:
    """What can be kept of the lists of the best ``n`` of each row.

    Attributes
    ----------
    n : int
        How long the lists are at most.
    max_error : float
        The share of "no" that is allowed.
    threshold : float
        What is kept: entries with a probability of "yes" of at least this; infinite where nothing is.
    share : float
        The share of the lists that is kept.
    certificate : Certificate or None
        Of what is kept; None where nothing is.
    whole : Certificate
        Of the whole lists.
    """

    n: int
    max_error: float
    threshold: float
    share: float
    certificate: Certificate | None
    whole: Certificate
    delta: float

    def __str__(self) -> str:
        sure, most = confidence(self.delta), at_most(self.max_error)
        if self.certificate is None:
            return (
                f"No part of the lists of the best {self.n} of each row can be held to {most} answered "
                f"with no, with probability {sure}; of the whole lists it is at most "
                f"{at_most(self.whole.bound)}."
            )
        which = "all of it"
        if self.share < 1.0:
            which = f"those with a probability of at least {self.threshold:.3f}"
        trials, errors = (int(self.certificate.terms[name]) for name in ("held-out answers", "errors"))
        return (
            f"With probability {sure}, of what is kept of the lists of the best {self.n} of each row "
            f"({which}, {self.share:.0%}), at most {most} would be answered with no, if what is listed "
            f"comes about like the held-out answers in the lists ({trials:,} of them, {errors:,} of "
            "which were no)."
        )


def list_certificate(model: Any, n: int, max_error: float, delta: float) -> ListCertificate:
    """Find what can be kept of the lists of the best ``n`` of each row; see the module's docstring."""
    check_hold_out_delta(delta)
    held: HeldOut = model._held_out_answers()
    if held.disagreement is not None or held.whence not in ("fit", "update", "own"):
        raise ValueError(
            "the lists of this model are not those of the model that was counted: it was refitted, or "
            "updated since"
        )
    rows, columns, probability = _lists(model, n)
    width = np.int64(len(model.columns_))
    listed = rows * width + columns
    order = np.argsort(listed)
    entries = held.rows * width + held.columns
    place = np.searchsorted(listed[order], entries)
    place[place == len(listed)] = 0
    inside = listed[order][place] == entries
    chance = probability[order][place][inside]
    wrong = held.sign[inside] < 0
    whole = _certificate(n, wrong, delta, 1.0)
    cuts = np.unique(np.quantile(probability, 1.0 - np.arange(1, STEPS + 1) / STEPS))[::-1]
    best: tuple[float, Certificate] | None = None
    for cut in cuts:
        among = wrong[chance >= cut]
        found = _certificate(n, among, delta, float((probability >= cut).mean()))
        if found.bound > max_error:
            break
        best = float(cut), found
    if best is None:
        return ListCertificate(n, max_error, float("inf"), 0.0, None, whole, delta)
    return ListCertificate(
        n, max_error, best[0], float((probability >= best[0]).mean()), best[1], whole, delta
    )


def _lists(model: Any, n: int) -> tuple[Codes, Codes, Array]:
    """Return the lists of all rows with fitted answers, held-out entries included."""
    seen = fitted_view(model)
    rows = np.flatnonzero(seen.counts > 0).astype(np.int32)
    parts = [(row, column, found.probability) for row, _, column, found in
             listed_columns(model, n, rows, seen)]  # fmt: skip
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))  # type: ignore[return-value]


def kept_of_lists(model: Any, n: int, rows: Codes, least: float) -> Any:
    """Yield what is kept of the lists of some rows, without entries whose answers are known."""
    width = np.int64(len(model.columns_))
    known = known_answers(model)
    answered = np.unique(known.owners() * width + known.index)
    seen = fitted_view(model)
    rows = rows[seen.counts[rows] > 0]
    for row, rank, column, found in listed_columns(model, n, rows, seen):
        keep = (found.probability >= least) & ~np.isin(row * width + column, answered)
        places = np.flatnonzero(keep)
        yield row[places], rank[places], column[places], found.at(places)


def fitted_view(model: Any) -> View:
    """Return the answers that a model has learnt from, without the held-out ones, by row."""
    return with_later(model, model.kept_answers().fitted).by_row


def _certificate(n: int, wrong: NDArray[np.bool_], delta: float, share: float) -> Certificate:
    errors, trials = int(wrong.sum()), len(wrong)
    return Certificate(
        binomial_upper_bound(errors, trials, delta),
        delta,
        "hold-out, lists, Clopper-Pearson",
        f"what stands in the lists of the best {n} of each row"
        + ("" if share >= 1.0 else f" (the surest {share:.0%} of it)"),
        counted_terms(errors, trials, delta),
        ASSUMPTIONS,
        of_this_model=True,
    )
