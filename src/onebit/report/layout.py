"""Rows and columns as points in the plane, or on a line."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.completers.base import PairClassifier
from onebit.model.irt import Scale

Array = NDArray[np.float64]


def factors_of(model: PairClassifier) -> tuple[Array, Array]:
    """Return the mean factors of rows and columns around their means; none for a model of rank zero."""
    draws: Any = getattr(getattr(model, "completer_", model), "draws_", None)
    if draws is not None:
        return draws.mean_factors
    posterior: Any = getattr(model, "posterior_", None)
    if posterior is not None:
        return posterior.centred_factors(0), posterior.centred_factors(1)
    left, right = getattr(model, "left_", None), getattr(model, "right_", None)
    if left is None or right is None:
        return np.zeros((len(model.rows_), 0)), np.zeros((len(model.columns_), 0))
    return left, right


def effects_of(model: PairClassifier) -> tuple[Array | None, Array | None]:
    """Return the mean effects of rows and columns, by code, None where the model has none."""
    found: list[Array | None] = []
    for name, index in (("row_effects_", model.rows_), ("column_effects_", model.columns_)):
        try:
            found.append(getattr(model, name).to_numpy()[np.argsort(index.listed)])
        except AttributeError:
            found.append(None)
    return found[0], found[1]


def principal(left: Array, right: Array) -> tuple[Array, Array, Array]:
    """Return singular values of ``left right'`` and both sides along them, the size shared evenly."""
    if left.shape[1] == 0:
        return np.zeros(0), left, right
    left_basis, left_part = np.linalg.qr(left)
    right_basis, right_part = np.linalg.qr(right)
    u, size, vt = np.linalg.svd(left_part @ right_part.T, full_matrices=False)
    # Signs are arbitrary; the larger half of the columns points right and up.
    turn = np.where(np.median(vt, axis=1) < 0, -1.0, 1.0)
    rows = (left_basis @ u) * (turn * np.sqrt(size))
    columns = (right_basis @ vt.T) * (turn * np.sqrt(size))
    ratio = np.sqrt(len(left) / len(right))  # so that a typical row lies as far out as a typical column
    return size / np.sqrt(float(len(left)) * len(right)), rows * np.sqrt(ratio), columns / np.sqrt(ratio)


def places(model: PairClassifier) -> tuple[Array, Array]:
    """Return the first two factors of rows and of columns; one, or none, where the model uses fewer."""
    _, rows, columns = principal(*factors_of(model))
    rank: Any = getattr(model, "rank_", rows.shape[1])
    shown = min(int(rank), 2)
    return rows[:, :shown], columns[:, :shown]


def scale_of(model: PairClassifier) -> Scale | None:
    """Return the scale of a sampled model of item response theory; None of other models."""
    if not model.is_sampled or not Scale.fits(model.draws_):
        return None
    return Scale.of(model.draws_)


def on_one_ruler(scale: Scale) -> tuple[Array, Array]:
    """Return abilities of rows and difficulties of columns, for a ruler that holds both.

    Difficulties far beyond the abilities stand at its ends, and so do those that are not determined: at
    the low end where yes is more frequent than no, at the high end where it is less frequent.
    """
    far = 1.5 * float(np.abs(scale.abilities[0]).max())
    difficulty = np.clip(scale.difficulties[0], -far, far)
    ends = np.where(scale.intercept.mean(axis=1) > 0.0, -far, far)
    difficulty = np.where(np.isnan(difficulty), ends, difficulty)
    return scale.abilities[0][:, None], difficulty[:, None]
