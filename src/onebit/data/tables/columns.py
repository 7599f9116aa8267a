"""Which columns of a file hold the rows, the columns and the answers."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from onebit.data.tables.answers import is_blank, looks_like_answer, option
from onebit.data.tables.problems import TableError, shown
from onebit.data.tables.times import After, looks_like_time

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


# From so many lines on, a first column with two values is no column of ids.
_FEW_IDS = 10
# A long table rarely has more columns: ids, an answer, when it was given, a note.
_MOST_OF_LONG = 6


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
    drop : sequence of str
        Columns to leave out: names, or numbers.
    may_lack : bool
        Whether the columns to leave out may be missing.
    ids : bool
        Whether a wide table has row ids; if not, its rows are called 1, 2, 3, ...
    after : After, optional
        The answers to hold out: those after a moment, which a column of a long table tells.
    """

    row: str | None = None
    column: str | None = None
    answer: str | None = None
    wide: bool | None = None
    header: bool = True
    format: str | None = None
    delimiter: str | None = None
    likely: tuple[str, str] | None = None
    drop: Sequence[str] = ()
    ids: bool = True
    after: After | None = None
    may_lack: bool = False

    def __post_init__(self) -> None:
        if not self.ids and (self.row or self.column or self.answer):
            raise ValueError(
                "a table without ids is wide and has answers in every column; leave --row, --col and "
                "--answer out"
            )
        if self.wide and (self.column or self.answer):
            raise ValueError(
                "a wide table has no column of column ids or answers; leave --col, --answer out"
            )


@dataclass(frozen=True)
class Chosen:
    """The columns settled on: their places among ``names``; no ``row`` where rows are numbered.

    ``after`` says when an answer was given, if that is to be read; ``time`` is the name of a column that
    seems to say so, and is not read.
    """

    names: tuple[str, ...]
    row: int | None
    column: int | None
    answer: int | None
    guessed: bool
    dropped: frozenset[int] = frozenset()
    after: int | None = None
    time: str | None = None

    @property
    def wide(self) -> bool:
        """Whether every other column is one of the matrix."""
        return self.column is None

    @property
    def places(self) -> list[int]:
        """The columns to read."""
        if self.column is None:
            others = [k for k in range(len(self.names)) if k != self.row and k not in self.dropped]
            return others if self.row is None else [self.row, *others]
        assert self.row is not None
        return [self.row, self.column, *(k for k in (self.answer, self.after) if k is not None)]

    @property
    def columns(self) -> list[str]:
        """The names of the columns of a wide table that hold answers."""
        return [self.names[k] for k in self.places[0 if self.row is None else 1 :]]

    def __str__(self) -> str:
        if self.row is None:
            return f"wide, rows numbered from 1, {len(self.columns)} columns"
        if self.column is None:
            return f"wide, row ids in {shown(self.names[self.row])}, {len(self.columns)} columns"
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
    after = None if layout.after is None else _find_time(layout.after.column, names, source)
    dropped = frozenset(
        _find(name, names, source) for name in layout.drop if not layout.may_lack or name in names
    )
    dropped |= frozenset() if after is None else {after}
    kept = [k for k in range(len(names)) if k not in dropped]
    if not kept:
        raise TableError(
            f"every column of {source} is left out by --drop; its columns are {_listed(names)}"
        )
    wide = layout.wide or not layout.ids
    if layout.wide is None and layout.ids and answers and not (layout.column or layout.answer):
        wide = _seems_wide(names, sample, layout, kept)
    if wide:
        if after is not None:
            raise TableError(
                f"{source} is read as a wide table, whose lines are rows, not answers; a column of times "
                "goes with a long one: --row, --col and --answer"
            )
        return _wide(names, sample, layout, source, dropped)
    asked = {"row": layout.row, "column": layout.column}
    if answers:
        asked["answer"] = layout.answer
    found = {role: _find(name, names, source) for role, name in asked.items() if name is not None}
    missing = [role for role in asked if role not in found]
    likely = dict(zip(("row", "column"), layout.likely or (), strict=False))
    for role in missing:
        taken = {*found.values(), *dropped}
        place = names.index(likely[role]) if likely.get(role) in names else _guess(role, names, taken)
        if place is not None:
            found[role] = place
    if len(found) < len(asked) and len(kept) == len(asked) and not {"row", "column"} & set(found):
        if layout.header:
            _refuse_data_as_names(names, source)
        _refuse_answers_as_ids([sample[k] for k in kept], source, answers)
        rest = [k for k in kept if k not in found.values()]
        found |= dict(zip([role for role in asked if role not in found], rest, strict=True))
    if len(found) < len(asked):
        rest = [k for k in kept if k not in found.values()]
        wanted = [role for role in asked if role not in found]
        if len(rest) == len(wanted) == 1:
            found[wanted[0]] = rest[0]
        else:
            if layout.header:
                _refuse_data_as_names(names, source)
            options = {"row": "--row", "column": "--col", "answer": "--answer"}
            wide_too = ""
            if answers and ("column" in wanted or len(names) > _MOST_OF_LONG):
                wide_too = ", or say --wide for one row a line (--drop COLUMN for those without answers)"
            raise TableError(
                f"{source} does not say which column holds the {wanted[0]}{_ids(wanted[0])}; name it "
                f"with {options[wanted[0]]}{wide_too}. Its columns are {_listed(names)}"
            )
    guessed = bool(missing) and [names[k] for k in found.values()] != list(asked)
    if len(set(found.values())) < len(found):
        raise TableError(
            f"the same column of {source} cannot be two things; columns are {_listed(names)}"
        )
    for role, place in found.items():
        if place in dropped:
            other = "say when it was given" if place == after else "be left out with --drop"
            raise TableError(
                f"the column {shown(names[place])} of {source} cannot both hold the {role}{_ids(role)} "
                f"and {other}"
            )
    rest = [k for k in range(len(names)) if k not in found.values()]
    times = [names[k] for k in rest if looks_like_time(names[k], sample[k])]
    return Chosen(
        names, found["row"], found["column"], found.get("answer"), guessed, dropped, after,
        times[0] if times else None,
    )  # fmt: skip


def _wide(
    names: tuple[str, ...],
    sample: Sequence[Sequence[str]],
    layout: Layout,
    source: str,
    dropped: frozenset[int],
) -> Chosen:
    """Settle on the columns of a wide table."""
    kept = [k for k in range(len(names)) if k not in dropped]
    row = None if not layout.ids else kept[0] if layout.row is None else _find(layout.row, names, source)
    if row in dropped:
        raise TableError(
            f"the column {shown(names[row])} of {source} cannot both hold the row ids and be left out "
            "with --drop"
        )
    columns = [k for k in kept if k != row]
    if not columns:
        raise TableError(
            f"{source} has one column, {shown(names[kept[0]])}; a wide table has more: row ids, and "
            "answers in all others (without ids, say --no-ids)"
        )
    first: dict[str, int] = {}
    for k in columns:
        if not names[k]:
            raise TableError(
                f"column {k + 1} of {source} has no name; give it one, or leave it out with "
                f"--drop {k + 1}"
            )
        if first.setdefault(names[k], k) != k:
            raise TableError(
                f"{source} has two columns named {shown(names[k])}, the columns {first[names[k]] + 1} "
                f"and {k + 1}; rename one of them, or leave it out with --drop {k + 1}"
            )
    if row is not None and layout.row is None:
        _refuse_answers_as_row_ids(names[row], sample[row], source)
    guessed = row is not None and (layout.row is None or layout.wide is None)
    return Chosen(names, row, None, None, guessed, dropped)


def _refuse_answers_as_row_ids(name: str, fields: Sequence[str], source: str) -> None:
    """Refuse a first column of answers: taken for ids, it would make one row of all that say yes."""
    texts = [text.strip() for text in fields if not is_blank(text)]
    kinds = set(texts)
    repeated = len(kinds) < len(texts)
    # Two ids that are no answers may be two people who came more than once, or m and f.
    few = len(kinds) <= 2 and len(texts) >= _FEW_IDS
    if repeated and (few or all(looks_like_answer(text) for text in kinds)):
        said = " and ".join(shown(text) for text in sorted(kinds)[:3])
        raise TableError(
            f"the first column of {source}, {shown(name)}, should hold row ids and holds {said} again "
            "and again; if the table has no ids, say --no-ids, and its rows are numbered; if they stand "
            f"in another column, say which one with --row; if these are ids, {option('--row', name)}"
        )


def _ids(role: str) -> str:
    return "s" if role == "answer" else " ids"


def _plain(name: str) -> str:
    word = re.sub(r"[^a-z0-9]", "", name.lower())
    word = re.sub(r"(id|ids|name|key|no|nr)$", "", word) or word
    return word.removesuffix("s") or word


def _guess(role: str, names: Sequence[str], taken: Collection[int]) -> int | None:
    words = _WORDS[role]
    fitting = [k for k, name in enumerate(names) if _plain(name) in words and k not in taken]
    return fitting[0] if len(fitting) == 1 else None


def _seems_wide(
    names: Sequence[str], sample: Sequence[Sequence[str]], layout: Layout, kept: Sequence[int]
) -> bool:
    """Say whether every column but the first holds answers and blanks."""
    if len(kept) < 3 or layout.row is not None:
        return False
    left_out = set(range(len(names))) - set(kept)
    if _guess("column", names, left_out) is not None:
        return False
    return all(all(looks_like_answer(text) for text in sample[k]) for k in kept[1:])


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


def _find_time(name: str, names: Sequence[str], source: str) -> int:
    place = _find(name, names, source)
    for role, words in _WORDS.items():
        if _plain(names[place]) in words:
            raise TableError(
                f"the column {shown(names[place])} of {source} seems to hold the {role}{_ids(role)}; "
                "what is needed is a column that says when an answer was given"
            )
    return place


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


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(shown(name) for name in names[:12]) + more
