"""Each column's share of "yes" over all rows, one a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onebit.completers.base import PairClassifier
from onebit.report.words import first_and_last, share, share_answered

# Lines of the table: of more columns, those with the highest and the lowest shares.
MOST_COLUMNS = 200
# Entries times draws that are looked at, some seconds; of larger tables ``onebit columns`` is named.
MOST_LOOKS = 400_000_000
LEVEL = 0.9


@dataclass(frozen=True)
class ColumnShare:
    """One line: a column's share as it is printed, and where its interval lies between 0 and 100."""

    name: str
    answers: int
    answered: str
    share: str
    interval: str
    low: float
    high: float


def can_be_told(model: PairClassifier) -> bool:
    """Say whether shares of all columns are at hand: the model has draws, and they are not too many."""
    own: Any = getattr(model, "completer_", model)
    if not model.is_sampled or not model.answers_kept or getattr(own, "temperature", None) != 1.0:
        return False
    return len(model.rows_) * len(model.columns_) * own.draws_.count <= MOST_LOOKS


def shares_of_columns(model: PairClassifier) -> tuple[list[ColumnShare], str]:
    """Return the columns of a sampled model, the highest share of "yes" first, and of what draws."""
    found = model.column_summary(level=LEVEL)
    table = first_and_last(found.sort_values("share", ascending=False, kind="stable"), MOST_COLUMNS)
    lines = zip(table.index, table.to_dict("records"), strict=True)
    return [_line(label, line) for label, line in lines], found.attrs["draws"]


def _line(label: Any, line: dict[str, Any]) -> ColumnShare:
    low, high = line["share_low"], line["share_high"]
    return ColumnShare(
        str(label), int(line["answers"]), share_answered(line), share(line["share"]),
        share(low) if low == high else f"{share(low).removesuffix(' %')} to {share(high)}",
        round(100.0 * low, 1), round(100.0 * high, 1),
    )  # fmt: skip
