"""``onebit predict``, and what other commands have in common with it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from onebit.cli import options as o
from onebit.cli.shell import Voice, WrongCommand, check_distinct, checked_output, many, plain_errors

DEFAULT_MAX_ERROR = 0.1

Output = Annotated[
    str,
    typer.Option(
        "--output", "-o", help="Table to write (.csv .tsv .jsonl .parquet .arrow); - is stdout."
    ),
]
OutputFormat = Annotated[
    str | None,
    typer.Option("--output-format", help="csv, tsv, jsonl, parquet or arrow; else by the name."),
]
Spreadsheet = Annotated[
    bool,
    typer.Option(
        "--spreadsheet", help="Put an apostrophe before ids that a spreadsheet would run as formulas."
    ),
]


def checked_format(output: str, output_format: str | None, spreadsheet: bool) -> None:
    """Refuse an output of a format that is not written."""
    from onebit.data.tables.writing import output_format as format_of

    kind, _ = format_of(output, output_format)
    if spreadsheet and kind not in ("csv", "tsv"):
        raise WrongCommand(f"--spreadsheet goes with csv and tsv, not with {kind}")


def loaded(path: str, threads: int | None, device: str | None = None) -> Any:
    """Load a model for a command."""
    import onebit

    model = onebit.load(path)
    o.use_machine(model, threads, device)
    return model


def kept_predictions(voice: Voice, model: Any, max_error: float | None, delta: float) -> Any:
    """Find which predictions are certified, and say what that means."""
    from onebit.certificates.statements import at_most, confidence

    held_out = model.held_out_
    if held_out is None or held_out.disagreement is not None or not model.answers_kept:
        if max_error is not None:
            why = "it was saved without its answers"
            if held_out is None:
                why = "it was fitted without held-out answers"
            elif held_out.disagreement is not None:
                why = "it was refitted on all answers"
            raise ValueError(
                f"no prediction of this model can be certified by itself, since {why}; fit it with "
                "--certify 0.1, without --refit and without --forget-answers"
            )
        return None
    kept = model.keep(DEFAULT_MAX_ERROR if max_error is None else max_error, delta)
    if kept.bound is None:
        least = held_out.least_error(delta)
        advice = (
            f"the least is {at_most(least)}: try --max-error {math.ceil(100 * least) / 100:.2f}"
            if least < 0.5
            else "with so few held-out answers, or so many errors, nothing below one half can be"
        )
        voice.note(
            "certified: none, since no share of the predictions can be held to "
            f"{at_most(kept.max_error)} wrong; {advice}"
        )
    else:
        voice.note(
            f"certified: with probability {confidence(delta)}, {held_out.where}, "
            + "; ".join(str(part) for part in kept.parts)
            + f". {kept.caution}"
        )
    return kept


def predict(
    model: o.Model,
    pairs: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", show_default=False, help="Pairs of ids; - is standard input."),
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            "--pair", metavar="ROW,COLUMN", help="One pair, in place of a file; may be repeated."
        ),
    ] = None,
    output: Output = "-",
    output_format: OutputFormat = None,
    spreadsheet: Spreadsheet = False,
    max_error: o.MaxError = None,
    delta: o.Delta = 0.05,
    row_features: o.RowFeatures = None,
    col_features: o.ColFeatures = None,
    row: o.Row = None,
    col: o.Col = None,
    format: o.Format = None,
    delimiter: o.Delimiter = None,
    no_header: o.NoHeader = False,
    skip_bad: o.SkipBad = False,
    threads: o.Threads = None,
    device: o.AnyDevice = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Predict pairs: answer, probability of yes, score, uncertainty, and whether it is certified.

    Ids are compared by their text, so that 7 in a Parquet file and 7 in a CSV file are the same id,
    and 007 is another one. Ids that the model does not know count with what is known of the other
    one; the last column says which ids were known.

    Examples:
      onebit predict movies.onebit pairs.csv -o out.parquet

      onebit predict movies.onebit --pair ann,Alien --pair ann,Heat

      onebit predict movies.onebit new.csv --row-features new_users.csv

      cut -d, -f1,2 new.csv | onebit predict movies.onebit - --max-error 0.05 > out.csv
    """
    with plain_errors():
        from onebit.data.tables import Layout, read_pairs, table_writer
        from onebit.data.tables.writing import Formulas
        from onebit.report.outputs import Tally, id_names, predicted_pairs

        voice = Voice(quiet)
        if (pairs is None) == (not pair):
            raise ValueError("give a file of pairs, or pairs with --pair ROW,COLUMN")
        if as_json:
            output_format = "jsonl"
        checked_output(output)
        inputs = {
            "the model": model, "the file of pairs": pairs, "the row features": row_features,
            "the column features": col_features,
        }  # fmt: skip
        check_distinct(inputs, {"the table": output})
        checked_format(output, output_format, spreadsheet)
        formulas = Formulas(spreadsheet)
        typed = _typed_pairs(pair) if pair else None
        fitted = loaded(model, threads, device)
        check_not_source(output, fitted)
        kept = kept_predictions(voice, fitted, max_error, delta)
        names = id_names(fitted)
        if row_features is not None or col_features is not None:
            new_from_features(voice, fitted, (row_features, col_features))
        found: list[Any] = []
        source = "standard input" if pairs == "-" else pairs
        steps = ExitStack()
        if pair:
            batches: Iterable[Any] = [typed]
        else:
            assert pairs is not None
            layout = Layout(row, col, None, None, not no_header, format, delimiter, names)

            def tell(chosen: Any, problems: Any) -> None:
                if not no_header:
                    _check_names(chosen, fitted)
                if chosen.guessed:
                    voice.note(f"{source}: taking {chosen}")
                found.append(problems)

            advance = steps.enter_context(voice.reading(pairs, "predicting"))
            batches = read_pairs(pairs, layout, skip_bad=skip_bad, tell=tell, advance=advance)
        tally = Tally()
        with steps, table_writer(output, output_format, formulas) as write:
            for table in predicted_pairs(fitted, batches, kept, tally):
                write(table)
        note_formulas(voice, output, formulas)
        for problems in found:
            if problems.count:
                voice.note(
                    f"{source}: {problems.count:,} bad lines left out, the first: {problems.first[0]}"
                )
        unknown = [
            f"{count:,} with an unknown {name}"
            for count, name in zip((tally.unknown_rows, tally.unknown_columns), names, strict=True)
            if count
        ]
        certified = "" if kept is None else f", {tally.certified:,} of them certified"
        voice.note(
            f"{many(tally.pairs, 'pair')} predicted{certified}" + "".join(f"; {text}" for text in unknown)
        )
        if tally.pairs and tally.unknown_rows == tally.unknown_columns == tally.pairs:
            voice.note(
                "the model knows no id of these, neither rows nor columns: is it the model of this "
                "table, and are rows and columns the right way round (--row, --col)?"
            )


def new_from_features(voice: Voice, model: Any, paths: tuple[str | None, str | None]) -> None:
    """Let a loaded model know new ids by their features, for this command."""
    from onebit.cli.features import read_features

    names = [
        None if index.labels.name is None else str(index.labels.name)
        for index in (model.rows_, model.columns_)
    ]
    rows = read_features(paths[0], "row", model.rows_, names[0], names[1])
    columns = read_features(paths[1], "column", model.columns_, names[1], names[0])
    model.fold_in(row_features=rows, column_features=columns)
    done = model.folded_in_
    voice.note(f"known by their features: {done.rows:,} new rows, {done.columns:,} new columns")


def note_formulas(voice: Voice, output: str, formulas: Any) -> None:
    """Say which ids a spreadsheet program would take for formulas."""
    note = formulas.note()
    if note is not None:
        voice.note(note if output == "-" else f"{output}: {note}")


def check_not_source(output: str, model: Any) -> None:
    """Refuse to write over the table that a model was fitted to, as far as its name tells."""
    from pathlib import Path

    source = None if model.record_ is None else model.record_.source.get("file")
    if output != "-" and source == Path(output).name and Path(output).exists():
        raise WrongCommand(
            f"{output} has the name of the table that this model was fitted to; name another file"
        )


def _check_names(chosen: Any, model: Any) -> None:
    """Refuse a first line that was taken for names and is a pair of the model's own ids."""
    places = ((model.rows_, chosen.row), (model.columns_, chosen.column))
    named = [typed_codes(index, [chosen.names[place]])[0] >= 0 for index, place in places]
    if chosen.guessed and all(named):
        pair = ", ".join(chosen.names[place] for _, place in places)
        raise ValueError(f"the first line, {pair!r}, is a pair and no line of names; say --no-header")


def typed_codes(index: Any, texts: list[str]) -> Any:
    """Return the codes of ids that were typed, -1 for those that the model does not know."""
    import pyarrow as pa

    from onebit.data.tables.encoding import TextLookup

    return TextLookup(index).codes(pa.array([text.encode() for text in texts], pa.large_binary()))


def named_codes(index: Any, texts: list[str]) -> Any:
    """Return the codes of ids that were typed, all of which the model must know."""
    import numpy as np

    codes = typed_codes(index, texts)
    if (codes < 0).any():
        unknown = texts[int(np.argmax(codes < 0))]
        raise ValueError(f"the model does not know the {index.side} {unknown!r}")
    return codes


def _typed_pairs(pairs: list[str]) -> Any:
    """Turn pairs typed on the command line, as one line of CSV each, into a batch."""
    import csv

    import numpy as np
    import pyarrow as pa

    from onebit.data.tables import PairBatch

    sides: tuple[list[bytes], list[bytes]] = ([], [])
    for text in pairs:
        try:
            fields = next(csv.reader([text]), [])
        except csv.Error:
            fields = []
        if len(fields) != 2 or not all(fields):
            raise ValueError(
                f"--pair takes ROW,COLUMN, an id with a comma in double quotes; got {text!r}"
            )
        for side, field in zip(sides, fields, strict=True):
            side.append(field.encode())
    place = np.arange(len(pairs), dtype=np.int32)
    rows, columns = (pa.array(side, pa.large_binary()) for side in sides)
    return PairBatch((rows, place), (columns, place))
