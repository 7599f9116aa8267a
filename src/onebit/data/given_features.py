"""Features as users give them: a table keyed by id, or ids and a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse


class FeatureError(ValueError):
    """Features that cannot be used, with what to do about it."""


@dataclass(frozen=True)
class Given:
    """Features as a user gave them: ids, and a table or a sparse matrix."""

    side: str
    ids: Any
    frame: pd.DataFrame | None = None
    matrix: Any = None
    taken: str = ""  # which column the ids are from, if that was a guess


def given(features: Any, side: str) -> Given:
    """Take what a user gave: a table keyed by id, or a pair of ids and a matrix.

    A pandas frame is keyed by its index if that has a name or does not hold whole numbers, and else by
    its first column; polars and pyarrow tables by their first column.
    """
    if isinstance(features, tuple):
        return _matrix_given(features, side)
    if hasattr(features, "to_pandas"):
        features = features.to_pandas()
    if isinstance(features, pd.Series):
        features = features.to_frame(features.name if features.name is not None else "feature")
    if not isinstance(features, pd.DataFrame):
        raise TypeError(
            f"{side} features are a table keyed by id (pandas, polars, pyarrow) or a pair of ids and a "
            f"matrix, got {type(features).__name__}"
        )
    frame, taken = features, ""
    if isinstance(frame.index, pd.MultiIndex):
        raise FeatureError(f"the {side} features have an index of several levels; keep the ids alone")
    if _only_counts(frame.index):
        if frame.shape[1] < 2:
            raise FeatureError(
                f"the {side} features have {frame.shape[1]} column(s); the first is taken for the ids, "
                "and at least one more holds what is known"
            )
        name = str(frame.columns[0])
        taken = (
            f" (ids are taken from the first column, {name!r}, since the index has no name; give it one "
            "with rename_axis if it holds the ids)"
        )
        frame = frame.set_index(frame.columns[0])
    if frame.shape[1] == 0 or len(frame) == 0:
        raise FeatureError(f"the {side} features are an empty table")
    frame = frame.rename(columns=str)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise FeatureError(f"the {side} features have two columns named {twice[0]!r}")
    _check_ids(frame.index, side, taken)
    return Given(side, frame.index, frame, taken=taken)


def _only_counts(index: pd.Index) -> bool:
    """Say whether an index only numbers the lines: whole numbers, and nobody gave it a name."""
    return index.name is None and index.inferred_type == "integer"


def _matrix_given(features: tuple[Any, ...], side: str) -> Given:
    if len(features) != 2:
        raise TypeError(f"{side} features as a pair are (ids, matrix), got {len(features)} parts")
    ids, matrix = pd.Index(features[0]), features[1]
    if not scipy.sparse.issparse(matrix):
        matrix = np.asarray(matrix)
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise TypeError(f"{side} features as a matrix are two-dimensional numbers")
    matrix = scipy.sparse.csr_array(matrix, dtype=float, copy=True)
    matrix.sum_duplicates()  # an entry may come in parts
    if matrix.shape[0] != len(ids):
        raise FeatureError(f"{len(ids)} ids of {side} features for a matrix with {matrix.shape[0]} lines")
    if not np.isfinite(matrix.data).all():
        raise FeatureError(f"the matrix of {side} features holds a value that is missing or infinite")
    _check_ids(ids, side)
    return Given(side, ids, None, matrix)


def written(value: Any) -> str:
    """Return an id as a user would write it."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def _check_ids(ids: pd.Index, side: str, taken: str = "") -> None:
    if ids.hasnans:
        raise FeatureError(
            f"an id of the {side} features is missing (line {int(ids.isna().argmax()) + 1}){taken}"
        )
    twice = ids[ids.duplicated()]
    if len(twice):
        raise FeatureError(
            f"the id {written(twice[0])} stands twice among the {side} features; keep one line "
            f"of it{taken}"
        )
