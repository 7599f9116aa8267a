"""What has become of a model since it was fitted: updates, and what they have touched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.data import checked
from onebit.data.sides import SIDES
from onebit.data.storage import Tensors

Codes = NDArray[np.int32]
Marks = NDArray[np.bool_]

# Batches whose fingerprints are kept, so that none is taken up twice by mistake.
REMEMBERED = 1000
_LONGEST = 100
PARTS = ("times", "answers", "batches", "since", "lossy", "stores")


@dataclass(frozen=True)
class Updates:
    """The updates that a model has had.

    Attributes
    ----------
    times : int
        How often ``partial_fit`` was called.
    answers : int
        The answers that it took up.
    rows, columns : ndarray of bool
        Which rows and which columns have been touched since the held-out answers were counted: their
        predictions are others now. Later ones have not.
    since : two int
        From these codes on, rows (columns) have come after the fit and all their answers are known.
    batches : tuple of str
        Fingerprints of the last batches.
    lossy : bool
        Whether answers had weights, or older ones were forgotten in part: the answers that are kept do
        not say so.
    stores : dict
        How far the answers of each store were taken up: the number of the last one, and its fingerprint.
    """

    since: tuple[int, int]
    times: int = 0
    answers: int = 0
    rows: Marks = field(default_factory=lambda: np.zeros(0, dtype=bool))
    columns: Marks = field(default_factory=lambda: np.zeros(0, dtype=bool))
    batches: tuple[str, ...] = ()
    lossy: bool = False
    stores: dict[str, tuple[int, str]] = field(default_factory=dict)

    def touched(self, rows: Codes, columns: Codes) -> Marks:
        """Say of which pairs of codes the row or the column has been touched."""
        found = np.zeros(len(rows), dtype=bool)
        for codes, marks in ((rows, self.rows), (columns, self.columns)):
            inside = (codes >= 0) & (codes < len(marks))
            found[inside] |= marks[codes[inside]]
        return found

    def after(
        self, rows: Codes, columns: Codes, shape: tuple[int, int], batch: str, counted: bool
    ) -> Updates:
        """Return what there has been after one more batch; ``counted``: with a hold-out of its own."""
        marks = []
        for codes, old, size in zip((rows, columns), (self.rows, self.columns), shape, strict=True):
            new = np.zeros(size, dtype=bool)
            if not counted:
                new[: len(old)] = old
                new[codes] = True
            marks.append(new)
        batches = (*self.batches, batch)[-REMEMBERED:]
        answers = self.answers + len(rows)
        return replace(
            self, times=self.times + 1, answers=answers, rows=marks[0], columns=marks[1], batches=batches
        )

    def taken_from(self, store: str, last: int, mark: str) -> Updates:
        """Return the same, with how far the answers of a store were taken up."""
        return replace(self, stores=self.stores | {store: (last, mark)})

    def words(self) -> str:
        """Return what there has been, in words; nothing where nothing was."""
        if not self.times:
            return ""
        times = "once" if self.times == 1 else f"{self.times:,} times"
        return f"updated {times}, with {self.answers:,} answers"

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        """Return everything as arrays and JSON, for saving."""
        tensors: Tensors = {"updates.rows": self.rows, "updates.columns": self.columns}
        content = {"times": self.times, "answers": self.answers, "batches": list(self.batches)}
        since = list(self.since)
        stores = {name: list(mark) for name, mark in self.stores.items()}
        return tensors, content | {"since": since, "lossy": self.lossy, "stores": stores}

    @classmethod
    def from_state(cls, tensors: Tensors, content: dict[str, Any], shape: tuple[int, int]) -> Updates:
        """Restore what ``state`` returned, checked."""
        checked.only(content, PARTS, "its updates")
        marks = [checked.checked_array(tensors, f"updates.{name}", bool, (None,)) for name in SIDES]
        if any(len(part) > size for part, size in zip(marks, shape, strict=True)):
            raise checked.FileError("updates of more rows or columns than there are")
        batches = checked.listed(content, "batches")
        if len(batches) > REMEMBERED:
            raise checked.FileError(f"{len(batches)} batches are more than {REMEMBERED}")
        for place in range(len(batches)):
            if len(checked.text(batches, place)) > _LONGEST:
                raise checked.FileError("a fingerprint of a batch that is none")
        stores = checked.section(content, "stores")
        since = checked.listed(content, "since", 2)
        return cls(
            (checked.whole(since, 0, 0, shape[0]), checked.whole(since, 1, 0, shape[1])),
            checked.whole(content, "times"),
            checked.whole(content, "answers"),
            marks[0],
            marks[1],
            tuple(batches),
            checked.flag(content, "lossy"),
            {str(name): _restored_mark(checked.listed(stores, name, 2)) for name in stores},
        )


def _restored_mark(mark: list[Any]) -> tuple[int, str]:
    return checked.whole(mark, 0), checked.text(mark, 1)[:_LONGEST]
