"""The command line: ``onebit study`` and ``onebit demo``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

app = typer.Typer(
    help="Fill the blanks of a yes/no table, and say how sure you are.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Exit codes: 0 done, 1 the work failed, 2 the command was wrong, 130 stopped by Ctrl-C.
_FAILED, _STOPPED = 1, 130


@contextmanager
def plain_errors(stopped: str = "Stopped.") -> Iterator[None]:
    """Turn errors that a user can mend into one line, and Ctrl-C into a clean end."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"\n{stopped}", err=True)
        raise typer.Exit(_STOPPED) from None
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"onebit: {error}", err=True)
        raise typer.Exit(_FAILED) from None


@app.callback()
def _main() -> None:
    pass


@app.command()
def study(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for results, page and figure.")
    ] = Path("study"),
    quick: Annotated[bool, typer.Option("--quick", help="A small version, about two minutes.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of every world.")] = 20,
    figure_seeds: Annotated[int, typer.Option(min=0, help="Draws of every noise level.")] = 10,
    world: Annotated[
        list[str] | None, typer.Option(help="Only this world; may be given several times.")
    ] = None,
    movielens: Annotated[
        Path | None, typer.Option(help="Folder of MovieLens 100k; else it is downloaded.")
    ] = None,
    movielens_splits: Annotated[
        int | None, typer.Option(min=0, help="Splits of MovieLens 100k; 0 leaves it out. [default: 10]")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes; -1 uses all cores.")] = -1,
) -> None:
    """Redo the paper's tables and figure, our methods beside its own.

    Stop it whenever you like: the same command goes on where it stopped.

    Examples:
      onebit study --quick -o small
      onebit study -o study --movielens ~/data/ml-100k
      onebit study -o a2 --world A2 --seeds 5 --movielens-splits 0
    """
    with plain_errors("Stopped. Everything finished is kept: the same command goes on from here."):
        from onebit import simulate
        from onebit.study import Plan, run, write_page

        try:
            import matplotlib as mpl

            mpl.use("Agg")
        except ImportError:
            raise ImportError("the study draws a figure: pip install 'onebit[plot]'") from None
        if quick:
            if world or seeds != 20 or figure_seeds != 10:
                raise ValueError("--quick fixes the worlds and the seeds; leave --world and --seeds out")
            few = 1 if movielens else 0
            plan = Plan.quick(movielens_splits=few if movielens_splits is None else movielens_splits)
        else:
            plan = Plan(
                seeds=seeds,
                figure_seeds=figure_seeds,
                movielens_splits=10 if movielens_splits is None else movielens_splits,
                worlds=tuple(world) if world else simulate.WORLDS,
            )
        folder = None if movielens is None else str(movielens)
        with _bar("study") as tell:
            results = run(plan, output, movielens=folder, n_jobs=jobs, tell=tell)
        page = write_page(plan, results, output, command=_command())
    typer.echo(f"{len(results)} results; the page is {page}")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Which world to draw.")] = 0,
) -> None:
    """Complete simulated worlds, certify, compare with the truth, draw."""
    with plain_errors():
        from onebit.demo import run_demo

        run_demo(output, seed)


def _command() -> str:
    """Return the command as it was typed, without the folders of this machine."""
    words = ["onebit"]
    for word in sys.argv[1:]:
        words.append(Path(word).name if Path(word).is_absolute() else word)
    return " ".join(words)


Tell = Callable[[int, int, object], None]


@contextmanager
def _bar(what: str) -> Iterator[Tell]:
    """Yield a callback (done, total, anything) that moves a bar, or writes a line now and then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(what)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # The pieces differ in length: the speed is taken over the last ten minutes.
    with Progress(*columns, console=console, speed_estimate_period=600) as progress:
        bar = progress.add_task(what, total=None)

        def tell(done: int, total: int, _: object) -> None:
            progress.update(bar, completed=done, total=total)

        yield tell


def _lines(what: str) -> Tell:
    """Return a callback that writes a line to standard error at every twentieth of the work."""
    said = [-1]

    def tell(done: int, total: int, _: object) -> None:
        step = 20 * done // total
        if step > said[0]:
            said[0] = step
            typer.echo(f"{what}: {done} of {total}", err=True)

    return tell


def main() -> None:
    """Run the command line."""
    app()
