"""Features of rows and columns from files, for ``fit``, ``evaluate`` and ``predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onebit.cli.shell import WrongCommand

PATTERNS = ("auto", "both", "rows", "columns", "none")


def pattern_of(name: str, word: str) -> dict[str, Any]:
    """Return the pattern that ``--pattern`` asks for, as a parameter of a model."""
    if word not in PATTERNS:
        raise WrongCommand(f"unknown pattern {word!r}; choose one of {', '.join(PATTERNS)}")
    if word == "auto":
        return {}
    if name in ("gibbs", "nuclear", "rasch", "2pl"):
        raise WrongCommand(f"--model {name} knows no pattern; leave --pattern out")
    if name == "auto" and word != "none":
        raise WrongCommand(
            "--model auto tries the pattern by itself; --pattern none leaves it out, and the others go "
            "with --model logistic or hinge"
        )
    return {"pattern": None if word == "none" else word}


def read_features(
    path: str | None, side: str, index: Any, column: str | None = None, other: str | None = None
) -> Any:
    """Read a table of features, with its ids of the kind that the answers have.

    The ids are in the column that is named as the answers' is, or else in the first, unless that has the
    name of the ``other`` side's ids.
    """
    import pandas as pd

    from onebit.data.checked import FileError
    from onebit.data.tables.sources import COMPRESSED, opened

    if path is None:
        return None
    name = Path(path)
    if not name.is_file():
        raise FileError(f"{path}: there is no such file of {side} features")
    packed = name.suffix.lower() in COMPRESSED
    kind = (name.with_suffix("") if packed else name).suffix.lower()
    try:
        if kind in (".parquet", ".pq"):
            frame = pd.read_parquet(path)
            if frame.index.name is not None:
                frame = frame.reset_index()
        elif kind in (".csv", ".tsv", ".txt"):
            separator = "\t" if kind == ".tsv" else _separator(path)
            with opened(path, "csv") as source:
                first = pd.read_csv(source.stream, sep=separator, nrows=0).columns
            own = column if column in first else first[0]
            with opened(
                path, "csv"
            ) as source:  # ids are text until the answers say otherwise: 007 is not 7
                frame = pd.read_csv(source.stream, sep=separator, dtype={own: str})
        else:
            raise WrongCommand(f"{path}: {side} features are read from .csv, .tsv and .parquet files")
    except (ValueError, OSError) as error:
        if isinstance(error, WrongCommand):
            raise
        raise FileError(f"{path} cannot be read as a table of {side} features: {error}") from None
    frame = frame[[name for name in frame.columns if not str(name).startswith("Unnamed: ")]]
    if frame.shape[1] < 2 or len(frame) == 0:
        raise FileError(
            f"{path}: no {side} features; a line of names and at least two columns are needed"
        )
    own = column if column in frame.columns else frame.columns[0]
    if own == other and own != column:
        raise FileError(f"{path}: {own!r} is the name of the other side's ids, and no {side} id is there")
    frame = frame.set_index(own)
    frame.index = _like(frame.index, index, path)
    return frame


def _separator(path: str) -> str:
    """Return the comma or the semicolon, whichever stands more often in a file's first line."""
    from onebit.data.tables.sources import opened

    with opened(path, "csv") as source:
        line = source.stream.readline()
    return ";" if line.count(b";") > line.count(b",") else ","


def _like(ids: Any, index: Any, path: str) -> Any:
    """Return ids as numbers or as words, as those of the answers are; 007 is not 7."""
    import pandas as pd

    from onebit.data.checked import FileError

    known = index.labels.inferred_type
    if known == "string":
        return ids if ids.inferred_type == "string" else ids.astype(str)
    if known != "integer" or ids.inferred_type == "integer":
        return ids
    written = [str(value) for value in ids]
    for text in written:
        if not text.lstrip("-").isdigit() or str(int(text)) != text:
            raise FileError(f"{path}: the id {text!r} is no whole number, as the ids of the answers are")
    return pd.Index([int(text) for text in written], name=ids.name)
