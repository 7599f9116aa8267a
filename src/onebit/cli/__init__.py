"""The command line, ``onebit``: files in, predictions, certificates and reports out."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from onebit import __version__
from onebit.cli import (
    asking,
    certificates,
    completing,
    evaluating,
    fitting,
    members,
    predicting,
    serving,
    updating,
    worlds,
)

app = typer.Typer(
    help="Fill the blanks of a yes/no table, and say how sure you are.\n\n"
    "Begin with: onebit demo, or onebit fit answers.csv -o model.onebit",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"onebit {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


app.command()(fitting.fit)
app.command()(predicting.predict)
app.command()(completing.complete)
app.command()(members.rows)
app.command()(members.columns)
app.command()(asking.ask)
app.command()(updating.update)
app.command()(serving.serve)
app.command()(certificates.certify)
app.command()(evaluating.evaluate)
app.command()(certificates.info)
app.command()(certificates.report)
app.command()(worlds.simulate)
app.command()(worlds.demo)
app.command()(worlds.study)


def main() -> None:
    """Run the command line."""
    # A daemon may have closed its streams.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    app()
