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
for both uses. Sums run in single precision over a chunk, then in double. What is worked with on the way
stands in a ``room`` (``onebit.engine.cpu.room``), one for each task.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from onebit.data.kernels import kernel, within_kernels
from onebit.engine.cpu.solve import solve_lanes
from onebit.engine.cpu.vectors import (
    BLOCK,
    LANES,
    dot16,
    four_dots,
    prefetch_lines,
    weighted_sum,
)
from onebit.model.losses import majorise

# How many numbers of the other side's table the answers of a chunk may refer to.
CACHED = 8192
# A table of more numbers than this is far away; its lines are asked for some answers ahead.
FAR = 250_000
AHEAD = 8
# Steps of conjugate gradients that a row of the diagonal family takes towards its best mean in a round.
STEPS = 3

# What may be reordered: enough to vectorise the dot products; infinities and NaN keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}


@kernel(nogil=True, error_model="numpy")
def fill_table(begin, end, mean, covariance, has_effect, full, vector, table):
    """Write the table lines that belong to the means and covariances of rows ``begin:end``.

    ``vector`` is room for a row's own.
    """
    n_free = mean.shape[1]
    slots = n_free + (1 if has_effect else 2)
    part = table.shape[1] // 3
    vector[n_free] = 0.0
    vector[slots - 1] = 1.0
    for i in range(begin, end):
        for a in range(n_free):
            vector[a] = mean[i, a]
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


@within_kernels(forceinline=True, error_model="numpy")
def add_lines(values, count, vectors, index, chunk, scale, part, out):
    """Add ``scale`` times the lines of a chunk of answers, weighted by ``values``, to ``out``."""
    weighted_sum(values, count, vectors, index, chunk, 0, vectors.shape[1], part)
    for t in range(vectors.shape[1]):
        out[t] += scale * part[t]


@numba.njit(inline="always", error_model="numpy", fastmath=FAST)
def _mean_product(own_mean, table, line, mean_at):
    """Return the product of the row's mean with one line's, which begins at ``mean_at``."""
    total = np.float32(0.0)
    for at in range(0, own_mean.shape[0], BLOCK):
        total += dot16(own_mean, at, table, np.uint32(line), mean_at + at)
    return total


@numba.njit(inline="always", error_model="numpy", fastmath=FAST)
def walk(
    first, last, index, sign, weight, other, own, own_mean, mean_at, code, full,
    curvatures, sums, linear_sums, room,
):  # fmt: skip
    """Sum up the majorisers of one row's answers, and return their bound.

    ``own`` is what the beginning of the other side's lines is multiplied with to give a score's second
    moment (full covariances) or its variance (diagonal ones), ``own_mean`` the row's mean, which meets
    the lines from ``mean_at`` on. ``sums`` receives the sum of ``curvature line``. ``linear_sums``
    receives that of ``pull mean``; of diagonal covariances the gradient at the present mean,
    ``(pull - curvature score) mean``, and ``curvatures`` the curvature of each answer.
    """
    width, window = own.shape[0], own_mean.shape[0]
    for t in range(width):
        sums[t] = 0.0
    for t in range(window):
        linear_sums[t] = 0.0
    scores, pulls, moments, signs, root, power, part = room
    total = 0.0
    far = other.size > FAR
    size = min(max(CACHED // (mean_at + window), 4), scores.shape[0]) // 4 * 4
    for chunk in range(first, last, size):
        count = min(size, last - chunk)
        for k in range(chunk, chunk + count, 4):
            if far:
                prefetch_lines(other, index, k + AHEAD, k + AHEAD + 4)
            four_dots(own, other, index, k, chunk + count - 1, 0, moments, k - chunk)
            four_dots(own_mean, other, index, k, chunk + count - 1, mean_at, scores, k - chunk)
        for k in range(count):
            pulls[k] = scores[k]
        if not full:
            for k in range(count):
                moments[k] += scores[k] * scores[k]
        total += majorise(code, chunk, count, sign, weight, pulls, moments, signs, root, power)
        if not full:
            for k in range(count):
                pulls[k] -= moments[k] * scores[k]
                curvatures[chunk - first + k] = moments[k]
        weighted_sum(moments, count, other, index, chunk, 0, width, part)
        for t in range(width):
            sums[t] += part[t]
        weighted_sum(pulls, count, other, index, chunk, mean_at, window, part)
        for t in range(window):
            linear_sums[t] += part[t]
    return total


@numba.njit(inline="always", error_model="numpy", fastmath=FAST)
def move(
    group, count, sides, systems, determinants, relaxation, mean, covariance, log_determinant,
    has_effect, vector, table,
):  # fmt: skip
    """Move the rows from ``group`` on to where their solved systems say, and write their table lines."""
    n_free = mean.shape[1]
    for lane in range(count):
        i = group + lane
        log_determinant[i] = determinants[lane]
        t = 0
        for a in range(n_free):
            mean[i, a] += relaxation * (sides[a * LANES + lane] - mean[i, a])
            for b in range(a + 1):
                covariance[i, t] = systems[(a * n_free + b) * LANES + lane]
                t += 1
    full = count > 0  # a literal would have a second copy compiled
    fill_table(group, group + count, mean, covariance, has_effect, full, vector, table)


@kernel(nogil=True, error_model="numpy", fastmath=FAST)
def update_full(
    begin, end, start, index, sign, weight, other, table, mean, covariance, log_determinant, loss,
    prior_precision, prior_linear, temperature, code, has_effect, layout, solve, relaxation, room,
):  # fmt: skip
    """Sum the loss of rows ``begin:end`` at their present state and, if ``solve``, update them.

    ``mean``, ``covariance`` (both double), ``log_determinant`` and ``table`` are written in place;
    ``loss`` receives the bound on the loss *before* the update. ``prior_precision`` and
    ``prior_linear`` each have one line for all rows, or one a row. Full covariances: each row goes to the
    minimum of its majoriser; the small systems of several rows are solved at once. The means go
    ``relaxation`` times as far: up to twice, a quadratic is lower there than where they came from.
    """
    n_free = mean.shape[1]
    of_chunk, of_row, none, of_systems = room
    own, own_mean, precision, linear = of_row
    systems, root, inverse, sides, product, determinants, vector = of_systems
    for group in range(begin, end, LANES):
        count = min(LANES, end - group)
        for lane in range(count):
            i = group + lane
            for t in range(layout.own.shape[0]):
                own[t] = table[i, layout.own[t]] * layout.times[t]
            for t in range(layout.own_mean.shape[0]):
                if layout.own_mean[t] >= 0:
                    own_mean[t] = table[i, layout.own_mean[t]]
            loss[i] = walk(
                start[i], start[i + 1], index, sign, weight, other, own, own_mean, layout.mean_at, code,
                True, none, precision, linear, of_chunk,
            )  # fmt: skip
            if not solve:
                continue
            prior_line = i if prior_precision.shape[0] > 1 else 0
            linear_line = i if prior_linear.shape[0] > 1 else 0
            t = 0
            for a in range(n_free):
                at = a * n_free * LANES + lane
                for b in range(a + 1):
                    systems[at + b * LANES] = temperature * precision[layout.precision[t]]
                    t += 1
                systems[at + a * LANES] += prior_precision[prior_line, a]
                # Its own fixed 1 faces the other side's effect: a known offset.
                pull = linear[layout.linear[a]] - precision[layout.offset[a]]
                sides[a * LANES + lane] = temperature * pull + prior_linear[linear_line, a]
        if not solve:
            continue
        for lane in range(count, LANES):  # lanes without a row solve something harmless
            for a in range(n_free):
                for b in range(a + 1):
                    systems[(a * n_free + b) * LANES + lane] = 1.0 if a == b else 0.0
        solve_lanes(systems, sides, root, inverse, product, determinants)
        move(
            group, count, sides, systems, determinants, relaxation, mean, covariance, log_determinant,
            has_effect, vector, table,
        )  # fmt: skip


@within_kernels(forceinline=True, error_model="numpy", fastmath=FAST)
def _walk_along(first, last, index, other, direction, mean_at, curvatures, sums, scaled, part):
    """Write the sum of ``curvature (mean . direction) mean`` over one row's answers to ``sums``."""
    window = direction.shape[0]
    for t in range(window):
        sums[t] = 0.0
    size = min(max(CACHED // window, 4), scaled.shape[0])
    for chunk in range(first, last, size):
        count = min(size, last - chunk)
        for k in range(count):
            along = _mean_product(direction, other, index[chunk + k], mean_at)
            scaled[k] = curvatures[chunk - first + k] * along
        weighted_sum(scaled, count, other, index, chunk, mean_at, window, part)
        for t in range(window):
            sums[t] += part[t]


@kernel(nogil=True, error_model="numpy", fastmath=FAST)
def update_diagonal(
    begin, end, start, index, sign, weight, other, table, mean, covariance, log_determinant, loss,
    prior_precision, prior_linear, temperature, code, has_effect, layout, solve, relaxation, room,
):  # fmt: skip
    """Like ``update_full`` for diagonal covariances, in time that grows with K, not with its square.

    The variances go to their minimum; the mean takes a few steps of conjugate gradients towards its own,
    each of which lowers the majoriser.
    """
    n_free = mean.shape[1]
    mean_at = layout.mean_at
    window = mean_at // 2
    of_chunk, of_row, curvatures, along_room, diagonal, residual, step, image, vector = room
    own, own_mean, sums, gradient = of_row
    direction, product, scaled = along_room
    for i in range(begin, end):
        for a in range(layout.own.shape[0]):
            facing = layout.own[a]
            own_mean[a] = table[i, mean_at + facing]
            own[a] = table[i, window + facing]  # its variance meets the squares of the other's means,
            own[window + a] = table[i, facing] + own[a]  # its second moment the other's variances
        loss[i] = walk(
            start[i], start[i + 1], index, sign, weight, other, own, own_mean, mean_at, code, False,
            curvatures, sums, gradient, of_chunk,
        )  # fmt: skip
        if not solve:
            continue
        prior_line = i if prior_precision.shape[0] > 1 else 0
        linear_line = i if prior_linear.shape[0] > 1 else 0
        alignment = 0.0  # of the residual with itself, preconditioned
        log_determinant[i] = 0.0
        for a in range(n_free):
            slot = layout.linear[a]
            precision, spread = prior_precision[prior_line, a], sums[window + slot]
            pull = temperature * (gradient[slot] - spread * mean[i, a])
            diagonal[a] = temperature * (sums[slot] + spread) + precision
            residual[a] = pull - precision * mean[i, a] + prior_linear[linear_line, a]
            step[a] = residual[a] / diagonal[a]
            alignment += residual[a] * step[a]
            covariance[i, a] = 1.0 / diagonal[a]
            log_determinant[i] -= math.log(diagonal[a])
        for _ in range(min(STEPS, n_free)):
            if not alignment > 0.0:
                break
            for a in range(n_free):
                direction[layout.linear[a]] = step[a]
            _walk_along(
                start[i], start[i + 1], index, other, direction, mean_at, curvatures, product, scaled,
                of_chunk[-1],
            )  # fmt: skip
            along = 0.0
            for a in range(n_free):
                slot = layout.linear[a]
                image[a] = temperature * (product[slot] + sums[window + slot] * step[a])
                image[a] += prior_precision[prior_line, a] * step[a]
                along += image[a] * step[a]
            length = alignment / along
            before, alignment = alignment, 0.0
            for a in range(n_free):
                mean[i, a] += relaxation * length * step[a]
                residual[a] -= length * image[a]
                alignment += residual[a] * residual[a] / diagonal[a]
            for a in range(n_free):
                step[a] = residual[a] / diagonal[a] + alignment / before * step[a]
        fill_table(i, i + 1, mean, covariance, has_effect, False, vector, table)
