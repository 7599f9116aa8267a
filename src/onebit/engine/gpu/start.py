"""The spectral start on a GPU: what ``engine.start`` computes, over the device's views."""

from __future__ import annotations

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from onebit.engine.gpu import product_kernels
from onebit.engine.gpu.data import CHUNK, GROUP, DeviceView
from onebit.engine.gpu.transfer import to_device, to_host
from onebit.engine.gpu.walks import fold_groups
from onebit.engine.start import LARGEST_WEIGHT, Start, fill_factors, first_effects
from onebit.model.hierarchy import Hierarchy

Array = NDArray[np.float64]

# Answers that a program of the residual walk takes at once.
_BLOCK = 32


def spectral_start(
    views: tuple[DeviceView, DeviceView],
    hierarchy: Hierarchy,
    rng: np.random.Generator,
    jitter: float,
    mean_weight: float,
) -> Start:
    """Return the spectral start, its arrays on the device; see ``engine.start``."""
    device = views[0].device
    ones = [torch.ones(view.size, dtype=torch.float32, device=device) for view in views]
    effects = [torch.zeros(view.size, dtype=torch.float64, device=device) for view in views]
    if hierarchy.intercept_side is not None:
        # With odds of one, a residual is the sign itself.
        signs = _Residuals(views, ones, ones, None)
        sums = [signs.times(side, ones[1 - side][:, None].double())[:, 0] for side in (0, 1)]
        counts = [view.counts for view in views]
        effects = first_effects(hierarchy, sums, counts, effects)
    factors = [
        torch.zeros((view.size, hierarchy.rank), dtype=torch.float64, device=device) for view in views
    ]
    if hierarchy.rank:
        scales = [view.counts.clamp(min=1).double().rsqrt().float() for view in views]
        odds = [effect.exp().float() for effect in effects]
        fill_factors(factors, _Residuals(views, scales, odds, mean_weight), rng, jitter)
    means = [
        torch.column_stack([factor, effects[side]]) if hierarchy.has_effect(side) else factor
        for side, factor in enumerate(factors)
    ]
    return Start(means[0], means[1])


class _Residuals:
    """The matrix of answers less what the effects expect, scaled; see ``engine.start``."""

    def __init__(
        self,
        views: tuple[DeviceView, DeviceView],
        scales: list[torch.Tensor],
        odds: list[torch.Tensor],
        mean_weight: float | None,
    ) -> None:
        self.views = views
        self.scales = scales
        self.odds = odds
        self.mean_weight = mean_weight
        self.shape = views[0].size, views[1].size

    def placed(self, array: Array) -> torch.Tensor:
        return to_device(array, self.views[0].device)

    def gram(self, tall: torch.Tensor) -> Array:
        return to_host(tall.T @ tall)

    def product(self, tall: torch.Tensor, small: Array) -> torch.Tensor:
        return tall @ self.placed(small)

    def flips(self, tall: torch.Tensor) -> Array:
        largest = tall.abs().argmax(dim=0, keepdim=True)
        return np.where(to_host(tall.gather(0, largest)[0]) < 0, -1.0, 1.0)

    def times(self, side: int, vectors: torch.Tensor) -> torch.Tensor:
        view, other = self.views[side], 1 - side
        wanted = vectors.shape[1]
        stride = -(-(wanted + 1) // 8) * 8
        width = triton.next_power_of_2(stride)
        table = torch.zeros((len(vectors), stride), dtype=torch.float32, device=view.device)
        table[:, :wanted] = vectors * self.scales[other][:, None]
        table[:, -1] = self.odds[other]
        out = torch.empty((view.size, stride), dtype=torch.float64, device=view.device)
        batches = view.batches(4 * stride)
        longest = max(batch.chunks[1] - batch.chunks[0] for batch in batches)
        partial = torch.empty((max(longest, 1), stride), dtype=torch.float32, device=view.device)
        weighted = self.mean_weight is not None and len(view.weight) > 0
        for piece in view.pieces(batches):
            batch = piece.batch
            first, last = batch.chunks
            if last > first:
                product_kernels.residual_walk[(last - first,)](
                    piece.answers, piece.weight, view.start, view.chunk_row, view.row_chunk, table,
                    self.odds[side], partial, first, piece.first, self.mean_weight or 1.0, LARGEST_WEIGHT,
                    WEIGHTED=weighted, CHUNK=CHUNK, BLOCK=_BLOCK, WIDTH=width, STRIDE=stride, num_warps=1,
                )  # fmt: skip
            fold_groups(partial, batch)
            product_kernels.gather_sums[(batch.rows[1] - batch.rows[0],)](
                partial, view.row_chunk, self.scales[side], out, batch.rows[0], first,
                WIDTH=width, STRIDE=stride, GROUP=GROUP, num_warps=1,
            )  # fmt: skip
        return out[:, :wanted]
