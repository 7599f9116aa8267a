"""Turning, rescaling and shifting the factors, which no score notices but the prior does.

For any invertible ``A`` the factors ``L A`` and ``R A^-T`` have the same scores as ``L`` and ``R``, with
all their moments, while the divergence from the prior changes; and so have ``L + 1 c'`` and ``R`` where
the columns' effects are ``b - R c``, and likewise the other way about. Updates of one side at a time
move along these directions slowly; here they are taken in one step (parameter-expanded variational
Bayes, Qi and Jaakkola, 2006).

The best shifts are known given the variances. Among the turns, the one that makes the summed second
moments of both sides diagonal at once is best for column variances without a prior; the scales are then
set column by column, with the prior. The step is taken only where it lowers the divergence, so that it
never raises the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onebit.model.gaussians import lower_triangle
from onebit.model.hierarchy import Hierarchy, HyperPosterior, SideSums

Array = NDArray[np.float64]

# Rounds of the fixed point between a column's scale and its variance, and when it has settled.
_SCALE_ROUNDS = 100
_SETTLED = 1e-6
# Relative gain of the divergence below which a step is not worth its cost.
_WORTHWHILE = 1e-6
# Share of the largest column's energy below which a column is left as it is, and the most turns.
_LIVE = 0.05
_TURNS = 200


@dataclass(frozen=True)
class Change:
    """A change of the coordinates of one side: a line ``x`` becomes ``x matrix + shift``."""

    matrix: Array
    shift: Array

    @classmethod
    def of_factors(cls, matrix: Array, n_free: int) -> Change:
        """Change the factors only."""
        whole = np.eye(n_free)
        whole[: len(matrix), : len(matrix)] = matrix
        return cls(whole, np.zeros(n_free))

    def then(self, after: Change) -> Change:
        """Return this change followed by another one."""
        return Change(self.matrix @ after.matrix, self.shift @ after.matrix + after.shift)

    @property
    def log_determinant(self) -> float:
        """What a change adds to the log determinant of a covariance."""
        return 2.0 * float(np.linalg.slogdet(self.matrix)[1])


@dataclass(frozen=True)
class Coordinates:
    """A change for the rows and one for the columns, and what they lead to."""

    changes: tuple[Change, Change]
    sums: tuple[SideSums, SideSums]
    hyper: HyperPosterior


class _Turning:
    """One side while its change is put together: the change, and the summed moments after it."""

    def __init__(self, sums: SideSums, second: Array) -> None:
        self.sums = sums
        self.first, self.second = sums.first_moment, second
        self.projections = sums.projections
        self.change = Change.of_factors(np.eye(0), len(second))

    def take(self, change: Change) -> None:
        matrix, shift = change.matrix, change.shift
        cross = np.outer(self.first @ matrix, shift)
        self.second = matrix.T @ self.second @ matrix + cross + cross.T
        self.second += self.sums.size * np.outer(shift, shift)
        self.first = self.first @ matrix + self.sums.size * shift
        if self.projections is not None:  # on what has mean zero: no shift changes them
            self.projections = self.projections @ matrix
        self.change = self.change.then(change)

    def explained(self, shares: Array | None) -> Array:
        """Return the part of the second moment that a regression with these shares explains."""
        if self.projections is None or shares is None:
            return np.zeros_like(self.second)
        return self.projections.T @ (shares[:, None] * self.projections)

    def centred(self, rank: int, share: float, shares: Array | None) -> Array:
        """Return the factors' second moment around their means."""
        around = self.second - share * np.outer(self.first, self.first) - self.explained(shares)
        return around[:rank, :rank]

    def new_sums(self) -> SideSums:
        return replace(
            self.sums,
            first_moment=self.first,
            second_moment=np.diag(self.second).copy(),
            projections=self.projections,
            log_determinant=self.sums.log_determinant + self.sums.size * self.change.log_determinant,
        )


def best_coordinates(
    hierarchy: Hierarchy,
    moments: tuple[Array, Array],
    sums: tuple[SideSums, SideSums],
    hyper: HyperPosterior,
    hold_strengths: bool = False,
) -> Coordinates | None:
    """Return a change of coordinates that lowers the divergence, with what it leads to, or None.

    Parameters
    ----------
    hierarchy : Hierarchy
        The prior.
    moments : two square arrays
        The second moments of all coordinates, summed over rows and over columns.
    sums : two SideSums
        The sums over the present factors.
    hyper : HyperPosterior
        The present variances.
    hold_strengths : bool
        Whether the strengths of regressions stay where a fit starts.
    """
    rank = hierarchy.rank
    if rank == 0:
        return None
    sides = [_Turning(part, moment) for part, moment in zip(sums, moments, strict=True)]
    for side in (0, 1):
        if hierarchy.has_effect(1 - side):
            _shift(hierarchy, hyper, side, sides)
    # With A = C^-T U: A' S_L A = I and A^-1 S_R A^-T = diag(energy).
    # What a regression explains differs a little from factor to factor: here it is taken on average.
    shares = [None if s is None else s.shares[:, :rank].mean(axis=1) for s in hyper.slopes]
    first, second = (
        sides[side].centred(rank, hierarchy.mean_share(side), shares[side]) for side in (0, 1)
    )
    lower = np.linalg.cholesky(first)
    u, energy, _ = np.linalg.svd(lower.T @ second @ lower)
    turn = np.linalg.solve(lower.T, u) * np.sqrt(_column_scales(hierarchy, energy))
    for side, matrix in enumerate((turn, np.linalg.inv(turn).T)):
        sides[side].take(Change.of_factors(matrix, hierarchy.n_free(side)))
    new_sums = sides[0].new_sums(), sides[1].new_sums()
    new_hyper = hierarchy.update(new_sums, hyper, hold_strengths)
    # Against what the update of the variances would gain without it.
    before = hierarchy.kl(sums, hierarchy.update(sums, hyper, hold_strengths))
    after = hierarchy.kl(new_sums, new_hyper)
    if before - after <= _WORTHWHILE * abs(before):
        return None
    return Coordinates((sides[0].change, sides[1].change), new_sums, new_hyper)


def _shift(hierarchy: Hierarchy, hyper: HyperPosterior, side: int, sides: list[_Turning]) -> None:
    """Shift the factors of one side to where both they and the other side's effects are likeliest."""
    rank, other = hierarchy.rank, 1 - side
    own, facing = sides[side], sides[other]
    effect = hyper.effect(other)
    assert effect is not None
    inverse = effect.inverse[0]
    centre = hyper.intercept_mean if other == hierarchy.intercept_side else 0.0
    size = own.sums.size
    left = hierarchy.resistance(side)
    slopes = hyper.slopes[other]
    around = facing.second - facing.explained(None if slopes is None else slopes.shares[:, rank])
    precision = inverse * around[:rank, :rank] + np.diag(size * left * hyper.factors.inverse)
    linear = inverse * (around[:rank, rank] - centre * facing.first[:rank])
    linear -= left * hyper.factors.inverse * own.first[:rank]
    shift = np.linalg.solve(precision, linear)
    own.take(Change(np.eye(len(own.first)), np.append(shift, np.zeros(len(own.first) - rank))))
    matrix = np.eye(rank + 1)
    matrix[:rank, rank] = -shift
    facing.take(Change(matrix, np.zeros(rank + 1)))


def _column_scales(hierarchy: Hierarchy, energy: Array) -> Array:
    """Minimise the divergence over the scale of each column.

    With scale ``s`` the rows have energy ``s`` and the columns ``energy / s``; given ``p = E[1/gamma]``
    the terms ``p (s + energy / s) / 2 - (m1 - m2) log(s) / 2`` are least at the positive root of
    ``p s^2 - (m1 - m2) s - p energy = 0``.
    """
    m1, m2 = hierarchy.shape
    scale = np.sqrt(energy * m1 / m2)
    for _ in range(_SCALE_ROUNDS):
        inverse = hierarchy.factor_prior.posterior(m1 + m2, scale + energy / scale).inverse
        excess = (m1 - m2) / inverse
        last, scale = scale, 0.5 * (excess + np.sqrt(excess**2 + 4.0 * energy))
        if np.abs(scale - last).max() <= _SETTLED * scale.max():
            break
    return scale


def second_moment(covariances: Array, products: Array) -> Array:
    """Return the second moment from the packed sum of covariances and the products of means."""
    total = np.zeros_like(products)
    total[lower_triangle(len(total))] = covariances
    total += np.tril(total, -1).T + products
    return total


def packed_change(change: Array) -> Array:
    """Return the matrix that takes packed triangles of ``V`` to those of ``change' V change``."""
    a, b = lower_triangle(len(change))
    matrix = change[a][:, a] * change[b][:, b]
    other = change[b][:, a] * change[a][:, b]
    return matrix + np.where(a == b, 0.0, 1.0)[:, None] * other


def simple_structure(factors: Array) -> Array:
    """Return the rotation after which each row of ``factors`` leans on as few columns as can be.

    It is psychometrics' varimax (Kaiser, 1958), among the columns that are alive: with a prior that
    favours sparse rows, a fit started elsewhere stays where it is.
    """
    change = np.eye(factors.shape[1])
    energy = (factors**2).sum(axis=0)
    live = np.flatnonzero(energy > _LIVE * energy.max(initial=0.0))
    if len(live) < 2:
        return change
    present = factors[:, live]
    turn = np.eye(len(live))
    for _ in range(_TURNS):
        turned = present @ turn
        gradient = present.T @ (turned**3 - turned * (turned**2).mean(axis=0))
        left, _, right = np.linalg.svd(gradient)
        last, turn = turn, left @ right
        if np.abs(turn - last).max() <= _SETTLED:
            break
    change[np.ix_(live, live)] = turn
    return change
