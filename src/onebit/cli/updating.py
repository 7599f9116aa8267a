"""``onebit update``: new answers for a model, without the old ones."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from onebit.cli import options as o
from onebit.cli.fitting import read
from onebit.cli.predicting import loaded
from onebit.cli.shell import Voice, WrongCommand, check_distinct, checked_output, plain_errors


def update(
    model: o.Model,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            show_default=False,
            help="New answers, in any format that `onebit fit` reads; - is standard input.",
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", help="The model file to write; may be MODEL itself."),
    ] = "",
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="FILE",
            help="Take up the answers that `onebit serve --store` has kept there since the last time.",
        ),
    ] = None,
    forget: Annotated[
        float,
        typer.Option(
            help="Share of what was known of a row or column with new answers that still counts; below "
            "1 where people or things change."
        ),
    ] = 1.0,
    certify: Annotated[
        float | None,
        typer.Option(help="Share of the new answers to hold out, for a certificate of the new model."),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Take up answers even if these very ones were taken up before."),
    ] = False,
    delta: o.Delta = 0.05,
    row: o.Row = None,
    col: o.Col = None,
    answer: o.Answer = None,
    wide: o.Wide = False,
    drop: o.Drop = None,
    no_ids: o.NoIds = False,
    threshold: o.Threshold = None,
    yes: o.Yes = None,
    no: o.No = None,
    blank: o.Blank = None,
    format: o.Format = None,
    delimiter: o.Delimiter = None,
    no_header: o.NoHeader = False,
    skip_bad: o.SkipBad = False,
    threads: o.Threads = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Take up new answers of known and new rows and columns; the old answers are not needed.

    Rows and columns with new answers move, the others stay as they are. The model is written whole or not
    at all. What an update touches is no longer certified, unless --certify holds new answers out.

    Examples:
      onebit update likes.onebit today.csv -o likes.onebit

      onebit update likes.onebit --store answers.db -o likes.onebit
    """
    with plain_errors():
        voice = Voice(quiet, json)
        if (file is None) == (store is None):
            raise WrongCommand("name a file of new answers, or a store of them with --store; not both")
        if not output:
            raise WrongCommand("name the model file to write with -o; it may be the same one")
        checked_output(output, stdout=False)
        check_distinct({"the new answers": file or store}, {"the model": output})
        fitted = loaded(model, threads)
        before = fitted.updates_, (len(fitted.rows_), len(fitted.columns_))
        if file is not None:
            reading = read(
                voice, file, row, col, answer, wide, threshold, yes, no, format, delimiter, no_header,
                skip_bad, drop, no_ids, blank,
            )  # fmt: skip
            new: tuple[Any, Any] = (reading.observations, None)
            mark = None
            if reading.observations.fingerprint() in fitted.updates_.batches and not again:
                raise ValueError(
                    f"the {reading.observations.n:,} answers of {file} were taken up before by {model}; "
                    "--again takes them up once more"
                )
        else:
            assert store is not None
            new, mark = _from_store(store, fitted)
            if new is None:
                voice.note(f"{store}: nothing new since the last update; {model} is left as it is")
                voice.answer({"answers": 0, "updates": fitted.updates_.times})
                return
        began = time.perf_counter()
        with voice.warnings_as_notes():
            fitted.partial_fit(*new, forget=forget, certify=certify)
        if mark is not None:
            fitted.updates_ = fitted.updates_.taken_from(*mark)
        if fitted.record_ is not None and fitted.held_out_ is not None:
            fitted.record_ = fitted.record_.with_certificate(fitted.certify(delta))
        fitted.save(output)
        content = _told(fitted, before, time.perf_counter() - began, delta)
        voice.answer(content, _words(content, output))


def _from_store(store: str, fitted: Any) -> tuple[Any, Any]:
    """Return the new answers of a store, and how far they go; nothing where there are none."""
    import pandas as pd

    from onebit.serve.store import Store

    kept = Store(store, create=False)
    try:
        found = kept.after(fitted.updates_.stores.get(kept.id, 0))
    finally:
        kept.close()
    if not found.signs:
        return None, None
    pairs = pd.DataFrame({"row": found.rows, "column": found.columns})
    return (pairs, found.signs), (kept.id, found.last)


def _told(fitted: Any, before: tuple[Any, tuple[int, int]], seconds: float, delta: float) -> Any:
    updates, shape = before
    now, held = fitted.updates_, fitted.held_out_
    return {
        "answers": now.answers - updates.answers,
        "held_out": len(held.wrong) if held is not None and held.whence == "update" else 0,
        "new_rows": len(fitted.rows_) - shape[0],
        "new_columns": len(fitted.columns_) - shape[1],
        "updates": now.times,
        "seconds": round(seconds, 3),
        "certificate": None if held is None else fitted.certify(delta).sentence(),
    }


def _words(content: Any, output: str) -> str:
    held = f", {content['held_out']:,} held out" if content["held_out"] else ""
    said = [
        f"{content['answers']:,} answers taken up{held}; {content['new_rows']:,} new rows, "
        f"{content['new_columns']:,} new columns. Written to {output}.",
        content["certificate"]
        or "Nothing of this model is certified any more; --certify 0.1 holds new answers out.",
    ]
    return "\n".join(said)
