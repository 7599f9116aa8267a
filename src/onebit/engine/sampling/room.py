"""Room for what the sampler's kernels work with, made outside of them as in ``engine.cpu.room``."""

from __future__ import annotations

from typing import Any

import numpy as np

from onebit.engine.cpu.vectors import BLOCK, LANES, TILE

# Answers at once: the product of as many numbers below two is still a single-precision number.
CHUNK = 64
# Of no more answers a row may move along an ellipse.
FEW = 256


def margins_room() -> tuple[Any, ...]:
    """Return room for the margins of a chunk of answers, and what is reckoned from them."""
    return tuple(np.empty(CHUNK, np.float32) for _ in range(4))


def proposals_room() -> tuple[Any, ...]:
    """Return room for the words of a chunk, and for the answers whose first proposal was not taken.

    And for the tilts, draws and words of those whose scores are far from zero.
    """
    first = np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.int64)
    words = tuple(np.empty(CHUNK, np.uint32) for _ in range(4))
    return *first, np.empty(CHUNK, np.float32), np.empty(CHUNK, np.float32), words


def rows_room(width: int, n_free: int, longest: int, weighted: bool) -> tuple[Any, ...]:
    """Return room for drawing rows of at most ``longest`` answers, which may count differently."""
    lines = -(-n_free // TILE) * TILE
    own = tuple(np.zeros(width, np.float32) for _ in range(3))
    # Products are written by fours; few are a multiple of them.
    answers = np.empty(longest + 3, np.float32), np.empty(longest, np.float32)
    few = np.empty(FEW, np.float32), np.empty(FEW, np.float32)
    times = np.empty(longest if weighted else 0, np.float32)
    variables = *(np.empty(CHUNK, np.float32) for _ in range(3)), np.empty(CHUNK)
    tile = np.empty(width, np.float32), np.empty(TILE * BLOCK, np.float32)
    sums = np.empty((lines, width)), np.empty(width)
    squares = np.zeros(n_free * n_free * LANES), np.zeros(n_free * n_free * LANES)
    sides = tuple(np.zeros(n_free * LANES) for _ in range(4))
    systems = *squares, *sides, np.zeros((n_free + 1) * LANES)
    working = margins_room(), proposals_room()
    return own, (*answers, *few, times), variables, tile, sums, systems, *working


def whole_room(rank: int, wide: int) -> tuple[Any, ...]:
    """Return room for looking at answers along the whole's directions, of lines so ``wide``."""
    size = rank + 3
    width, lines = -(-size // BLOCK) * BLOCK, -(-size // TILE) * TILE
    products, places = np.zeros((CHUNK, width), np.float32), np.arange(CHUNK, dtype=np.int32)
    answers = (np.empty(CHUNK, np.float32) for _ in range(4))
    tile = np.empty(width, np.float32), np.empty(TILE * BLOCK, np.float32)
    sums = np.empty((lines, width)), np.empty(width)
    own = np.zeros(wide, np.float32)
    return products, places, *answers, *tile, *sums, own, margins_room()
