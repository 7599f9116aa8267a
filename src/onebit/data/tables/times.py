"""Columns that say when an answer was given, and answers after a moment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.data.tables.problems import shown

_WORDS = frozenset(["time", "timestamp", "date", "datetime", "ts", "when", "created"])
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(\D|$)")
_BARE = re.compile(r"\d{4}-\d{2}-\d{2}")
_NUMBER = re.compile(r"[-+]?\d*\.?\d+")
# Seconds since 1970, from 1989 to 2043, and the same in thousandths; 20240531.
_MOMENT = re.compile(r"(6|7|8|9|1\d|2[0-2])\d{8}(\d{3})?(\.\d*)?|(19|20)\d{2}[01]\d[0-3]\d")


def looks_like_time(name: str, sample: Sequence[str]) -> bool:
    """Say whether a column holds times, by its first fields, and by its name where these are words."""
    texts = [text.strip() for text in sample if text.strip()]
    if all(_NUMBER.fullmatch(text) for text in texts):  # a response time is a number too
        return len(set(texts)) > 1 and all(_MOMENT.fullmatch(text) for text in texts)
    if all(_DATE.match(text) for text in texts):
        return len(set(texts)) > 1 and "birth" not in name.lower()
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    named = not _WORDS.isdisjoint(re.split(r"[^a-z]+", spaced.lower()))
    return named and "birth" not in name.lower() and all(any(map(str.isdigit, t)) for t in texts)


@dataclass(frozen=True)
class After:
    """A moment in a column: answers after it are held out.

    Attributes
    ----------
    column : str
        Its name, or its number.
    value : str
        A number, or a date as 2024-05-31 or 2024-05-31T12:00. After a day means after its end. Times
        without a zone are taken as UTC.
    """

    column: str
    value: str

    def __post_init__(self) -> None:
        if self._number is None and pd.isna(self._date(self.value)):
            raise ValueError(
                f"{shown(self.value)} is neither a number nor a date; write a date as 2024-05-31, or "
                "2024-05-31T12:00"
            )

    @property
    def _number(self) -> float | None:
        try:
            number = float(self.value)
        except ValueError:
            return None
        return number if np.isfinite(number) else None

    @staticmethod
    def _date(text: str) -> Any:
        if not _DATE.match(text.strip()):  # not "now"
            return pd.NaT
        return pd.to_datetime(text.strip(), format="ISO8601", errors="coerce", utc=True)

    def later(self, texts: list[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Say which fields are after the moment, and which are none that can be compared with it."""
        series = pd.Series(texts, dtype=object).str.strip()
        number = self._number
        if number is not None:
            values = pd.to_numeric(series, errors="coerce").to_numpy(dtype=float)
            return values > number, ~np.isfinite(values)
        moments = pd.to_datetime(series, format="ISO8601", errors="coerce", utc=True)
        moment = self._date(self.value)
        if _BARE.fullmatch(self.value.strip()):
            later = moments >= moment + pd.Timedelta(days=1)
        else:
            later = moments > moment
        return later.to_numpy(), moments.isna().to_numpy()

    @property
    def hint(self) -> str:
        """What to do where fields cannot be compared with the value."""
        if self._number is None:
            seconds = self._date(self.value).timestamp()
            return (
                f"if the column holds seconds since 1970, write {self.value} as {seconds:.0f}; dates are "
                "written as 2024-05-31"
            )
        return "if the column holds dates, write the value as one, such as 2024-05-31"

    def reason(self, field: str) -> str:
        """Say what is wrong with a field."""
        kind = "number" if self._number is not None else "date"
        what = f"{shown(field)} is no {kind}" if field.strip() else f"the {kind} is missing"
        return f"in column {shown(self.column)}, {what}, to be compared with {shown(self.value)}"
