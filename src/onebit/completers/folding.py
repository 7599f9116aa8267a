"""New rows and columns for a fitted model: which answers can be used, and what became of the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.data.given_features import FeatureError, Given, given
from onebit.data.ids import IdIndex, pair_columns
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS
from onebit.data.sorting import View

Codes = NDArray[np.int32]
Part = tuple[int, Any, Codes, NDArray[np.int8]]


@dataclass(frozen=True)
class FoldedIn:
    """What the last ``fold_in`` did: new rows and columns, answers used, and answers skipped.

    Attributes
    ----------
    rows, columns : int
        New rows and columns.
    used : int
        The answers that were used.
    both_new, both_known : int
        The answers that were skipped: with two new ids, and with two known ones.
    """

    rows: int
    columns: int
    used: int
    both_new: int
    both_known: int

    def skipped(self) -> str:
        """Return what was skipped, and why, in words; nothing where nothing was."""
        parts = []
        if self.both_new:
            parts.append(f"{self.both_new:,} answers skipped, since both their ids are new")
        if self.both_known:
            parts.append(
                f"{self.both_known:,} skipped, since both their ids are known (partial_fit takes them up)"
            )
        return "; ".join(parts)


def fold_in(model: Any, X: Any, y: Any, features: tuple[Any, Any]) -> FoldedIn:
    """Fold answers and features of new ids into a fitted model; return what became of them."""
    told = [None if part is None else _told(model, side, part) for side, part in enumerate(features)]
    if X is None and told == [None, None]:
        raise ValueError("fold_in needs answers, or features, of new ids")
    parts: list[Part] = []
    done = FoldedIn(0, 0, 0, 0, 0)
    if X is not None:
        values = pair_columns(X)
        codes = model.rows_.encode(values[0]), model.columns_.encode(values[1])
        if len(codes[0]) == 0:
            raise ValueError("fold_in needs at least one answer")
        parts, done = divided(values, codes, model._signs(y, len(codes[0])))
    answered = {part[0]: part[1:] for part in parts}
    counts = [0, 0]
    for side in (0, 1):
        if side in answered or told[side] is not None:
            counts[side] = _fold_in_side(model, side, answered.get(side), told[side])
    return replace(done, rows=counts[0], columns=counts[1])


def _told(model: Any, side: int, features: Any) -> Given:
    """Return features of new ids, if the model can use them."""
    name = MEMBERS[side]
    if model._encoders[side] is None:
        raise FeatureError(f"the model was fitted without {name} features, so it can use none")
    return given(features, name)


def _fold_in_side(model: Any, side: int, answered: Any, told: Given | None) -> int:
    """Add the new ids of one side from their answers on known ids of the other, and their features."""
    indexes = [model.rows_, model.columns_]
    fitted, facing = indexes[side], indexes[1 - side]
    if answered is None:
        index, own = IdIndex(pd.Index([]), MEMBERS[side]), np.empty(0, np.int32)
        others, sign = np.empty(0, np.int32), np.empty(0, np.int8)
    else:
        values, others, sign = answered
        index, own = IdIndex.from_values(values, MEMBERS[side])
    matrix = None
    if told is not None:
        fresh = pd.Index(told.ids)[fitted.encode(told.ids) < 0]
        unanswered = fresh[~fresh.isin(index.labels)]
        index = IdIndex(unanswered, MEMBERS[side]) if len(index) == 0 else index.extended(unanswered)
        if len(index) == 0:
            return 0
        matrix = model._encoders[side].encoded(told, index.encode(told.ids), len(index))
    answers = Observations.from_codes(index, facing, own, others, sign).by_row
    add_members(model, side, index, (own, others, sign), answers, matrix)
    return len(index)


def add_members(
    model: Any, side: int, index: IdIndex, loose: tuple[Any, Any, Any], answers: View, matrix: Any
) -> None:
    """Add new ids of one side, with answers on known ids of the other (loose and sorted) and features."""
    indexes = [model.rows_, model.columns_]
    model.predictor_ = model.predictor_.folded_in(side, answers, matrix)
    own, others, sign = loose
    entries = (own + np.int32(len(indexes[side])), others)
    if len(own):
        model._folded = [*model._folded, (*(entries if side == 0 else entries[::-1]), sign)]
    indexes[side] = indexes[side].extended(index.labels)
    model.rows_, model.columns_ = indexes
    model._fitted_entries = None  # entries are numbered by the width of the table


def divided(
    values: tuple[Any, Any], codes: tuple[Codes, Codes], sign: NDArray[np.int8]
) -> tuple[list[Part], FoldedIn]:
    """Divide answers into those of new rows, those of new columns, and those that cannot be used.

    Returns, for each side that has new ids, the side, its ids, the codes of the other side and the signs;
    and what was skipped.
    """
    new = [code < 0 for code in codes]
    taken = [new[0] & ~new[1], ~new[0] & new[1]]
    skipped_new, skipped_known = int((new[0] & new[1]).sum()), int((~new[0] & ~new[1]).sum())
    if not (taken[0].any() or taken[1].any()):
        raise ValueError(
            "fold_in takes answers of new rows on known columns, or of known rows on new columns; "
            f"here {skipped_new} answers have two new ids and {skipped_known} two known ones. Known "
            "ids get further answers by partial_fit"
        )
    parts = [
        (side, _taken(values[side], here), codes[1 - side][here], sign[here])
        for side, here in enumerate(taken)
        if here.any()
    ]
    used = int(taken[0].sum() + taken[1].sum())
    return parts, FoldedIn(0, 0, used, skipped_new, skipped_known)


def _taken(values: Any, places: NDArray[np.bool_]) -> Any:
    """Return some of a column of ids, of the same type."""
    if isinstance(values, (list, tuple)):
        return [value for value, wanted in zip(values, places, strict=True) if wanted]
    return values[places]
