"""New rows or columns for a fitted model, without a refit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onebit.data.observations import View
from onebit.engine.cpu.side import Side, gather_table
from onebit.engine.cpu.threads import Threads
from onebit.model.gaussians import Gaussians, independent_gaussians
from onebit.model.losses import Loss
from onebit.model.posterior import Posterior

# Rounds until the majoriser's fixed point: each is one pass over the new answers only.
MAX_ROUNDS = 100
TOLERANCE = 1e-6


def fold_in(posterior: Posterior, side: int, view: View, loss: Loss, temperature: float) -> Gaussians:
    """Return the Gaussians of new rows (side 0) or columns (side 1) that gave the answers in ``view``.

    Everything that was fitted stays as it is: the new rows descend the objective on their own, from
    their prior.
    """
    hierarchy = posterior.hierarchy
    # Only the rows (or columns) of the other side that answers are about.
    needed, index = np.unique(view.index, return_inverse=True)
    view = replace(view, index=index.astype(np.int32))
    other = posterior.sides[1 - side]
    table = gather_table(
        other.mean[needed], other.covariance[needed], other.full, hierarchy.has_effect(1 - side)
    )
    mean, variance = hierarchy.prior_moments(side, posterior.hyper)
    begin = independent_gaussians(
        np.tile(mean, (view.size, 1)), np.tile(variance, (view.size, 1)), other.full
    )
    state = Side(begin, hierarchy, side, view, Threads(1, None))
    prior = hierarchy.precision_and_linear(side, posterior.hyper, state.sums())
    for _ in range(MAX_ROUNDS):
        before = state.snapshot()
        if side == hierarchy.sparse:  # then it depends on the rows themselves
            prior = hierarchy.precision_and_linear(side, posterior.hyper, state.sums())
        state.pass_over(table, prior, temperature, loss)
        if loss.step < 1.0:
            state.hold_back(before, loss.step)
        if np.abs(state.mean - before[0]).max(initial=0.0) <= TOLERANCE:
            break
    return state.gaussians()
