"""Tests of different years on one scale: abilities and items in the units of another model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.completers.error_bars import caveats, error_draws
from onebit.model.irt import Scale

# Fewer common columns say nothing of whether they have stayed what they were.
FEWEST = 3
# Standard errors by which a column is said to have moved, and how many such columns are named.
MOVED, NAMED = 3.0, 3


def linked(
    placed: Scale, model: Any, like: Any, anchors: NDArray[np.int32], callback: Any = None
) -> tuple[Scale, str]:
    """Return a model's scale in the units of ``like``, and a sentence that says so.

    ``anchors`` are the codes of the columns to link by, of which those count that both models know.
    """
    if not hasattr(like, "columns_"):
        raise ValueError(
            f"like is a fitted model, whose scale is to be taken over; got a {type(like).__name__}"
        )
    if model.updates_.times or like.updates_.times:
        raise ValueError(
            "a model that was updated since its fit cannot be put on another's scale: rows that came by "
            "updates are drawn towards the mean of the fitted ones. Fit the new answers apart, or all "
            "answers anew, and link that"
        )
    anchors = np.unique(anchors)
    try:
        there = like.columns_.encode(model.columns_.labels[anchors])
        draws, words = error_draws(like, callback, "irt")
        other = Scale.of(draws)
    except ValueError as error:
        raise ValueError(f"of the other model, whose scale is to be taken over: {error}") from None
    own, others = anchors[there >= 0], there[there >= 0]
    if len(own) < FEWEST:
        raise ValueError(
            f"scales are linked by at least {FEWEST} columns that both models know, and these are "
            f"{len(own)}; the same question must have the same id in both"
        )
    found, moved = placed.linked(other, own, others)
    said = (
        f"Abilities and items are on the scale of the other model, whose {len(like.rows_.listed):,} rows "
        f"have mean 0 and variance 1, by way of {len(own):,} common columns, if these have stayed as "
        "difficult as they were"
    )
    far = _furthest(moved, placed, other, own, others)
    if len(far):
        names = ", ".join(str(each) for each in model.columns_.labels[own[far[:NAMED]]])
        more = f" and {len(far) - NAMED:,} more" if len(far) > NAMED else ""
        enough = len(own) - len(far) >= FEWEST
        said += (
            f"; {names}{more} moved by over {MOVED:.0f} standard errors against the others: link by the "
            f"others{'' if enough else ', of which there are too few'}"
        )
    also = caveats(words)
    return found, said + "." + (f" The other model's error bars: {also}" if also else "")


def _furthest(
    moved: NDArray[np.float64],
    placed: Scale,
    other: Scale,
    own: NDArray[np.int32],
    others: NDArray[np.int32],
) -> NDArray[np.int64]:
    """Return the places of the columns that have moved, the furthest first.

    One at a time, and the others are linked anew without it: one that has moved far moves the link, and
    against that all others seem to have moved the other way.
    """
    left, far = np.arange(len(own)), []
    while np.abs(moved).max() > MOVED:
        worst = np.argmax(np.abs(moved))
        far.append(left[worst])
        left = np.delete(left, worst)
        if len(left) < FEWEST:
            break
        try:
            moved = placed.linked(other, own[left], others[left])[1]
        except ValueError:  # too little is known of these alone to say whether they have moved
            break
    return np.array(far, dtype=np.int64)
