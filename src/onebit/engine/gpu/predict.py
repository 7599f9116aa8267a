"""Predictions of a fitted posterior on a GPU: scores of pairs, and the best columns of every row."""

from __future__ import annotations

import weakref
from functools import cached_property

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from onebit.data.sorting import View
from onebit.engine.gpu import prediction_kernels as kernels
from onebit.engine.gpu.transfer import to_device, to_host
from onebit.model.calibration import CERTAINTY, SCALES, WEIGHTS
from onebit.model.gaussians import packed_size
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

# Pairs that are scored at once, and bytes of a block of rows when the best columns are sought.
PAIRS = 2**26
BLOCK_BYTES = 2**30
# Columns of a tile, of which only the best is kept at first, and rows that are scored together.
COLUMNS, ROWS, TILES = 128, 64, 16


class DevicePosterior:
    """A posterior in a GPU's memory; what is needed of it is brought there on first use."""

    def __init__(self, posterior: Posterior, device: torch.device) -> None:
        self.device = device
        self.hierarchy = posterior.hierarchy
        self.full = posterior.rows.full
        self.shape = posterior.shape
        self.means = [to_device(side.mean, device) for side in posterior.sides]
        self._posterior = weakref.ref(posterior)
        self._finder: tuple[int, View | None, TopFinder] | None = None  # of the last question

    @cached_property
    def _covariances(self) -> list[torch.Tensor]:
        posterior = self._posterior()
        assert posterior is not None
        return [to_device(side.covariance, self.device) for side in posterior.sides]

    @cached_property
    def _places(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Line and column of each number of a covariance, and how often it counts."""
        n_free = max(mean.shape[1] for mean in self.means)
        if self.full:
            first, second = np.tril_indices(n_free)
            factor = np.where(first == second, 1.0, 2.0)
        else:
            first = second = np.arange(n_free)
            factor = np.ones(n_free)
        arrays = first.astype(np.int32), second.astype(np.int32), factor
        first_, second_, factor_ = (to_device(array, self.device) for array in arrays)
        return first_, second_, factor_

    def score(self, rows: Codes, columns: Codes, mean: Array, variance: Array) -> None:
        """Write the means of the scores of known pairs and, unless empty, their variances."""
        for begin in range(0, len(rows), PAIRS):
            part = slice(begin, begin + PAIRS)
            found = self.moments(
                to_device(rows[part], self.device),
                to_device(columns[part], self.device),
                len(variance) > 0,
            )
            mean[part] = to_host(found[0])
            if len(variance):
                variance[part] = to_host(found[1])

    def moments(
        self, rows: torch.Tensor, columns: torch.Tensor, with_variance: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the means of the scores of pairs and, if asked for, their variances, on the device."""
        n = len(rows)
        mean = torch.empty(n, dtype=torch.float64, device=self.device)
        variance = torch.empty(n if with_variance else 0, dtype=torch.float64, device=self.device)
        frees = [part.shape[1] for part in self.means]
        covariances = self._covariances if with_variance else self.means
        size = packed_size(max(frees)) if self.full else max(frees)
        width = triton.next_power_of_2(max(size, 2))
        edge = triton.next_power_of_2(max(self.hierarchy.rank, 2))
        block = 128 if not with_variance else max(1024 // width, 1)
        if n and max(frees):
            kernels.score_pairs[(triton.cdiv(n, block),)](
                rows, columns, self.means[0], covariances[0], self.means[1], covariances[1],
                *self._places, mean, variance, n,
                WITH_VARIANCE=with_variance, FULL=self.full, RANK=self.hierarchy.rank,
                ROW_FREE=frees[0], COLUMN_FREE=frees[1], SIZE=size, WIDTH=width, D=edge, BLOCK=block,
            )  # fmt: skip
        else:
            mean.zero_()
            variance.zero_()
        return mean, variance

    def top_columns(self, rows: Codes, count: int, seen: View | None = None) -> Codes:
        """Return the columns with the highest mean scores of some rows, highest first.

        -1 fills up where there are fewer. Entries of ``seen`` are left out.
        """
        found = np.full((len(rows), count), -1, dtype=np.int32)
        last = self._finder
        if last is None or last[0] != count or last[1] is not seen:
            last = self._finder = None
            last = self._finder = count, seen, TopFinder(self, count, seen)
        finder = last[2]
        for begin in range(0, len(rows), finder.rows_at_once):
            part = slice(begin, begin + finder.rows_at_once)
            best = finder.find(to_device(rows[part].astype(np.int64), self.device))
            found[part, : best.shape[1]] = to_host(best)
        return found


class TopFinder:
    """Finds the best columns of blocks of rows.

    The best ``count`` columns lie in the ``count`` tiles whose best columns are best: only these tiles
    are looked at one by one.
    """

    def __init__(self, posterior: DevicePosterior, count: int, seen: View | None = None) -> None:
        rank, device = posterior.hierarchy.rank, posterior.device
        n_columns = posterior.shape[1]
        self.device = device
        self.n_columns = n_columns
        self.edge = triton.next_power_of_2(max(rank, 16))  # of what a matrix unit takes
        self.row_mean = posterior.means[0][:, :rank]
        self.column_factors = torch.zeros((self.edge, n_columns), dtype=torch.float32, device=device)
        self.column_factors[:rank] = posterior.means[1][:, :rank].T
        self.offset = torch.zeros(n_columns, dtype=torch.float32, device=device)
        if posterior.hierarchy.has_effect(1):
            self.offset += posterior.means[1][:, rank].float()
        self.tiles = triton.cdiv(n_columns, COLUMNS)
        self.wanted = min(count, n_columns)
        self.chosen = min(self.wanted, self.tiles)
        self.words = triton.cdiv(n_columns, 32)
        self.seen = None
        if seen is not None:
            self.seen = to_device(seen.start, device), to_device(seen.index, device)
        bytes_each = 8 * self.tiles + 4 * self.words + 8 * self.chosen * COLUMNS + 4 * self.edge
        self.rows_at_once = max(BLOCK_BYTES // bytes_each // ROWS * ROWS, ROWS)

    def find(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the best columns of these rows, highest first, on the device."""
        n, device = len(rows), self.device
        factors = torch.zeros((n, self.edge), dtype=torch.float32, device=device)
        factors[:, : self.row_mean.shape[1]] = self.row_mean[rows]
        seen = torch.zeros((n, self.words) if self.seen else 1, dtype=torch.int32, device=device)
        if self.seen is not None:
            start, index = self.seen
            kernels.mark_seen[(n,)](
                seen, start, index, rows, len(start) - 1, WORDS=self.words, BLOCK=128, num_warps=1
            )
        best = torch.empty((n, self.tiles), dtype=torch.int64, device=device)
        kernels.tile_best[(triton.cdiv(n, ROWS), triton.cdiv(self.tiles, TILES))](
            factors, self.column_factors, self.offset, seen, best, n, self.n_columns, self.tiles,
            SEEN=self.seen is not None, WORDS=self.words, K=self.edge, ROWS=ROWS, COLUMNS=COLUMNS,
            TILES=TILES,
        )  # fmt: skip
        tiles = (0x7FFFFFFF - (torch.topk(best, self.chosen, dim=1).values & 0xFFFFFFFF)).int()
        keys = torch.empty((n, self.chosen * COLUMNS), dtype=torch.int64, device=device)
        kernels.candidate_keys[(n,)](
            factors, self.column_factors, self.offset, seen, tiles, keys, self.n_columns,
            SEEN=self.seen is not None, WORDS=self.words, K=self.edge, COLUMNS=COLUMNS,
            WANTED=self.chosen, num_warps=1,
        )  # fmt: skip
        found = torch.topk(keys, self.wanted, dim=1).values
        columns = (0x7FFFFFFF - (found & 0xFFFFFFFF)).int()
        # The key of minus infinity: a column that is no candidate.
        return torch.where((found >> 32) > _NO_SCORE, columns, -1)


_NO_SCORE = int(np.array(-np.inf, dtype=np.float32).view(np.int32) ^ 0x7FFFFFFF)

_LAST: tuple[weakref.ref[Posterior], DevicePosterior] | None = None


def on_device(posterior: Posterior, device: torch.device) -> DevicePosterior:
    """Return a posterior on the device; the last one asked for stays there as long as it is alive."""
    global _LAST
    last = _LAST
    if last is None or last[0]() is not posterior or last[1].device != device:
        last = _LAST = None
        last = _LAST = weakref.ref(posterior, forget), DevicePosterior(posterior, device)
    return last[1]


def forget(_: object = None) -> None:
    """Give the memory of the last posterior back."""
    global _LAST
    _LAST = None


def expected_sigmoid(
    mean: NDArray[np.float64], variance: NDArray[np.float64], device: torch.device
) -> NDArray[np.float64]:
    """Return ``calibration.expected_sigmoid`` of many scores."""
    centre, spread = to_device(mean, device), to_device(variance, device)
    total = torch.zeros_like(centre)
    for weight, scale in zip(WEIGHTS.tolist(), SCALES.tolist(), strict=True):
        total += weight * torch.special.ndtr(centre / torch.sqrt(scale * scale + spread))
    return to_host(total.clamp_(CERTAINTY, 1.0 - CERTAINTY))
