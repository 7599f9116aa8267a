"""New rows or columns for a fitted model, without a refit."""

from __future__ import annotations

import numpy as np

from onebit.data.sorting import View
from onebit.engine.cpu.side import Side, gather_table
from onebit.engine.cpu.threads import Threads
from onebit.engine.known import Told
from onebit.model.gaussians import Gaussians, independent_gaussians
from onebit.model.losses import Loss
from onebit.model.posterior import Posterior

# Rounds until the majoriser's fixed point: each is one pass over the new answers only.
MAX_ROUNDS = 100
TOLERANCE = 1e-6


def fold_in(
    posterior: Posterior,
    side: int,
    view: View,
    loss: Loss,
    temperature: float,
    features: Told | None = None,
) -> Gaussians:
    """Return the Gaussians of new rows (side 0) or columns (side 1) that gave the answers in ``view``.

    Everything that was fitted stays as it is: the new rows descend the objective on their own, from
    their prior, which knows the pattern of their answers and their features, standardised.
    """
    hierarchy, placing = posterior.hierarchy, posterior.placings[side]
    known = None if placing is None else placing.coordinates(view, features)
    needed, view = view.narrowed()
    other = posterior.sides[1 - side]
    table = gather_table(
        other.mean[needed], other.covariance[needed], other.full, hierarchy.has_effect(1 - side)
    )
    moments = hierarchy.prior_moments(side, posterior.hyper, known)
    mean, variance = (np.tile(part, (view.size, 1)) if part.ndim == 1 else part for part in moments)
    begin = independent_gaussians(mean, variance, other.full)
    lines = None if known is None else known.astype(np.float32)
    state = Side(begin, hierarchy, side, view, Threads(1, None), lines)
    prior = state.prior(posterior.hyper)
    for _ in range(MAX_ROUNDS):
        before = state.snapshot()
        if side == hierarchy.sparse:  # then it depends on the rows themselves
            prior = state.prior(posterior.hyper)
        state.pass_over(table, prior, temperature, loss)
        if loss.step < 1.0:
            state.hold_back(before, loss.step)
        if np.abs(state.mean - before[0]).max(initial=0.0) <= TOLERANCE:
            break
    found = state.gaussians()
    if known is None:
        return found
    silent = np.flatnonzero(np.diff(view.start) == 0)
    variance = hierarchy.silent_moments(side, posterior.hyper)[1]
    again = independent_gaussians(found.mean[silent], np.tile(variance, (len(silent), 1)), other.full)
    covariance = found.covariance.copy()
    covariance[silent] = again.covariance
    return Gaussians(found.mean, covariance, other.full)
