"""A row's length, drawn anew without the variables of its answers.

Given those, a large score moves by small steps only: a row whose answers hardly limit it (all "yes", or
yes and no along one direction) would creep. So before its answers' variables are drawn, the row
``(L_i, a_i)`` is multiplied by ``exp(s)``. Its part of a score, ``t_j = L_i . R_j + a_i``, goes with it,
and along ``s`` the log density is ``n s - sum_j loss(y_j (exp(s) t_j + b_j))`` plus the prior's terms,
``n`` coordinates being stretched.

A normal proposal is accepted as Metropolis and Hastings say. As a rule its mean is one step of Newton's
method away, and most are accepted. That does not lead home from far away, where the way back is unlike
the way there: every fourth proposal, at random, is a step of a random walk.
"""

from __future__ import annotations

import math

import numpy as np

from onebit.data.kernels import kernel, within_kernels
from onebit.engine.sampling.philox import OF_LENGTHS, ZERO, random_words, uniform, use
from onebit.model.losses import LOGISTIC_CODE, decays

# How often a step is one of a random walk, and its size in standard deviations of the density.
_WALKS, _STRIDE = 0.25, 2.4
# No proposal is farther, whose way back would be as far.
_FARTHEST = 5.0
# Scores of a whole vector of the widest instructions; and a margin whose loss is zero (single precision).
_WHOLE, _BEYOND_DOUBT = 16, np.float32(100.0)
# The hinge loss bends at one only: how near to it a margin counts for the curvature.
_NEAR = np.float32(0.5)
_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)


@within_kernels(forceinline=True)
def filled_up(here, margin, size, part):
    """Fill a chunk up to a whole vector with answers that are right beyond doubt; return its end.

    They add nothing. What is left over from whole vectors would go one by one, and take as long.
    """
    whole = (here + _WHOLE - 1) // _WHOLE * _WHOLE
    for k in range(here, whole):
        margin[k], size[k], part[k] = _BEYOND_DOUBT, _BEYOND_DOUBT, _ZERO
    return whole


@within_kernels(error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})
def log_density(log_length, free, square, line, answers, loss, room):
    """Return the log density along a row's length, its slope, and a curvature that is positive.

    ``free`` coordinates have the prior's terms ``-square g^2 / 2 + line g``. Of the ``answers`` there are
    their number, the parts of their scores that go with the row and that do not, their signs and how
    much each counts (nothing where all count one).
    """
    count, own, fixed, sign, times = answers
    margin, size, decay, part = room
    weighted = times.shape[0] > 0
    g = math.exp(log_length)
    value = free * log_length + g * (line - 0.5 * square * g)
    slope = free + g * (line - square * g)
    # At least what keeps steps below the size of a short row.
    curvature = free + 2.0 * square * g * g
    length = np.float32(g)
    for begin in range(0, count, margin.shape[0]):
        here = min(margin.shape[0], count - begin)
        for k in range(here):
            y = np.float32(sign[begin + k])
            margin[k] = y * (length * own[begin + k] + fixed[begin + k])
            size[k] = abs(margin[k])
            part[k] = y * length * own[begin + k]
        product, short, first, second = _ONE, _ZERO, _ZERO, _ZERO
        if loss == LOGISTIC_CODE:
            whole = here if weighted else filled_up(here, margin, size, part)
            decays(whole, size, decay)
            for k in range(whole):
                u = times[begin + k] if weighted else _ONE
                inverse = _ONE / (_ONE + decay[k])
                wrong = (decay[k] if margin[k] > _ZERO else _ONE) * inverse
                product *= _ONE if weighted else _ONE + decay[k]
                short += u * _HALF * (size[k] - margin[k])
                first += u * part[k] * wrong
                second += u * part[k] * part[k] * decay[k] * inverse * inverse
            if weighted:
                for k in range(here):
                    value -= float(times[begin + k]) * math.log1p(float(decay[k]))
        else:
            for k in range(here):
                u = times[begin + k] if weighted else _ONE
                left = _ONE - margin[k]
                short += u * max(left, _ZERO)
                first += u * part[k] if left > _ZERO else _ZERO
                second += u * part[k] * part[k] if abs(left) < _NEAR else _ZERO
        value -= float(short) + math.log(float(product))
        slope += float(first)
        curvature += float(second)
    return value, slope, curvature


@within_kernels(error_model="numpy")
def new_length(free, square, line, answers, loss, key, row, sweep, side, room):
    """Return by what to multiply a row: one where a proposal is rejected."""
    if square == 0.0:  # all its coordinates are zero, or it has none
        return 1.0
    value, slope, curvature = log_density(0.0, free, square, line, answers, loss, room)
    words = random_words(key, ZERO, row, sweep, use(side, OF_LENGTHS, 0))
    noise = math.sqrt(-2.0 * math.log(uniform(words[0]))) * math.cos(2.0 * math.pi * uniform(words[1]))
    newton, stride = (0.0, _STRIDE) if uniform(words[3]) < _WALKS else (1.0, 1.0)
    step = newton * slope / curvature + stride * noise / math.sqrt(curvature)
    if abs(step) > _FARTHEST:
        return 1.0
    after = log_density(step, free, square, line, answers, loss, room)
    back = step + newton * after[1] / after[2]
    gain = after[0] - value + 0.5 * noise * noise + 0.5 * math.log(after[2] / curvature)
    gain -= 0.5 * back * back * after[2] / (stride * stride)
    # A comparison with NaN is false.
    return math.exp(step) if math.log(uniform(words[2])) < gain else 1.0


@kernel(error_model="numpy")
def draw_lengths(free, square, line, own, fixed, sign, times, loss, key, sweep, room, out):
    """Fill ``out`` with the lengths of one row, each drawn from the one before."""
    length = 1.0
    for k in range(out.shape[0]):
        answers = own.shape[0], (own * length).astype(np.float32), fixed, sign, times
        length *= new_length(
            free, square * length * length, line * length, answers, loss, key, k, sweep, 0, room
        )
        out[k] = length
