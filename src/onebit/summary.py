"""A model in a few lines: its data, its settings, its fit, its certificates."""

from __future__ import annotations

from typing import Any

import numpy as np

from onebit import __version__
from onebit.certificates import Certificate
from onebit.estimator import PairClassifier
from onebit.ladder import Ladder
from onebit.models import plain_parameters


def settings_of(model: PairClassifier) -> dict[str, Any]:
    """Return the settings that reproduce a model, and what a search has chosen."""
    settings: dict[str, Any] = {"model": type(model).__name__} | plain_parameters(model)
    chosen = getattr(model, "best_params_", None)
    return settings | ({} if chosen is None else {"chosen": dict(chosen)})


def summary(model: PairClassifier) -> dict[str, Any]:
    """Return what a model file holds, as JSON.

    Examples
    --------
    >>> from onebit import LogisticCompleter
    >>> from onebit.summary import summary
    >>> model = LogisticCompleter(1).fit([("ann", "tea"), ("bob", "tea"), ("ann", "jam")], [1, 0, 1])
    >>> summary(model)["rows"], summary(model)["answers"]
    (2, 3)
    """
    rows, columns = len(model.rows_), len(model.columns_)
    content: dict[str, Any] = {
        "model": type(model).__name__,
        "rows": rows,
        "columns": columns,
        "answers": model.n_observations_,
        "density": model.n_observations_ / (rows * columns),
        "row_ids": _examples(model.rows_.listed_labels),
        "column_ids": _examples(model.columns_.listed_labels),
        "written_as": [str(value) for value in model.classes_.tolist()],
        "rank": int(getattr(model, "rank_", 0)),
        "settings": settings_of(model),
    }
    part: Any = getattr(model, "completer_", model)
    for name in ("objective_", "n_iter_", "converged_", "gap_"):
        if hasattr(part, name):
            content[name.strip("_")] = getattr(part, name)
    draws = getattr(part, "draws_", None)
    if draws is not None:
        content["sweeps"], content["draws"] = part.n_sweeps_, draws.count
        worst = part.diagnostics_[["rhat", "ess"]].agg({"rhat": "max", "ess": "min"})
        for name, value in worst.items():
            content[f"worst_{name}"] = None if np.isnan(value) else round(float(value), 3)
    content["answers_kept"] = model._answers is not None
    record = model.record_
    if record is not None:
        content["yes"] = int(record.row_yes.sum())
        content["held_out"] = record.n_held_out
        content["fingerprint"] = record.fingerprint
        content["source"] = {name: value for name, value in record.source.items() if value is not None}
        content["certificates"] = [
            {
                "method": "ladder, best rung" if isinstance(certificate, Ladder) else best.method,
                "error_at_most": best.bound,
                "delta": certificate.delta,
                "of": best.predictor,
            }
            for certificate in record.certificates
            if (best := _best(certificate)) is not None
        ]
    content["onebit"] = __version__
    return content


def _best(certificate: Any) -> Certificate | None:
    if isinstance(certificate, Certificate):
        return certificate
    return certificate.best if isinstance(certificate, Ladder) else certificate.certificates[-1]


def _examples(labels: Any) -> str:
    few = ", ".join(str(label) for label in labels[:3])
    return few + (", ..." if len(labels) > 3 else "")
