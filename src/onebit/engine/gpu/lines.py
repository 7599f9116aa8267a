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
from onebit.engine.gpu.line_kernels import pass_over
from onebit.engine.gpu.presence import GpuTall
from onebit.engine.gpu.transfer import on_its_way, to_device, to_host
from onebit.engine.gpu.walks import fold_groups
from onebit.engine.gpu.whole_kernels import along_walk
from onebit.engine.sampling.lines import Change, Codes, Moments, Place, diverged
from onebit.engine.sampling.target import Table, Target, filled_table
from onebit.engine.sampling.trends import Evidence, Trend, move_along
from onebit.engine.sampling.whole import Along, stride_of
from onebit.model.losses import HINGE, LOGISTIC

Array = NDArray[np.float64]

# Programs that share the rows of a solve, the chunks of a look along the whole, and all lines of a side.
_SOLVERS, _LOOKERS, _PASSERS = 8192, 4096, 1024
# Places of a line up to which a program can hold matrices of as many lines.
_WIDEST = 64
# Answers that a look along the whole takes at once.
_LOOKED_AT = 32
# Wider lines that change at once, and pairs whose scores are found at once.
_AT_ONCE = 2**21


def _parts(rank: int) -> tuple[int, int]:
    """Return in which parts a walk takes lines of factors, 1 and effect, and two places more.

    Parts are powers of two, or nothing.
    """
    whole = triton.next_power_of_2(max(rank + 4, 16))
    if whole == 16:
        return whole, 0
    return whole // 2, triton.next_power_of_2(max(rank + 4 - whole // 2, 16))


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
        # The draw whose first walk has been made already.
        self._walked: tuple[int, tuple[int, int], int] | None = None
        on_cpu = self.device.type == "cpu"
        self._beside = None if on_cpu else torch.cuda.Stream(self.device, priority=-1)

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
        return torch.empty((max([*chunks, 1]), self.width**2), dtype=self._single, device=self.device)

    @property
    def _single(self) -> torch.dtype:
        # The hinge loss has curvatures beside which others would drown in single precision.
        return torch.float32 if self.target.loss is LOGISTIC else torch.float64

    @property
    def _line_bytes(self) -> int:
        return (4 if self.target.loss is LOGISTIC else 8) * self.width**2

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

    def _numbered(self, side: int, key: tuple[int, int], sweep: int) -> torch.Tensor:
        """Return what the random numbers of a draw depend on."""
        signed = (key[0] | key[1] << 32) - (2**64 if key[1] >= 2**31 else 0)
        return to_device(np.array([signed, sweep, side, self._most_copies], np.int64), self.device)

    def _walk(self, side: int, piece: Piece, copies: torch.Tensor, numbers: torch.Tensor) -> None:
        """Draw the variables of a batch's answers and sum up what they say of their rows."""
        view, (first, last) = self.views[side], piece.batch.chunks
        if last > first:
            sampling.sample_walk[(last - first,)](
                piece.answers, piece.weight, copies, view.start, view.chunk_row, view.row_chunk,
                self.tables[1 - side], self.tables[side], *self._hats, self._partial, self._temperature,
                numbers, first, piece.first,
                WEIGHTED=len(view.weight) > 0, COPIED=len(copies) > 0, PARTIAL=self._partial.shape[1],
                LOW=self.parts[0], HIGH=self.parts[1], **self._block, **self._layout,
            )  # fmt: skip
        fold_groups(self._partial, piece.batch)

    def expect(self, key: tuple[int, int], sweep: int) -> None:
        """Begin the next sweep: the host comes with its prior when the walk is on its way."""
        self._walk_ahead(0, key, sweep)

    def _walk_ahead(self, side: int, key: tuple[int, int], sweep: int) -> None:
        """Begin a draw before its prior is known, which the variables of the answers do not ask for.

        The host then finds that prior while the GPU walks. It counts if no line changes before the draw.
        """
        if self.target.hierarchy.n_free(side) and not self.views[side].streamed:
            if self._beside is not None:  # what reads lines there need not wait for the walk
                self._beside.wait_stream(torch.cuda.current_stream(self.device))
            self._numbers = self._numbered(side, key, sweep)
            self._walk(side, *next(self._pieces(side)), self._numbers)
            self._walked = side, key, sweep

    def draw(
        self, side: int, key: tuple[int, int], sweep: int, precision: Array, linear: Array,
        trend: Trend | None,
    ) -> tuple[Array, Moments]:  # fmt: skip
        """Draw all lines of a side; return what they say of the columns' scales, and their moments."""
        target, view, rank = self.target, self.views[side], self.rank
        walked, self._walked = self._walked == (side, key, sweep), None
        # In one piece: a copy takes as long as it takes to begin.
        sent = to_device(np.concatenate([precision, linear]), self.device)
        before, centre = sent[: len(precision)], sent[None, len(precision) :]
        known: Any = target.known.values[side]
        if trend is not None and known is not None:
            centre = tall.times(known, to_device(trend.slopes, self.device)).mul_(before).add_(centre)
        effect = target.hierarchy.has_effect(side)
        edge = triton.next_power_of_2(max(rank, 2))
        numbers = self._numbers if walked else self._numbered(side, key, sweep)
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
            if not walked:
                self._walk(side, piece, copies, numbers)
            walked, rows = False, batch.rows[1] - batch.rows[0]
            sampling.sample_solve[(min(rows, _SOLVERS),)](
                self._partial, view.row_chunk, before, centre, self.tables[side], scales,
                evidence.precision, evidence.linear, numbers, batch.rows[0], rows, batch.chunks[0],
                kept,
                OWN_LINEAR=len(centre) > 1, EFFECT=int(effect), RANK=rank, D=edge, WIDTH=self.width,
                STRIDE=self.stride, PARTIAL=self._partial.shape[1], GROUP=GROUP,
                PROGRAMS=min(rows, _SOLVERS), SINGLE=target.loss is LOGISTIC, KEEP=kept > 0,
                num_warps=max(1, edge**2 // 1024),
            )  # fmt: skip
        moved = None
        if trend is not None and kept:
            self._check_finite(side, sweep)
            moved = self._moved(side, evidence, trend)
        found = on_its_way(torch.cat([scales.sum(0), self._sums(side)]))
        if side == 0:
            self._walk_ahead(1, key, sweep)
        said, sums = np.split(found(), [edge * edge + edge])
        if not np.isfinite(sums).all():
            self._check_finite(side, sweep)
            raise diverged(target, side, sweep, None)
        if moved is None:
            square, pull = said[: edge * edge].reshape(edge, edge), said[edge * edge :]
            moved = np.concatenate([square[:rank, :rank].ravel(), pull[:rank]])
        return moved, self._moments(side, sums)

    def _check_finite(self, side: int, sweep: int) -> None:
        """Refuse to go on with lines that are not finite."""
        bad = torch.nonzero(~torch.isfinite(self.tables[side]).all(1)).flatten()
        if len(bad):
            raise diverged(self.target, side, sweep, int(bad[0]))

    def _moved(self, side: int, evidence: Evidence, trend: Trend) -> Array:
        """Move all lines of a side along a trend; return what they say of the scales of the columns."""
        places, known = self._places[side], self.target.known.values[side]
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
    def _block(self) -> dict[str, int]:
        """Answers that a program takes at once, and its warps: what was fastest on an H200."""
        if self.target.loss is HINGE:
            return {"BLOCK": 4, "num_warps": 4}
        return {"BLOCK": 32, "num_warps": 1}

    @cached_property
    def _temperature(self) -> torch.Tensor:
        return to_device(np.array([self.target.temperature]), self.device)

    def _free(self, side: int) -> torch.Tensor:
        """Return the factors of all lines, then the effect if there is one."""
        table = self.tables[side]
        if not self.target.hierarchy.has_effect(side):
            return table[:, : self.rank]
        return torch.cat([table[:, : self.rank], table[:, self.rank + 1 : self.rank + 2]], 1)

    @cached_property
    def _places(self) -> list[NDArray[np.int64]]:
        """Where the factors stand in a line of each side, and the effect if there is one."""
        every = np.append(np.arange(self.rank), self.rank + 1)
        return [every[: self.target.hierarchy.n_free(side)] for side in (0, 1)]

    @cached_property
    def _squares(self) -> list[tuple[NDArray[np.int64], ...]]:
        """Where the products of these stand in a matrix."""
        return [np.ix_(places, places) for places in self._places]

    def moments(self) -> list[Moments]:
        """Return the sums over the lines of both sides."""
        parts = [self._sums(side) for side in (0, 1)]
        both = np.split(to_host(torch.cat(parts)), [len(parts[0])])
        return [self._moments(side, sums) for side, sums in enumerate(both)]

    def _sums(self, side: int) -> torch.Tensor:
        """Return the products of a side's lines with themselves and with what is known, one by one."""
        edge, lines = self._edge, self.tables[side][:, : self.rank + 2]
        if edge > _WIDEST:
            own = torch.zeros((edge, edge), dtype=torch.float64, device=self.device)
            own[: self.rank + 2, : self.rank + 2] = tall.inner(lines, lines)
        else:
            out = torch.zeros((_PASSERS, edge, edge), dtype=torch.float64, device=self.device)
            self._pass_over(side, out, change=False)
            own = out.sum(0)
        known: Any = self.target.known.values[side]
        if known is None:
            return own.flatten()
        return torch.cat([own.flatten(), tall.inner(known, lines).flatten()])

    def _moments(self, side: int, sums: Array) -> Moments:
        """Take products of lines apart: those with their 1 are sums of the lines themselves."""
        places, edge = self._places[side], self._edge
        own, projections = sums[: edge * edge].reshape(edge, edge), None
        if len(sums) > edge * edge:
            projections = sums[edge * edge :].reshape(-1, self.rank + 2)[:, places]
        return Moments(
            len(self.tables[side]), own[self.rank, places], own[self._squares[side]], projections
        )

    @property
    def _edge(self) -> int:
        return triton.next_power_of_2(self.rank + 2)

    def _pass_over(self, side: int, small: torch.Tensor, change: bool) -> None:
        """Multiply all lines of a side by a small matrix, or write sums of their products there."""
        edge, table = self._edge, self.tables[side]
        block = max(1, 2048 // edge**2)
        programs = min(-(-len(table) // block), _PASSERS)
        pass_over[(programs,)](
            table, small, len(table), CHANGE=change, PLACES=self.rank + 2, STRIDE=self.stride,
            WIDTH=edge, BLOCK=block, PROGRAMS=programs, num_warps=4,
        )  # fmt: skip

    def change(self, side: int, change: Change) -> None:
        """Change all lines of a side: what their 1 is multiplied with is the shift."""
        self._walked = None
        places, whole = self._places[side], np.eye(self._edge)
        whole[self._squares[side]], whole[self.rank, places] = change.matrix, change.shift
        matrix = to_device(whole, self.device)
        if self._edge <= _WIDEST:
            self._pass_over(side, matrix, change=True)
            return
        used = slice(0, self.rank + 2)
        for begin in range(0, len(self.tables[side]), _AT_ONCE):
            lines = self.tables[side][begin : begin + _AT_ONCE, used]
            lines.copy_(lines.double() @ matrix[used, used])

    def along(self, scale: Array, level: float, centres: tuple[float, float]) -> Along:
        """Return the log-likelihood where the whole is changed, and how it bends."""
        view, rank, size = self.views[0], self.rank, self.rank + 3
        width = triton.next_power_of_2(max(size + 1, 16))
        lookers = min(_LOOKERS if width <= _WIDEST else _LOOKERS // 16, max(view.n_chunks, 1))
        out = torch.zeros((lookers, 2 + width**2), dtype=torch.float64, device=self.device)
        told = [self.target.temperature, level, *centres, *scale[: rank + 2]]
        settings = to_device(np.array(told), self.device)
        for piece, copies in self._pieces(0):
            first, last = piece.batch.chunks
            if last > first:
                along_walk[(min(last - first, lookers),)](
                    piece.answers, piece.weight, copies, view.start, view.chunk_row, view.row_chunk,
                    self.tables[1], self.tables[0], settings, out, last - first, first,
                    piece.first, stride_of(len(view.answers)),
                    WEIGHTED=len(view.weight) > 0, COPIED=len(copies) > 0, BLOCK=_LOOKED_AT,
                    PROGRAMS=min(last - first, lookers), OUT=out.shape[1],
                    WIDTH=width, num_warps=max(1, width // 32),
                    **self._layout,
                )  # fmt: skip
        found = to_host(out.sum(0))
        sums = found[1:-1].reshape(width, width)[:, :size]
        curvature = sums[:size] * (len(view.answers) / max(found[-1], 1.0))
        return Along(float(found[0]), sums[-1], 0.5 * (curvature + curvature.T))

    def scores(self, rows: Codes, columns: Codes) -> Array:
        """Return the present scores of pairs of codes."""
        if self._beside is not None and self._walked is None:
            self._beside.wait_stream(torch.cuda.current_stream(self.device))
        rank, found = self.rank, np.empty(len(rows))
        with torch.cuda.stream(self._beside):
            for begin in range(0, len(rows), _AT_ONCE):
                part = slice(begin, begin + _AT_ONCE)
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
        self._walked = None
        self.tables[side] = self._placed(table)


def on_gpu(views: tuple[DeviceView, DeviceView]) -> Place:
    """Return what puts lines into the memory of the GPU that has these answers."""

    def place(target: Target, values: list[NDArray[np.floating]]) -> GpuLines:
        return GpuLines(target, values, views)

    return place
