"""Random generators from what scikit-learn calls a ``random_state``."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state


def generator(random_state: Any) -> np.random.Generator:
    """Return a generator of its own for a seed, a ``RandomState``, a ``Generator`` or None."""
    if isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state.integers(np.iinfo(np.int32).max))
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
