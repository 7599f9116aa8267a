"""Moves of a chain that no row makes by itself.

Along some directions no score changes, and the other steps would creep there:

* the effects against each other, ``a + t``, ``b - t``, ``mu + t``;
* the factors of one side against the effects of the other, ``L_i + c``, ``b_j - c . R_j``;
* a column of one side against the other side's, whose variance goes along: ``L_k / sqrt g``,
  ``sqrt(g) R_k``, ``g gamma_k``, and with sides exchanged. Many lines and their variance hold each other
  fast unless they move together;
* a column of factors into another, ``L_k + c L_j``, ``R_j - c R_k``.

Each is a draw from the exact conditional along the orbit of a group that leaves the likelihood as it is
(Liu and Sabatti, 2000), so the target stays the same. All of them need sums over lines alone, and a
change of all lines that is the same for each.

Along others scores do change, and everything with them: see ``onebit.engine.sampling.whole``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel
from onebit.engine.sampling.lines import Change, Lines, Moments
from onebit.engine.sampling.slices import drawn_balances
from onebit.engine.sampling.target import HyperDraw, Target
from onebit.model.gaussians import positive_root

Array = NDArray[np.float64]

# Steps of the whole that are farther are not proposed; their way back would be as far.
_FARTHEST = 5.0
# The least curvature of a logarithm's prior, where that is flat or bends the other way.
_LEAST_CURVATURE = 1e-2
# The least energy of a column, so that one that has vanished still has a density.
_LEAST_ENERGY = 1e-290


class Chain(Protocol):
    """What the moves need of a chain; ``onebit.engine.sampling.chain`` has it."""

    target: Target
    key: tuple[int, int]
    lines: Lines
    moments: list[Moments]
    hyper: HyperDraw
    sweep: int

    def change(self, side: int, change: Change) -> None:
        """Change all lines of a side."""
        ...

    def stretch(self, side: int, scale: Array) -> None:
        """Multiply the columns of factors of a side."""
        ...

    def shares(self, side: int) -> Array:
        """Return the shares of the present strengths of a side's regression."""
        ...

    def energy(self, side: int) -> Array:
        """Return the energy of each column of a side's factors, means and slopes integrated out."""
        ...


def move_unnoticed(chain: Chain, rng: np.random.Generator) -> None:
    """Move along what no score notices."""
    hierarchy = chain.target.hierarchy
    if hierarchy.rank:
        _balances(chain)
        if hierarchy.rank > 1:
            _columns(chain, rng)
        for side in (0, 1):
            if hierarchy.has_effect(1 - side):
                _factors(chain, side, rng)
    if hierarchy.row_effects and hierarchy.column_effects:
        _effects(chain, rng)


def _balances(chain: Chain) -> None:
    """Draw how large each column of factors is on either side, and its variance with it.

    Each of the two draws of a column leaves the standardised factors of one side as they are. They depend
    on each other through the prior of the variance alone.
    """
    hierarchy, variances = chain.target.hierarchy, chain.hyper.factors
    energies = np.maximum([chain.energy(side) for side in (0, 1)], _LEAST_ENERGY)
    rows, columns = drawn_balances(
        hierarchy.shape, energies, variances, *hierarchy.factor_prior.terms, chain.key, chain.sweep
    )
    chain.stretch(0, np.sqrt(columns / rows))
    chain.stretch(1, np.sqrt(rows / columns))
    chain.hyper = replace(chain.hyper, factors=variances * rows * columns)


@kernel(error_model="numpy")
def shear(grams, projections, shares, variances, order, noise):
    """Draw every shear of one column of factors into another; return what both sides become.

    ``grams`` are those of the factors, their means integrated out, ``projections`` and ``shares`` those
    of what is known (with no lines where nothing is). All are overwritten.
    """
    rank = variances.shape[0]
    changes = np.zeros((2, rank, rank))
    for a in range(rank):
        changes[0, a, a] = changes[1, a, a] = 1.0
    for number in range(order.shape[0]):
        j, k = order[number]
        precision, linear = 0.0, 0.0
        for side in range(2):
            # Rows: column k takes up c times j; columns: column j loses c times k.
            given, taker = (j, k) if side == 0 else (k, j)
            square, cross = grams[side][given, given], grams[side][given, taker]
            for q in range(projections[side].shape[0]):
                share = shares[side][q, taker] * projections[side][q, given]
                square -= share * projections[side][q, given]
                cross -= share * projections[side][q, taker]
            precision += square / variances[taker]
            linear += (-cross if side == 0 else cross) / variances[taker]
        if not precision > 1e-200:
            continue
        c = linear / precision + noise[number] / math.sqrt(precision)
        for side in range(2):
            given, taker, step = (j, k, c) if side == 0 else (k, j, -c)
            for a in range(rank):
                grams[side][taker, a] += step * grams[side][given, a]
            for a in range(rank):
                grams[side][a, taker] += step * grams[side][a, given]
                changes[side, a, taker] += step * changes[side, a, given]
            for q in range(projections[side].shape[0]):
                projections[side][q, taker] += step * projections[side][q, given]
    return changes


@lru_cache(maxsize=8)
def _pairs(rank: int) -> NDArray[np.int64]:
    return np.array([(j, k) for j in range(rank) for k in range(rank) if j != k])


def _columns(chain: Chain, rng: np.random.Generator) -> None:
    """Move columns of factors into each other, every ordered pair once."""
    hierarchy = chain.target.hierarchy
    rank = hierarchy.rank
    grams, projections, shares = [], [], []
    for side in (0, 1):
        moments = chain.moments[side]
        total = moments.total[:rank]
        grams.append(moments.gram[:rank, :rank] - hierarchy.mean_share(side) * np.outer(total, total))
        known = moments.projections is not None
        projections.append(
            np.array(moments.projections)[:, :rank].copy() if known else np.zeros((0, rank))
        )
        shares.append(chain.shares(side)[:, :rank].copy() if known else np.zeros((0, rank)))
    order = rng.permutation(_pairs(rank))
    changes = shear(
        tuple(grams), tuple(projections), tuple(shares), chain.hyper.factors, order,
        rng.standard_normal(len(order)),
    )  # fmt: skip
    for side in (0, 1):
        matrix = np.eye(hierarchy.n_free(side))
        matrix[:rank, :rank] = changes[side]
        chain.change(side, Change(matrix, np.zeros(len(matrix))))


def _factors(chain: Chain, side: int, rng: np.random.Generator) -> None:
    """Shift the factors of one side by ``c``, and the effects of the other by what that adds."""
    hierarchy, hyper = chain.target.hierarchy, chain.hyper
    rank, other = hierarchy.rank, 1 - side
    facing = chain.moments[other]
    centre = hyper.intercept if other == hierarchy.intercept_side else 0.0
    spread = hyper.effects[other]
    precision = facing.gram[:rank, :rank].copy()
    linear = facing.gram[:rank, rank] - centre * facing.total[:rank]
    if facing.projections is not None:
        # The part of the effects that their regression explains resists less.
        shared = chain.shares(other)[:, rank, None] * facing.projections[:, :rank]
        precision -= shared.T @ facing.projections[:, :rank]
        linear -= shared.T @ facing.projections[:, rank]
    precision, linear = precision / spread, linear / spread
    left = hierarchy.resistance(side)
    precision += np.diag(left * hierarchy.shape[side] / hyper.factors)
    linear -= left * chain.moments[side].total[:rank] / hyper.factors
    lower = np.linalg.cholesky(precision)
    shift = np.linalg.solve(lower.T, np.linalg.solve(lower, linear) + rng.standard_normal(rank))
    chain.change(side, _shifted(hierarchy.n_free(side), slice(0, rank), shift))
    matrix = np.eye(rank + 1)
    matrix[:rank, rank] = -shift
    chain.change(other, Change(matrix, np.zeros(rank + 1)))


def _effects(chain: Chain, rng: np.random.Generator) -> None:
    """Shift row effects against column effects; rows are centred at the intercept, which goes along."""
    hierarchy, rank = chain.target.hierarchy, chain.target.hierarchy.rank
    columns, spread = chain.moments[1], chain.hyper.effects[1]
    precision = columns.size / spread + 1.0 / hierarchy.intercept_variance
    linear = columns.total[rank] / spread - chain.hyper.intercept / hierarchy.intercept_variance
    shift = float(linear / precision + rng.standard_normal() / np.sqrt(precision))
    for side, step in ((0, shift), (1, -shift)):
        chain.change(side, _shifted(rank + 1, rank, step))
    chain.hyper = replace(chain.hyper, intercept=chain.hyper.intercept + shift)


def _shifted(free: int, places: int | slice, shift: Any) -> Change:
    vector = np.zeros(free)
    vector[places] = shift
    return Change(np.eye(free), vector)


def move_whole(chain: Chain, rng: np.random.Generator) -> bool:
    """Move everything along the directions of the whole; say whether the step was accepted."""
    hierarchy, rank = chain.target.hierarchy, chain.target.hierarchy.rank
    live = np.ones(rank + 3, bool)
    live[rank:] = (
        hierarchy.row_effects,
        hierarchy.column_effects,
        hierarchy.intercept_side is not None,
    )
    noise, luck = rng.standard_normal(rank + 3)[live], math.log(1.0 - rng.random())
    if not live.any():
        return False
    centres = [0.0, 0.0]
    if hierarchy.intercept_side is not None:
        centres[hierarchy.intercept_side] = chain.hyper.intercept
    middle = sum(centres)

    def look(steps: Array) -> tuple[float, Array, Array]:
        found = chain.lines.along(
            np.exp(steps[: rank + 2]), middle + steps[rank + 2], (centres[0], centres[1])
        )
        value, slope, bend = _prior(chain, steps)
        curvature = found.curvature[np.ix_(live, live)] + np.diag(bend[live])
        return found.value + value, (found.slope + slope)[live], curvature

    here = look(np.zeros(rank + 3))
    lower = positive_root(here[2])
    if lower is None:
        return False
    step = np.linalg.solve(here[2], here[1]) + np.linalg.solve(lower.T, noise)
    steps = np.zeros(rank + 3)
    steps[live] = step
    if not np.abs(steps).max() < _FARTHEST:
        return False
    there = look(steps)
    back_lower = positive_root(there[2])
    if back_lower is None:
        return False
    back = back_lower.T @ (-step - np.linalg.solve(there[2], there[1]))
    gain = there[0] - here[0] + 0.5 * float(noise @ noise) - 0.5 * float(back @ back)
    gain += float(np.log(np.diag(back_lower)).sum() - np.log(np.diag(lower)).sum())
    if not luck < gain:  # a comparison with NaN is false
        return False
    _stretch_whole(chain, steps, centres)
    return True


def _prior(chain: Chain, steps: Array) -> tuple[float, Array, Array]:
    """Return what the prior says of a step of the whole: value, slope and curvature (positive)."""
    hierarchy, hyper, rank = chain.target.hierarchy, chain.hyper, chain.target.hierarchy.rank
    value, slope, bend = 0.0, np.zeros(rank + 3), np.full(rank + 3, _LEAST_CURVATURE)
    effects = np.flatnonzero([hierarchy.has_effect(side) for side in (0, 1)])
    for prior, variances, exponent, places in (
        (hierarchy.factor_prior, hyper.factors, 1.0, np.arange(rank)),
        (hierarchy.effect_prior, hyper.effects[effects], 2.0, rank + effects),
    ):
        power, inverse, rate = prior.terms
        t = exponent * steps[places]  # of the logarithms of the variances, with whose density they go
        below, above = inverse / variances * np.exp(-t), rate * variances * np.exp(t)
        value += float(((power + 1.0) * t - below - above).sum())
        slope[places] = exponent * (power + 1.0 + below - above)
        bend[places] = np.maximum(exponent**2 * (below + above), _LEAST_CURVATURE)
    if hierarchy.intercept_side is not None:
        level = hyper.intercept + steps[rank + 2]
        value -= 0.5 * level**2 / hierarchy.intercept_variance
        slope[rank + 2] = -level / hierarchy.intercept_variance
        bend[rank + 2] = 1.0 / hierarchy.intercept_variance
    return value, slope, bend


def _stretch_whole(chain: Chain, steps: Array, centres: list[float]) -> None:
    """Take a step of the whole: lines, variances and intercept."""
    hierarchy, rank = chain.target.hierarchy, chain.target.hierarchy.rank
    scale = np.exp(steps[: rank + 2])
    for side in (0, 1):
        free = hierarchy.n_free(side)
        diagonal, shift = np.ones(free), np.zeros(free)
        diagonal[:rank] = np.sqrt(scale[:rank])
        if hierarchy.has_effect(side):
            diagonal[rank] = scale[rank + side]
            shift[rank] = centres[side] * (1.0 - diagonal[rank])
            if side == hierarchy.intercept_side:
                shift[rank] += steps[rank + 2]
        chain.change(side, Change(np.diag(diagonal), shift))
    chain.hyper = replace(
        chain.hyper,
        factors=chain.hyper.factors * scale[:rank],
        effects=chain.hyper.effects * scale[rank:] ** 2,
        intercept=chain.hyper.intercept + float(steps[rank + 2]),
    )
