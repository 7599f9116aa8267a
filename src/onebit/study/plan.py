"""What the study computes: a list of independent tasks, each the work of some seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

from onebit.completers.evaluation import calibration_error
from onebit.data import simulate
from onebit.data.datasets import load_movielens_100k
from onebit.study.methods import METHODS, ORACLE
from onebit.study.oracle import oracle_scores

MOVIELENS = "MovieLens 100k"
MOVIELENS_TEST = 5000
NOISE_WORLD, NOISE_RANK = "A2", 3
PAPER_FLIP = 0.1
FLIPS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
WITH_ORACLE = ("A2", "A3", "B3")


@dataclass(frozen=True)
class Task:
    """One method on one draw of one world (or one split of MovieLens 100k): all that determines it."""

    data: str
    method: str
    seed: int
    splits: int
    rank: int = 0
    shape: tuple[int, int] = (0, 0)
    density: float = 0.0
    flip: float = 0.0
    signature: str = ""

    def run(self, movielens: str | None = None) -> dict[str, Any]:
        """Do the work; return the figures as plain values."""
        begin = time.perf_counter()
        result = self._on_movielens(movielens) if self.data == MOVIELENS else self._on_world()
        return result | {"seconds": round(time.perf_counter() - begin, 2)}

    def _on_world(self) -> dict[str, Any]:
        world = simulate.world(
            self.data, self.rank, self.shape, self.density, seed=self.seed, flip=self.flip
        )
        if self.method == ORACLE:
            scores = oracle_scores(world, self.rank, self.flip, self.seed)
            return {"error": world.error(scores)}
        model, choice = METHODS[self.method].fit(
            world.pairs, world.answers, self.seed, self.splits, calibrate=False
        )
        # Every entry, also of a row or column without any answer.
        scores = model.decision_function(world.all_pairs).reshape(world.truth.shape)
        return {"error": world.error(scores), "rank_found": model.rank_, "choice": choice}

    def _on_movielens(self, folder: str | None) -> dict[str, Any]:
        data = load_movielens_100k(folder)
        order = np.random.default_rng(self.seed).permutation(len(data.answers))
        test, train = order[:MOVIELENS_TEST], order[MOVIELENS_TEST:]
        model, choice = METHODS[self.method].fit(
            data.pairs[train], data.answers[train], self.seed, self.splits, calibrate=True
        )
        scores = model.decision_function(data.pairs[test])
        chance = model.predict_proba(data.pairs[test])[:, 1]
        return {
            "error": float(np.mean(data.answers[test] * scores <= 0)),
            "log_loss": float(log_loss(data.answers[test], chance)),
            "calibration_error": calibration_error(chance, data.answers[test] > 0),
            "rank_found": model.rank_,
            "choice": choice,
        }


@dataclass(frozen=True)
class Plan:
    """The size of the study; the defaults are the paper's setting with 20 seeds in place of one.

    Examples
    --------
    >>> from onebit.study import Plan
    >>> len(Plan(seeds=2, figure_seeds=1, movielens_splits=0).tasks())
    308
    """

    seeds: int = 20
    figure_seeds: int = 10
    movielens_splits: int = 10
    shape: tuple[int, int] = (200, 200)
    density: float = 0.2
    splits: int = 3
    worlds: tuple[str, ...] = simulate.WORLDS
    ranks: tuple[int, ...] = (3, 5)
    flips: tuple[float, ...] = FLIPS
    methods: tuple[str, ...] = tuple(METHODS)

    def __post_init__(self) -> None:
        for name in ("seeds", "figure_seeds", "movielens_splits"):
            if getattr(self, name) < (1 if name == "seeds" else 0):
                raise ValueError(f"{name} must be a positive number, got {getattr(self, name)}")
        for name, known in (("worlds", simulate.WORLDS), ("methods", tuple(METHODS))):
            unknown = [value for value in getattr(self, name) if value not in known]
            if unknown:
                raise ValueError(f"unknown {name}: {', '.join(unknown)}; choose from {', '.join(known)}")

    @classmethod
    def quick(cls, movielens_splits: int = 0) -> Plan:
        """Return a small version: single runs, as in the paper, and fewer noise levels."""
        return cls(
            seeds=1,
            figure_seeds=1,
            movielens_splits=movielens_splits,
            splits=1,
            flips=(0.0, 0.1, 0.2, 0.3, 0.4),
        )

    def tasks(self) -> list[Task]:
        """Return all tasks, each once; kinds are mixed, so that the time left can be told."""
        unique = dict.fromkeys(task for group in (self._tables(), self._figure()) for task in group)
        tasks = [*unique, *self._movielens()]
        return sorted(tasks, key=lambda task: task.seed)

    def _world(self, name: str, rank: int, flip: float, seed: int) -> Iterator[Task]:
        common = {"rank": rank, "shape": self.shape, "density": self.density, "flip": flip}
        for method in self.methods:
            signature = METHODS[method].signature
            yield Task(name, method, seed, self.splits, **common, signature=signature)  # type: ignore[arg-type]
        if name in WITH_ORACLE:
            yield Task(name, ORACLE, seed, 0, **common)  # type: ignore[arg-type]

    def _tables(self) -> Iterator[Task]:
        for seed in range(self.seeds):
            for rank in self.ranks:
                for name in self.worlds:
                    yield from self._world(name, rank, PAPER_FLIP, seed)

    def _figure(self) -> Iterator[Task]:
        if NOISE_WORLD not in self.worlds:
            return
        for seed in range(self.figure_seeds):
            for flip in self.flips:
                yield from self._world(NOISE_WORLD, NOISE_RANK, flip, seed)

    def _movielens(self) -> Iterator[Task]:
        for seed in range(self.movielens_splits):
            for method in self.methods:
                yield Task(MOVIELENS, method, seed, self.splits, signature=METHODS[method].signature)


def task_from(content: dict[str, Any]) -> Task:
    """Restore a task from ``as_json``."""
    return Task(**{**content, "shape": tuple(content["shape"])})


def as_json(task: Task) -> dict[str, Any]:
    """Return a task as plain values."""
    return asdict(task) | {"shape": list(task.shape)}
