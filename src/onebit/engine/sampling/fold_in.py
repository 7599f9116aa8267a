"""New rows or columns for a sampled model, without a refit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onebit.data.sorting import View
from onebit.engine.cpu.vectors import LANES
from onebit.engine.sampling import passes
from onebit.engine.sampling.philox import chain_key, sweep_generator
from onebit.engine.sampling.target import HyperDraw, Target, filled_table, prior_terms
from onebit.model.draws import Draws
from onebit.model.losses import Loss

# Sweeps over the new answers for every draw. Given the other side, rows forget their start fast.
SWEEPS = 15
# Keys of fold-ins begin where no chain's number is.
_OF_FOLD_INS = 1_000_000


def draw_new(
    draws: Draws,
    side: int,
    view: View,
    loss: Loss,
    temperature: float,
    known: NDArray[np.float64] | None = None,
    silent_spread: NDArray[np.float64] | None = None,
) -> NDArray[np.float32]:
    """Return draws of new rows (side 0) or columns (side 1) that gave the answers in ``view``.

    For every kept draw of the others, the new rows are drawn from their distribution given it and their
    answers, by a short chain from their prior. ``known`` are their coordinates in the regression of
    their side: see ``onebit.model.placing``. Those without answers vary by ``silent_spread`` more, for
    each draw, since their pattern is not known.
    """
    hierarchy = draws.hierarchy
    rank, effect = hierarchy.rank, hierarchy.has_effect(side)
    needed, view = view.narrowed()
    target = Target(hierarchy, loss, temperature, (view, view))
    key = chain_key(draws.seed, _OF_FOLD_INS + 2 * draws.shape[side] + side)
    added = np.empty((view.size, draws.count, hierarchy.n_free(side)), np.float32)
    groups = -(-view.size // LANES)
    silent = np.flatnonzero(view.counts == 0)
    free = hierarchy.n_free(side)
    rest = np.empty((0, 0)), *passes.evidence_room(0, free), target.room(side, 0, groups)
    for number in range(draws.count):
        # What is not known of the factors' mean adds to the variance of new ones.
        variance = draws.factors[number] * (1.0 + hierarchy.mean_share(side))
        hyper = HyperDraw(variance, draws.effects[number], float(draws.intercept[number]))
        precision, linear = prior_terms(hierarchy, hyper, side, draws.factor_means[side][number])
        linear = linear[None]
        if known is not None:
            linear = linear + precision * (known @ draws.slopes[side][number])
        rng = sweep_generator(key, number)
        begin = linear / precision + rng.standard_normal(added[:, number].shape) / np.sqrt(precision)
        table = filled_table(begin, rank, effect)
        other = draws.sides[1 - side][needed, number]
        facing = filled_table(other, rank, hierarchy.has_effect(1 - side))
        for sweep in range(SWEEPS if hierarchy.n_free(side) else 0):
            passes.sample_rows(
                0, groups, view.start, view.index, view.sign, view.weight, target.copies[0], facing,
                table, precision, linear, target.temperature, loss.code, rank, effect, target.hats,
                key, number * SWEEPS + sweep, side, *rest,
            )  # fmt: skip
        if silent_spread is not None:
            noise = rng.standard_normal((len(silent), hierarchy.n_free(side)))
            more = noise * np.sqrt(silent_spread[number])
            table[silent, :rank] += more[:, :rank].astype(np.float32)
            if effect:
                table[silent, rank + 1] += more[:, rank].astype(np.float32)
        added[:, number, :rank] = table[:, :rank]
        if effect:
            added[:, number, rank] = table[:, rank + 1]
    return added
