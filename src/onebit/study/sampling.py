"""How good is the variational approximation? Each posterior of the study against its own sampled truth.

The paper leaves the question open: it takes sampling to be too expensive. Here the paper's hinge
posterior (its Algorithm 1), the engine's hinge posterior and the engine's logistic posterior are
compared, entry by entry, with long chains on the very density that each approximates: same prior, same
temperature, same K.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning

from onebit.completers.base import PairClassifier
from onebit.completers.hinge import HingeCompleter
from onebit.completers.logistic import LogisticCompleter
from onebit.data import simulate
from onebit.data.datasets import load_movielens_100k
from onebit.engine.cpu.threads import thread_count
from onebit.study.page import markdown
from onebit.study.plan import MOVIELENS, MOVIELENS_TEST
from onebit.study.runner import StudyError, begun

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

RESULTS, PAGE = "sampling-results.jsonl", "sampling.md"
HEADER = {"format": "onebit-sampling-study", "version": 1}
RANK, SCALE, LEVEL = 10, 0.03, 0.9
CLIP = 1e-6
# Entries of a table that are compared at once.
_AT_ONCE = 4000

POSTERIORS = ("paper's hinge", "engine's hinge", "engine's logistic")
MEASURES = (
    "distance", "share_inside", "spread", "error", "error_exact", "log_loss", "log_loss_exact", "rank",
    "rank_exact", "rhat",
)  # fmt: skip


@dataclass(frozen=True)
class SamplingTask:
    """One posterior on one draw of one world (or one split of MovieLens 100k), and its sampled truth."""

    data: str
    posterior: str
    seed: int
    rank: int = 0
    burn_in: int = 100
    draws: int = 300

    def run(self, movielens: str | None = None) -> dict[str, float]:
        """Do the work; return the figures as plain values."""
        begin = time.perf_counter()
        if self.data == MOVIELENS:
            data = load_movielens_100k(movielens)
            order = np.random.default_rng(self.seed).permutation(len(data.answers))
            test, train = order[:MOVIELENS_TEST], order[MOVIELENS_TEST:]
            pairs, answers, asked = data.pairs[train], data.answers[train], data.pairs[test]
            chance = (data.answers[test] > 0).astype(float)
        else:
            world = simulate.world(self.data, self.rank, seed=self.seed)
            pairs, answers, asked = world.pairs, world.answers, world.all_pairs
            # Of fresh answers: how likely "no" is wrong is how likely "yes" is.
            chance = world.chance_of_error(np.full(world.truth.shape, -1.0)).ravel()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = self._model("variational").fit(pairs, answers)
            exact = self._model("sampling").fit(pairs, answers)
        found = _compared(model, exact, asked)
        errors = {}
        for name, part in (("", "mean"), ("_exact", "exact_mean")):
            sign = np.where(found[part] > 0, 1.0 - chance, chance)
            errors[f"error{name}"] = float(sign.mean())
            if self.data != MOVIELENS:
                truth = np.sign(world.truth.ravel())
                errors[f"error{name}"] = float((np.sign(found[part]) != truth).mean())
            likely = np.clip(found[f"probability{name}"], CLIP, 1.0 - CLIP)
            loss = chance * np.log(likely) + (1.0 - chance) * np.log1p(-likely)
            errors[f"log_loss{name}"] = float(-loss.mean())
        return errors | {
            "distance": float(np.abs(found["chance"] - found["chance_exact"]).mean()),
            "share_inside": float(found["inside"].mean()),
            "spread": float(np.median(found["spread"])),
            "rank": float(model.rank_),
            "rank_exact": float(exact.rank_),
            "rhat": float(exact.diagnostics_["rhat"].max()),
            "seconds": round(time.perf_counter() - begin, 2),
        }

    def _model(self, inference: str) -> PairClassifier:
        settings: dict[str, Any] = {
            "prior_scale": SCALE,
            "effects": self.data == MOVIELENS and self.posterior != POSTERIORS[0],
            "inference": inference,
            "n_burn_in": self.burn_in,
            "n_samples": self.draws,
            "random_state": self.seed,
            "n_jobs": 1,
        }
        if self.posterior == POSTERIORS[2]:
            return LogisticCompleter(RANK, **settings)
        method = "paper" if self.posterior == POSTERIORS[0] else "engine"
        return HingeCompleter(RANK, method=method, calibrate=False, **settings)


def _compared(model: PairClassifier, exact: PairClassifier, asked: Any) -> dict[str, Array]:
    """Compare both posteriors entry by entry.

    ``chance`` is what is predicted: the mean sigmoid of a logistic score, the chance that a hinge score
    is positive; ``inside`` the share of exact draws in the variational interval; ``spread`` the ratio of
    the standard deviations.
    """
    rows, columns = model._codes(asked)
    logistic = isinstance(model, LogisticCompleter)
    parts: list[dict[str, Array]] = []
    for begin in range(0, len(rows), _AT_ONCE):
        pair = rows[begin : begin + _AT_ONCE], columns[begin : begin + _AT_ONCE]
        found, truth = model.predictions(*pair), exact.predictions(*pair)
        mean, variance, probability = found.score, found.uncertainty**2, found.probability
        exact_mean, exact_variance = truth.score, truth.uncertainty**2
        exact_probability = truth.probability
        draws = exact.draws_.scores(*pair)
        deviation = np.sqrt(variance)
        half = 1.6448536269514722 * deviation  # of 90 %
        parts.append(
            {
                "mean": mean,
                "exact_mean": exact_mean,
                "probability": probability,
                "probability_exact": exact_probability,
                "chance": probability if logistic else ndtr(mean / np.maximum(deviation, 1e-12)),
                "chance_exact": exact_probability if logistic else (draws > 0).mean(axis=1),
                "inside": (np.abs(draws - mean[:, None]) <= half[:, None]).mean(axis=1),
                "spread": deviation / np.sqrt(np.maximum(exact_variance, 1e-12)),
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True)
class SamplingPlan:
    """The size of the comparison.

    Examples
    --------
    >>> from onebit.study.sampling import SamplingPlan
    >>> len(SamplingPlan(seeds=2, movielens_splits=1).tasks())
    75
    """

    seeds: int = 5
    movielens_splits: int = 3
    burn_in: int = 100
    draws: int = 300
    worlds: tuple[str, ...] = simulate.WORLDS
    ranks: tuple[int, ...] = (3, 5)

    @classmethod
    def quick(cls, movielens_splits: int = 0) -> SamplingPlan:
        """Return a small version: single draws of the worlds, short chains."""
        return cls(seeds=1, movielens_splits=movielens_splits, burn_in=30, draws=80)

    def tasks(self) -> list[SamplingTask]:
        """Return all tasks."""
        length = {"burn_in": self.burn_in, "draws": self.draws}
        tasks = [
            SamplingTask(world, posterior, seed, rank, **length)
            for seed in range(self.seeds)
            for rank in self.ranks
            for world in self.worlds
            for posterior in POSTERIORS
        ]
        splits = range(self.movielens_splits)
        return tasks + [SamplingTask(MOVIELENS, kind, k, **length) for k in splits for kind in POSTERIORS]


Results = dict[SamplingTask, dict[str, float]]


def run_sampling(
    plan: SamplingPlan,
    folder: str | os.PathLike[str],
    *,
    movielens: str | None = None,
    n_jobs: int = -1,
    tell: Callable[[int, int, object], None] | None = None,
) -> Results:
    """Compute what is missing of the plan in ``folder``, a line a task; the same call goes on."""
    path, results = begun(Path(folder), RESULTS, HEADER, _read)
    tasks = plan.tasks()
    missing = [task for task in tasks if task not in results]
    if any(task.data == MOVIELENS for task in missing):
        load_movielens_100k(movielens)  # once, here: the processes then find it
    done = len(tasks) - len(missing)
    with (
        path.open("a", encoding="utf-8") as file,
        joblib.parallel_config("loky", inner_max_num_threads=1),
    ):
        work = joblib.Parallel(n_jobs=thread_count(n_jobs), return_as="generator_unordered")
        for task, result in work(joblib.delayed(_run)(task, movielens) for task in missing):
            file.write(json.dumps({"task": asdict(task), "result": result}) + "\n")
            file.flush()
            results[task] = result
            done += 1
            if tell is not None:
                tell(done, len(tasks), task)
    return {task: results[task] for task in tasks}


def _run(task: SamplingTask, movielens: str | None) -> tuple[SamplingTask, dict[str, float]]:
    return task, task.run(movielens)


def _read(path: Path) -> Results:
    if not path.exists() or path.stat().st_size == 0:
        return {}
    advice = "move it away or choose another folder; nothing was changed"
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    try:
        known = json.loads(head) == HEADER
        entries = [json.loads(line) for line in lines]
        results = {SamplingTask(**entry["task"]): entry["result"] for entry in entries}
    except (ValueError, KeyError, TypeError):
        raise StudyError(f"{path} does not hold results of this study; {advice}") from None
    if not known:
        raise StudyError(f"{path} holds results of another study or version; {advice}")
    return results


TEXT = """# How good is the variational approximation?

The paper approximates its posterior by independent Gaussians, and leaves open how good that is:
sampling was taken to be too expensive. Here each variational posterior is held against long chains on
the density that it approximates, with the same prior (inverse-Gamma, scale {scale}), temperature 1 and
K = {rank}: the paper's Algorithm 1 with the hinge loss, the engine's hinge posterior and the engine's
logistic posterior (full covariances). Draws of each of the paper's worlds: {seeds}, without effects.
Splits of MovieLens 100k into 95,000 and 5,000 answers: {splits}, with effects but for the paper's method.
Chains: {burn_in} sweeps, then {draws} draws. Means and standard errors over draws and splits. Made by
`{command}`.

The scale is the default of the variational fit. Under so wide a prior the exact posterior keeps columns
alive that the variational one drops; `inference="sampling"` therefore has a smaller scale of its own by
default, which is not what is compared here.

Where answers are without noise (A1, B1) the exact posterior lets scores grow with every sweep, and no
chain of this length settles; there, compare predictions only.

- *distance*: mean absolute difference of what is predicted, entry by entry: of a logistic score the
  probability of "yes", of a hinge score the chance that it is positive.
- *inside*: the share of the exact posterior that the variational 90 % interval of a score holds, on
  average; 90 % would be right.
- *spread*: the median ratio of the standard deviations of a score, variational over exact.
- *error %*: of the sign of the mean score, against sign(M) in the worlds, on held-out answers of
  MovieLens.
- *log-loss*: of fresh answers; hinge scores become probabilities by the pseudo-likelihood's own curve.
- *R-hat*: the worst of the chain's functionals, median over draws: above 1.1 the exact columns
  themselves are not settled, mostly in their norms.
"""


def write_sampling_page(
    plan: SamplingPlan, results: Results, folder: str | os.PathLike[str], command: str
) -> Path:
    """Write the page of these results to ``folder``; return its path."""
    text = TEXT.format(
        scale=SCALE, rank=RANK, seeds=plan.seeds, splits=plan.movielens_splits, burn_in=plan.burn_in,
        draws=plan.draws, command=command,
    )  # fmt: skip
    head = [
        "data", "distance", "inside %", "spread", "error %", "exact", "log-loss", "exact", "rank",
        "exact", "R-hat",
    ]  # fmt: skip
    sections = [text]
    for posterior in POSTERIORS:
        lines = []
        for name in _groups(plan):
            chosen = [
                result
                for task, result in results.items()
                if task.posterior == posterior and (task.data, task.rank) == name
            ]
            lines.append([f"{name[0]} rank {name[1]}" if name[1] else name[0], *_cells(chosen)])
        sections.append(f"## The {posterior} posterior\n\n" + markdown(head, lines) + "\n")
    path = Path(folder) / PAGE
    path.write_text("\n".join(sections), encoding="utf-8")
    return path


def _groups(plan: SamplingPlan) -> list[tuple[str, int]]:
    groups = [(world, rank) for rank in plan.ranks for world in plan.worlds]
    return groups + ([(MOVIELENS, 0)] if plan.movielens_splits else [])


def _cells(chosen: list[dict[str, float]]) -> list[str]:
    forms = {"share_inside": (100, 1), "error": (100, 2), "error_exact": (100, 2), "spread": (1, 2)}
    cells = []
    for name in MEASURES:
        values = np.array([result[name] for result in chosen])
        if name in ("rank", "rank_exact", "rhat"):
            cells.append(f"{np.median(values):.3g}")
            continue
        scale, digits = forms.get(name, (1, 4 if "loss" in name else 3))
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
        more = f" ± {scale * error:.{digits}f}" if len(values) > 1 else ""
        cells.append(f"{scale * values.mean():.{digits}f}{more}")
    return cells
