"""The main job end to end on a simulated world: complete it, compare with the truth, draw it.

``onebit demo`` runs it; it takes some seconds.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onebit import AutoCompleter, simulate
from onebit.engine.coordinate import Progress
from onebit.simulate import World

Array = NDArray[np.float64]


def draw(world: World, probability: Array, uncertainty: Array, path: Path) -> None:
    """Draw what was seen, what the model makes of it, and the truth, rows and columns sorted alike."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    seen = np.full(world.truth.shape, np.nan)
    seen[tuple(world.pairs.T)] = world.answers
    # Rows and columns of the truth come in a few kinds; side by side, the kinds are blocks to the eye.
    rows = np.unique(world.truth, axis=0, return_inverse=True)[1].argsort(kind="stable")
    columns = np.unique(world.truth, axis=1, return_inverse=True)[1].argsort(kind="stable")
    wrong = (probability > 0.5) != (world.truth > 0)
    share = len(world.answers) / world.truth.size
    panels = [
        (f"Seen: {share:.0%} of the answers,\na tenth of them flipped", seen, "RdBu", (-1, 1)),
        ("Completed: probability of yes", probability, "RdBu", (0, 1)),
        ("Uncertainty of the score", uncertainty, "viridis", (0, None)),
        (f"Wrong against the truth: {wrong.mean():.2%}", wrong.astype(float), "Greys", (0, 1)),
    ]
    figure, axes = plt.subplots(1, 4, figsize=(15, 4.0), layout="constrained")
    for axis, (title, matrix, colours, limits) in zip(axes, panels, strict=True):
        image = axis.imshow(
            matrix[np.ix_(rows, columns)], cmap=colours, vmin=limits[0], vmax=limits[1],
            interpolation="nearest",
        )  # fmt: skip
        axis.set_title(title, fontsize=11)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_xlabel("columns")
        if matrix is probability or matrix is uncertainty:
            figure.colorbar(image, ax=axis, shrink=0.85)
    axes[0].set_ylabel("rows")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def run_demo(output: Path, seed: int = 0) -> None:
    """Run the demonstration; the picture goes to the folder ``output``."""
    output.mkdir(parents=True, exist_ok=True)
    world = simulate.world("A2", rank=3, seed=seed)
    flipped = np.mean(world.answers != np.sign(world.truth[tuple(world.pairs.T)]))
    rows, columns = world.truth.shape
    print(f"A world with a known truth: {rows} rows, {columns} columns, rank 3.")
    print(f"Seen: {len(world.answers)} of {world.truth.size} answers, {flipped:.1%} of them wrong.\n")

    def tell(progress: Progress) -> None:
        if sys.stdout.isatty() and progress.max_rounds == 0:
            print(f"\r  trial {progress.round}: held-out log-loss {progress.objective:.4f}", end="")

    begin = time.perf_counter()
    model = AutoCompleter(random_state=seed).fit(world.pairs, world.answers, callback=tell)
    seconds = time.perf_counter() - begin
    choice = ", ".join(f"{name} {value}" for name, value in model.best_params_.items())
    print(f"\rAutoCompleter tried {len(model.search_)} settings and refitted in {seconds:.1f} s")
    print(f"  its choice            {choice}")

    scores = model.complete("score").to_numpy()
    probability = model.complete("probability").to_numpy()
    uncertainty = model.predict_uncertainty(world.all_pairs).reshape(world.truth.shape)
    blank = np.ones(world.truth.shape, dtype=bool)
    blank[tuple(world.pairs.T)] = False
    wrong = scores * np.sign(world.truth) <= 0
    print(f"  rank found            {model.rank_} (the truth has 3)")
    guessing = 1 - max(np.mean(world.truth > 0), np.mean(world.truth < 0))
    print(
        f"  wrong, blank entries  {wrong[blank].mean():.2%} (always the commoner answer: {guessing:.0%})"
    )
    print(
        f"  wrong, seen entries   {wrong[~blank].mean():.2%}, though {flipped:.1%} of the answers were\n"
    )

    sure = np.abs(scores) / uncertainty
    print("The surer, the righter (blank entries by |score| / uncertainty):")
    for low, high in ((0, 10), (10, 50), (50, 100)):
        edges = np.percentile(sure[blank], [low, high])
        group = blank & (sure >= edges[0]) & (sure <= edges[1])
        print(f"  from {low:>3} % to {high:>3} %   {wrong[group].mean():.2%} wrong")

    picture = output / "completion.png"
    try:
        draw(world, probability, uncertainty, picture)
    except ImportError:
        print("\nFor the picture, install matplotlib: pip install matplotlib")
        return
    print(f"\nThe picture is in {picture}")
    print(
        "Next: model.predict_proba(pairs), model.fold_in(pairs, answers), model.save(path); see README.md"
    )
