"""Who took a test, one a line, the ablest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onebit.completers.base import PairClassifier
from onebit.report.words import first_and_last, share_answered, with_error, written

# Lines of the table: of more persons, the ablest and the least able.
MOST_PERSONS = 200
# To place more persons than this among each other would take longer than the rest of a report.
MOST_PLACED = 20_000


@dataclass(frozen=True)
class Person:
    """One line: what is known of somebody who took the test, as it is printed."""

    name: str
    answers: int
    share: str
    ability: str
    place: str
    infit: str
    outfit: str


def persons_of(model: PairClassifier) -> list[Person]:
    """Return who took the test of a sampled Rasch or two-parameter model, by ability, unless too many."""
    if len(model.rows_) > MOST_PLACED:
        return []
    table: Any = model.row_summary(scale="irt").sort_values("ability", ascending=False, kind="stable")
    table = first_and_last(table, MOST_PERSONS)
    return [
        _person(label, line) for label, line in zip(table.index, table.to_dict("records"), strict=True)
    ]


def _person(label: Any, line: dict[str, Any]) -> Person:
    low, high = line["rank_low"], line["rank_high"]
    return Person(
        str(label), int(line["answers"]), share_answered(line),
        with_error(line["ability"], line["ability_se"], "+.2f"),
        f"{low}" if low == high else f"{low} to {high}",
        written(line["infit"], ".2f"), written(line["outfit"], ".2f"),
    )  # fmt: skip
