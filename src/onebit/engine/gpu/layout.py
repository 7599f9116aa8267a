"""How the lines of a GPU's tables are laid out, and how the kernels are launched for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import triton

from onebit.model.gaussians import packed_size

# Answers at once and warps of a walk, by the largest width of a line that they are for.
_FASTEST = {128: (8, 1), 256: (4, 2), 2048: (2, 2), math.inf: (4, 8)}
# The widest lines for which half the bytes are worth converting: those of rank 13.
_NARROW = 128


@dataclass(frozen=True)
class LineLayout:
    """How the lines of a model of some rank are laid out, and how the kernels are launched for it."""

    rank: int

    @property
    def slots(self) -> int:
        """The length of a row's vector: factors, effect and the 1."""
        return self.rank + 2

    @property
    def size(self) -> int:
        """The numbers of a line."""
        return packed_size(self.slots)

    @property
    def last(self) -> int:
        """Where the last line of the triangle begins, which holds the mean."""
        return self.size - self.slots

    @property
    def low(self) -> int:
        """The width of a line's first part: all before the mean, as far as a power of two goes."""
        return 1 << (self.last.bit_length() - 1)

    @property
    def high(self) -> int:
        """The width of a line's second part."""
        return triton.next_power_of_2(self.size - self.low)

    @property
    def stride(self) -> int:
        """The numbers from one line to the next, whole sectors of memory."""
        return -(-self.size // 8) * 8

    @property
    def half_stride(self) -> int:
        """The integers from one halved line to the next: its numbers and its reach, whole sectors."""
        return -(-(self.size + 1) // 16) * 16

    @property
    def narrow(self) -> bool:
        """Whether half the bytes can save time: wider lines take longer to convert than to fetch."""
        return self.low + self.high <= _NARROW

    @property
    def partial(self) -> int:
        """The numbers of a chunk's sums: a line, then the linear terms."""
        return self.stride + -(-self.slots // 8) * 8

    @property
    def tile(self) -> int:
        """The edge of the square that holds the factors' part of a row's system."""
        return triton.next_power_of_2(max(self.rank, 2))

    @property
    def walk_options(self) -> dict[str, int]:
        """Answers that a program takes at once, and its warps: what was fastest on an H200."""
        width = self.low + self.high
        block, warps = next(setting for most, setting in _FASTEST.items() if width <= most)
        return {"BLOCK": block, "num_warps": warps}

    @property
    def solve_warps(self) -> int:
        """Warps of a program that solves one system: what was fastest on an H200."""
        return max(1, self.tile**2 // 2048)
