"""New answers for kept draws, without the old ones.

Given the columns of a draw, what the old answers say of a row is close to a Gaussian with some precision
``P``, of which the row's draw ``L`` is one value. With new answers of information ``H`` and gradient
``g`` at the row, one value under the old and the new answers together is the minimum over ``M`` of ::

    (M - L)' P (M - L) / 2 + sum of the new losses at M - e' M,        e normal with covariance H

(exactly so for Gaussian likelihoods: the minimum has the right mean and, by the noise in ``L`` and ``e``,
the right covariance). Rows and columns that have new answers are moved in turns to the minimum of both
together, where ``e`` is made of one noise for each answer. A row without old answers has its prior as
``P`` and a draw from it as ``L``.

``P`` is the prior's precision and the information of the old answers. How much there was of it is read
off the natural parameters of the variational posterior that the chains started from; its directions are
those of the columns of the draw, by how much is known of them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numba
import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel, within_kernels
from onebit.engine.cpu.threads import Threads
from onebit.engine.sampling.target import HyperDraw, prior_terms
from onebit.engine.update import Batch, Touched
from onebit.model.draws import Draws
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]
Single = NDArray[np.float32]

# Rows and columns in turn, at most so often, until draws move by less than this on average.
ROUNDS, SETTLED = 12, 0.005
# Steps to the minimum: majorised ones, which cannot overshoot, then Newton's, unless they go further than
# so many times the step before: then they may have gone astray.
MAJORISED, STEPS = 2, 5
FURTHER = 4.0
# Unless no coordinate moves by this much any more.
SMALLEST = 0.01
# Members of the other side whose directions stand for those of the old answers.
STAND_INS = 32
# Those they are chosen from, by how much is known of them.
CANDIDATES = 1000


def updated_draws(
    draws: Draws,
    posterior: Posterior,
    touched: tuple[Touched, Touched],
    batch: Batch,
    temperature: float,
    pool: Threads,
) -> Draws:
    """Return draws that have taken up new answers; ``posterior`` is where the chains started."""
    rng = np.random.default_rng([draws.seed, batch.seed])
    begun = [_Begun(draws, posterior, side, touched[side], batch, rng) for side in (0, 1)]
    # An answer has one noise, in its row and in its column, which list it in orders of their own.
    by_row = rng.standard_normal((draws.count, len(batch.sign)), dtype=np.float32)
    view = touched[0].view
    noise = by_row, np.ascontiguousarray(by_row[:, np.lexsort((view.owners(), view.index))])
    moved = [part.anchor.copy() for part in begun]
    # New members find their place by those that have one: among themselves they could as well stand the
    # other way round.
    placed = [~part.fresh for part in touched]
    for side, part in enumerate(begun):
        weight, found = part.told_by(placed[1 - side])
        moved[side] = part.moved(moved[1 - side], noise[side], weight, temperature, pool)
        placed[side] |= found
    for _ in range(ROUNDS - 1):
        change = 0.0
        for side, part in enumerate(begun):
            last = moved[side]
            moved[side] = part.moved(moved[1 - side], noise[side], part.view.weight, temperature, pool)
            with np.errstate(invalid="ignore", over="ignore"):  # refused below
                change = max(change, float(np.abs(moved[side] - last).mean()) if last.size else 0.0)
        if change < SETTLED:
            break
    if not all(np.isfinite(part).all() for part in moved):
        raise FloatingPointError(
            "the new answers move the kept draws beyond all numbers; fit again with all answers"
        )
    sides = []
    for side, part in enumerate(begun):
        old = draws.sides[side]
        values = np.concatenate([old, part.unseen(draws, side, batch.shape[side] - len(old), rng)])
        values[touched[side].codes] = moved[side]
        sides.append(values)
    hierarchy = replace(draws.hierarchy, shape=batch.shape)
    return replace(draws, rows=sides[0], columns=sides[1], hierarchy=hierarchy)


def information(posterior: Posterior, side: int, codes: NDArray[np.integer]) -> Array:
    """Return how much the answers of some members say, in sums of the weights of their scores.

    With effects it is what their precision has beyond the prior's; without, the same over all
    coordinates, in units of what a typical member of the other side says.
    """
    hierarchy, own = posterior.hierarchy, posterior.sides[side].taken(codes)
    if hierarchy.n_free(side) == 0:
        return np.zeros(len(codes))
    precision = np.einsum("maa->ma", np.linalg.inv(own.dense_covariance()))
    more = precision - hierarchy.inverse(side, posterior.hyper)
    if hierarchy.has_effect(side):
        return np.maximum(more[:, hierarchy.rank], 0.0)
    facing = posterior.sides[1 - side]
    typical = (facing.mean**2 + facing.variance)[:, : hierarchy.rank].sum(axis=1).mean()
    return np.maximum(more.sum(axis=1) / typical, 0.0)


class _Begun:
    """The touched members of one side: where they were under every draw, and how firmly."""

    def __init__(
        self,
        draws: Draws,
        posterior: Posterior,
        side: int,
        touched: Touched,
        batch: Batch,
        rng: np.random.Generator,
    ) -> None:
        hierarchy = draws.hierarchy
        self.rank, self.effect = hierarchy.rank, hierarchy.has_effect(side)
        self.facing_effect = hierarchy.has_effect(1 - side)
        self.view, self.forget = touched.view, batch.forget
        self.precision, self.linear = self._prior(draws, side)
        known = ~touched.fresh
        size = (len(touched.codes), draws.count, hierarchy.n_free(side))
        self.anchor = np.empty(size, np.float32)
        self.anchor[known] = draws.sides[side][touched.codes[known]]
        fresh = rng.standard_normal((int(touched.fresh.sum()), *size[1:])) / np.sqrt(self.precision)
        fresh += self.linear / self.precision
        slopes = draws.slopes[side]
        self.pull = np.zeros((0, 0, 0), np.float32)
        if touched.known is not None and touched.moved is not None and slopes.size:
            fresh += np.einsum("mq,dqk->mdk", touched.known[touched.fresh], slopes)
            pull = np.einsum("mq,dqk->mdk", touched.moved, slopes) * self.precision
            self.pull = pull.astype(np.float32)
        self.anchor[touched.fresh] = fresh
        self.said = np.zeros(len(touched.codes))
        self.said[known] = information(posterior, side, touched.codes[known])
        count = len(draws.sides[1 - side])
        some = rng.choice(count, min(count, CANDIDATES), replace=False)
        weight = information(posterior, 1 - side, some) + 1e-9
        stand_ins = rng.choice(some, STAND_INS, p=weight / weight.sum())
        self.stand_ins = np.ascontiguousarray(draws.sides[1 - side][stand_ins])
        self.drift = np.zeros((0, 0, 0), np.float32)
        if batch.forget < 1.0:
            shape = (*size[:2], size[2] + STAND_INS)
            self.drift = rng.standard_normal(shape, dtype=np.float32)

    @staticmethod
    def _prior(draws: Draws, side: int) -> tuple[Array, Array]:
        """Return precisions and linear terms of the prior under every draw."""
        share = 1.0 + draws.hierarchy.mean_share(side)
        terms = [
            prior_terms(
                draws.hierarchy,
                HyperDraw(draws.factors[d] * share, draws.effects[d], float(draws.intercept[d])),
                side,
                draws.factor_means[side][d],
            )
            for d in range(draws.count)
        ]
        precision, linear = (np.stack(part) for part in zip(*terms, strict=True))
        return precision, linear

    def unseen(self, draws: Draws, side: int, count: int, rng: np.random.Generator) -> Single:
        """Return draws of members of which nothing is known."""
        variance = 1.0 / self.precision + draws.spread(side)
        mean = self.linear / self.precision + draws.typical(side)
        noise = rng.standard_normal((count, *mean.shape))
        return (mean + np.sqrt(variance) * noise).astype(np.float32)

    def told_by(self, placed: NDArray[np.bool_]) -> tuple[Single, NDArray[np.bool_]]:
        """Return the answers' weights, zero where the other member has no place, and who has others."""
        view = self.view
        weight = view.weight if len(view.weight) else np.ones(len(view.index), np.float32)
        counted = placed[view.index]
        found = np.bincount(view.owners(), counted, len(self.anchor)) > 0
        return np.where(counted, weight, np.float32(0.0)), found

    def moved(
        self, facing: Single, noise: Single, weight: Single, temperature: float, pool: Threads
    ) -> Single:
        """Return where the members are once their new answers are counted, given the other side."""
        found = np.empty_like(self.anchor)
        view = self.view

        def task(begin: int, end: int) -> None:
            _move(
                begin, end, view.start, view.index, view.sign, weight, facing, self.stand_ins,
                self.anchor, self.said, self.precision, self.pull, self.drift, noise,
                self.forget, temperature, self.rank, self.effect, self.facing_effect, found,
            )  # fmt: skip

        pool.even(task, len(found), 4096)
        return found


@numba.njit(inline="always", error_model="numpy")
def _weights(score):
    """Return the weight of the majoriser of the logistic loss at a score, and its second derivative."""
    size = abs(score)
    decay = math.exp(-size)
    second = decay / ((1.0 + decay) * (1.0 + decay))
    if size < 1e-3:
        return 0.25, second
    return (1.0 - decay) / ((1.0 + decay) * 2.0 * size), second


@numba.njit(inline="always", error_model="numpy")
def _score(values, direction, effect, facing_effect, rank):
    score = 0.0
    for a in range(rank):
        score += values[a] * direction[a]
    if effect:
        score += values[rank]
    if facing_effect:
        score += direction[rank]
    return score


@numba.njit(inline="always", error_model="numpy")
def _add(matrix, vector, direction, effect, rank, square, slope):
    """Add ``square`` times the outer product of a direction, and ``slope`` times the direction."""
    for a in range(rank):
        scaled = square * direction[a]
        for b in range(a + 1):
            matrix[a, b] += scaled * direction[b]
        vector[a] += slope * direction[a]
    if effect:
        for b in range(rank):
            matrix[rank, b] += square * direction[b]
        matrix[rank, rank] += square
        vector[rank] += slope


@numba.njit(inline="always", error_model="numpy")
def _solve(matrix, vector, size):
    """Solve a positive definite system, of which the lower triangle is given, in place."""
    for a in range(size):
        for b in range(a + 1):
            total = matrix[a, b]
            for c in range(b):
                total -= matrix[a, c] * matrix[b, c]
            matrix[a, b] = math.sqrt(max(total, 1e-12)) if a == b else total / matrix[b, b]
    for a in range(size):
        for c in range(a):
            vector[a] -= matrix[a, c] * vector[c]
        vector[a] /= matrix[a, a]
    for a in range(size - 1, -1, -1):
        for c in range(a + 1, size):
            vector[a] -= matrix[c, a] * vector[c]
        vector[a] /= matrix[a, a]


@numba.njit(inline="always", error_model="numpy")
def _times(matrix, vector, found):
    """Write a symmetric matrix, of which the lower triangle is given, times a vector."""
    for a in range(vector.shape[0]):
        found[a] = 0.0
        for b in range(vector.shape[0]):
            found[a] += vector[b] * (matrix[a, b] if b <= a else matrix[b, a])


@within_kernels(error_model="numpy")
def _loosen(
    firm, values, prior, stand_ins, shares, noise, forget, effect, rank, total, work, held
):  # fmt: skip
    """Hold a member less firmly: change ``firm``, and write its product with a wider draw.

    With ``P`` the precision before, ``D`` what of it the answers gave and ``C = P - (1 - forget) D``,
    the draw ``L`` of precision ``P`` becomes one of precision ``C`` with the same mean: ``C L + x`` has
    covariance ``C`` if ``x`` has ``C - C P^-1 C = (1 - forget) (D - (1 - forget) D P^-1 D)``, which is
    that of ``sqrt(1 - forget) (e - (1 - sqrt(forget)) D P^-1 (e + r))`` for ``e`` of covariance ``D`` and
    ``r`` of ``P - D``.
    """
    size = values.shape[0]
    given, both = np.zeros(size), np.empty(size)
    for s in range(stand_ins.shape[0]):
        _add(total, given, stand_ins[s], effect, rank, 0.0, math.sqrt(shares[s]) * noise[size + s])
    for a in range(size):
        both[a] = given[a] + math.sqrt(prior[a]) * noise[a]
        work[a] = both[a]
        for b in range(a + 1):
            total[a, b] = firm[a, b]
    _solve(total, work, size)
    for a in range(size):
        # D y = P y - prior y, and P y is what was solved for.
        both[a] -= prior[a] * work[a]
        for b in range(a + 1):
            firm[a, b] *= forget
        firm[a, a] += (1.0 - forget) * prior[a]
    _times(firm, values, held)
    for a in range(size):
        held[a] += math.sqrt(1.0 - forget) * (given[a] - (1.0 - math.sqrt(forget)) * both[a])


@kernel(nogil=True, error_model="numpy")
def _move(
    begin, end, start, index, sign, weight, facing, stand_ins, anchor, said, prior, pull,
    drift, noise, forget, temperature, rank, effect, facing_effect, found,
):  # fmt: skip
    """Write where members ``begin:end`` are under every draw; see the module's docstring."""
    size = anchor.shape[2]
    firm, total = np.empty((size, size)), np.empty((size, size))
    held, side = np.empty(size), np.empty(size)
    values = np.empty(size)
    shares = np.empty(stand_ins.shape[0])
    for i in range(begin, end):
        for d in range(anchor.shape[1]):
            for a in range(size):
                values[a] = anchor[i, d, a]
                held[a] = 0.0
                for b in range(size):
                    firm[a, b] = 0.0
                firm[a, a] = prior[d, a]
            if said[i] > 0.0:
                whole = 0.0
                for s in range(stand_ins.shape[0]):
                    score = _score(values, stand_ins[s, d], effect, facing_effect, rank)
                    majoriser, shares[s] = _weights(score)
                    whole += majoriser
                for s in range(stand_ins.shape[0]):
                    shares[s] *= said[i] / whole
                    _add(firm, held, stand_ins[s, d], effect, rank, shares[s], 0.0)
            if forget < 1.0 and said[i] > 0.0:
                _loosen(
                    firm, values, prior[d], stand_ins[:, d], shares, drift[i, d], forget, effect, rank,
                    total, side, held,
                )  # fmt: skip
            else:
                _times(firm, values, held)
            if pull.shape[0] > 0:
                for a in range(size):
                    held[a] += pull[i, d, a]
            last, stray = np.inf, False
            for step in range(STEPS):
                newton = step >= MAJORISED and not stray
                for a in range(size):
                    side[a] = held[a]
                    for b in range(a + 1):
                        total[a, b] = firm[a, b]
                for k in range(start[i], start[i + 1]):
                    direction = facing[index[k], d]
                    score = _score(values, direction, effect, facing_effect, rank)
                    count = temperature * (weight[k] if weight.shape[0] > 0 else 1.0)
                    majoriser, second = _weights(score)
                    offset = direction[rank] if facing_effect else 0.0
                    random = math.sqrt(count * second) * noise[d, k]
                    if not newton:
                        square, slope = majoriser, 0.5 * sign[k] - majoriser * offset
                    else:
                        gradient = sign[k] / (1.0 + math.exp(sign[k] * score))
                        square, slope = second, gradient + second * (score - offset)
                    _add(total, side, direction, effect, rank, count * square, count * slope + random)
                _solve(total, side, size)
                change = 0.0
                for a in range(size):
                    change = max(change, abs(side[a] - values[a]))
                if newton and not change < FURTHER * last:
                    stray = True
                    continue
                last = change
                for a in range(size):
                    values[a] = side[a]
                if change < SMALLEST:
                    break
            for a in range(size):
                found[i, d, a] = values[a]
