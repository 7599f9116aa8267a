"""Room for what the passes work with, made outside of them.

A kernel could make these arrays itself. But numba compiles functions of its own for every kind of array
that a kernel makes, which took nearly half of the compilation of a pass. So each task, which runs on one
thread, is given its room. How much fits is what the arrays hold: kernels ask their shapes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onebit.engine.cpu.vectors import LANES

# The most answers of a chunk.
CHUNK = 96


def chunk_room(width: int) -> tuple[Any, ...]:
    """Return room for the answers of a chunk, and for a line of ``width`` that they are summed up to."""
    return *(np.empty(CHUNK, np.float32) for _ in range(6)), np.empty(width, np.float32)


def line_room(width: int) -> tuple[Any, ...]:
    """Return room for one number of each answer of a chunk, and for a line that they are summed up to."""
    return np.empty(CHUNK, np.float32), np.empty(width, np.float32)


def row_room(width: int, window: int) -> tuple[Any, ...]:
    """Return room for a row: what meets the lines of the other side, and what these are summed up to.

    Of whole lines, and of the parts of them that hold means.
    """
    own, own_mean = np.zeros(width, np.float32), np.zeros(window, np.float32)
    return own, own_mean, np.empty(width), np.empty(window)


def systems_room(n_free: int) -> tuple[Any, ...]:
    """Return room for the small systems that are solved at once: see ``move`` and ``solve_lanes``."""
    squares = (np.zeros(n_free * n_free * LANES) for _ in range(3))
    return *squares, np.zeros(n_free * LANES), np.empty(LANES), np.empty(LANES), np.empty(n_free + 2)


def full_room(n_free: int, width: int, mean_at: int) -> tuple[Any, ...]:
    """Return room for a pass over rows with full covariances, whose lines hold means from a place on."""
    none = np.empty(0, np.float32)
    return chunk_room(width), row_room(width, width - mean_at), none, systems_room(n_free)


def diagonal_room(n_free: int, window: int, longest: int) -> tuple[Any, ...]:
    """Return room for a pass over rows with independent coordinates and at most so many answers."""
    steps = (np.empty(n_free) for _ in range(4))
    along = np.zeros(window, np.float32), np.empty(window), np.empty(CHUNK, np.float32)
    curvatures, line = np.empty(longest, np.float32), np.empty(n_free + 2)
    return chunk_room(2 * window), row_room(2 * window, window), curvatures, along, *steps, line
