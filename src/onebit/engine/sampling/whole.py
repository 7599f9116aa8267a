"""Moves of the whole at once, without the variables of the answers.

Rows given columns, and columns given rows, creep along directions in which everything moves together:
the spread of all row effects, that of all column effects, the size of a column of factors, the level.
Given the answers' variables they creep more still. Each of these directions is the orbit of a group: with
``e^s`` the effects of a side (around their centre) and ``e^(2 s)`` their variance; with ``e^(t/2)`` a
column of both sides' factors and with ``e^t`` its variance; and a shift of effects and intercept. Along
them the prior of what is standardised stays as it is, and the likelihood is that of a logistic regression
with few coefficients,

    ``x_ij = level + e^s1 (a_i - c1) + e^s2 (b_j - c2) + sum_k e^t_k L_ik R_jk``,

whose value, slope and curvature are sums over the answers. A step of Newton's method with noise of its
curvature is proposed, for all directions together, and accepted as Metropolis and Hastings say. They ask
of the curvature only that it is the same function of the state each time: where answers are many, it is
that of some of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel
from onebit.engine.cpu.threads import Threads
from onebit.engine.cpu.vectors import BLOCK, TILE, products16, weighted_products16, weighted_sum
from onebit.engine.sampling.room import whole_room
from onebit.engine.sampling.target import Target
from onebit.model.losses import LOGISTIC_CODE, decays

Array = NDArray[np.float64]

# The curvature is that of one chunk in so many, as long as it is of so many answers.
_SPARSEST, _ENOUGH = 16, 16_384
# The hinge loss bends at one only: how near to it a margin counts for the curvature.
_NEAR = np.float32(0.5)
_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)


@dataclass(frozen=True)
class Along:
    """The log-likelihood along the directions of the whole: value, slope, and curvature (positive).

    The curvature may be that of a part of the answers, as if all were like them.

    The directions are the scales of the columns of factors, of the row effects and of the column effects
    (logarithms all), and the level.
    """

    value: float
    slope: Array
    curvature: Array

    @classmethod
    def of(cls, sums: Array, rank: int) -> Along:
        """Take the sums apart that a pass over the answers has written."""
        size = rank + 3
        curvature = sums[1 + size :].reshape(size, size)
        curvature = np.tril(curvature) + np.tril(curvature, -1).T
        return cls(float(sums[0]), sums[1 : 1 + size], curvature)


@kernel(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})
def along_blocks(
    begin, end, cuts, start, index, sign, weight, copies, own_table, other, rank, scale, level,
    own_centre, other_centre, temperature, loss, stride, weighted, room, out,
):  # fmt: skip
    """Write the sums of the answers of some blocks of rows, a line a block.

    Of each block, one chunk in ``stride`` counts for the curvature, and for the others.
    """
    products, places, slopes, bends, times, signs, part, tile, curvature, slope, own, of_chunk = room
    margin, away, decay, _ = of_chunk
    size, lines, width, wide = rank + 3, curvature.shape[0], curvature.shape[1], other.shape[1]
    # Of centred column effects, what is gathered is the effect itself.
    moved = np.float32(other_centre * scale[rank + 1])
    base = np.float32(level) - moved
    for block in range(begin, end):
        for t in range(width):
            slope[t] = 0.0
            for a in range(lines):
                curvature[a, t] = 0.0
        value, count, chunk, bent = 0.0, 0, 0, 0
        for i in range(cuts[block], cuts[block + 1]):
            for a in range(rank):
                own[a] = own_table[i, a] * np.float32(scale[a])
            own[rank] = (own_table[i, rank + 1] - np.float32(own_centre)) * np.float32(scale[rank])
            own[rank + 1] = np.float32(scale[rank + 1])
            last_row = i + 1 == cuts[block + 1]
            for k in range(start[i], start[i + 1]):
                j = np.uint32(index[k])
                score = base
                for at in range(0, wide, BLOCK):
                    score += products16(own, at, other, j, at, products, count)
                products[count, rank + 1] -= moved
                products[count, rank + 2] = _ONE
                signs[count] = sign[k]
                if weighted:
                    if loss == LOGISTIC_CODE:
                        times[count] = copies[k]
                    else:
                        times[count] = temperature * (weight[k] if weight.shape[0] > 0 else 1.0)
                margin[count] = signs[count] * score
                away[count] = abs(margin[count])
                count += 1
                if count < margin.shape[0] and not (last_row and k + 1 == start[i + 1]):
                    continue
                if loss == LOGISTIC_CODE:
                    decays(count, away, decay)
                    short, product = _ZERO, _ONE
                    for t in range(count):
                        u = times[t] if weighted else _ONE
                        inverse = _ONE / (_ONE + decay[t])
                        wrong = (decay[t] if margin[t] > _ZERO else _ONE) * inverse
                        short += u * _HALF * (away[t] - margin[t])
                        product *= _ONE if weighted else _ONE + decay[t]
                        slopes[t] = u * signs[t] * wrong
                        bends[t] = u * decay[t] * inverse * inverse
                    value -= float(short) + math.log(float(product))
                    if weighted:
                        for t in range(count):
                            value -= float(times[t]) * math.log1p(float(decay[t]))
                else:
                    for t in range(count):
                        u = times[t] if weighted else _ONE
                        left = _ONE - margin[t]
                        value -= float(u * max(left, _ZERO))
                        slopes[t] = u * signs[t] if left > _ZERO else _ZERO
                        bends[t] = u if abs(left) < _NEAR else _ZERO
                if chunk % stride == 0:
                    bent += count
                    for a in range(0, size, TILE):
                        for b in range(0, a + TILE, BLOCK):
                            weighted_products16(bends, count, products, places, 0, a, b, tile)
                            for t in range(TILE):
                                for at in range(BLOCK):
                                    curvature[a + t, b + at] += tile[t * BLOCK + at]
                weighted_sum(slopes, count, products, places, 0, 0, width, part)
                for at in range(width):
                    slope[at] += part[at]
                count = 0
                chunk += 1
        every = (start[cuts[block + 1]] - start[cuts[block]]) / max(bent, 1)
        # A block may end in rows without answers.
        line = out[block]
        line[0] = value
        for a in range(size):
            line[1 + a] = slope[a]
            for b in range(size):
                line[1 + size + a * size + b] = every * curvature[a, b] if b <= a else 0.0


def stride_of(answers: int) -> int:
    """Return of how many chunks one tells of the curvature."""
    return min(max(answers // _ENOUGH, 1), _SPARSEST)


def along(
    target: Target, tables: list[NDArray[np.float32]], scale: Array, level: float,
    centres: tuple[float, float], pool: Threads,
) -> Along:  # fmt: skip
    """Return the log-likelihood where the whole is changed, and how it bends."""
    view, rank = target.views[0], target.hierarchy.rank
    cuts = target.blocks
    stride = stride_of(len(view.index))
    out = np.empty((len(cuts) - 1, 1 + (rank + 3) + (rank + 3) ** 2))

    def task(begin: int, end: int) -> None:
        along_blocks(
            begin, end, cuts, view.start, view.index, view.sign, view.weight, target.copies[0],
            tables[0], tables[1], rank, scale, level, *centres, target.temperature,
            target.loss.code, stride, target.weighs(0), whole_room(rank, tables[1].shape[1]), out,
        )  # fmt: skip

    pool.ranges(task, view.start[cuts])
    return Along.of(out.sum(axis=0), rank)
