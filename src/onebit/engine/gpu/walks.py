"""Walks over the answers of one side, which sum up what they say of its rows; the lines they gather."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
import triton

from onebit.engine.cpu.layout import layout_of
from onebit.engine.gpu import kernels
from onebit.engine.gpu.data import CHUNK, Batch, DeviceView, Piece
from onebit.engine.gpu.transfer import to_device
from onebit.model.gaussians import packed_size

# Answers at once and warps of a walk, by the largest width of a line that they are for.
_FASTEST = {128: (8, 1), 256: (4, 2), 2048: (2, 2), math.inf: (4, 8)}


@dataclass(frozen=True)
class LineLayout:
    """How the lines of a model of some rank are laid out, and how the kernels are launched for it."""

    rank: int

    @property
    def slots(self) -> int:
        """The length of a row's vector: factors, effect and the 1."""
        return self.rank + 2

    @property
    def size(self) -> int:
        """The numbers of a line."""
        return packed_size(self.slots)

    @property
    def last(self) -> int:
        """Where the last line of the triangle begins, which holds the mean."""
        return self.size - self.slots

    @property
    def low(self) -> int:
        """The width of a line's first part: all before the mean, as far as a power of two goes."""
        return 1 << (self.last.bit_length() - 1)

    @property
    def high(self) -> int:
        """The width of a line's second part."""
        return triton.next_power_of_2(self.size - self.low)

    @property
    def stride(self) -> int:
        """The numbers from one line to the next, whole sectors of memory."""
        return -(-self.size // 8) * 8

    @property
    def partial(self) -> int:
        """The numbers of a chunk's sums: a line, then the linear terms."""
        return self.stride + -(-self.slots // 8) * 8

    @property
    def tile(self) -> int:
        """The edge of the square that holds the factors' part of a row's system."""
        return triton.next_power_of_2(max(self.rank, 2))

    @property
    def walk_options(self) -> dict[str, int]:
        """Answers that a program takes at once, and its warps: what was fastest on an H200."""
        width = self.low + self.high
        block, warps = next(setting for most, setting in _FASTEST.items() if width <= most)
        return {"BLOCK": block, "num_warps": warps}

    @property
    def solve_warps(self) -> int:
        """Warps of a program that solves one system: what was fastest on an H200."""
        return max(1, self.tile**2 // 2048)


class Walk:
    """Sums up what the answers of a view say of its rows, a batch at a time, in a scratch space."""

    def __init__(self, view: DeviceView, shape: LineLayout, has_effect: bool) -> None:
        self.view, self.shape = view, shape
        self._loss = torch.zeros(max(view.n_chunks, 1), dtype=torch.float64, device=view.device)
        # The tables that a walk ahead of time was made with; they have other names when they change.
        self._walked: tuple[torch.Tensor, torch.Tensor] | None = None
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

    def over(self, table: torch.Tensor, own: torch.Tensor, code: int, keep: bool) -> Iterator[Batch]:
        """Walk over all answers; if ``keep``, a batch's sums are in ``partial`` when it is yielded."""
        ahead, self._walked = self._walked, None
        # Of a walk that keeps no sums the kernel is another, which may round otherwise.
        walked = keep and ahead is not None and ahead[0] is table and ahead[1] is own
        for piece in self.view.pieces(self.batches):
            if not walked:
                self._over(piece, table, own, code, keep)
            walked = False
            yield piece.batch

    def begin(self, table: torch.Tensor, own: torch.Tensor, code: int) -> None:
        """Walk over the first batch ahead of time: for the next walk, if nothing changes before it."""
        if not self.view.streamed:
            for piece in islice(self.view.pieces(self.batches), 1):
                self._over(piece, table, own, code, True)
                self._walked = table, own

    def _over(self, piece: Piece, table: torch.Tensor, own: torch.Tensor, code: int, keep: bool) -> None:
        """Walk over one batch."""
        shape, view = self.shape, self.view
        first, last = piece.batch.chunks
        if last > first:
            kernels.walk[(last - first,)](
                piece.answers, piece.weight, view.start, view.chunk_row, view.row_chunk, table, own,
                self._own_place, self._own_factor, self._mean_place, self.partial, self._loss, first,
                piece.first,
                CODE=code, WEIGHTED=len(view.weight) > 0, KEEP=keep, CHUNK=CHUNK,
                LOW=shape.low, HIGH=shape.high, SIZE=shape.size, LAST=shape.last,
                STRIDE=shape.stride, PARTIAL=shape.partial, **shape.walk_options,
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
