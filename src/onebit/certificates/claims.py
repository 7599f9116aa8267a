"""One sheet of claims: what, of whom, under which assumption, the bound, and what was observed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from onebit.certificates.scores import FLOOR
from onebit.certificates.statements import at_most, confidence

# Units that are written as bare numbers.
PLAIN = ("nats", "score")
# The largest value there is, of each unit.
LARGEST = {"share": 1.0, "score": 1.0, "nats": -math.log(FLOOR) - 1e-9}


@dataclass(frozen=True)
class Claim:
    """One line of a sheet.

    Attributes
    ----------
    claim : str
        What is bounded: "wrong", "log-loss", "better than always no by".
    of : str
        Of which predictions, on which entries.
    assumes : str
        What must hold, in a few words.
    bound, observed : float
        The bound, and what was counted on held-out answers (NaN where nothing was).
    unit : {"share", "points", "nats", "score"}
        How the two are written.
    lower : bool
        Whether it is a lower bound ("at least").
    answers : int
        The held-out answers, or rows, that it was counted on.
    p_value : float or None
        Of a gain: of McNemar's exact test that there is none.
    counted : str
        What ``answers`` counts.
    """

    claim: str
    of: str
    assumes: str
    bound: float
    observed: float
    unit: str = "share"
    lower: bool = False
    answers: int = 0
    p_value: float | None = None
    counted: str = "held-out answers"

    @property
    def says_nothing(self) -> bool:
        """Whether the bound is one that always holds, as it is written."""
        if self.lower:
            return math.floor(self.bound * 1e3 + 1e-9) <= 0
        return self.bound >= LARGEST.get(self.unit, math.inf)

    def bounded(self) -> str:
        """Return the bound as it is written everywhere: rounded to the side that has been proved."""
        if self.says_nothing:
            return "nothing can be said"
        if self.unit in PLAIN:
            return f"at most {math.ceil(self.bound * 1e3 - 1e-9) / 1e3:.3f}"
        if self.lower:
            return f"at least {math.floor(self.bound * 1e3 + 1e-9) / 10:.1f} points"
        return f"at most {at_most(self.bound)}"

    def seen(self) -> str:
        """Return what was observed, as it is written everywhere."""
        if math.isnan(self.observed):
            return ""
        if self.unit in PLAIN:
            return f"{self.observed:.3f}"
        return f"{100 * self.observed:.1f} points" if self.lower else f"{self.observed:.1%}"

    def tested(self) -> str:
        """Return the test of a gain in words; nothing of other claims."""
        if self.p_value is None:
            return ""
        size = "< 0.0001" if self.p_value < 1e-4 else f"= {self.p_value:.2g}"
        return f"by itself, McNemar's exact test that it is no better has p {size}"


@dataclass(frozen=True)
class Sheet:
    """Claims of one model that all hold at once with probability ``1 - delta``."""

    claims: tuple[Claim, ...]
    delta: float

    def table(self) -> pd.DataFrame:
        """Return one line a claim, numbers as numbers."""
        return pd.DataFrame(
            {
                "claim": [one.claim for one in self.claims],
                "of": [one.of for one in self.claims],
                "assumes": [one.assumes for one in self.claims],
                "bound": [one.bound for one in self.claims],
                "direction": ["at least" if one.lower else "at most" for one in self.claims],
                "observed": [one.observed for one in self.claims],
                "held_out": [one.answers for one in self.claims],
                "counted": [one.counted for one in self.claims],
                "p_value": [math.nan if one.p_value is None else one.p_value for one in self.claims],
            }
        )

    @property
    def heading(self) -> str:
        """What holds of all lines."""
        return (
            f"With probability {confidence(self.delta)}, all of these at once, if their assumptions hold:"
        )

    def __str__(self) -> str:
        lines = [self.heading]
        for one in self.claims:
            parts = [f"observed {one.seen()}" if one.seen() else "", f"{one.answers:,} {one.counted}"]
            seen = ", ".join(part for part in [*parts, one.tested()] if part)
            lines.append(f"  {one.claim}: {one.bounded()} ({seen})")
            lines.append(f"    of {one.of}; assumes {one.assumes}")
        return "\n".join(lines)
