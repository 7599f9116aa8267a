"""What a person who fits a table should hear of it before the work begins."""

from __future__ import annotations

from typing import Any

from onebit.data.tables.problems import shown

# Larger tables, and sides, are not looked at: sorting or reading them takes more than a moment.
LOOKED_AT = 10_000_000
IDS_LOOKED_AT = 1_000_000


def remarks(seen: Any, *, repeats_told: bool = False) -> list[str]:
    """Return what is unusual about some answers; ``repeats_told``: the reader has told of repeats."""
    if seen.n > LOOKED_AT:
        return []
    found = [] if repeats_told else _repeats(seen)
    found += [text for index in (seen.rows, seen.columns) for text in _nearly_the_same(index)]
    sign = seen.by_row.sign
    if sign.min() == sign.max():
        found.append(
            "all answers are yes, which tells nothing apart: likes without dislikes are for other "
            "programs"
            if sign.max() > 0
            else "all answers are no, which tells nothing apart: is this the column of answers, and is "
            "--threshold too high?"
        )
    return found


def _repeats(seen: Any) -> list[str]:
    """Count the answers to pairs that have one already, and the pairs with both answers."""
    again, sign = seen.again(), seen.by_row.sign
    count = int(again.sum())
    if not count:
        return []
    text = f"{count:,} answers are to pairs that have one already; each counts"
    # Of one pair, "no" is listed first.
    both = int((again[1:] & (sign[1:] != sign[:-1])).sum())
    if both:
        pairs = "1 pair has" if both == 1 else f"{both:,} pairs have"
        text += f", and {pairs} both answers (where the last is to count, keep that one alone)"
    return [text]


def _nearly_the_same(index: Any) -> list[str]:
    """Count the ids that differ from another one by blanks or case alone."""
    if len(index) > IDS_LOOKED_AT or index.labels.inferred_type != "string":
        return []
    first: dict[str, str] = {}
    twins = []
    for label in index.listed_labels:
        other = first.setdefault(" ".join(label.split()).casefold(), label)
        if other is not label:
            twins.append((label, other))
    if not twins:
        return []
    label, other = twins[0]
    differ = "1 differs" if len(twins) == 1 else f"{len(twins):,} differ"
    return [
        f"of the {index.side} ids, {differ} from another one by blanks or case alone, the first "
        f"{shown(label)} from {shown(other)}; they count as different"
    ]
