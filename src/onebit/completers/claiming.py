"""What a fitted model can claim of what people ask about: of blanks, and of groups.

Functions of a fitted completer, which ``certify`` and its companions call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.certificates.blanks import weighted_bound
from onebit.certificates.bounds import binomial_upper_bound
from onebit.certificates.hold_out import HeldOut, check_hold_out_delta, counted_terms
from onebit.certificates.shifts import shifted
from onebit.certificates.statements import (
    BLANKS,
    CHOSEN,
    COMMONER,
    COUNTED_ONCE,
    HELD_OUT,
    KNOWN_IDS,
    OWN_ASSUMPTIONS,
    OWN_HELD_OUT,
    TIES,
    Certificate,
    GroupCertificate,
)
from onebit.certificates.whence import NOT_TOLD
from onebit.completers.filling import with_later
from onebit.data.ids import IdIndex
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS, SIDES
from onebit.engine import scoring
from onebit.engine.descent import Schedule
from onebit.engine.fitting import fit
from onebit.engine.recipe import Recipe
from onebit.engine.seeds import generator
from onebit.engine.workers import Machine, workers
from onebit.model.calibration import Sigmoid
from onebit.model.losses import LOGISTIC
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

# Bands of how often a row or column was answered in the fit; fixed, so that they depend on no answer.
BANDS = (0, 1, 5, 20, 100)
# The largest table whose every entry is given a probability of being answered.
LARGEST_PATTERN = 20_000_000
# Probabilities of being answered are held this far from 0 and 1.
LEAST_CHANCE = 1e-4
BANDED = {"row answers": 0, "column answers": 1}


def shift_certificate(
    found: Certificate, shift: float, limits: str = "", weighed: bool = False
) -> Certificate:
    """Return what a certificate of the answered entries says of the blanks under a shift.

    ``limits`` says of which blanks it speaks, if not of all; ``weighed``, that the certificate is one of
    blanks already, by weights which the shift allows to be wrong.
    """
    base = found.shifts_from
    odds, density = shifted(base, shift), shifted(base, shift, "density")
    others, chosen = CHOSEN.get(found.method, CHOSEN[HELD_OUT])
    assumed = (
        f"being {chosen} multiplies the odds that a prediction is right by at most {shift:g}: odds among "
        f"all entries like those {chosen}, against odds among all {others}"
    )
    if weighed:
        assumed = (
            f"the odds that a prediction is right are at most {shift:g} times as high among blanks as "
            "they are weighed as among the blanks that there are"
        )
    return Certificate(
        odds,
        found.delta,
        f"{found.method}, shifted by odds of {shift:g}",
        f"the predictions of {others}{limits}" + ("," if "," in limits else ""),
        {name: value for name, value in found.terms.items() if name not in (BLANKS, COMMONER)}
        | {
            "without a shift": base,
            f"if no kind of entry is {shift:g} times as frequent": density,
        },
        (
            assumed,
            *found.assumptions,
        ),
        of_this_model=found.of_this_model,
    )


def blank_certificate(
    model: Any, propensities: Any, delta: float, shift: float | None = None, random_state: int = 0
) -> Certificate:
    """Bound the error rate of the blanks by held-out answers that are weighted; see ``blanks``."""
    check_hold_out_delta(delta)
    held = _held(model)
    answers = model.kept_answers()
    rows, columns = answers.everything.shape
    if rows * columns > LARGEST_PATTERN:
        raise ValueError(
            f"the blanks of a table of {rows:,} x {columns:,} are too many to weigh one by one; "
            f"{LARGEST_PATTERN:,} entries can be. certify(shift=2.0) needs no weights"
        )
    numbers = answers.everything.entry_numbers()
    if len(np.unique(numbers)) < len(numbers):
        raise ValueError(
            "some entries are answered more than once, so that being answered is no yes or no; "
            "certify(shift=2.0) needs no weights"
        )
    estimated = propensities is None
    chance = (
        estimated_propensities(model, random_state)
        if estimated
        else given_propensities(model, propensities)
    )
    outside = np.ones(rows * columns, dtype=bool)
    outside[answers.fitted.entry_numbers()] = False
    order = held.in_random_order()
    entries = held.rows.astype(np.int64) * columns + held.columns
    found = weighted_bound(
        held.wrong[order],
        chance.ravel()[entries[order]],
        chance.ravel()[outside],
        len(held.wrong) / len(numbers),
        delta,
        estimated,
        rows * columns - len(numbers),
    )
    whose = "estimated from who answered what" if estimated else "as they were given"
    certificate = Certificate(
        found.bound,
        delta,
        "hold-out, weighted by the odds of being blank, betting",
        f"the predictions of blanks{held.limits}",
        {
            "held-out answers": float(len(held.wrong)),
            "errors": float(held.wrong.sum()),
            "observed error": float(held.wrong.mean()),
            "weighted error": found.observed,
            "worth so many of equal weight": found.worth,
            "share of the blanks whose weight was cut off": found.cut_off,
            "delta": delta,
        },
        (
            f"each entry is answered by itself with its own probability, {whose}",
            *(
                ("these estimates are right: an assumption that nothing here checks",)
                if estimated
                else ()
            ),
            COUNTED_ONCE,
            KNOWN_IDS,
            TIES,
        ),
        of_this_model=True,
    )
    return certificate if shift is None else shift_certificate(certificate, shift, held.limits, True)


def surveyed_blanks(model: Any, delta: float, shift: float | None = None) -> Certificate:
    """Bound the error rate of the blanks by the user's own held-out answers to entries with no other."""
    check_hold_out_delta(delta)
    held: HeldOut = model._held_out_answers()
    wrong = held.wrong[~held.fitted_too]
    errors, trials = int(wrong.sum()), len(wrong)
    found = Certificate(
        binomial_upper_bound(errors, trials, delta),
        delta,
        OWN_HELD_OUT,
        f"the predictions of entries without a fitted answer, {held.where},",
        counted_terms(errors, trials, delta),
        ("the held-out answers to entries without a fitted one are independent draws of such entries, as "
         "those of a survey at random are", *OWN_ASSUMPTIONS[1:], *(NOT_TOLD,) * held.updated_since),
        of_this_model=True,
    )  # fmt: skip
    return found if shift is None else shift_certificate(found, shift, held.limits)


def _held(model: Any) -> HeldOut:
    held: HeldOut = model._held_out_answers()
    if not held.at_random or held.disagreement is not None:
        raise ValueError(
            "this needs answers that were held out of the fit at random (certify=0.1), of a model that "
            "was neither updated nor refitted since"
        )
    return held


def given_propensities(model: Any, propensities: Any) -> Array:
    """Return the user's probabilities of being answered, in the order of the model's codes."""
    shape = model.kept_answers().everything.shape
    if isinstance(propensities, pd.DataFrame):
        codes = model.rows_.encode(propensities.index), model.columns_.encode(propensities.columns)
        places = []
        for side, known in enumerate(codes):
            mine = np.flatnonzero((known >= 0) & (known < shape[side]))  # others came later
            if not np.array_equal(np.sort(known[mine]), np.arange(shape[side])):
                raise ValueError(
                    f"propensities must name each of the {shape[side]:,} {SIDES[side]} that were fitted "
                    "once"
                )
            places.append(mine[np.argsort(known[mine])])
        found = propensities.to_numpy(dtype=float)[np.ix_(*places)]
    else:
        found = np.asarray(propensities, dtype=float)
        if found.shape != shape:
            raise ValueError(
                f"propensities must be a frame with the model's ids, or a matrix of {shape[0]} x "
                f"{shape[1]} in the order of its codes; got shape {found.shape}"
            )
    if not np.isfinite(found).all() or found.min() <= 0.0 or found.max() > 1.0:
        raise ValueError("propensities are probabilities of being answered, above 0 and at most 1")
    return np.minimum(found, 1.0 - LEAST_CHANCE)


def estimated_propensities(model: Any, random_state: int = 0) -> Array:
    """Return probabilities of being answered from who answered what, each entry from the other half.

    The pattern is completed like any table of yes and no: answered or not.
    """
    everything = model.kept_answers().everything
    rows, columns = everything.shape
    sign = np.full(rows * columns, -1, dtype=np.int8)
    sign[everything.entry_numbers()] = 1
    half = np.random.default_rng(random_state).random(len(sign)) < 0.5
    first, second = (
        IdIndex(pd.RangeIndex(size), name) for size, name in zip(everything.shape, MEMBERS, strict=True)
    )
    chance = np.empty(len(sign))
    for part in (half, ~half):
        where = np.flatnonzero(~part)
        seen = Observations.from_codes(first, second, *_codes(where, columns), sign[where])
        fitted = plain_fit(seen, 5, random_state)
        asked = np.flatnonzero(part)
        moments = scoring.score_moments(fitted, *_codes(asked, columns), -1)
        chance[asked] = Sigmoid().probability(*moments)
    return np.clip(chance, LEAST_CHANCE, 1.0 - LEAST_CHANCE).reshape(rows, columns)


def plain_fit(seen: Observations, rank: int, seed: int) -> Posterior:
    """Return the posterior of a plain logistic fit."""
    recipe = Recipe(
        loss=LOGISTIC, rank=rank, row_effects=True, column_effects=True, pattern=None,
        schedule=Schedule(tol=1e-4),
    )  # fmt: skip
    with workers(Machine(-1), seen.n) as crew:
        return fit(recipe, seen, crew, generator(seed)).descent.posterior


def _codes(entries: NDArray[np.int64], columns: int) -> tuple[Codes, Codes]:
    """Return the codes of entries that are numbered row after row."""
    return (entries // columns).astype(np.int32), (entries % columns).astype(np.int32)


def group_certificate(model: Any, by: Any, delta: float) -> GroupCertificate:
    """Bound the error rates of groups of predictions, all at once.

    ``by`` is "row answers" or "column answers", bands of how often a row or column was answered; or a
    pair of a side and a mapping (or series) from its ids to groups.
    """
    held: HeldOut = model._held_out_answers()
    if isinstance(by, str):
        if by not in BANDED:
            raise ValueError(
                f'by must be "answer", "row answers", "column answers" or groups of ids, got {by!r}'
            )
        labels, names = _bands(model, held, BANDED[by])
        return held.certify_groups(by, labels, names, delta)
    side, groups = by
    labels, names = _named(model, held, side, groups)
    return held.certify_groups(f"{MEMBERS[side]} group", labels, names, delta)


def _bands(model: Any, held: HeldOut, side: int) -> tuple[NDArray[np.int64], list[str]]:
    fitted = model.kept_answers().fitted
    seen = with_later(model, fitted) if held.of_update else fitted
    view = (seen.by_row, seen.by_column)[side]
    counts = np.zeros(len((model.rows_, model.columns_)[side]), dtype=np.int64)
    counts[: view.size] = view.counts
    counts = counts[(held.rows, held.columns)[side]]
    names = []
    for begin, end in zip(BANDS, [*BANDS[1:], None], strict=True):
        last = "or more" if end is None else "" if end == begin + 1 else f"to {end - 1}"
        names.append(f"in {SIDES[side]} with {begin} {last}".strip() + " fitted answers")
    return np.searchsorted(BANDS, counts, side="right") - 1, names


def _named(model: Any, held: HeldOut, side: int, groups: Any) -> tuple[NDArray[np.int64], list[str]]:
    series = groups if isinstance(groups, pd.Series) else pd.Series(dict(groups))
    index = (model.rows_, model.columns_)[side]
    if series.index.has_duplicates:
        raise ValueError(
            f"a {MEMBERS[side]} is in two groups: {series.index[series.index.duplicated()][0]!r}"
        )
    codes = index.encode(series.index)
    names = sorted({str(value) for value in series.dropna()})
    if not names:
        raise ValueError("there is no group")
    of = np.full(len(index), -1, dtype=np.int64)
    known = codes >= 0
    place = {name: k for k, name in enumerate(names)}
    of[codes[known]] = [-1 if pd.isna(value) else place[str(value)] for value in series.to_numpy()[known]]
    return of[(held.rows, held.columns)[side]], [f"in {name}" for name in names]
