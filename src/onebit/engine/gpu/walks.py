"""Walks over the answers of one side, which sum up what they say of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import torch
import triton

from onebit.engine.cpu.layout import layout_of
from onebit.engine.gpu import kernels
from onebit.engine.gpu.data import CHUNK, Batch, DeviceView, Piece
from onebit.engine.gpu.halving import Halved
from onebit.engine.gpu.layout import LineLayout
from onebit.engine.gpu.transfer import to_device

# What is gathered from: lines in single precision, or in half the bytes.
Table: TypeAlias = torch.Tensor | Halved


class Walk:
    """Sums up what the answers of a view say of its rows, a batch at a time, in a scratch space."""

    def __init__(self, view: DeviceView, shape: LineLayout, has_effect: bool) -> None:
        self.view, self.shape = view, shape
        self._loss = torch.zeros(max(view.n_chunks, 1), dtype=torch.float64, device=view.device)
        # The tables that a walk ahead of time was made with; they have other names when they change.
        self._walked: tuple[Table, torch.Tensor] | None = None
        self.batches: list[Batch] = view.batches(4 * shape.partial)
        longest = max((b.chunks[1] - b.chunks[0] for b in self.batches), default=0)
        # Zeros: between the parts of a line is room that nobody writes, and sums run over all of it.
        self.partial = torch.zeros(
            (max(longest, 1), shape.partial), dtype=torch.float32, device=view.device
        )
        places = layout_of(shape.rank, has_effect, True)
        self._own_place, self._own_factor, self._mean_place = (
            to_device(array, view.device)
            for array in (
                places.own.astype(np.int32),
                places.times,
                places.own_mean[places.own_mean >= 0].astype(np.int32),
            )
        )

    def over(self, table: Table, own: torch.Tensor, code: int, keep: bool) -> Iterator[Batch]:
        """Walk over all answers; if ``keep``, a batch's sums are in ``partial`` when it is yielded."""
        ahead, self._walked = self._walked, None
        # Of a walk that keeps no sums the kernel is another, which may round otherwise.
        walked = keep and ahead is not None and ahead[0] is table and ahead[1] is own
        for piece in self.view.pieces(self.batches):
            if not walked:
                self._over(piece, table, own, code, keep)
            walked = False
            yield piece.batch

    def begin(self, table: Table, own: torch.Tensor, code: int) -> None:
        """Walk over the first batch ahead of time: for the next walk, if nothing changes before it."""
        if not self.view.streamed:
            for piece in islice(self.view.pieces(self.batches), 1):
                self._over(piece, table, own, code, True)
                self._walked = table, own

    def _over(self, piece: Piece, table: Table, own: torch.Tensor, code: int, keep: bool) -> None:
        """Walk over one batch."""
        shape, view = self.shape, self.view
        first, last = piece.batch.chunks
        lines: Any = table
        unit = self._own_factor
        if isinstance(table, Halved):
            lines, unit = table.lines, table.unit
        if last > first:
            kernels.walk[(last - first,)](
                piece.answers, piece.weight, view.start, view.chunk_row, view.row_chunk, lines, unit, own,
                self._own_place, self._own_factor, self._mean_place, self.partial, self._loss, first,
                piece.first,
                CODE=code, WEIGHTED=len(view.weight) > 0, KEEP=keep, CHUNK=CHUNK,
                LOW=shape.low, HIGH=shape.high, SIZE=shape.size, LAST=shape.last,
                STRIDE=shape.stride, PARTIAL=shape.partial, OTHER_STRIDE=lines.stride(0),
                HALVED=lines is not table, **shape.walk_options,
            )  # fmt: skip
        if keep:
            fold_groups(self.partial, piece.batch)

    def loss(self) -> torch.Tensor:
        """Return the loss of all answers, after a walk over them."""
        return self._loss.sum()


def fold_groups(partial: torch.Tensor, batch: Batch) -> None:
    """Add up the lines of long rows in groups, so that no row is left with thousands of lines."""
    if len(batch.group_begin):
        kernels.fold[(len(batch.group_begin),)](
            partial, batch.group_begin, batch.group_end, PARTIAL=partial.shape[1],
            WIDTH=triton.next_power_of_2(partial.shape[1]),
        )  # fmt: skip
