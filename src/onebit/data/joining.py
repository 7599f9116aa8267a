"""Answers and features put together by id."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from onebit.data.features import Encoders, learnt
from onebit.data.given_features import FeatureError, Given, given, written
from onebit.data.ids import IdIndex
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS


def with_features(observations: Observations, features: tuple[Any, Any]) -> Observations:
    """Tell observations what is known of their rows and columns; ids without answers join them."""
    indexes: list[IdIndex] = [observations.rows, observations.columns]
    told: list[Any] = [None, None]
    for side, name in enumerate(MEMBERS):
        if features[side] is None:
            continue
        found = given(features[side], name)
        _check_side(found, indexes[side].labels.name, indexes[1 - side].labels.name)
        codes = indexes[side].encode(found.ids)
        if not (codes >= 0).any():
            raise FeatureError(
                f"none of the {len(codes):,} ids of the {name} features (such as "
                f"{written(found.ids[0])}) has answers as a {name} (such as "
                f"{written(indexes[side].labels[0])}); are they of the other side?" + found.taken
            )
        new = codes < 0
        if new.any():
            codes = codes.copy()
            codes[new] = len(indexes[side]) + np.arange(new.sum(), dtype=np.int32)
            indexes[side] = indexes[side].extended(pd.Index(found.ids)[new])
        told[side] = learnt(found), found, codes
    matrices = [
        None if part is None else part[0].encoded(part[1], part[2], len(index))
        for part, index in zip(told, indexes, strict=True)
    ]
    return observations.over(*indexes).told((matrices[0], matrices[1]))


def _check_side(found: Given, own: Any, other: Any) -> None:
    """Refuse features that are keyed by the other side's ids, as far as names tell."""
    key = found.ids.name
    if key is not None and key == other and key != own:
        raise FeatureError(
            f"the {found.side} features are keyed by {key!r}, which is the name of the other side's ids"
        )


def encoders_of(observations: Observations) -> Encoders:
    """Return how the features of rows and of columns became numbers."""
    rows, columns = (None if part is None else part.encoder for part in observations.features)
    return rows, columns
