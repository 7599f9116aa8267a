"""Upper bounds on the mean of numbers between 0 and 1, by betting (Waudby-Smith and Ramdas, 2024).

A gambler who holds the mean to be below ``m`` bets a share ``lam`` of the capital on each draw being
below it: the capital is the product of ``1 - lam (x - m)``. If the mean is ``m`` the game is fair, and
the capital ever reaches ``1 / delta`` with probability at most ``delta``. So whatever ``m`` makes the
gambler that rich is refused; the capital grows with ``m``, and the least such ``m`` is the bound. Stakes
look only at earlier draws: large where these have varied little.

The draws must be independent given the predictor, and come in an order that has nothing to do with them:
``shuffled`` gives one.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.certificates.bounds import check_delta

Array = NDArray[np.float64]

# Below one, so that no draw can ruin the gambler.
LARGEST_STAKE = 0.9
_STEPS = 60


def betting_upper_bound(values: Array, delta: float) -> float:
    """Return an upper bound on the mean of which ``values``, between 0 and 1, are draws in random order.

    One without draws.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit.certificates.betting import betting_upper_bound
    >>> draws = np.random.default_rng(0).uniform(0.1, 0.3, 1000)  # mean 0.2
    >>> 0.2 < betting_upper_bound(draws, 0.05) < 0.21
    True
    """
    check_delta(delta)
    x = np.asarray(values, dtype=float)
    if len(x) == 0:
        return 1.0
    if x.min() < 0.0 or x.max() > 1.0:
        raise ValueError(f"values must lie between 0 and 1, got {x.min():g} to {x.max():g}")
    stake = _stakes(x, delta)
    wanted = math.log(1.0 / delta)

    def rich(mean: float) -> bool:
        return bool(np.cumsum(np.log1p(-stake * (x - mean))).max() >= wanted)

    low, high = 0.0, 1.0
    if not rich(high):
        return 1.0
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if rich(middle) else (middle, high)
    return high


def shuffled(*content: NDArray[Any]) -> NDArray[np.int64]:
    """Return an order for what some arrays describe, drawn with a seed that is a digest of them.

    The same content gives the same order. One seed for all content would not do: where things are sorted,
    it would put the same ranks first each time, and whoever bets early would meet those that are sure.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit.certificates.betting import shuffled
    >>> sorted(shuffled(np.array([5, 3, 8])).tolist())
    [0, 1, 2]
    """
    digest = hashlib.sha256()
    for array in content:
        digest.update(np.ascontiguousarray(array).tobytes())
    seed = int.from_bytes(digest.digest()[:16], "little")
    return np.random.default_rng(seed).permutation(len(content[0]))


def _stakes(x: Array, delta: float) -> Array:
    """Return the stake of each draw, from those before it."""
    count = np.arange(1, len(x) + 1)
    mean = (0.5 + np.cumsum(x)) / (count + 1.0)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (count + 1.0)
    before = np.concatenate([[0.25], variance[:-1]])
    return np.minimum(np.sqrt(2.0 * math.log(1.0 / delta) / (len(x) * before)), LARGEST_STAKE)
