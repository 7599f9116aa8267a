"""MovieLens 100k: certificates of later answers and of new people, beside what came."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from benchmarks.updates import ratings
from onebit import LogisticCompleter, Observations
from onebit.completers.new_rows import count_rows
from onebit.study.page import markdown

DELTA = 0.05
# In time order: what is fitted, what is held out, and what comes after it.
PAST, NEXT = 0.6, 0.8
ROWS_OUT = 0.2

RANDOM, OWN = "later answers, by a tenth of the past at random", "later answers, by the next fifth"
PEOPLE = "new people who give {} answers"


def tasks(folder: Path | None, seeds: int) -> dict[str, Callable[[], pd.DataFrame]]:
    """Return what is to be done, by name; nothing without the folder of MovieLens 100k."""
    if folder is None:
        return {}
    return {f"real-{seed}": partial(one_seed, folder, seed) for seed in range(seeds)}


def one_seed(folder: Path, seed: int) -> pd.DataFrame:
    """Return bounds and what was observed, with one seed."""
    frame = ratings(folder / "ml-100k")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return pd.DataFrame([*_later(frame, seed), *_people(frame, seed)])


def _given(frame: pd.DataFrame) -> tuple[pd.DataFrame, Any]:
    return frame[["user", "film"]], frame["liked"].to_numpy()


def _model(seed: int) -> LogisticCompleter:
    return LogisticCompleter(pattern=None, random_state=seed, n_jobs=1)


def _later(frame: pd.DataFrame, seed: int) -> list[dict[str, Any]]:
    first, second = int(PAST * len(frame)), int(NEXT * len(frame))
    past, follows, future = frame[:first], frame[first:second], frame[second:]
    found = []
    for line, certify in ((RANDOM, 0.1), (OWN, _given(follows))):
        model = _model(seed).fit(*_given(past), certify=certify)
        pairs, liked = _given(future)
        wrong = 1.0 - float(np.mean(model.predict(pairs) == liked))
        found.append({"line": line, "bound": model.certify(DELTA).bound, "observed": wrong})
    return found


def _people(frame: pd.DataFrame, seed: int) -> list[dict[str, Any]]:
    users = frame["user"].unique()
    here = np.random.default_rng(seed).permutation(users)[: len(users) // 2]
    inside = frame["user"].isin(here)
    model = _model(seed).fit(*_given(frame[inside]), certify_rows=ROWS_OUT)
    # Others on the same films.
    others = frame[~inside & frame["film"].isin(model.columns_.labels)]
    seen = Observations.from_pairs(*_given(others))
    codes = model.columns_.encode(seen.columns.labels)
    rows, columns, sign, _ = seen.entries(np.arange(seen.n))
    fresh = Observations.from_codes(seen.rows, model.columns_, rows, codes[columns], sign)
    truth = count_rows(model, fresh, 1, seed).observed()
    return [
        {"line": PEOPLE.format(line.given), "bound": line.bound, "observed": truth[line.given]}
        for line in model.certify(DELTA, target="new rows").lines
    ]


def section(results: pd.DataFrame) -> list[str]:
    """Return the part of the page."""
    if results.empty:
        return []
    rows = []
    for line, part in results.groupby("line", sort=False):
        held = int((part["bound"] >= part["observed"]).sum())
        rows.append(
            [
                line,
                *(f"{part[name].mean():.3f} ± {part[name].sem():.3f}" for name in ("bound", "observed")),
                f"{held} of {len(part)}",
            ]
        )
    seeds = len(part)
    return [
        "## MovieLens 100k",
        "Liked is four or five stars. *Later answers*: the first 60 % in time order are fitted, the last "
        "20 % are what came; a certificate from a tenth of the past at random, and one from the 20 % "
        "between. Later answers come in bursts of people who are new, so that they are no independent "
        "draws of one kind, which the certificate assumes. *New people*: half of the people, a fifth of "
        f"them held out; the other half is what came. delta = {DELTA:g}, {seeds} seeds, mean ± standard "
        "error. A table with a survey at random beside answers that people chose is not among the data "
        "here.",
        markdown(["certificate", "bound", "observed afterwards", "held"], rows),
    ]
