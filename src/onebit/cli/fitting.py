"""``onebit fit``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from onebit.cli import options as o
from onebit.cli.cluster import check_alone, fit_there
from onebit.cli.models import (
    IRT,
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
from onebit.cli.shell import (
    Voice,
    WrongCommand,
    check_distinct,
    checked_output,
    command_line,
    plain_errors,
)
from onebit.data.files import identity


def fit(
    file: o.Input,
    output: Annotated[str, typer.Option("--output", "-o", help="The model file to write.")],
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
    certify: Annotated[
        float | None,
        typer.Option(
            help="Share of the answers to hold out for the certificate; 0 for none. 0.1 unless given; 0 "
            "with --model rasch and 2pl, which score a test by all its answers."
        ),
    ] = None,
    certify_after: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="COLUMN VALUE",
            help="Hold out the answers after this moment, a number or a date, in place of a share at "
            "random: the certificate then speaks of later answers.",
        ),
    ] = None,
    certify_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Hold out the answers of this file, in place of a share: a survey at random, another "
            "table. It is laid out like the first.",
        ),
    ] = None,
    certify_rows: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Also hold out this share of the rows, for a certificate of rows that are yet to come.",
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

      onebit fit ratings.csv -o m.onebit --certify-after date 2024-05-31

      onebit fit answers.csv -o m.onebit --certify-file survey.csv

      onebit fit answers.csv -o m.onebit --certify-rows 0.2

      onebit fit 'answers/*.parquet' -o large.onebit --model logistic --dask local
    """
    stopped = "Stopped. The same command goes on from the last state kept (about every twenty seconds)."
    with plain_errors(*(() if checkpoint is None else (stopped,))):
        from onebit.certificates.hold_out import check_hold_out_delta
        from onebit.certificates.statements import LIKE_THE_ANSWERED, at_most
        from onebit.data.tables.answers import option

        voice = Voice(quiet, as_json)
        checked_output(output, stdout=False)
        check_distinct(
            {
                "the file of answers": file,
                "the held-out answers": certify_file,
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
        own = certify_after is not None or certify_file is not None
        if (certify is not None) + (certify_after is not None) + (certify_file is not None) > 1:
            raise WrongCommand("--certify, --certify-after and --certify-file: choose one of them")
        if certify is None:
            certify = 0.0 if model in IRT or own else 0.1
        if not 0 <= certify < 1:
            raise WrongCommand(
                f"--certify is a share of the answers, such as 0.1, or 0 for none; got {certify!r}"
            )
        if certify_rows is not None and not 0 < certify_rows < 1:
            raise WrongCommand(
                f"--certify-rows is a share of the rows, such as 0.1; got {certify_rows!r}"
            )
        if certify_file is not None and identity(file) == identity(certify_file):
            raise WrongCommand("--certify-file names the file that is fitted, which certifies nothing")
        if own and certify_rows is not None:
            raise WrongCommand("--certify-rows goes with --certify, a share of the answers")
        if refit and (not certify or certify_rows is not None):
            raise WrongCommand(
                "--refit goes with a certificate by --certify, and without --certify-rows: it fits the "
                "held-out answers too"
            )
        estimator = new_model(
            model, rank, seed, threads, device, inference, samples, chains, sampling_seconds, pattern,
            burn_in, effort, loss,
        )  # fmt: skip
        if dask is not None:
            check_alone(
                {
                    "--row-features": row_features, "--col-features": col_features, "--refit": refit,
                    "--report": report, "--wide": wide, "--format": format, "--delimiter": delimiter,
                    "--no-header": no_header, "--skip-bad": skip_bad, "--drop": drop, "--no-ids": no_ids,
                    "--certify-after": certify_after,
                    "--certify-file": certify_file, "--certify-rows": certify_rows,
                }
            )  # fmt: skip
            fit_there(
                dask, voice, estimator, file, output, threads, delta, row=row, column=col, answer=answer,
                threshold=threshold, yes=yes, no=no, blank=blank, certify=certify or None,
                checkpoint=checkpoint,
            )  # fmt: skip
            return
        options = (
            row, col, answer, wide, threshold, yes, no, format, delimiter, no_header, skip_bad, drop,
            no_ids, blank,
        )  # fmt: skip
        reading = read(voice, file, *options, after=certify_after)
        seen = told(voice, reading.observations, (row_features, col_features), (row, col))
        rows, columns = seen.shape
        for text in remarks(seen, repeats_told=reading.repeats is not None):
            voice.note(f"{file}: {text}")
        held: Any = certify
        if own:
            held = reading.held_out
            if certify_file is not None:
                held = read(voice, certify_file, *options, may_lack=True).observations.written_like(seen)
        voice.note(f"{seen.n:,} answers of {rows:,} rows and {columns:,} columns")
        if own:
            voice.note(f"and {held.n:,} held out for the certificate: it speaks of answers like these")
        elif certify:
            voice.note(
                f"holding {certify:.0%} of the answers out for the certificate (--certify 0 for none)"
            )
            if reading.chosen.time is not None:
                after = option("--certify-after", reading.chosen.time)
                voice.note(
                    f"the column {reading.chosen.time!r} seems to hold times: the certificate will speak "
                    f"of answers of the same time; {after} VALUE holds out later ones"
                )
        if certify_rows is not None:
            voice.note(f"holding {certify_rows:.0%} of the rows out for the certificate of new rows")
        begin = time.perf_counter()
        if model == "auto":
            allowed = f"--effort {effort or 'default'}"
            if samples is not None:
                allowed = f"--samples {samples}"
            elif sampling_seconds is not None:
                allowed = f"--sampling-seconds {sampling_seconds:g}"
            voice.note(f"searching the model; then {estimator.effort_words()} ({allowed})")
        with voice.warnings_as_notes(), voice.fitting("fitting") as callback:
            estimator.fit(
                seen, certify=held, certify_rows=certify_rows, callback=callback, checkpoint=checkpoint
            )
            first = estimator
            if own:
                estimator.name_hold_out(held_words(certify_after, certify_file))
            if refit:
                estimator = first.refit(callback)
        seconds = time.perf_counter() - begin
        source = {
            "file": reading.source,
            "format": reading.format,
            "columns": str(reading.chosen),
            "threshold": threshold,
            "drop": json.dumps(drop) if drop else None,
            "blank": json.dumps(blank) if blank else None,
            "bad_lines": reading.bad,
            "time_column": reading.chosen.time,
            "command": command_line(),
            "seconds": round(seconds, 3),
        }
        record = estimator.describe(source)
        certificate = None
        certified = bool(certify) or own
        if certified:
            certificate = estimator.certify(delta)
            record = record.with_certificate(certificate)
        if certified and not refit:
            record = record.with_certificate(estimator.certify(delta, by="answer"))
            record = record.with_certificate(estimator.certify_selective(delta))
        estimator.record_ = record
        _save(estimator, output, not forget_answers, checkpoint)
        if report is not None:
            from onebit.report import write_report

            write_report(estimator, report)
        content = {
            "model": output,
            "report": report,
            "rows": rows,
            "columns": columns,
            "answers": estimator.n_observations_,
            "held_out": len(first.held_out_.wrong) if certified else 0,
            "rank": int(estimator.rank_),
            "seconds": round(seconds, 3),
            "bad_lines": reading.bad,
            "error_at_most": None if certificate is None else certificate.bound,
            "delta": delta,
        }
        text = f"{output}: fitted in {seconds:.1f} s, rank {estimator.rank_}"
        chosen = getattr(estimator, "best_params_", {}).get("loss", "logistic")
        if chosen != "logistic":
            text += (
                f"\nThe search chose the {chosen} loss, whose scores are no log-odds: `onebit rows`, "
                "`columns`, `ask` and the questions of `serve` want a model of --loss logistic"
            )
        if certificate is not None:
            text += f"\n{certificate.told()}"
        if certificate is not None and refit:
            before, differ = first.certify(delta).bound, estimator.held_out_.disagreement
            text += (
                f"\nBefore the refit it was {at_most(before)} {LIKE_THE_ANSWERED}; the two fits differ "
                f"on {differ:.1%} of the table."
            )
        if certify_rows is not None:
            new_rows = estimator.certify(delta, target="new rows")
            content["new_rows"] = new_rows.table().to_dict(orient="records")
            text += f"\n{new_rows.brief()}"
        if report is not None:
            text += f"\nThe report is {report}"
        voice.answer(content, text)


def _save(estimator: Any, output: str, answers: bool, checkpoint: str | None) -> None:
    """Write the model; where that fails after a fit with a checkpoint, into its folder."""
    try:
        estimator.save(output, answers=answers)
    except OSError as error:
        if checkpoint is None:
            raise
        rescue = Path(checkpoint) / "model.onebit"
        rescue.parent.mkdir(parents=True, exist_ok=True)
        estimator.save(rescue, answers=answers)
        raise ValueError(f"{output}: {error.strerror or error}; the model is in {rescue}") from None
