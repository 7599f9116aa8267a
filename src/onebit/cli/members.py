"""``onebit rows`` and ``onebit columns``: shares, effects and ranks with error bars."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onebit.cli import options as o
from onebit.cli.predicting import (
    Output,
    OutputFormat,
    Spreadsheet,
    check_not_source,
    checked_format,
    loaded,
    named_codes,
    note_formulas,
)
from onebit.cli.shell import Voice, WrongCommand, check_distinct, checked_output, plain_errors

Level = Annotated[
    float, typer.Option(help="The posterior probability of the intervals, between 0 and 1.")
]
Scale = Annotated[
    str,
    typer.Option(
        help="logit, or irt: abilities with mean 0 and variance 1, difficulty and discrimination, infit "
        "and outfit, of --model rasch and 2pl."
    ),
]

Population = Annotated[
    bool,
    typer.Option(
        "--population",
        help="Shares over a larger population, from which what shares are taken over (of columns: the "
        "rows) was drawn at random, and not over these alone.",
    ),
]


Like = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="With --scale irt: on the scale of this other model's rows, by the columns that both know.",
    ),
]
Anchor = Annotated[
    list[str] | None,
    typer.Option(
        "--anchor", metavar="ID", help="With --like: link by this column; may be repeated; else by all."
    ),
]


def named_ids(fitted: Any, side: int, texts: list[str] | None) -> list[Any] | None:
    """Return the model's own ids of names that were typed."""
    if not texts:
        return None
    index = (fitted.rows_, fitted.columns_)[side]
    return list(index.labels[named_codes(index, texts)])


def rows(
    model: o.Model,
    output: Output = "-",
    output_format: OutputFormat = None,
    spreadsheet: Spreadsheet = False,
    row: Annotated[
        list[str] | None, typer.Option("--row", metavar="ID", help="Only this row; may be repeated.")
    ] = None,
    col: Annotated[
        list[str] | None,
        typer.Option("--col", metavar="ID", help="Shares over these columns alone; may be repeated."),
    ] = None,
    level: Level = 0.9,
    scale: Scale = "logit",
    population: Population = False,
    like: Like = None,
    anchor: Anchor = None,
    threads: o.Threads = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Say how each row does: its share of yes over all columns, its effect and its rank, with error bars.

    Known answers count as they are, blanks as the model expects them. Intervals are credible ones, of the
    exact posterior: they believe the model, and that blanks come about like the answered entries. A model
    that was not sampled gets a sampling run of its own for them.

    Examples:
      onebit rows exam.onebit -o students.csv

      onebit rows exam.onebit --scale irt -o abilities.csv

      onebit rows year2.onebit --scale irt --like year1.onebit -o abilities.csv

      onebit rows benchmark.onebit --row gpt-x --row llama-y --level 0.95
    """
    written = output, output_format, spreadsheet
    asked = {"level": level, "scale": scale, "population": population}
    _summary(0, model, written, row, col, asked, (like, anchor), threads, as_json, quiet)


def columns(
    model: o.Model,
    output: Output = "-",
    output_format: OutputFormat = None,
    spreadsheet: Spreadsheet = False,
    col: Annotated[
        list[str] | None, typer.Option("--col", metavar="ID", help="Only this column; may be repeated.")
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option("--row", metavar="ID", help="Shares over these rows alone; may be repeated."),
    ] = None,
    level: Level = 0.9,
    scale: Scale = "logit",
    population: Population = False,
    like: Like = None,
    anchor: Anchor = None,
    threads: o.Threads = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Say how each column does: its share of yes over all rows, its effect and its rank, with error bars.

    Examples:
      onebit columns exam.onebit -o exercises.csv

      onebit columns survey.onebit --population -o shares.csv

      onebit columns exam.onebit --scale irt -o items.csv
    """
    written = output, output_format, spreadsheet
    asked = {"level": level, "scale": scale, "population": population}
    _summary(1, model, written, col, row, asked, (like, anchor), threads, as_json, quiet)


def _summary(
    side: int,
    model: str,
    written: tuple[str, str | None, bool],
    of: list[str] | None,
    over: list[str] | None,
    asked: dict[str, Any],
    link: tuple[str | None, list[str] | None],
    threads: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    output, output_format, spreadsheet = written
    with plain_errors():
        from onebit.data.tables import table_writer
        from onebit.data.tables.writing import Formulas
        from onebit.report.outputs import summary_table

        voice = Voice(quiet)
        like, anchors = link
        if asked["scale"] not in ("logit", "irt"):
            raise WrongCommand(f"--scale is logit or irt, not {asked['scale']!r}")
        if not 0.0 < asked["level"] < 1.0:
            raise WrongCommand(f"--level is between 0 and 1, not {asked['level']!r}")
        if like is not None and asked["scale"] != "irt":
            raise WrongCommand("--like takes over a scale of abilities: it goes with --scale irt")
        if anchors and like is None:
            raise WrongCommand("--anchor names a column to link by: it goes with --like")
        if as_json:
            output_format = "jsonl"
        checked_output(output)
        given = {"the model": model} | ({} if like is None else {"the other model": like})
        check_distinct(given, {"the table": output})
        checked_format(output, output_format, spreadsheet)
        formulas = Formulas(spreadsheet)
        fitted = loaded(model, threads)
        check_not_source(output, fitted)
        if like is not None:
            other = loaded(like, threads)
            check_not_source(output, other)
            asked |= {"like": other, "anchors": named_ids(fitted, 1, anchors)}
        own, others = named_ids(fitted, side, of), named_ids(fitted, 1 - side, over)
        with voice.fitting("sampling for error bars") as callback:
            if side == 0:
                found = fitted.row_summary(own, columns=others, **asked, callback=callback)
            else:
                found = fitted.column_summary(own, rows=others, **asked, callback=callback)
        with table_writer(output, output_format, formulas) as write:
            write(summary_table(fitted, side, found))
        note_formulas(voice, output, formulas)
        voice.note(found.attrs["note"])
        if "reliability" in found.attrs:
            voice.note(
                f"reliability {found.attrs['reliability']:.3f}: of what the abilities of all "
                f"{len(fitted.rows_):,} rows vary, the estimates show this share; the rest is error"
            )
