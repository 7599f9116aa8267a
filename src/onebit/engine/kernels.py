"""The compiled passes over the data: everything whose cost grows with the number of answers.

A row is described by the vector ``(L_i, a_i, 1)`` and a column by ``(R_j, b_j, 1)``; a score is the
product of the first with ``(R_j, 1, b_j)``, so the last two slots face each other crosswise. Each
side keeps a *table* that the other side gathers from, one line a row, in single precision, its parts
padded with zeros to whole vectors:

* full covariances: the second moment of the vector as a packed lower triangle, whose last line is
  ``(mean, 1)``, so that one gather brings the mean as well;
* diagonal covariances: the squares of the means, the variances, the means.

``update_full`` and ``update_diagonal`` handle a range of rows against the other side's table. For each
answer they form the first two moments of the score, from them the majoriser of the loss, and sum it up;
then they move the row. Nothing of length n is stored, rows do not depend on each other, and sums are
taken in the same order whatever the number of threads.

Answers are taken in chunks that fit the nearest cache, so that the other side's lines are fetched once
for both uses. Sums run in single precision over a chunk, then in double.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from onebit.engine.solve import solve_lanes
from onebit.engine.vectors import BLOCK, LANES, dot16, prefetch16, weighted_sum16
from onebit.losses import majorise

# The most answers of a chunk, and how many numbers of the other side's table it may hold.
CHUNK = 96
CACHED = 8192
# A table of more numbers than this is far away; its lines are asked for some answers ahead.
FAR = 4_000_000
AHEAD = 8
# Steps of conjugate gradients that a row of the diagonal family takes towards its best mean in a round.
STEPS = 3

# What may be reordered: enough to vectorise the dot products; infinities and NaN keep their meaning.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@numba.njit(nogil=True, cache=True)
def whole_blocks(size):
    """Round up to a multiple of a block, so that no loop over a line has a remainder."""
    return (size + BLOCK - 1) // BLOCK * BLOCK


@numba.njit(nogil=True, cache=True, error_model="numpy")
def fill_table(mean, covariance, has_effect, full, table):
    """Write the table lines that belong to these means and covariances."""
    n_free = mean.shape[1]
    slots = n_free + (1 if has_effect else 2)
    part = table.shape[1] // 3
    vector = np.zeros(slots)
    vector[slots - 1] = 1.0
    for i in range(mean.shape[0]):
        vector[:n_free] = mean[i]
        if full:
            t = 0
            for a in range(slots):
                for b in range(a + 1):
                    table[i, t + b] = vector[a] * vector[b]
                if a < n_free:
                    for b in range(a + 1):
                        table[i, t + b] += covariance[i, t + b]
                t += a + 1
        else:
            for a in range(slots):
                table[i, a] = vector[a] * vector[a]
                table[i, 2 * part + a] = vector[a]
            for a in range(n_free):
                table[i, part + a] = covariance[i, a]


@numba.njit(inline="always")
def _facing(slot, rank):
    """Return the slot of the other side that faces this one: the last two face each other crosswise."""
    return slot if slot < rank else 2 * rank + 1 - slot


@numba.njit(forceinline=True, error_model="numpy", fastmath=_FAST)
def _products(own, table, index, chunk, count, out):
    """Write the products of ``own`` with the first columns of the lines of a chunk.

    Four lines at a time: each load of ``own`` serves all of them.
    """
    last = chunk + count - 1
    far = table.size > FAR
    for k in range(0, count, 4):
        if far:
            for ahead in range(chunk + k + AHEAD, min(chunk + k + AHEAD + 4, last + 1)):
                for at in range(0, table.shape[1], BLOCK):
                    prefetch16(table, np.uint32(index[ahead]), at)
        a = np.uint32(index[chunk + k])
        b = np.uint32(index[min(chunk + k + 1, last)])
        c = np.uint32(index[min(chunk + k + 2, last)])
        d = np.uint32(index[min(chunk + k + 3, last)])
        p, q, r, s = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for t in range(own.shape[0]):
            p += own[t] * table[a, t]
            q += own[t] * table[b, t]
            r += own[t] * table[c, t]
            s += own[t] * table[d, t]
        out[k], out[k + 1], out[k + 2], out[k + 3] = p, q, r, s


@numba.njit(forceinline=True, error_model="numpy", fastmath=_FAST)
def _mean_product(own_mean, table, line, mean_at):
    """Return the product of the row's mean with one line's, which begins at ``mean_at``."""
    total = np.float32(0.0)
    for at in range(0, own_mean.shape[0], BLOCK):
        total += dot16(own_mean, at, table, np.uint32(line), mean_at + at)
    return total


@numba.njit(inline="always")
def _scratch(width):
    """Return what ``_walk`` needs for the answers of one chunk."""
    scores, pulls, moments, root, power = (
        np.empty(CHUNK, np.float32),
        np.empty(CHUNK, np.float32),
        np.empty(CHUNK, np.float32),
        np.empty(CHUNK, np.float32),
        np.empty(CHUNK, np.float32),
    )
    bits = np.empty(CHUNK, np.int32)
    part = np.empty(width, np.float32)
    return scores, pulls, moments, root, power, bits, bits.view(np.float32), part


@numba.njit(forceinline=True, error_model="numpy", fastmath=_FAST)
def _walk(
    first, last, index, sign, weight, other, own, own_mean, mean_at, code, full,
    curvatures, sums, linear_sums, scratch,
):  # fmt: skip
    """Sum up the majorisers of one row's answers, and return their bound.

    ``own`` is what the beginning of the other side's lines is multiplied with to give a score's second
    moment (full covariances) or its variance (diagonal ones), ``own_mean`` the row's mean, which meets
    the lines from ``mean_at`` on. ``sums`` receives the sum of ``curvature line``. ``linear_sums``
    receives that of ``pull mean``; of diagonal covariances the gradient at the present mean,
    ``(pull - curvature score) mean``, and ``curvatures`` the curvature of each answer.
    """
    width, window = own.shape[0], own_mean.shape[0]
    sums[:] = 0.0
    linear_sums[:] = 0.0
    scores, pulls, moments, root, power, bits, scale, part = scratch
    total = 0.0
    size = min(max(CACHED // (mean_at + window), 4), CHUNK) // 4 * 4
    for chunk in range(first, last, size):
        count = min(size, last - chunk)
        _products(own, other, index, chunk, count, moments)
        for k in range(count):
            scores[k] = _mean_product(own_mean, other, index[chunk + k], mean_at)
            pulls[k] = scores[k]
        if not full:
            for k in range(count):
                moments[k] += scores[k] * scores[k]
        total += majorise(code, chunk, count, sign, weight, pulls, moments, root, power, bits, scale)
        if not full:
            for k in range(count):
                pulls[k] -= moments[k] * scores[k]
                curvatures[chunk - first + k] = moments[k]
        for at in range(0, width, BLOCK):
            weighted_sum16(moments, count, other, index, chunk, at, part, at)
        for t in range(width):
            sums[t] += part[t]
        for at in range(0, window, BLOCK):
            weighted_sum16(pulls, count, other, index, chunk, mean_at + at, part, at)
        for t in range(window):
            linear_sums[t] += part[t]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def update_full(
    begin, end, start, index, sign, weight, other, table, mean, covariance, log_determinant, loss,
    prior_precision, prior_linear, temperature, code, has_effect, solve,
):  # fmt: skip
    """Sum the loss of rows ``begin:end`` at their present state and, if ``solve``, update them.

    ``mean``, ``covariance`` (both double), ``log_determinant`` and ``table`` are written in place;
    ``loss`` receives the bound on the loss *before* the update. ``prior_precision`` and
    ``prior_linear`` have one line for all rows, or one a row. Full covariances: each row goes to the
    minimum of its majoriser; the small systems of several rows are solved at once.
    """
    n_free = mean.shape[1]
    rank = n_free - 1 if has_effect else n_free
    slots = rank + 2
    packed = slots * (slots + 1) // 2
    width = table.shape[1]
    mean_at = (packed - slots) // BLOCK * BLOCK  # the block in which the triangle's last line begins
    shift = packed - slots - mean_at
    own = np.zeros(width, np.float32)
    own_mean = np.zeros(width - mean_at, np.float32)
    none = np.empty(0, np.float32)
    precision = np.empty(width, np.float64)
    linear = np.empty(width - mean_at, np.float64)
    scratch = _scratch(width)
    systems, root, inverse = (
        np.zeros(n_free * n_free * LANES),
        np.zeros(n_free * n_free * LANES),
        np.zeros(n_free * n_free * LANES),
    )
    sides = np.zeros(n_free * LANES)
    lower, right = systems.reshape(n_free, n_free, LANES), sides.reshape(n_free, LANES)
    determinants = np.empty(LANES, np.float64)
    # Where the row's second moments stand in the other side's order of slots; off-diagonal twice.
    source = np.empty(packed, np.int64)
    times = np.empty(packed, np.float32)
    same = rank * (rank + 1) // 2  # the factors', where the order is the same
    t = 0
    for a in range(slots):
        for b in range(a + 1):
            high, low = _facing(a, rank), _facing(b, rank)
            high, low = max(high, low), min(high, low)
            source[t] = high * (high + 1) // 2 + low
            times[t] = 1.0 if a == b else 2.0
            t += 1
    for group in range(begin, end, LANES):
        count = min(LANES, end - group)
        for lane in range(count):
            i = group + lane
            for t in range(same):
                own[t] = table[i, t] * times[t]
            for t in range(same, packed):
                own[t] = table[i, source[t]] * times[t]
            for a in range(slots):
                own_mean[shift + a] = table[i, mean_at + shift + _facing(a, rank)]
            loss[i] = _walk(
                start[i], start[i + 1], index, sign, weight, other, own, own_mean, mean_at, code, True,
                none, precision, linear, scratch,
            )  # fmt: skip
            if not solve:
                continue
            prior_line = i if prior_precision.shape[0] > 1 else 0
            # The row's factors face slots 0..rank-1 and its effect faces the other side's fixed 1 in
            # the last slot; its own fixed 1 faces the other's effect in slot `rank`, a known offset.
            for a in range(n_free):
                slot = a if a < rank else rank + 1
                line = slot * (slot + 1) // 2
                for b in range(a + 1):
                    lower[a, b, lane] = temperature * precision[line + (b if b < rank else rank + 1)]
                lower[a, a, lane] += prior_precision[prior_line, a]
                offset = precision[line + rank if slot > rank else rank * (rank + 1) // 2 + slot]
                right[a, lane] = temperature * (linear[shift + slot] - offset)
                right[a, lane] += prior_linear[prior_line, a]
        if not solve:
            continue
        for lane in range(count, LANES):  # lanes without a row solve something harmless
            for a in range(n_free):
                lower[a, :, lane] = 0.0
                lower[a, a, lane] = 1.0
        solve_lanes(systems, sides, root, inverse, determinants)
        for lane in range(count):
            i = group + lane
            log_determinant[i] = determinants[lane]
            t = 0
            for a in range(n_free):
                mean[i, a] = right[a, lane]
                for b in range(a + 1):
                    covariance[i, t] = lower[a, b, lane]
                    t += 1
        fill_table(
            mean[group : group + count], covariance[group : group + count], has_effect, True,
            table[group : group + count],
        )  # fmt: skip


@numba.njit(forceinline=True, error_model="numpy", fastmath=_FAST)
def _walk_along(first, last, index, other, direction, mean_at, curvatures, sums):
    """Write the sum of ``curvature (mean . direction) mean`` over one row's answers to ``sums``."""
    window = direction.shape[0]
    sums[:] = 0.0
    scaled = np.empty(CHUNK, np.float32)
    part = np.empty(window, np.float32)
    size = min(max(CACHED // window, 4), CHUNK)
    for chunk in range(first, last, size):
        count = min(size, last - chunk)
        for k in range(count):
            along = _mean_product(direction, other, index[chunk + k], mean_at)
            scaled[k] = curvatures[chunk - first + k] * along
        for at in range(0, window, BLOCK):
            weighted_sum16(scaled, count, other, index, chunk, mean_at + at, part, at)
        for t in range(window):
            sums[t] += part[t]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def update_diagonal(
    begin, end, start, index, sign, weight, other, table, mean, covariance, log_determinant, loss,
    prior_precision, prior_linear, temperature, code, has_effect, solve,
):  # fmt: skip
    """Like ``update_full`` for diagonal covariances, in time that grows with K, not with its square.

    The variances go to their minimum; the mean takes a few steps of conjugate gradients towards its own,
    each of which lowers the majoriser.
    """
    n_free = mean.shape[1]
    rank = n_free - 1 if has_effect else n_free
    window = table.shape[1] // 3
    mean_at = 2 * window
    longest = 0
    for i in range(begin, end):
        longest = max(longest, start[i + 1] - start[i])
    scratch = _scratch(2 * window)
    curvatures = np.empty(longest, np.float32)
    own = np.zeros(2 * window, np.float32)
    own_mean = np.zeros(window, np.float32)
    direction = np.zeros(window, np.float32)
    sums = np.empty(2 * window, np.float64)
    gradient = np.empty(window, np.float64)
    product = np.empty(window, np.float64)
    diagonal = np.empty(n_free, np.float64)
    residual = np.empty(n_free, np.float64)
    step = np.empty(n_free, np.float64)
    image = np.empty(n_free, np.float64)
    for i in range(begin, end):
        for a in range(rank + 2):
            facing = _facing(a, rank)
            own_mean[a] = table[i, mean_at + facing]
            own[a] = table[i, window + facing]  # its variance meets the squares of the other's means,
            own[window + a] = table[i, facing] + own[a]  # its second moment the other's variances
        loss[i] = _walk(
            start[i], start[i + 1], index, sign, weight, other, own, own_mean, mean_at, code, False,
            curvatures, sums, gradient, scratch,
        )  # fmt: skip
        if not solve:
            continue
        prior_line = i if prior_precision.shape[0] > 1 else 0
        alignment = 0.0  # of the residual with itself, preconditioned
        log_determinant[i] = 0.0
        for a in range(n_free):
            slot = a if a < rank else rank + 1
            precision, spread = prior_precision[prior_line, a], sums[window + slot]
            pull = temperature * (gradient[slot] - spread * mean[i, a])
            diagonal[a] = temperature * (sums[slot] + spread) + precision
            residual[a] = pull - precision * mean[i, a] + prior_linear[prior_line, a]
            step[a] = residual[a] / diagonal[a]
            alignment += residual[a] * step[a]
            covariance[i, a] = 1.0 / diagonal[a]
            log_determinant[i] -= math.log(diagonal[a])
        for _ in range(min(STEPS, n_free)):
            if not alignment > 0.0:
                break
            for a in range(n_free):
                direction[a if a < rank else rank + 1] = step[a]
            _walk_along(start[i], start[i + 1], index, other, direction, mean_at, curvatures, product)
            along = 0.0
            for a in range(n_free):
                slot = a if a < rank else rank + 1
                image[a] = temperature * (product[slot] + sums[window + slot] * step[a])
                image[a] += prior_precision[prior_line, a] * step[a]
                along += image[a] * step[a]
            length = alignment / along
            before, alignment = alignment, 0.0
            for a in range(n_free):
                mean[i, a] += length * step[a]
                residual[a] -= length * image[a]
                alignment += residual[a] * residual[a] / diagonal[a]
            for a in range(n_free):
                step[a] = residual[a] / diagonal[a] + alignment / before * step[a]
        fill_table(mean[i : i + 1], covariance[i : i + 1], has_effect, False, table[i : i + 1])


@numba.njit(nogil=True, cache=True, error_model="numpy")
def change_coordinates(mean, covariance, change, has_effect, table):
    """Replace every row ``x`` (full covariances) by ``change' x``."""
    size = mean.shape[1]
    moved = np.empty(size, np.float64)
    half = np.empty((size, size), np.float64)
    for i in range(mean.shape[0]):
        for a in range(size):
            moved[a] = 0.0
            for b in range(size):
                moved[a] += change[b, a] * mean[i, b]
        mean[i] = moved
        for a in range(size):
            for b in range(size):
                value = 0.0
                for k in range(size):
                    t = a * (a + 1) // 2 + k if a >= k else k * (k + 1) // 2 + a
                    value += covariance[i, t] * change[k, b]
                half[a, b] = value
        t = 0
        for a in range(size):
            for b in range(a + 1):
                value = 0.0
                for k in range(size):
                    value += change[k, a] * half[k, b]
                covariance[i, t] = value
                t += 1
    fill_table(mean, covariance, has_effect, True, table)


@numba.njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _quadratic(covariance, facing, rank, n_free, full):
    """Return ``f' V f`` for one Gaussian and the vector that it faces: other's means, then a 1."""
    total = 0.0
    if not full:
        for a in range(n_free):
            value = facing[a] if a < rank else 1.0
            total += covariance[a] * value * value
        return total
    t = 0
    for a in range(n_free):
        left = facing[a] if a < rank else 1.0
        for b in range(a):
            total += 2.0 * covariance[t] * left * facing[b]
            t += 1
        total += covariance[t] * left * left
        t += 1
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def score_moments(
    begin, end, rows, columns, row_mean, row_covariance, row_fallback, row_fallback_covariance,
    column_mean, column_covariance, column_fallback, column_fallback_covariance, rank, full,
    out_mean, out_variance,
):  # fmt: skip
    """Write the exact mean and variance of the scores of pairs ``begin:end``; code -1 is unknown."""
    for k in range(begin, end):
        i, j = rows[k], columns[k]
        left = row_fallback if i < 0 else row_mean[i]
        right = column_fallback if j < 0 else column_mean[j]
        left_covariance = row_fallback_covariance if i < 0 else row_covariance[i]
        right_covariance = column_fallback_covariance if j < 0 else column_covariance[j]
        mean = 0.0
        for a in range(rank):
            mean += left[a] * right[a]
        if left.shape[0] > rank:
            mean += left[rank]
        if right.shape[0] > rank:
            mean += right[rank]
        variance = _quadratic(left_covariance, right, rank, left.shape[0], full)
        variance += _quadratic(right_covariance, left, rank, right.shape[0], full)
        if full:
            t = 0
            for a in range(rank):
                for _ in range(a):
                    variance += 2.0 * left_covariance[t] * right_covariance[t]
                    t += 1
                variance += left_covariance[t] * right_covariance[t]
                t += 1
        else:
            for a in range(rank):
                variance += left_covariance[a] * right_covariance[a]
        out_mean[k] = mean
        out_variance[k] = variance
