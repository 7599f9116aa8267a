"""Run the comparison, or what is missing of it, and write the page.

    make bench-peers                                  # everything
    python -m benchmarks.peers --matrix ml-100k --only onebit --only libmf --threads 1 --repeats 1
    python -m benchmarks.peers --tune --matrix ml-100k    # choose the settings again

Results are kept as they come: the same command goes on where it was stopped. ``--fresh`` forgets them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.matrices import MATRICES
from benchmarks.peers.page import write_page
from benchmarks.peers.runner import RESULTS, Runner, stored


def main(argv: Sequence[str] | None = None) -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with ml-100k/u.data")
    parser.add_argument("--matrix", action="append", choices=MATRICES, help="only these matrices")
    parser.add_argument("--only", action="append", choices=CONTESTANTS, help="only these contestants")
    parser.add_argument("--threads", type=int, action="append", help="numbers of threads (1 and 2)")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of a task (3)")
    parser.add_argument(
        "--patience", type=float, default=12.0, help="no repeats beyond so many seconds of fitting (12)"
    )
    parser.add_argument(
        "--limit", type=float, default=900.0, help="stop a process after so many seconds (900)"
    )
    parser.add_argument("--no-trace", action="store_true", help="leave the times to LIBMF's accuracy out")
    parser.add_argument(
        "--quick", action="store_true", help="the two small matrices, one repeat, no trace"
    )
    parser.add_argument(
        "--tune", action="store_true", help="choose the settings again instead of running"
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("build/bench-peers"),
        help="where matrices and results are kept",
    )
    parser.add_argument("--output", type=Path, default=None, help="write the page here (with its figure)")
    options = parser.parse_args(argv)
    if options.quick:
        options.repeats, options.no_trace = 1, True
        options.matrix = options.matrix or ["ml-100k", "made-1m"]
    threads = options.threads or [1, 2]
    contestants = options.only or list(CONTESTANTS)
    if options.fresh:
        (options.cache / RESULTS).unlink(missing_ok=True)
    matrices = stored(options.matrix or list(MATRICES), options.data, options.cache)
    runner = Runner(options.cache, options.limit, lambda text: print(text, flush=True))
    for name in contestants:
        if runner.versions[name] is None:
            print(f"{name} is left out: {CONTESTANTS[name].package} is not installed", flush=True)
    for matrix in matrices:
        if options.tune:
            runner.tune(matrix, contestants, threads[-1])
            continue
        runner.finals(matrix, contestants, threads, options.repeats, options.patience)
        if not options.no_trace:
            runner.traces(matrix, contestants, threads, options.repeats, options.patience)
    if options.output and not options.tune:
        write_page(runner, options.output)


if __name__ == "__main__":
    main()
