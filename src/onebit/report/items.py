"""The items of a test, one a line, and which of them to look at first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onebit.completers.base import PairClassifier
from onebit.report.words import share_answered, with_error, written

# Lines of the table.
MOST_ITEMS = 200
# Above this mean square an item's answers are foreseen much worse than a model says. How far it is below
# one says little: it is taken where the same answers have put abilities and items.
MISFIT = 1.3
# With fewer answers an item, standard errors of difficulties are somewhat too small.
ENOUGH_ANSWERS = 200
# A discrimination that is likely below this: the abler, by a standard deviation, have hardly other odds.
_WEAK = 0.5
# Remarks up to this one are of items that should be looked at.
_SUSPECT = 3


@dataclass(frozen=True)
class Item:
    """One line: what is known of an item as it is printed, and what there is to say of it.

    ``id`` is the item's own; ``suspect`` says whether it should be looked at, ``reversed`` whether the
    abler do worse.
    """

    id: Any
    name: str
    answers: int
    share: str
    difficulty: str
    discrimination: str
    rest: str
    infit: str
    outfit: str
    remark: str
    suspect: bool
    reversed: bool


def items_of(model: PairClassifier, yes: str) -> list[Item]:
    """Return the items of a sampled Rasch or two-parameter model, the most suspect ones first."""
    table: Any = model.column_summary(scale="irt")
    # Of Rasch's model, where all share one discrimination, it says nothing of a single item.
    slopes = table["discrimination"]
    alike = len(table) > 1 and slopes.notna().all() and slopes.nunique() == 1
    lines = [
        (label, line, _remark(line, yes, alike))
        for label, line in zip(table.index, table.to_dict("records"), strict=True)
    ]
    lines.sort(key=lambda found: found[2][0])
    return [_item(*found) for found in lines[:MOST_ITEMS]]


def _item(label: Any, line: dict[str, Any], found: tuple[int, str]) -> Item:
    pressing, remark = found
    return Item(
        label, str(label), int(line["answers"]), share_answered(line),
        with_error(line["difficulty"], line["difficulty_se"], "+.2f"),
        with_error(line["discrimination"], line["discrimination_se"], ".2f"),
        written(line["rest_correlation"], ".2f"), written(line["infit"], ".2f"),
        written(line["outfit"], ".2f"), remark, pressing <= _SUSPECT, pressing == 0,
    )  # fmt: skip


def _remark(line: dict[str, Any], yes: str, alike: bool) -> tuple[int, str]:
    """Say what a person who made the test would want to look at, after how pressing it is; or nothing."""
    slope, error = line["discrimination"], line["discrimination_se"]
    if not line["answers"]:
        return 4, "nobody answered"
    if not np.isfinite(slope):
        return 4, f"all or none got {yes}"
    if alike:  # it is not this item's
        slope, error = np.inf, 0.0
    if slope + 2.0 * error < 0.0:
        return 0, f"the wrong way round: the abler get {yes} less often; is its key reversed?"
    if slope + error < 0.0 and slope + 2.0 * error < _WEAK and slope > -_WEAK:
        return 1, "hardly tells abilities apart, if not the wrong way round; is its key right?"
    if slope + error < 0.0:
        return 1, "seems the wrong way round, but answers are few; is its key right?"
    if slope + 2.0 * error < _WEAK:
        return 2, "hardly tells abilities apart"
    if max(line["infit"], line["outfit"]) > MISFIT:
        return 3, "foreseen worse than the model says"
    if slope - 2.0 * error <= 0.0:
        return 5, "too few answers to judge"
    return 6, ""
