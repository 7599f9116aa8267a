"""Fitted models on disk."""

from __future__ import annotations

import importlib
import os
from dataclasses import asdict, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit import __version__, checked, storage
from onebit.diagnostics import DIAGNOSTICS
from onebit.estimator import PairClassifier
from onebit.hold_out import HeldOut
from onebit.ids import IdIndex
from onebit.observations import Observations
from onebit.parameters import check_parameters
from onebit.predictions import Answers
from onebit.priors import prior_from_settings
from onebit.record import Record
from onebit.threads import thread_count

# The arrays of held-out answers, one of each for every answer.
HELD_OUT = ("confidence", "yes", "wrong", "sign", "rows", "columns")

_HOMES = {
    "AutoCompleter": "onebit.auto",
    "GibbsCompleter": "onebit.randomised",
    "HingeCompleter": "onebit.completers",
    "LogisticCompleter": "onebit.completers",
    "NuclearNormCompleter": "onebit.nuclear",
}

# Of the type that answers are written as: a name such as U900000000 would take gigabytes.
_WIDEST_ANSWER = 2**20


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
        name: prior_from_settings(checked.section(value, "prior")) if isinstance(value, dict) else value
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
    with checked.taken_apart(path, "it is not a whole model; fit it again"):
        return _restored(name, tensors, content)


def _restored(name: str, tensors: storage.Tensors, content: dict[str, Any]) -> PairClassifier:
    kind = getattr(importlib.import_module(_HOMES[name]), name)
    model: PairClassifier = kind(**restored_parameters(checked.section(content, "parameters")))
    _check_settings(model)
    rows, columns = (_restored_ids(tensors, content, side) for side in ("rows", "columns"))
    model._know(rows, columns, _restored_classes(content), checked.whole(content, "n_observations"))
    size = (len(rows), len(columns))
    if 0 in size:
        raise storage.FileError(f"it has {size[0]} rows and {size[1]} columns")
    if "fitted_shape" in content:
        shape = checked.listed(content, "fitted_shape", 2)
        model._fitted_shape = (checked.whole(shape, 0, 0, size[0]), checked.whole(shape, 1, 0, size[1]))
    if "certifiable" in content:
        model._certifiable = checked.flag(content, "certifiable")
    if "held_out" in content:
        model.held_out_ = _restored_held_out(tensors, checked.section(content, "held_out"), size)
    fitted = checked.section(content, "fitted")
    _check_search(fitted)
    _check_diagnostics(tensors, fitted.get("completer", fitted))
    model._restore(tensors, fitted)
    chosen = getattr(model, "completer_", None)
    if chosen is not None:
        _check_settings(chosen)
    if "record" in content:
        model.record_ = Record.from_state(tensors, checked.section(content, "record"), size)
    if "answers.sign" in tensors:
        model._answers = _restored_answers(model, tensors, checked.listed(content, "answers_shape", 2))
    if "folded.sign" in tensors:
        model._folded = [_restored_folded(model, tensors)]
    return model


def _check_settings(model: PairClassifier) -> None:
    check_parameters(model, model._checks)
    thread_count(getattr(model, "n_jobs", None))


def _restored_ids(tensors: storage.Tensors, content: dict[str, Any], side: str) -> IdIndex:
    description = checked.section(content, side)
    index = storage.unpack_ids(tensors, description, f"ids.{side}")
    name = description.get("name")
    if name is not None:
        checked.text(description, "name")
    order = None
    if f"order.{side}" in tensors:
        most = len(index) - 1
        order = checked.checked_array(
            tensors, f"order.{side}", np.int32, (len(index),), least=0, most=most
        )
    return IdIndex(index.rename(name), side.removesuffix("s"), order)


def _restored_classes(content: dict[str, Any]) -> NDArray[Any]:
    """Return the two answers as they were written."""
    answers = checked.section(content, "answers")
    dtype = np.dtype(checked.text(answers, "type"))
    values = checked.listed(answers, "values", 2)
    if dtype.kind not in "biufU" or dtype.itemsize > _WIDEST_ANSWER or dtype.shape:
        raise storage.FileError(f"answers of the type {str(dtype)[:40]!r}")
    if any(isinstance(value, (dict, list)) for value in values):
        raise storage.FileError("answers that are neither words nor numbers")
    classes = np.array(values, dtype=dtype)
    if classes.tolist() != values or values[0] == values[1]:
        raise storage.FileError(f"the two answers cannot be told apart, or are not of type {dtype}")
    return classes


def _check_search(fitted: dict[str, Any]) -> None:
    """Refuse a record of a search that is no table."""
    if "search" not in fitted:
        return
    checked.section(fitted, "best_params")
    table = checked.section(fitted, "search")
    lengths = {len(checked.listed(table, name)) for name in table}
    if len(lengths) > 1 or any(
        isinstance(value, (dict, list)) for column in table.values() for value in column
    ):
        raise storage.FileError("the record of the search is no table")


def _check_diagnostics(tensors: storage.Tensors, fitted: Any) -> None:
    """Refuse diagnostics of a chain that do not fit their names; what could not be said is NaN."""
    if "draws" not in fitted:
        return
    checked.whole(fitted, "n_sweeps")
    checked.flag(fitted, "settled")
    names = checked.listed(fitted, "diagnostics")
    for place in range(len(names)):
        checked.text(names, place)
    found = tensors.get("diagnostics", np.empty(0))
    known = {"diagnostics": np.where(np.isnan(found), 0.0, found)}
    checked.checked_array(known, "diagnostics", np.float64, (len(names), len(DIAGNOSTICS)))


def _restored_held_out(
    tensors: storage.Tensors, content: dict[str, Any], size: tuple[int, int]
) -> HeldOut:
    """Restore what became of the held-out answers."""

    def part(name: str, dtype: Any, least: float | None = None, most: float | None = None) -> Any:
        return checked.checked_array(tensors, f"held_out.{name}", dtype, (count,), least=least, most=most)

    count: int | None = None
    confidence = part("confidence", np.float64, 0.0, 1.0)
    count = len(confidence)
    sign = part("sign", np.int8, -1, 1)
    if not sign.all():
        raise storage.FileError("a held-out answer is neither yes nor no")
    blanks, disagreement = content.get("blanks"), content.get("disagreement")
    return HeldOut(
        confidence,
        part("yes", bool),
        part("wrong", bool),
        sign,
        part("rows", np.int32, 0, size[0] - 1),
        part("columns", np.int32, 0, size[1] - 1),
        1 if checked.whole(content, "commoner", -1, 1) > 0 else -1,
        checked.whole(content, "also_fitted", 0, count),
        None if blanks is None else checked.whole(content, "blanks"),
        None if disagreement is None else checked.number(content, "disagreement", least=0.0, most=1.0),
    )


def _restored_folded(model: PairClassifier, tensors: storage.Tensors) -> Any:
    """Restore the answers that were folded in."""
    array = checked.checked_array
    sign = array(tensors, "folded.sign", np.int8, (None,), least=-1, most=1)
    if not sign.all():
        raise storage.FileError("an answer that was folded in is neither yes nor no")
    rows, columns = (
        array(tensors, f"folded.{name}", np.int32, (len(sign),), least=0, most=len(index) - 1)
        for name, index in (("rows", model.rows_), ("columns", model.columns_))
    )
    return rows, columns, sign


def _restored_answers(model: PairClassifier, tensors: storage.Tensors, shape: list[int]) -> Answers:
    """Restore the answers of a fit; ids that were folded in later have none."""
    sizes = [
        checked.whole(shape, side, 0, len(index))
        for side, index in enumerate((model.rows_, model.columns_))
    ]
    rows, columns = (
        index.first(size) for index, size in zip((model.rows_, model.columns_), sizes, strict=True)
    )
    array = checked.checked_array
    sign = array(tensors, "answers.sign", np.int8, (None,), least=-1, most=1)
    n = len(sign)
    start = array(tensors, "answers.start", np.int64, (len(rows) + 1,), least=0, most=n)
    index = array(tensors, "answers.index", np.int32, (n,), least=0, most=len(columns) - 1)
    held = array(tensors, "answers.held", bool, (n,))
    if start[0] != 0 or start[-1] != n or (np.diff(start) < 0).any() or not sign.all():
        raise storage.FileError("its answers do not fit its ids")
    owner = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(start))
    everything = Observations.from_codes(rows, columns, owner, index, sign, None, model.classes_)
    return Answers(everything, held, everything.take(~held) if held.any() else everything)
