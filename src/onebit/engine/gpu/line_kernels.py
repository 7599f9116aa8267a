"""The sums over lines, and a change of all of them, as a Triton kernel: see ``engine.sampling.lines``."""

import triton
import triton.language as tl


@triton.jit
def pass_over(
    table, small, size,
    CHANGE: tl.constexpr, PLACES: tl.constexpr, STRIDE: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Multiply all lines by the matrix ``small`` if ``CHANGE``, or else add up their outer products.

    A program takes every ``PROGRAMS``-th block of lines and writes its sums to a matrix of its own there.
    """
    at = tl.arange(0, WIDTH)
    inside = at < PLACES
    both = at[:, None] * WIDTH + at[None, :]
    if CHANGE:
        factor = tl.load(small + both)
    else:
        total = tl.zeros((WIDTH, WIDTH), tl.float64)
    for first in range(tl.program_id(0) * BLOCK, size, PROGRAMS * BLOCK):
        number = first + tl.arange(0, BLOCK)
        cells = table + number.to(tl.int64)[:, None] * STRIDE + at[None, :]
        there = (number < size)[:, None] & inside[None, :]
        lines = tl.load(cells, mask=there, other=0.0).to(tl.float64)
        if CHANGE:
            changed = tl.sum(lines[:, :, None] * factor[None, :, :], axis=1)
            tl.store(cells, changed.to(tl.float32), mask=there)
        else:
            total += tl.sum(lines[:, :, None] * lines[:, None, :], axis=0)
    if not CHANGE:
        tl.store(small + tl.program_id(0) * WIDTH * WIDTH + both, total)
