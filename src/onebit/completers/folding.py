"""Which answers can be folded into a fitted model, and what became of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
                f"{self.both_known:,} skipped, since both their ids are known (a refit takes them up)"
            )
        return "; ".join(parts)


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
            "ids get further answers by a refit"
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
