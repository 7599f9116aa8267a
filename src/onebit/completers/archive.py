"""A fitted model as one file: arrays and JSON. Reading it again is ``loading``'s business."""

from __future__ import annotations

import os
from dataclasses import asdict, is_dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from onebit import __version__
from onebit.certificates.hold_out import ARRAYS
from onebit.certificates.new_rows import ROW_COUNTS
from onebit.completers.parameters import plain
from onebit.data import checked, storage
from onebit.data.features import matrix_state
from onebit.data.sides import SIDES
from onebit.model.priors import prior_from_settings


def plain_parameters(model: Any) -> dict[str, Any]:
    """Return the constructor's parameters as JSON; a generator as ``random_state`` becomes None."""
    parameters = model.get_params(deep=False)
    for name, value in parameters.items():
        if isinstance(value, (np.bool_, np.str_)):
            parameters[name] = value.item()
        elif isinstance(value, Real):
            parameters[name] = plain(value)
        elif is_dataclass(value) and not isinstance(value, type):
            parameters[name] = {"prior": asdict(value)}
    if not isinstance(parameters.get("random_state"), (int, type(None))):
        parameters["random_state"] = None
    return parameters


def fit_identity(model: Any, held: Any) -> dict[str, Any]:
    """Return which fit a checkpoint is of, but for its answers; one that cannot repeat is refused."""
    if not isinstance(getattr(model, "random_state", None), (int, np.integer)):
        raise ValueError("a fit that can go on needs a number as random_state; set random_state=0")
    settings = plain_parameters(model)
    for name in ("n_jobs", "device", "verbose"):  # these change the result by rounding at most
        settings.pop(name, None)
    identity = {
        "version": __version__,
        "model": type(model).__name__,
        "settings": settings,
        "what is held out": held,
    }
    reckoned_for = getattr(model, "_reckoned_for", None)
    return identity if reckoned_for is None else identity | {"architecture": reckoned_for}


def held_out_state(held: Any) -> tuple[storage.Tensors, dict[str, Any]]:
    """Return what became of held-out answers as arrays and JSON."""
    tensors = {f"held_out.{name}": getattr(held, name) for name in ARRAYS}
    parts = ("commoner", "blanks", "disagreement", "whence", "chosen")
    return tensors, {name: getattr(held, name) for name in parts}


def restored_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Undo ``plain_parameters``."""

    def restored(value: Any) -> Any:
        if isinstance(value, dict):
            return prior_from_settings(checked.section(value, "prior"))
        return tuple(value) if isinstance(value, list) else value

    return {name: restored(value) for name, value in parameters.items()}


def save(model: Any, path: str | os.PathLike[str], *, answers: bool = True) -> None:
    """Write a fitted model: settings, ids, what was fitted, its record and, if wanted, its answers."""
    tensors, fitted = model._state()
    content: dict[str, Any] = {
        "onebit": __version__,
        "class": type(model).__name__,
        "parameters": plain_parameters(model),
        "fitted": fitted,
        "answers": {"type": model.classes_.dtype.str, "values": model.classes_.tolist()},
        "n_observations": model.n_observations_,
        "certifiable": model._certifiable,
    }
    for side, index in (("rows", model.rows_), ("columns", model.columns_)):
        ids, description = storage.pack_ids(index.labels, f"ids.{side}")
        tensors = tensors | ids
        if not index.sorted:
            tensors[f"order.{side}"] = index.listed
        name = index.labels.name
        content[side] = description | {"name": name if isinstance(name, str) else None}
    encoders = {}
    for name, encoder in zip(SIDES, model._encoders, strict=True):
        if encoder is not None:
            more, encoders[name] = encoder.state(f"features.{name}")
            tensors = tensors | more
    if encoders:
        content["features"] = encoders
    if model.held_out_ is not None:
        more, content["held_out"] = held_out_state(model.held_out_)
        tensors = tensors | more
    rows = model.held_rows_
    if rows is not None:
        content["held_rows"] = {"given": list(rows.given)}
        tensors = tensors | {f"held_rows.{name}": getattr(rows, name) for name in ROW_COUNTS}
    kept = model._answers
    record = model.record_ or (model.describe() if model._certifiable else None)
    if record is not None:
        if not answers:
            record = replace(record, surprises=record.surprises.none())
        arrays, content["record"] = record.state()
        tensors = tensors | arrays
    if answers and kept is not None:
        for name, told in zip(SIDES, kept.everything.features, strict=True):
            if told is not None:
                tensors = tensors | matrix_state(told, f"features.{name}")
        view = kept.everything.by_row
        tensors["answers.start"], tensors["answers.index"] = view.start, view.index
        tensors["answers.sign"], tensors["answers.held"] = view.sign, kept.held
        if kept.everything.weighted:
            tensors["answers.weight"] = view.weight
        content["answers_shape"] = list(kept.everything.shape)
    more, content["updates"] = model.updates_.state()
    tensors = tensors | more
    if answers and model._folded:
        for place, name in enumerate(("rows", "columns", "sign")):
            tensors[f"folded.{name}"] = np.concatenate([part[place] for part in model._folded])
    storage.write(path, "model", tensors, content)
