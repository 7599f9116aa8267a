"""A row, drawn anew along an ellipse through it, without the variables of its answers.

Given those, a row whose answers are nearly all explained moves by small steps only. Elliptical slice
sampling (Murray, Adams and MacKay, 2010) needs none: with ``m`` the row's prior mean and ``v`` a draw
from its prior around zero, all points ``m + cos(t) (r - m) + sin(t) v`` are as likely before the answers
as the row ``r`` itself; among them one is drawn by a slice of the likelihood. Along the ellipse an
answer's score is ``cos(t) p + sin(t) q + f``: three numbers an answer, and no line of a table.
"""

from __future__ import annotations

import math

import numpy as np

from onebit.data.kernels import kernel, within_kernels
from onebit.engine.sampling.lengths import filled_up
from onebit.engine.sampling.philox import OF_ELLIPSES, ZERO, random_words, uniform, use
from onebit.model.losses import LOGISTIC_CODE, decays

# Most shrinkings of the slice; then the row stays where it is, which leaves the target as it is.
_SHRINKS = 60
_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)


@within_kernels(error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})
def loss_along(angle, answers, loss, room):
    """Return the loss of a row's answers at one angle.

    Of the ``answers`` there are their number, the parts of their scores that go with cosine and sine and
    that do not, their signs and how much each counts (nothing where all count one).
    """
    count, along, across, fixed, sign, times = answers
    margin, size, decay, part = room
    weighted = times.shape[0] > 0
    cosine, sine = np.float32(math.cos(angle)), np.float32(math.sin(angle))
    total = 0.0
    for begin in range(0, count, margin.shape[0]):
        here = min(margin.shape[0], count - begin)
        for k in range(here):
            score = cosine * along[begin + k] + sine * across[begin + k] + fixed[begin + k]
            margin[k] = np.float32(sign[begin + k]) * score
            size[k] = abs(margin[k])
        short, product = _ZERO, _ONE
        if loss == LOGISTIC_CODE:
            whole = here if weighted else filled_up(here, margin, size, part)
            decays(whole, size, decay)
            for k in range(whole):
                u = times[begin + k] if weighted else _ONE
                short += u * _HALF * (size[k] - margin[k])
                product *= _ONE if weighted else _ONE + decay[k]
            if weighted:
                for k in range(here):
                    total += float(times[begin + k]) * math.log1p(float(decay[k]))
        else:
            for k in range(here):
                u = times[begin + k] if weighted else _ONE
                short += u * max(_ONE - margin[k], _ZERO)
        total += float(short) + math.log(float(product))
    return total


@within_kernels(error_model="numpy")
def new_angle(answers, loss, key, row, sweep, side, room):
    """Return the angle at which the slice ends; zero is where the row is."""
    words = random_words(key, ZERO, row, sweep, use(side, OF_ELLIPSES, 0))
    level = loss_along(0.0, answers, loss, room) - math.log(uniform(words[0]))
    angle = 2.0 * math.pi * uniform(words[1])
    low, high = angle - 2.0 * math.pi, angle
    for attempt in range(1, _SHRINKS):
        # A comparison with NaN is false.
        if loss_along(angle, answers, loss, room) < level:
            return angle
        if angle < 0.0:
            low = angle
        else:
            high = angle
        words = random_words(key, ZERO, row, sweep, use(side, OF_ELLIPSES, attempt))
        angle = low + (high - low) * uniform(words[0])
    return 0.0


@kernel(error_model="numpy")
def draw_angles(along, across, fixed, sign, times, loss, key, sweep, room, out):
    """Fill ``out`` with angles of one row's ellipse, each drawn from where the row is."""
    answers = along.shape[0], along, across, fixed, sign, times
    for k in range(out.shape[0]):
        out[k] = new_angle(answers, loss, key, k, sweep, 0, room)
