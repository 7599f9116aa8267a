"""What ``fit`` was given, as observations, and the choice of what is held out."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from onebit.data.holding import Division, divided, joined, marked
from onebit.data.observations import Entries, Observations
from onebit.engine.gpu import device as gpus

Marks = NDArray[np.bool_]

WEIGHTED = "a certificate counts answers; it cannot be had with sample_weight"


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
        where = _mask(certify, tuple(np.shape(X)))
        marks = where[everything.by_row.owners(), everything.by_row.index]
    else:
        loose = Observations.from_pairs(X, y)
        everything, marks = marked(loose, _mask(certify, (loose.n,)))
    if not marks.any() or marks.all():
        which = "none" if not marks.any() else "all"
        raise ValueError(f"certify marks {which} of the {everything.n:,} answers; some must be held out")
    return everything, marks


def _mask(certify: Any, shape: tuple[int, ...]) -> Marks:
    """Return a mask of answers, one for each."""
    mask = np.asarray(certify.toarray() if hasattr(certify, "toarray") else certify)
    if mask.dtype == object and all(isinstance(value, (bool, np.bool_)) for value in mask.ravel()):
        mask = mask.astype(bool)
    if mask.dtype != bool or mask.shape != shape:
        raise ValueError(
            "certify is a share of the answers, a mask with True for every answer to hold out (of shape "
            f"{shape}), or answers besides: (pairs, answers); got {mask.dtype} of shape {mask.shape}"
        )
    return mask


def held_identity(certify: Any, marks: Marks | None) -> Any:
    """Return what tells one choice of held-out answers from another, for a checkpoint."""
    return certify if marks is None else hashlib.sha256(np.packbits(marks).tobytes()).hexdigest()


def hold_out(observations: Observations, share: float, random_state: Any) -> Division | None:
    """Hold the answers that a certificate will count out, a share of all; None for a share of zero.

    By a keyed hash of row id, column id and the number of the repeat, so that the choice depends neither
    on the order of the answers nor on where they lie: those with the smallest hashes are taken. Answers
    on a GPU are divided there.
    """
    size = held_size(observations.n, observations.weighted, share)
    if not size:
        return None
    key = hold_out_key(random_state)
    found = None
    if observations.loose is not None and not isinstance(observations.loose, Entries):
        from onebit.engine.gpu.holding import divided as divided_there

        found = divided_there(observations, size, key)
    return divided(observations, size, key) if found is None else found


def held_size(n: int, weighted: bool, share: float) -> int:
    """Return how many of ``n`` answers a share holds out; a share that cannot be is an error."""
    number = isinstance(share, (int, float, np.number)) and not isinstance(share, bool)
    if not number or not 0 <= share < 1:
        raise ValueError(f"certify is the share of answers to hold out, from 0 to below 1; got {share!r}")
    if weighted:
        raise ValueError(WEIGHTED)
    size = round(share * n)
    if share and not 0 < size < n:
        raise ValueError(f"certify={share} of {n} answers holds out {size}; need more answers")
    return size


def hold_out_key(random_state: Any) -> int:
    """Return the key of the hold-out's hashes from what scikit-learn calls a random state."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**62))
    return int(check_random_state(random_state).randint(2**31 - 1))
