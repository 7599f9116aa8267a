"""``onebit certify``, ``onebit info`` and ``onebit report``."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from rich.table import Table

from onebit.cli import options as o
from onebit.cli.predicting import loaded
from onebit.cli.shell import (
    Voice,
    WrongCommand,
    alone,
    check_distinct,
    checked_output,
    plain,
    plain_errors,
)


def certify(
    model: o.Model,
    delta: o.Delta = 0.05,
    method: Annotated[
        str,
        typer.Option(
            help="best (of the model itself), all (the whole ladder, other predictors too), or rungs by "
            "name: hold-out,optimised."
        ),
    ] = "best",
    by: Annotated[
        str | None,
        typer.Option(
            help="answer: one certificate for those said yes, one for those said no. row-answers or "
            "column-answers: by how often the row, or the column, was answered."
        ),
    ] = None,
    row_groups: Annotated[
        str | None,
        typer.Option("--row-groups", metavar="FILE", help="One a group: a table of row id and group."),
    ] = None,
    col_groups: Annotated[
        str | None, typer.Option("--col-groups", metavar="FILE", help="The same of columns.")
    ] = None,
    shift: Annotated[
        float | None,
        typer.Option(
            help="Of the blanks, if being answered multiplies the odds that a prediction is right by at "
            "most this much, such as 2."
        ),
    ] = None,
    blanks: Annotated[
        bool,
        typer.Option(
            "--blanks",
            help="Of the blanks, by weighing held-out answers with the odds of being blank, which are "
            "estimated from who answered what.",
        ),
    ] = False,
    new_rows: Annotated[
        bool,
        typer.Option(
            "--new-rows",
            help="Of rows that are not in the table, by how many answers they give; needs fit "
            "--certify-rows.",
        ),
    ] = False,
    given: Annotated[
        int | None,
        typer.Option(help="With --new-rows: after this number of answers alone, at the whole delta."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="One sheet of all that held-out answers say, all at once.")
    ] = False,
    max_error: Annotated[
        float | None,
        typer.Option(help="Say which predictions to keep so that at most this share is wrong."),
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Write the certificates into the model file, for its report.")
    ] = False,
    seed: o.Seed = 0,
    threads: o.Threads = None,
    device: o.AnyDevice = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Bound how often the predictions are wrong, on entries like the answered ones.

    Examples:
      onebit certify movies.onebit

      onebit certify movies.onebit --by answer

      onebit certify movies.onebit --all

      onebit certify movies.onebit --shift 2

      onebit certify movies.onebit --new-rows

      onebit certify movies.onebit --max-error 0.1

      onebit certify movies.onebit --method optimised,draw,hold-out --save

      onebit certify movies.onebit --method all --save
    """
    with plain_errors(), alone(model) if save else nullcontext():
        from onebit.certificates.bounds import check_delta
        from onebit.certificates.statements import confidence
        from onebit.completers.record import certificate_to_dict

        voice = Voice(quiet, as_json)
        fitted = loaded(model, None)
        settings = fitted.get_params(deep=False)
        o.use_machine(fitted, threads, device)
        if (
            method not in ("best", "hold-out")
            and fitted.held_out_ is not None
            and not fitted.answers_kept
        ):
            raise ValueError(
                f"{model} does not hold its answers: the held-out certificate is all there is "
                "(--method hold-out); fit again without --forget-answers for the others"
            )
        check_delta(delta)
        others = by or row_groups or col_groups or shift or blanks or max_error or save
        if (everything or new_rows) and (others or method != "best" or (everything and new_rows)):
            name = "all" if everything else "new-rows"
            raise WrongCommand(f"--{name} stands alone; leave the other statements out")
        if given is not None and not new_rows:
            raise WrongCommand("--given goes with --new-rows")
        if new_rows:
            of_rows = fitted.certify(delta, target="new rows", given=given)
            lines = of_rows.table().to_dict(orient="records")
            voice.answer({"delta": delta, "new_rows": lines}, str(of_rows))
            return
        if everything:
            made = fitted.sheet(delta)
            claims = [vars(claim) for claim in made.claims]
            voice.answer(_finite({"delta": delta, "claims": claims}), str(made))
            return
        names = [name.strip() for name in method.split(",")]
        if len(names) > 1 and not {"all", "best"}.isdisjoint(names):
            raise WrongCommand("all and best stand alone; name the certificates, or use --method all")
        wanted = method if len(names) == 1 else names
        with voice.warnings_as_notes(), voice.bar("certifying") as tell:
            found: list[Any] = [
                fitted.certify(
                    delta, wanted, seed,
                    by=None if by is None else by.replace("-", " "), shift=shift,
                    target="blanks" if blanks else None, row_groups=_groups(row_groups, fitted.rows_),
                    column_groups=_groups(col_groups, fitted.columns_), tell=tell,
                )
            ]  # fmt: skip
        held_out = fitted.held_out_
        plain = not (by or row_groups or col_groups or shift or blanks) and method == "best"
        if held_out is not None and held_out.disagreement is None and plain:
            found += [fitted.certify(delta, by="answer"), fitted.certify_selective(delta)]
            voice.note(f"each of these holds with probability {confidence(delta)} by itself")
        content: dict[str, Any] = {
            "certificates": [certificate_to_dict(certificate) for certificate in found]
        }
        text = "\n\n".join(str(certificate) for certificate in found)
        if max_error is not None:
            kept = fitted.keep(max_error, delta)
            content["keep"] = {
                "max_error": max_error,
                "share": kept.share,
                "error_at_most": kept.bound,
                "answers": {
                    name: {
                        "share": part.share,
                        "confidence_above": part.threshold if part.certificate else None,
                        "error_at_most": part.certificate.bound if part.certificate else None,
                    }
                    for name, part in (("no", kept.no), ("yes", kept.yes))
                },
            }
            text += f"\n\n{kept}"
        if save:
            record = fitted.record_ or fitted.describe()
            for certificate in found:
                record = record.with_certificate(certificate)
            fitted.record_ = record
            fitted.set_params(**settings)  # threads and device are of this command, not of the model
            fitted.save(model)
            voice.note(f"written into {model}")
        voice.answer(content, text)


def _groups(path: str | None, index: Any) -> Any:
    """Read a table of ids and groups."""
    if path is None:
        return None
    import pandas as pd

    kind = None if index.labels.inferred_type in ("integer", "floating") else str
    frame = pd.read_csv(path, sep=None, engine="python", dtype=None if kind is None else {0: kind})
    if frame.shape[1] < 2:
        raise ValueError(f"{path} needs two columns: id and group")
    ids = frame.iloc[:, 0] if kind is None else frame.iloc[:, 0].astype(str)
    return pd.Series(frame.iloc[:, 1].to_numpy(), index=pd.Index(ids))


def _finite(content: Any) -> Any:
    """Return content in which what is not known is null."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def info(model: o.Model, as_json: o.Json = False, quiet: o.Quiet = False) -> None:
    """Say what a model file holds: data, settings, fit, certificates.

    Example:

      onebit info movies.onebit
    """
    with plain_errors():
        from onebit.report.summary import summary

        voice = Voice(quiet, as_json)
        content = summary(loaded(model, None))
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in content.items():
            table.add_row(name.replace("_", " "), _shown(value))
        voice.answer(content, table)


def _shown(value: Any) -> str:
    from rich.markup import escape

    if isinstance(value, dict) and "statement" in value:
        return escape(value["statement"])
    if isinstance(value, dict):
        return escape(", ".join(f"{name} {_shown(part)}" for name, part in value.items()))
    if isinstance(value, list):
        return "\n".join(_shown(part) for part in value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return escape(plain(value))


def report(
    model: o.Model,
    output: Annotated[str, typer.Option("--output", "-o", help="The HTML file to write; - is stdout.")],
    title: Annotated[str | None, typer.Option(help="The report's heading.")] = None,
    threads: o.Threads = None,
    device: o.AnyDevice = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Write a report: one HTML file, readable offline and on a phone.

    Example:

      onebit report movies.onebit -o report.html
    """
    with plain_errors():
        from onebit.report import render_report, write_report

        voice = Voice(quiet, as_json)
        checked_output(output)
        check_distinct({"the model": model}, {"the report": output})
        fitted = loaded(model, threads, device)
        if output == "-":
            typer.echo(render_report(fitted, title))
            return
        with voice.terminal.status("drawing"):
            size = write_report(fitted, output, title)
        voice.answer({"report": output, "bytes": size}, f"{output}: {size / 1000:,.0f} kB")
