"""Lists of the best of each row, and what can be certified of them.

A list holds the columns that a row most likely says "yes" to, of those without a fitted answer, held-out
ones included: which entries it holds depends on nothing that was held out. So the held-out answers that
fall into the lists are a sample of what the lists hold, as the held-out answers are of all entries, and
the share of "no" among them is binomial. A list claims "yes" of all it holds: whatever is answered with
"no" is wrong in it.

*Which part can be kept* is tested threshold by threshold, from the surest entries of the lists down,
until one fails (fixed sequence testing: learn then test, Angelopoulos et al., 2021). There are three such
sequences, which begin with the surest entries, with the surer half and with all; each has a third of
``delta``, so that a few answers among the surest do not decide for all.

The thresholds are quantiles of the probabilities in the lists, which are known beforehand; those above
which there are too few held-out answers for any bound are passed over, which the answers have no part in.
Of an entry that is answered more than once, one answer counts, at random. What is shown of the lists are
their blanks, and these alone are held to the bound too, by the hypergeometric distribution.

Lists are of the rows and columns that were fitted: whoever was folded in later was not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.certificates.bounds import binomial_upper_bound, rest_upper_bound
from onebit.certificates.hold_out import HeldOut, check_hold_out_delta, counted_terms
from onebit.certificates.statements import (
    ASSUMPTIONS,
    BLANKS,
    OWN_ASSUMPTIONS,
    Certificate,
    above,
    at_most,
    confidence,
)
from onebit.completers.filling import known_answers, listed_columns, with_later

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

# Thresholds that are tested at most.
STEPS = 20
# The shares of the lists at which sequences of tests begin.
STARTS = (0.0, 0.5, 1.0)


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
            said = (
                f"No part of the lists of the best {self.n} of each row can be held to {most} answered "
                f"with no, with probability {sure}; of the whole lists it is at most "
                f"{at_most(self.whole.bound)}"
            )
            if self.whole.bound > self.max_error:
                return f"{said}."
            return (
                f"{said}. Both hold: the choice of a part tests the whole lists too, but leaves a third "
                "of the probability of failure for that, and the second statement has all of it."
            )
        which = "all of it"
        if self.share < 1.0:
            which = f"those with a probability of at least {above(self.threshold)}"
        trials, errors = (int(self.certificate.terms[name]) for name in ("held-out answers", "errors"))
        return (
            f"With probability {sure}, of what is kept of the lists of the best {self.n} of each row "
            f"({which}, {self.share:.0%}), all lists taken together and not each by itself, at most "
            f"{most} would be answered with no, if what is listed comes about like the held-out answers "
            f"in the lists ({trials:,} of them, {errors:,} of which were no; their places stay empty)."
        )


def list_certificate(model: Any, n: int, max_error: float, delta: float) -> ListCertificate:
    """Find what can be kept of the lists of the best ``n`` of each row; see the module's docstring."""
    check_hold_out_delta(delta)
    held: HeldOut = model._held_out_answers()
    if held.disagreement is not None or held.updated_since:
        raise ValueError(
            "the lists of this model are not those of the model that was counted: it was refitted, or "
            "updated since"
        )
    rows, columns, probability = _lists(model, n, held)
    if not len(rows):
        raise ValueError("there is no list: no row and column that were fitted have an entry without one")
    width = np.int64(len(model.columns_))
    listed = rows * width + columns
    order = np.argsort(listed)
    one = held.one_of_each()  # answers of the same entry are not independent
    entries = (held.rows * width + held.columns)[one]
    place = np.searchsorted(listed[order], entries)
    place[place == len(listed)] = 0
    inside = listed[order][place] == entries
    chance = probability[order][place][inside]
    wrong = held.sign[one][inside] < 0

    def certified(cut: float, each: float) -> Certificate:
        above, among = probability >= cut, wrong[chance >= cut]
        shown = int(above.sum()) - len(among)
        return _certificate(n, among, (each, delta), float(above.mean()), shown, held.own)

    whole = certified(0.0, delta)
    cuts = np.unique(np.quantile(probability, 1.0 - np.arange(1, STEPS + 1) / STEPS))[::-1]
    each = delta / len(STARTS)
    best: tuple[float, Certificate] | None = None
    for start in STARTS:
        for cut in cuts:
            if (probability >= cut).mean() < start or _hopeless(chance, cut, max_error, each):
                continue
            found = certified(float(cut), each)
            if found.bound > max_error:
                break
            if best is None or cut < best[0]:
                best = float(cut), found
    if best is None:
        return ListCertificate(n, max_error, float("inf"), 0.0, None, whole, delta)
    return ListCertificate(
        n, max_error, best[0], float((probability >= best[0]).mean()), best[1], whole, delta
    )


def _lists(model: Any, n: int, held: HeldOut) -> tuple[Codes, Codes, Array]:
    """Return the lists of all rows that were counted, held-out entries included."""
    every = np.arange(len(model.rows_), dtype=np.int32)
    parts = [(row, column, found.probability) for row, _, column, found in
             _counted_lists(model, n, every, held)]  # fmt: skip
    if not parts:
        nothing = np.empty(0, dtype=np.int32)
        return nothing, nothing, np.empty(0)
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))  # type: ignore[return-value]


def kept_of_lists(model: Any, n: int, rows: Codes, least: float) -> Any:
    """Yield what is kept of the lists of some rows, without entries whose answers are known."""
    width = np.int64(len(model.columns_))
    known = known_answers(model)
    answered = np.unique(known.owners() * width + known.index)
    for row, rank, column, found in _counted_lists(model, n, rows, model._held_out_answers()):
        keep = (found.probability >= least) & ~np.isin(row * width + column, answered)
        places = np.flatnonzero(keep)
        yield row[places], rank[places], column[places], found.at(places)


def _counted_lists(model: Any, n: int, rows: Codes, held: HeldOut) -> Any:
    """Yield the lists of those of some rows that held-out answers speak of, of such columns."""
    fitted = model.kept_answers().fitted
    seen = with_later(model, fitted)
    counted = seen if held.of_update else fitted
    known = [np.flatnonzero(view.counts > 0) for view in (counted.by_row, counted.by_column)]
    for row, rank, column, found in listed_columns(model, n, rows[np.isin(rows, known[0])], seen.by_row):
        places = np.flatnonzero(np.isin(column, known[1]))
        yield row[places], rank[places], column[places], found.at(places)


def _hopeless(chance: Array, cut: float, max_error: float, delta: float) -> bool:
    """Say whether so few held-out answers lie above a threshold that not even no error would do."""
    return binomial_upper_bound(0, int((chance >= cut).sum()), delta) > max_error


def _certificate(
    n: int,
    wrong: NDArray[np.bool_],
    deltas: tuple[float, float],
    share: float,
    shown: int,
    own: bool,
) -> Certificate:
    """Certify entries of lists: held-out ones that were counted, and so many blanks besides.

    ``deltas``: what this bound may spend, and all that are tried together.
    """
    errors, trials = int(wrong.sum()), len(wrong)
    each, delta = deltas
    bound, terms = binomial_upper_bound(errors, trials, each), counted_terms(errors, trials, each)
    if shown:
        terms[BLANKS] = rest_upper_bound(errors, trials, shown, each)
    return Certificate(
        max(bound, terms.get(BLANKS, 0.0)),
        delta,
        "hold-out, lists, Clopper-Pearson",
        f"what stands in the lists of the best {n} of each row, all lists taken together"
        + ("" if share >= 1.0 else f" (the surest {share:.0%} of it)"),
        terms,
        OWN_ASSUMPTIONS if own else ASSUMPTIONS,
        of_this_model=True,
    )
