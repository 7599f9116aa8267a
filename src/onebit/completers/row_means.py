"""Shares of "yes" of new rows, from questions that were drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.certificates.row_means import MeanInterval, policy_share, uniform_share
from onebit.completers.questions import check_share, column_mask, population_of
from onebit.data.ids import pair_columns
from onebit.engine.seeds import generator

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
KINDS = {
    "predictions": "confidence: predictions corrected by answers chosen at random; assumes no model",
    "exact": "confidence: exact, from the answers alone; assumes no model",
    "too few": "too few answers for an interval: what they leave possible, whatever the others are",
}


def mean_of_row(
    model: Any,
    columns: Sequence[Any],
    answers: Any,
    chances: Array | None,
    wanted: NDArray[np.bool_],
    level: float,
    seed: Any,
) -> MeanInterval:
    """Return the share of one row over the wanted columns, from questions drawn at random from them."""
    population = population_of(model, "row_mean")
    codes = model.columns_.encode(columns).astype(np.int64)
    signs = np.asarray(model._signs(answers, len(codes)), np.int64)
    place = np.cumsum(wanted) - 1
    for position, code in enumerate(codes):
        if code < 0 or not wanted[code]:
            raise ValueError(
                f"the column {columns[position]!r} is not among those over which the mean is taken, "
                "so it was not drawn from them"
            )
    if len(np.unique(codes)) < len(codes):
        first, count = np.unique(codes, return_counts=True)
        twice = model.columns_.labels[int(first[np.argmax(count > 1)])]
        raise ValueError(f"the column {twice!r} is there twice: questions are drawn without replacement")
    order = np.flatnonzero(wanted)

    def forecast(asked: Codes, values: Array) -> Array:
        standing = population.standing(order[asked], np.where(values > 0.5, 1, -1))
        return population.forecast(standing).probability[order]

    places, values = place[codes], (signs > 0).astype(float)
    if chances is None:
        return uniform_share(places, values, len(order), forecast, level, generator(seed))
    _check_chances(chances, len(order))
    if np.allclose(chances * (len(order) - np.arange(len(chances))), 1.0, rtol=1e-9, atol=0.0):
        # Drawn uniformly after all, which is worth more where few answers were not foreseen.
        return uniform_share(places, values, len(order), forecast, level, generator(seed))
    return policy_share(places, values, chances, len(order), forecast, level)


def row_means(
    model: Any, pairs: Any, answers: Any, probabilities: Any, columns: Any, level: float, seed: Any
) -> pd.DataFrame:
    """Return the shares of rows from questions drawn at random; see ``PairClassifier.row_mean``."""
    check_share(level, "level")
    rows, names = pair_columns(pairs)
    ids, wanted = pd.Series(np.asarray(rows)), column_mask(model, columns, "columns")
    values = pd.Series(np.asarray(answers))
    names = np.asarray(names)
    if len(ids) == 0:
        raise ValueError("row_mean needs at least one answer")
    if ids.isna().any():
        raise ValueError(f"row id at position {int(ids.isna().argmax())} is missing; name the row")
    if len(values) != len(ids):
        raise ValueError(f"{len(ids)} pairs and {len(values)} answers")
    named = ids.drop_duplicates()
    known = model.rows_.labels.intersection(pd.Index(named))
    if len(known):
        fitted = known[0]
        raise ValueError(
            f"the row {fitted!r} is one of the model's own: predictions have seen its answers, so the "
            "interval would not hold; use a model fitted without it, or row_summary"
        )
    chances = None
    if probabilities is not None:
        try:
            chances = np.asarray(probabilities, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"probabilities must be numbers, got {probabilities!r}") from None
        if chances.shape != (len(ids),):
            raise ValueError(f"{len(ids)} pairs and probabilities of shape {chances.shape}")
    lines = []
    for row, places in ids.groupby(ids, sort=False).groups.items():
        at = np.asarray(places)
        found = mean_of_row(
            model,
            names[at].tolist(),
            values.iloc[at].to_numpy(),
            None if chances is None else chances[at],
            wanted,
            level,
            seed,
        )
        worth = float("nan") if found.kind == "too few" else float(len(at))
        size = int(wanted.sum())
        if found.error > 0 and size > 1:
            # A uniform draw of n has the variance p (1 - p) / n * (size - n) / (size - 1).
            spread = found.share * (1.0 - found.share) * size / (size - 1)
            worth = spread / (found.error**2 + spread / size)
        lines.append((row, len(at), found.share, found.low, found.high, found.error, worth, found.kind))
    name = model.rows_.labels.name
    frame = pd.DataFrame(
        lines,
        columns=["row", "answers", "share", "share_low", "share_high", "se", "worth", "kind"],
    ).set_index("row")
    frame.index.name = name if isinstance(name, str) else "row"
    frame.attrs["interval"] = {kind: KINDS[kind] for kind in frame["kind"].unique()}
    return frame


def _check_chances(chances: Array, size: int) -> None:
    bad = ~((chances > 0.0) & (chances <= 1.0))
    if bad.any():
        place = int(np.argmax(bad))
        raise ValueError(
            f"the probability of question {place + 1} is {chances[place]!r}: it must be above 0 and at "
            "most 1"
        )
    left = size - np.arange(len(chances))
    sure = (chances >= 1.0) & (left > 1)
    if sure.any():
        place = int(np.argmax(sure))
        raise ValueError(
            f"question {place + 1} was chosen with probability 1 while {left[place]:,} were left: what "
            "was never to be asked cannot be judged; choose questions with explore above 0"
        )
