"""Exact draws of the variables that make a loss Gaussian.

* Logistic loss: Polya-Gamma variables (Polson, Scott and Windle, 2013). ``PG(1, z)`` is a quarter of
  Devroye's variable with density ``cosh(h) exp(-h^2 x / 2) f(x)``, ``h = |z| / 2``, where ``f`` has two
  alternating series that converge at once. We draw it by rejection from a hat of some hundred strips of
  equal area, one hat for each of a grid of tilts ``h0 <= h``: nine draws in ten cost one comparison
  with a bound on the density, and the others evaluate it. Beyond the grid the hat is an inverse
  Gaussian's density, whose draws are taken but for an event of probability 2e-9. No approximation is
  involved but for the rounding of single precision; the grid only moves work.
* Hinge loss: ``exp(-2 max(0, v))`` is a mixture of normal distributions of ``v`` over ``N(-s, s)``
  (Polson and Scott, 2011), and ``1 / s`` given ``v`` is inverse Gaussian with mean ``1 / |v|`` and
  shape one.

The loops run over the answers of a chunk: called for one answer at a time they would count references to
the hats each time, which costs more than a draw.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel, within_kernels
from onebit.engine.sampling.philox import (
    OF_ANSWERS,
    OF_ROWS,
    ONE,
    fine_uniform,
    random_words,
    uniform,
    use,
)

Array = NDArray[np.float64]

# Where the two series of the density take turns (Devroye, 2009).
_CUT = 0.64
# The tilts that have a hat of their own, the area of a strip and room for all strips of a hat. Beyond the
# last tilt (scores above 20) draws have a hat without strips.
_TILTS_PER_UNIT = 16
_TILTS = 160
_AREA = 1.0 / 144.0
_STRIPS = 160
# From here on the first term of the second series is a bound on the density.
_TAIL_FROM = 0.2
# What a strip's four numbers are: its left edge, its width, and a bound from below on the share of its
# hat that is under the density. The last strip is the tail, whose bound is zero.
_LEFT, _WIDTH, _SQUEEZE = range(3)
# What a hat's line of ``tails`` holds: its strips, where its tail begins, one over the density's factor.
_COUNT, _FROM, _SCALE = range(3)
# Edges are kept in single precision: hats are that much higher, and bounds that much lower.
_HIGHER, _LOWER = 1.0 + 1e-6, 1.0 - 1e-5
# One random word picks strip and place: the strips (and the tail, as a share of one) as a fixed-point
# number with this many bits behind the point.
_POINT = 23
# Beyond this a chain has diverged: its draws are no numbers. And up to here draws of the inverse Gaussian
# are taken, with an error below 2^-32.
_DIVERGED, _SURE = np.float32(1e8), 0.15
# Proposals that a copy of a draw may need; each is rejected once in twenty times.
_COPY_BITS = 6
LARGEST_COPIES = 10_000
# Proposals in a row that may be rejected, an event of probability below 1e-80: the mean stands in then,
# so that a loop ends whatever the numbers are.
_MOST_PROPOSALS = 63

# Numbers in single precision. The root of one half as an integer, and the bits of a mantissa.
_ONE, _TWO, _HALF, _NAN = (np.float32(value) for value in (1.0, 2.0, 0.5, math.nan))
_UNIT, _WORD, _LN_2 = np.float32(2.0**-32), np.int32(32), np.float32(math.log(2.0))
_ROOT_HALF, _MANTISSA = np.float32(math.sqrt(0.5)).view(np.int32), np.int32(23)
# Of 2 artanh(s) / s in s^2, and of cos(pi x) in x^2.
_L3, _L5, _L7, _L9 = (np.float32(2.0 / k) for k in (3, 5, 7, 9))
_C2, _C4, _C6, _C8, _C10, _C12 = (
    np.float32((-1) ** (k // 2) * math.pi**k / math.factorial(k)) for k in (2, 4, 6, 8, 10, 12)
)


@within_kernels(forceinline=True, error_model="numpy")
def _density(x):
    """Return ``f(x)``: four terms of either series leave an error below ``1e-25``.

    Both are ``sum (-1)^n (2 n + 1) q^((2 n + 1)^2)`` times a factor.
    """
    if x > _CUT:
        q = math.exp(-0.125 * math.pi * math.pi * x)
        factor = 0.5 * math.pi
    else:
        q = math.exp(-0.5 / x)
        ratio = 2.0 / (math.pi * x)
        factor = 0.5 * math.pi * ratio * math.sqrt(ratio)
    square = q * q
    eighth = square * square * square * square
    third = eighth * eighth * eighth
    return factor * q * (1.0 - 3.0 * eighth + third * (5.0 - 7.0 * third))


@within_kernels(error_model="numpy")
def _tilted_density(tilt, x):
    return math.cosh(tilt) * math.exp(-0.5 * tilt * tilt * x) * _density(x)


@kernel(error_model="numpy")
def _hats(strips, totals, tails):
    """Fill the hats of all tilts."""
    edges = np.zeros(2 * _STRIPS)
    for number in range(totals.shape[0]):
        tilt = number / _TILTS_PER_UNIT
        low, high = 1e-3, 1.0
        for _ in range(60):  # the density has one mode
            third = (high - low) / 3.0
            if _tilted_density(tilt, low + third) < _tilted_density(tilt, high - third):
                low += third
            else:
                high -= third
        mode = 0.5 * (low + high)
        # A little above what is computed: the mode and the density have rounding errors.
        right, count = mode, 0
        while right > 0.0:  # up to the mode, the highest point of a strip is its right end
            count += 1
            edges[_STRIPS - count] = right
            right -= min(_AREA / (_HIGHER * _tilted_density(tilt, right)), right)
        edges[0] = 0.0
        for k in range(count):  # to the left, so that nothing is read after it was written
            edges[k + 1] = edges[_STRIPS - count + k]
        rate = 0.125 * math.pi**2 + 0.5 * tilt * tilt
        while True:
            left = edges[count]
            tail = 0.5 * math.pi * math.cosh(tilt) * math.exp(-rate * left) / rate
            if left >= _TAIL_FROM and tail <= _AREA:
                break
            edges[count + 1] = left + _AREA / (_HIGHER * _tilted_density(tilt, left))
            count += 1
        for strip in range(count):
            left, right = edges[strip], edges[strip + 1]
            lowest = _tilted_density(tilt, right)
            if left < mode:
                lowest = _tilted_density(tilt, left) if left > 0.0 else 0.0
            strips[number, strip, _LEFT] = left
            strips[number, strip, _WIDTH] = right - left
            strips[number, strip, _SQUEEZE] = _LOWER * lowest * (right - left) / _AREA
        totals[number] = np.uint32((count + tail / _AREA) * 2.0**_POINT)
        tails[number, _COUNT] = count
        tails[number, _FROM] = edges[count]
        tails[number, _SCALE] = 1.0 / math.cosh(tilt)


@lru_cache(maxsize=1)
def polya_gamma_hats() -> tuple[NDArray[np.float32], NDArray[np.uint32], Array]:
    """Return the hats that ``polya_gammas`` draws from, made once a process.

    The strips of every tilt, their number as a fixed-point one, and their tails.
    """
    strips = np.zeros((_TILTS, _STRIPS, 4), np.float32)
    totals, tails = np.zeros(_TILTS, np.uint32), np.zeros((_TILTS, 3))
    _hats(strips, totals, tails)
    return strips, totals, tails


@within_kernels(forceinline=True, error_model="numpy")
def _strip(totals, number, word):
    """Return the strip that a word picks, and the place in it between 0 and 1."""
    place = np.uint64(word) * np.uint64(totals[number])
    strip = np.uint32(place >> np.uint64(32 + _POINT))
    within = np.uint32(place >> np.uint64(_POINT))
    return strip, np.float32(within) * np.float32(2.0**-32)


@within_kernels(error_model="numpy")
def _judged(hats, tilt, first, second):
    """Return the draw that two words propose, or a negative number where it is rejected."""
    strips, totals, tails = hats
    number = np.uint32(tilt * _TILTS_PER_UNIT)
    strip, within = _strip(totals, number, first)
    height = uniform(second)
    if strip < tails[number, _COUNT]:
        width = float(strips[number, strip, _WIDTH])
        x = float(strips[number, strip, _LEFT] + strips[number, strip, _WIDTH] * within)
        hat = _AREA / width * tails[number, _SCALE]
    else:
        least = number / _TILTS_PER_UNIT
        rate = 0.125 * math.pi**2 + 0.5 * least * least
        count = np.uint64(tails[number, _COUNT])
        share = (totals[number] - (count << np.uint64(_POINT))) * 2.0**-_POINT
        # The place within the tail's share of a strip, as a number from 0 to 1.
        x = tails[number, _FROM] - math.log(max(1.0 - float(within) / share, 2.0**-26)) / rate
        hat = 0.5 * math.pi * math.exp(-rate * x)
    if x <= 0.0:
        return -1.0
    return x if height * hat <= math.exp(-0.5 * tilt * tilt * x) * _density(x) else -1.0


@within_kernels(forceinline=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})
def _far_proposals(count, tilts, words, draws):
    """Write inverse Gaussian draws of mean ``1 / tilt`` and shape one, from three words each.

    As ``inverse_gaussian``, in loops that turn vector instructions: in single precision, and without
    calls of a library.
    """
    radii, angles, shares, _ = words
    for k in range(count):
        # The logarithm of a uniform number, 2 artanh(s) of its part between two roots of two.
        bits = np.float32(np.float32(radii[k]) + _HALF).view(np.int32)
        exponent = np.int32((bits - _ROOT_HALF) >> _MANTISSA)
        part = np.int32(bits - (exponent << _MANTISSA)).view(np.float32)
        s = (part - _ONE) / (part + _ONE)
        q = s * s
        log = s * (_TWO + q * (_L3 + q * (_L5 + q * (_L7 + q * _L9))))
        log = np.float32(exponent - _WORD) * _LN_2 + log
        # The square of the cosine of twice the angle, which has a period of half a turn.
        turn = np.float32(np.int32(np.uint32(angles[k]) << 1)) * _UNIT
        q = turn * turn
        wave = _ONE + q * (_C2 + q * (_C4 + q * (_C6 + q * (_C8 + q * (_C10 + q * _C12)))))
        half = -log * wave * wave
        tilt = tilts[k]
        x = _ONE / (tilt + half + np.sqrt(half * (half + _TWO * tilt)))
        share = (np.float32(shares[k]) + _HALF) * _UNIT
        other = _ONE / (tilt * tilt * x)
        x = x if share * (_ONE + tilt * x) <= _ONE else other
        draws[k] = x if tilt < _DIVERGED else _NAN  # a diverged chain is to be seen


@within_kernels(error_model="numpy")
def _is_taken(x, word):
    """Say whether an inverse Gaussian draw of mean ``1 / tilt`` and shape one is one of Devroye's.

    His density is the first term of the second series, which is that of the inverse Gaussian, times a
    product of numbers below one. Nearly always it is one: then nothing needs to be reckoned.
    """
    if not x > _SURE:
        return True
    ratio = 2.0 / (math.pi * x)
    return uniform(word) * 0.5 * math.pi * ratio * math.sqrt(ratio) * math.exp(-0.5 / x) <= _density(x)


@within_kernels(error_model="numpy")
def _mean(tilt):
    """Return the mean of the distribution with this tilt."""
    return math.tanh(tilt) / tilt if tilt > 1e-6 else 1.0


@within_kernels(error_model="numpy")
def _far_draw(tilt, key, answer, row, sweep, side, attempt):
    """Draw with a tilt beyond the grid, from proposal ``attempt`` on."""
    if not tilt < _DIVERGED:
        return math.nan
    for _ in range(_MOST_PROPOSALS):
        words = random_words(key, answer, row, sweep, use(side, OF_ANSWERS, attempt))
        wave = math.cos(2.0 * math.pi * uniform(words[1]))
        square = -2.0 * math.log(uniform(words[0])) * wave * wave
        x = inverse_gaussian(tilt, square, uniform(words[2]))
        if _is_taken(x, words[3]):
            return x
        attempt += 1
    return _mean(tilt)


@within_kernels(error_model="numpy")
def _near_draw(hats, tilt, key, answer, row, sweep, side, attempt):
    """Draw with a tilt on the grid, from proposal ``attempt`` on."""
    for _ in range(_MOST_PROPOSALS):
        words = random_words(key, answer, row, sweep, use(side, OF_ANSWERS, attempt))
        x = _judged(hats, tilt, words[0], words[1])
        if x > 0.0:
            return x
        attempt += 1
    return _mean(tilt)


@within_kernels(forceinline=True, error_model="numpy")
def polya_gammas(hats, count, scores, copies, key, first, row, sweep, side, room, out):
    """Write draws of ``PG(copies, score)`` for ``count`` answers of a row, the ``first``-th on.

    ``copies`` is empty where all are one. ``first`` is even: two answers share a call of the generator.
    """
    if copies.shape[0] > 0:
        for k in range(count):
            tilt, total = 0.5 * abs(float(scores[k])), 0.0
            for copy in range(copies[k]):
                attempt = (copy << _COPY_BITS) + 1
                if tilt * _TILTS_PER_UNIT < _TILTS:
                    total += _near_draw(hats, tilt, key, first + k, row, sweep, side, attempt)
                else:
                    total += _far_draw(tilt, key, first + k, row, sweep, side, attempt)
            out[k] = 0.25 * total
        return
    strips, totals, _ = hats
    places, heights, again, tilts, draws, words = room
    purpose = use(side, OF_ANSWERS, 0)
    for pair in range((count + 1) // 2):
        four = random_words(key, (first >> 1) + pair, row, sweep, purpose)
        places[2 * pair], heights[2 * pair] = four[0], four[1]
        places[2 * pair + 1], heights[2 * pair + 1] = four[2], four[3]
    left = 0
    for k in range(count):
        tilt = np.float32(0.5) * abs(scores[k])
        grid = tilt * np.float32(_TILTS_PER_UNIT)
        # What is beyond the grid, or no number, is drawn below; converted, it could be any whole number.
        number = np.uint32(grid if grid < np.float32(_TILTS) else np.float32(0.0))
        strip, within = _strip(totals, number, places[k])
        x = strips[number, strip, _LEFT] + strips[number, strip, _WIDTH] * within
        least = np.float32(number) * np.float32(1.0 / _TILTS_PER_UNIT)
        loss = np.float32(0.5) * (tilt - least) * (tilt + least) * x
        bound = strips[number, strip, _SQUEEZE] * (np.float32(1.0) - loss)  # exp(-loss) is above that
        out[k] = np.float32(0.25) * x
        # Scores beyond the grid, and those that are no numbers, fail this too.
        taken = np.float32(heights[k]) * np.float32(2.0**-32) < bound and grid < np.float32(_TILTS)
        again[left] = k
        left += 0 if taken else 1
    far = 0
    for place in range(left):
        k = again[place]
        tilt = 0.5 * abs(float(scores[k]))
        if tilt * _TILTS_PER_UNIT < _TILTS:
            x = _judged(hats, tilt, places[k], heights[k])
            if x < 0.0:
                x = _near_draw(hats, tilt, key, first + k, row, sweep, side, ONE)
            out[k] = 0.25 * x
            continue
        again[far], tilts[far] = k, tilt
        far += 1
    purpose = use(side, OF_ANSWERS, ONE)
    for place in range(far):
        four = random_words(key, first + again[place], row, sweep, purpose)
        words[0][place], words[1][place], words[2][place], words[3][place] = four
    _far_proposals(far, tilts, words, draws)
    for place in range(far):
        k, x = again[place], float(draws[place])
        if not _is_taken(x, words[3][place]):
            x = _far_draw(0.5 * abs(float(scores[k])), key, first + k, row, sweep, side, ONE + ONE)
        out[k] = 0.25 * x


@within_kernels(forceinline=True, error_model="numpy")
def inverse_gaussian(inverse_mean, square, share):
    """Draw an inverse Gaussian of shape one from a squared normal draw and a uniform one.

    Michael, Schucany and Haas (1976), in a form that loses no digits and holds for an infinite mean.
    """
    half = 0.5 * square
    x = 1.0 / (inverse_mean + half + math.sqrt(half * (half + 2.0 * inverse_mean)))
    if share * (1.0 + inverse_mean * x) <= 1.0:
        return x
    return 1.0 / (inverse_mean * inverse_mean * x)


@within_kernels(forceinline=True, error_model="numpy")
def inverse_gaussians(count, inverse_mean, key, first, row, sweep, side, out):
    """Write inverse Gaussian draws of shape one for ``count`` answers of a row, the ``first``-th on."""
    for k in range(count):
        words = random_words(key, first + k, row, sweep, use(side, OF_ANSWERS, 0))
        wave = math.cos(2.0 * math.pi * uniform(words[2]))
        square = -2.0 * math.log(fine_uniform(words[0], words[1])) * wave * wave
        out[k] = inverse_gaussian(float(inverse_mean[k]), square, uniform(words[3]))


@within_kernels(forceinline=True, error_model="numpy")
def normals(key, coordinate, row, sweep, side, purpose):
    """Return two standard normal draws of a row."""
    # Other purposes draw uniform numbers from attempt zero on, for coordinate zero.
    words = random_words(key, coordinate + 1, row, sweep, use(side, purpose, 0))
    radius = math.sqrt(-2.0 * math.log(fine_uniform(words[0], words[1])))
    angle = 2.0 * math.pi * fine_uniform(words[2], words[3])
    return radius * math.cos(angle), radius * math.sin(angle)


@kernel(nogil=True, error_model="numpy")
def draw_polya_gamma(hats, scores, copies, key, sweep, room, out):
    """Fill ``out`` with draws of ``PG(copies, score)``, of scores in single precision.

    ``copies`` is empty where all are one.
    """
    for first in range(0, scores.shape[0], room[0].shape[0]):
        count = min(room[0].shape[0], scores.shape[0] - first)
        repeated = copies if copies.shape[0] == 0 else copies[first : first + count]
        polya_gammas(
            hats, count, scores[first : first + count], repeated, key, first, 0, sweep, 0, room,
            out[first : first + count],
        )  # fmt: skip


@kernel(nogil=True, error_model="numpy")
def draw_inverse_gaussian(inverse_mean, key, sweep, out):
    """Fill ``out`` with inverse Gaussian draws of shape one."""
    inverse_gaussians(inverse_mean.shape[0], inverse_mean, key, 0, 0, sweep, 0, out)


@kernel(nogil=True, error_model="numpy")
def draw_normal(key, sweep, out):
    """Fill ``out`` with standard normal draws; its length is even."""
    for k in range(0, out.shape[0], 2):
        out[k], out[k + 1] = normals(key, k, 0, sweep, 0, OF_ROWS)
