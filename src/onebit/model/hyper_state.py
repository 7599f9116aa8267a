"""What stands above rows and columns, as arrays and JSON, and back, checked."""

from __future__ import annotations

import sys
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from onebit.data import checked
from onebit.data.storage import Tensors
from onebit.model.hierarchy import Hierarchy, HyperPosterior
from onebit.model.priors import VariancePosterior

_VARIANCES = ("factors", "row_effect", "column_effect")
_VARIANCE_PARTS = tuple(field.name for field in fields(VariancePosterior))


def hyper_state(hyper: HyperPosterior) -> tuple[Tensors, dict[str, Any]]:
    """Return variances, means and intercept as arrays and JSON; slopes go with their regressions."""
    tensors: Tensors = {"means": hyper.means}
    for name in _VARIANCES:
        variances = getattr(hyper, name)
        if variances is not None:
            for part, values in asdict(variances).items():
                tensors[f"{name}.{part}"] = values
    return tensors, {"intercept": [hyper.intercept_mean, hyper.intercept_variance]}


def restored_hyper(tensors: Tensors, content: dict[str, Any], hierarchy: Hierarchy) -> HyperPosterior:
    """Restore what ``hyper_state`` returned; slopes come with their regressions."""
    row_effect, column_effect = (
        _variances_from(tensors, name, 1) if hierarchy.has_effect(side) else None
        for side, name in enumerate(("row_effect", "column_effect"))
    )
    intercept = checked.listed(content, "intercept", 2)
    has_intercept = hierarchy.intercept_side is not None
    means = np.zeros((2, hierarchy.rank))
    if hierarchy.factor_means:
        means = checked.checked_array(tensors, "means", np.float64, (2, hierarchy.rank))
    return HyperPosterior(
        _variances_from(tensors, "factors", hierarchy.rank),
        row_effect,
        column_effect,
        checked.number(intercept, 0),
        checked.number(intercept, 1, least=0.0, positive=has_intercept),
        means,
    )


def _variances_from(tensors: Tensors, name: str, count: int) -> VariancePosterior:
    # A column that has vanished has a precision near the largest double.
    largest = {"inverse": sys.float_info.max}
    return VariancePosterior(
        **{
            part: checked.checked_array(
                tensors, f"{name}.{part}", np.float64, (count,),
                positive=part in ("inverse", "mean"), most=largest.get(part),
            )
            for part in _VARIANCE_PARTS
        }
    )  # fmt: skip
