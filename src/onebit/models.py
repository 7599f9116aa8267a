"""Fitted models on disk."""

from __future__ import annotations

import importlib
import os
from dataclasses import asdict, is_dataclass, replace
from typing import Any

import numpy as np

from onebit import __version__, storage
from onebit.estimator import PairClassifier
from onebit.hold_out import HeldOut
from onebit.ids import IdIndex
from onebit.observations import Observations
from onebit.parameters import check_parameters
from onebit.posterior import packed_size
from onebit.predictions import Answers
from onebit.priors import prior_from_settings
from onebit.record import Record

# The arrays of held-out answers, one of each for every answer.
HELD_OUT = ("confidence", "yes", "wrong", "sign", "rows", "columns")

_HOMES = {
    "AutoCompleter": "onebit.auto",
    "GibbsCompleter": "onebit.randomised",
    "HingeCompleter": "onebit.completers",
    "LogisticCompleter": "onebit.completers",
    "NuclearNormCompleter": "onebit.nuclear",
}

# What goes wrong while a file is taken apart that has a right checksum and wrong content.
_BROKEN = (KeyError, TypeError, ValueError, AttributeError, IndexError, AssertionError, OverflowError)


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


def save(model: PairClassifier, path: str | os.PathLike[str], *, answers: bool = True) -> None:
    """Write a fitted model: settings, ids, what was fitted, its record and, if wanted, its answers."""
    tensors, fitted = model._state()
    content: dict[str, Any] = {
        "onebit": __version__,
        "class": type(model).__name__,
        "parameters": plain_parameters(model),
        "fitted": fitted,
        "answers": {"type": model.classes_.dtype.str, "values": model.classes_.tolist()},
        "n_observations": model.n_observations_,
        "fitted_shape": list(model._fitted_shape),
        "certifiable": model._certifiable,
    }
    for side, index in (("rows", model.rows_), ("columns", model.columns_)):
        ids, description = storage.pack_ids(index.labels, f"ids.{side}")
        tensors = tensors | ids
        if not index.sorted:
            tensors[f"order.{side}"] = index.listed
        name = index.labels.name
        content[side] = description | {"name": name if isinstance(name, str) else None}
    if model.held_out_ is not None:
        for name in HELD_OUT:
            tensors[f"held_out.{name}"] = getattr(model.held_out_, name)
        names = ("commoner", "also_fitted", "blanks", "disagreement")
        content["held_out"] = {name: getattr(model.held_out_, name) for name in names}
    kept = model._answers
    record = model.record_ or (Record.of(model) if model._certifiable else None)
    if record is not None:
        if not answers:
            record = replace(record, surprises=record.surprises.none())
        arrays, content["record"] = record.state()
        tensors = tensors | arrays
    if answers and kept is not None:
        view = kept.everything.by_row
        tensors["answers.start"], tensors["answers.index"] = view.start, view.index
        tensors["answers.sign"], tensors["answers.held"] = view.sign, kept.held
        content["answers_shape"] = list(kept.everything.shape)
    if answers and model._folded:
        for place, name in enumerate(("rows", "columns", "sign")):
            tensors[f"folded.{name}"] = np.concatenate([part[place] for part in model._folded])
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
    name = content.get("class") if isinstance(content, dict) else None
    if not isinstance(name, str) or name not in _HOMES:
        raise storage.FileError(f"{path} holds a {name!r}, which this package does not know")
    try:
        return _restored(name, tensors, content)
    except _BROKEN as error:
        what = f"{type(error).__name__}: {error}"
        raise storage.FileError(f"{path} is not a whole model ({what}); fit it again") from None


def _restored(name: str, tensors: storage.Tensors, content: dict[str, Any]) -> PairClassifier:
    kind = getattr(importlib.import_module(_HOMES[name]), name)
    model: PairClassifier = kind(**restored_parameters(content["parameters"]))
    check_parameters(model, model._checks)
    answers = content["answers"]
    classes = np.array(answers["values"], dtype=np.dtype(answers["type"]))
    if classes.shape != (2,) or classes.dtype.kind not in "biufU":
        raise ValueError(f"answers written as {answers!r}")
    rows, columns = (
        IdIndex(
            storage.unpack_ids(tensors, content[side], f"ids.{side}").rename(content[side]["name"]),
            side.removesuffix("s"),
            tensors.get(f"order.{side}"),
        )
        for side in ("rows", "columns")
    )
    model._know(rows, columns, classes, content["n_observations"])
    shape = content.get("fitted_shape", model._fitted_shape)
    model._fitted_shape = (int(shape[0]), int(shape[1]))
    model._certifiable = bool(content.get("certifiable", False))
    if "held_out" in content:
        counted: dict[str, Any] = {name: tensors[f"held_out.{name}"] for name in HELD_OUT}
        model.held_out_ = HeldOut(**counted, **content["held_out"])
    model._restore(tensors, content["fitted"])
    _check_shapes(model)
    if "record" in content:
        model.record_ = Record.from_state(tensors, content["record"])
    if "answers.sign" in tensors:
        model._answers = _restored_answers(model, tensors, content["answers_shape"])
    if "folded.sign" in tensors:
        model._folded = [_restored_folded(model, tensors)]
    return model


def _check_shapes(model: PairClassifier) -> None:
    """Refuse arrays that do not fit each other: the kernels that read them do not look."""
    size = (len(model.rows_), len(model.columns_))
    posterior = getattr(model, "posterior_", None)
    if posterior is not None:
        hierarchy = posterior.hierarchy
        for side, gaussians in enumerate(posterior.sides):
            width = hierarchy.rank + int(hierarchy.has_effect(side))
            spread = packed_size(width) if gaussians.full else width
            if gaussians.mean.shape != (size[side], width):
                raise ValueError(f"means of shape {gaussians.mean.shape}")
            if gaussians.covariance.shape != (size[side], spread):
                raise ValueError(f"covariances of shape {gaussians.covariance.shape}")
        hyper = posterior.hyper
        if hyper.means.shape != (2, hierarchy.rank) or not np.isfinite(hyper.means).all():
            raise ValueError(f"means of the factors of shape {hyper.means.shape}, or not finite")
        for variances, count in (
            (hyper.factors, hierarchy.rank),
            (hyper.row_effect, int(hierarchy.has_effect(0))),
            (hyper.column_effect, int(hierarchy.has_effect(1))),
        ):
            found = set() if variances is None else {part.shape for part in asdict(variances).values()}
            if found != {(count,)} and (count or found):
                raise ValueError(f"variances of shapes {found} where there should be {count}")
    left, right = getattr(model, "left_", None), getattr(model, "right_", None)
    if (
        left is not None
        and right is not None
        and ((len(left), len(right)) != size or left.shape[1:] != right.shape[1:] or left.ndim != 2)
    ):
        raise ValueError(f"factors of shapes {left.shape} and {right.shape}")
    held_out = model.held_out_
    if held_out is not None and len({getattr(held_out, name).shape for name in HELD_OUT}) != 1:
        raise ValueError("held-out answers of several lengths")


def _restored_folded(model: PairClassifier, tensors: storage.Tensors) -> Any:
    """Restore the answers that were folded in."""
    rows, columns, sign = (tensors[f"folded.{part}"] for part in ("rows", "columns", "sign"))
    sound = (
        rows.shape == columns.shape == sign.shape == (len(sign),)
        and rows.dtype == columns.dtype == np.int32
        and bool(((rows >= 0) & (rows < len(model.rows_))).all())
        and bool(((columns >= 0) & (columns < len(model.columns_))).all())
        and bool((np.abs(sign) == 1).all())
    )
    if not sound:
        raise ValueError("the answers that were folded in do not fit its ids")
    return rows, columns, sign.astype(np.int8)


def _restored_answers(model: PairClassifier, tensors: storage.Tensors, shape: list[int]) -> Answers:
    """Restore the answers of a fit; ids that were folded in later have none."""
    rows, columns = (
        index.first(size) for index, size in zip((model.rows_, model.columns_), shape, strict=True)
    )
    start, index, sign, held = (tensors[f"answers.{part}"] for part in ("start", "index", "sign", "held"))
    n = len(sign)
    sound = (
        [len(rows), len(columns)] == shape
        and len(start) == len(rows) + 1
        and len(index) == len(held) == n
        and start[0] == 0
        and start[-1] == n
        and bool((np.diff(start) >= 0).all())
        and bool(((index >= 0) & (index < len(columns))).all())
        and bool((np.abs(sign) == 1).all())
        and held.dtype == bool
    )
    if not sound:
        raise ValueError("its answers do not fit its ids")
    owner = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(start))
    everything = Observations.from_codes(rows, columns, owner, index, sign, None, model.classes_)
    return Answers(everything, held, everything.take(~held) if held.any() else everything)
