"""The report's words: numbers, names and sentences as a reader wants them."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from typing import Any

from onebit.completers.base import PairClassifier
from onebit.completers.gibbs import GibbsCompleter

MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
NOTHING = "\N{EN DASH}"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# A title of a side or of a page is read at a glance.
_LONGEST_SIDE = 32
_JOINER = "\N{ZERO WIDTH JOINER}"


def number(value: float, form: str = "g") -> str:
    """Return a number with a true minus sign, and powers of ten raised.

    Examples
    --------
    >>> from onebit.report.words import number
    >>> number(-0.25, "+.2f"), number(1e-5), number(2.5e-7)
    ('−0.25', '10⁻⁵', '2.5 × 10⁻⁷')
    """
    text, _, power = f"{value:{form}}".partition("e")
    text = text.replace("-", MINUS)
    if not power:
        return text
    raised = "10" + str(int(power)).translate(_RAISED)
    return raised if text == "1" else f"{text} {TIMES} {raised}"


def share(value: float, digits: int = 1) -> str:
    """Return a share in percent; only all is 100 %, and only nothing is 0 %."""
    if value in (0.0, 1.0):
        return f"{100 * value:.0f} %"
    while digits < 6 and float(f"{100 * value:.{digits}f}") in (0.0, 100.0):
        digits += 1
    return f"{100 * value:.{digits}f} %"


def share_answered(line: dict[str, Any]) -> str:
    """Return the share of "yes" among the answers of one line of a summary, a dash without any."""
    return share(line["answered_share"], 0) if line["answers"] else NOTHING


def first_and_last(table: Any, most: int) -> Any:
    """Return a table of at most so many lines: of more, as many of the first as of the last."""
    half = most // 2
    return (
        table if len(table) <= most else table.iloc[[*range(half), *range(len(table) - half, len(table))]]
    )


def written(value: float, how: str) -> str:
    """Return a number as it is printed, a dash where there is none."""
    return number(value, how) if math.isfinite(value) else NOTHING


def with_error(value: float, error: float, how: str) -> str:
    """Return a number with its standard error, a dash where there is none."""
    return f"{number(value, how)} ± {number(error, '.2f')}" if math.isfinite(value) else NOTHING


def cut(text: str, longest: int) -> str:
    """Return at most so many code points, whole letters and whole emoji, an ellipsis among them.

    Examples
    --------
    >>> from onebit.report.words import cut
    >>> cut("a short name", 20), cut("a name that is too long", 10)
    ('a short name', 'a name th…')
    """
    if len(text) <= longest:
        return text
    end = longest - 1
    while end > 0 and _joined(text, end):
        end -= 1
    return text[:end].rstrip() + "…"


def _joined(text: str, place: int) -> bool:
    """Say whether the code points before and after a place are parts of one sign."""
    before, after = text[place - 1], text[place]
    if _JOINER in (before, after) or unicodedata.category(after) in ("Mn", "Mc", "Me"):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff":  # the colour of a skin
        return True
    flags = 0  # a flag is a pair of regional indicators
    while flags < place and "\U0001f1e6" <= text[place - 1 - flags] <= "\U0001f1ff":
        flags += 1
    return flags % 2 == 1 and "\U0001f1e6" <= after <= "\U0001f1ff"


def whole(text: str) -> str:
    """Return text that can be written as UTF-8: halves of surrogate pairs are joined, or replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@dataclass(frozen=True)
class Sides:
    """What the reader calls the two sides of the table, and its two answers."""

    row: str
    column: str
    no: str
    yes: str

    @classmethod
    def of(cls, model: PairClassifier) -> Sides:
        """Return the names of the id columns and of the answers; else row, column, no and yes."""
        names = [
            cut(whole(name).strip(), _LONGEST_SIDE) if isinstance(name, str) else ""
            for name in (model.rows_.labels.name, model.columns_.labels.name)
        ]
        answers = [cut(whole(str(value)), _LONGEST_SIDE) for value in model.classes_]
        if answers[1] in ("1", "True", "1.0"):
            answers = ["no", "yes"]
        return cls(names[0] or "row", names[1] or "column", answers[0], answers[1])


def objective_words(model: PairClassifier) -> str:
    """Say what the objective of the descent is, of a model that has a course of it to show."""
    if isinstance(getattr(model, "completer_", model), GibbsCompleter):
        loss = "how often predictors drawn from the posterior are wrong, their scores taken as normal,"
    else:
        loss = "an upper bound on the mean loss of predictors drawn from the posterior,"
    return f"The objective is {loss} plus the divergence from the prior over lambda."


def descent_words(model: PairClassifier) -> str:
    """Say how the descent to the kept model went."""
    part: Any = getattr(model, "completer_", model)
    if not hasattr(part, "n_iter_"):
        return ""
    name = "variational descent" if hasattr(part, "posterior_") else "descent"
    rounds = f"{part.n_iter_:,} round{'s' if part.n_iter_ != 1 else ''}"
    if getattr(part, "converged_", True):
        said = f"The {name} converged after {rounds}"
    else:
        said = f"The {name} was stopped after {rounds}, before it converged (max_iter allows more)"
    said += f", at an objective of {number(part.objective_, '.5f')}"
    if hasattr(part, "gap_"):
        said += f", at most {number(part.gap_, '.2g')} above the least possible"
    if getattr(part, "draws_", None) is not None:
        said += ". The chains started there"
    return said + "."
