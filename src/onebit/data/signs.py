"""Answers as signs: -1 and 1, whatever two numbers or booleans they were written as."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def dense_numbers(matrix: Any) -> NDArray[Any]:
    """Return a matrix as numbers with NaN for blanks: missing values and masked entries too."""
    if isinstance(matrix, np.ma.MaskedArray):
        return np.ma.filled(matrix.astype(float), np.nan)
    dense = np.asarray(matrix)
    return _floats(dense) if dense.dtype == object else dense


def signs_of_pairs(answers: Any, n_pairs: int) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Turn answers into signs (see ``signs``), one for each of ``n_pairs`` pairs."""
    sign, classes = signs(answers)
    if len(sign) != n_pairs:
        raise ValueError(f"{n_pairs} pairs but {len(sign)} answers; each pair needs one answer")
    return sign, classes


def signs(
    answers: Any, where: Callable[[int], str] | None = None
) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Turn answers into signs; also return the two classes, "no" first, as they were written.

    Answers that are all equal leave the second class open: ``-1`` stands against ``1``, and ``0``
    and ``1`` against each other.

    Examples
    --------
    >>> from onebit.data.observations import signs
    >>> sign, classes = signs([0, 1, 1])
    >>> sign.tolist(), classes.tolist()
    ([-1, 1, 1], [0, 1])
    """
    where = where or (lambda k: f"position {k}")
    values = dense_numbers(answers) if isinstance(answers, np.ma.MaskedArray) else np.asarray(answers)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"answers must be one-dimensional, got shape {values.shape}")
    if values.dtype == object:
        boolean = all(isinstance(value, (bool, np.bool_)) for value in values)
        values = values.astype(bool) if boolean else _floats(values)
    if values.dtype.kind == "b":
        return np.where(values, 1, -1).astype(np.int8), np.array([False, True])
    if values.dtype.kind not in "iuf":
        example = values[0] if len(values) else ""
        raise ValueError(
            f"answers must be numbers or booleans ({{-1, 1}}, {{0, 1}} or True and False), got such as "
            f"{str(example)!r}; turn words into answers by comparing, for example answers == 'yes'"
        )
    ones, zeros, minus = values == 1, values == 0, values == -1
    bad = ~(ones | zeros | minus)
    if bad.any():
        position = int(np.argmax(bad))
        if np.isnan(values[position]):
            raise ValueError(f"the answer at {where(position)} is missing (nan); leave such pairs out")
        raise ValueError(
            f"answer {values[position]} at {where(position)} is none of {{-1, 1}}, {{0, 1}}; "
            "turn ratings into answers first, for example ratings > 3.5"
        )
    has_zero, has_minus = bool(zeros.any()), bool(minus.any())
    if has_zero and has_minus:
        position = int(np.argmax(zeros))
        raise ValueError(
            f"answers hold three values, -1, 0 and 1 (a 0 at {where(position)}); write blanks by "
            "leaving the pair out, and answers as {-1, 1} or {0, 1}"
        )
    classes = np.array([-1 if has_minus else 0, 1], dtype=values.dtype)
    return 2 * ones.view(np.int8) - np.int8(1), classes


def _floats(values: NDArray[Any]) -> NDArray[np.float64]:
    """Turn an array of objects into floats, missing ones into NaN; numbers in quotes are no numbers."""
    flat = np.where(pd.isna(values), np.nan, values).ravel()
    position = next((k for k, value in enumerate(flat) if not isinstance(value, Real)), None)
    if position is not None:
        raise ValueError(
            f"answer {flat[position]!r} at position {position} is not a number; answers are {{-1, 1}}, "
            "{0, 1} or booleans: turn words into them by comparing, for example answers == 'yes'"
        )
    return flat.astype(float).reshape(values.shape)


def check_same_way(classes: NDArray[Any], others: NDArray[Any], whose: str) -> None:
    """Refuse answers that are written with the same two words, the other way round."""
    words, new = ([str(value) for value in part] for part in (classes, others))
    if words == new[::-1] and words != new:
        raise ValueError(
            f"{whose} take {new[1]!r} for yes and {new[0]!r} for no; those that are fitted the other "
            "way round. Read both with the same words for yes and no"
        )
