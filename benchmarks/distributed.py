"""What a fit on a Dask cluster costs beside the engine of one machine, and what it moves.

    make bench-dask                                   # half an hour on two cores, 30 GB of disk
    python -m benchmarks.distributed --answers 1e6 --limited 0 --large 0

All processes run on one machine, with as many workers as the engine beside it has threads, so that the
cost of being distributed shows and no network does. The seconds of a round are taken between the
callbacks of fits with a fixed number of rounds. Bytes are those that workers send to each other, as Dask
counts them. What was measured is kept in a file; started again, a run goes on from there.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.machine import machine
from benchmarks.peers.matrices import make
from onebit import LogisticCompleter, Observations, __version__
from onebit.data.files import written_whole
from onebit.study.page import markdown

# The shape of MovieLens 20M; larger tables have rows in proportion, and columns by its root.
SHAPE, ANSWERS = (138_493, 26_744), 2e7
RANK, ROUNDS, REPEATS = 10, 12, 3
# Bytes of a column's states as they travel: means and a packed triangle, in single precision.
PER_COLUMN = 4 * ((RANK + 1) + (RANK + 1) * (RANK + 2) // 2)
# Peaks of memory are compared for so many workers.
MEMORY_OF = (1, 2, 4)
# Reckoned for machines with so many cores and so many bytes a second between them.
CORES, NETWORK, COLUMNS = 16, 1.25e9, 1_000_000


@dataclass(frozen=True)
class Run:
    """One fit: where, of what, and what it took; times in seconds, memory in GiB."""

    kind: str
    answers: int
    shape: tuple[int, int]
    workers: int
    limit: str
    before: float
    round: float
    whole: float
    moved: float = 0.0
    peak: float = 0.0


def shape_of(answers: float, shape: tuple[int, int]) -> tuple[int, int]:
    """Return the shape of a larger table of the same kind."""
    scale = answers / ANSWERS
    return max(int(shape[0] * scale), 20), max(int(shape[1] * np.sqrt(scale)), 10)


def written(folder: Path, n: int, shape: tuple[int, int]) -> None:
    """Write a made table as Parquet files, one after the other."""
    files = max(4, n // 5_000_000)
    for k in range(files):
        path = folder / f"part-{k:03d}.parquet"
        if path.is_file():
            continue
        entries, _ = make(shape, n // files, seed=k)
        table = pa.table({"row": entries.rows, "column": entries.columns, "answer": entries.signs > 0})
        with written_whole(path) as temporary:
            pq.write_table(table, temporary, row_group_size=1_000_000)


def _sent(dask_worker: Any) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)


def _peak() -> float:
    """Return the largest memory of this process in GiB; getrusage would count that of its parent, too."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return float("nan")
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 2**20


def on_cluster(folder: Path, run: dict[str, Any], rounds: int, device: str = "cpu") -> Run:
    """Fit on a cluster, and say what it took."""
    import onebit.dask

    with onebit.dask.local_client(run["workers"], memory_limit=run["limit"]) as client:
        stamps: list[float] = []
        sent: list[int] = []

        def tell(_: Any) -> None:
            stamps.append(time.perf_counter())
            if len(stamps) in (1, rounds):  # asking takes time that is none of the fit's
                sent.append(sum(client.run(_sent).values()))

        begin = time.perf_counter()
        model = _model(rounds).set_params(device=device)
        onebit.dask.fit(client, folder, model, callback=tell)
        whole = time.perf_counter() - begin
        peak = max(client.run(_peak).values())
    moved = (sent[-1] - sent[0]) / (len(stamps) - 1)
    return Run(**run, before=stamps[0] - begin, round=_each(stamps), whole=whole, moved=moved, peak=peak)


def on_machine(folder: Path, run: dict[str, Any], rounds: int) -> Run:
    """Fit the same table with the engine of one machine."""
    begin = time.perf_counter()
    table = pq.read_table(folder)
    pairs = np.column_stack([table.column(k).to_numpy() for k in (0, 1)])
    seen = Observations.from_pairs(pairs, table.column(2).to_numpy(zero_copy_only=False))
    stamps: list[float] = []
    _model(rounds, run["workers"]).fit(seen, callback=lambda _: stamps.append(time.perf_counter()))
    whole = time.perf_counter() - begin
    return Run(**run, before=stamps[0] - begin, round=_each(stamps), whole=whole)


def _model(rounds: int, threads: int = -1) -> LogisticCompleter:
    return LogisticCompleter(RANK, max_iter=rounds, tol=1e-12, random_state=0, n_jobs=threads)


def _each(stamps: Sequence[float]) -> float:
    """Return the mean time of a round: those with a checkpoint or a change of coordinates count too."""
    return (stamps[-1] - stamps[0]) / (len(stamps) - 1)


def on_paper(answers: float, machines: int, nanoseconds: float) -> dict[str, str]:
    """Reckon a round on several machines."""
    work = 2 * answers * nanoseconds * 1e-9 / (machines * CORES)
    states = COLUMNS * PER_COLUMN
    travel = 2 * states * np.ceil(np.log2(machines)) / NETWORK
    return {
        "answers": f"{answers:.0e}",
        "machines": str(machines),
        "moved a round (GB)": f"{2 * states * (machines - 1) / 1e9:.1f}",
        "work (s)": f"{work:.1f}",
        "travel (s)": f"{travel:.1f}",
        "a round (s)": f"{work + travel:.1f}",
    }


class Results:
    """What was measured, in a file; started again, a benchmark measures what is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: list[Run] = []
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["version"] == __version__:
                self.runs = [Run(**run | {"shape": tuple(run["shape"])}) for run in kept["runs"]]

    def of(self, **wanted: Any) -> list[Run]:
        """Return the runs that are so."""
        return [run for run in self.runs if all(getattr(run, k) == v for k, v in wanted.items())]

    def add(self, run: Run) -> None:
        """Take up a run, and write all down."""
        self.runs.append(run)
        content = {"version": __version__, "runs": [asdict(run) for run in self.runs]}
        with written_whole(self.path) as temporary:
            temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


def measured(results: Results, given: Any, data: Path) -> None:
    """Measure what is missing."""
    plans = [
        ("machine", given.answers, "auto", given.repeats, given.workers),
        ("cluster", given.answers, "auto", given.repeats, given.workers),
        *(("memory", given.answers, "auto", 1, workers) for workers in MEMORY_OF),
        ("limited", given.limited, given.limit, 1, given.workers),
        ("large", given.large, "auto", 1, given.workers),
    ]
    for turn in range(given.repeats):
        for kind, answers, limit, repeats, workers in plans:
            if not answers or turn >= repeats:
                continue
            n, shape = int(answers), shape_of(answers, tuple(given.shape))
            run = {"kind": kind, "answers": n, "shape": shape, "workers": workers, "limit": limit}
            if len(results.of(**run)) > turn:
                continue
            folder = data / f"answers-{n}"
            folder.mkdir(parents=True, exist_ok=True)
            written(folder, n, shape)
            if kind == "machine":
                results.add(on_machine(folder, run, given.rounds))
            else:
                rounds = 2 if kind == "memory" else given.rounds
                results.add(on_cluster(folder, run, rounds, given.device))
            print(results.runs[-1], flush=True)


def page(results: Results, given: Any) -> str:
    """Return the page."""
    here = results.of(kind="machine", answers=int(given.answers))
    there = results.of(kind="cluster", answers=int(given.answers))
    middle = {
        name: {field: statistics.median(getattr(run, field) for run in runs) for field in
               ("before", "round", "whole", "moved", "peak")}
        for name, runs in (("here", here), ("there", there))
    }  # fmt: skip
    states = there[0].shape[1] * PER_COLUMN
    ratio = middle["there"]["round"] / middle["here"]["round"]
    moved = middle["there"]["moved"] / (2 * states * max(given.workers - 1, 1))
    ns = 1e9 * middle["here"]["round"] * given.workers / (2 * given.answers)
    rows, columns = there[0].shape
    names = {"here": f"one process, {given.workers} threads", "there": f"Dask, {given.workers} workers"}
    table = [
        [names[name], f"{part['before']:.1f}", f"{part['round']:.2f}", f"{part['whole']:.1f}",
         f"{part['peak']:.2f}" if part["peak"] else ""]
        for name, part in middle.items()
    ]  # fmt: skip
    lines = [
        "# Distributed: what it costs",
        "",
        f"Version {__version__}, {datetime.date.today():%Y-%m-%d}, {machine()}. `make bench-dask` makes "
        "this page; [When one machine is not enough](cluster.md) says how to use it.",
        "",
        "## Beside one machine",
        "",
        f"{int(given.answers):,} answers, {rows:,} x {columns:,}, rank {RANK}, pattern on both sides, "
        f"{given.rounds} rounds, medians of {len(there)} fits of each kind. As many processes as "
        "threads, all on this "
        "machine: what shows is the cost of being distributed, scheduler and client included, and no "
        "network.",
        "",
        markdown(
            ["", "until the first round ends (s)", "a round (s)",
             f"all {given.rounds} rounds and the model (s)", "largest worker (GiB)"], table
        ),
        "",
        f"A round takes {ratio:.2f} times as long as on one machine. Workers send each other "
        f"{middle['there']['moved'] / 1e6:.1f} MB in a round, {moved:.2f} times twice the columns' "
        f"states ({states / 1e6:.1f} MB in single precision).",
    ]  # fmt: skip
    peaks = [run for workers in MEMORY_OF for run in results.of(kind="memory", workers=workers)]
    if peaks:
        said = ", ".join(f"{run.peak:.2f} with {run.workers}" for run in peaks)
        lines += ["", f"Largest worker (GiB): {said} workers."]
    more = [run for kind in ("limited", "large") for run in results.of(kind=kind)]
    if more:
        lines += ["", "## Larger tables", "", "One fit each, on the same machine.", ""]
        lines.append(
            markdown(
                ["answers", "rows x columns", "limit of a worker", "largest worker (GiB)",
                 "until the first round ends (s)", "a round (s)",
                 f"{given.rounds} rounds and the model (s)"],
                [
                    [f"{run.answers:,}", f"{run.shape[0]:,} x {run.shape[1]:,}",
                     "half of the memory" if run.limit == "auto" else run.limit, f"{run.peak:.2f}",
                     f"{run.before:.0f}", f"{run.round:.1f}", f"{run.whole:.0f}"]
                    for run in more
                ],
            )
        )  # fmt: skip
    reckoned = [on_paper(n, count, ns) for n in (1e10, 1e11) for count in (10, 100)]
    lines += [
        "",
        "## On paper",
        "",
        "Not measured. A round of `n` answers on `M` machines with `C` cores takes `2 n t / (M C)` for "
        "the answers and `2 s ceil(log2 M) / b` for the states of the columns, sent out and summed up "
        "along trees; `2 s (M - 1)` bytes move in all. With "
        f"`t` = {ns:.0f} ns for an answer and side on a core (measured above), `C` = {CORES}, "
        f"`b` = {NETWORK / 1e9:g} GB/s and {COLUMNS:,} columns, "
        f"`s` = {COLUMNS * PER_COLUMN / 1e9:.2f} GB:",
        "",
        markdown(list(reckoned[0]), [list(line.values()) for line in reckoned]),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark, and write a page if asked to."""
    parser = argparse.ArgumentParser(description="Measure fits on a Dask cluster.")
    parser.add_argument("--answers", type=float, default=ANSWERS, help="answers of the table")
    parser.add_argument("--shape", type=int, nargs=2, default=SHAPE, help="rows and columns for 2e7")
    parser.add_argument("--workers", type=int, default=2, help="processes, and threads beside them")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each fit")
    parser.add_argument("--device", default="cpu", help="where workers walk over their answers")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="fits of each kind")
    parser.add_argument("--limited", type=float, default=1e8, help="answers of a table beyond a limit")
    parser.add_argument("--limit", default="1.5GiB", help="memory limit of each worker, for it")
    parser.add_argument("--large", type=float, default=2e8, help="answers of the largest table")
    parser.add_argument("--data", type=Path, help="a folder that keeps made tables")
    parser.add_argument("--results", type=Path, help="a file that keeps what was measured")
    parser.add_argument("--output", type=Path, help="the page to write")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        results = Results(given.results or Path(name) / "results.json")
        measured(results, given, given.data or Path(name))
    text = page(results, given)
    if given.output:
        with written_whole(given.output) as temporary:
            temporary.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
