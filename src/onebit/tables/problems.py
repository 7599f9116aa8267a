"""What is wrong with a file, said once and clearly; and lines that are left out, counted."""

from __future__ import annotations

from dataclasses import dataclass, field

# Beyond this share of bad lines the columns are wrong, not the lines.
MOST_BAD = 0.5
_SHOWN = 60
_KEPT = 3
# Stands for bytes that are not UTF-8, in text that must be: a code point that no text may use.
NOT_UTF8 = "\U0010ffff"


class TableError(ValueError):
    """A file that cannot be read as a table of answers."""


def shown(text: str) -> str:
    """Return text in quotes, short enough for a message, with nothing in it that moves a terminal."""
    text = text.replace(NOT_UTF8, "\N{REPLACEMENT CHARACTER}")
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")


@dataclass
class Problems:
    """The bad lines of one file: an error at the first one, or a count.

    ``first`` keeps the first few messages.
    """

    source: str
    skip: bool
    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, place: str, content: str, reason: str, hint: str = "") -> None:
        """Report a bad line: where it stands, what it holds and what is wrong with it."""
        message = f"{place} of {self.source}, {shown(content)}: {reason}"
        if not self.skip:
            raise TableError(f"{message}; {hint or 'mend it, or leave bad lines out with --skip-bad'}")
        self.count += 1
        if len(self.first) < _KEPT:
            self.first.append(message)

    @property
    def enough(self) -> bool:
        """Whether further bad lines are counted only: a message takes longer than reading a line."""
        return self.skip and len(self.first) == _KEPT

    def check(self, good: int) -> None:
        """Refuse a file most of whose lines were left out."""
        if self.count > MOST_BAD * (self.count + good):
            raise TableError(
                f"{self.count} of {self.count + good} lines of {self.source} are bad: these may be the "
                f"wrong columns or the wrong format; the first one: {self.first[0]}"
            )
