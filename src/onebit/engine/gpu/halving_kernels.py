"""Tables in half the bytes as Triton kernels: see ``engine.gpu.halving``."""

import triton
import triton.language as tl

from onebit.engine.gpu.kernels import _MOST, line_steps


@triton.jit
def _rounded(line, unit, at, inside, step, in_line, SIZE: tl.constexpr, LAST: tl.constexpr):
    """Return the integers of some slots."""
    value = tl.load(line[:, None] + at[None, :], mask=inside, other=0.0)
    steps = tl.where(at[None, :] < LAST, step[:, None], in_line[:, None])
    steps *= tl.load(unit + at, mask=at < SIZE, other=1.0)[None, :]
    found = tl.floor(value / tl.where(at[None, :] == SIZE - 1, 1.0, steps) + 0.5)
    return tl.minimum(tl.maximum(found, -1.0 * _MOST), 1.0 * _MOST).to(tl.int16)


@triton.jit
def halve(
    table, unit, out, n_rows,
    LOW: tl.constexpr, HIGH: tl.constexpr, SIZE: tl.constexpr, LAST: tl.constexpr, SLOTS: tl.constexpr,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, HALF_STRIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the integers of ``BLOCK`` lines, and behind them how far each reaches, rounded up."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = row < n_rows
    line = table + row * STRIDE
    slot = tl.arange(0, WIDTH)
    diagonal = slot * (slot + 3) // 2
    counted = slot < SLOTS - 1
    own = tl.load(line[:, None] + diagonal[None, :], mask=live[:, None] & counted[None, :], other=0.0)
    own /= tl.load(unit + diagonal, mask=counted, other=1.0)[None, :]
    far = tl.maximum(tl.sqrt(tl.max(own, axis=1)), 1e-6)
    # The upper half of a number in single precision is one, too.
    reach = (far.to(tl.int32, bitcast=True) + 0xFFFF) >> 16
    step, in_line = line_steps(reach)
    low = tl.arange(0, LOW)
    high = LOW + tl.arange(0, HIGH)
    lines = out + row * HALF_STRIDE
    there = live[:, None] & (low >= 0)[None, :]
    tl.store(
        lines[:, None] + low[None, :],
        _rounded(line, unit, low, there, step, in_line, SIZE, LAST),
        mask=there,
    )
    there = live[:, None] & (high < SIZE)[None, :]
    tl.store(
        lines[:, None] + high[None, :],
        _rounded(line, unit, high, there, step, in_line, SIZE, LAST),
        mask=there,
    )
    tl.store(lines + SIZE, reach.to(tl.int16), mask=live)
