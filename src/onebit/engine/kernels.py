"""The compiled passes over the data: everything whose cost grows with the number of answers.

A row is described by the vector ``(L_i, a_i, 1)`` and a column by ``(R_j, b_j, 1)``; a score is the
product of the first with ``(R_j, 1, b_j)``, so the last two slots face each other crosswise. Each
side keeps a *table* that the other side gathers from, one line a row:

* full covariances: the second moment of the vector as a packed lower triangle, whose last line is
  ``(mean, 1)``, so that one gather brings the mean as well; padded with zeros to whole vectors;
* diagonal covariances: the mean, then the variances.

``update`` handles a range of rows against the other side's table. For each answer it forms the first
two moments of the score, from them the majoriser of the loss, and adds that to the row's precision
and linear term; then it solves for the row. Nothing of length n is stored, rows do not depend on each
other, and sums are taken in the same order whatever the number of threads.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from onebit.losses import slope_weight_bound

# Sums run in single precision over at most this many answers before they are added in double.
CHUNK = 64

# What may be reordered: enough to vectorise the dot products; infinities and NaN keep their meaning.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@numba.njit(nogil=True, cache=True)
def whole_vectors(size):
    """Round up to a multiple of 16, so that no loop over a line has a scalar remainder."""
    return (size + 15) // 16 * 16


@numba.njit(nogil=True, cache=True, error_model="numpy")
def fill_table(mean, covariance, has_effect, full, table):
    """Write the table lines that belong to these means and covariances."""
    n_free = mean.shape[1]
    rank = n_free - 1 if has_effect else n_free
    slots = rank + 2
    for i in range(mean.shape[0]):
        if full:
            t = 0
            for a in range(slots):
                for b in range(a + 1):
                    left = 1.0 if a == slots - 1 else (mean[i, a] if a < n_free else 0.0)
                    right = 1.0 if b == slots - 1 else (mean[i, b] if b < n_free else 0.0)
                    value = left * right
                    if a < n_free:
                        value += covariance[i, t]
                    table[i, t] = value
                    t += 1
        else:
            for a in range(slots):
                table[i, a] = 1.0 if a == slots - 1 else (mean[i, a] if a < n_free else 0.0)
                table[i, slots + a] = covariance[i, a] if a < n_free else 0.0


@numba.njit(inline="always", error_model="numpy")
def _majorise(code, k, end, sign, weight, mean, second_moment):
    """Return the signed slope and the weight of answer ``k``'s majoriser, and its bound on the loss.

    All three are zero past the ``end``: the last group of four may not be full.
    """
    if k >= end:
        return np.float32(0.0), np.float32(0.0), 0.0
    y = float(sign[k])
    slope, curvature, bound = slope_weight_bound(code, y, float(mean), float(second_moment))
    u = float(weight[k]) if weight.shape[0] > 0 else 1.0
    return np.float32(u * slope * y), np.float32(u * curvature), u * bound


@numba.njit(inline="always", error_model="numpy", fastmath=_FAST)
def _four_products(own, table, lines, at, width):
    """Return the products of ``own`` with four lines of the table, from column ``at`` on."""
    a, b, c, d = lines
    p, q, r, s = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
    for t in range(width):
        p += own[t] * table[a, at + t]
        q += own[t] * table[b, at + t]
        r += own[t] * table[c, at + t]
        s += own[t] * table[d, at + t]
    return p, q, r, s


@numba.njit(inline="always", error_model="numpy", fastmath=_FAST)
def _add_four(part, weights, table, lines, at, width):
    """Add four weighted lines of the table, from column ``at`` on, to ``part``."""
    a, b, c, d = lines
    p, q, r, s = weights
    for t in range(width):
        part[t] += (p * table[a, at + t] + q * table[b, at + t]) + (
            r * table[c, at + t] + s * table[d, at + t]
        )


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=_FAST)
def _walk_full(
    first, last, index, sign, weight, other, line, slots, code, own, own_mean, part, part_linear,
    precision, linear,
):  # fmt: skip
    """Add the majorisers of one row's answers to ``precision`` and ``linear``; return their bound.

    Answers go four at a time: each load of the row's own moments and of the sums serves four of them.
    """
    width, window = own.shape[0], own_mean.shape[0]
    packed = slots * (slots + 1) // 2
    rank = slots - 2
    mean_at = packed - slots  # where the mean stands in a line
    window_at = width - window  # where the whole vectors begin that hold it
    # The row's own second moment in the other side's order of slots, off-diagonal counted twice.
    own[:] = 0.0
    own_mean[:] = 0.0
    t = 0
    for a in range(slots):
        for b in range(a + 1):
            sa = a if a < rank else 2 * rank + 1 - a
            sb = b if b < rank else 2 * rank + 1 - b
            if sb > sa:
                sa, sb = sb, sa
            own[t] = line[sa * (sa + 1) // 2 + sb] * (1.0 if a == b else 2.0)
            t += 1
    for a in range(slots):
        own_mean[mean_at - window_at + a] = line[mean_at + (a if a < rank else 2 * rank + 1 - a)]
    precision[:] = 0.0
    linear[:] = 0.0
    total = 0.0
    for chunk in range(first, last, CHUNK):
        end = min(chunk + CHUNK, last)
        part[:] = 0.0
        part_linear[:] = 0.0
        for k in range(chunk, end, 4):
            lines = (
                np.uint32(index[k]),
                np.uint32(index[min(k + 1, end - 1)]),
                np.uint32(index[min(k + 2, end - 1)]),
                np.uint32(index[min(k + 3, end - 1)]),
            )
            p, q, r, s = _four_products(own, other, lines, 0, width)
            e, f, g, h = _four_products(own_mean, other, lines, window_at, window)
            e, p, bound_0 = _majorise(code, k, end, sign, weight, e, p)
            f, q, bound_1 = _majorise(code, k + 1, end, sign, weight, f, q)
            g, r, bound_2 = _majorise(code, k + 2, end, sign, weight, g, r)
            h, s, bound_3 = _majorise(code, k + 3, end, sign, weight, h, s)
            total += (bound_0 + bound_1) + (bound_2 + bound_3)
            _add_four(part, (p, q, r, s), other, lines, 0, width)
            _add_four(part_linear, (e, f, g, h), other, lines, window_at, window)
        for t in range(packed):
            precision[t] += part[t]
        for a in range(slots):
            linear[a] += part_linear[mean_at - window_at + a]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=_FAST)
def _walk_diagonal(
    first, last, index, sign, weight, other, line, slots, code, own, own_mean, part, part_linear,
    precision, linear,
):  # fmt: skip
    """Like ``_walk_full``, with second moments formed on the way from means and variances."""
    rank = slots - 2
    for a in range(slots):
        facing = a if a < rank else 2 * rank + 1 - a
        own_mean[a] = line[facing]
        own[a] = line[slots + facing]
    precision[:] = 0.0
    linear[:] = 0.0
    total = 0.0
    for chunk in range(first, last, CHUNK):
        part[:] = 0.0
        part_linear[:] = 0.0
        for k in range(chunk, min(chunk + CHUNK, last)):
            j = np.uint32(index[k])
            mean = np.float32(0.0)
            variance = np.float32(0.0)
            for a in range(slots):
                mean += own_mean[a] * other[j, a]
                variance += own[a] * (other[j, slots + a] + other[j, a] * other[j, a])
                variance += own_mean[a] * own_mean[a] * other[j, slots + a]
            second_moment = float(mean) * float(mean) + float(variance)
            pull, curvature, bound = _majorise(code, k, last, sign, weight, mean, second_moment)
            total += bound
            t = 0
            for a in range(slots):
                scaled = curvature * other[j, a]
                for b in range(a + 1):
                    part[t] += scaled * other[j, b]
                    t += 1
                part[t - 1] += curvature * other[j, slots + a]
                part_linear[a] += pull * other[j, a]
        for t in range(precision.shape[0]):
            precision[t] += part[t]
        for a in range(slots):
            linear[a] += part_linear[a]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _solve(lower, inverse, linear, full, mean, covariance):
    """Solve for one Gaussian from its precision (lower triangle, overwritten) and linear term.

    Writes the mean and the covariance (packed triangle, or the variances of the best diagonal
    Gaussian, ``1 / precision_aa``) and returns the covariance's log determinant.
    """
    size = linear.shape[0]
    log_determinant = 0.0
    if not full:
        for a in range(size):
            covariance[a] = 1.0 / lower[a, a]
            log_determinant -= math.log(lower[a, a])
    for a in range(size):
        for b in range(a + 1):
            value = lower[a, b]
            for k in range(b):
                value -= lower[a, k] * lower[b, k]
            if a == b:
                # Positive but for rounding: the prior's precision is on the diagonal.
                lower[a, a] = math.sqrt(max(value, 1e-300))
            else:
                lower[a, b] = value / lower[b, b]
    for a in range(size):
        inverse[a, a] = 1.0 / lower[a, a]
        for b in range(a):
            value = 0.0
            for k in range(b, a):
                value -= lower[a, k] * inverse[k, b]
            inverse[a, b] = value / lower[a, a]
    for a in range(size - 1, -1, -1):
        value = 0.0
        for b in range(a + 1):
            value += inverse[a, b] * linear[b]
        linear[a] = value
    for a in range(size):
        value = 0.0
        for b in range(a, size):
            value += inverse[b, a] * linear[b]
        mean[a] = value
    if full:
        t = 0
        for a in range(size):
            log_determinant -= 2.0 * math.log(lower[a, a])
            for b in range(a + 1):
                value = 0.0
                for k in range(a, size):
                    value += inverse[k, a] * inverse[k, b]
                covariance[t] = value
                t += 1
    return log_determinant


@numba.njit(nogil=True, cache=True, error_model="numpy")
def update(
    begin, end, start, index, sign, weight, other, table, mean, covariance, log_determinant, loss,
    prior_precision, prior_linear, temperature, code, has_effect, full, solve,
):  # fmt: skip
    """Sum the loss of rows ``begin:end`` at their present state and, if ``solve``, update them.

    ``mean``, ``covariance`` (both double), ``log_determinant`` and ``table`` are written in place;
    ``loss`` receives the bound on the loss *before* the update. ``prior_precision`` and
    ``prior_linear`` have one line for all rows, or one a row.
    """
    n_free = mean.shape[1]
    rank = n_free - 1 if has_effect else n_free
    slots = rank + 2
    packed = slots * (slots + 1) // 2
    width = table.shape[1] if full else packed
    window = width - (packed - slots) // 16 * 16 if full else slots
    own = np.empty(width, np.float32)
    own_mean = np.empty(window, np.float32)
    part = np.empty(width, np.float32)
    part_linear = np.empty(window, np.float32)
    precision = np.empty(packed, np.float64)
    linear = np.empty(slots, np.float64)
    lower = np.empty((n_free, n_free), np.float64)
    inverse = np.empty((n_free, n_free), np.float64)
    right = np.empty(n_free, np.float64)
    for i in range(begin, end):
        if full:
            loss[i] = _walk_full(
                start[i], start[i + 1], index, sign, weight, other, table[i], slots, code,
                own, own_mean, part, part_linear, precision, linear,
            )  # fmt: skip
        else:
            loss[i] = _walk_diagonal(
                start[i], start[i + 1], index, sign, weight, other, table[i], slots, code,
                own, own_mean, part, part_linear, precision, linear,
            )  # fmt: skip
        if not solve:
            continue
        prior_line = i if prior_precision.shape[0] > 1 else 0
        # The row's factors face slots 0..rank-1 and its effect faces the other side's fixed 1 in the
        # last slot; its own fixed 1 faces the other's effect in slot `rank`, a known offset.
        for a in range(n_free):
            slot = a if a < rank else rank + 1
            for b in range(a + 1):
                facing = b if b < rank else rank + 1
                lower[a, b] = temperature * precision[slot * (slot + 1) // 2 + facing]
            lower[a, a] += prior_precision[prior_line, a]
            offset = (
                precision[slot * (slot + 1) // 2 + rank]
                if slot > rank
                else precision[rank * (rank + 1) // 2 + slot]
            )
            right[a] = temperature * (linear[slot] - offset) + prior_linear[prior_line, a]
        log_determinant[i] = _solve(lower, inverse, right, full, mean[i], covariance[i])
        fill_table(mean[i : i + 1], covariance[i : i + 1], has_effect, full, table[i : i + 1])


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
