"""Tables in half the bytes, for walks over tables that do not fit the GPU's cache.

There a walk waits for memory, which is asked for another line with each answer. The numbers of a halved
line are integers of sixteen bits. ``unit`` holds the typical size of each slot; beside its numbers a line
says how far it reaches, ``t``: the root mean square of none of its coordinates exceeds ``t`` units. So no
second moment exceeds ``t^2`` units, and no mean ``t``; the steps are these, divided by the largest
integer. The 1 at the end of a line stays what it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton

from onebit.engine.gpu import halving_kernels
from onebit.engine.gpu.layout import LineLayout

# Lines of a program.
_BLOCK = 16
# The smallest unit: of a coordinate that nothing is left of.
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Halved:
    """A table of sixteen-bit integers, and the units of its slots."""

    lines: torch.Tensor
    unit: torch.Tensor


@cache
def cache_bytes(device: torch.device) -> int:
    """Return the size of the device's cache."""
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def pays(lines: torch.Tensor, shape: LineLayout) -> bool:
    """Say whether a table is better gathered in half the bytes: long lines take longer to convert."""
    return shape.narrow and lines.is_cuda and lines.nbytes > cache_bytes(lines.device)


def halved(lines: torch.Tensor, shape: LineLayout, second_moment: torch.Tensor) -> Halved:
    """Return a table in half the bytes; ``second_moment`` is the mean one of each slot but the 1."""
    size = torch.ones(shape.slots, dtype=torch.float64, device=lines.device)
    size[:-1] = second_moment.sqrt().clamp_(min=_SMALLEST)
    one, two = torch.tril_indices(shape.slots, shape.slots, device=lines.device)
    unit = (size[one] * size[two]).float()
    made = torch.empty((len(lines), shape.half_stride), dtype=torch.int16, device=lines.device)
    if len(lines):
        halving_kernels.halve[(triton.cdiv(len(lines), _BLOCK),)](
            lines, unit, made, len(lines), LOW=shape.low, HIGH=shape.high, SIZE=shape.size,
            LAST=shape.last, SLOTS=shape.slots, WIDTH=triton.next_power_of_2(shape.slots),
            STRIDE=shape.stride, HALF_STRIDE=shape.half_stride, BLOCK=_BLOCK,
        )  # fmt: skip
    return Halved(made, unit)
