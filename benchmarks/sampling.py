"""Sampling beside peers that sample.

AutoCompleter's defaults against SMURFF and myFM at their best, and our sampler against SMURFF's at the
same K and sweeps, each in one run.

    make bench-sampling                  # everything, an hour or more on two cores
    python -m benchmarks.sampling --data FOLDER --output docs/sampling-peers.md

Real data is read from FOLDER (``ml-100k/u.data`` and ``*.parquet`` files with columns row, col, y); what
is not there is left out. World B3 is held against a sampler that knows the true prior and rank.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning

from benchmarks import known
from benchmarks.kept import Kept
from onebit import AutoCompleter, LogisticCompleter, simulate
from onebit.study.oracle import oracle_scores
from onebit.study.page import markdown

BURN_IN, SAMPLES = 20, 200
SWEEPS = BURN_IN + SAMPLES
CLIP = 1e-6
# Of each matrix: random splits, what is held out (a number of answers, or a share), and values of K.
REAL = {
    "ml-100k": (5, 5000, (10, 16)),
    "senate-117": (3, 0.1, (10,)),
    "polis-vtaiwan.uberx": (3, 0.1, (10,)),
    "llm-mmlu-pro": (3, 0.1, (10,)),
}
# Of world B3: rows and columns, and ranks.
SIZE, RANKS = 200, (3, 5)

TEXT = """Made by `make bench-sampling`: `LogisticCompleter(K, inference="sampling")` and SMURFF's probit
sampler, one after the other in one run on one thread ({machine}), {sweeps} sweeps each ({burn_in}
before the first draw for ours, a fifth of them for SMURFF, which starts at random). Held out: 5,000
answers of MovieLens 100k (five splits), a tenth of the others (three). Means and standard errors;
differences are paired, ours less SMURFF's. "A quarter of the sweeps" is the log-loss of a run of a
quarter of the length less that of the whole one. Times are medians."""
CONTEST = """Made by `make bench-sampling`: log-loss of `AutoCompleter(random_state=0)` with its
defaults and with `effort="quick"`, of SMURFF's probit sampler and of myFM's, which is told with every id
its line of the pattern of answers, at several values of K and numbers of sweeps (a fifth of them is
burn-in). On {cores} cores ({machine}), one after the other; who was scored in an earlier run on the same
machine is not scored again. myFM uses one core. Held out: 5,000 answers of MovieLens 100k, a tenth of the
others; splits of each at random: {splits}. Seconds are of the whole fit; of SMURFF, of its sweeps. The
best of a peer is chosen by the held-out answers themselves, in its favour. "Worst R-hat" is the largest
of every functional in AutoCompleter's `diagnostics_`, with its defaults, of all splits."""
WORLD = """## World B3, {seeds} seeds

Error against sign(M) in %, K = 10, no effects, {size} x {size}, 20 % seen. The oracle is a sampler
that knows the true prior and rank."""


@dataclass(frozen=True)
class Split:
    """Answers of a table of codes, cut into a training and a test part."""

    pairs: NDArray[np.int32]
    signs: NDArray[np.int8]
    train: NDArray[np.int64]
    test: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.pairs.max(axis=0) + 1
        return int(rows), int(columns)


@dataclass(frozen=True)
class Result:
    """What one fit scored on the test part, and the seconds of one of its sweeps."""

    log_loss: float
    accuracy: float
    sweep: float


def score(split: Split, chance: NDArray[np.float64], sweep: float) -> Result:
    sign = split.signs[split.test]
    likely = np.clip(np.where(sign > 0, chance, 1.0 - chance), CLIP, 1.0 - CLIP)
    return Result(float(-np.log(likely).mean()), float((likely > 0.5).mean()), sweep)


def read(folder: Path, name: str) -> tuple[NDArray[np.int32], NDArray[np.int8]] | None:
    path = folder / name / "u.data" if name == "ml-100k" else folder / f"{name}.parquet"
    if not path.is_file():
        return None
    if name == "ml-100k":
        frame = pd.read_csv(path, sep="\t", names=["row", "col", "y", "time"])
        yes = frame["y"] > 3.5
    else:
        frame = pd.read_parquet(path)
        yes = frame["y"] > 0
    codes = [pd.factorize(frame[side])[0].astype(np.int32) for side in ("row", "col")]
    return np.column_stack(codes), np.where(yes, 1, -1).astype(np.int8)


def ours(split: Split, rank: int, burn_in: int, samples: int) -> Result:
    times: list[float] = []
    model = LogisticCompleter(
        rank, inference="sampling", n_burn_in=burn_in, n_samples=samples, n_chains=1, random_state=0,
        n_jobs=1,
    )  # fmt: skip

    def tick(progress: object) -> None:
        if getattr(progress, "words", None):
            times.append(time.perf_counter())

    model.fit(split.pairs[split.train], split.signs[split.train], callback=tick)
    chance = model.predict_proba(split.pairs[split.test])[:, 1]
    return score(split, chance, (times[-1] - times[0]) / (len(times) - 1))


def auto(split: Split, effort: str = "default") -> tuple[Result, float, AutoCompleter]:
    """Return what AutoCompleter scores, the worst R-hat of its chains, and itself."""
    begin = time.perf_counter()
    model = AutoCompleter(random_state=0, effort=effort)
    model.fit(split.pairs[split.train], split.signs[split.train])
    seconds = time.perf_counter() - begin
    chance = model.predict_proba(split.pairs[split.test])[:, 1]
    found = getattr(model.completer_, "diagnostics_", None)
    return score(split, chance, seconds), np.nan if found is None else found["rhat"].max(), model


def smurff(split: Split, rank: int, sweeps: int = SWEEPS, threads: int = 1) -> Result:
    import smurff as package

    def matrix(places: NDArray[np.int64], values: NDArray[np.float64]) -> scipy.sparse.coo_matrix:
        rows, columns = split.pairs[places].T
        return scipy.sparse.coo_matrix((values, (rows, columns)), split.shape)

    # A fifth of the sweeps is its burn-in: it starts at random.
    session = package.TrainSession(
        priors=["normal", "normal"],
        num_latent=rank,
        num_threads=threads,
        burnin=sweeps // 5,
        nsamples=sweeps - sweeps // 5,
        seed=1,
        verbose=0,
    )
    session.setTrain(
        matrix(split.train, split.signs[split.train].astype(float)), package.ProbitNoise(0.0)
    )
    # It wants the test cells before it samples; their values are not used.
    session.setTest(matrix(split.test, np.ones(len(split.test))))
    session.init()
    begin = time.perf_counter()
    while session.step() is not None:
        pass
    sweep = (time.perf_counter() - begin) / sweeps
    found = {cell.coords: cell for cell in session.getTestPredictions()}
    cells = [found[row, column] for row, column in split.pairs[split.test].tolist()]
    mean = np.array([cell.pred_avg for cell in cells])
    # ``var`` is a sum of squares over the samples.
    spread = np.array([cell.var for cell in cells]) / max(cells[0].nsamples - 1, 1)
    return score(split, ndtr(mean / np.sqrt(1.0 + spread)), sweep)


def summary(values: list[float], scale: float = 1.0, digits: int = 4) -> str:
    array = np.asarray(values) * scale
    error = array.std(ddof=1) / np.sqrt(len(array))
    return f"{array.mean():.{digits}f} ± {error:.{digits}f}"


def splits_of(
    data: tuple[NDArray[np.int32], NDArray[np.int8]], held: float, count: int
) -> Iterator[Split]:
    """Yield random splits that hold out a number of answers, or a share below one."""
    pairs, signs = data
    size = int(held if held >= 1 else held * len(signs))
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(signs))
        yield Split(pairs, signs, order[size:], order[:size])


def real(folder: Path, names: list[str]) -> str:
    lines = []
    for name in names:
        data = read(folder, name)
        if data is None:
            continue
        count, held, ranks = REAL[name]
        for rank in ranks:
            results: dict[str, list[Result]] = {"ours": [], "quarter": [], "smurff": []}
            for split in splits_of(data, held, count):
                results["ours"].append(ours(split, rank, BURN_IN, SAMPLES))
                results["quarter"].append(ours(split, rank, BURN_IN // 4, SAMPLES // 4))
                results["smurff"].append(smurff(split, rank))
            losses = {key: [result.log_loss for result in part] for key, part in results.items()}
            gap = [a - b for a, b in zip(losses["quarter"], losses["ours"], strict=True)]
            paired = [a - b for a, b in zip(losses["ours"], losses["smurff"], strict=True)]
            lines.append(
                [
                    name,
                    str(rank),
                    summary(losses["ours"]),
                    summary(losses["smurff"]),
                    summary(paired),
                    summary([result.accuracy for result in results["ours"]], 100, 2),
                    summary([result.accuracy for result in results["smurff"]], 100, 2),
                    summary(gap),
                    f"{1e3 * np.median([result.sweep for result in results['ours']]):.1f}",
                    f"{1e3 * np.median([result.sweep for result in results['smurff']]):.1f}",
                ]
            )
            print(" | ".join(lines[-1]), flush=True)
    head = [
        "matrix", "K", "log-loss", "SMURFF", "difference", "accuracy %", "SMURFF",
        "a quarter of the sweeps", "ms a sweep", "SMURFF",
    ]  # fmt: skip
    return markdown(head, lines)


class Score(NamedTuple):
    """What a contestant scored on a split: log-loss, seconds, and its worst R-hat where that is known."""

    log_loss: float
    seconds: float
    rhat: float = np.nan


def auto_score(split: Split, seed: int, cores: int, effort: str) -> Score:
    """Score AutoCompleter."""
    result, rhat, _ = auto(split, effort)
    return Score(result.log_loss, result.sweep, float(rhat))


def smurff_score(split: Split, seed: int, cores: int, rank: int, sweeps: int) -> Score:
    """Score SMURFF on all cores."""
    result = smurff(split, rank, sweeps, cores)
    return Score(result.log_loss, result.sweep * sweeps)


def myfm_score(split: Split, seed: int, cores: int, rank: int, sweeps: int) -> Score:
    """Score myFM, which is told the pattern of both sides and works on one core."""
    nothing = tuple(pd.DataFrame(index=pd.RangeIndex(size)) for size in split.shape)
    table = known.Table(split.pairs.astype(np.int64), split.signs, nothing)
    fit = known.myfm(known.Split(table, split.train, split.test, seed), "pattern", rank, sweeps)
    return Score(score(split, fit.chance, 0.0).log_loss, fit.seconds)


def contestants() -> dict[tuple[str, int, int], Callable[..., Score]]:
    """Return who takes part: a name, K and the number of sweeps."""
    found: dict[tuple[str, int, int], Callable[..., Score]] = {
        (who, 0, 0): partial(auto_score, effort=effort) for who, effort in OURS.items()
    }
    for name, (package, settings, tried) in PEERS.items():
        if installed(package):
            found |= {(name, *one): partial(tried, rank=one[0], sweeps=one[1]) for one in settings}
        else:
            print(f"{name} is left out: {package} is not installed", flush=True)
    return found


def installed(package: str) -> bool:
    """Say whether a package is here."""
    return package in sys.modules or find_spec(package) is not None


Scores = dict[tuple[str, int, str, int, int], Score]


def scored(folder: Path, names: list[str], splits: int, cores: int, kept: Kept) -> Scores:
    """Let all contestants score on all splits."""
    scores: Scores = {}
    for name in names:
        data = read(folder, name)
        if data is None:
            continue
        for seed, split in enumerate(splits_of(data, REAL[name][1], splits)):
            for who, tried in contestants().items():
                key = (name, seed, *who)
                if key not in kept:
                    kept.keep(key, tried(split, seed, cores))
                    print(*key, *kept[key], flush=True)
                scores[key] = Score(*kept[key])
    return scores


def contest(scores: Scores) -> str:
    """Return the table of AutoCompleter's defaults beside each peer at its best."""
    lines = []
    here = [who for who in PEERS if any(key[2] == who for key in scores)]

    def of(name: str, *who: object) -> list[Score]:
        return [score for key, score in scores.items() if key[0] == name and key[2:] == who]

    for name in dict.fromkeys(key[0] for key in scores):
        worst = max(part.rhat for part in of(name, "AutoCompleter", 0, 0))
        line = [name]
        for who in OURS:
            mine = of(name, who, 0, 0)
            line.append(mean_of([part.log_loss for part in mine]))
            line.append(f"{np.mean([part.seconds for part in mine]):.0f}")
        line.append(f"{worst:.2f}" if np.isfinite(worst) else "not sampled")
        for who in here:
            tried = {one: of(name, who, *one) for one in PEERS[who][1]}
            means = {one: np.mean([part.log_loss for part in found]) for one, found in tried.items()}
            best = min(means, key=lambda one: means[one])
            line += [
                mean_of([part.log_loss for part in tried[best]]),
                f"{best[0]}, {best[1]}",
                f"{np.mean([part.seconds for part in tried[best]]):.0f}",
                ", ".join(f"{mean:.4f}" for mean in means.values()),
            ]
        lines.append(line)
    head = ["matrix", *(name for who in OURS for name in (who, "s")), "worst R-hat"]
    for who in here:
        settings = ", ".join(f"{rank}/{sweeps}" for rank, sweeps in PEERS[who][1])
        head += [f"{who}'s best", "its K, sweeps", "s", f"at {settings}"]
    return markdown(head, lines)


# Our part, and its effort.
OURS = {"AutoCompleter": "default", "quick": "quick"}
# Who else takes part: package, values of K and numbers of sweeps, and who runs it.
PEERS: dict[str, tuple[str, tuple[tuple[int, int], ...], Callable[..., Score]]] = {
    "SMURFF": ("smurff", ((10, 100), (10, 500), (32, 100), (32, 500)), smurff_score),
    "myFM": ("myfm", ((10, 200), (32, 200)), myfm_score),
}


def mean_of(values: list[float]) -> str:
    return summary(values) if len(values) > 1 else f"{values[0]:.4f}"


def oracle(seeds: int) -> str:
    lines = []
    for rank in RANKS:
        found: list[list[float]] = [[], [], []]
        for seed in range(seeds):
            world = simulate.world("B3", rank=rank, shape=(SIZE, SIZE), seed=seed)
            best = world.error(oracle_scores(world, rank, 0.0, seed))
            errors = []
            for inference in ("sampling", "variational"):
                model = LogisticCompleter(effects=False, inference=inference, random_state=seed, n_jobs=1)
                scores = model.fit(world.pairs, world.answers).complete("score").to_numpy()
                errors.append(world.error(scores))
            for place, value in zip(found, (*errors, best), strict=True):
                place.append(value)
        more = [a - b for a, b in zip(found[0], found[2], strict=True)]
        lines.append([str(rank), *(summary(part, 100, 2) for part in (*found, more))])
        print(" | ".join(lines[-1]), flush=True)
    return markdown(["rank", "sampling", "variational", "oracle", "sampling less oracle"], lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the real data")
    parser.add_argument("--output", type=Path, default=None, help="write the page here as well")
    parser.add_argument("--matrices", nargs="+", default=list(REAL), choices=list(REAL))
    parser.add_argument("--seeds", type=int, default=10, help="draws of world B3")
    parser.add_argument("--splits", type=int, default=3, help="of each matrix, beside AutoCompleter")
    parser.add_argument(
        "--only-contest", action="store_true", help="AutoCompleter beside its peers alone"
    )
    parser.add_argument(
        "--results", type=Path, help="keep the contest's scores here, and go on from them"
    )
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore", ConvergenceWarning)
    cores = os.cpu_count() or 1
    kept = Kept(arguments.results)
    parts = [
        "# Sampling beside SMURFF and myFM",
        CONTEST.format(machine=platform.machine(), cores=cores, splits=arguments.splits),
        contest(scored(arguments.data, arguments.matrices, arguments.splits, cores, kept)),
    ]
    if not arguments.only_contest:
        parts += [
            "## The same K and sweeps",
            TEXT.format(machine=platform.machine(), sweeps=SWEEPS, burn_in=BURN_IN),
            real(arguments.data, arguments.matrices),
            WORLD.format(seeds=arguments.seeds, size=SIZE),
            oracle(arguments.seeds),
        ]
    text = "\n\n".join(parts)
    if arguments.output:
        arguments.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
