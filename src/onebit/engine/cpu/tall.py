"""Products of tall matrices with few columns, in an order that does not depend on the threads."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from onebit.engine.cpu.threads import Threads

Array = NDArray[np.float64]

# Rows whose products are summed at once; the sums of blocks are added up in order.
_BLOCK = 4096


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _block_products(first, last, left, right, out):
    """Write ``left' right`` of the blocks ``first:last`` of rows."""
    for block in range(first, last):
        # The left matrix is the wider one: its columns lie in the innermost loop.
        total = np.zeros((right.shape[1], left.shape[1]))
        for i in range(block * _BLOCK, min((block + 1) * _BLOCK, left.shape[0])):
            for b in range(right.shape[1]):
                value = np.float64(right[i, b])
                for a in range(left.shape[1]):
                    total[b, a] += value * left[i, a]
        for b in range(right.shape[1]):
            for a in range(left.shape[1]):
                out[block, b, a] = total[b, a]


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _lines(begin, end, tall, turned, out):
    """Write rows ``begin:end`` of ``tall turned'``."""
    for i in range(begin, end):
        for b in range(turned.shape[0]):
            total = 0.0
            for a in range(turned.shape[1]):
                total += np.float64(tall[i, a]) * turned[b, a]
            out[i, b] = total


def inner(left: NDArray[Any], right: NDArray[Any], pool: Threads) -> Array:
    """Return ``left' right`` in double precision.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit.engine.cpu.tall import inner
    >>> from onebit.engine.cpu.threads import Threads
    >>> inner(np.ones((3, 1)), np.arange(6.0).reshape(3, 2), Threads(1, None))
    array([[6., 9.]])
    """
    blocks = -(-len(left) // _BLOCK)
    out = np.empty((blocks, right.shape[1], left.shape[1]))
    pool.even(
        lambda first, last: _block_products(first, last, left, right, out),
        blocks,
        _BLOCK * left.shape[1],
    )
    return np.ascontiguousarray(out.sum(axis=0).T)


def times(tall: NDArray[Any], small: Array, pool: Threads) -> Array:
    """Return ``tall small`` in double precision."""
    out = np.empty((len(tall), small.shape[1]))
    turned = np.ascontiguousarray(small.T)
    pool.even(lambda begin, end: _lines(begin, end, tall, turned, out), len(tall), tall.shape[1])
    return out
