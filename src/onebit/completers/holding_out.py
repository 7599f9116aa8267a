"""The choice of answers to hold out: by a share, and by hashes of their ids."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from onebit.data.holding import Division, divided
from onebit.data.numbers import is_number
from onebit.data.observations import Observations
from onebit.data.sorting import Entries

Marks = NDArray[np.bool_]

WEIGHTED = "a certificate counts answers; it cannot be had with sample_weight"


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
    if not is_number(share) or not 0 <= share < 1:
        given = repr(share) if np.ndim(share) == 0 else type(share).__name__
        raise ValueError(f"certify is the share of answers to hold out, from 0 to below 1; got {given}")
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
