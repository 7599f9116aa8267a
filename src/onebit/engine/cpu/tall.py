"""Products of tall matrices with few columns, in an order that does not depend on the threads.

Of matrices that are not tall, numpy's products take as long, and need no kernel to be compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel
from onebit.engine.cpu.threads import Threads
from onebit.model.gaussians import lower_triangle

Array = NDArray[np.float64]

# Rows whose products are summed at once; the sums of blocks are added up in order.
_BLOCK = 4096


@kernel(nogil=True, error_model="numpy", fastmath={"contract"})
def _block_products(first, last, left, right, same, out):
    """Write ``left' right`` of the blocks ``first:last`` of rows; of two the same, up to its diagonal.

    The left matrix is the wider one: its columns lie in the innermost loop. Four rows are taken at once,
    so that a sum is fetched and put back once for all of them; those beyond the last are zeros.
    """
    wide, narrow = left.shape[1], right.shape[1]
    lines, values = np.zeros((4, wide)), np.zeros((4, narrow))
    for block in range(first, last):
        total = np.zeros((narrow, wide))
        end = min((block + 1) * _BLOCK, left.shape[0])
        for i in range(block * _BLOCK, end, 4):
            for row in range(4):
                here = i + row < end
                for a in range(wide):
                    lines[row, a] = left[i + row, a] if here else 0.0
                for b in range(narrow):
                    values[row, b] = right[i + row, b] if here else 0.0
            for b in range(narrow):
                v0, v1, v2, v3 = values[0, b], values[1, b], values[2, b], values[3, b]
                for a in range(b + 1 if same else wide):
                    total[b, a] += (v0 * lines[0, a] + v1 * lines[1, a]) + (
                        v2 * lines[2, a] + v3 * lines[3, a]
                    )
        for b in range(narrow):
            for a in range(wide):
                out[block, b, a] = total[b, a]


@kernel(nogil=True, error_model="numpy", fastmath={"contract"})
def _block_grams(first, last, tall, weights, out):
    """Write the weighted products of the columns of blocks ``first:last`` of rows, pair by pair.

    A pair's product is formed once for all weights, of four rows at once; rows beyond the last weigh
    nothing.
    """
    wide, count, size = tall.shape[1], weights.shape[0], tall.shape[0]
    pairs = wide * (wide + 1) // 2
    products = np.empty((4, pairs))
    for block in range(first, last):
        total = np.zeros((count, pairs))
        end = min((block + 1) * _BLOCK, size)
        for i in range(block * _BLOCK, end, 4):
            for row in range(4):
                line, at = tall[min(i + row, size - 1)], 0
                for a in range(wide):
                    for b in range(a + 1):
                        products[row, at + b] = line[a] * line[b]
                    at += a + 1
            for k in range(count):
                w0 = weights[k, i]
                w1 = weights[k, i + 1] if i + 1 < end else 0.0
                w2 = weights[k, i + 2] if i + 2 < end else 0.0
                w3 = weights[k, i + 3] if i + 3 < end else 0.0
                for at in range(pairs):
                    total[k, at] += (w0 * products[0, at] + w1 * products[1, at]) + (
                        w2 * products[2, at] + w3 * products[3, at]
                    )
        for k in range(count):
            for at in range(pairs):
                out[block, k, at] = total[k, at]


@kernel(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _lines(begin, end, tall, turned, out):
    """Write rows ``begin:end`` of ``tall turned'``, four columns of it at a time."""
    narrow, wide = turned.shape
    fours, line = narrow // 4 * 4, np.empty(wide)
    for i in range(begin, end):
        for a in range(wide):
            line[a] = tall[i, a]
        for b in range(0, fours, 4):
            t0 = t1 = t2 = t3 = 0.0
            for a in range(wide):
                t0 += line[a] * turned[b, a]
                t1 += line[a] * turned[b + 1, a]
                t2 += line[a] * turned[b + 2, a]
                t3 += line[a] * turned[b + 3, a]
            out[i, b], out[i, b + 1], out[i, b + 2], out[i, b + 3] = t0, t1, t2, t3
        for b in range(fours, narrow):
            total = 0.0
            for a in range(wide):
                total += line[a] * turned[b, a]
            out[i, b] = total


def ready(tall: NDArray[Any]) -> NDArray[Any]:
    """Return a matrix as the products below take it best, for those who ask for many of them."""
    return np.asarray(tall, float) if len(tall) <= _BLOCK else tall


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
    if right.shape[1] > left.shape[1]:
        return np.ascontiguousarray(inner(right, left, pool).T)
    if len(left) <= _BLOCK:
        wide = np.asarray(left, float)  # a product of one matrix with itself takes half the work of two
        return np.asarray(wide.T @ (wide if left is right else np.asarray(right, float)))
    blocks = -(-len(left) // _BLOCK)
    out = np.empty((blocks, right.shape[1], left.shape[1]))
    same = left is right
    pool.even(
        lambda first, last: _block_products(first, last, left, right, same, out),
        blocks,
        _BLOCK * left.shape[1],
    )
    total = out.sum(axis=0)
    return total + np.tril(total, -1).T if same else np.ascontiguousarray(total.T)


def grams(tall: Array, weights: Array, pool: Threads) -> Array:
    """Return ``tall' diag(w) tall`` for each line ``w`` of the weights.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit.engine.cpu.tall import grams
    >>> from onebit.engine.cpu.threads import Threads
    >>> grams(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([[1.0, 3.0]]), Threads(1, None)).tolist()
    [[[1.0, 2.0], [2.0, 7.0]]]
    """
    wide, blocks = tall.shape[1], -(-len(tall) // _BLOCK)
    weights, lower = np.ascontiguousarray(weights), lower_triangle(wide)
    out = np.empty((blocks, len(weights), len(lower[0])))
    pool.even(
        lambda first, last: _block_grams(first, last, tall, weights, out),
        blocks,
        min(_BLOCK, len(tall)) * len(weights) * wide,
    )
    full = np.empty((len(weights), wide, wide))
    full[:, lower[0], lower[1]] = full[:, lower[1], lower[0]] = out.sum(axis=0)
    return full


def times(tall: NDArray[Any], small: Array, pool: Threads) -> Array:
    """Return ``tall small`` in double precision."""
    if len(tall) <= _BLOCK:
        return np.asarray(np.asarray(tall, float) @ small)
    out = np.empty((len(tall), small.shape[1]))
    turned = np.ascontiguousarray(small.T)
    pool.even(lambda begin, end: _lines(begin, end, tall, turned, out), len(tall), tall.shape[1])
    return out
