"""Tests of different years on one scale: abilities and items in the units of another model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.completers.error_bars import error_draws
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
        raise ValueError(f"like is a fitted model, whose scale is to be taken over; got {like!r}")
    there = like.columns_.encode(model.columns_.labels[anchors])
    own, others = anchors[there >= 0], there[there >= 0]
    if len(own) < FEWEST:
        raise ValueError(
            f"scales are linked by at least {FEWEST} columns that both models know, and these are "
            f"{len(own)}; the same question must have the same id in both"
        )
    found, moved = placed.linked(Scale.of(error_draws(like, callback, "irt")[0]), own, others)
    words = (
        f"Abilities and items are on the scale of the other model, whose {len(like.rows_.listed):,} rows "
        f"have mean 0 and variance 1, by way of {len(own):,} common columns, if these have stayed as "
        "difficult as they were"
    )
    far = np.flatnonzero(np.abs(moved) > MOVED)
    if len(far):
        furthest = own[far[np.argsort(-np.abs(moved[far]))]][:NAMED]
        names = ", ".join(str(each) for each in model.columns_.labels[furthest])
        more = f" and {len(far) - NAMED:,} more" if len(far) > NAMED else ""
        words += f"; {names}{more} moved by over {MOVED:.0f} standard errors: link by the others"
    return found, words + "."
