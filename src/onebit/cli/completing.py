"""``onebit complete``: the whole matrix, or lists of the best blanks."""

from __future__ import annotations

from typing import Annotated

import typer

from onebit.cli import options as o
from onebit.cli.predicting import (
    Output,
    OutputFormat,
    Spreadsheet,
    check_not_source,
    checked_format,
    kept_predictions,
    loaded,
    named_codes,
    note_formulas,
)
from onebit.cli.shell import Voice, WrongCommand, check_distinct, checked_output, plain_errors


def complete(
    model: o.Model,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The best so many blanks of each row (--by column: of each); else the whole matrix.",
        ),
    ] = None,
    output: Output = "-",
    output_format: OutputFormat = None,
    spreadsheet: Spreadsheet = False,
    row: Annotated[
        list[str] | None, typer.Option("--row", metavar="ID", help="Only this row; may be repeated.")
    ] = None,
    by: Annotated[
        str, typer.Option(help="With --top, whose lists: row, or column (the rows that suit it best).")
    ] = "row",
    col: Annotated[
        list[str] | None,
        typer.Option("--col", metavar="ID", help="With --by column: only this one; may be repeated."),
    ] = None,
    what: Annotated[
        str, typer.Option(help="What the matrix holds: probability (of yes), answer or score.")
    ] = "probability",
    everywhere: Annotated[
        bool,
        typer.Option("--everywhere", help="The model's own value also where an answer is known."),
    ] = False,
    long: Annotated[bool, typer.Option("--long", help="The whole matrix, one entry a line.")] = False,
    answered: Annotated[
        bool, typer.Option("--answered", help="With --top, entries that have an answer count too.")
    ] = False,
    max_error: o.MaxError = None,
    delta: o.Delta = 0.05,
    threads: o.Threads = None,
    device: o.AnyDevice = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Fill the matrix, or recommend: the blanks that each row most likely says yes to.

    Known answers stay as they are (as probabilities 0 and 1), and blanks are predicted, so that averages
    over the filled matrix are expected shares of yes if blanks come about like the answered entries.
    Lists of the best (--top) are a selection, of which no certificate of all predictions speaks: they
    are not marked. With --max-error they keep what held-out answers in the lists can certify.

    Examples:
      onebit complete movies.onebit --top 10 -o recommendations.csv

      onebit complete movies.onebit --top 5 --row ann

      onebit complete compounds.onebit --top 20 --by column --col kinase-7

      onebit complete movies.onebit --top 10 --max-error 0.2 -o certified.csv

      onebit complete movies.onebit -o filled.parquet
    """
    with plain_errors():
        from onebit.data.tables import table_writer
        from onebit.data.tables.writing import Formulas
        from onebit.report.outputs import best_blanks, block_rows, whole_matrix

        voice = Voice(quiet)
        if what not in ("answer", "probability", "score"):
            raise WrongCommand(f"--what is probability, answer or score, not {what!r}")
        if top is not None and max_error is not None and answered:
            raise WrongCommand("--max-error keeps blanks of the lists: leave --answered out")
        if top is None and not long and max_error is not None:
            raise WrongCommand("--max-error marks entries one by one: it goes with --long")
        if long and what != "probability":
            raise WrongCommand(
                "--long writes answer, probability and score: --what is for the wide matrix"
            )
        if answered and top is None:
            raise WrongCommand("--answered goes with --top")
        if top is not None and (long or what != "probability"):
            raise WrongCommand("--long and --what are for the whole matrix: leave them out with --top")
        if by not in ("row", "column"):
            raise WrongCommand(f"--by is row or column, not {by!r}")
        if by == "column" and top is None:
            raise WrongCommand("--by column makes lists: say how long with --top")
        if by == "column" and row:
            raise WrongCommand("--row names rows to make lists for: with --by column say --col")
        if by == "row" and col:
            raise WrongCommand("--col names columns to make lists for: it goes with --by column")
        if by == "column" and max_error is not None:
            raise WrongCommand("--max-error certifies lists of rows: leave --by column out")
        if everywhere and top is not None:
            raise WrongCommand("--everywhere is for the whole matrix; with --top say --answered")
        if as_json:
            output_format = "jsonl"
        checked_output(output)
        check_distinct({"the model": model}, {"the table": output})
        checked_format(output, output_format, spreadsheet)
        formulas = Formulas(spreadsheet)
        fitted = loaded(model, threads, device)
        check_not_source(output, fitted)
        if not (answered if top is not None else everywhere or (what == "score" and not long)):
            try:
                fitted.kept_answers()
            except ValueError:
                option = "--answered to rank all entries" if top is not None else (
                    "--everywhere for the model's own value of every entry"
                )  # fmt: skip
                raise ValueError(
                    f"{model} does not hold its answers, so the blanks are not known; say {option}, or "
                    "fit again without --forget-answers and --dask"
                ) from None
        side = int(by == "column")
        index, named = (fitted.rows_, row) if side == 0 else (fitted.columns_, col)
        rows = named_codes(index, list(dict.fromkeys(named))) if named else index.listed
        if top is None and what == "probability" and fitted.probability_note is not None:
            voice.note(
                "averages of these probabilities are no shares of yes, since "
                f"{fitted.probability_note}; --model logistic or auto give such"
            )
        kept = kept_predictions(voice, fitted, max_error, delta) if long and top is None else None
        least = None
        if top is not None and max_error is not None:
            lists = fitted.certify_lists(top, max_error, delta)
            voice.note(str(lists))
            least = lists.threshold
        tables = (
            best_blanks(fitted, top, rows, side=side, answered=answered, least=least)
            if top is not None
            else whole_matrix(fitted, rows, what, wide=not long, kept=kept, everywhere=everywhere)
        )
        lines, step = 0, block_rows(fitted, top, side)
        with (
            voice.bar("completing", "share") as tell,
            table_writer(output, output_format, formulas) as write,
        ):
            for number, table in enumerate(tables, start=1):
                write(table)
                lines += table.num_rows
                tell(min(number * step, len(rows)), len(rows), None)
        note_formulas(voice, output, formulas)
        if output != "-":
            voice.note(f"{output}: {lines:,} lines")
