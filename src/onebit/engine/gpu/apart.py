"""Passes of a GPU over states that lie in the host's memory, as the workers of a cluster keep them.

What ``engine.cpu.side`` and ``engine.cpu.apart`` do, with everything brought to the device for one pass
and back: answers of a block are a few megabytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from onebit.data.sorting import View
from onebit.engine.cpu.apart import Natural
from onebit.engine.cpu.layout import Layout
from onebit.engine.cpu.side import Side
from onebit.engine.gpu import product_kernels
from onebit.engine.gpu.data import GROUP, uploaded
from onebit.engine.gpu.device import at_work
from onebit.engine.gpu.layout import LineLayout
from onebit.engine.gpu.side import DeviceSide
from onebit.engine.gpu.transfer import to_device, to_host
from onebit.engine.gpu.walks import Walk
from onebit.model.gaussians import Gaussians
from onebit.model.losses import Loss

Table = NDArray[np.float32]


def pass_over(
    side: Side, table: Table, prior: Any, temperature: float, loss: Loss, solve: bool, relaxation: float,
    device: torch.device,
) -> float:  # fmt: skip
    """Do what ``side.pass_over`` does, on a device."""
    with at_work(device):
        gaussians = Gaussians.trusted(side.mean, side.covariance, True)
        there = DeviceSide.from_gaussians(
            gaussians, side.hierarchy, side.side, uploaded(side.view, device, streamed=False)
        )
        lines = _lines(table, there.shape, device)
        before = there.pass_over(lines, prior, temperature, loss, solve, relaxation)
        if solve:
            side.take(to_host(there.mean), to_host(there.covariance), there.log_determinant)
        return before


def accumulated(
    view: View, other: Table, table: Table, rank: int, loss: Loss, layout: Layout, device: torch.device
) -> Natural:
    """Do what ``cpu.apart.accumulated`` does, on a device, in single precision."""
    with at_work(device):
        shape = LineLayout(rank)
        answers = uploaded(view, device, streamed=False)
        walk = Walk(answers, shape, len(layout.linear) > rank)
        sums = torch.zeros((view.size, shape.partial), dtype=torch.float32, device=device)
        ones = torch.ones(view.size, dtype=torch.float32, device=device)
        lines, own = _lines(other, shape, device), _lines(table, shape, device)
        for batch in walk.over(lines, own, loss.code, True):
            product_kernels.gather_sums[(batch.rows[1] - batch.rows[0],)](
                walk.partial, answers.row_chunk, ones, sums, batch.rows[0], batch.chunks[0],
                WIDTH=triton.next_power_of_2(shape.partial), STRIDE=shape.partial, GROUP=GROUP,
            )  # fmt: skip
        found = to_host(sums)
        slots = shape.stride + layout.linear - (shape.last - layout.mean_at)
        return Natural(
            np.ascontiguousarray(found[:, layout.precision]),
            found[:, slots] - found[:, layout.offset],
            to_host(walk.loss()[None]),
        )


def _lines(table: Table, shape: LineLayout, device: torch.device) -> torch.Tensor:
    """Return a table of the CPU's as the kernels gather from it."""
    made = np.zeros((len(table), shape.stride), np.float32)
    made[:, : shape.size] = table[:, : shape.size]
    return to_device(made, device)
