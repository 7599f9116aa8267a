"""Everything end to end on worlds with a known truth: complete, certify, compare with the truth, report.

``onebit demo`` runs it; it takes about a minute.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit import AutoCompleter, Observations
from onebit.certificates.ladder import Ladder
from onebit.certificates.statements import Certificate, at_most
from onebit.data import datasets, simulate
from onebit.data.files import written_whole
from onebit.data.school import School, school
from onebit.data.simulate import World
from onebit.engine.crew import Progress

Array = NDArray[np.float64]

MAX_ERROR = 0.15
# The choices of these worlds are the same with more; on a table of one's own the default is for patience.
EFFORT = "quick"


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
        if axis is axes[-1] and not wrong.any():
            axis.text(0.5, 0.5, "no entry is wrong", transform=axis.transAxes, ha="center", color="grey")
        if matrix is probability or matrix is uncertainty:
            figure.colorbar(image, ax=axis, shrink=0.85)
    axes[0].set_ylabel("rows")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _fitted(seen: Observations, seed: int, certify: float | None) -> tuple[AutoCompleter, float]:
    def tell(progress: Progress) -> None:
        if sys.stdout.isatty() and progress.max_rounds == 0:
            print(f"\r  trial {progress.round}: held-out log-loss {progress.objective:.4f}", end="")

    begin = time.perf_counter()
    model = AutoCompleter(effort=EFFORT, random_state=seed).fit(seen, certify=certify, callback=tell)
    seconds = time.perf_counter() - begin
    if sys.stdout.isatty():
        print("\r" + " " * 50 + "\r", end="")
    choice = ", ".join(f"{name} {value}" for name, value in model.best_params_.items())
    print(
        f"  fitted in {seconds:.1f} s".ljust(24)
        + f"{len(model.search_)} settings tried with effort {EFFORT!r}; the choice: {choice}"
    )
    return model, seconds


def run_demo(output: Path, seed: int = 0, movielens: Path | None = None) -> None:
    """Run the demonstration; tables, models, pictures and reports go to the folder ``output``."""
    data = None if movielens is None else datasets.load_movielens_100k(movielens)
    output.mkdir(parents=True, exist_ok=True)
    known_truth(output, seed)
    report = students_and_exercises(output, seed)
    if data is not None:
        assert movielens is not None
        films(output, data, movielens, seed)
    table, model = output / "school.csv", output / "school.onebit"
    print("What to try next, on this or on a table of your own:")
    print(f"  onebit fit {table} -o mine.onebit --report mine.html")
    print(f"  onebit predict {model} {table} | head")
    print(f"  onebit complete {model} --top 3 --row 'Ada A.'")
    print(f"  onebit certify {model} --max-error {MAX_ERROR}")
    print(f"  onebit evaluate {table} --model logistic")
    print(f"  onebit rows {model} -o students.csv")
    print(f"  onebit ask {model}")
    print(f"  onebit serve {model}   # a page that asks you, at http://localhost:8571/")
    if report is not None:
        print(f"The report is {report}: open it in a browser.")


def known_truth(output: Path, seed: int) -> None:
    """Complete one of the paper's worlds, a tenth of whose answers are wrong."""
    world = simulate.world("A2", rank=3, seed=seed)
    flipped = np.mean(world.answers != np.sign(world.truth[tuple(world.pairs.T)]))
    rows, columns = world.truth.shape
    print(f"1. A world with a known truth: {rows} rows, {columns} columns, rank 3.")
    print(
        f"  seen                  {len(world.answers)} of {world.truth.size} answers, {flipped:.1%} wrong"
    )
    model, _ = _fitted(Observations.from_pairs(world.pairs, world.answers), seed, None)
    scores = model.complete("score").to_numpy()
    blank = np.ones(world.truth.shape, dtype=bool)
    blank[tuple(world.pairs.T)] = False
    wrong = scores * np.sign(world.truth) <= 0
    guessing = 1 - max(np.mean(world.truth > 0), np.mean(world.truth < 0))
    print(f"  rank found            {model.rank_} (the truth has 3)")
    print(
        f"  wrong, blank entries  {wrong[blank].mean():.2%} (always the commoner answer: {guessing:.0%})"
    )
    print(f"  wrong, seen entries   {wrong[~blank].mean():.2%}, though {flipped:.1%} of the answers were")
    picture = output / "completion.png"
    uncertainty = model.predict_uncertainty(world.all_pairs).reshape(world.truth.shape)
    try:
        filled = model.complete("probability", everywhere=True).to_numpy()
        draw(world, filled, uncertainty, picture)
        print(f"  the picture is        {picture}\n")
    except ImportError:
        print("  For pictures and reports: pip install 'onebit[report]'\n")


def students_and_exercises(output: Path, seed: int) -> Path | None:
    """Fit, certify and report a school, and hold the certificates against its truth."""
    world = school(seed=seed)
    frame = world.frame()
    table, path = output / "school.csv", output / "school.onebit"
    with written_whole(table) as temporary:
        frame.to_csv(temporary, index=False)
    print(
        f"2. A school: {len(world.students)} students, {len(world.exercises)} exercises in five topics."
    )
    print(f"  the table is          {table}, {len(frame)} answers; some exercises are popular, some rare")
    model, seconds = _fitted(_observed(frame), seed, 0.1)
    _check_against_truth(world, model)
    # Rungs that need no further search; `onebit certify --method all` makes them all.
    steps = model.certify(0.05, ("optimised", "draw", "hold-out"))
    assert isinstance(steps, Ladder)
    print(
        "  of other predictors   "
        + "; ".join(f"{c.method} {at_most(c.bound)}" for c in steps.certificates)
        + ", all at once"
    )
    command = f"onebit fit {table.name} -o {path.name}"
    source = {"file": table.name, "command": command, "seconds": round(seconds, 3)}
    return _saved(model, source, path, output / "school.html", [steps])


def _observed(frame: pd.DataFrame) -> Observations:
    """Return the answers of a school."""
    return Observations.from_pairs(frame[["student", "exercise"]], frame["solved"] == "yes")


def school_model(seed: int = 0) -> AutoCompleter:
    """Return the demo's model of a school, a tenth of whose answers are held out."""
    return AutoCompleter(effort=EFFORT, random_state=seed).fit(
        _observed(school(seed=seed).frame()), certify=0.1
    )


def _check_against_truth(world: School, model: AutoCompleter) -> None:
    rows, columns = (
        index.encode(names).astype(np.int32)
        for index, names in ((model.rows_, world.students), (model.columns_, world.exercises))
    )
    size = world.chance.shape
    found = model.predictions(np.repeat(rows, size[1]), np.tile(columns, size[0]))
    scores, probability = found.score.reshape(size), found.probability.reshape(size)
    certificate = model.certify(delta=0.05)
    assert isinstance(certificate, Certificate)
    best = world.risk(world.chance - 0.5)
    print(f"  rank found            {model.rank_} (five topics, less the ability that the effects take)")
    print(f"  certificate           {certificate.sentence()}")
    print(
        f"  the truth             {world.risk(scores):.1%} of such entries; knowing every chance, "
        f"{best:.1%} would be"
    )
    gap = float((world.sampling * np.abs(probability - world.chance)).sum())
    print(f"  probabilities         off by {gap:.3f} on average from the true chances")
    kept = model.keep(max_error=MAX_ERROR, delta=0.05)
    sure = kept.includes(found.yes, found.confidence).reshape(size)
    for part, yes in ((kept.no, False), (kept.yes, True)):
        weight = world.sampling * sure * (found.yes.reshape(size) == yes)
        if part.certificate is not None and weight.sum() > 0:
            among = float((weight * world.chance_of_error(scores)).sum() / weight.sum())
            print(f"  at most {MAX_ERROR:.0%} wrong     {part}; in truth {among:.1%}")


def _titles(folder: Path, films: NDArray[np.int64]) -> list[str]:
    """Return the films' titles where the folder has them, else their numbers; some titles stand twice."""
    names: dict[str, str] = {}
    for path in (folder / "u.item", folder / "ml-100k" / "u.item"):
        if path.is_file():
            for line in path.read_text(encoding="latin-1").splitlines():
                number, title = line.split("|")[:2]
                names[number] = f"{title} #{number}" if title in names.values() else title
    return [names.get(str(film), str(film)) for film in films.tolist()]


def films(output: Path, data: datasets.Answers, folder: Path, seed: int) -> None:
    """Fit, certify and report MovieLens 100k."""
    users = [f"user {user}" for user in data.pairs[:, 0].tolist()]
    frame = pd.DataFrame({"user": users, "film": _titles(folder, data.pairs[:, 1])})
    seen = Observations.from_pairs(frame, data.answers > 0)
    rows, columns = seen.shape
    print(
        f"3. MovieLens 100k: {rows} users, {columns} films, {seen.n} answers, liked = four or five stars."
    )
    model, seconds = _fitted(seen, seed, 0.1)
    certificate = model.certify(delta=0.05)
    assert isinstance(certificate, Certificate)
    print(f"  certificate           {certificate.sentence()}")
    print(f"  observed              {certificate.observed()}")
    source = {"file": "MovieLens 100k", "seconds": round(seconds, 3)}
    _saved(model, source, output / "movielens.onebit", output / "movielens.html", [])


def _saved(
    model: AutoCompleter, source: dict[str, Any], path: Path, report: Path, further: list[Ladder]
) -> Path | None:
    """Write model and report; return the report, if it can be drawn."""
    record = model.describe(source)
    own: tuple[Any, ...] = (
        model.certify(0.05),
        model.certify(0.05, by="answer"),
        model.certify_selective(0.05),
    )
    for certificate in (*own, *further):
        record = record.with_certificate(certificate)
    model.record_ = record
    model.save(path)
    print(f"  the model is          {path}")
    try:
        from onebit.report import write_report

        write_report(model, report)
    except ImportError as error:
        print(f"  no report: {error}\n")
        return None
    print(f"  the report is         {report}\n")
    return report
