"""The answers on a GPU: sorted by row and by column, cut into chunks and batches.

An answer is one 32-bit integer, the code of the other side with the highest bit set for a "no". A row's
answers are cut into chunks of at most ``CHUNK``, and whole rows are put together to batches, so that the
sums of a batch's chunks fit a fixed scratch space. Answers that do not fit the GPU's memory stay in the
host's, pinned, and are copied a batch ahead of the pass that needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from onebit.data.sorting import View
from onebit.engine.gpu.transfer import as_tensor, to_device

# Answers of a chunk; lines of partial sums that are added up at once.
CHUNK = 1024
GROUP = 64
# Bytes of a batch's partial sums, and answers of a batch that is copied from the host.
SCRATCH = 2**30
STREAMED = 2**26
_NO = -(2**31)


@dataclass(frozen=True)
class Batch:
    """Consecutive rows, with their chunks and answers, and the groups of lines that ``fold`` adds up."""

    rows: tuple[int, int]
    chunks: tuple[int, int]
    answers: tuple[int, int]
    group_begin: torch.Tensor
    group_end: torch.Tensor


@dataclass(frozen=True)
class Piece:
    """A batch whose answers are on the device; ``first`` is the number of its first one."""

    batch: Batch
    answers: torch.Tensor
    weight: torch.Tensor
    first: int


class DeviceView:
    """All answers, row by row (or column by column), for the kernels."""

    def __init__(
        self, start: torch.Tensor, answers: torch.Tensor, weight: torch.Tensor, device: torch.device
    ) -> None:
        self.start = start
        self.answers = answers
        self.weight = weight
        self.device = device
        self._batches: dict[int, list[Batch]] = {}
        chunks = (self.counts + (CHUNK - 1)) // CHUNK
        self.row_chunk = torch.zeros(self.size + 1, dtype=torch.int32, device=device)
        torch.cumsum(chunks, 0, out=self.row_chunk[1:])
        rows = torch.arange(self.size, dtype=torch.int32, device=device)
        self.chunk_row = torch.repeat_interleave(rows, chunks)

    @property
    def size(self) -> int:
        """The number of rows (or columns)."""
        return len(self.start) - 1

    @property
    def n_chunks(self) -> int:
        """The number of chunks."""
        return len(self.chunk_row)

    @property
    def streamed(self) -> bool:
        """Whether the answers stay in the host's memory."""
        return self.answers.device != self.device

    @cached_property
    def counts(self) -> torch.Tensor:
        """The number of answers of each row."""
        return self.start[1:] - self.start[:-1]

    def batches(self, line_bytes: int) -> list[Batch]:
        """Cut into batches whose partial sums, of so many bytes a chunk, fit the scratch space."""
        lines = max(SCRATCH // line_bytes, 1)
        if lines in self._batches:
            return self._batches[lines]
        found: list[Batch] = []
        row = 0
        while row < self.size:
            end = self._reach(self.row_chunk, row, lines)
            if self.streamed:
                end = min(end, self._reach(self.start, row, STREAMED))
            found.append(self._batch(row, end))
            row = end
        self._batches[lines] = found
        return found

    def _reach(self, bounds: torch.Tensor, row: int, most: int) -> int:
        """Return the last end of a range from ``row`` on that holds at most ``most`` (or one row)."""
        wanted = (bounds[row] + most).reshape(1)
        return max(int(torch.searchsorted(bounds, wanted, right=True)) - 1, row + 1)

    def _batch(self, row: int, end: int) -> Batch:
        bounds = self.row_chunk[row : end + 1]
        first = int(bounds[0])
        chunks = bounds[1:] - bounds[:-1]
        long = torch.nonzero(chunks > GROUP).flatten()
        groups = (chunks[long] + (GROUP - 1)) // GROUP
        owner = torch.repeat_interleave(long, groups)
        number = torch.arange(len(owner), device=self.device)
        number -= torch.repeat_interleave(torch.cumsum(groups, 0) - groups, groups)
        begin = bounds[owner] - first + number * GROUP
        last = torch.minimum(begin + GROUP, bounds[owner + 1] - first)
        return Batch(
            (row, end),
            (first, int(bounds[-1])),
            (int(self.start[row]), int(self.start[end])),
            begin,
            last,
        )

    def pieces(self, batches: list[Batch]) -> Iterator[Piece]:
        """Yield the batches in order, each with its answers on the device."""
        if not self.streamed:
            for batch in batches:
                yield Piece(batch, self.answers, self.weight, 0)
            return
        on_its_way = self._copied(batches[0])
        for following in [*batches[1:], None]:
            piece, arrived = on_its_way
            if following is not None:
                on_its_way = self._copied(following)
            present = torch.cuda.current_stream(self.device)
            present.wait_event(arrived)
            yield piece
            for part in (piece.answers, piece.weight):
                part.record_stream(present)

    @cached_property
    def _copying(self) -> torch.cuda.Stream:
        """One for all passes: memory is kept for reuse by the stream that it was asked for on."""
        return torch.cuda.Stream(self.device)

    def _copied(self, batch: Batch) -> tuple[Piece, torch.cuda.Event]:
        """Start copying a batch's answers; the event tells when they are there."""
        begin, end = batch.answers
        stream = self._copying
        with torch.cuda.stream(stream):
            answers, weight = (
                part[begin:end].to(self.device, non_blocking=True) for part in (self.answers, self.weight)
            )
            return Piece(batch, answers, weight, begin), stream.record_event()


def packed_answers(index: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
    """Return codes and signs as one integer each."""
    return torch.where(sign < 0, index | _NO, index)


def uploaded(view: View, device: torch.device, streamed: bool) -> DeviceView:
    """Bring a sorted view to the device; ``streamed`` leaves its answers in the host's memory."""
    start = to_device(view.start, device)
    answers = packed_answers(as_tensor(view.index), as_tensor(view.sign))
    if streamed:
        return DeviceView(start, answers.pin_memory(), as_tensor(view.weight).pin_memory(), device)
    return DeviceView(start, to_device(answers.numpy(), device), to_device(view.weight, device), device)
