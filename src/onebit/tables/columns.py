"""Which columns of a file hold the rows, the columns and the answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from onebit.tables.answers import looks_like_answer
from onebit.tables.problems import TableError, shown

_ROWS = """
    row user student person rater respondent participant subject learner pupil model voter member customer
    annotator worker compound patient player reader viewer client legislator senator i
"""
_COLUMNS = """
    col column item exercise question movie film product book problem task bill rollcall target statement
    song article test skill comment proposal feature j
"""
_ANSWERS = """
    answer response liked like correct iscorrect solved rating star score vote label value passed result
    outcome right y yes agree sign
"""
_WORDS = {
    role: frozenset(words.split())
    for role, words in (("row", _ROWS), ("column", _COLUMNS), ("answer", _ANSWERS))
}


@dataclass(frozen=True)
class Layout:
    """How a file is laid out; what is None is guessed, and the guess is said.

    Attributes
    ----------
    row, column, answer : str, optional
        Names of columns, or their numbers (the first is 1).
    wide : bool, optional
        One row a line: the first column (or ``row``) holds row ids, every other one answers.
    header : bool
        Whether the first line of a text file holds names; else columns are called 1, 2, 3, ...
    format : str, optional
        "csv", "tsv", "jsonl", "parquet", "arrow", "npz" or "mtx".
    delimiter : str, optional
        Between the fields of a text file.
    likely : (str, str), optional
        Names of the columns of row ids and column ids to look for first.
    """

    row: str | None = None
    column: str | None = None
    answer: str | None = None
    wide: bool | None = None
    header: bool = True
    format: str | None = None
    delimiter: str | None = None
    likely: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if self.wide and (self.column or self.answer):
            raise ValueError(
                "a wide table has no column of column ids or answers; leave --col, --answer out"
            )


@dataclass(frozen=True)
class Chosen:
    """The columns settled on: their places among ``names``."""

    names: tuple[str, ...]
    row: int
    column: int | None
    answer: int | None
    guessed: bool

    @property
    def wide(self) -> bool:
        """Whether every other column is one of the matrix."""
        return self.column is None

    @property
    def places(self) -> list[int]:
        """The columns to read."""
        if self.column is None:
            return [self.row, *(k for k in range(len(self.names)) if k != self.row)]
        return [self.row, self.column, *([] if self.answer is None else [self.answer])]

    def __str__(self) -> str:
        if self.column is None:
            return f"wide, row ids in {shown(self.names[self.row])}, {len(self.names) - 1} columns"
        said = f"rows {shown(self.names[self.row])}, columns {shown(self.names[self.column])}"
        return said if self.answer is None else f"{said}, answers {shown(self.names[self.answer])}"


def choose(
    names: Sequence[str],
    sample: Sequence[Sequence[str]],
    layout: Layout,
    source: str,
    answers: bool = True,
) -> Chosen:
    """Settle on the columns of a file.

    Parameters
    ----------
    names : sequence of str
        The columns that there are.
    sample : sequence of sequences of str
        The fields of the first few lines, column by column.
    layout : Layout
        What the user said.
    source : str
        The file, for messages.
    answers : bool
        Whether answers are wanted, or pairs alone.
    """
    names = tuple(names)
    wide = layout.wide
    if wide is None and answers and not (layout.column or layout.answer):
        wide = _seems_wide(names, sample, layout)
    if wide:
        row = 0 if layout.row is None else _find(layout.row, names, source)
        if len(names) < 2:
            raise TableError(f"{source} has one column, {shown(names[0])}; a wide table has more")
        twice = _twice(names)
        if twice is not None:
            raise TableError(f"{source} has two columns named {shown(twice)}; their ids must differ")
        return Chosen(names, row, None, None, layout.row is None or layout.wide is None)
    asked = {"row": layout.row, "column": layout.column}
    if answers:
        asked["answer"] = layout.answer
    found = {role: _find(name, names, source) for role, name in asked.items() if name is not None}
    missing = [role for role in asked if role not in found]
    likely = dict(zip(("row", "column"), layout.likely or (), strict=False))
    for role in missing:
        place = names.index(likely[role]) if likely.get(role) in names else _guess(role, names, found)
        if place is not None:
            found[role] = place
    if len(found) < len(asked) and len(names) == len(asked) and not {"row", "column"} & set(found):
        if layout.header:
            _refuse_data_as_names(names, source)
        _refuse_answers_as_ids(sample, source, answers)
        rest = [k for k in range(len(names)) if k not in found.values()]
        found |= dict(zip([role for role in asked if role not in found], rest, strict=True))
    if len(found) < len(asked):
        rest = [k for k in range(len(names)) if k not in found.values()]
        wanted = [role for role in asked if role not in found]
        if len(rest) == len(wanted) == 1:
            found[wanted[0]] = rest[0]
        else:
            if layout.header:
                _refuse_data_as_names(names, source)
            options = {"row": "--row", "column": "--col", "answer": "--answer"}
            wide_too = ", or --wide for one row a line" if answers and not found else ""
            raise TableError(
                f"{source} does not say which column holds the {wanted[0]}{_ids(wanted[0])}; name it "
                f"with {options[wanted[0]]}{wide_too}. Its columns are {_listed(names)}"
            )
    guessed = bool(missing) and [names[k] for k in found.values()] != list(asked)
    if len(set(found.values())) < len(found):
        raise TableError(
            f"the same column of {source} cannot be two things; columns are {_listed(names)}"
        )
    return Chosen(names, found["row"], found["column"], found.get("answer"), guessed)


def _ids(role: str) -> str:
    return "s" if role == "answer" else " ids"


def _plain(name: str) -> str:
    word = re.sub(r"[^a-z0-9]", "", name.lower())
    word = re.sub(r"(id|ids|name|key|no|nr)$", "", word) or word
    return word.removesuffix("s") or word


def _guess(role: str, names: Sequence[str], found: dict[str, int]) -> int | None:
    words = _WORDS[role]
    fitting = [k for k, name in enumerate(names) if _plain(name) in words and k not in found.values()]
    return fitting[0] if len(fitting) == 1 else None


def _seems_wide(names: Sequence[str], sample: Sequence[Sequence[str]], layout: Layout) -> bool:
    """Say whether every column but the first (or ``row``) holds answers and blanks."""
    if len(names) < 3:
        return False
    row = 0 if layout.row is None else None
    if row is None:
        return False
    if _guess("column", names, {}) is not None:
        return False
    return all(
        all(looks_like_answer(text) for text in column) for k, column in enumerate(sample) if k != row
    )


def _find(name: str, names: Sequence[str], source: str) -> int:
    places = [k for k, other in enumerate(names) if other == name]
    if not places:
        places = [k for k, other in enumerate(names) if other.strip().lower() == name.strip().lower()]
    if not places and name.isdecimal() and 1 <= int(name) <= len(names):
        places = [int(name) - 1]
    if not places:
        raise TableError(f"{source} has no column {shown(name)}; its columns are {_listed(names)}")
    if len(places) > 1:
        raise TableError(f"{source} has two columns named {shown(name)}; choose one by its number")
    return places[0]


def _refuse_data_as_names(names: Sequence[str], source: str) -> None:
    last = looks_like_answer(names[-1]) and _plain(names[-1]) not in _WORDS["answer"]
    if any(_is_number(name) for name in names) or last:
        line = ", ".join(names[:6])
        raise TableError(
            f"the first line of {source}, {shown(line)}, looks like data and not like names; if so, say "
            "--no-header, and which columns to take by number: --row 1 --col 2 --answer 3"
        )


def _refuse_answers_as_ids(sample: Sequence[Sequence[str]], source: str, answers: bool) -> None:
    column = [text for text in sample[1] if text.strip()] if len(sample) > 1 else []
    if answers and column and len(set(column)) <= 2 and all(looks_like_answer(text) for text in column):
        raise TableError(
            f"the second column of {source} holds answers: say --wide if there is one row a line, or "
            "which columns are which with --row, --col and --answer"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _twice(names: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(shown(name) for name in names[:12]) + more
