"""``onebit fit`` and ``onebit evaluate``."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from onebit.cli import options as o
from onebit.cli.cluster import check_alone, fit_there
from onebit.cli.features import read_features
from onebit.cli.models import (
    IRT,
    BurnIn,
    Chains,
    Effort,
    Inference,
    ModelName,
    Rank,
    Samples,
    SamplingSeconds,
    new_model,
)
from onebit.cli.shell import (
    Voice,
    WrongCommand,
    check_distinct,
    checked_output,
    command_line,
    plain_errors,
)
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
) -> Any:
    """Read a file of answers as the options say, and say what was guessed."""
    from onebit.data.tables import Layout, read_table
    from onebit.data.tables.answers import Vocabulary

    layout = Layout(
        row, col, answer, wide or None, not no_header, format, delimiter, drop=drop or (), ids=not no_ids
    )
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


def fit(
    file: o.Input,
    output: Annotated[str, typer.Option("--output", "-o", help="The model file to write.")],
    model: ModelName = "auto",
    rank: Rank = None,
    inference: Inference = "variational",
    samples: Samples = None,
    chains: Chains = None,
    burn_in: BurnIn = None,
    effort: Effort = None,
    sampling_seconds: SamplingSeconds = None,
    row_features: o.RowFeatures = None,
    col_features: o.ColFeatures = None,
    pattern: o.Pattern = "auto",
    certify: Annotated[
        float | None,
        typer.Option(
            help="Share of the answers to hold out for the certificate; 0 for none. 0.1 unless given; 0 "
            "with --model rasch and 2pl, which score a test by all its answers."
        ),
    ] = None,
    delta: o.Delta = 0.05,
    refit: Annotated[
        bool,
        typer.Option(
            "--refit",
            help="After certifying, fit once more on all answers and keep that model. Its certificate "
            "adds the share of entries on which the two fits differ, and speaks of entries drawn evenly "
            "from the whole table; single predictions are not certified.",
        ),
    ] = False,
    report: Annotated[str | None, typer.Option(help="Also write a report, an HTML file.")] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="A folder where a long fit keeps how far it is: the same command goes on from there."
        ),
    ] = None,
    forget_answers: Annotated[
        bool,
        typer.Option(
            "--forget-answers",
            help="Keep the answers out of the model file: smaller, but `complete` cannot tell which "
            "entries are blank, and only the held-out certificate is left.",
        ),
    ] = False,
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
    dask: o.Dask = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Fit a model to a file of answers, and certify it.

    Examples:
      onebit fit ratings.csv --row user --col movie --answer liked -o movies.onebit

      onebit fit ratings.parquet --threshold 3.5 -o movies.onebit --report movies.html

      onebit fit votes.csv --wide -o votes.onebit

      onebit fit survey.csv --wide --drop age --drop sex -o survey.onebit

      zcat log.csv.gz | onebit fit - -o model.onebit

      onebit fit long.parquet -o long.onebit --checkpoint long.part

      onebit fit votes.csv -o votes.onebit --model logistic --inference sampling --samples 400

      onebit fit votes.csv -o votes.onebit --refit

      onebit fit ratings.csv -o m.onebit --row-features users.csv --col-features movies.csv

      onebit fit 'answers/*.parquet' -o large.onebit --model logistic --dask local
    """
    with plain_errors(*(() if checkpoint is None else ("Stopped. The same command goes on from here.",))):
        from onebit.certificates.hold_out import check_hold_out_delta
        from onebit.certificates.statements import LIKE_THE_ANSWERED, at_most

        voice = Voice(quiet, as_json)
        checked_output(output, stdout=False)
        check_distinct(
            {
                "the file of answers": file,
                "the row features": row_features,
                "the column features": col_features,
            },
            {"the model": output, "the report": report},
            checkpoint,
        )
        if report is not None:
            from onebit.report import check_installed

            checked_output(report, stdout=False)
            check_installed()
        check_hold_out_delta(delta)
        if certify is None:
            certify = 0.0 if model in IRT else 0.1
        if refit and not certify:
            raise WrongCommand(
                "--refit goes with a certificate: without one all answers are fitted anyway"
            )
        estimator = new_model(
            model, rank, seed, threads, device, inference, samples, chains, sampling_seconds, pattern,
            burn_in, effort,
        )  # fmt: skip
        if dask is not None:
            check_alone(
                {
                    "--row-features": row_features, "--col-features": col_features, "--refit": refit,
                    "--report": report, "--wide": wide, "--format": format, "--delimiter": delimiter,
                    "--no-header": no_header, "--skip-bad": skip_bad, "--drop": drop, "--no-ids": no_ids,
                    "--device": device != "cpu",
                }
            )  # fmt: skip
            fit_there(
                dask, voice, estimator, file, output, threads, delta, row=row, column=col, answer=answer,
                threshold=threshold, yes=yes, no=no, blank=blank, certify=certify or None,
                checkpoint=checkpoint,
            )  # fmt: skip
            return
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
        rows, columns = seen.shape
        voice.note(f"{seen.n:,} answers of {rows:,} rows and {columns:,} columns")
        if certify:
            voice.note(
                f"holding {certify:.0%} of the answers out for the certificate (--certify 0 for none)"
            )
        begin = time.perf_counter()
        if model == "auto":
            voice.note(
                f"searching the model; then {estimator.effort_words()} (--effort {effort or 'default'})"
            )
        with voice.warnings_as_notes(), voice.fitting("fitting") as callback:
            estimator.fit(seen, certify=certify, callback=callback, checkpoint=checkpoint)
            first = estimator
            if refit:
                estimator = first.refit(callback)
        seconds = time.perf_counter() - begin
        source = {
            "file": reading.source,
            "format": reading.format,
            "columns": str(reading.chosen),
            "threshold": threshold,
            "bad_lines": reading.bad,
            "command": command_line(),
            "seconds": round(seconds, 3),
        }
        record = estimator.describe(source)
        certificate = None
        if certify:
            certificate = estimator.certify(delta)
            record = record.with_certificate(certificate)
        if certify and not refit:
            record = record.with_certificate(estimator.certify(delta, by="answer"))
            record = record.with_certificate(estimator.certify_selective(delta))
        estimator.record_ = record
        estimator.save(output, answers=not forget_answers)
        if report is not None:
            from onebit.report import write_report

            write_report(estimator, report)
        content = {
            "model": output,
            "report": report,
            "rows": rows,
            "columns": columns,
            "answers": seen.n,
            "held_out": len(first.held_out_.wrong) if certify else 0,
            "rank": int(estimator.rank_),
            "seconds": round(seconds, 3),
            "bad_lines": reading.bad,
            "error_at_most": None if certificate is None else certificate.bound,
            "delta": delta,
        }
        text = f"{output}: fitted in {seconds:.1f} s, rank {estimator.rank_}"
        if certificate is not None:
            text += f"\n{certificate.sentence()} {certificate.observed()}."
        if certificate is not None and refit:
            before, differ = first.certify(delta).bound, estimator.held_out_.disagreement
            text += (
                f"\nBefore the refit it was {at_most(before)} {LIKE_THE_ANSWERED}; the two fits differ "
                f"on {differ:.1%} of the table."
            )
        if report is not None:
            text += f"\nThe report is {report}"
        voice.answer(content, text)


def evaluate(
    file: o.Input,
    folds: Annotated[int, typer.Option(min=2, help="Parts to cut the answers into.")] = 5,
    model: ModelName = "auto",
    rank: Rank = None,
    inference: Inference = "variational",
    samples: Samples = None,
    chains: Chains = None,
    burn_in: BurnIn = None,
    effort: Effort = None,
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
            burn_in, effort,
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
