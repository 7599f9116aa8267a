"""``onebit evaluate``."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from onebit.cli import options as o
from onebit.cli.models import (
    BurnIn,
    Chains,
    Effort,
    Inference,
    Losses,
    ModelName,
    Rank,
    Samples,
    SamplingSeconds,
    new_model,
)
from onebit.cli.reading import held_words, read, told
from onebit.cli.remarks import remarks
from onebit.cli.shell import Voice, plain_errors


def evaluate(
    file: o.Input,
    folds: Annotated[int, typer.Option(min=2, help="Parts to cut the answers into.")] = 5,
    after: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="COLUMN VALUE",
            help="Fit to the answers up to this moment, a number or a date, and predict the later ones, "
            "in place of folds.",
        ),
    ] = None,
    model: ModelName = "auto",
    rank: Rank = None,
    inference: Inference = None,
    samples: Samples = None,
    chains: Chains = None,
    burn_in: BurnIn = None,
    effort: Effort = None,
    loss: Losses = None,
    sampling_seconds: SamplingSeconds = None,
    row_features: o.RowFeatures = None,
    col_features: o.ColFeatures = None,
    pattern: o.Pattern = "auto",
    row: o.Row = None,
    col: o.Col = None,
    answer: o.Answer = None,
    wide: o.Wide = False,
    threshold: o.Threshold = None,
    yes: o.Yes = None,
    no: o.No = None,
    blank: o.Blank = None,
    format: o.Format = None,
    delimiter: o.Delimiter = None,
    no_header: o.NoHeader = False,
    skip_bad: o.SkipBad = False,
    drop: o.Drop = None,
    no_ids: o.NoIds = False,
    seed: o.Seed = 0,
    threads: o.Threads = None,
    device: o.Device = "cpu",
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Measure a model by cross-validation, beside the effects alone and the commoner answer.

    Examples:
      onebit evaluate ratings.csv --folds 5

      onebit evaluate ratings.csv --threshold 3.5 --model logistic --json

      onebit evaluate ratings.csv --threshold 3.5 --after date 2024-05-31
    """
    with plain_errors():
        from onebit.completers.evaluation import MEASURES, evaluate_later
        from onebit.completers.evaluation import evaluate as measure

        voice = Voice(quiet, as_json)
        estimator = new_model(
            model, rank, seed, threads, device, inference, samples, chains, sampling_seconds, pattern,
            burn_in, effort, loss,
        )  # fmt: skip
        reading = read(
            voice,
            file,
            row,
            col,
            answer,
            wide,
            threshold,
            yes,
            no,
            format,
            delimiter,
            no_header,
            skip_bad,
            drop,
            no_ids,
            blank,
            after=after,
        )
        seen = told(voice, reading.observations, (row_features, col_features), (row, col))
        for text in remarks(seen, repeats_told=reading.repeats is not None):
            voice.note(f"{file}: {text}")
        with voice.bar("evaluating") as tell:
            if reading.held_out is not None:
                later = evaluate_later(estimator, seen, reading.held_out, seed, tell)
                _answer_later(voice, later, seen.n, held_words(after, None))
                return
            result = measure(estimator, seen, folds, seed, tell)
        table = result.table()
        shown = _table(f"{folds} folds of {result.n_answers:,} answers, mean ± standard error", MEASURES)
        for method, line in table.iterrows():
            shown.add_row(str(method), *_cells(line, MEASURES))
        content = {
            "folds": folds,
            "answers": result.n_answers,
            "methods": {str(method): line.to_dict() for method, line in table.iterrows()},
        }
        voice.answer(content, shown)


def _answer_later(voice: Voice, later: Any, fitted: int, which: str) -> None:
    """Show how later answers were foreseen."""
    from onebit.completers.evaluation import MEASURES

    shown = _table(
        f"fitted to {fitted:,} answers; of {which}, mean ± standard error by rows", ("answers", *MEASURES)
    )
    content: dict[str, Any] = {"fitted": fitted, "of": which, "methods": {}}
    for method, lines in later.groupby(level="method", sort=False):
        shown.add_row(str(method))
        groups = content["methods"][str(method)] = {}
        for (_, group), line in lines.iterrows():
            answers = int(line["answers"])
            shown.add_row(f"  {group}", f"{answers:,}", *_cells(line, MEASURES))
            numbers = {name: value for name, value in line.items() if value == value}
            groups[group] = numbers | {"answers": answers}
    voice.answer(content, shown)


def _table(title: str, names: tuple[str, ...]) -> Table:
    """Return a table without lines."""
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown.add_column("", no_wrap=True)
    for name in names:
        least = 7 if name == "answers" else 13
        shown.add_column(name.replace("_", " "), justify="right", min_width=least)
    return shown


def _cells(line: Any, names: tuple[str, ...]) -> list[str]:
    """Return measures with their standard errors, where they have one."""
    errors = [line[f"{name}_se"] for name in names]
    return [
        f"{line[name]:.4f}" + (f"±{error:.4f}" if error == error else "")
        for name, error in zip(names, errors, strict=True)
    ]
