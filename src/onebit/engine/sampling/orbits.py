"""Moves that no score notices, each a draw along the orbit of a group.

Along some directions no score changes, and the other steps would creep there:

* a column of factors and its variance, whose standardised factors stay, given the answers' variables;
* a column of one side against the other side's, whose variance goes along: ``L_k / sqrt g``,
  ``sqrt(g) R_k``, ``g gamma_k``, and with sides exchanged. Many lines and their variance hold each other
  fast unless they move together;
* a column of factors into another, ``L_k + c L_j``, ``R_j - c R_k``;
* the factors of one side against the effects of the other, ``L_i + c``, ``b_j - c . R_j``, together with
  the effects against each other, ``a - t``, ``b + t``, and the intercept, which no score notices either.

Each but the first is a draw from the exact conditional along the orbit of a group that leaves the
likelihood as it is (Liu and Sabatti, 2000); the first one is one given the answers' variables. So the
target stays the same. All of them need sums over lines alone, and a change of all lines that is the same
for each: the numbers are few, and all moves are one call.
"""

from __future__ import annotations

import math

import numpy as np

from onebit.data.kernels import kernel, within_kernels
from onebit.engine.sampling.slices import drawn_balances, drawn_stretches

# The least energy of a column, so that one that has vanished still has a density.
_LEAST_ENERGY = 1e-290
# The least precision of a step: below it, what would move has vanished.
_LEAST_PRECISION = 1e-200


@within_kernels(error_model="numpy")
def _add(side, size, taker, giver, factor, shift):
    """Add to a coordinate of all lines ``factor`` times another one and ``shift``."""
    total, gram, projections, _, matrix, shifts = side
    for a in range(len(total)):
        gram[taker, a] += factor * gram[giver, a] + shift * total[a]
        matrix[a, taker] += factor * matrix[a, giver]
    total[taker] += factor * total[giver] + shift * size
    for a in range(len(total)):
        gram[a, taker] += factor * gram[a, giver] + shift * total[a]
    shifts[taker] += factor * shifts[giver] + shift
    for q in range(len(projections)):  # with what has mean zero: the shift is not noticed
        projections[q, taker] += factor * projections[q, giver]


@within_kernels(error_model="numpy")
def _scale(side, column, factor):
    """Multiply a coordinate of all lines."""
    total, gram, projections, _, matrix, shifts = side
    total[column] *= factor
    shifts[column] *= factor
    for a in range(len(total)):
        gram[column, a] *= factor
        matrix[a, column] *= factor
    for a in range(len(total)):
        gram[a, column] *= factor
    for q in range(len(projections)):
        projections[q, column] *= factor


@within_kernels(error_model="numpy")
def _left(side, share, first, second, priors_of):
    """Return the product of two coordinates' lines, as means and slopes leave it.

    The slopes have the priors of a third coordinate; ``share`` is what the mean takes.
    """
    total, gram, projections, shares, _, _ = side
    left = gram[first, second] - share * total[first] * total[second]
    for q in range(len(projections)):
        left -= shares[q, priors_of] * projections[q, first] * projections[q, second]
    return left


@within_kernels(error_model="numpy")
def _resize(sides, mean_shares, sizes, variances, prior, curvature, pull, key, sweep):
    """Draw how large columns of factors are: of both sides together, then of each against the other."""
    rank = len(variances)
    power, inverse, rate = prior
    stretches = drawn_stretches(curvature, pull, variances, power, inverse, rate, key, sweep)
    energies = np.empty((2, rank))
    for k in range(rank):
        variances[k] *= stretches[k]
        for s in range(2):
            _scale(sides[s], k, math.sqrt(stretches[k]))
            energies[s, k] = max(_left(sides[s], mean_shares[s], k, k, k), _LEAST_ENERGY)
    balances = drawn_balances(sizes, energies, variances, power, inverse, rate, key, sweep)
    for k in range(rank):
        ratio = balances[1, k] / balances[0, k]
        _scale(sides[0], k, math.sqrt(ratio))
        _scale(sides[1], k, math.sqrt(1.0 / ratio))
        variances[k] *= balances[0, k] * balances[1, k]


@within_kernels(error_model="numpy")
def _shear(sides, mean_shares, sizes, variances, order, noise):
    """Draw how much of one column of factors goes into another, for the pairs in order."""
    for number in range(len(order)):
        j, k = order[number]
        precision, linear = 0.0, 0.0
        for s in range(2):
            # Rows: column k takes up c times j; columns: column j loses c times k.
            giver, taker, sign = (j, k, -1.0) if s == 0 else (k, j, 1.0)
            precision += _left(sides[s], mean_shares[s], giver, giver, taker) / variances[taker]
            linear += sign * _left(sides[s], mean_shares[s], giver, taker, taker) / variances[taker]
        if not precision > _LEAST_PRECISION:
            continue
        c = linear / precision + noise[number] / math.sqrt(precision)
        _add(sides[0], sizes[0], k, j, c, 0.0)
        _add(sides[1], sizes[1], j, k, -c, 0.0)


@within_kernels(error_model="numpy")
def _drawn(precision, linear, noise):
    """Replace ``linear`` by a draw of this precision and linear term; say whether there is one."""
    size = len(linear)
    for a in range(size):
        for b in range(a + 1):
            for c in range(b):
                precision[a, b] -= precision[a, c] * precision[b, c]
            if b < a:
                precision[a, b] /= precision[b, b]
        if not precision[a, a] > _LEAST_PRECISION:
            return False
        precision[a, a] = math.sqrt(precision[a, a])
        for c in range(a):
            linear[a] -= precision[a, c] * linear[c]
        linear[a] /= precision[a, a]
    for a in range(size - 1, -1, -1):
        linear[a] += noise[a]
        for c in range(a + 1, size):
            linear[a] -= precision[c, a] * linear[c]
        linear[a] /= precision[a, a]
    return True


@within_kernels(error_model="numpy")
def _trade(
    sides, sizes, s, resistance, variances, spreads, both, centred, intercept, intercept_variance, noise
):
    """Shift the factors of one side, and the effects of the other by what that adds.

    The effects of both sides shift against each other with them, if ``both`` have some, and the
    intercept, at which those of side ``centred`` are: alone, each would hold the others back. One draw of
    all; return the intercept. ``resistance`` is the share of the factors' prior that holds their mean,
    ``spreads`` are the variances of effects.
    """
    rank, own, facing = len(variances), sides[s], sides[1 - s]
    size, spread, here = sizes[1 - s], spreads[1 - s], 1.0 if centred == 1 - s else 0.0
    of_intercept, of_effects = rank, rank + 1
    free = rank + 2 if both else rank + 1
    precision, linear = np.empty((free, free)), np.empty(free)
    for a in range(rank):
        for b in range(a + 1):
            # The part of the effects that their regression explains resists less.
            precision[a, b] = _left(facing, 0.0, a, b, rank) / spread
        held = resistance / variances[a]
        precision[a, a] += held * sizes[s]
        linear[a] = (_left(facing, 0.0, a, rank, rank) - here * intercept * facing[0][a]) / spread
        linear[a] -= held * own[0][a]
        precision[of_intercept, a] = here * facing[0][a] / spread
    above = facing[0][rank] - here * size * intercept
    precision[of_intercept, of_intercept] = 1.0 / intercept_variance + here * size / spread
    linear[of_intercept] = here * above / spread - intercept / intercept_variance
    if both:
        there = (1.0 - here) / spreads[s]
        own_above = own[0][rank] - (1.0 - here) * sizes[s] * intercept
        for a in range(rank):
            precision[of_effects, a] = -facing[0][a] / spread
        precision[of_intercept, of_intercept] += there * sizes[s]
        precision[of_effects, of_intercept] = there * sizes[s] - here * size / spread
        precision[of_effects, of_effects] = size / spread + sizes[s] / spreads[s]
        linear[of_intercept] += there * own_above
        linear[of_effects] = own_above / spreads[s] - above / spread
    if not _drawn(precision, linear, noise):
        return intercept
    shift = linear[of_effects] if both else 0.0
    if both:
        _add(own, sizes[s], rank, rank, 0.0, -shift)
    _add(facing, size, rank, rank, 0.0, shift)
    for a in range(rank):
        _add(own, sizes[s], a, a, 0.0, linear[a])
        _add(facing, size, rank, a, -linear[a], 0.0)
    return intercept + linear[of_intercept]


@kernel(error_model="numpy")
def move_along_orbits(
    sides, sizes, mean_shares, resistances, has_effect, variances, spreads, centred, intercept,
    intercept_variance, prior, curvature, pull, order, noise, key, sweep,
):  # fmt: skip
    """Make all moves that no score notices; return the intercept.

    Of each side there are the sum of its lines, of their outer products and with what is known, the
    shares of the strengths, and what becomes of a line, ``line matrix + shift``. All of these and
    ``variances``, those of the columns of factors, are overwritten. The effects of side ``centred`` are
    at the intercept.
    """
    rank, pairs = len(variances), len(order)
    both = has_effect[0] and has_effect[1]
    if rank > 0:
        _resize(sides, mean_shares, sizes, variances, prior, curvature, pull, key, sweep)
        _shear(sides, mean_shares, sizes, variances, order, noise)
    for s in range(2):
        # Of effects alone, both sides would say the same.
        if has_effect[1 - s] and (rank > 0 or (both and s == 0)):
            own = noise[pairs + s * (rank + 2) : pairs + (s + 1) * (rank + 2)]
            intercept = _trade(
                sides, sizes, s, resistances[s], variances, spreads, both, centred, intercept,
                intercept_variance, own,
            )  # fmt: skip
    return intercept
