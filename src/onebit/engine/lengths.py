"""A row's length, drawn anew without the variables of its answers.

Given those, a large score moves by small steps only: a row whose answers hardly limit it (all "yes", or
yes and no along one direction) would creep. So before its answers' variables are drawn, the row
``(L_i, a_i)`` is multiplied by ``exp(s)``. Its part of a score, ``t_j = L_i . R_j + a_i``, goes with it,
and along ``s`` the density is ``n s + sum_j log sigmoid(y_j (exp(s) t_j + b_j))`` plus the prior's terms,
``n`` coordinates being stretched.

A normal proposal is accepted as Metropolis and Hastings say. As a rule its mean is one step of Newton's
method away, and nine in ten are accepted. That does not lead home from far away, where the way back is
unlike the way there: every fourth proposal, at random, is a step of a random walk.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from onebit.engine.counter import OF_LENGTHS, random_words, uniform, use
from onebit.losses import decays

# How often a step is one of a random walk, and its size in standard deviations of the density.
_WALKS, _STRIDE = 0.25, 2.4
# No proposal is farther, whose way back would be as far.
_FARTHEST = 5.0
# Answers at once: the product of as many numbers below two is still a single-precision number.
_CHUNK = 64
_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)


@numba.njit(forceinline=True)
def scratch():
    """Return room for the answers of a chunk."""
    bits = np.empty(_CHUNK, np.int32)
    return (
        np.empty(_CHUNK, np.float32),
        np.empty(_CHUNK, np.float32),
        np.empty(_CHUNK, np.float32),
        bits,
        bits.view(np.float32),
    )


@numba.njit(error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})
def log_density(log_length, free, square, line, count, own, fixed, sign, copies, room):
    """Return the log density along a row's length, its slope, and a curvature that is positive.

    ``free`` coordinates have the prior's terms ``-square g^2 / 2 + line g``; ``own`` and ``fixed`` are
    the parts of the scores that go with the row and that do not.
    """
    margin, size, power, bits, scale = room
    g = math.exp(log_length)
    value = free * log_length + g * (line - 0.5 * square * g)
    slope = free + g * (line - square * g)
    curvature = 2.0 * square * g * g
    length = np.float32(g)
    for begin in range(0, count, _CHUNK):
        here = min(_CHUNK, count - begin)
        for k in range(here):
            margin[k] = np.float32(sign[begin + k]) * (length * own[begin + k] + fixed[begin + k])
            size[k] = abs(margin[k])
        decays(here, size, power, bits)
        if copies.shape[0] > 0:
            for k in range(here):
                decay, times = float(power[k] * scale[k]), float(copies[begin + k])
                part = g * own[begin + k] * sign[begin + k]
                wrong = (decay if margin[k] > 0.0 else 1.0) / (1.0 + decay)
                value -= times * (max(-float(margin[k]), 0.0) + math.log1p(decay))
                slope += times * part * wrong
                curvature += times * part * part * wrong * (1.0 - wrong)
            continue
        product, short, first, second = _ONE, _ZERO, _ZERO, _ZERO
        for k in range(here):
            decay = power[k] * scale[k]
            part = length * own[begin + k] * np.float32(sign[begin + k])
            inverse = _ONE / (_ONE + decay)
            wrong = (decay if margin[k] > _ZERO else _ONE) * inverse
            product *= _ONE + decay
            short += _HALF * (size[k] - margin[k])
            first += part * wrong
            second += part * part * decay * inverse * inverse
        value -= float(short) + math.log(float(product))
        slope += float(first)
        curvature += float(second)
    return value, slope, curvature


@numba.njit(error_model="numpy")
def new_length(free, square, line, count, own, fixed, sign, copies, key, row, sweep, side, room):
    """Return by what to multiply a row: one where a proposal is rejected."""
    value, slope, curvature = log_density(0.0, free, square, line, count, own, fixed, sign, copies, room)
    if not curvature > 0.0:
        return 1.0
    words = random_words(key, 0, row, sweep, use(side, OF_LENGTHS, 0))
    noise = math.sqrt(-2.0 * math.log(uniform(words[0]))) * math.cos(2.0 * math.pi * uniform(words[1]))
    newton, stride = (0.0, _STRIDE) if uniform(words[3]) < _WALKS else (1.0, 1.0)
    step = newton * slope / curvature + stride * noise / math.sqrt(curvature)
    if abs(step) > _FARTHEST:
        return 1.0
    after = log_density(step, free, square, line, count, own, fixed, sign, copies, room)
    back = step + newton * after[1] / after[2]
    gain = after[0] - value + 0.5 * noise * noise + 0.5 * math.log(after[2] / curvature)
    gain -= 0.5 * back * back * after[2] / (stride * stride)
    # A comparison with NaN is false.
    return math.exp(step) if math.log(uniform(words[2])) < gain else 1.0


@numba.njit(cache=True, error_model="numpy")
def draw_lengths(free, square, line, own, fixed, sign, copies, key, sweep, out):
    """Fill ``out`` with the lengths of one row, each drawn from the one before."""
    length, room = 1.0, scratch()
    for k in range(out.shape[0]):
        scaled = (own * length).astype(np.float32)
        length *= new_length(
            free, square * length * length, line * length, own.shape[0], scaled, fixed, sign,
            copies, key, k, sweep, 0, room,
        )  # fmt: skip
        out[k] = length
