"""``onebit evaluate``."""

from __future__ import annotations

from typing import Annotated

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
from onebit.cli.reading import read, told
from onebit.cli.remarks import remarks
from onebit.cli.shell import Voice, plain_errors


def evaluate(
    file: o.Input,
    folds: Annotated[int, typer.Option(min=2, help="Parts to cut the answers into.")] = 5,
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
    """
    with plain_errors():
        from onebit.completers.evaluation import MEASURES
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
        )
        seen = told(voice, reading.observations, (row_features, col_features), (row, col))
        for text in remarks(seen, repeats_told=reading.repeats is not None):
            voice.note(f"{file}: {text}")
        with voice.bar("evaluating") as tell:
            result = measure(estimator, seen, folds, seed, tell)
        table = result.table()
        title = f"{folds} folds of {result.n_answers:,} answers, mean ± standard error"
        shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        shown.add_column("", no_wrap=True)
        for name in MEASURES:
            shown.add_column(name.replace("_", " "), justify="right", min_width=13)
        for method, line in table.iterrows():
            cells = [f"{line[name]:.4f}±{line[f'{name}_se']:.4f}" for name in MEASURES]
            shown.add_row(str(method), *cells)
        content = {
            "folds": folds,
            "answers": result.n_answers,
            "methods": {str(method): line.to_dict() for method, line in table.iterrows()},
        }
        voice.answer(content, shown)
