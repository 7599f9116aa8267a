"""Shares of "yes" of rows over columns, known answers kept as they are, under every draw."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel
from onebit.model.draws import Draws
from onebit.model.posterior import Evenly, at_once

Array = NDArray[np.float64]
Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Shares:
    """Shares of "yes" of some rows (or columns).

    Attributes
    ----------
    expected : ndarray
        The expected share of each.
    drawn : ndarray of shape (members, draws)
        Shares that may come true: blanks are answered "yes" or "no" with the chances of each draw.
    """

    expected: Array
    drawn: Array


@kernel(nogil=True, error_model="numpy")
def draw_shares(
    begin, end, codes, own, own_effect, wanted, other, other_effect, rank, start, index, value, seed,
    weights, rest, expected, drawn,
):  # fmt: skip
    """Write the shares of the rows ``codes[begin:end]`` over the columns ``wanted``.

    Known answers are given row after row: ``index`` and ``value`` between ``start`` and the next.
    ``weights`` is empty where columns count alike; else it has what each counts for in each draw, and
    ``rest`` what is added.
    """
    draws = own.shape[1]
    weighted = weights.shape[0] > 0
    known = np.full(other.shape[0], -1.0)
    for k in range(begin, end):
        i = codes[k]
        for t in range(start[k], start[k + 1]):
            known[index[t]] = value[t]
        sure, mean = 0.0, 0.0
        total = np.zeros(draws)
        # Each row has a stream of its own, whatever thread it falls to (xorshift64*).
        state = np.uint64(seed) ^ (np.uint64(i + 1) * np.uint64(0x9E3779B97F4A7C15))
        for j in wanted:
            if known[j] >= 0.0:
                sure += known[j]
                if weighted:
                    for d in range(draws):
                        total[d] += weights[j, d] * known[j]
                continue
            for d in range(draws):
                score = np.float32(0.0)
                for a in range(rank):
                    score += own[i, d, a] * other[j, d, a]
                if own_effect:
                    score += own[i, d, rank]
                if other_effect:
                    score += other[j, d, rank]
                chance = 1.0 / (1.0 + math.exp(-score))
                mean += chance
                state ^= state >> np.uint64(12)
                state ^= state << np.uint64(25)
                state ^= state >> np.uint64(27)
                uniform = (state * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)
                if uniform * (1.0 / 9007199254740992.0) < chance:
                    total[d] += weights[j, d] if weighted else 1.0
        for t in range(start[k], start[k + 1]):
            known[index[t]] = -1.0
        expected[k] = (sure + mean / draws) / wanted.shape[0]
        for d in range(draws):
            drawn[k, d] = total[d] + rest[d] if weighted else (sure + total[d]) / wanted.shape[0]


def shares_of(
    draws: Draws,
    side: int,
    codes: Codes,
    wanted: Codes,
    known: tuple[NDArray[np.int64], Codes, Array],
    evenly: Evenly = at_once,
    population: bool = False,
) -> Shares:
    """Return the shares of rows (side 0) or columns over what they face.

    With ``population`` they are those over a population from which what they face was drawn at random:
    what each member stands for is drawn too (the Bayesian bootstrap, Rubin 1981), beside two halves of a
    member that say yes and no to everything. So somebody with ``k`` times "yes" in ``n`` answers, all of
    them known, has the share ``Beta(k + 1/2, n - k + 1/2)``.

    Parameters
    ----------
    draws : Draws
        The posterior.
    side : int
        Whose shares.
    codes : ndarray
        Of whom.
    wanted : ndarray
        Over which members of the other side.
    known : three arrays
        The known answers: place among ``codes``, in order, member of the other side, share of "yes".
    evenly : callable
        Shares the work out.
    population : bool
        Whether shares are those over a population that ``wanted`` were drawn from.
    """
    place, index, value = known
    start = np.searchsorted(place, np.arange(len(codes) + 1)).astype(np.int64)
    expected, drawn = np.empty(len(codes)), np.empty((len(codes), draws.count))
    hierarchy = draws.hierarchy
    arguments = (
        codes.astype(np.int64), draws.sides[side], hierarchy.has_effect(side),
        wanted.astype(np.int64), draws.sides[1 - side], hierarchy.has_effect(1 - side),
        hierarchy.rank, start, index.astype(np.int64), np.asarray(value, float), draws.seed + side,
        *_stand_for(draws, side, wanted, population), expected, drawn,
    )  # fmt: skip

    def task(begin: int, end: int) -> None:
        draw_shares(begin, end, *arguments)

    evenly(task, len(codes), draws.count * max(len(wanted), 1))
    if population:
        expected = (len(wanted) * expected + 0.5) / (len(wanted) + 1.0)
    return Shares(expected, drawn)


def _stand_for(draws: Draws, side: int, wanted: Codes, population: bool) -> tuple[Array, Array]:
    """Return which share of a population each member stands for in each draw, and the half that says yes.

    Nothing where there is no population.
    """
    if not population:
        return np.empty((0, 0)), np.empty(0)
    rng = np.random.default_rng([draws.seed, side])
    size = rng.standard_exponential((len(wanted), draws.count))
    halves = rng.standard_gamma(0.5, (2, draws.count))
    total = size.sum(axis=0) + halves.sum(axis=0)
    weights = np.zeros((len(draws.sides[1 - side]), draws.count))
    weights[wanted] = size / total
    return weights, halves[0] / total
