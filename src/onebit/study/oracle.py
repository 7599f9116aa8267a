"""How well any method could do: samplers that know the true prior, rank and noise.

They are told what no method is told, and start at the truth. The truth is itself a draw from the
posterior of its own prior, so they start where they should end: nothing depends on a burn-in.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from onebit.data.simulate import World
from onebit.engine.sampling.philox import chain_key
from onebit.engine.sampling.room import proposals_room
from onebit.engine.sampling.variates import draw_polya_gamma, polya_gamma_hats

Array = NDArray[np.float64]

SWEEPS = 600
# Probability that an answer is kept where the link is logistic and scores are -1 and 1 (world A3).
LOGISTIC_KEPT = math.e / (1.0 + math.e)


def oracle_scores(world: World, rank: int, flip: float, seed: int, sweeps: int = SWEEPS) -> Array:
    """Return scores whose signs are (nearly) the best that can be had from what was seen.

    Parameters
    ----------
    world : World
        One of A1, A2, A3 or B3.
    rank : int
        Its rank.
    flip : float
        The share of answers flipped (world A2).
    seed : int
        Seed of the sampler.
    sweeps : int
        Sweeps of the sampler.
    """
    rng = np.random.default_rng(seed)
    if world.name == "B3":
        return _sample_logistic(world, rank, seed, sweeps)
    kept = {"A1": 1.0, "A2": 1.0 - flip, "A3": LOGISTIC_KEPT}[world.name]
    return _sample_kinds(world, rank, min(kept, 0.999), rng, sweeps)


def _sample_kinds(world: World, rank: int, kept: float, rng: np.random.Generator, sweeps: int) -> Array:
    """Sample type A matrices: ``rank`` columns of random signs, and which of them each column copies.

    Given the copies, the signs are independent, and the other way round: two exact conditionals.
    """
    rows, columns = world.truth.shape
    seen = np.zeros(world.truth.shape)
    np.add.at(seen, tuple(world.pairs.T), world.answers)
    odds = math.log(kept / (1.0 - kept))
    base = world.truth[:, :rank]
    mean = np.zeros_like(seen)
    for _ in range(sweeps):
        agreement = 0.5 * odds * (base.T @ seen)
        chance = np.concatenate([agreement, -agreement])  # copy k, or copy k with the other sign
        chance = np.exp(chance - chance.max(axis=0))
        chance /= chance.sum(axis=0)
        pick = (chance.cumsum(axis=0) < rng.random(columns)).sum(axis=0).clip(max=2 * rank - 1)
        copies = np.zeros((columns, rank))
        copies[np.arange(columns), pick % rank] = np.where(pick < rank, 1.0, -1.0)
        support = odds * (seen @ copies)
        base = np.where(rng.random((rows, rank)) < 1.0 / (1.0 + np.exp(-support)), 1.0, -1.0)
        mean += base @ copies.T
    return mean / sweeps


def _sample_logistic(world: World, rank: int, seed: int, sweeps: int) -> Array:
    """Sample factors with standard normal entries under the logistic link (Polya-Gamma augmentation)."""
    u, values, vt = np.linalg.svd(world.truth, full_matrices=False)
    root = np.sqrt(values[:rank])
    left, right = u[:, :rank] * root, vt[:rank].T * root
    # Balanced up to a rotation, not yet of the prior's scale: a few sweeps see to that.
    rows, columns = world.pairs.T
    sign = world.answers.astype(float)
    mean = np.zeros_like(world.truth)
    rng, key, hats = np.random.default_rng(seed), chain_key(seed, 0), polya_gamma_hats()
    one_each = np.empty(0, np.int64)
    for sweep in range(sweeps + sweeps // 6):
        scores = np.einsum("nk,nk->n", left[rows], right[columns]).astype(np.float32)
        weight = np.empty(len(scores))
        draw_polya_gamma(hats, scores, one_each, key, sweep, proposals_room(), weight)
        left = _draw_factors(rows, right[columns], sign, weight, len(left), rng)
        right = _draw_factors(columns, left[rows], sign, weight, len(right), rng)
        if sweep >= sweeps // 6:
            mean += left @ right.T
    return mean / sweeps


def _draw_factors(
    owner: NDArray[np.int64], facing: Array, sign: Array, weight: Array, size: int,
    rng: np.random.Generator,
) -> Array:  # fmt: skip
    rank = facing.shape[1]
    precision = np.zeros((size, rank, rank))
    np.add.at(precision, owner, weight[:, None, None] * facing[:, :, None] * facing[:, None, :])
    precision += np.eye(rank)
    linear = np.zeros((size, rank))
    np.add.at(linear, owner, 0.5 * sign[:, None] * facing)
    lower = np.linalg.cholesky(precision)
    mean = np.linalg.solve(precision, linear[..., None])[..., 0]
    noise = np.linalg.solve(lower.transpose(0, 2, 1), rng.standard_normal((size, rank, 1)))[..., 0]
    return np.asarray(mean + noise, dtype=np.float64)
