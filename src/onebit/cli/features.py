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
    if name in ("gibbs", "nuclear"):
        raise WrongCommand(f"--model {name} knows no pattern; leave --pattern out")
    if name == "auto" and word != "none":
        raise WrongCommand(
            "--model auto tries the pattern by itself; --pattern none leaves it out, and the others go "
            "with --model logistic or hinge"
        )
    return {"pattern": None if word == "none" else word}


def read_features(path: str | None, side: str, index: Any, column: str | None = None) -> Any:
    """Read a table of features, with its ids of the kind that the answers have.

    The ids are in the column that is named as the answers' is, or else in the first.
    """
    import pandas as pd

    from onebit.data.checked import FileError

    if path is None:
        return None
    name = Path(path)
    if not name.is_file():
        raise FileError(f"{path}: there is no such file of {side} features")
    kind = "".join(name.suffixes).removesuffix(".gz").removesuffix(".zst").lower()
    try:
        if kind.endswith((".parquet", ".pq")):
            frame = pd.read_parquet(path)
        elif kind.endswith((".csv", ".tsv", ".txt")):
            separator = "\t" if kind.endswith(".tsv") else ","
            first = pd.read_csv(path, sep=separator, nrows=0).columns
            own = column if column in first else first[0]
            # Ids are text until the answers say otherwise: 007 is not 7.
            frame = pd.read_csv(path, sep=separator, dtype={own: str})
        else:
            raise WrongCommand(f"{path}: {side} features are read from .csv, .tsv and .parquet files")
    except (ValueError, OSError) as error:
        if isinstance(error, WrongCommand):
            raise
        raise FileError(f"{path} cannot be read as a table of {side} features: {error}") from None
    own = column if column in frame.columns else frame.columns[0]
    frame = frame.set_index(own)
    frame.index = _like(frame.index, index)
    return frame


def _like(ids: Any, index: Any) -> Any:
    """Return ids as numbers or as words, as those of the answers are."""
    import pandas as pd

    known, found = index.labels.inferred_type, ids.inferred_type
    if known == "string" and found != "string":
        return ids.astype(str)
    if known == "integer" and found == "string":
        numbers = pd.to_numeric(ids, errors="coerce")
        return ids if numbers.isna().any() else pd.Index(numbers.astype("int64"))
    return ids
