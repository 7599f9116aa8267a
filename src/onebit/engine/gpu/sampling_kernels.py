"""The passes of the sampler as Triton kernels.

A line of a table is a present draw, ``(factors, 1, effect)``; see ``engine.sampling.passes``, whose
distributions these draw from, with the same counters for the variables of the answers. ``sample_walk``
takes a chunk of one row's answers: it forms the scores, draws the variable of each, and leaves the sums
of the row's precision, of its linear term and of noise whose covariance is that precision.
``sample_solve`` adds up a row's chunks and draws the row: with precision ``P``, linear term ``b`` and
noise ``e``,

    ``P^-1 ((1 + r) b + sqrt(1 - r^2) e) - r x``

is Adler's over-relaxed draw given the present ``x``, and needs no root of ``P``.
"""

import triton
import triton.language as tl

from onebit.engine.gpu.kernels import _chunk_bounds, _invert, _row_lines

_LOGISTIC = tl.constexpr(0)
_CODE_BITS = tl.constexpr(0x7FFFFFFF)
_HALF_PI, _TWO_PI = tl.constexpr(1.5707963267948966), tl.constexpr(6.283185307179586)
_RATE = tl.constexpr(1.2337005501361697)  # pi^2 / 8
# Of engine.sampling.variates.
_TILTS_PER_UNIT = tl.constexpr(16)
_TILTS = tl.constexpr(160)
_STRIPS = tl.constexpr(160)
_POINT = tl.constexpr(23)
_AREA = tl.constexpr(1.0 / 144.0)
_CUT = tl.constexpr(0.64)
_PER_COPY = tl.constexpr(64)  # attempts, for each of an answer's copies
_MOST_PROPOSALS = tl.constexpr(63)
_OVER = tl.constexpr(0.8)
_REST = tl.constexpr(0.6)  # sqrt(1 - _OVER^2)
_UNIT = tl.constexpr(2.3283064365386963e-10)
_BELOW_ONE = tl.constexpr(0.99999994)
_MULTIPLIER_0, _MULTIPLIER_1 = tl.constexpr(0xD2511F53), tl.constexpr(0xCD9E8D57)
_WEYL_0, _WEYL_1 = tl.constexpr(0x9E3779B9), tl.constexpr(0xBB67AE85)
_LOW = tl.constexpr(0xFFFFFFFF)
# Purposes of random numbers, as they stand in the last word of a counter: see engine.sampling.philox.
_OF_ANSWERS = tl.constexpr(0)
_OF_ROWS = tl.constexpr(2)
_ATTEMPT = tl.constexpr(8)


@triton.jit
def _shaken(curvature, first, second):
    """Return normal noise of this variance."""
    radius = tl.sqrt(-2.0 * tl.log(tl.minimum((first.to(tl.float32) + 0.5) * _UNIT, _BELOW_ONE)))
    return tl.sqrt(curvature) * (radius * tl.cos(second.to(tl.float32) * _UNIT * _TWO_PI))


@triton.jit
def _words(key, number, row, sweep, purpose):
    """Return four random words of 32 bits: Philox 4x32-10, see engine.sampling.philox."""
    a = (number.to(tl.int64) & _LOW).to(tl.uint64)
    b = a * 0 + (row.to(tl.int64) & _LOW).to(tl.uint64)
    c = a * 0 + (sweep.to(tl.int64) & _LOW).to(tl.uint64)
    d = a * 0 + (purpose.to(tl.int64) & _LOW).to(tl.uint64)
    k, m = (key & _LOW).to(tl.uint64), ((key >> 32) & _LOW).to(tl.uint64)
    for _ in tl.static_range(10):
        left, right = a * _MULTIPLIER_0, c * _MULTIPLIER_1
        a, b, c, d = (right >> 32) ^ b ^ k, right & _LOW, (left >> 32) ^ d ^ m, left & _LOW
        k, m = (k + _WEYL_0) & _LOW, (m + _WEYL_1) & _LOW
    return a.to(tl.uint32), b.to(tl.uint32), c.to(tl.uint32), d.to(tl.uint32)


@triton.jit
def _proposed(tilt, first, second, strips, totals, tails):
    """Return what two words propose from the hat of a tilt, and whether it is taken."""
    hat_number = tl.minimum(tilt * _TILTS_PER_UNIT, _TILTS - 1.0).to(tl.int32)
    total = tl.load(totals + hat_number)
    place = first.to(tl.int64) * total
    strip = (place >> (32 + _POINT)).to(tl.int32)
    within = ((place >> _POINT) & 0xFFFFFFFF).to(tl.float32) * _UNIT
    count = tl.load(tails + 3 * hat_number)
    begin = tl.load(tails + 3 * hat_number + 1)
    scale = tl.load(tails + 3 * hat_number + 2)
    line = strips + (hat_number * _STRIPS + strip) * 4
    left, width = tl.load(line), tl.load(line + 1)
    least = hat_number.to(tl.float32) / _TILTS_PER_UNIT
    rate = 0.5 * least * least + _RATE
    in_tail = strip.to(tl.float32) >= count
    share = (total - (count.to(tl.int64) << _POINT)).to(tl.float32) * (1.0 / 8388608.0)
    far = begin - tl.log(tl.maximum(1.0 - within / tl.maximum(share, 1e-9), 1.4901161e-08)) / rate
    x = tl.where(in_tail, far, left + width * within)
    strip_hat = scale * _AREA / tl.maximum(width, 1e-20)
    hat = tl.where(in_tail, tl.exp(-rate * x) * _HALF_PI, strip_hat)
    height = (second.to(tl.float32) + 0.5) * _UNIT * hat
    # Devroye's density without its tilt: three terms of either series.
    upper = x > _CUT
    above = tl.maximum(x, 1e-20)
    root = 1.0 / (above * _HALF_PI)
    q = tl.where(upper, tl.exp(-(x * _RATE)), tl.exp(-0.5 / above))
    factor = tl.where(upper, 1.0, root * tl.sqrt(root)) * _HALF_PI
    square = q * q
    eighth = square * square * square * square
    density = factor * q * (1.0 - 3.0 * eighth + 5.0 * eighth * eighth * eighth)
    taken = (x > 0.0) & (height <= tl.exp(-0.5 * tilt * tilt * x) * density)
    return x, taken


@triton.jit
def _inverse_gaussian(inverse_mean, first, second, third):
    """Draw an inverse Gaussian of shape one (Michael, Schucany and Haas, 1976)."""
    wave = tl.cos(second.to(tl.float32) * _UNIT * _TWO_PI)
    square = -2.0 * tl.log(tl.minimum((first.to(tl.float32) + 0.5) * _UNIT, _BELOW_ONE)) * wave * wave
    share = (third.to(tl.float32) + 0.5) * _UNIT
    half = 0.5 * square
    x = 1.0 / (inverse_mean + half + tl.sqrt(half * (half + 2.0 * inverse_mean)))
    other = 1.0 / tl.maximum(inverse_mean * inverse_mean * x, 1e-30)
    return tl.where(share * (1.0 + inverse_mean * x) <= 1.0, x, other)


@triton.jit
def _gathered(answer, other, there, at, inside, STRIDE: tl.constexpr):
    """Return the other side's lines that some answers face, at these places."""
    lines = other + (answer & _CODE_BITS).to(tl.int64) * STRIDE
    return tl.load(lines[:, None] + at[None, :], mask=there[:, None] & inside[None, :], other=0.0)


@triton.jit
def _faced(own, row, at, inside, RANK: tl.constexpr, STRIDE: tl.constexpr):
    """Return a line as the other side faces it: its effect before its 1."""
    facing = tl.where(at == RANK, RANK + 1, tl.where(at == RANK + 1, RANK, at))
    return tl.load(own + row * STRIDE + facing, mask=inside, other=0.0)


@triton.jit
def _no_products(LINES: tl.constexpr, COLUMNS: tl.constexpr, CODE: tl.constexpr):
    """Return room for sums of products: the hinge loss has curvatures beside which others would drown."""
    if CODE == _LOGISTIC:
        room = tl.zeros((LINES, COLUMNS), tl.float32)
    else:
        room = tl.zeros((LINES, COLUMNS), tl.float64)
    return room


@triton.jit
def _weighed(tile, curvature, pull, noise, at, LAST: tl.constexpr, CODE: tl.constexpr):
    """Return lines times curvatures; in the last two places, where lines have nothing, pull and noise."""
    if CODE != _LOGISTIC:
        tile, curvature = tile.to(tl.float64), curvature.to(tl.float64)
        pull, noise = pull.to(tl.float64), noise.to(tl.float64)
    found = tl.where(at[None, :] == LAST - 1, pull[:, None], tile * curvature[:, None])
    return tl.where(at[None, :] == LAST, noise[:, None], found)


@triton.jit
def _products(left, right, CODE: tl.constexpr):
    """Return the sum over answers of the products of two parts of the lines that they face."""
    if CODE == _LOGISTIC:
        found = tl.dot(tl.trans(left), right, input_precision="tf32x3", out_dtype=tl.float32)
    else:
        found = tl.sum(left[:, :, None] * right.to(tl.float64)[:, None, :], axis=0)
    return found


@triton.jit
def sample_walk(
    answers, weight, copies, start, chunk_row, row_chunk, other, own, strips, totals, tails, partial,
    settings, numbers, first_chunk, first_answer,
    CODE: tl.constexpr, WEIGHTED: tl.constexpr, COPIED: tl.constexpr, CHUNK: tl.constexpr,
    BLOCK: tl.constexpr, RANK: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    STRIDE: tl.constexpr, PARTIAL: tl.constexpr,
):  # fmt: skip
    """Draw the variables of one chunk's answers and sum up precision, linear term and noise.

    Lines are taken in two parts, of ``LOW`` and, unless that is zero, ``HIGH`` places: a single one
    would be as wide as the next power of two. The last two places of both are beyond what lines hold: in
    the sums, their lines are the linear term and the noise.
    """
    WIDTH: tl.constexpr = LOW + HIGH
    LAST: tl.constexpr = WIDTH - 1
    chunk = first_chunk + tl.program_id(0)
    row, begin, count = _chunk_bounds(start, chunk_row, row_chunk, chunk, CHUNK)
    before = (begin - tl.load(start + row)).to(tl.int32)
    begin -= first_answer
    at = tl.arange(0, LOW)
    inside = at < RANK + 2
    line = _faced(own, row, at, inside, RANK, STRIDE)
    temperature = tl.load(settings)
    key, sweep = tl.load(numbers), tl.load(numbers + 1).to(tl.int32)
    side, most_copies = tl.load(numbers + 2).to(tl.int32), tl.load(numbers + 3).to(tl.int32)
    precision = _no_products(LOW, LOW, CODE)
    if HIGH:
        above = LOW + tl.arange(0, HIGH)
        inside_above = above < RANK + 2
        line_above = _faced(own, row, above, inside_above, RANK, STRIDE)
        across = _no_products(HIGH, LOW, CODE)
        precision_above = _no_products(HIGH, HIGH, CODE)
    # Lines are asked for one block ahead, and their codes one block before that: memory is far away.
    lane = tl.arange(0, BLOCK)
    answer = tl.load(answers + begin + lane, mask=lane < count, other=0)
    next_tile = _gathered(answer, other, lane < count, at, inside, STRIDE)
    if HIGH:
        next_above = _gathered(answer, other, lane < count, above, inside_above, STRIDE)
    coming = tl.load(answers + begin + lane + BLOCK, mask=lane + BLOCK < count, other=0)
    for step in range(0, count, BLOCK):
        k = step + lane
        there = k < count
        y = tl.where(answer < 0, -1.0, 1.0)
        # What goes with the other side's effect is known: its part of the score is no unknown.
        effect_at = other + (answer & _CODE_BITS).to(tl.int64) * STRIDE + RANK + 1
        fixed = tl.load(effect_at, mask=there, other=0.0)
        tile, answer, later = next_tile, coming, k + BLOCK
        next_tile = _gathered(answer, other, later < count, at, inside, STRIDE)
        score = tl.sum(tile * line[None, :], axis=1)
        if HIGH:
            tile_above = next_above
            next_above = _gathered(answer, other, later < count, above, inside_above, STRIDE)
            score += tl.sum(tile_above * line_above[None, :], axis=1)
        coming = tl.load(answers + begin + later + BLOCK, mask=later + BLOCK < count, other=0)
        number = before + k
        e, f, _, _ = _words(key, number + 1, row, sweep, side | _OF_ROWS)
        if CODE == _LOGISTIC:
            tilt = 0.5 * tl.where(score < 0.0, -score, score)
            far = tilt * _TILTS_PER_UNIT >= _TILTS
            times = tl.where(there, 1, 0)
            if COPIED:
                times = tl.load(copies + begin + k, mask=there, other=0)
            curvature = tl.zeros((BLOCK,), tl.float32)
            for copy in range(0, most_copies):
                wanted = copy < times
                attempt = copy * _PER_COPY + 1
                if COPIED:
                    first, second, _, _ = _words(key, number, row, sweep, side | (attempt * _ATTEMPT))
                    attempt += 1
                else:  # two answers share the first call
                    p, q, r, s = _words(key, number >> 1, row, sweep, side | _OF_ANSWERS)
                    odd = (number & 1) == 1
                    first, second = tl.where(odd, r, p), tl.where(odd, s, q)
                x, taken = _proposed(tilt, first, second, strips, totals, tails)
                pending = wanted & (taken == 0) & (far == 0)
                last = attempt + _MOST_PROPOSALS
                while (tl.sum(pending.to(tl.int32), axis=0) > 0) & (attempt < last):
                    first, second, _, _ = _words(key, number, row, sweep, side | (attempt * _ATTEMPT))
                    again, ok = _proposed(tilt, first, second, strips, totals, tails)
                    x = tl.where(pending & ok, again, x)
                    pending = pending & (ok == 0)
                    attempt += 1
                # Far out it is an inverse Gaussian one, but for an event of probability 2e-9.
                if tl.sum((far & wanted).to(tl.int32), axis=0) > 0:
                    p, q, r, _ = _words(
                        key, number, row, sweep, side | ((copy * _PER_COPY + 1) * _ATTEMPT)
                    )
                    x = tl.where(far, _inverse_gaussian(tilt, p, q, r), x)
                curvature += tl.where(wanted, 0.25 * x, 0.0)
            pull = 0.5 * times.to(tl.float32) * y
        else:
            c = 0.5 * temperature.to(tl.float32) + tl.zeros((BLOCK,), tl.float32)
            if WEIGHTED:
                c *= tl.load(weight + begin + k, mask=there, other=0.0)
            p, _, r, s = _words(key, number, row, sweep, side | _OF_ANSWERS)
            left = 1.0 - y * score
            curvature = c * c * _inverse_gaussian(c * tl.where(left < 0.0, -left, left), p, r, s)
            pull = y * (c + curvature)
        curvature = tl.where(there, curvature, 0.0)
        pull = tl.where(there, pull - curvature * fixed, 0.0)
        shaken = _shaken(curvature, e, f)
        weighed = _weighed(tile, curvature, pull, shaken, at, LAST, CODE)
        precision += _products(weighed, tile, CODE)
        if HIGH:
            weighed_above = _weighed(tile_above, curvature, pull, shaken, above, LAST, CODE)
            across += _products(weighed_above, tile, CODE)
            precision_above += _products(weighed_above, tile_above, CODE)
    out = partial + tl.program_id(0).to(tl.int64) * PARTIAL
    tl.store(out + at[:, None] * WIDTH + at[None, :], precision)
    if HIGH:
        tl.store(out + above[:, None] * WIDTH + at[None, :], across)
        tl.store(out + at[None, :] * WIDTH + above[:, None], across)
        tl.store(out + above[:, None] * WIDTH + above[None, :], precision_above)


@triton.jit
def _inverse(matrix, N: tl.constexpr, D: tl.constexpr, SINGLE: tl.constexpr):
    """Return the inverse of a positive definite matrix, to single precision if that is said to do."""
    if SINGLE:
        found, _ = _invert(matrix.to(tl.float32), N, D)
        found = found.to(tl.float64)
    else:
        found, _ = _invert(matrix, N, D)
    return found


@triton.jit
def _solved(matrix, inverse, right, SINGLE: tl.constexpr):
    """Return the solution of a system; with a rough inverse it is refined once."""
    found = tl.sum(inverse * right[None, :], axis=1)
    if SINGLE:
        left = right - tl.sum(matrix * found[None, :], axis=1)
        found += tl.sum(inverse * left[None, :], axis=1)
    return found


@triton.jit
def sample_solve(
    partial, row_chunk, prior_precision, prior_linear, own, scales, evidence, evidence_linear, numbers,
    first_row, rows, first_chunk, size,
    OWN_LINEAR: tl.constexpr, EFFECT: tl.constexpr, RANK: tl.constexpr, D: tl.constexpr,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, PARTIAL: tl.constexpr, GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr, SINGLE: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Draw rows from the sums of their chunks; add up what they say of the scales of the factors.

    A program takes every ``PROGRAMS``-th row. The factors' block is inverted (if ``SINGLE``, in single
    precision, and solutions are refined in double); the effect is its border. If ``KEEP``, what the
    answers say of each of ``size`` rows goes to ``evidence``: see ``engine.sampling.trends``.
    """
    key, sweep = tl.load(numbers), tl.load(numbers + 1).to(tl.int32)
    side = tl.load(numbers + 2).to(tl.int32)
    FREE: tl.constexpr = RANK + EFFECT
    PULL: tl.constexpr = (WIDTH - 2) * WIDTH  # where the linear term begins; noise is the next line
    a = tl.arange(0, D)
    there = a < RANK
    both = there[:, None] & there[None, :]
    diagonal = a[:, None] == a[None, :]
    before = tl.load(prior_precision + a, mask=there, other=1.0)
    bent = tl.zeros((D, D), tl.float64)
    pulled = tl.zeros((D,), tl.float64)
    for number in range(tl.program_id(0), rows, PROGRAMS):
        row = first_row.to(tl.int64) + number
        first, last, step = _row_lines(row_chunk, row, first_chunk, GROUP)
        precision = tl.zeros((D, D), tl.float64)
        linear = tl.zeros((D,), tl.float64)
        noise = tl.zeros((D,), tl.float64)
        if EFFECT:
            border = tl.zeros((D,), tl.float64)
            nothing = tl.load(prior_precision + RANK) * 0.0
            corner, effect_linear, effect_noise = nothing, nothing, nothing
        for k in range(first, last, step):
            line = partial + k * PARTIAL
            cells = line + a[:, None] * WIDTH + a[None, :]
            precision += tl.load(cells, mask=both, other=0.0).to(tl.float64)
            linear += tl.load(line + PULL + a, mask=there, other=0.0).to(tl.float64)
            noise += tl.load(line + PULL + WIDTH + a, mask=there, other=0.0).to(tl.float64)
            if EFFECT:  # it faces the other side's 1, which stands after the factors
                border += tl.load(line + RANK * WIDTH + a, mask=there, other=0.0).to(tl.float64)
                corner += tl.load(line + RANK * WIDTH + RANK).to(tl.float64)
                effect_linear += tl.load(line + PULL + RANK).to(tl.float64)
                effect_noise += tl.load(line + PULL + WIDTH + RANK).to(tl.float64)
        if KEEP:
            cells = (a[:, None] * FREE + a[None, :]) * size.to(tl.int64) + row
            tl.store(evidence + cells, precision, mask=both)
            tl.store(evidence_linear + a * size.to(tl.int64) + row, linear, mask=there)
            if EFFECT:
                tl.store(evidence + (RANK * FREE + a) * size.to(tl.int64) + row, border, mask=there)
                tl.store(evidence + (a * FREE + RANK) * size.to(tl.int64) + row, border, mask=there)
                tl.store(evidence + (RANK * FREE + RANK) * size.to(tl.int64) + row, corner)
                tl.store(evidence_linear + RANK * size.to(tl.int64) + row, effect_linear)
        present = tl.load(own + row * STRIDE + a, mask=there, other=0.0).to(tl.float64)
        prior_line = row * FREE if OWN_LINEAR else 0
        centre = tl.load(prior_linear + prior_line + a, mask=there, other=0.0)
        # Numbers beyond every answer's, so that these are others than those of the answers.
        e, f, _, _ = _words(key, a - 2147483647, row, sweep, side | _OF_ROWS)
        shaken = noise + _shaken(before.to(tl.float32), e, f).to(tl.float64)
        whole = precision + tl.where(diagonal, before[:, None], 0.0)
        inverse = _inverse(whole, RANK, D, SINGLE)
        wanted = tl.where(there, (linear + centre) * (1.0 + _OVER) + shaken * _REST, 0.0)
        drawn = _solved(whole, inverse, wanted, SINGLE)
        pull = linear
        if EFFECT:
            effect_before = tl.load(prior_precision + RANK)
            effect_linear += tl.load(prior_linear + prior_line + RANK)
            e, f, _, _ = _words(key, tl.arange(0, 1) + (RANK - 2147483647), row, sweep, side | _OF_ROWS)
            added = tl.sum(_shaken(effect_before.to(tl.float32), e, f).to(tl.float64), axis=0)
            effect_wanted = effect_linear * (1.0 + _OVER) + (effect_noise + added) * _REST
            along = _solved(whole, inverse, border, SINGLE)
            rest = corner + effect_before - tl.sum(border * along, axis=0)
            effect = (effect_wanted - tl.sum(along * wanted, axis=0)) / rest
            drawn -= along * effect
            # A row's own effect stands after its 1.
            effect_at = own + row * STRIDE + RANK + 1
            effect -= tl.load(effect_at).to(tl.float64) * _OVER
            tl.store(effect_at, effect.to(tl.float32))
            pull -= effect * border
        drawn = tl.where(there, drawn - present * _OVER, 0.0)
        tl.store(own + row * STRIDE + a, drawn.to(tl.float32), mask=there)
        bent += drawn[:, None] * precision * drawn[None, :]
        pulled += drawn * pull
    line = scales + tl.program_id(0) * (D * D + D)
    cells = line + a[:, None] * D + a[None, :]
    tl.store(cells, tl.load(cells) + bent)
    tl.store(line + D * D + a, tl.load(line + D * D + a) + pulled)
