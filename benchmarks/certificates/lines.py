"""A certificate beside the truth, in one world; and what many worlds say about it."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from scipy.stats import binom

DELTAS = (0.05, 0.2)
# In place of a bound and a truth, where a world has nothing to state: it holds, and has no slack.
NOTHING = (math.nan, math.nan)
# A bound is caught when so many failures, or more, had less than this probability if it held.
SURPRISE = 0.001
# Bound and truth may be the same fraction, computed in two ways.
ROUNDING = 1e-12

COLUMNS = ("line", "broken", "delta", "bound", "risk")
Line = dict[str, Any]


class Lines:
    """Collects what one world says of every certificate."""

    def __init__(self) -> None:
        self.found: list[Line] = []

    def add(self, line: str, delta: float, bound: float, risk: float, broken: bool = False) -> None:
        """Add a bound and the true error rate of what it speaks of."""
        self.found.append(dict(zip(COLUMNS, (line, broken, delta, bound, risk), strict=True)))

    def add_all(
        self, line: str, delta: float, bounds: list[tuple[float, float]], broken: bool = False
    ) -> None:
        """Add bounds that claim to hold at once: the one that is nearest to failing stands for all."""
        self.add(line, delta, *min(bounds, key=lambda pair: pair[0] - pair[1]), broken=broken)


def judged(lines: pd.DataFrame) -> pd.DataFrame:
    """Return, for each certificate and delta: worlds, failures, p-value, mean slack and the verdict.

    The p-value is the probability of so many failures, or more, if each world had failed with probability
    ``delta`` exactly, the most that is allowed.
    """
    slack = lines["bound"] - lines["risk"]
    table = (
        lines.assign(failed=slack < -ROUNDING, slack=slack)
        .groupby(["line", "broken", "delta"], sort=False)
        .agg(
            worlds=("slack", "size"),
            failures=("failed", "sum"),
            slack=("slack", "mean"),
            bound=("bound", "mean"),
            risk=("risk", "mean"),
        )
        .reset_index()
    )
    table["p"] = binom.sf(table["failures"] - 1, table["worlds"], table["delta"])
    table["caught"] = table["p"] < SURPRISE
    return table
