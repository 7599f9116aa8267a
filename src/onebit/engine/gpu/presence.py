"""The pattern of the answers on a GPU: products with it, and with tall matrices."""

from __future__ import annotations

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from onebit.engine.gpu import product_kernels, tall
from onebit.engine.gpu.data import CHUNK, GROUP, DeviceView
from onebit.engine.gpu.transfer import to_device, to_host
from onebit.engine.gpu.walks import fold_groups
from onebit.model.placing import DAMPING

Array = NDArray[np.float64]

# Answers that a program of the walk takes at once.
_BLOCK = 32


class GpuTall:
    """Tall matrices in a GPU's memory."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def placed(self, array: Array) -> torch.Tensor:
        """Bring an array to the device."""
        return to_device(array, self.device)

    def inner(self, left: torch.Tensor, right: torch.Tensor) -> Array:
        """Return ``left' right``."""
        return to_host(tall.inner(left, right))

    def grams(self, matrix: torch.Tensor, weights: torch.Tensor) -> Array:
        """Return ``matrix' diag(w) matrix`` for each line ``w`` of the weights."""
        found = [tall.inner(matrix * weight[:, None], matrix) for weight in weights]
        return to_host(torch.stack(found)) if found else np.empty((0, *2 * matrix.shape[1:]))

    def product(self, matrix: torch.Tensor, small: Array) -> torch.Tensor:
        """Return ``matrix small``."""
        return tall.times(matrix, self.placed(np.ascontiguousarray(small)))

    def joined(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Return tall matrices side by side."""
        return parts[0] if len(parts) == 1 else torch.hstack(parts)

    def single(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return a tall matrix in single precision."""
        return matrix.float().contiguous()

    def fetched(self, matrix: torch.Tensor) -> Array:
        """Return a tall matrix in the host's memory."""
        return to_host(matrix)


class GpuPresence(GpuTall):
    """The divided pattern; see ``engine.known``."""

    def __init__(self, views: tuple[DeviceView, DeviceView]) -> None:
        super().__init__(views[0].device)
        self.views = views
        self.shape = views[0].size, views[1].size
        ones = [torch.ones(view.size, dtype=torch.float32, device=self.device) for view in views]
        self.scales = ones
        self._counts = [self.times(side, ones[1 - side][:, None].double())[:, 0] for side in (0, 1)]
        self.scales = [(count + DAMPING).rsqrt().float() for count in self._counts]

    def counts(self, side: int) -> torch.Tensor:
        """Return a column with the number of entries of each row (side 0) or column that have answers."""
        return self._counts[side].double()[:, None]

    def silent(self, side: int) -> NDArray[np.int64]:
        """Return the rows (side 0) or columns without answers."""
        return np.flatnonzero(to_host(self._counts[side]) == 0)

    def scaled(self, side: int, vectors: torch.Tensor) -> torch.Tensor:
        """Return vectors over the rows (side 0) or columns, divided by the roots of the counts."""
        return vectors * self.scales[side][:, None]

    def times(self, side: int, vectors: torch.Tensor) -> torch.Tensor:
        """Return the matrix (side 0) or its transpose (side 1) times these vectors."""
        view, wanted = self.views[side], vectors.shape[1]
        stride = -(-wanted // 8) * 8
        width = triton.next_power_of_2(stride)
        table = torch.zeros((len(vectors), stride), dtype=torch.float32, device=self.device)
        table[:, :wanted] = self.scaled(1 - side, vectors)
        out = torch.empty((view.size, stride), dtype=torch.float64, device=self.device)
        batches = view.batches(4 * stride)
        longest = max(batch.chunks[1] - batch.chunks[0] for batch in batches)
        partial = torch.empty((max(longest, 1), stride), dtype=torch.float32, device=self.device)
        for piece in view.pieces(batches):
            batch = piece.batch
            first, last = batch.chunks
            if last > first:
                product_kernels.presence_walk[(last - first,)](
                    piece.answers, view.start, view.chunk_row, view.row_chunk, table, partial, first,
                    piece.first, CHUNK=CHUNK, BLOCK=_BLOCK, WIDTH=width, STRIDE=stride, num_warps=1,
                )  # fmt: skip
            fold_groups(partial, batch)
            product_kernels.gather_sums[(batch.rows[1] - batch.rows[0],)](
                partial, view.row_chunk, self.scales[side], out, batch.rows[0], first,
                WIDTH=width, STRIDE=stride, GROUP=GROUP, num_warps=1,
            )  # fmt: skip
        return out[:, :wanted].contiguous()
