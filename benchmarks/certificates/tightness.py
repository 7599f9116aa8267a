"""How tight the certificates are: every rung on the paper's worlds and on MovieLens 100k.

Each rung is issued by itself at the whole delta, so that the figures compare the bounds and not how a
ladder divides its delta.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from onebit import GibbsCompleter, HingeCompleter, LogisticCompleter, simulate
from onebit.data.datasets import load_movielens_100k
from onebit.study.page import markdown

DELTA = 0.05
WORLDS = ("A1", "A2", "B1")
SIZE = 200
REAL = "MovieLens 100k"
# What is left for the tests of the accuracy page is left out here too.
LEFT_OUT = 5000
FOLDS = 5
RUNGS = (
    "theorem-1-printed",
    "theorem-1",
    "pac-bayes-kl",
    "optimised",
    "draw",
    "learnt-prior",
    "hold-out",
    "hold-out 5 %",
    "progressive",
    "refit",
)

Rungs = dict[str, float]


def tasks(
    seeds: int, splits: int, folder: Path | None, size: int = SIZE
) -> dict[str, Callable[[], pd.DataFrame]]:
    """Return what is to be done, by name; without the folder of MovieLens 100k, the worlds alone."""
    found = {
        f"{name}-{size}-{seed}": partial(world_rungs, name, seed, size)
        for name in WORLDS
        for seed in range(seeds)
    }
    if folder is not None:
        found |= {
            f"movielens-{split}": partial(movielens_rungs, folder, split) for split in range(splits)
        }
    return found


def world_rungs(name: str, seed: int, size: int) -> pd.DataFrame:
    """Return the rungs of one of the paper's worlds."""
    world = simulate.world(name, rank=3, shape=(size, size), seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = data_free_rungs(world.pairs, world.answers, seed, effects=False)
        found |= hold_out_rungs(world.pairs, world.answers, seed, effects=False)
    return pd.DataFrame([{"world": name} | found])


def movielens_rungs(folder: Path, split: int) -> pd.DataFrame:
    """Return the rungs of one split; those that take minutes only of the first one."""
    data = load_movielens_100k(folder)
    train = np.random.default_rng(split).permutation(len(data.answers))[LEFT_OUT:]
    pairs, answers = data.pairs[train], data.answers[train]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = hold_out_rungs(pairs, answers, split, effects=True)
        if split == 0:
            found |= data_free_rungs(pairs, answers, split, effects=True)
        found |= movielens_gap(data, split)
    return pd.DataFrame([{"world": REAL} | found])


def data_free_rungs(pairs: Any, answers: Any, seed: int, effects: bool) -> Rungs:
    """Return the rungs that hold nothing out, or fit models of their own."""
    fit = {"random_state": seed, "n_jobs": 1}
    # Certificates of a posterior need a prior that does not depend on which entries were answered.
    plain = HingeCompleter(3, effects=effects, temperature=0.7, calibrate=False, pattern=None, **fit)
    plain.fit(pairs, answers, certify=0)
    found = {
        method: plain.certify(DELTA, method=method).bound
        for method in ("theorem-1-printed", "theorem-1", "pac-bayes-kl")
    }
    gibbs = GibbsCompleter(**fit).fit(pairs, answers, certify=0)
    found["optimised"] = gibbs.certify(DELTA, method="pac-bayes-kl").bound
    found["draw"] = gibbs.draw(0).certify(DELTA).bound
    model = kept_model(effects, seed).fit(pairs, answers, certify=0)
    for method in ("learnt-prior", "progressive"):
        found[method] = model.certify(DELTA, method=method).bound
    return found


def hold_out_rungs(pairs: Any, answers: Any, seed: int, effects: bool) -> Rungs:
    """Return the rungs that hold answers out."""
    model = kept_model(effects, seed).fit(pairs, answers, certify=0.1)
    less = kept_model(effects, seed).fit(pairs, answers, certify=0.05)
    return {
        "hold-out": model.certify(DELTA).bound,
        "hold-out 5 %": less.certify(DELTA).bound,
        "refit": less.refit().certify(DELTA).bound,
    }


def kept_model(effects: bool, seed: int) -> Any:
    """Return the model that is kept: the default, or without effects what the paper's worlds ask for."""
    if effects:
        return LogisticCompleter(pattern=None, random_state=seed, n_jobs=1)
    return HingeCompleter(effects=False, random_state=seed, n_jobs=1)


def movielens_gap(data: Any, fold: int) -> Rungs:
    """Compare the certificate of the kept predictor with its error on a fifth of the answers."""
    place = np.random.default_rng(0).permutation(len(data.answers)) % FOLDS
    test = place == fold % FOLDS
    model = kept_model(True, fold).fit(data.pairs[~test], data.answers[~test], certify=0.1)
    error = 1 - model.score(data.pairs[test], data.answers[test])
    return {"test error": error, "above it": model.certify(DELTA).bound - error}


def section(results: pd.DataFrame, size: int = SIZE) -> list[str]:
    """Return the part of the page."""
    if results.empty:
        return []
    by_world = results.groupby("world")
    columns = [name for name in (*WORLDS, REAL) if name in by_world.groups]
    means, errors = by_world[list(RUNGS)].mean(), by_world[list(RUNGS)].sem()
    rows = [
        [rung, *(_mean_and_error(means.loc[name, rung], errors.loc[name, rung]) for name in columns)]
        for rung in RUNGS
    ]
    counts = ", ".join(f"{name}: {count}" for name, count in by_world.size()[columns].items())
    parts = [
        f"## Tightness at delta = {DELTA:g}",
        f"The paper's worlds, {size} x {size}, rank 3, a fifth of the entries answered, fitted without "
        "effects; MovieLens 100k, 95,000 answers, with effects. Each rung by itself, mean ± standard "
        f"error ({counts}). A figure without a standard error is of one run.",
        markdown(["rung", *columns], rows),
    ]
    if REAL in columns:
        gap = by_world[["test error", "above it"]]
        parts.append(
            f"MovieLens 100k in {FOLDS} folds, each tested once, a tenth of the others held out: the "
            f"certificate of the kept predictor is {100 * gap.mean().loc[REAL, 'above it']:.2f} ± "
            f"{100 * gap.sem().loc[REAL, 'above it']:.2f} points above its test error "
            f"({gap.mean().loc[REAL, 'test error']:.4f})."
        )
    return parts


def _mean_and_error(mean: float, error: float) -> str:
    return f"{mean:.4f}" if np.isnan(error) else f"{mean:.4f} ± {error:.4f}"
