"""What ``fit`` was given, as observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from onebit.completers.holding_out import WEIGHTED
from onebit.data.holding import joined, marked
from onebit.data.observations import Observations
from onebit.engine.gpu import device as gpus

Marks = NDArray[np.bool_]


def observations_of(X: Any, y: Any, sample_weight: ArrayLike | None, device: str = "cpu") -> Observations:
    """Turn what ``fit`` was given into observations: pairs and answers, or a whole matrix.

    A GPU codes what it can by itself.
    """
    if y is not None:
        if isinstance(X, Observations):
            raise ValueError("Observations hold their answers already; call fit(observations)")
        observations = _taken_in(X, y, device) if sample_weight is None else None
        if observations is not None:
            return observations
        return Observations.from_pairs(X, y, sample_weight)
    if sample_weight is not None:
        raise ValueError("sample_weight goes with pairs and answers: fit(pairs, answers, sample_weight)")
    if isinstance(X, Observations):
        return X
    try:
        return Observations.from_matrix(X)
    except ValueError as error:
        raise ValueError(
            f"without answers, X is taken for a whole matrix with blanks: {error}; "
            "if X holds pairs, call fit(pairs, answers)"
        ) from None


def _taken_in(X: Any, y: Any, device: str) -> Observations | None:
    """Let a GPU code pairs and answers, where there is one and it can."""
    if device == "cpu" or not isinstance(y, (np.ndarray, pd.Series)) or y.ndim != 1:
        return None
    found = gpus.chosen(device, len(y))
    if found is None:
        return None
    from onebit.engine.gpu.intake import taken_in

    try:
        with gpus.at_work(found):
            return taken_in(X, y, found)
    except gpus.TooLittleMemory:
        return None


def answers_of(
    X: Any, y: Any, sample_weight: ArrayLike | None, certify: Any, device: str = "cpu"
) -> tuple[Observations, Marks | None]:
    """Return all that ``fit`` was given and, where the user says which answers to hold out, their marks.

    Marks are in row order. ``certify`` is a share (then there are none), a mask, or answers besides.
    """
    if certify is None or isinstance(certify, (int, float, np.number)):  # booleans are refused later
        return observations_of(X, y, sample_weight, device), None
    if sample_weight is not None:
        raise ValueError(WEIGHTED)
    if isinstance(certify, (Observations, tuple)):
        if isinstance(certify, tuple) and len(certify) != 2:
            raise ValueError("certify holds pairs and their answers: certify=(pairs, answers)")
        others = certify if isinstance(certify, Observations) else Observations.from_pairs(*certify)
        first = observations_of(X, y, None)
        if first.weighted or others.weighted:
            raise ValueError(WEIGHTED)
        everything, marks = joined(first, others)
    elif isinstance(X, Observations):
        raise ValueError(
            "Observations have an order of their own, which a mask cannot follow; give the answers to "
            "hold out as certify=(pairs, answers), or as Observations"
        )
    elif y is None:
        everything = observations_of(X, None, None)
        both = isinstance(X, pd.DataFrame) and isinstance(certify, pd.DataFrame)
        if both and not (X.index.equals(certify.index) and X.columns.equals(certify.columns)):
            raise ValueError("certify is a frame with other labels than X, or in another order")
        places = everything.by_row.owners(), everything.by_row.index
        if hasattr(certify, "tocsr") and certify.shape == X.shape and certify.dtype == bool:
            marks = np.asarray(certify.tocsr()[places]).ravel()
        else:
            marks = _mask(certify, tuple(np.shape(X)))[places]
    else:
        loose = Observations.from_pairs(X, y)
        labelled = [part for part in (X, y) if isinstance(part, (pd.DataFrame, pd.Series))]
        if isinstance(certify, pd.Series) and labelled and not certify.index.equals(labelled[0].index):
            raise ValueError(
                "certify is a series with another index than the answers, or in another order"
            )
        everything, marks = marked(loose, _mask(certify, (loose.n,)))
    if not marks.any() or marks.all():
        which = "none" if not marks.any() else "all"
        raise ValueError(f"certify marks {which} of the {everything.n:,} answers; some must be held out")
    return everything, marks


def _mask(certify: Any, shape: tuple[int, ...]) -> Marks:
    """Return a mask of answers, one for each."""
    try:
        mask = np.asarray(certify)
    except ValueError:  # lists of different lengths
        mask = np.empty(0, dtype=object)
    if mask.dtype == object and all(isinstance(value, (bool, np.bool_)) for value in mask.ravel()):
        mask = mask.astype(bool)
    if mask.dtype == object and pd.isna(mask).any():
        raise ValueError("certify is a mask with missing values; say False where nothing is known")
    if mask.dtype != bool or mask.shape != shape:
        raise ValueError(
            "certify is a share of the answers, a mask with True for every answer to hold out (of shape "
            f"{shape}), or answers besides: (pairs, answers); got {mask.dtype} of shape {mask.shape}"
        )
    return mask
