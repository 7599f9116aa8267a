"""Where the numbers of a row stand in the tables that the passes gather from."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onebit.engine.cpu.vectors import BLOCK
from onebit.model.gaussians import lower_triangle

# Bytes.
_CACHE_LINE = 64


def whole_blocks(size: int) -> int:
    """Round up to a multiple of a block, so that no loop over a line has a remainder."""
    return (size + BLOCK - 1) // BLOCK * BLOCK


def lines_of_zeros(count: int, width: int) -> NDArray[np.float32]:
    """Return a table of zeros in single precision whose lines begin where those of the caches do.

    Sixteen numbers are then one line of a cache and not parts of two.
    """
    room = np.zeros(count * width + _CACHE_LINE // 4, dtype=np.float32)
    first = -room.ctypes.data % _CACHE_LINE // 4
    return room[first : first + count * width].reshape(count, width)


class Layout(NamedTuple):
    """Where the numbers of a row stand: in its own line, and in what the other side's lines add up to.

    ``own`` and ``times``: the places in a line of what a line of the other side is multiplied with, and
    the factors; ``own_mean``: those of the mean. ``precision``, ``offset`` and ``linear``: the places in
    the sums of what belongs to the row's free coordinates: their packed triangle, their products with
    the other side's effect, and the linear terms.
    """

    own: NDArray[np.int64]
    times: NDArray[np.float32]
    own_mean: NDArray[np.int64]
    precision: NDArray[np.int64]
    offset: NDArray[np.int64]
    linear: NDArray[np.int64]
    mean_at: int


@lru_cache(maxsize=64)
def layout_of(rank: int, has_effect: bool, full: bool) -> Layout:
    """Return the layout of a side with this rank."""
    slots = rank + 2
    # The slot of the other side that faces each slot: the last two face each other crosswise.
    facing = np.arange(slots)
    facing[[rank, rank + 1]] = rank + 1, rank
    free = np.append(np.arange(rank), rank + 1)[: rank + has_effect]
    if not full:
        part = whole_blocks(slots)
        none = np.empty(0, dtype=np.int64)
        return Layout(facing, np.empty(0, np.float32), none, none, none, free, 2 * part)
    first, second = lower_triangle(slots)

    def place(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        high, low = np.maximum(a, b), np.minimum(a, b)
        return high * (high + 1) // 2 + low

    last_line = slots * (slots - 1) // 2
    mean_at = last_line // BLOCK * BLOCK
    own_mean = np.zeros(whole_blocks(last_line + slots) - mean_at, dtype=np.int64) - 1
    own_mean[last_line - mean_at : last_line - mean_at + slots] = last_line + facing
    lower, upper = lower_triangle(len(free))
    return Layout(
        place(facing[first], facing[second]),
        np.where(first == second, 1.0, 2.0).astype(np.float32),
        own_mean,
        place(free[lower], free[upper]),
        place(free, np.full(len(free), rank)),
        last_line - mean_at + free,
        mean_at,
    )
