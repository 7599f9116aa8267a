"""A model in a few lines: its data, its settings, its fit, its certificates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onebit import __version__
from onebit.certificates.ladder import Ladder
from onebit.certificates.statements import Certificate, GroupCertificate
from onebit.completers.archive import plain_parameters
from onebit.completers.base import PairClassifier
from onebit.completers.filling import known_observations
from onebit.model.diagnostics import Mixing, sampling_words


def settings_of(model: PairClassifier) -> dict[str, Any]:
    """Return the settings that reproduce a model, and what a search has chosen."""
    settings: dict[str, Any] = {"model": type(model).__name__} | plain_parameters(model)
    chosen = getattr(model, "best_params_", None)
    return settings | ({} if chosen is None else {"chosen": dict(chosen)})


def answer_count(model: PairClassifier) -> int:
    """Return the number of answers that a model has: of its fit, and of updates since."""
    return model.n_observations_ + model.updates_.answers


def answered_share(model: PairClassifier) -> float:
    """Return the share of the table's entries that have an answer; repeats count once where known."""
    entries = answer_count(model)
    if model.answers_kept:
        entries = len(np.unique(known_observations(model).entry_numbers()))
    return min(entries / (len(model.rows_) * len(model.columns_)), 1.0)


def summary(model: PairClassifier) -> dict[str, Any]:
    """Return what a model file holds, as JSON.

    Examples
    --------
    >>> from onebit import LogisticCompleter
    >>> from onebit.report.summary import summary
    >>> model = LogisticCompleter(1).fit([("ann", "tea"), ("bob", "tea"), ("ann", "jam")], [1, 0, 1])
    >>> summary(model)["rows"], summary(model)["answers"]
    (2, 3)
    """
    rows, columns = len(model.rows_), len(model.columns_)
    content: dict[str, Any] = {
        "model": type(model).__name__,
        "rows": rows,
        "columns": columns,
        "answers": answer_count(model),
        "density": answered_share(model),
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
        content["chains"], content["draws_made"] = part.n_chains, part.n_draws_
        content["loss_error"] = part.loss_error_ if np.isfinite(part.loss_error_) else None
        mixing = Mixing.of(part.diagnostics_)
        content["mixing"] = mixing.verdict
        for name, value in (("rhat", mixing.rhat), ("ess", mixing.ess)):
            content[f"worst_{name}"] = None if np.isnan(value) else round(float(value), 3)
    content["sampling"] = " ".join(sampling_words(model))
    content["answers_kept"] = model.answers_kept
    if model.updates_.times:
        content["since_the_fit"] = model.updates_.words()
    if model.held_rows_ is not None:
        content["rows_held_out"] = len(model.held_rows_.judged)
    record = model.record_
    if record is not None:
        if not model.updates_.times:
            content["yes"] = int(record.row_yes.sum())
            content["held_out"] = record.n_held_out
        content["fingerprint"] = record.fingerprint
        content["source"] = {name: value for name, value in record.source.items() if value is not None}
        if record.certificates:
            content["certificates"] = [
                line for certificate in record.certificates for line in _statements(certificate)
            ]
    content["onebit"] = __version__
    return content


def _statements(certificate: Any) -> Iterator[dict[str, Any]]:
    """Yield what a certificate states, one line a statement; those of other predictors say so."""
    if isinstance(certificate, Certificate):
        parts: tuple[Certificate, ...] = (certificate,)
    elif isinstance(certificate, Ladder):
        parts = certificate.rungs
    elif isinstance(certificate, GroupCertificate):
        parts = certificate.certificates
    else:
        return  # the surest shares are a table of their own
    for part in parts:
        yield {
            "statement": part.sentence(),
            "error_at_most": part.bound,
            "of": part.whose,
            "of_this_model": part.of_this_model,
            "method": part.method,
            "delta": part.delta,
        }


def _examples(labels: Any) -> str:
    few = ", ".join(str(label) for label in labels[:3])
    return few + (", ..." if len(labels) > 3 else "")
