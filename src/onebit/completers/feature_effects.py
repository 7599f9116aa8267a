"""The effects of features as a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from onebit.data.sides import MEMBERS

# Of the intervals.
LEVEL = 0.9


def feature_effects(model: Any) -> pd.DataFrame:
    """Return side, feature, effect and its standard deviation, for each feature.

    Of a sampled model also an interval. A variational one draws effects towards zero and is too sure of
    them: in simulations its 90 % intervals held the truth in three of four cases.
    """
    tables = []
    for side, encoder in enumerate(model._encoders):
        placing = model.predictor_.posterior.placings[side]
        if encoder is None or placing is None or not placing.features.shape[1]:
            continue
        if not model.predictor_.posterior.hierarchy.has_effect(side):
            continue
        mean, covariance = model.predictor_.feature_slopes(side)
        maps = encoder.contrasts(placing.features)
        effect = maps @ mean
        deviation = np.sqrt(np.einsum("pr,rs,ps->p", maps, covariance, maps))
        table = {"side": MEMBERS[side], "feature": encoder.names, "effect": effect, "sd": deviation}
        if model.predictor_.gaussian is None:
            half = ndtri(0.5 + 0.5 * LEVEL) * deviation
            table |= {"low": effect - half, "high": effect + half}
        tables.append(pd.DataFrame(table))
    if not tables:
        told = any(encoder is not None for encoder in model._encoders)
        lacking = "effects on the side of its features" if told else "features"
        raise AttributeError(f"this model was fitted without {lacking}")
    return pd.concat(tables, ignore_index=True)
