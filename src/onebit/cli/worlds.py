"""``onebit simulate``, ``onebit demo`` and ``onebit study``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from onebit.cli import options as o
from onebit.cli.shell import (
    Voice,
    WrongCommand,
    check_distinct,
    checked_output,
    command_line,
    lines_or_bar,
    plain_errors,
)


def simulate(
    world: Annotated[
        str, typer.Argument(metavar="WORLD", help="A1, A2, A3, B1, B2, B3 of the paper, or school.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="Table to write; - is stdout.")] = "-",
    truth: Annotated[
        str | None, typer.Option(help="Also write every entry's true probability of yes.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows; 200 unless given, of a school 400.")
    ] = None,
    cols: Annotated[
        int | None, typer.Option(min=1, help="Columns; 200 unless given, of a school 150.")
    ] = None,
    density: Annotated[float, typer.Option(help="Answers, as a share of the entries.")] = 0.2,
    rank: Annotated[int, typer.Option(min=1, help="Rank of the matrix; a school has none.")] = 3,
    flip: Annotated[float, typer.Option(help="Share of answers flipped in A2 and B2.")] = 0.1,
    seed: o.Seed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Make a table of answers whose truth is known.

    Examples:
      onebit simulate A2 --rank 3 -o world.csv

      onebit simulate school -o school.csv --truth truth.csv
    """
    with plain_errors():
        import numpy as np
        import pyarrow as pa

        from onebit.data.school import school
        from onebit.data.simulate import WORLDS
        from onebit.data.simulate import world as draw_world
        from onebit.data.tables import table_writer

        voice = Voice(quiet)
        checked_output(output)
        if truth is not None:
            checked_output(truth)
        check_distinct({}, {"the table": output, "the truth": truth})
        if not 0 < density <= 1:
            raise WrongCommand(
                f"--density is a share of the entries, above 0 and at most 1, not {density}"
            )
        if world.lower() == "school":
            shape = (rows or 400, cols or 150)
            drawn = school(*shape, max(1, round(density * shape[0] * shape[1])), seed)
            table = pa.Table.from_pandas(drawn.frame(), preserve_index=False)
            names, chance = (drawn.students, drawn.exercises), drawn.chance
            heads = ("student", "exercise")
        elif world.upper() in WORLDS:
            paper = draw_world(world.upper(), rank, (rows or 200, cols or 200), density, seed, flip)
            row, column = paper.pairs.T
            answer = (paper.answers > 0).astype(np.int8)
            table = pa.table({"row": row, "column": column, "answer": answer})
            names = tuple(np.arange(size) for size in paper.truth.shape)  # type: ignore[assignment]
            chance = paper.chance_of_error(np.full(paper.truth.shape, -1.0))
            heads = ("row", "column")
        else:
            raise ValueError(f"unknown world {world!r}; choose one of {', '.join(WORLDS)} or school")
        with table_writer(output) as write:
            write(table)
        if truth is not None:
            size = chance.shape
            with table_writer(truth) as write:
                write(
                    pa.table(
                        {
                            heads[0]: np.repeat(names[0], size[1]),
                            heads[1]: np.tile(names[1], size[0]),
                            "chance": chance.ravel(),
                        }
                    )
                )
        if output != "-":
            voice.note(f"{output}: {table.num_rows:,} answers")


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for models and reports.")] = Path(
        "demo"
    ),
    movielens: Annotated[
        Path | None, typer.Option(help="A folder with MovieLens 100k: it is shown too.")
    ] = None,
    seed: o.Seed = 0,
) -> None:
    """Show everything on two worlds with a known truth, in about a minute.

    Example:

      onebit demo -o demo --movielens ~/data/ml-100k
    """
    with plain_errors():
        from onebit.study.demo import run_demo

        run_demo(output, seed, movielens)


def study(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for results, page and figure.")
    ] = Path("study"),
    quick: Annotated[bool, typer.Option("--quick", help="A small version, about two minutes.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Draws of every world, 20 unless given, with --sampling 5."),
    ] = None,
    figure_seeds: Annotated[int, typer.Option(min=0, help="Draws of every noise level.")] = 10,
    world: Annotated[
        list[str] | None, typer.Option(help="Only this world; may be given several times.")
    ] = None,
    movielens: Annotated[
        Path | None, typer.Option(help="Folder of MovieLens 100k; else it is downloaded.")
    ] = None,
    movielens_splits: Annotated[
        int | None,
        typer.Option(min=0, help="Splits of MovieLens 100k, 10 unless given; 0 leaves it out."),
    ] = None,
    sampling: Annotated[
        bool,
        typer.Option(
            "--sampling", help="Instead, hold the variational posteriors against their sampled truth."
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(help="Processes; -1 uses all cores.")] = -1,
) -> None:
    """Redo the paper's tables and figure, our methods beside its own.

    Stop it whenever you like: the same command goes on where it stopped.

    Examples:
      onebit study --quick -o small

      onebit study -o study --movielens ~/data/ml-100k

      onebit study -o a2 --world A2 --seeds 5 --movielens-splits 0

      onebit study --sampling -o exact --movielens ~/data/ml-100k
    """
    with plain_errors("Stopped. Everything finished is kept: the same command goes on from here."):
        from onebit.data import simulate
        from onebit.study import Plan, run, write_page

        if sampling:
            _study_sampling(output, quick, seeds, world, movielens, movielens_splits, jobs)
            return
        try:
            import matplotlib as mpl

            mpl.use("Agg")
        except ImportError:
            raise ImportError("the study draws a figure: pip install 'onebit[plot]'") from None
        if quick:
            if world or seeds is not None or figure_seeds != 10:
                raise ValueError("--quick fixes the worlds and the seeds; leave --world and --seeds out")
            few = 1 if movielens else 0
            plan = Plan.quick(movielens_splits=few if movielens_splits is None else movielens_splits)
        else:
            plan = Plan(
                seeds=seeds or 20,
                figure_seeds=figure_seeds,
                movielens_splits=10 if movielens_splits is None else movielens_splits,
                worlds=tuple(world) if world else simulate.WORLDS,
            )
        folder = None if movielens is None else str(movielens)
        with lines_or_bar(Voice(), "study") as tell:
            results: Any = run(plan, output, movielens=folder, n_jobs=jobs, tell=tell)
        page = write_page(plan, results, output, command=command_line())
    typer.echo(f"{len(results)} results; the page is {page}")


def _study_sampling(
    output: Path,
    quick: bool,
    seeds: int | None,
    world: list[str] | None,
    movielens: Path | None,
    movielens_splits: int | None,
    jobs: int,
) -> None:
    """Hold the variational posteriors against their sampled truth."""
    from onebit.data import simulate
    from onebit.study.sampling import SamplingPlan, run_sampling, write_sampling_page

    if quick:
        if world or seeds is not None:
            raise ValueError("--quick fixes the worlds and the seeds; leave --world and --seeds out")
        few = 1 if movielens else 0
        plan = SamplingPlan.quick(few if movielens_splits is None else movielens_splits)
    else:
        worlds = tuple(world) if world else simulate.WORLDS
        unknown = [name for name in worlds if name not in simulate.WORLDS]
        if unknown:
            raise ValueError(
                f"unknown worlds: {', '.join(unknown)}; choose from {', '.join(simulate.WORLDS)}"
            )
        plan = SamplingPlan(
            seeds=seeds or 5,
            movielens_splits=3 if movielens_splits is None else movielens_splits,
            worlds=worlds,
        )
    folder = None if movielens is None else str(movielens)
    with lines_or_bar(Voice(), "study") as tell:
        results = run_sampling(plan, output, movielens=folder, n_jobs=jobs, tell=tell)
    page = write_sampling_page(plan, results, output, command_line())
    typer.echo(f"{len(results)} results; the page is {page}")
