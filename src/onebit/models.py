"""Fitted models on disk."""

from __future__ import annotations

import importlib
import os
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from onebit import __version__, storage
from onebit.certificates import HeldOut
from onebit.estimator import PairClassifier
from onebit.ids import IdIndex
from onebit.priors import prior_from_settings

_HOMES = {
    "AutoCompleter": "onebit.auto",
    "GibbsCompleter": "onebit.randomised",
    "HingeCompleter": "onebit.completers",
    "LogisticCompleter": "onebit.completers",
    "NuclearNormCompleter": "onebit.nuclear",
}


def plain_parameters(model: PairClassifier) -> dict[str, Any]:
    """Return the constructor's parameters as JSON; a generator as ``random_state`` becomes None."""
    parameters = model.get_params(deep=False)
    for name, value in parameters.items():
        if isinstance(value, np.generic):
            parameters[name] = value.item()
        elif is_dataclass(value) and not isinstance(value, type):
            parameters[name] = {"prior": asdict(value)}
    if not isinstance(parameters.get("random_state"), (int, type(None))):
        parameters["random_state"] = None
    return parameters


def restored_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Undo ``plain_parameters``."""
    return {
        name: prior_from_settings(value["prior"]) if isinstance(value, dict) else value
        for name, value in parameters.items()
    }


def save(model: PairClassifier, path: str | os.PathLike[str]) -> None:
    """Write a fitted model: settings, ids, answers and what was fitted."""
    tensors, fitted = model._state()
    content: dict[str, Any] = {
        "onebit": __version__,
        "class": type(model).__name__,
        "parameters": plain_parameters(model),
        "fitted": fitted,
        "answers": {"type": model.classes_.dtype.str, "values": model.classes_.tolist()},
        "n_observations": model.n_observations_,
    }
    for side, index in (("rows", model.rows_), ("columns", model.columns_)):
        ids, description = storage.pack_ids(index.labels, f"ids.{side}")
        tensors = tensors | ids
        name = index.labels.name
        content[side] = description | {"name": name if isinstance(name, str) else None}
    if model.held_out_ is not None:
        tensors["held_out.confidence"] = model.held_out_.confidence
        tensors["held_out.wrong"] = model.held_out_.wrong
        content["held_out_also_fitted"] = model.held_out_.also_fitted
        content["held_out_disagreement"] = model.held_out_.disagreement
    storage.write(path, "model", tensors, content)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that ``save`` wrote.

    A file that is foreign, damaged or newer than this package gives a ``storage.FileError``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import onebit
    >>> model = onebit.LogisticCompleter(rank=1).fit([("a", 1), ("b", 1), ("a", 2)], [1, 0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(pathlib.Path(folder) / "model.onebit")
    ...     again = onebit.load(pathlib.Path(folder) / "model.onebit")
    >>> bool((again.predict_proba([("b", 2)]) == model.predict_proba([("b", 2)])).all())
    True
    """
    tensors, content = storage.read(path, "model")
    name = content["class"]
    if name not in _HOMES:
        raise storage.FileError(f"{path} holds a {name!r}, which this package does not know")
    kind = getattr(importlib.import_module(_HOMES[name]), name)
    model: PairClassifier = kind(**restored_parameters(content["parameters"]))
    answers = content["answers"]
    classes = np.array(answers["values"], dtype=np.dtype(answers["type"]))
    rows, columns = (
        IdIndex(
            storage.unpack_ids(tensors, content[side], f"ids.{side}").rename(content[side]["name"]),
            side.removesuffix("s"),
        )
        for side in ("rows", "columns")
    )
    model._know(rows, columns, classes, content["n_observations"])
    if "held_out.wrong" in tensors:
        model.held_out_ = HeldOut(
            tensors["held_out.confidence"],
            tensors["held_out.wrong"],
            content["held_out_also_fitted"],
            content.get("held_out_disagreement"),
        )
    model._restore(tensors, content["fitted"])
    return model
