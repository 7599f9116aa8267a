"""The compiled passes of the sampler: one fused pass over a side's answers draws every row anew.

A line of a table holds a present draw, ``(factors, 1, effect, 0 ...)`` in single precision, padded to
whole vectors; a score is the product of ``(L_i, a_i, 1)`` with the other side's ``(R_j, 1, b_j)``. For
each answer the pass forms the score, draws the variable that makes the loss Gaussian, and sums up the
precision and the linear term of the row; then it draws the row. Before all that every row moves without
those variables: its length is drawn anew or, now and then, a place on an ellipse through it
(``onebit.engine.sampling.lengths``, ``ellipses``). The variables of the answers are nowhere stored.
Rows do not depend on each other, every random number is a function of its place (``sampling.philox``),
and sums are taken in a fixed order: the chain is the same for any number of threads.

With ``curvature`` w and ``pull`` p the pseudo-likelihood of a score is ``exp(p x - w x^2 / 2)``:

* logistic, ``u`` copies of an answer: ``w ~ PG(u, x)``, ``p = u y / 2``;
* hinge, ``c = T u / 2``, ``v = c (1 - y x)``: ``w = c^2 t`` with ``t`` inverse Gaussian of mean
  ``1 / |v|``, ``p = y (c + w)``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel
from onebit.engine.cpu.vectors import (
    BLOCK,
    LANES,
    TILE,
    four_dots,
    prefetch_lines,
    subtract_products,
    weighted_products16,
    weighted_sum,
)
from onebit.engine.sampling.ellipses import new_angle
from onebit.engine.sampling.lengths import new_length
from onebit.engine.sampling.philox import (
    OF_ELLIPSES,
    OF_LENGTHS,
    OF_ROWS,
    ONE,
    random_words,
    uniform,
    use,
)
from onebit.engine.sampling.variates import inverse_gaussians, normals, polya_gammas
from onebit.model.losses import HINGE_CODE, LOGISTIC_CODE

# A table of more numbers than this is far away; its lines are asked for some answers ahead.
FAR = 250_000
AHEAD = 12
# A curvature above this is summed up in double precision by itself: next to it, those of other answers
# would drown in single precision. Only the hinge loss has such, at scores very near the margin.
HEAVY = 1e3
# Over-relaxation (Adler, 1981): a Gaussian draw keeps this share of the present value's distance from the
# mean, on the other side of it. The distribution stays as it is, and what two sides and the answers'
# variables would approach by a random walk, they approach faster.
OVER = 0.8
# How often a row moves along an ellipse, if there is room for its answers: of many, a step along it is
# short. At other times its length is drawn anew.
ELLIPSES = 0.125

_FAST = {"reassoc", "contract", "arcp", "nsz"}


@kernel(nogil=True, error_model="numpy")
def draw_lanes(lower, right, noise, present, root, inverse):
    """Replace ``right`` by draws from ``N(P^-1 right, P^-1)``, for as many systems as there are lanes.

    With ``P = C C'`` and ``m = P^-1 right``, the draw is ``m + C^-T v``, and its ``v`` is as far on the
    other side of the mean as ``OVER`` says of that of the ``present`` value, and noise for the rest. The
    last axis of every array runs over the systems; ``lower`` holds the lower triangles of ``P``, line by
    line, ``root`` is room like it, ``inverse`` like ``right``. ``present`` is overwritten.
    """
    size = right.shape[0] // LANES
    line = size * LANES
    for a in range(size):
        corner = a * (line + LANES)
        for b in range(a + 1):
            entry = a * line + b * LANES
            for lane in range(LANES):
                root[entry + lane] = lower[entry + lane]
            subtract_products(root, entry, root, a * line, LANES, root, b * line, LANES, b)
            if b < a:
                for lane in range(LANES):
                    root[entry + lane] *= inverse[b * LANES + lane]
        for lane in range(LANES):
            # Positive but for rounding: the prior's precision is on the diagonal.
            root[corner + lane] = math.sqrt(max(root[corner + lane], 1e-300))
            inverse[a * LANES + lane] = 1.0 / root[corner + lane]
        subtract_products(right, a * LANES, root, a * line, LANES, right, 0, LANES, a)
        for lane in range(LANES):
            right[a * LANES + lane] *= inverse[a * LANES + lane]
    for a in range(size):  # C' present, in place: what is still needed is below
        corner = a * (line + LANES)
        for lane in range(LANES):
            present[a * LANES + lane] *= -root[corner + lane]
        subtract_products(
            present, a * LANES, root, corner + line, line, present, (a + 1) * LANES, LANES, size - a - 1
        )
    for at in range(line):
        before = -present[at] - right[at]
        right[at] += math.sqrt(1.0 - OVER * OVER) * noise[at] - OVER * before
    for a in range(size - 1, -1, -1):
        corner = a * (line + LANES)
        subtract_products(
            right, a * LANES, root, corner + line, line, right, (a + 1) * LANES, LANES, size - a - 1
        )
        for lane in range(LANES):
            right[a * LANES + lane] *= inverse[a * LANES + lane]


def evidence_room(rows: int, free: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return room for what the answers say of so many rows: none of it is written where there are none.

    Of the precisions and of the linear terms. A row's numbers are written row by row, and its products
    with one coordinate read at once.
    """
    return np.empty((free, rows, free)), np.empty((rows, free))


@kernel(nogil=True, error_model="numpy", fastmath=_FAST)
def sample_rows(
    begin, end, start, index, sign, weight, copies, other, table, prior_precision, prior_linear,
    temperature, loss, rank, has_effect, hats, key, sweep, side, scales, evidence, evidence_linear, room,
):  # fmt: skip
    """Draw the lines of the groups ``begin:end`` of ``LANES`` rows given the other side's.

    ``weight`` and ``copies`` are empty where all answers count one; ``copies`` are the whole weights
    that the logistic loss can take. ``prior_linear`` has one line for all rows, or one a row. Unless it
    is empty, line ``group`` of ``scales`` receives what the new draws of its rows say of the columns'
    scales ``g`` in ``x = sum_k g_k L_ik R_jk + effects``: with ``z_k = L_ik R_jk``, the sums of
    ``w z z'`` and of ``(p - w effects) z``. ``evidence`` and ``evidence_linear`` receive what the answers
    say of each row, if there is room for it: see ``evidence_room`` and ``trends.Evidence``.
    """
    width = table.shape[1]
    n_free = rank + 1 if has_effect else rank
    of_row, of_answers, variables, of_sums, sums, of_systems, of_chunk, proposals = room
    own, cross, prior_mean = of_row
    parts, fixed, across, before, times = of_answers
    scores, light, pulls, curvatures = variables
    part, tile = of_sums
    precision, linear = sums
    systems, root, sides, pulled, present, inverse, noise = of_systems
    lines, weighted = precision.shape[0], times.shape[0] > 0
    far = other.size > FAR
    none = copies[:0]
    size = start.shape[0] - 1
    for group in range(begin, end):
        count_lanes = min(LANES, size - group * LANES)
        for lane in range(count_lanes):
            i = group * LANES + lane
            for a in range(rank):
                own[a] = table[i, a]
            own[rank] = table[i, rank + 1]  # at the next place is zero: the other's effect is kept apart
            for t in range(width):
                linear[t] = 0.0
                for a in range(lines):
                    precision[a, t] = 0.0
            first, last = start[i], start[i + 1]
            prior_line = i if prior_linear.shape[0] > 1 else 0
            choice = uniform(random_words(key, ONE, i, sweep, use(side, OF_LENGTHS, 0))[0])
            turns = choice < ELLIPSES and last - first <= across.shape[0]
            if turns:
                for a in range(n_free):
                    prior_mean[a] = prior_linear[prior_line, a] / prior_precision[a]
                for a in range(0, n_free, 2):
                    one, two = normals(key, a, i, sweep, side, OF_ELLIPSES)
                    cross[a] = one / math.sqrt(prior_precision[a])
                    if a + 1 < n_free:
                        cross[a + 1] = two / math.sqrt(prior_precision[a + 1])
            for k in range(first, last, 4):
                if far:
                    prefetch_lines(other, index, k + AHEAD, k + AHEAD + 4)
                four_dots(own, other, index, k, last - 1, 0, parts, k - first)
                if turns:
                    four_dots(cross, other, index, k, last - 1, 0, across, k - first)
                    four_dots(prior_mean, other, index, k, last - 1, 0, before, k - first)
            for k in range(first, last):
                fixed[k - first] = other[np.uint32(index[k]), rank + 1]
                if weighted:
                    if loss == LOGISTIC_CODE:
                        times[k - first] = copies[k]
                    else:
                        times[k - first] = temperature * (weight[k] if weight.shape[0] > 0 else 1.0)
            if turns:
                for k in range(last - first):
                    parts[k] -= before[k]
                    before[k] += fixed[k]
                drawn = last - first, parts, across, before, sign[first:last], times
                angle = new_angle(drawn, loss, key, i, sweep, side, of_chunk)
                cosine, sine = np.float32(math.cos(angle)), np.float32(math.sin(angle))
                for a in range(n_free):
                    own[a] = prior_mean[a] + cosine * (own[a] - prior_mean[a]) + sine * cross[a]
                for k in range(last - first):
                    parts[k] = before[k] - fixed[k] + cosine * parts[k] + sine * across[k]
            else:
                square, line = 0.0, 0.0
                for a in range(n_free):
                    square += prior_precision[a] * own[a] * own[a]
                    line += prior_linear[prior_line, a] * own[a]
                answers = last - first, parts, fixed, sign[first:last], times
                length = np.float32(
                    new_length(n_free, square, line, answers, loss, key, i, sweep, side, of_chunk)
                )
                for a in range(n_free):
                    own[a] *= length
                for k in range(last - first):
                    parts[k] *= length
            for chunk in range(first, last, scores.shape[0]):
                count = min(scores.shape[0], last - chunk)
                if far:  # of a long row they have left the caches again
                    prefetch_lines(other, index, chunk, chunk + count)
                for k in range(count):
                    scores[k] = parts[chunk - first + k] + fixed[chunk - first + k]
                if loss == LOGISTIC_CODE:
                    repeated = none if copies.shape[0] == 0 else copies[chunk : chunk + count]
                    polya_gammas(
                        hats, count, scores, repeated, key, chunk - first, i, sweep, side, proposals,
                        curvatures,
                    )  # fmt: skip
                    for k in range(count):
                        u = float(copies[chunk + k]) if copies.shape[0] > 0 else 1.0
                        pulls[k] = 0.5 * u * sign[chunk + k]
                else:
                    for k in range(count):
                        c = 0.5 * temperature
                        if weight.shape[0] > 0:
                            c *= weight[chunk + k]
                        pulls[k] = c
                        scores[k] = c * abs(1.0 - sign[chunk + k] * scores[k])
                    inverse_gaussians(count, scores, key, chunk - first, i, sweep, side, curvatures)
                    for k in range(count):
                        c = float(pulls[k])
                        curvatures[k] *= c * c
                        pulls[k] = sign[chunk + k] * c
                if loss == LOGISTIC_CODE and copies.shape[0] == 0:  # none of them is heavy
                    for k in range(count):
                        w_light = np.float32(curvatures[k])
                        light[k] = w_light
                        pulls[k] -= w_light * fixed[chunk - first + k]
                else:
                    for k in range(count):
                        w = curvatures[k]
                        j = np.uint32(index[chunk + k])
                        offset = float(fixed[chunk - first + k])
                        pull = float(pulls[k]) - w * offset
                        if loss == HINGE_CODE:
                            pull += sign[chunk + k] * w
                        if w < HEAVY:
                            light[k], pulls[k] = w, pull
                            continue
                        light[k], pulls[k] = 0.0, 0.0
                        for a in range(n_free):
                            linear[a] += pull * other[j, a]
                            for b in range(a + 1):
                                precision[a, b] += w * other[j, a] * other[j, b]
                for a in range(0, n_free, TILE):
                    for b in range(0, a + TILE, BLOCK):
                        weighted_products16(light, count, other, index, chunk, a, b, tile)
                        for t in range(TILE):
                            for at in range(BLOCK):
                                precision[a + t, b + at] += tile[t * BLOCK + at]
                weighted_sum(pulls, count, other, index, chunk, 0, width, part)
                for at in range(width):
                    linear[at] += part[at]
            for a in range(n_free):
                entry = a * n_free * LANES + lane
                for b in range(a + 1):
                    systems[entry + b * LANES] = precision[a, b]
                systems[entry + a * LANES] += prior_precision[a]
                sides[a * LANES + lane] = linear[a] + prior_linear[prior_line, a]
                pulled[a * LANES + lane] = linear[a]
                if evidence_linear.shape[0] > 0:
                    evidence_linear[i, a] = linear[a]
                    for b in range(a + 1):
                        evidence[a, i, b] = evidence[b, i, a] = precision[a, b]
                present[a * LANES + lane] = own[a]
            for a in range(0, n_free, 2):
                one, two = normals(key, a, i, sweep, side, OF_ROWS)
                noise[a * LANES + lane], noise[(a + 1) * LANES + lane] = one, two
        for lane in range(count_lanes, LANES):  # lanes without a row solve something harmless
            for a in range(n_free):
                for b in range(a + 1):
                    systems[(a * n_free + b) * LANES + lane] = 1.0 if a == b else 0.0
        draw_lanes(systems, sides, noise, present, root, inverse)
        for lane in range(count_lanes):
            for a in range(rank):
                table[group * LANES + lane, a] = sides[a * LANES + lane]
            if has_effect:
                table[group * LANES + lane, rank + 1] = sides[rank * LANES + lane]
        if scales.shape[0] == 0:
            continue
        line = scales[group]
        for t in range(line.size):
            line[t] = 0.0
        for lane in range(count_lanes):
            effect = sides[rank * LANES + lane] if has_effect else 0.0
            for a in range(rank):
                own_a = sides[a * LANES + lane]
                pull = pulled[a * LANES + lane]
                if has_effect:
                    pull -= effect * systems[(rank * n_free + a) * LANES + lane]
                line[rank * rank + a] += own_a * pull
                for b in range(a + 1):
                    curvature = systems[(a * n_free + b) * LANES + lane]
                    if a == b:
                        curvature -= prior_precision[a]
                    line[a * rank + b] += own_a * curvature * sides[b * LANES + lane]
