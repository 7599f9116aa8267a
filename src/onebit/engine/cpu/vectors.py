"""The inner loops of the passes: as intrinsics, or as plain loops where those cannot be had.

``ONEBIT_PLAIN_LOOPS=1`` asks for plain loops, and so does ``NUMBA_DISABLE_JIT=1``, under which Python
itself runs them.
"""

from __future__ import annotations

import os

import numba

BLOCK = 16  # columns of a table
LANES = 8  # small systems that are solved at once
TILE = 4  # rows of a sum of outer products that stay in registers

try:
    if os.environ.get("ONEBIT_PLAIN_LOOPS") or numba.config.DISABLE_JIT:
        raise ImportError("plain loops are asked for")
    from onebit.engine.cpu.intrinsics import (
        dot16,
        four_dots,
        prefetch_lines,
        products16,
        subtract_products,
        weighted_products16,
        weighted_sum,
    )
except (ImportError, AttributeError):
    from onebit.engine.cpu.plain import (
        dot16,
        four_dots,
        prefetch_lines,
        products16,
        subtract_products,
        weighted_products16,
        weighted_sum,
    )

__all__ = [
    "BLOCK",
    "LANES",
    "TILE",
    "dot16",
    "four_dots",
    "prefetch_lines",
    "products16",
    "subtract_products",
    "weighted_products16",
    "weighted_sum",
]
