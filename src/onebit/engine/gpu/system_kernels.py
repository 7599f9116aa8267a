"""Systems so small that a thread holds one of them whole: what ``kernels.solve`` does, for low ranks.

Where a system is spread over the threads of a warp, they spend their time on passing numbers to each
other. Here every number of a system is a tensor of its own, with one entry for each of ``BLOCK`` rows:
a packed lower triangle is a tuple of such tensors, and loops over coordinates are unrolled. Memory is
read and written in tiles, so that neighbours travel together; the compiler takes long over many of them.
"""

import triton
import triton.language as tl

from onebit.engine.gpu.kernels import _row_lines

# The widest tile: a thread holds a line of it beside its system.
_WIDEST = 16


@triton.constexpr_function
def _at(a, b):
    """Return where an entry of a symmetric matrix stands in its packed lower triangle."""
    return max(a, b) * (max(a, b) + 1) // 2 + min(a, b)


@triton.constexpr_function
def _facing(a, rank):
    """Return the slot of a line that a coordinate faces: its effect the other side's 1."""
    return a + (a == rank)


@triton.constexpr_function
def _width(count):
    """Return the width of a tile for so many numbers, or the beginning of them."""
    return min(1 << (count - 1).bit_length(), _WIDEST)


@triton.constexpr_function
def _halvings(width):
    """Return how often a power of two can be halved."""
    return width.bit_length() - 1


@triton.constexpr_function
def _within(i, count):
    """Return a place, or the last one for what lies beyond it."""
    return min(i, count - 1)


@triton.jit
def _columns(
    lines, live, FIRST: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return numbers of each row's line as a tensor each: those of one tile, from ``FIRST`` on."""
    at = FIRST + tl.arange(0, WIDTH)
    tile = tl.load(lines[:, None] + at[None, :], mask=live[:, None] & (at < COUNT)[None, :], other=0.0)
    parts = (tile,)
    for level in tl.static_range(_halvings(WIDTH)):
        even = ()
        odd = ()
        for i in tl.static_range(2**level):
            pair = tl.split(tl.reshape(parts[i], (BLOCK, WIDTH // 2 ** (level + 1), 2)))
            even += (pair[0],)
            odd += (pair[1],)
        parts = even + odd
    columns = ()
    for i in tl.static_range(WIDTH):
        columns += (tl.reshape(parts[i], (BLOCK,)),)
    return columns


@triton.jit
def _load(lines, live, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Return the first ``COUNT`` numbers of each row's line, each as a tensor of its own."""
    WIDTH: tl.constexpr = _width(COUNT)
    columns = ()
    for i in tl.static_range((COUNT + WIDTH - 1) // WIDTH):
        columns += _columns(lines, live, i * WIDTH, COUNT, WIDTH, BLOCK)
    return columns


@triton.jit
def _store_tile(
    lines, live, values,
    FIRST: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write numbers of each row's line: those of one tile, from ``FIRST`` on."""
    parts = ()
    for i in tl.static_range(WIDTH):
        parts += (values[_within(FIRST + i, COUNT)],)
    for level in tl.static_range(_halvings(WIDTH)):
        pairs = ()
        for i in tl.static_range(WIDTH // 2 ** (level + 1)):
            pair = tl.join(parts[i], parts[i + WIDTH // 2 ** (level + 1)])
            pairs += (tl.reshape(pair, (BLOCK, 2 ** (level + 1))),)
        parts = pairs
    at = FIRST + tl.arange(0, WIDTH)
    tile = tl.reshape(parts[0], (BLOCK, WIDTH))
    tl.store(lines[:, None] + at[None, :], tile, mask=live[:, None] & (at < COUNT)[None, :])


@triton.jit
def _store(lines, live, values, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Write the first ``COUNT`` numbers of each row's line."""
    WIDTH: tl.constexpr = _width(COUNT)
    for i in tl.static_range(COUNT // WIDTH):
        _store_tile(lines, live, values, i * WIDTH, COUNT, WIDTH, BLOCK)
    if COUNT % WIDTH > 0:
        _store_tile(lines, live, values, COUNT - COUNT % WIDTH, COUNT, _width(COUNT % WIDTH), BLOCK)


@triton.jit
def _inverse(matrix, N: tl.constexpr):
    """Return the packed inverse and the log determinant: the symmetric sweeps of ``kernels._invert``."""
    scale = ()
    for a in tl.static_range(N):
        scale += (tl.sqrt(1.0 / matrix[_at(a, a)]),)
    log_determinant = -2.0 * tl.log(scale[0])
    for a in tl.static_range(1, N):
        log_determinant -= 2.0 * tl.log(scale[a])
    swept = ()
    for a in tl.static_range(N):
        for b in tl.static_range(a + 1):
            swept += (matrix[_at(a, b)] * (scale[a] * scale[b]),)
    for _ in range(N):
        # The pivot is the first; after its sweep all coordinates move up by one, and are back in the end.
        pivot = swept[0]
        log_determinant += tl.log(pivot)
        share = 1.0 / pivot
        column = ()
        for a in tl.static_range(1, N):
            column += (swept[_at(a, 0)],)
        column += (pivot - 1.0,)
        after = ()
        for a in tl.static_range(N):
            for b in tl.static_range(a + 1):
                after += (swept[_at((a + 1) % N, (b + 1) % N)] - column[a] * share * column[b],)
        swept = after
    inverse = ()
    for a in tl.static_range(N):
        for b in tl.static_range(a + 1):
            inverse += (((2.0 if a == b else 0.0) - swept[_at(a, b)]) * (scale[a] * scale[b]),)
    return inverse, log_determinant


# The compiler takes seconds: one kernel does for all of a fit's priors and batches.
@triton.jit(
    do_not_specialize=["precision_stride", "linear_stride", "first_chunk", "first_row", "end_row"]
)
def solve(
    partial, row_chunk, prior_precision, prior_linear, mean, covariance, log_determinant, table,
    factors, precision_stride, linear_stride, first_chunk, first_row, end_row,
    FULL: tl.constexpr, RANK: tl.constexpr, FREE: tl.constexpr, STRIDE: tl.constexpr,
    PARTIAL: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Bring ``BLOCK`` rows to the minimum of their majorisers, means ``relaxation`` times as far.

    Arguments and results are those of ``kernels.solve``, but for the strides of the prior's lines: 0
    where one line is that of all rows.
    """
    TRIANGLE: tl.constexpr = FREE * (FREE + 1) // 2
    row = first_row + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = row < end_row
    row = tl.minimum(row, end_row - 1)
    temperature, relaxation = tl.load(factors), tl.load(factors + 1)
    first, last, step = _row_lines(row_chunk, row, first_chunk, GROUP)
    lines = tl.where(live, (last - first + step - 1) // step, 0).to(tl.int32)
    zero = tl.zeros((BLOCK,), tl.float64)
    sums = ()
    for _ in tl.static_range(TRIANGLE + FREE):
        sums += (zero,)
    for k in range(tl.max(lines)):
        found = _load(partial + (first + k * step) * PARTIAL, k < lines, STRIDE + RANK + 2, BLOCK)
        more = ()
        for a in tl.static_range(FREE):
            for b in tl.static_range(a + 1):
                entry = found[_at(_facing(a, RANK), _facing(b, RANK))]
                more += (sums[_at(a, b)] + entry.to(tl.float64),)
        for a in tl.static_range(FREE):
            # Its 1 faces the other side's effect.
            offset = found[_at(_facing(a, RANK), RANK)].to(tl.float64)
            more += (sums[TRIANGLE + a] + found[STRIDE + _facing(a, RANK)].to(tl.float64) - offset,)
        sums = more
    every = row >= 0
    own_precision = _load(prior_precision + row * precision_stride, every, FREE, BLOCK)
    own_linear = _load(prior_linear + row * linear_stride, every, FREE, BLOCK)
    precision = ()
    linear = ()
    for a in tl.static_range(FREE):
        for b in tl.static_range(a):
            precision += (temperature * sums[_at(a, b)],)
        precision += (temperature * sums[_at(a, a)] + own_precision[a],)
        linear += (temperature * sums[TRIANGLE + a] + own_linear[a],)
    spread, log_precision = _inverse(precision, FREE)
    before = _load(mean + row * FREE, live, FREE, BLOCK)
    after = ()
    for a in tl.static_range(FREE):
        best = spread[_at(a, 0)] * linear[0]
        for b in tl.static_range(1, FREE):
            best += spread[_at(a, b)] * linear[b]
        after += (before[a] + relaxation * (best - before[a]),)
    _store(mean + row * FREE, live, after, FREE, BLOCK)
    if FULL:
        log_covariance = -log_precision
        _store(covariance + row * TRIANGLE, live, spread, TRIANGLE, BLOCK)
    else:
        variance = ()
        log_covariance = zero
        for a in tl.static_range(FREE):
            variance += (1.0 / precision[_at(a, a)],)
            log_covariance += tl.log(variance[a])
        _store(covariance + row * FREE, live, variance, FREE, BLOCK)
        spread = ()
        for a in tl.static_range(FREE):
            for _ in tl.static_range(a):
                spread += (zero,)
            spread += (variance[a],)
    tl.store(log_determinant + row, log_covariance, mask=live)
    # Second moments of the slots, then the means and 1; a side without effects has zeros in their place.
    line = ()
    for a in tl.static_range(FREE):
        for b in tl.static_range(a + 1):
            line += ((spread[_at(a, b)] + after[a] * after[b]).to(tl.float32),)
    for _ in tl.static_range((RANK + 1 - FREE) * (RANK + 1)):
        line += (zero.to(tl.float32),)
    for a in tl.static_range(FREE):
        line += (after[a].to(tl.float32),)
    for _ in tl.static_range(RANK + 1 - FREE):
        line += (zero.to(tl.float32),)
    line += ((zero + 1.0).to(tl.float32),)
    _store(table + row * STRIDE, live, line, (RANK + 2) * (RANK + 3) // 2, BLOCK)
