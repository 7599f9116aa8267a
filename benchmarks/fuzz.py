"""Hostile model files and checkpoints: each loads and predicts finite numbers, or is refused in one line.

A checksum guards against damage, not against whoever writes the file. So every file here has a right
one: models of every kind and states of unfinished fits are taken apart, changed in one to three places,
and put together again. A process with bounded memory reads them. What counts as a failure is everything
but finite predictions and ``FileError``: another exception, a crash, a hang, memory beyond the bound.

    python -m benchmarks.fuzz --count 10000
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import onebit
from benchmarks.mutations import mutated
from onebit import simulate, storage
from onebit.engine import checkpoint
from onebit.engine.sampling import SweepProgress
from onebit.summary import summary

# What a reader may take beyond what it had before the first file.
MEMORY = 2**30
# Seconds for one file: most take a hundredth.
PATIENCE = 120
LOADED, REFUSED = "predicts finite numbers", "one FileError"

Make = Callable[[], Any]


class Killed(BaseException):
    """Ends a fit in its middle."""


@dataclass(frozen=True)
class Seed:
    """A sound file, and what is done with a changed one."""

    name: str
    kind: str
    tensors: storage.Tensors
    content: dict[str, Any]
    # Of a checkpoint: the fit that it belongs to, the file's name and the others in its folder.
    fit: Callable[[Path], Any] | None = None
    file: str = ""
    others: dict[str, bytes] = field(default_factory=dict)


def _world() -> Any:
    return simulate.world("B2", rank=1, shape=(14, 11), density=0.7, seed=1)


def _fit(model: Any, ids: str = "text", **settings: Any) -> Any:
    world = _world()
    pairs: Any = world.pairs
    if ids == "text":
        pairs = [(f"row {i}", f"column {j}") for i, j in world.pairs]
    elif ids == "mixed":
        pairs = [((int(i), "x"), float(j) + 0.5) for i, j in world.pairs]
    elif ids == "dates":
        days = np.datetime64("2020-01-01") + np.arange(20)
        pairs = list(zip(days[world.pairs[:, 0]].tolist(), world.pairs[:, 1].tolist(), strict=True))
    return model.fit(pairs, world.answers, **settings)


def _makers() -> dict[str, tuple[Make, dict[str, Any]]]:
    from onebit import (
        AutoCompleter,
        GibbsCompleter,
        HingeCompleter,
        LogisticCompleter,
        NuclearNormCompleter,
    )

    few = {"max_iter": 12, "random_state": 0, "n_jobs": 1}
    chain = few | {"inference": "sampling", "n_samples": 8, "n_burn_in": 2}
    held, whole = {"certify": 0.2}, {"certify": 0}
    return {
        "logistic": (lambda: LogisticCompleter(2, **few), held),
        "logistic, plain": (lambda: LogisticCompleter(2, **few), {"ids": "numbers"}),
        "logistic, diagonal, gamma": (
            lambda: LogisticCompleter(2, covariance="diagonal", prior="gamma", **few),
            whole | {"ids": "mixed"},
        ),
        "logistic, sampled": (lambda: LogisticCompleter(2, **chain), held | {"ids": "dates"}),
        "hinge": (lambda: HingeCompleter(2, sparse="columns", **few), held),
        "hinge, sampled": (lambda: HingeCompleter(2, effects=False, **chain), whole),
        "hinge, paper": (lambda: HingeCompleter(2, method="paper", effects=False, **few), held),
        "gibbs": (lambda: GibbsCompleter(1, temperature=1.0, **few), held),
        "nuclear": (lambda: NuclearNormCompleter(2, max_iter=10, tol=1.0, random_state=0), held),
        "auto": (lambda: AutoCompleter(random_state=0, n_jobs=1), held),
    }


def seeds(folder: Path) -> list[Seed]:
    """Make a model of every kind, and checkpoints of fits that were stopped."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (make, settings) in _makers().items():
            path = folder / "model.onebit"
            _fit(make(), **settings).save(path)
            found.append(Seed(f"model: {name}", "model", *storage.read(path, "model")))
        for name in ("logistic", "logistic, diagonal, gamma", "logistic, sampled", "hinge", "gibbs"):
            found += _stopped(name, folder / f"stopped {len(found)}")
    return found


def _stopped(name: str, folder: Path) -> Iterator[Seed]:
    make, settings = _makers()[name]

    def stop(progress: Any) -> None:
        last = isinstance(progress, SweepProgress) or "sampled" not in name
        if last and progress.round == 9:
            raise Killed

    with suppress(Killed):
        _fit(make(), callback=stop, checkpoint=folder, **settings)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files.pop("checkpoint.lock", None)
    for file in sorted(files):
        if file.startswith("descent-"):
            state = storage.read(folder / file, "descent")
            others = {other: content for other, content in files.items() if other != file}

            def fit(folder: Path) -> Any:
                return _fit(make(), checkpoint=folder, **settings)

            yield Seed(f"checkpoint: {name}", "descent", *state, fit, file, others)


def outcome(seed: Seed, rng: np.random.Generator | None, folder: Path) -> str:
    """Change a file (not without ``rng``), read it, and say what came of it."""
    shutil.rmtree(folder, ignore_errors=True)  # a finished fit has removed it
    folder.mkdir()
    path = folder / (seed.file or "changed.onebit")
    for other, content in seed.others.items():
        (folder / other).write_bytes(content)
    mutated(rng, seed.kind, seed.tensors, seed.content, path)
    try:
        model = onebit.load(path) if seed.fit is None else seed.fit(folder)
        return _checked_predictions(model)
    except storage.FileError as error:
        text = str(error)
        return REFUSED if len(text) < 2000 and "\n" not in text else f"a message such as {text[:200]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def _checked_predictions(model: Any) -> str:
    rows, columns = model.rows_.labels, model.columns_.labels
    codes = np.array([[0, 0], [len(rows) - 1, len(columns) - 1], [-1, 0], [0, -1], [-1, -1]], np.int32)
    predicted = model.predictions(codes[:, 0].copy(), codes[:, 1].copy())
    for part in (predicted.probability, predicted.score, predicted.uncertainty):
        if not np.isfinite(np.asarray(part, dtype=float)).all():
            return f"predictions {np.asarray(part).tolist()}"
    if not ((predicted.probability > 0) & (predicted.probability < 1)).all():
        return f"probabilities {predicted.probability.tolist()}"
    json.dumps(summary(model), allow_nan=False)
    return LOADED


def work(begin: int, end: int) -> None:
    """Read the changed files of some numbers, in this process, and print what came of each."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    checkpoint.INTERVAL = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = seeds(folder)
        reading = folder / "reading"
        for seed in found:  # compiles, and imports, what the files need
            came = outcome(seed, None, reading)
            assert came == LOADED, (seed.name, came)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        checkpoint.INTERVAL = 1e9
        for number in range(begin, end):
            seed = found[number % len(found)]
            print(json.dumps([number, seed.name, "began"]), flush=True)
            signal.alarm(PATIENCE)  # which ends the process
            came = outcome(seed, np.random.default_rng([7, number]), reading)
            print(json.dumps([number, seed.name, came]), flush=True)


def run(count: int, first: int = 0) -> Counter[tuple[str, str]]:
    """Read ``count`` changed files; return how often each kind of file came to each end."""
    found: Counter[tuple[str, str]] = Counter()
    number, end = first, first + count
    while number < end:
        command = [sys.executable, "-m", "benchmarks.fuzz", "--work", str(number), str(end)]
        with (
            tempfile.TemporaryFile("w+") as said,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as worker,
        ):
            assert worker.stdout is not None
            name = ""
            for line in worker.stdout:
                number, name, came = json.loads(line)
                if came != "began":
                    found[name, came] += 1
                    if came not in (LOADED, REFUSED):
                        print(f"file {number} ({name}): {came}", file=sys.stderr)
            if worker.wait():
                said.seek(0)
                words = said.read()
                last = words.strip().splitlines()[-1] if words.strip() else ""
                end_of_it = f"a crash, {worker.returncode}: {last}"
                print(f"file {number} ({name}): {end_of_it}\n{words}", file=sys.stderr)
                found[name or "none", end_of_it] += 1
                if not name:
                    break
        number += 1
    return found


def table(found: Counter[tuple[str, str]]) -> str:
    """Return the counts, a line a kind of file."""
    lines = [f"{'file':40}{'predicts':>10}{'refused':>10}{'failed':>10}"]
    for name in [*sorted({name for name, _ in found}), "all"]:
        counts = Counter(
            {end: sum(n for (file, came), n in found.items() if came == end and name in (file, "all"))
             for end in (LOADED, REFUSED)}
        )  # fmt: skip
        total = sum(n for (file, _), n in found.items() if name in (file, "all"))
        failed = total - counts[LOADED] - counts[REFUSED]
        lines.append(f"{name:40}{counts[LOADED]:10,}{counts[REFUSED]:10,}{failed:10,}")
    return "\n".join(lines)


def main() -> int:
    """Run, print the counts, and fail if a file did anything else."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="changed files to read")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(*arguments.work)
        return 0
    begin = time.monotonic()
    found = run(arguments.count, arguments.first)
    print(table(found))
    print(f"{sum(found.values()):,} files in {time.monotonic() - begin:.0f} s")
    return 0 if {came for _, came in found} <= {LOADED, REFUSED} else 1


if __name__ == "__main__":
    sys.exit(main())
