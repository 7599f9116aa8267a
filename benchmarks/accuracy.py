"""How accurate the completers are: the paper's simulated worlds and real matrices.

    make bench-accuracy                  # everything, about twenty minutes on two cores
    python -m benchmarks.accuracy --data FOLDER --seeds 5 --splits 3

Every figure is a mean over seeds or splits with its standard error. Real data is read from FOLDER
(``ml-100k/u.data`` and ``*.parquet`` files with columns row, col, y); what is not there is left out.
``--output`` writes the page; ``make bench-accuracy`` writes ``docs/accuracy.md``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from onebit import AutoCompleter, HingeCompleter, LogisticCompleter, simulate
from onebit.data.datasets import load_movielens_100k
from onebit.study.page import markdown

Makers = dict[str, Callable[[int], object]]

# Settings as the paper's simulations have them: no effects, K = 10. All else is the default.
WORLDS: Makers = {
    "engine hinge": lambda seed: HingeCompleter(10, effects=False, calibrate=False, random_state=seed),
    "engine logistic": lambda seed: LogisticCompleter(10, effects=False, random_state=seed),
}
TARGETS = {
    ("A2", "engine hinge"): 0.3,
    ("B1", "engine hinge"): 4.0,
    ("B2", "engine hinge"): 9.6,
    ("B3", "engine logistic"): 19.5,
}
REAL: Makers = {
    "effects only": lambda seed: LogisticCompleter(0, random_state=seed),
    "LogisticCompleter()": lambda seed: LogisticCompleter(random_state=seed),
    "HingeCompleter()": lambda seed: HingeCompleter(random_state=seed),
    "AutoCompleter()": lambda seed: AutoCompleter(random_state=seed),
}
MOVIELENS: Makers = REAL | {
    "LogisticCompleter(effects=False)": lambda seed: LogisticCompleter(effects=False, random_state=seed),
}


def summary(values: Iterable[float], scale: float = 1.0, digits: int = 2) -> str:
    values = np.asarray(list(values)) * scale
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"


def simulated(seeds: int, size: int, say: Callable[[str], None]) -> str:
    lines = []
    for name in simulate.WORLDS:
        for method, make in WORLDS.items():
            errors, ranks, begin = [], [], time.perf_counter()
            for seed in range(seeds):
                world = simulate.world(name, rank=3, shape=(size, size), seed=seed)
                model = make(seed).fit(world.pairs, world.answers)
                errors.append(world.error(model.complete("score").to_numpy()))
                ranks.append(model.rank_)
            goal = TARGETS.get((name, method))
            found = f"{sum(rank == 3 for rank in ranks)} of {seeds}"
            lines.append([name, method, summary(errors, 100), f"<= {goal}" if goal else "", found])
            say(f"{name} {method}: {lines[-1][2]} % ({time.perf_counter() - begin:.0f} s)")
    return markdown(["world (rank 3)", "method", "error %", "goal", "rank 3 found"], lines)


def parquet(path: Path) -> tuple[pd.DataFrame, np.ndarray]:
    frame = pd.read_parquet(path)
    return frame[["row", "col"]], frame["y"].to_numpy()


def real(pairs, answers, held_out: int, splits: int, makers: Makers, say) -> str:
    lines = []
    take = pairs.iloc.__getitem__ if isinstance(pairs, pd.DataFrame) else pairs.__getitem__
    for method, make in makers.items():
        accuracy, losses, ranks, seconds = [], [], [], []
        for split in range(splits):
            order = np.random.default_rng(split).permutation(len(answers))
            test, train = order[:held_out], order[held_out:]
            begin = time.perf_counter()
            model = make(split).fit(take(train), answers[train])
            seconds.append(time.perf_counter() - begin)
            accuracy.append(model.score(take(test), answers[test]))
            losses.append(log_loss(answers[test], model.predict_proba(take(test))))
            ranks.append(model.rank_)
        lines.append(
            [
                method,
                summary(accuracy, 100),
                summary(losses, digits=4),
                f"{np.median(ranks):g}",
                f"{np.mean(seconds):.1f}",
            ]
        )
        say(f"{method}: {lines[-1][1]} %, log-loss {lines[-1][2]}")
    return markdown(["model", "accuracy %", "log-loss", "rank (median)", "seconds"], lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=None, help="folder with the real data")
    parser.add_argument("--seeds", type=int, default=60, help="simulated worlds of each kind")
    parser.add_argument("--size", type=int, default=200, help="their rows and columns")
    parser.add_argument("--splits", type=int, default=10, help="random splits of MovieLens 100k")
    parser.add_argument("--output", type=Path, default=None, help="write the page here as well")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore", ConvergenceWarning)

    def say(text: str) -> None:
        print(text, flush=True)

    page = [
        "# Accuracy",
        "Made by `make bench-accuracy`. Means and standard errors.",
        f"## The paper's worlds: {arguments.size} x {arguments.size}, 20 % seen, {arguments.seeds} seeds"
        "\n\n"
        "Error against sign(M), ties counted as errors; K = 10, no effects, all else by default. "
        "AutoCompleter and tuned settings are in [the study](study.md).",
        simulated(arguments.seeds, arguments.size, say),
    ]
    if arguments.data and (arguments.data / "ml-100k" / "u.data").is_file():
        say("MovieLens 100k")
        data = load_movielens_100k(arguments.data)
        page.append(f"## MovieLens 100k: like = rating > 3.5, 95,000 / 5,000, {arguments.splits} splits")
        page.append(real(data.pairs, data.answers, 5000, arguments.splits, MOVIELENS, say))
    for path in sorted(arguments.data.glob("*.parquet")) if arguments.data else []:
        say(path.stem)
        pairs, answers = parquet(path)
        splits = min(arguments.splits, 3)
        page.append(f"## {path.stem}: 10 % held out at random, {splits} splits")
        page.append(real(pairs, answers, len(answers) // 10, splits, REAL, say))
    text = "\n\n".join(page) + "\n"
    print("\n" + text)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
