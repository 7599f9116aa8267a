"""Rotating and rescaling the factors, which no score notices but the prior does.

For any invertible ``A`` the factors ``L A`` and ``R A^-T`` have the same scores as ``L`` and ``R``, with
all their moments, while the divergence from the prior changes. Updates of one side at a time move along
this direction slowly; here it is taken in one step (parameter-expanded variational Bayes, Qi and
Jaakkola, 2006).

Among the rotations, the one that makes the summed second moments of both sides diagonal at once is best
for column variances without a prior; the scales are then set column by column, with the prior. The step
is taken only where it lowers the divergence, so that the objective still never rises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onebit.hierarchy import Hierarchy, HyperPosterior, SideSums

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
class Rotation:
    """A change of coordinates for the rows' factors; the columns' one is its inverse transpose."""

    rows: Array
    columns: Array
    sums: tuple[SideSums, SideSums]
    hyper: HyperPosterior


def best_rotation(
    hierarchy: Hierarchy,
    moments: tuple[Array, Array],
    sums: tuple[SideSums, SideSums],
    hyper: HyperPosterior,
) -> Rotation | None:
    """Return a change of coordinates that lowers the divergence, with what it leads to, or None.

    Parameters
    ----------
    hierarchy : Hierarchy
        The prior.
    moments : two arrays of shape (rank, rank)
        The second moments of the factors, summed over rows and over columns.
    sums : two SideSums
        The sums over the present factors.
    hyper : HyperPosterior
        The present variances.
    """
    rank, (m1, m2) = hierarchy.rank, hierarchy.shape
    if rank == 0:
        return None
    # With A = C^-T U: A' S_L A = I and A^-1 S_R A^-T = diag(energy).
    lower = np.linalg.cholesky(moments[0])
    u, energy, _ = np.linalg.svd(lower.T @ moments[1] @ lower)
    scale = _column_scales(hierarchy, energy)
    change = np.linalg.solve(lower.T, u) * np.sqrt(scale)
    log_determinant = float(np.linalg.slogdet(change)[1])
    new_sums = (
        _moved(sums[0], scale, 2.0 * m1 * log_determinant),
        _moved(sums[1], energy / scale, -2.0 * m2 * log_determinant),
    )
    new_hyper = hierarchy.update(new_sums, hyper)
    # Against what the update of the variances would gain without it.
    before = hierarchy.kl(sums, hierarchy.update(sums, hyper))
    after = hierarchy.kl(new_sums, new_hyper)
    if before - after <= _WORTHWHILE * abs(before):
        return None
    return Rotation(change, np.linalg.inv(change).T, new_sums, new_hyper)


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


def _moved(sums: SideSums, energy: Array, log_determinant: float) -> SideSums:
    second_moment = sums.second_moment.copy()
    second_moment[: len(energy)] = energy
    return replace(
        sums, second_moment=second_moment, log_determinant=sums.log_determinant + log_determinant
    )


def factor_moment(covariances: Array, products: Array, rank: int) -> Array:
    """Return the factors' second moment from the packed sum of covariances and the products of means."""
    total = np.zeros_like(products)
    total[np.tril_indices(len(total))] = covariances
    total += np.tril(total, -1).T + products
    return total[:rank, :rank]


def whole_change(change: Array, n_free: int) -> Array:
    """Return a change of the factors' coordinates as one of all coordinates."""
    whole = np.eye(n_free)
    whole[: len(change), : len(change)] = change
    return whole


def packed_change(change: Array) -> Array:
    """Return the matrix that takes packed triangles of ``V`` to those of ``change' V change``."""
    a, b = np.tril_indices(len(change))
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
