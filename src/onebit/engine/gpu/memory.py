"""How much of a GPU's memory a fit takes, said before it starts."""

from __future__ import annotations

import torch

from onebit.data.observations import Observations
from onebit.engine.gpu.data import CHUNK, SCRATCH, STREAMED
from onebit.engine.gpu.device import TooLittleMemory, interpreted
from onebit.engine.gpu.layout import LineLayout
from onebit.engine.gpu.sorting import AT_ONCE
from onebit.model.gaussians import packed_size
from onebit.model.hierarchy import Hierarchy
from onebit.model.learnt_prior import LearntPrior

# The largest rank that the kernels are made for: a row's system is held by one program.
LARGEST_RANK = 128
# What libraries take for themselves: cuBLAS has 32 MiB of scratch space on large GPUs.
_LIBRARIES = 2**26
# Of the memory that is free, what a fit may plan with.
_SHARE = 0.9


def usable_bytes(device: torch.device) -> int:
    """Return what a fit may plan with: what is free, and what torch keeps for the next who asks."""
    if interpreted():
        return 2**62
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(_SHARE * (torch.cuda.mem_get_info(device)[0] + kept))


def state_bytes(
    shape: tuple[int, int],
    n: int,
    hierarchy: Hierarchy | LearntPrior,
    full: bool,
    widths: tuple[int, int] = (0, 0),
) -> int:
    """Return the bytes that a model's working state takes, its ``n`` answers not counted.

    ``widths`` are the numbers of columns that rows and columns are regressed on.
    """
    layout = LineLayout(hierarchy.rank)
    total, before = _LIBRARIES, 0
    for side, rows in enumerate(shape):
        n_free = hierarchy.rank + hierarchy.has_effect(side)
        numbers = n_free + (packed_size(n_free) if full else n_free)
        # The state in double precision, the table in single and perhaps in half of it, the start and the
        # bounds of rows and chunks.
        table = 4 * layout.stride + (2 * layout.half_stride if layout.narrow else 0)
        total += rows * (8 * (numbers + 2) + table + 8 * (hierarchy.rank + 8) + 24)
        total += min(SCRATCH, 4 * layout.partial * (rows + n // CHUNK))
        # A half step needs the state before it, a change of coordinates a part of the state after it.
        before = max(before, 8 * rows * numbers)
        # What is known of a side is found in double precision and kept in single; each row then has a
        # linear term of its own.
        if widths[side]:
            total += rows * (4 * widths[side] + 16 * n_free)
            before = max(before, 3 * 8 * widths[side] * rows)
    return total + before


def answer_bytes(n: int, weighted: bool) -> int:
    """Return the bytes of both views."""
    return 2 * (8 if weighted else 4) * n


def sort_bytes(n: int, weighted: bool) -> int:
    """Return what a sort on the device takes beside the views: loose answers, keys and orders."""
    return (54 if weighted else 9) * n + 64 * min(n, AT_ONCE)


def refuse_what_does_not_fit(
    observations: Observations,
    hierarchy: Hierarchy | LearntPrior,
    full: bool,
    usable: int,
    widths: tuple[int, int] = (0, 0),
) -> None:
    """Stop before the start where a model is too large, whatever is done with its answers."""
    if hierarchy.rank > LARGEST_RANK:
        raise ValueError(
            f"a GPU takes ranks up to {LARGEST_RANK}, got {hierarchy.rank}; lower rank, or set "
            'device="cpu"'
        )
    rows, columns = observations.shape
    state = state_bytes(observations.shape, observations.n, hierarchy, full, widths)
    streamed = answer_bytes(min(2 * STREAMED, observations.n), observations.weighted)
    if state + streamed > usable:
        diagonal = 'set covariance="diagonal" '
        diagonal += "or pattern=None " if any(widths) else ""
        raise TooLittleMemory(
            f"a model of {rows} rows and {columns} columns with rank {hierarchy.rank} needs "
            f"{_size(state + streamed)} of the GPU's memory, and {_size(usable)} are usable; lower rank, "
            f'{diagonal if full else ""}or set device="cpu"'
        )


def _size(number: int) -> str:
    return f"{number / 1e9:.3g} GB" if number >= 1e9 else f"{number / 1e6:.3g} MB"
