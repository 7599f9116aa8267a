"""Whole rows held out of a fit: folded in with a part of their answers, and judged on the rest."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.certificates.new_rows import GIVEN, HeldRows
from onebit.completers.folding import add_members
from onebit.completers.holding_out import WEIGHTED, hold_out_key
from onebit.data import hashing
from onebit.data.ids import IdIndex
from onebit.data.numbers import is_number
from onebit.data.observations import Observations

Codes = NDArray[np.int32]
Marks = NDArray[np.bool_]


def hold_rows_out(seen: Observations, share: Any, random_state: Any) -> tuple[Observations, Observations]:
    """Return the answers of the other rows, and those of the rows held out.

    Which rows depends on their ids and the seed: those with the smallest hashes.
    """
    if not is_number(share) or not 0 < share < 1:
        raise ValueError(
            f"certify_rows is the share of rows to hold out, above 0 and below 1; got {share!r}"
        )
    if seen.weighted:
        raise ValueError(WEIGHTED)
    counts = seen.by_row.counts
    answered = np.flatnonzero(counts > 0)
    size = round(share * len(answered))
    if not 0 < size < len(answered):
        raise ValueError(f"certify_rows={share} of {len(answered)} rows holds out {size}: none, or all")
    hashes = hashing.id_hashes(seen.rows.labels[answered], hold_out_key(random_state) + 1)
    out = np.zeros(len(counts), dtype=bool)
    out[answered[np.argsort(hashes, kind="stable")[:size]]] = True
    kept, held = _of_rows(seen, ~out), _of_rows(seen, out)
    own = kept.features[0]
    if own is not None:
        # The features' means are those of the rows that are fitted.
        centred = own.centred()
        kept = kept.told((centred, kept.features[1]))
        held = held.told((replace(held.features[0], encoder=centred.encoder), held.features[1]))
    return kept, held


def _of_rows(seen: Observations, wanted: Marks) -> Observations:
    """Return the answers of some rows, over these rows and all columns."""
    members = np.flatnonzero(wanted)
    place = np.cumsum(wanted, dtype=np.int32) - 1
    order = None
    if not seen.rows.sorted:
        listed = seen.rows.listed
        order = place[listed[wanted[listed]]]
    rows, columns, sign, weight = seen.entries(wanted[seen.by_row.owners()])
    index = IdIndex(seen.rows.labels[members], seen.rows.side, order)
    part = Observations.from_codes(index, seen.columns, place[rows], columns, sign, weight, seen.classes)
    told = seen.features
    return part.told((None if told[0] is None else told[0].of(members), told[1]))


def count_rows(model: Any, held: Observations, commoner: int, random_state: Any) -> HeldRows:
    """Fold held-out rows into a copy of a model with some of their answers; count errors on the rest."""
    view = held.by_row
    owners = view.owners()
    hashes = held.hashes(hold_out_key(random_state) + 2)
    order = np.lexsort((hashes, owners))
    rank = np.empty(held.n, dtype=np.int64)
    rank[order] = np.arange(held.n) - np.repeat(view.start[:-1], view.counts)
    entries = held.entry_numbers()
    shape = (view.size, len(GIVEN))
    judged, wrong, common = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    probe, first = copy.copy(model), len(model.rows_)
    for k, given in enumerate(GIVEN):
        longer = view.counts > given
        if not longer.any():
            break
        part = _of_rows(held.take(rank < given), longer)
        # A second answer to an entry that was given says nothing of the others.
        rest = (rank >= given) & ~np.isin(entries, entries[rank < given])
        place = np.cumsum(longer, dtype=np.int32) - 1
        probe.predictor_ = model.predictor_.folded_in(0, part.by_row, part.features[0])
        found = probe.predictions(first + place[owners[rest]], view.index[rest])
        sign = view.sign[rest]
        for counts, marks in (
            (judged, np.ones(len(sign), dtype=bool)),
            (wrong, found.decision * sign <= 0),
            (common, sign != commoner),
        ):
            counts[:, k] = np.bincount(owners[rest], weights=marks, minlength=view.size)
    return HeldRows(GIVEN, judged, wrong, common)


def take_rows_in(model: Any, held: Observations, everybody: IdIndex) -> None:
    """Fold held-out rows in with all their answers, once they have been counted.

    Rows are then listed as they were before some were held out.
    """
    view = held.by_row
    add_members(model, 0, held.rows, (view.owners(), view.index, view.sign), view, held.features[0])
    known = model.rows_
    model.rows_ = IdIndex(known.labels, known.side, known.encode(everybody.listed_labels))
