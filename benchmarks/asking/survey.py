"""A survey: people answer a few questions, and the rest of their answers is predicted."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from onebit import LogisticCompleter

ASKED = (5, 10, 20)
# Only people with so many answers: half of them can be asked, half are to be predicted.
LEAST_ANSWERS = 50
MOST_PEOPLE = 80


def survey(path: Path, seed: int, rank: int) -> list[dict[str, Any]]:
    """Interview new people about statements that they have an opinion on; predict the others."""
    warnings.simplefilter("ignore")
    frame = pd.read_parquet(path).drop_duplicates(["row", "col"])
    rng = np.random.default_rng(seed)
    people = rng.permutation(frame["row"].unique())
    new = set(people[: len(people) // 4])
    known = frame[~frame["row"].isin(new)]
    model = LogisticCompleter(rank, random_state=0, n_jobs=1).fit(known[["row", "col"]], known["y"])
    lines, done = [], 0
    for person, answers in frame[frame["row"].isin(new)].groupby("row"):
        told = answers[model.columns_.encode(answers["col"]) >= 0].set_index("col")["y"]
        if len(told) < LEAST_ANSWERS or done == MOST_PEOPLE:
            continue
        done += 1
        order = rng.permutation(len(told))
        askable, others = told.iloc[order[: len(told) // 2]], told.iloc[order[len(told) // 2 :]]
        sides = {
            "random questions": list(askable.index),
            "the most uncertain": _uncertain(model, askable),
            "ours, goal: the other answers": _asked(model, askable, list(others.index)),
            'ours, goal "row"': _asked(model, askable, "row"),
        }
        for n in (0, *ASKED):
            for method, asked in sides.items():
                interview = model.interview({column: int(told[column]) for column in asked[:n]})
                chance = interview.probability(list(others.index))
                lines.append(
                    {
                        "table": path.stem, "split": "survey", "seed": seed, "person": str(person),
                        "method": method, "n": n,
                        "loss": float(-np.log(np.where(others > 0, chance, 1 - chance)).mean()),
                        "wrong": float(((chance > 0.5) != (others > 0)).mean()),
                    }
                )  # fmt: skip
    return lines


def _asked(model: LogisticCompleter, askable: pd.Series, goal: Any) -> list[Any]:
    interview = model.interview(among=list(askable.index), goal=goal, n=max(ASKED))
    for question in interview:
        interview.answer(int(askable[question.column]))
    return interview.columns


def _uncertain(model: LogisticCompleter, askable: pd.Series) -> list[Any]:
    """Ask, one after the other, the question whose answer is nearest to a coin's."""
    told: dict[Any, int] = {}
    left = list(askable.index)
    for _ in range(min(max(ASKED), len(left))):
        chance = model.interview(told).probability(left)
        column = left.pop(int(np.argmin(np.abs(chance - 0.5))))
        told[column] = int(askable[column])
    return list(told)
