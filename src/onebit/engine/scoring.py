"""Scores of many pairs, on the threads of a CPU or on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onebit.engine.cpu.threads import threads
from onebit.engine.gpu import device as gpus
from onebit.model.calibration import Sigmoid
from onebit.model.codes import checked_pairs
from onebit.model.draws import Draws
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]
Codes = NDArray[np.int32]


def score_moments(
    posterior: Posterior, rows: ArrayLike, columns: ArrayLike, n_jobs: int | None, device: str = "cpu"
) -> tuple[Array, Array]:
    """Return mean and variance of scores; see ``Posterior.score_moments``.

    Many pairs of known ids go to the GPU that ``device`` names.
    """
    row_codes, column_codes = checked_pairs(rows, columns, posterior.shape)
    mean, variance = np.empty(len(row_codes)), np.empty(len(row_codes))
    _score(posterior, row_codes, column_codes, mean, variance, n_jobs, device)
    return mean, variance


def scores(
    posterior: Posterior, rows: ArrayLike, columns: ArrayLike, n_jobs: int | None, device: str = "cpu"
) -> Array:
    """Return mean scores alone, several times faster."""
    row_codes, column_codes = checked_pairs(rows, columns, posterior.shape)
    mean = np.empty(len(row_codes))
    _score(posterior, row_codes, column_codes, mean, np.empty(0), n_jobs, device)
    return mean


def averages(
    draws: Draws, rows: ArrayLike, columns: ArrayLike, n_jobs: int | None, chances: bool = True
) -> tuple[Array, Array, Array]:
    """Return averages over draws; see ``Draws.averages``."""
    with threads(n_jobs) as pool:
        return draws.averages(rows, columns, pool.even, chances)


def descending(values: Array, device: str) -> NDArray[np.int64]:
    """Return the places of numbers from the largest on, sorted on a GPU where they are many."""
    found = gpus.for_prediction(device, len(values))
    if found is None:
        return np.argsort(-values, kind="stable")
    from onebit.engine.gpu.holding import descending as sorted_there

    with gpus.at_work(found):
        return sorted_there(values, found)


def probabilities(curve: Any, mean: Array, variance: Array, device: str) -> Array:
    """Return what a curve makes of many scores; that of the logistic loss on a GPU."""
    found = gpus.for_prediction(device, len(mean)) if isinstance(curve, Sigmoid) else None
    if found is None:
        return curve.probability(mean, variance)
    from onebit.engine.gpu.predict import expected_sigmoid

    with gpus.at_work(found):
        return expected_sigmoid(mean, variance, found)


def _score(
    posterior: Posterior,
    rows: Codes,
    columns: Codes,
    mean: Array,
    variance: Array,
    n_jobs: int | None,
    device: str,
) -> None:
    known = (rows >= 0) & (columns >= 0)
    if not known.all():
        for places in (np.flatnonzero(known), np.flatnonzero(~known)):
            part = np.empty(len(places)), np.empty(len(places) if len(variance) else 0)
            where = device if known[places].all() else "cpu"  # a GPU knows no prior of unknown ids
            _score_alike(posterior, rows[places], columns[places], *part, n_jobs, where)
            mean[places] = part[0]
            if len(variance):
                variance[places] = part[1]
        return
    _score_alike(posterior, rows, columns, mean, variance, n_jobs, device)


def _score_alike(
    posterior: Posterior,
    rows: Codes,
    columns: Codes,
    mean: Array,
    variance: Array,
    n_jobs: int | None,
    device: str,
) -> None:
    """Score pairs of which all, or none, have two known ids."""
    found = gpus.for_prediction(device, len(rows))
    if found is not None:
        from onebit.engine.gpu.predict import on_device

        try:
            with gpus.at_work(found):
                on_device(posterior, found).score(rows, columns, mean, variance)
            return
        except gpus.TooLittleMemory:
            if device != "auto":
                raise
    with threads(n_jobs) as pool:
        if len(variance):
            mean[:], variance[:] = posterior.score_moments(rows, columns, pool.even)
        else:
            mean[:] = posterior.scores(rows, columns, pool.even)
