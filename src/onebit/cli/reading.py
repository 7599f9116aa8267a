"""How commands read a file of answers, and what is known of its rows and columns."""

from __future__ import annotations

import os
from typing import Any

from onebit.cli.features import read_features
from onebit.cli.shell import Voice
from onebit.data.sides import MEMBERS


def read(
    voice: Voice,
    path: str,
    row: str | None,
    col: str | None,
    answer: str | None,
    wide: bool,
    threshold: float | None,
    yes: list[str] | None,
    no: list[str] | None,
    format: str | None,
    delimiter: str | None,
    no_header: bool,
    skip_bad: bool,
    drop: list[str] | None = None,
    no_ids: bool = False,
    blank: list[str] | None = None,
    after: tuple[str, str] | None = None,
    may_lack: bool = False,
) -> Any:
    """Read a file of answers as the options say, and say what was guessed."""
    from onebit.data.tables import Layout, read_table
    from onebit.data.tables.answers import Vocabulary
    from onebit.data.tables.times import After

    layout = Layout(
        row, col, answer, wide or None, not no_header, format, delimiter, drop=drop or (), ids=not no_ids,
        after=None if after is None else After(*after), may_lack=may_lack,
    )  # fmt: skip
    words = Vocabulary(threshold, yes, no, blank)
    with voice.reading(path) as advance:
        reading = read_table(path, layout, words, skip_bad=skip_bad, advance=advance)
    for note in reading.notes():
        voice.note(note)
    return reading


def told(
    voice: Voice, seen: Any, paths: tuple[str | None, str | None], names: tuple[str | None, str | None]
) -> Any:
    """Join the features of rows and of columns to the answers, and say what they are."""
    from onebit.data.joining import encoders_of, with_features

    if paths == (None, None):
        return seen
    own = [
        name or (None if index.labels.name is None else str(index.labels.name))
        for name, index in zip(names, (seen.rows, seen.columns), strict=True)
    ]
    frames = (
        read_features(paths[0], "row", seen.rows, own[0], own[1]),
        read_features(paths[1], "column", seen.columns, own[1], own[0]),
    )
    before = seen.shape
    seen = with_features(seen, frames)
    for side, (word, encoder) in enumerate(zip(MEMBERS, encoders_of(seen), strict=True)):
        if encoder is not None:
            new = seen.shape[side] - before[side]
            more = f"; {new:,} {word}s are known by their features alone" if new else ""
            voice.note(f"{len(encoder.names):,} {word} features from {paths[side]}{more}")
    return seen


def held_words(after: tuple[str, str] | None, file: str | None) -> str:
    """Say what the user chose to hold out."""
    if after is not None:
        return f"answers after {after[1]} in column {after[0]!r}"
    assert file is not None
    return f"those of {os.path.basename(file)}"
