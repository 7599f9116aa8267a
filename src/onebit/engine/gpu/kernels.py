"""The passes over the data as Triton kernels.

They do what ``engine.cpu.passes`` does for full covariances, over the same tables: a line holds the
second moment of a row's vector ``(L_i, a_i, 1)`` as a packed lower triangle, whose last line is
``(mean, 1)``. Independent coordinates have the same tables here, their covariances zero off the diagonal.

``walk`` takes a chunk of one row's answers, at most ``CHUNK`` of them, so that rows of ten and of ten
million answers keep the device equally busy. It gathers the other side's lines once, forms the moments of
the scores and the majoriser, and leaves the chunk's sums as one line of ``partial``. ``fold`` adds up the
lines of long rows, ``solve`` those of each row, inverts its small system and writes its new state. All
sums are taken in an order that depends on the data alone: no atomic additions, the same result each time.

A line is read in two parts whose widths are powers of two, ``LOW`` and ``HIGH``; the second holds the
whole last line. An answer is one integer: the other side's code, with the highest bit set for a "no".
"""

import triton
import triton.language as tl

# The first coefficients of tanh(sqrt(q) / 2) / (2 sqrt(q)), for q < 1/4.
_T0 = tl.constexpr(1 / 4)
_T1 = tl.constexpr(-1 / 48)
_T2 = tl.constexpr(1 / 480)
_T3 = tl.constexpr(-17 / 80640)
_T4 = tl.constexpr(31 / 1451520)
_SMOOTHING = tl.constexpr(1e-8)  # of onebit.model.losses
_LOGISTIC, _HINGE = tl.constexpr(0), tl.constexpr(1)
_CODE_BITS = tl.constexpr(0x7FFFFFFF)
_MOST = tl.constexpr(32767)  # of sixteen bits


@triton.jit
def _majorise(CODE: tl.constexpr, y, mean, moment):
    """Return the signed slope, the curvature and the bound of ``onebit.model.losses``."""
    if CODE == _LOGISTIC:
        root = tl.sqrt(tl.maximum(moment, 0.0))
        decay = tl.exp(-root)
        series = _T0 + moment * (_T1 + moment * (_T2 + moment * (_T3 + moment * _T4)))
        ratio = (1.0 - decay) / ((1.0 + decay) * 2.0 * tl.maximum(root, 0.5))
        curvature = tl.where(moment < 0.25, series, ratio)
        slope = 0.5 * y
        bound = 0.5 * (root - y * mean) + tl.log(1.0 + decay)
    elif CODE == _HINGE:
        square = tl.maximum(1.0 - 2.0 * y * mean + moment, 0.0)
        root = tl.sqrt(square + _SMOOTHING)
        curvature = 0.5 / root
        slope = y * (0.5 + curvature)
        bound = 0.5 * (1.0 - y * mean + root)
    else:
        variance = tl.maximum(moment - mean * mean, 1e-4 * moment + 1e-12)
        deviation = tl.sqrt(variance)
        margin = y * mean / deviation
        density = 0.3989422804014327 * tl.exp(-0.5 * margin * margin)
        right = margin > 0.0
        curvature = tl.where(right, density * margin / variance, 0.0)
        slope = y * density * tl.where(right, 1.0 + margin * margin, 1.0) / deviation
        bound = 0.5 - 0.5 * tl.erf(margin * 0.7071067811865476)
    return slope, curvature, bound


@triton.jit
def _chunk_bounds(start, chunk_row, row_chunk, chunk, CHUNK: tl.constexpr):
    """Return the row of a chunk, its first answer and the number of its answers."""
    row = tl.load(chunk_row + chunk).to(tl.int64)
    begin = tl.load(start + row) + (chunk - tl.load(row_chunk + row)).to(tl.int64) * CHUNK
    end = tl.minimum(begin + CHUNK, tl.load(start + row + 1))
    return row, begin, (end - begin).to(tl.int32)


@triton.jit
def line_steps(reach):
    """Return the steps of a halved line's second moments, and of its means, in units."""
    far = (reach << 16).to(tl.float32, bitcast=True)
    return far * far * (1.0 / _MOST), far * (1.0 / _MOST)


@triton.jit
def _both_parts(
    table, answer, there, low, high, inside,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, HALVED: tl.constexpr,
):  # fmt: skip
    """Return both parts of the lines that some answers name, zeros for those that are not there.

    Of a halved table the numbers are integers, and how far a line reaches comes with them.
    """
    lines = table + (answer & _CODE_BITS).to(tl.int64) * STRIDE
    first = tl.load(lines[:, None] + low[None, :], mask=there[:, None], other=0)
    mask = there[:, None] & inside[None, :]
    second = tl.load(lines[:, None] + high[None, :], mask=mask, other=0)
    reach = tl.load(lines + SIZE, mask=there, other=0) if HALVED else answer
    return first, second, reach


@triton.jit
def walk(
    answers, weight, start, chunk_row, row_chunk, other, unit, own, own_place, own_factor, mean_place,
    partial, loss, first_chunk, first_answer,
    CODE: tl.constexpr, WEIGHTED: tl.constexpr, KEEP: tl.constexpr, CHUNK: tl.constexpr,
    BLOCK: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, SIZE: tl.constexpr,
    LAST: tl.constexpr, STRIDE: tl.constexpr, PARTIAL: tl.constexpr, OTHER_STRIDE: tl.constexpr,
    HALVED: tl.constexpr,
):  # fmt: skip
    """Sum up the majorisers of one chunk; of each answer, the bound is summed in ``loss``.

    If ``HALVED``, the other side's lines are, see ``engine.gpu.halving``, and ``unit`` holds their units.
    """
    chunk = first_chunk + tl.program_id(0)
    row, begin, count = _chunk_bounds(start, chunk_row, row_chunk, chunk, CHUNK)
    begin -= first_answer
    low = tl.arange(0, LOW)
    high = LOW + tl.arange(0, HIGH)
    inside = high < SIZE
    line = own + row * STRIDE
    own_low = tl.load(line + tl.load(own_place + low)) * tl.load(own_factor + low)
    own_high = tl.load(line + tl.load(own_place + high, mask=inside, other=0), mask=inside, other=0.0)
    own_high *= tl.load(own_factor + high, mask=inside, other=0.0)
    in_mean = inside & (high >= LAST)
    own_mean = tl.load(
        line + tl.load(mean_place + high - LAST, mask=in_mean, other=0), mask=in_mean, other=0.0
    )
    if HALVED:
        own_low *= tl.load(unit + low)
        own_high *= tl.load(unit + high, mask=inside, other=0.0)
        own_mean *= tl.load(unit + high, mask=inside, other=0.0)
    sum_low = tl.zeros((BLOCK, LOW), tl.float32)
    sum_high = tl.zeros((BLOCK, HIGH), tl.float32)
    linear = tl.zeros((BLOCK, HIGH), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    # Lines are asked for one block ahead, and their codes one block before that: memory is far away.
    k = tl.arange(0, BLOCK)
    answer = tl.load(answers + begin + k, mask=k < count, other=0)
    next_low, next_high, next_reach = _both_parts(
        other, answer, k < count, low, high, inside, SIZE, OTHER_STRIDE, HALVED
    )
    coming = tl.load(answers + begin + k + BLOCK, mask=k + BLOCK < count, other=0)
    for at in range(0, count, BLOCK):
        there, later = at + k < count, at + BLOCK + k
        y = tl.where(answer < 0, -1.0, 1.0)
        tile_low, tile_high, reach, answer = next_low, next_high, next_reach, coming
        next_low, next_high, next_reach = _both_parts(
            other, answer, later < count, low, high, inside, SIZE, OTHER_STRIDE, HALVED
        )
        coming = tl.load(answers + begin + later + BLOCK, mask=later + BLOCK < count, other=0)
        step = 1.0
        if HALVED:
            step, in_line = line_steps(reach.to(tl.int32))
            steps = tl.where(high[None, :] < LAST, step[:, None], in_line[:, None])
            tile_low = tile_low.to(tl.float32)
            tile_high = tile_high.to(tl.float32) * tl.where(high[None, :] == SIZE - 1, 1.0, steps)
        moment = step * tl.sum(tile_low * own_low[None, :], axis=1)
        moment += tl.sum(tile_high * own_high[None, :], axis=1)
        mean = tl.sum(tile_high * own_mean[None, :], axis=1)
        slope, curvature, bound = _majorise(CODE, y, mean, moment)
        if WEIGHTED:
            u = tl.load(weight + begin + at + k, mask=there, other=0.0)
            slope, curvature, bound = u * slope, u * curvature, u * bound
        total += tl.where(there, bound, 0.0)
        if KEEP:
            sum_low += (curvature * step)[:, None] * tile_low
            sum_high += curvature[:, None] * tile_high
            linear += slope[:, None] * tile_high
    tl.store(loss + chunk, tl.sum(total.to(tl.float64), axis=0))
    if KEEP:
        out = partial + tl.program_id(0).to(tl.int64) * PARTIAL
        found_low, found_high = tl.sum(sum_low, axis=0), tl.sum(sum_high, axis=0)
        pull = tl.sum(linear, axis=0)
        if HALVED:
            found_low *= tl.load(unit + low)
            found_high *= tl.load(unit + high, mask=inside, other=0.0)
            pull *= tl.load(unit + high, mask=inside, other=0.0)
        tl.store(out + low, found_low)
        tl.store(out + high, found_high, mask=inside)
        tl.store(out + STRIDE + high - LAST, pull, mask=in_mean)


@triton.jit
def fold(partial, group_begin, group_end, PARTIAL: tl.constexpr, WIDTH: tl.constexpr):
    """Add up the lines ``begin:end`` of each group, in order, into its first line."""
    begin = tl.load(group_begin + tl.program_id(0)).to(tl.int64)
    end = tl.load(group_end + tl.program_id(0)).to(tl.int64)
    at = tl.arange(0, WIDTH)
    inside = at < PARTIAL
    total = tl.zeros((WIDTH,), tl.float64)
    for k in range(begin, end):
        total += tl.load(partial + k * PARTIAL + at, mask=inside, other=0.0).to(tl.float64)
    tl.store(partial + begin * PARTIAL + at, total.to(partial.dtype.element_ty), mask=inside)


@triton.jit
def _row_lines(row_chunk, row, first_chunk, GROUP: tl.constexpr):
    """Return the range and the stride of a row's lines of ``partial``, after ``fold``."""
    first = (tl.load(row_chunk + row) - first_chunk).to(tl.int64)
    last = (tl.load(row_chunk + row + 1) - first_chunk).to(tl.int64)
    return first, last, tl.where(last - first > GROUP, GROUP, 1)


@triton.jit
def _invert(matrix, N: tl.constexpr, D: tl.constexpr):
    """Return the inverse of a positive definite matrix and its log determinant.

    Symmetric sweeps: with pivot ``p`` and ``d`` the pivot's column, less 1 at the pivot,
    ``matrix - d d' / p`` is the swept matrix, but for a 2 at the pivot's own place, which no later sweep
    looks at. Swept along all columns, a matrix is minus its inverse. The diagonal is scaled to one first,
    so that no pivot is above one and nothing cancels. Beyond its first ``N`` lines and columns the result
    is zero.
    """
    a = tl.arange(0, D)
    diagonal = a[:, None] == a[None, :]
    there = a < N
    scale = tl.sqrt(1.0 / tl.where(there, tl.sum(tl.where(diagonal, matrix, 0.0), axis=1), 1.0))
    both = tl.where(there[:, None] & there[None, :], scale[:, None] * scale[None, :], 0.0)
    matrix *= both
    log_determinant = -2.0 * tl.sum(tl.log(scale), axis=0)
    for k in range(N):
        here = a == k
        column = tl.sum(tl.where(here[None, :], matrix, 0.0), axis=1)
        pivot = tl.sum(tl.where(here, column, 0.0), axis=0)
        column = tl.where(here, column - 1.0, column)
        matrix -= (column / pivot)[:, None] * column[None, :]
        log_determinant += tl.log(pivot)
    return (tl.where(diagonal, 2.0, 0.0) - matrix) * both, log_determinant


@triton.jit
def _places(a, b):
    """Return where an entry of a symmetric matrix stands in its packed lower triangle."""
    upper = tl.maximum(a, b)
    return upper * (upper + 1) // 2 + tl.minimum(a, b)


@triton.jit
def _store_line(
    table, row, mean, spread, effect, cross, effect_variance,
    RANK: tl.constexpr, N: tl.constexpr, BORDER: tl.constexpr, D: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Write a row's line of the table from the moments of the square's coordinates and the border's.

    What a side without effects has in their place is zero from the start.
    """
    a = tl.arange(0, D)
    there = a < N
    line = table + row * STRIDE
    moment = (spread + mean[:, None] * mean[None, :]).to(tl.float32)
    lower = there[:, None] & (a[:, None] >= a[None, :])
    tl.store(line + _places(a[:, None], a[None, :]), moment, mask=lower)
    last = line + (RANK + 1) * (RANK + 2) // 2
    tl.store(last + a, mean.to(tl.float32), mask=there)
    tl.store(last + RANK + 1, 1.0)
    if BORDER:
        line += RANK * (RANK + 1) // 2
        tl.store(line + a, (cross + effect * mean).to(tl.float32), mask=there)
        tl.store(line + RANK, (effect_variance + effect * effect).to(tl.float32))
        tl.store(last + RANK, effect.to(tl.float32))


@triton.jit
def solve(
    partial, row_chunk, prior_precision, prior_linear, mean, covariance, log_determinant, table,
    factors, first_chunk, first_row,
    FULL: tl.constexpr, OWN_PRECISION: tl.constexpr, OWN_LINEAR: tl.constexpr, RANK: tl.constexpr,
    N: tl.constexpr,
    BORDER: tl.constexpr, D: tl.constexpr, STRIDE: tl.constexpr, PARTIAL: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """Bring one row to the minimum of its majoriser, the mean ``relaxation`` times as far.

    ``factors`` holds the temperature and the relaxation.
    The first ``N`` coordinates of the system are inverted as a square of edge ``D``, a power of two.
    Where the effect would not fit (the rank itself is a power of two), it is added as a border.
    Independent coordinates: the variances are the inverses of the precision's diagonal, the mean is that
    of the full system.
    """
    row = tl.program_id(0).to(tl.int64) + first_row
    temperature, relaxation = tl.load(factors), tl.load(factors + 1)
    a = tl.arange(0, D)
    there = a < N
    both = there[:, None] & there[None, :]
    facing = tl.where(a == RANK, RANK + 1, a)  # its effect faces the other side's 1
    place = _places(facing[:, None], facing[None, :])
    offset = _places(facing, RANK)  # its 1 faces the other side's effect
    LAST: tl.constexpr = (RANK + 1) * (RANK + 2) // 2
    first, last, step = _row_lines(row_chunk, row, first_chunk, GROUP)
    precision = tl.zeros((D, D), tl.float64)
    linear = tl.zeros((D,), tl.float64)
    border = tl.zeros((D,), tl.float64)
    corner = tl.sum(linear, axis=0)
    pull = corner
    for k in range(first, last, step):
        line = partial + k * PARTIAL
        precision += tl.load(line + place, mask=both, other=0.0).to(tl.float64)
        linear += tl.load(line + STRIDE + facing, mask=there, other=0.0).to(tl.float64)
        linear -= tl.load(line + offset, mask=there, other=0.0).to(tl.float64)
        if BORDER:
            border += tl.load(line + LAST + a, mask=there, other=0.0).to(tl.float64)
            corner += tl.load(line + LAST + RANK + 1).to(tl.float64)
            pull += tl.load(line + STRIDE + RANK + 1).to(tl.float64)
            pull -= tl.load(line + LAST + RANK).to(tl.float64)
    FREE: tl.constexpr = N + BORDER
    prior_line = row * FREE if OWN_PRECISION else 0
    linear_line = row * FREE if OWN_LINEAR else 0
    diagonal = a[:, None] == a[None, :]
    own_precision = tl.load(prior_precision + prior_line + a, mask=there, other=1.0)
    precision = temperature * precision + tl.where(diagonal, own_precision[:, None], 0.0)
    linear = temperature * linear + tl.load(prior_linear + linear_line + a, mask=there, other=0.0)
    spread, log_precision = _invert(precision, N, D)
    best = tl.sum(spread * linear[None, :], axis=1)
    along = border
    rest = corner
    effect = corner
    if BORDER:
        border *= temperature
        corner = temperature * corner + tl.load(prior_precision + prior_line + N)
        pull = temperature * pull + tl.load(prior_linear + linear_line + N)
        along = tl.sum(spread * border[None, :], axis=1)
        rest = corner - tl.sum(border * along, axis=0)
        effect = (pull - tl.sum(along * linear, axis=0)) / rest
        best -= along * effect
        before = tl.load(mean + row * FREE + N)
        effect = before + relaxation * (effect - before)
        tl.store(mean + row * FREE + N, effect)
    before = tl.load(mean + row * FREE + a, mask=there, other=0.0)
    after = before + relaxation * (best - before)
    tl.store(mean + row * FREE + a, after, mask=there)
    cross = tl.zeros((D,), tl.float64)
    effect_variance = corner
    if FULL:
        lines = covariance + row * (FREE * (FREE + 1) // 2)
        if BORDER:
            effect_variance = 1.0 / rest
            cross = -along / rest
            spread += along[:, None] * along[None, :] / rest
            log_precision += tl.log(rest)
            tl.store(lines + N * (N + 1) // 2 + a, cross, mask=there)
            tl.store(lines + N * (N + 1) // 2 + N, effect_variance)
        lower = both & (a[:, None] >= a[None, :])
        tl.store(lines + _places(a[:, None], a[None, :]), spread, mask=lower)
        tl.store(log_determinant + row, -log_precision)
    else:
        variance = 1.0 / tl.sum(tl.where(diagonal, precision, 0.0), axis=1)
        log_variance = tl.sum(tl.where(there, tl.log(variance), 0.0), axis=0)
        spread = tl.where(diagonal & both, variance[:, None], 0.0)
        tl.store(covariance + row * FREE + a, variance, mask=there)
        if BORDER:
            effect_variance = 1.0 / corner
            log_variance += tl.log(effect_variance)
            tl.store(covariance + row * FREE + N, effect_variance)
        tl.store(log_determinant + row, log_variance)
    _store_line(table, row, after, spread, effect, cross, effect_variance, RANK, N, BORDER, D, STRIDE)


@triton.jit
def settle(
    mean, covariance, log_determinant, table,
    FULL: tl.constexpr, WITH_DETERMINANT: tl.constexpr, RANK: tl.constexpr, N: tl.constexpr,
    BORDER: tl.constexpr, D: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Write the table's line, and the log determinant, of a row's mean and covariance."""
    row = tl.program_id(0).to(tl.int64)
    a = tl.arange(0, D)
    there = a < N
    both = there[:, None] & there[None, :]
    diagonal = a[:, None] == a[None, :]
    FREE: tl.constexpr = N + BORDER
    values = tl.load(mean + row * FREE + a, mask=there, other=0.0)
    cross = tl.zeros((D,), tl.float64)
    effect = tl.sum(cross, axis=0)
    effect_variance = effect
    if BORDER:
        effect = tl.load(mean + row * FREE + N)
    if FULL:
        lines = covariance + row * (FREE * (FREE + 1) // 2)
        spread = tl.load(lines + _places(a[:, None], a[None, :]), mask=both, other=0.0)
        if BORDER:
            cross = tl.load(lines + N * (N + 1) // 2 + a, mask=there, other=0.0)
            effect_variance = tl.load(lines + N * (N + 1) // 2 + N)
        if WITH_DETERMINANT:
            inverse, log_value = _invert(spread, N, D)
            if BORDER:
                along = tl.sum(inverse * cross[None, :], axis=1)
                log_value += tl.log(effect_variance - tl.sum(along * cross, axis=0))
            tl.store(log_determinant + row, log_value)
    else:
        variance = tl.load(covariance + row * FREE + a, mask=there, other=1.0)
        spread = tl.where(diagonal & both, variance[:, None], 0.0)
        log_value = tl.sum(tl.log(variance), axis=0)
        if BORDER:
            effect_variance = tl.load(covariance + row * FREE + N)
            log_value += tl.log(effect_variance)
        if WITH_DETERMINANT:
            tl.store(log_determinant + row, log_value)
    _store_line(table, row, values, spread, effect, cross, effect_variance, RANK, N, BORDER, D, STRIDE)
