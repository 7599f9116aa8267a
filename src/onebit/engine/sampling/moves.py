"""Moves of a chain that no row makes by itself.

Along some directions no score changes, and the other steps would creep there: see
``onebit.engine.sampling.orbits``. Along others scores do change, and everything with them: see
``onebit.engine.sampling.whole``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from onebit.engine.sampling.lines import Change, Lines, Moments
from onebit.engine.sampling.orbits import move_along_orbits
from onebit.engine.sampling.target import HyperDraw, Target
from onebit.model.gaussians import positive_root

Array = NDArray[np.float64]

# Steps of the whole that are farther are not proposed; their way back would be as far.
_FARTHEST = 5.0
# The least curvature of a logarithm's prior, where that is flat or bends the other way.
_LEAST_CURVATURE = 1e-2


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

    def take(self, side: int, change: Change, moments: Moments) -> None:
        """Change all lines of a side, whose moments are then these."""
        ...

    def shares(self, side: int) -> Array:
        """Return the shares of the present strengths of a side's regression."""
        ...


def move_unnoticed(chain: Chain, scales: Array, rng: np.random.Generator) -> None:
    """Move along what no score notices; ``scales`` is what the rows said of the columns' sizes."""
    hierarchy, hyper = chain.target.hierarchy, chain.hyper
    rank = hierarchy.rank
    sides = []
    for side, moments in enumerate(chain.moments):
        free, known = hierarchy.n_free(side), moments.projections
        projections = np.zeros((0, free)) if known is None else known.copy()
        shares = projections if known is None else chain.shares(side)
        become = np.eye(free), np.zeros(free)
        sides.append((moments.total.copy(), moments.gram.copy(), projections, shares, *become))
    variances, order = hyper.factors.copy(), rng.permutation(_pairs(rank))
    intercept = move_along_orbits(
        tuple(sides),
        np.array(hierarchy.shape, float),
        np.array([hierarchy.mean_share(side) for side in (0, 1)]),
        np.array([hierarchy.resistance(side) for side in (0, 1)]),
        np.array([hierarchy.has_effect(side) for side in (0, 1)]),
        variances, hyper.effects, hierarchy.intercept_side or 0, hyper.intercept,
        hierarchy.intercept_variance, hierarchy.factor_prior.terms,
        scales[: rank * rank].reshape(rank, rank), scales[rank * rank :],
        order, rng.standard_normal(len(order) + 2 * rank + 4), chain.key, chain.sweep,
    )  # fmt: skip
    for side, (total, gram, projections, _, matrix, shifts) in enumerate(sides):
        known = None if chain.moments[side].projections is None else projections
        chain.take(side, Change(matrix, shifts), Moments(chain.moments[side].size, total, gram, known))
    chain.hyper = HyperDraw(variances, hyper.effects, intercept, hyper.strengths)


@lru_cache(maxsize=8)
def _pairs(rank: int) -> NDArray[np.int64]:
    pairs = [(j, k) for j in range(rank) for k in range(rank) if j != k]
    return np.array(pairs, np.int64).reshape(-1, 2)


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
