"""Pairs of codes, checked at the door: -1 is an id that is not known."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Codes = NDArray[np.int32]


def check_codes(codes: NDArray[np.integer], size: int, least: int, side: str) -> None:
    """Refuse codes outside of ``least`` to ``size - 1``."""
    bad = (codes < least) | (codes >= size)
    if bad.any():
        value = codes[bad][0]
        raise ValueError(f"{side} code {value} is outside {least}..{size - 1}")


def checked_pairs(rows: ArrayLike, columns: ArrayLike, shape: tuple[int, int]) -> tuple[Codes, Codes]:
    """Return pairs of codes as arrays; -1 is an unknown id, and others must be inside ``shape``."""
    row_codes = np.ascontiguousarray(rows, dtype=np.int32)
    column_codes = np.ascontiguousarray(columns, dtype=np.int32)
    if row_codes.ndim != 1 or row_codes.shape != column_codes.shape:
        raise ValueError(
            f"rows and columns must be lists of codes of one length, got shapes "
            f"{row_codes.shape} and {column_codes.shape}"
        )
    check_codes(row_codes, shape[0], -1, "row")
    check_codes(column_codes, shape[1], -1, "column")
    return row_codes, column_codes
