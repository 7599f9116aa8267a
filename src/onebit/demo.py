"""The main job end to end on a simulated world: complete it, compare with the truth, draw it.

``onebit demo`` runs it; it takes some seconds.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onebit import AutoCompleter, plots, simulate
from onebit.certificates import Certificate
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

    picture, curve = output / "completion.png", output / "risk-coverage.png"
    harder, certified = certified_world(seed)
    try:
        draw(world, probability, uncertainty, picture)
        draw_curve(certified, harder, curve)
    except ImportError:
        print("\nFor the pictures, install matplotlib: pip install matplotlib")
        return
    print(f"\nThe pictures are {picture} and {curve}")
    print(
        "Next: model.predict_proba(pairs), model.fold_in(pairs, answers), model.save(path); see README.md"
    )


def certified_world(seed: int) -> tuple[World, AutoCompleter]:
    """Certify a model in a harder world and hold the certificate against the truth."""
    world = simulate.world("B2", rank=3, seed=seed + 1)
    model = AutoCompleter(random_state=seed).fit(world.pairs, world.answers, certify=0.1)
    print("A harder world, with many scores near zero; a tenth of the answers held out to certify:")
    certificate = model.certify(delta=0.05)
    assert isinstance(certificate, Certificate)
    scores = model.complete("score").to_numpy()
    risk = float((world.sampling * world.chance_of_error(scores)).sum())
    print(f"  certificate           with probability 95 %, at most {certificate.bound:.2%} are wrong")
    print(f"  the truth             {risk:.2%} (fresh answers, a tenth of which are flipped)")
    kept = model.keep(max_error=0.18, delta=0.05)
    sure = model.confidence(world.all_pairs).reshape(world.truth.shape) > kept.threshold
    if kept.certificate is not None:
        among = float(world.chance_of_error(scores)[sure].mean())
        print(
            f"  keep at most 18 %     the surest {kept.share:.0%}; {among:.2%} of them are wrong in truth"
        )
    return world, model


def draw_curve(model: AutoCompleter, world: World, path: Path) -> None:
    """Draw the certified, the observed and the true error of the surest predictions."""
    axes = plots.risk_coverage(model, world=world)
    axes.set_title("The surer, the righter", loc="left")
    axes.figure.savefig(path, dpi=130)
