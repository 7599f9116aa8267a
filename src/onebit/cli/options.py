"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

_IN = "How the file is laid out"
_HOW = "How the command runs"

Input = Annotated[
    str,
    typer.Argument(
        metavar="FILE", show_default=False,
        help="Answers: CSV, TSV, JSON lines, Parquet, Arrow, NPZ or Matrix Market, also .gz or .zst; "
        "- is standard input.",
    ),
]  # fmt: skip
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask", metavar="ADDRESS", rich_help_panel=_HOW,
        help="Fit on a Dask cluster: its scheduler's address, or local. FILE is then Parquet: a file, a "
        "folder or a quoted pattern, with ids that are whole numbers or text. Several machines need "
        "--checkpoint, a folder that all see.",
    ),
]  # fmt: skip
Row = Annotated[
    str | None,
    typer.Option(
        "--row", metavar="COLUMN", rich_help_panel=_IN, help="Column of row ids: name or number."
    ),
]
Col = Annotated[
    str | None,
    typer.Option(
        "--col", metavar="COLUMN", rich_help_panel=_IN, help="Column of column ids: name or number."
    ),
]
Answer = Annotated[
    str | None,
    typer.Option("--answer", metavar="COLUMN", rich_help_panel=_IN, help="Column of answers."),
]
Wide = Annotated[
    bool,
    typer.Option(
        "--wide",
        rich_help_panel=_IN,
        help="One row a line: ids first, then an answer or a blank a column.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="COLUMN",
        rich_help_panel=_IN,
        help="Leave this column out: name or number; may be repeated.",
    ),
]
NoIds = Annotated[
    bool,
    typer.Option(
        "--no-ids", rich_help_panel=_IN, help="A wide table without row ids: its rows are 1, 2, 3."
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(rich_help_panel=_IN, help="Answers are numbers; those above this one mean yes."),
]
Yes = Annotated[
    list[str] | None,
    typer.Option("--yes", metavar="WORD", rich_help_panel=_IN, help="A word for yes, if an unusual one."),
]
No = Annotated[
    list[str] | None, typer.Option("--no", metavar="WORD", rich_help_panel=_IN, help="A word for no.")
]
Blank = Annotated[
    list[str] | None,
    typer.Option(
        "--blank", metavar="WORD", rich_help_panel=_IN, help="A word or number that is no answer."
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", rich_help_panel=_IN, help="csv, tsv, jsonl, parquet, arrow, npz or mtx; else guessed."
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(metavar="CHARACTER", rich_help_panel=_IN, help="Between the fields of a text file."),
]
NoHeader = Annotated[
    bool,
    typer.Option("--no-header", rich_help_panel=_IN, help="The first line is data: columns are 1, 2, 3."),
]
SkipBad = Annotated[
    bool,
    typer.Option("--skip-bad", rich_help_panel=_IN, help="Leave bad lines out, and say how many."),
]
Json = Annotated[bool, typer.Option("--json", rich_help_panel=_HOW, help="Answer in JSON.")]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", rich_help_panel=_HOW, help="Say nothing but the answer and errors."),
]
Seed = Annotated[
    int, typer.Option(min=0, rich_help_panel=_HOW, help="The same seed gives the same result.")
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, rich_help_panel=_HOW, help="Threads, if not all; the result is the same."),
]
Device = Annotated[
    str,
    typer.Option(
        rich_help_panel=_HOW,
        help="cpu, cuda (an NVIDIA GPU), cuda:1, or auto: a GPU where there is one and it pays.",
    ),
]
AnyDevice = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_HOW, help="cpu, cuda, cuda:1 or auto, if not where the model was fitted."
    ),
]
_KNOWN = "What is known besides the answers"
RowFeatures = Annotated[
    str | None,
    typer.Option(
        "--row-features",
        metavar="FILE",
        rich_help_panel=_KNOWN,
        help="A table of what is known of rows: the id first, then numbers, true/false, categories.",
    ),
]
ColFeatures = Annotated[
    str | None,
    typer.Option("--col-features", metavar="FILE", rich_help_panel=_KNOWN, help="The same of columns."),
]
Pattern = Annotated[
    str,
    typer.Option(
        rich_help_panel=_KNOWN,
        help="Whether which entries were answered may tell something: auto, both, rows, columns, none.",
    ),
]
Delta = Annotated[
    float, typer.Option(help="The probability with which a certificate may fail, at most 0.2.")
]
MaxError = Annotated[
    float | None,
    typer.Option(
        help="Mark the predictions of which, for each predicted answer, at most this share is wrong on "
        "entries like the answered ones; 0.1 unless given."
    ),
]
Model = Annotated[
    str, typer.Argument(metavar="MODEL", show_default=False, help="A model that `onebit fit` wrote.")
]


def threads_of(threads: int | None) -> int:
    """Return the number of threads as the library counts them."""
    return -1 if threads is None else threads


def checked_device(device: str) -> str:
    """Return a device by its name, if there is such a one here."""
    from onebit.cli.shell import WrongCommand
    from onebit.completers.parameters import Device as Rule
    from onebit.engine.gpu.device import find

    if not Rule().allows(device):
        raise WrongCommand(f"--device must be {Rule().explain()}, not {device!r}")
    if device.startswith("cuda"):
        find(device)
    return device


def use_machine(model: Any, threads: int | None, device: str | None) -> None:
    """Set the threads and the device of a loaded model, where they are named."""
    if threads is not None and hasattr(model, "n_jobs"):
        model.n_jobs = threads
    if device is not None and hasattr(model, "device"):
        model.device = checked_device(device)
