"""What a fit on a Dask cluster costs beside the engine of one machine, and what it moves.

    make bench-dask                                   # 20 million answers; some minutes on two cores
    python -m benchmarks.distributed --large 2e8      # also the largest table

All processes run on one machine, with as many workers as the engine beside it has threads, so that the
cost of being distributed shows and no network does. Seconds of a round are taken between the callbacks of
fits with a fixed number of rounds. Bytes are those that workers send to each other, as Dask counts them.
"""

from __future__ import annotations

import argparse
import datetime
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.machine import machine
from benchmarks.peers.matrices import make
from onebit import LogisticCompleter, Observations
from onebit.data.files import written_whole
from onebit.study.page import markdown

# The shape of MovieLens 20M.
SHAPE = (138_493, 26_744)
RANK = 10
ROUNDS = 12
# Bytes of a column's states as they travel: means and a packed triangle, in single precision.
PER_COLUMN = 4 * ((RANK + 1) + (RANK + 1) * (RANK + 2) // 2)


@dataclass(frozen=True)
class Run:
    """One fit: seconds until the first round, seconds of a round, of all, and what workers moved."""

    name: str
    workers: int
    before: float
    round: float
    whole: float
    moved: float = float("nan")
    peak: float = float("nan")


def written(folder: Path, n: int, shape: tuple[int, int], files: int) -> None:
    """Write a made table as Parquet files, one after the other."""
    for k in range(files):
        entries, _ = make(shape, n // files, seed=k)
        table = pa.table({"row": entries.rows, "column": entries.columns, "answer": entries.signs > 0})
        pq.write_table(table, folder / f"part-{k:03d}.parquet", row_group_size=1_000_000)


def _sent(dask_worker: Any) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def on_cluster(
    folder: Path, workers: int, rounds: int, limit: str | int = "auto", rank: int = RANK
) -> Run:
    """Fit on a cluster, and say what it took."""
    import onebit.dask

    with onebit.dask.local_client(workers, memory_limit=limit) as client:
        stamps: list[float] = []
        sent: list[int] = []

        def tell(_: Any) -> None:
            stamps.append(time.perf_counter())
            sent.append(sum(client.run(_sent).values()))

        model = LogisticCompleter(RANK, max_iter=rounds, tol=1e-12, random_state=0)
        begin = time.perf_counter()
        onebit.dask.fit(client, str(folder), model, callback=tell)
        whole = time.perf_counter() - begin
        # Rounds that end with a checkpoint or a change of coordinates are in the mean.
        moved = (sent[-1] - sent[0]) / (len(sent) - 1)
        each = (stamps[-1] - stamps[0]) / (len(stamps) - 1)
        peak = max(client.run(_peak).values())
    return Run(f"{workers} workers", workers, stamps[0] - begin, each, whole, moved, peak)


def on_machine(folder: Path, threads: int, rounds: int) -> Run:
    """Fit the same table with the engine of one machine."""
    begin = time.perf_counter()
    table = pq.read_table(folder)
    pairs = np.column_stack([table.column(k).to_numpy() for k in (0, 1)])
    seen = Observations.from_pairs(pairs, table.column(2).to_numpy(zero_copy_only=False))
    stamps: list[float] = []
    model = LogisticCompleter(RANK, max_iter=rounds, tol=1e-12, random_state=0, n_jobs=threads)
    model.fit(seen, callback=lambda _: stamps.append(time.perf_counter()))
    whole = time.perf_counter() - begin
    each = (stamps[-1] - stamps[0]) / (len(stamps) - 1)
    return Run(f"one process, {threads} threads", threads, stamps[0] - begin, each, whole)


def on_paper(
    answers: float, columns: float, machines: int, cores: int, network: float, ns: float
) -> dict[str, Any]:
    """Reckon a round: work shared out, and the table sent out and the sums sent back along trees."""
    work = 2 * answers * ns * 1e-9 / (machines * cores)
    states = columns * PER_COLUMN
    moved = 2 * states * (machines - 1)
    steps = int(np.ceil(np.log2(machines)))
    travel = 2 * states * steps / network
    return {
        "answers": f"{answers:.0e}",
        "machines": machines,
        "moved a round (GB)": round(moved / 1e9, 1),
        "work (s)": round(work, 1),
        "travel (s)": round(travel, 1),
        "a round (s)": round(work + travel, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark, and write a page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=float, default=2e7, help="answers of the table")
    parser.add_argument("--shape", type=int, nargs=2, default=SHAPE, help="its rows and columns")
    parser.add_argument("--workers", type=int, default=2, help="processes, and threads beside them")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each fit")
    parser.add_argument("--repeats", type=int, default=2, help="fits of each kind; medians are shown")
    parser.add_argument("--limited", type=float, default=0.0, help="answers of a table beyond a limit")
    parser.add_argument("--limit", default="1.5GiB", help="memory limit of each worker, for it")
    parser.add_argument("--large", type=float, default=0.0, help="answers of the largest table")
    parser.add_argument("--output", type=Path, help="a page to write")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    shape = tuple(given.shape)
    lines: list[str] = []
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder, int(given.answers), shape, 8)
        found: dict[str, list[Run]] = {}
        for _ in range(given.repeats):
            for run in (
                on_machine(folder, given.workers, given.rounds),
                on_cluster(folder, given.workers, given.rounds),
            ):
                found.setdefault(run.name, []).append(run)
                print(run, flush=True)
        runs = [
            Run(name, parts[0].workers, *(statistics.median(getattr(part, field) for part in parts)
                for field in ("before", "round", "whole", "moved", "peak")))
            for name, parts in found.items()
        ]  # fmt: skip
    states = shape[1] * PER_COLUMN
    lines += _table(runs, states)
    for answers, limit, what in (
        (given.limited, given.limit, "limited"), (given.large, "auto", "large")
    ):  # fmt: skip
        if answers:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                scale = answers / given.answers
                larger = (int(shape[0] * scale), int(shape[1] * np.sqrt(scale)))
                written(folder, int(answers), larger, max(8, int(answers / 5e6)))
                run = on_cluster(folder, given.workers, given.rounds, limit)
                print(what, run, flush=True)
                lines += ["", f"{what}: {answers:.0e} answers, {larger[0]:,} x {larger[1]:,}, {run}"]
    print("\n".join(lines))
    if given.output:
        head = f"{datetime.date.today():%Y-%m-%d}, {machine()}"
        with written_whole(given.output) as temporary:
            temporary.write_text("\n".join([head, "", *lines]) + "\n", encoding="utf-8")


def _table(runs: Sequence[Run], states: int) -> list[str]:
    """Show runs beside each other."""
    head = ["", "until the first round (s)", "a round (s)", "whole (s)", "moved, of twice the states",
            "largest process (GiB)"]  # fmt: skip
    body = [
        [
            run.name, f"{run.before:.1f}", f"{run.round:.2f}", f"{run.whole:.1f}",
            "" if np.isnan(run.moved) else f"{run.moved / (2 * states * max(run.workers - 1, 1)):.2f}",
            "" if np.isnan(run.peak) else f"{run.peak:.2f}",
        ]
        for run in runs
    ]  # fmt: skip
    return markdown(head, body).splitlines()


if __name__ == "__main__":
    main()
