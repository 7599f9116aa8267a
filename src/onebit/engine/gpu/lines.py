"""The lines of all rows and columns of one chain, in a GPU's memory: see ``engine.sampling.lines``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from onebit.engine.gpu import sampling_kernels as sampling
from onebit.engine.gpu import tall
from onebit.engine.gpu.data import CHUNK, GROUP, DeviceView, Piece
from onebit.engine.gpu.presence import GpuTall
from onebit.engine.gpu.side import fold_groups
from onebit.engine.gpu.transfer import to_device, to_host
from onebit.engine.gpu.whole_kernels import along_walk
from onebit.engine.sampling.lines import Change, Codes, Moments, Place, diverged
from onebit.engine.sampling.target import Table, Target, filled_table
from onebit.engine.sampling.trends import Evidence, Trend, move_along
from onebit.engine.sampling.whole import Along
from onebit.model.losses import HINGE, LOGISTIC

Array = NDArray[np.float64]

# Programs that share the rows of a solve, and the chunks of a look along the whole.
_SOLVERS, _LOOKERS = 8192, 2048
# Lines that change at once.
_LINES_AT_ONCE = 2**21


def _parts(rank: int) -> tuple[int, int]:
    """Return in which parts a walk takes lines of factors, 1 and effect: powers of two, or nothing."""
    whole = triton.next_power_of_2(max(rank + 2, 16))
    if whole <= 32:
        return whole, 0
    return whole // 2, triton.next_power_of_2(max(rank + 2 - whole // 2, 16))


class GpuLines:
    """Lines in a GPU's memory, with the kernels that draw them."""

    def __init__(
        self, target: Target, values: list[NDArray[np.floating]], views: tuple[DeviceView, DeviceView]
    ) -> None:
        self.target, self.views = target, views
        self.device = views[0].device
        self.rank = target.hierarchy.rank
        self.stride = -(-(self.rank + 2) // 8) * 8
        self.parts = _parts(self.rank)
        self.width = sum(self.parts)
        self.tables: list[torch.Tensor] = []
        for side, part in enumerate(values):
            whole = filled_table(part, self.rank, target.hierarchy.has_effect(side))
            self.tables.append(self._placed(whole))
        strips, totals, tails = target.hats
        self._hats = tuple(
            to_device(array, self.device)
            for array in (strips, totals.astype(np.int64), tails.astype(np.float32))
        )
        self._partial = self._room()

    def _placed(self, table: Table) -> torch.Tensor:
        placed = np.zeros((len(table), self.stride), np.float32)
        width = min(self.stride, table.shape[1])
        placed[:, :width] = table[:, :width]
        return to_device(placed, self.device)

    def _room(self) -> torch.Tensor:
        """Return room for the sums of the chunks of the longest batch."""
        chunks = [
            batch.chunks[1] - batch.chunks[0]
            for view in self.views
            for batch in view.batches(self._line_bytes)
        ]
        return torch.empty(
            (max([*chunks, 1]), self.width * (self.width + 2)), dtype=self._single, device=self.device
        )

    @property
    def _single(self) -> torch.dtype:
        # The hinge loss has curvatures beside which others would drown in single precision.
        return torch.float32 if self.target.loss is LOGISTIC else torch.float64

    @property
    def _line_bytes(self) -> int:
        return (4 if self.target.loss is LOGISTIC else 8) * self.width * (self.width + 2)

    @cached_property
    def _copies(self) -> tuple[torch.Tensor, torch.Tensor]:
        """How many answers each one counts for, or nothing where that is one."""
        rows, columns = (self._copies_of(view) for view in self.views)
        return rows, columns

    @cached_property
    def _most_copies(self) -> int:
        return max((int(part.max()) for part in self._copies if len(part)), default=1)

    def _copies_of(self, view: DeviceView) -> torch.Tensor:
        nothing = torch.empty(0, dtype=torch.int32, device=view.answers.device)
        if self.target.loss is not LOGISTIC:
            return nothing
        if len(view.weight) == 0:
            copies = int(self.target.whole(np.ones(1))[0])
            if copies == 1:
                return nothing
            return torch.full((len(view.answers),), copies, dtype=torch.int32, device=nothing.device)
        found, number = torch.unique(view.weight, return_inverse=True)
        whole = self.target.whole(to_host(found).astype(float)).astype(np.int32)
        return torch.from_numpy(whole).to(view.weight.device)[number]

    def _pieces(self, side: int) -> Iterator[tuple[Piece, torch.Tensor]]:
        """Yield the batches of a side in order, with the copies of their answers."""
        view, copies = self.views[side], self._copies[side]
        for piece in view.pieces(view.batches(self._line_bytes)):
            if view.streamed and len(copies):
                begin, end = piece.batch.answers
                yield piece, copies[begin:end].to(self.device)
            else:
                yield piece, copies

    def draw(
        self, side: int, key: tuple[int, int], sweep: int, precision: Array, linear: Array,
        trend: Trend | None,
    ) -> Array:  # fmt: skip
        """Draw all lines of a side; return what they say of the scales of the columns of factors."""
        target, view, rank = self.target, self.views[side], self.rank
        # In one piece: a copy takes as long as it takes to begin.
        sent = to_device(np.concatenate([precision, linear, [target.temperature]]), self.device)
        before, centre, settings = sent[: len(precision)], sent[None, len(precision) : -1], sent[-1:]
        known: Any = target.known.values[side]
        if trend is not None and known is not None:
            centre = tall.times(known, to_device(trend.slopes, self.device)).mul_(before).add_(centre)
        effect = target.hierarchy.has_effect(side)
        edge = triton.next_power_of_2(max(rank, 2))
        signed = (key[0] | key[1] << 32) - (2**64 if key[1] >= 2**31 else 0)
        numbers = to_device(np.array([signed, sweep, side, self._most_copies], np.int64), self.device)
        free = target.hierarchy.n_free(side)
        # Of means alone its many small steps would take as long as the sweep.
        kept = 0 if known is None else Evidence.rows_kept(view.size, free, trend)
        shapes = (free, free, kept), (free, kept)
        evidence = Evidence(
            *(torch.empty(shape, dtype=torch.float64, device=self.device) for shape in shapes)
        )
        scales = torch.zeros((_SOLVERS, edge * edge + edge), dtype=torch.float64, device=self.device)
        for piece, copies in self._pieces(side):
            batch = piece.batch
            first, last = batch.chunks
            if last > first:
                sampling.sample_walk[(last - first,)](
                    piece.answers, piece.weight, copies, view.start, view.chunk_row, view.row_chunk,
                    self.tables[1 - side], self.tables[side], *self._hats, self._partial, settings,
                    numbers, first, piece.first,
                    WEIGHTED=len(view.weight) > 0, COPIED=len(copies) > 0, PARTIAL=self._partial.shape[1],
                    LOW=self.parts[0], HIGH=self.parts[1], **self._walk, **self._layout,
                )  # fmt: skip
            fold_groups(self._partial, batch)
            rows = batch.rows[1] - batch.rows[0]
            sampling.sample_solve[(min(rows, _SOLVERS),)](
                self._partial, view.row_chunk, before, centre, self.tables[side], scales,
                evidence.precision, evidence.linear, numbers, batch.rows[0], rows, first,
                kept,
                OWN_LINEAR=len(centre) > 1, EFFECT=int(effect), RANK=rank, D=edge, WIDTH=self.width,
                STRIDE=self.stride, PARTIAL=self._partial.shape[1], GROUP=GROUP,
                PROGRAMS=min(rows, _SOLVERS), SINGLE=target.loss is LOGISTIC, KEEP=kept > 0,
                num_warps=max(1, edge**2 // 512),
            )  # fmt: skip
        table = self.tables[side]
        found = to_host(torch.cat([scales.sum(0), table.sum(dtype=torch.float64)[None]]))
        if not np.isfinite(found[-1]):
            bad = torch.nonzero(~torch.isfinite(table).all(1)).flatten()
            raise diverged(target, side, sweep, int(bad[0]) if len(bad) else None)
        if trend is not None and kept:
            return self._moved(side, evidence, trend)
        square, pull = found[: edge * edge].reshape(edge, edge), found[edge * edge : -1]
        return np.concatenate([square[:rank, :rank].ravel(), pull[:rank]])

    def _moved(self, side: int, evidence: Evidence, trend: Trend) -> Array:
        """Move all lines of a side along a trend; return what they say of the scales of the columns."""
        places, known = self._places(side), self.target.known.values[side]
        assert known is not None
        ones = torch.ones((len(self.tables[side]), 1), dtype=torch.float32, device=self.device)
        lines = torch.hstack([known[:, trend.leading], ones])
        here, values = GpuTall(self.device), self.tables[side][:, places].T.double()
        move_along(here, lines, values, evidence, trend)
        self.tables[side][:, places] = values.T.float()
        return evidence.scales(here, values, self.rank)

    @property
    def _layout(self) -> dict[str, int]:
        return {
            "RANK": self.rank,
            "STRIDE": self.stride,
            "CHUNK": CHUNK,
            "CODE": self.target.loss.code,
        }

    @property
    def _walk(self) -> dict[str, int]:
        """Answers that a program takes at once, and its warps: what was fastest on an H200."""
        if self.target.loss is HINGE:
            return {"BLOCK": 4, "num_warps": 4}
        return {"BLOCK": 32, "num_warps": 1}

    def _free(self, side: int, rows: slice = slice(None)) -> torch.Tensor:
        """Return the factors of some lines, then the effect if there is one."""
        table = self.tables[side][rows]
        if not self.target.hierarchy.has_effect(side):
            return table[:, : self.rank]
        return torch.cat([table[:, : self.rank], table[:, self.rank + 1 : self.rank + 2]], 1)

    def _places(self, side: int) -> NDArray[np.int64]:
        """Return where the factors stand in a line, and the effect if there is one."""
        return np.append(np.arange(self.rank), self.rank + 1)[: self.target.hierarchy.n_free(side)]

    def moments(self, side: int) -> Moments:
        """Return the sums over a side's lines: products with their 1 are sums of the lines themselves."""
        lines, places = self.tables[side][:, : self.rank + 2], self._places(side)
        known: Any = self.target.known.values[side]
        if known is None:
            products, projections = to_host(tall.inner(lines, lines)), None
        else:
            both = torch.cat([tall.inner(lines, lines), tall.inner(known, lines)])
            products, projections = np.split(to_host(both), [self.rank + 2])
            projections = np.ascontiguousarray(projections[:, places])
        total, gram = products[self.rank, places], products[np.ix_(places, places)]
        return Moments(len(lines), total, gram, projections)

    def change(self, side: int, change: Change) -> None:
        """Change all lines of a side: what their 1 is multiplied with is the shift."""
        places = self._places(side)
        whole = np.eye(self.rank + 2)
        whole[np.ix_(places, places)], whole[self.rank, places] = change.matrix, change.shift
        matrix = to_device(whole, self.device)
        for begin in range(0, len(self.tables[side]), _LINES_AT_ONCE):
            lines = self.tables[side][begin : begin + _LINES_AT_ONCE, : self.rank + 2]
            lines.copy_(lines.double() @ matrix)

    def along(self, scale: Array, level: float, centres: tuple[float, float]) -> Along:
        """Return the log-likelihood where the whole is changed, and how it bends."""
        view, rank, size = self.views[0], self.rank, self.rank + 3
        width = triton.next_power_of_2(max(size, 16))
        out = torch.zeros((_LOOKERS, 1 + width + width**2), dtype=torch.float64, device=self.device)
        settings = to_device(np.array([self.target.temperature, level, *centres]), self.device)
        stretch = to_device(np.append(scale[: rank + 2], 0.0), self.device)
        for piece, copies in self._pieces(0):
            first, last = piece.batch.chunks
            if last > first:
                along_walk[(min(last - first, _LOOKERS),)](
                    piece.answers, piece.weight, copies, view.start, view.chunk_row, view.row_chunk,
                    self.tables[1], self.tables[0], stretch, settings, out, last - first, first,
                    piece.first,
                    WEIGHTED=len(view.weight) > 0, COPIED=len(copies) > 0, BLOCK=32,
                    PROGRAMS=min(last - first, _LOOKERS), OUT=out.shape[1],
                    WIDTH=width, num_warps=1 if width <= 16 else 4, **self._layout,
                )  # fmt: skip
        found = to_host(out.sum(0))
        slope = found[1 : 1 + size]
        curvature = found[1 + width :].reshape(width, width)[:size, :size]
        return Along(float(found[0]), slope, 0.5 * (curvature + curvature.T))

    def scores(self, rows: Codes, columns: Codes) -> Array:
        """Return the present scores of pairs of codes."""
        rank, found = self.rank, np.empty(len(rows))
        for begin in range(0, len(rows), _LINES_AT_ONCE):
            part = slice(begin, begin + _LINES_AT_ONCE)
            left, right = (
                table[to_device(np.asarray(codes[part]), self.device).long()]
                for table, codes in zip(self.tables, (rows, columns), strict=True)
            )
            score = (left[:, :rank].double() * right[:, :rank].double()).sum(1)
            found[part] = to_host(score + left[:, rank + 1] + right[:, rank + 1])
        return found

    def answers(self, places: NDArray[np.int64]) -> tuple[Codes, Codes, NDArray[np.int8]]:
        """Return the rows, columns and signs of some answers, by their places in row order."""
        view = self.views[0]
        wanted = to_device(places, self.device)
        rows = torch.searchsorted(view.start, wanted, right=True) - 1
        packed = to_host(view.answers[wanted.to(view.answers.device)])
        sign = np.where(packed < 0, -1, 1).astype(np.int8)
        return to_host(rows).astype(np.int32), (packed & 0x7FFFFFFF).astype(np.int32), sign

    def silent(self, side: int) -> NDArray[np.int64]:
        """Return the rows (or columns) without answers, whose pattern is not known."""
        return to_host(torch.nonzero(self.views[side].counts == 0).flatten())

    def free(self, side: int) -> Table:
        """Return the factors of all lines of a side, then the effect if it has one."""
        return to_host(self._free(side).contiguous())

    def table(self, side: int) -> Table:
        """Return the lines of a side in the host's memory."""
        lines = to_host(self.tables[side])
        effect = self.target.hierarchy.has_effect(side)
        values = np.delete(lines[:, : self.rank + 2], self.rank, axis=1)
        return filled_table(values, self.rank, effect)

    def put(self, side: int, table: Table) -> None:
        """Take up other lines."""
        self.tables[side] = self._placed(table)


def on_gpu(views: tuple[DeviceView, DeviceView]) -> Place:
    """Return what puts lines into the memory of the GPU that has these answers."""

    def place(target: Target, values: list[NDArray[np.floating]]) -> GpuLines:
        return GpuLines(target, values, views)

    return place
