"""How a column of a table of features becomes numbers: numbers, yes or no, categories."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from onebit.data.given_features import FeatureError, Given, written

# Levels from which on a column of words is taken for free text, unless they are far fewer than rows.
MANY_LEVELS = 50
# Squares of it are far from what a double holds.
LARGEST_VALUE = 1e100
# Numbers that are so many standard deviations from zero, such as moments in seconds since 1970, are
# counted from their median: sums of their squares would hold little of how they differ.
FAR = 1e3
# What values that no double holds end in.
_NO_NUMBERS = (TypeError, ValueError, ArithmeticError)


@dataclass(frozen=True)
class Column:
    """How one column of a table becomes numbers.

    Attributes
    ----------
    name : str
        Its name.
    kind : {"number", "boolean", "category"}
        What it holds.
    levels : tuple of str
        Of a category: its levels, in order.
    missing : bool
        Whether values were missing where the features were learnt.
    origin : float
        From where numbers are counted.
    """

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    missing: bool = False
    origin: float = 0.0

    @property
    def features(self) -> list[str]:
        """The names of the features that it becomes."""
        own = [f"{self.name} = {level}" for level in self.levels] if self.levels else [self.name]
        return [*own, f"{self.name} is missing"] if self.missing else own


def _origin(values: pd.Series) -> float:
    """Return from where a column of numbers is counted: from zero, unless that is far away."""
    try:
        numbers = values.dropna().to_numpy(dtype=float)
    except _NO_NUMBERS:  # said where they are read
        return 0.0
    numbers = numbers[np.abs(numbers) <= LARGEST_VALUE]
    if not len(numbers):
        return 0.0
    middle = float(np.median(numbers))
    return middle if abs(middle) > FAR * float(np.sqrt(((numbers - middle) ** 2).mean())) else 0.0


def learnt_column(given: Given, name: str) -> Column:
    """Learn what a column holds."""
    assert given.frame is not None
    values = given.frame[name]
    missing = bool(values.isna().any())
    if missing and values.isna().all():
        raise FeatureError(f"the {given.side} feature {name!r} has no value at all; leave it out")
    if values.dtype == object and all(_is_number(value) for value in values.dropna()):
        return Column(name, "number", (), missing, _origin(values))
    if pd.api.types.is_bool_dtype(values) or _only_booleans(values):
        return Column(name, "boolean", (), missing)
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_complex_dtype(values):
        return Column(name, "number", (), missing, _origin(values))
    words = _words(values, name, given.side)
    levels = sorted(set(words.dropna()))
    if len(levels) > max(MANY_LEVELS, len(values) // 4):
        raise FeatureError(
            f"the {given.side} feature {name!r} has {len(levels):,} different values in {len(values):,} "
            "lines: that is text or an id, no category; leave it out, or make it a number or fewer levels"
        )
    if len(levels) == 1 and not missing:
        raise FeatureError(f"the {given.side} feature {name!r} is the same for everyone; leave it out")
    return Column(name, "category", tuple(levels), missing)


def _is_number(value: Any) -> bool:
    return isinstance(value, (Real, Decimal)) and not isinstance(value, (bool, np.bool_))


def _only_booleans(values: pd.Series) -> bool:
    return values.dtype == object and all(isinstance(v, (bool, np.bool_)) for v in values.dropna())


def _words(values: pd.Series, name: str, side: str) -> pd.Series:
    """Return a column of categories as words."""
    kind = values.dtype
    if values.isna().all():
        return values.astype(object).where(values.notna(), None)
    if isinstance(kind, pd.CategoricalDtype):
        return values.astype(object).map(str, na_action="ignore")
    plain = kind.kind == "O" and not isinstance(kind, pd.StringDtype)
    if isinstance(kind, pd.StringDtype) or (plain and all(isinstance(v, str) for v in values.dropna())):
        return values.astype(object).where(values.notna(), None)
    example = values.dropna().iloc[0]
    raise FeatureError(
        f"the {side} feature {name!r} holds {type(example).__name__} values such as "
        f"{str(example)[:40]!r}; "
        "numbers, booleans and categories are taken: turn it into one of these"
    )


def raw_features(columns: tuple[Column, ...], given: Given) -> tuple[Any, Any]:
    """Return all features as they are, zero where they are missing, and ones where they are missing."""
    if given.matrix is not None:
        return given.matrix, scipy.sparse.csr_array(given.matrix.shape)
    assert given.frame is not None
    parts = [_numbers(column, given.frame[column.name], given) for column in columns]
    raw, gaps = ([part[k] for part in parts] for k in (0, 1))
    return tuple(scipy.sparse.csr_array(scipy.sparse.hstack(part)) for part in (raw, gaps))


def _numbers(column: Column, values: pd.Series, given: Given) -> tuple[Any, Any]:
    """Return the features that a column becomes, and where they are missing."""
    absent = values.isna().to_numpy()
    if column.kind == "category":
        if pd.api.types.is_numeric_dtype(values):  # levels such as 1 and 2, read for themselves
            values = values.astype(object).map(lambda value: f"{value:g}", na_action="ignore")
        words = _words(values, column.name, given.side)
        codes = pd.Index(column.levels, dtype=object).get_indexer(pd.Index(words.where(~absent, None)))
        unknown = (codes < 0) & ~absent
        if unknown.any():
            raise FeatureError(
                f"the {given.side} feature {column.name!r} has the value "
                f"{str(values.iloc[int(unknown.argmax())])[:40]!r}, which the model has not seen; "
                "leave it blank, and it counts as average"
            )
        known = np.flatnonzero(codes >= 0)
        parts = scipy.sparse.csr_array(
            (np.ones(len(known)), (known, codes[known])), shape=(len(values), len(column.levels))
        )
        return _with_flags(parts, absent, column.missing)
    try:
        numbers = values.to_numpy(dtype=float, na_value=np.nan)
    except _NO_NUMBERS:
        raise FeatureError(
            f"the {given.side} feature {column.name!r} holds something else than {column.kind}s, with "
            "which the model was fitted"
        ) from None
    infinite = np.isinf(numbers)
    if infinite.any():
        where = given.ids[int(infinite.argmax())]
        raise FeatureError(f"the {given.side} feature {column.name!r} of {written(where)} is infinite")
    large = np.abs(np.where(absent, 0.0, numbers)) > LARGEST_VALUE
    if large.any():
        raise FeatureError(
            f"the {given.side} feature {column.name!r} is beyond {LARGEST_VALUE:g}; choose a larger unit"
        )
    if column.kind == "boolean" and not np.isin(numbers[~absent], (0.0, 1.0)).all():
        raise FeatureError(
            f"the {given.side} feature {column.name!r} was a yes or no when the model was fitted, and "
            "now holds other numbers"
        )
    own = scipy.sparse.csr_array(np.where(absent, 0.0, numbers - column.origin)[:, None])
    return _with_flags(own, absent, column.missing)


def _with_flags(own: Any, absent: NDArray[np.bool_], flagged: bool) -> tuple[Any, Any]:
    """Return features and their gaps, with a feature more that says where they are missing."""
    flags = absent[:, None].astype(float)
    gaps = scipy.sparse.csr_array(np.tile(flags, (1, own.shape[1])))
    if not flagged:
        return own, gaps
    nothing = scipy.sparse.csr_array(flags.shape)
    return scipy.sparse.hstack([own, flags]), scipy.sparse.hstack([gaps, nothing])
