"""The inner loops of ``intrinsics`` as plain loops: slower, and without numba's internals."""

from __future__ import annotations

import numba
import numpy as np

from onebit.data.kernels import within_kernels

_BLOCK, _LANES, _TILE = 16, 8, 4
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@numba.njit(inline="always")
def prefetch_lines(table, index, begin, end):
    """Do nothing: it would only ask for what is needed soon."""


@within_kernels(error_model="numpy", fastmath=_FAST)
def dot16(own, at, table, line, column):
    """Return the product of ``own[at : at + 16]`` with sixteen columns of a line, from ``column`` on."""
    total = np.float32(0.0)
    for k in range(_BLOCK):
        total += own[at + k] * table[line, column + k]
    return total


@within_kernels(error_model="numpy", fastmath=_FAST)
def products16(own, at, table, line, column, out, to):
    """Do as ``dot16``, and write the sixteen products to line ``to`` of ``out``, from ``column`` on."""
    total = np.float32(0.0)
    for k in range(_BLOCK):
        out[to, column + k] = own[at + k] * table[line, column + k]
        total += out[to, column + k]
    return total


@within_kernels(error_model="numpy", fastmath=_FAST)
def four_dots(own, table, index, first, last, column, out, to):
    """Write the products of ``own`` with columns of four lines, from ``column`` on, to ``out``."""
    for k in range(4):
        line = index[min(first + k, last)]
        total = np.float32(0.0)
        for t in range(own.shape[0]):
            total += own[t] * table[line, column + t]
        out[to + k] = total


@within_kernels(error_model="numpy", fastmath=_FAST)
def weighted_sum(weights, count, table, index, first, column, width, out):
    """Write a weighted sum of lines to ``out``: of their ``width`` columns from ``column`` on."""
    for t in range(width):
        out[t] = 0.0
    for k in range(count):
        line = index[first + k]
        for t in range(width):
            out[t] += weights[k] * table[line, column + t]


@within_kernels(error_model="numpy", fastmath=_FAST)
def subtract_products(out, at, left, left_at, left_step, right, right_at, right_step, count):
    """Subtract, in all lanes, the sum of ``count`` products of numbers that stand ``step`` apart."""
    for k in range(count):
        for lane in range(_LANES):
            product = left[left_at + k * left_step + lane] * right[right_at + k * right_step + lane]
            out[at + lane] -= product


@within_kernels(error_model="numpy", fastmath=_FAST)
def weighted_products16(weights, count, table, index, first, row, column, out):
    """Write a tile of a weighted sum of outer products of lines to ``out``, four rows of sixteen."""
    for t in range(_TILE * _BLOCK):
        out[t] = 0.0
    for k in range(count):
        line = index[first + k]
        for a in range(_TILE):
            own = weights[k] * table[line, row + a]
            for t in range(_BLOCK):
                out[a * _BLOCK + t] += own * table[line, column + t]
