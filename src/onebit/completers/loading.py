"""Fitted models from their files: the only module that knows every class of them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.certificates.hold_out import HeldOut
from onebit.certificates.new_rows import ROW_COUNTS, HeldRows
from onebit.certificates.whence import WHERE
from onebit.completers.archive import restored_parameters
from onebit.completers.auto import AutoCompleter
from onebit.completers.base import PairClassifier
from onebit.completers.gibbs import GibbsCompleter
from onebit.completers.hinge import HingeCompleter
from onebit.completers.logistic import LogisticCompleter
from onebit.completers.nuclear import NuclearNormCompleter
from onebit.completers.parameters import check_parameters
from onebit.completers.predictions import Answers
from onebit.completers.record import Record
from onebit.completers.updates import Updates
from onebit.data import checked, storage
from onebit.data.features import Encoder, Encoders, restored_encoder, restored_matrix
from onebit.data.ids import IdIndex
from onebit.data.observations import Observations
from onebit.data.sides import SIDES
from onebit.data.weights import weights_of
from onebit.engine.cpu.threads import thread_count

KINDS: dict[str, type[PairClassifier]] = {
    kind.__name__: kind
    for kind in (AutoCompleter, GibbsCompleter, HingeCompleter, LogisticCompleter, NuclearNormCompleter)
}

# Of the type that answers are written as: a name such as U900000000 would take gigabytes.
_WIDEST_ANSWER = 2**20


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
    if not isinstance(name, str) or name not in KINDS:
        raise storage.FileError(f"{path} holds a {name!r}, which this package does not know")
    with checked.taken_apart(path, "it is not a whole model; fit it again"):
        return _restored(name, tensors, content)


def _restored(name: str, tensors: storage.Tensors, content: dict[str, Any]) -> PairClassifier:
    model: PairClassifier = KINDS[name](**restored_parameters(checked.section(content, "parameters")))
    _check_settings(model)
    rows, columns = (_restored_ids(tensors, content, side) for side in SIDES)
    model._know(rows, columns, _restored_classes(content), checked.whole(content, "n_observations"))
    size = (len(rows), len(columns))
    if 0 in size:
        raise storage.FileError(f"it has {size[0]} rows and {size[1]} columns")
    if "certifiable" in content:
        model._certifiable = checked.flag(content, "certifiable")
    if "held_out" in content:
        model.held_out_ = restored_held_out(tensors, checked.section(content, "held_out"), size)
    if "held_rows" in content:
        model.held_rows_ = _restored_held_rows(tensors, checked.section(content, "held_rows"), size[0])
    held, older = model.held_out_, False
    if held is not None and model.held_rows_ is not None and held.whence == "fit":
        # Files of before, and the certificates in their records, did not say of which rows they are.
        model.held_out_, older = replace(held, whence="fitted rows"), True
    fitted = checked.section(content, "fitted")
    model._restore(tensors, fitted)
    if "features" in content:
        model._encoders = _restored_encoders(model, tensors, checked.section(content, "features"))
    chosen = getattr(model, "completer_", None)
    if chosen is not None:
        _check_settings(chosen)
    if "record" in content:
        model.record_ = Record.from_state(tensors, checked.section(content, "record"), size)
        if older:
            model.record_ = replace(model.record_, certificates=())
    if "answers.sign" in tensors:
        model._answers = _restored_answers(model, tensors, checked.listed(content, "answers_shape", 2))
    if "folded.sign" in tensors:
        model._folded = [_restored_folded(model, tensors)]
    model.updates_ = _restored_updates(tensors, content, size)
    return model


def _check_settings(model: PairClassifier) -> None:
    check_parameters(model, model._checks)
    thread_count(getattr(model, "n_jobs", None))


def _restored_ids(tensors: storage.Tensors, content: dict[str, Any], side: str) -> IdIndex:
    description = checked.section(content, side)
    index = storage.unpack_ids(tensors, description, f"ids.{side}")
    name = description.get("name")
    if name is not None and any(0xD800 <= ord(c) < 0xE000 for c in checked.text(description, "name")):
        raise storage.FileError(f"the name of its {side} is no Unicode text")
    order = None
    if f"order.{side}" in tensors:
        most = len(index) - 1
        order = checked.checked_array(
            tensors, f"order.{side}", np.int32, (len(index),), least=0, most=most
        )
    return IdIndex(index.rename(name), side.removesuffix("s"), order)


def _restored_encoders(
    model: PairClassifier, tensors: storage.Tensors, content: dict[str, Any]
) -> Encoders:
    """Return how features become numbers, if that fits what was fitted."""
    found: list[Encoder | None] = [None, None]
    for side, name in enumerate(SIDES):
        if name not in content:
            continue
        encoder = restored_encoder(tensors, f"features.{name}", checked.section(content, name))
        placing = model.predictor_.posterior.placings[side]
        if placing is not None and len(placing.features) != len(encoder.names):
            raise storage.FileError(f"its features of {name} do not fit its posterior")
        found[side] = encoder
    return found[0], found[1]


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


def restored_held_out(
    tensors: storage.Tensors, content: dict[str, Any], size: tuple[int, int]
) -> HeldOut:
    """Restore what became of the held-out answers."""

    def part(name: str, dtype: Any, least: float | None = None, most: float | None = None) -> Any:
        return checked.checked_array(tensors, f"held_out.{name}", dtype, (count,), least=least, most=most)

    count: int | None = None
    confidence = part("confidence", np.float64, 0.0, 1.0)
    count = len(confidence)
    sign = part("sign", np.int8, -1, 1)
    if count == 0 or not sign.all():
        raise storage.FileError("there are no held-out answers, or one is neither yes nor no")
    yes, wrong = part("yes", bool), part("wrong", bool)
    differs = yes != (sign > 0)
    # A score of exactly zero is no yes, and counts as wrong.
    if (differs & ~wrong).any() or (wrong & ~differs & yes).any():
        raise storage.FileError("what was counted as wrong contradicts the held-out answers")
    blanks, disagreement = content.get("blanks"), content.get("disagreement")
    return HeldOut(
        confidence,
        yes,
        wrong,
        sign,
        part("rows", np.int32, 0, size[0] - 1),
        part("columns", np.int32, 0, size[1] - 1),
        part("fitted_too", bool),
        part("open", bool),
        1 if checked.whole(content, "commoner", -1, 1) > 0 else -1,
        None if blanks is None else checked.whole(content, "blanks"),
        None if disagreement is None else checked.number(content, "disagreement", least=0.0, most=1.0),
        _restored_whence(content),
        checked.text(content, "chosen") if "chosen" in content else "",
    )


def _restored_held_rows(tensors: storage.Tensors, content: dict[str, Any], rows: int) -> HeldRows:
    """Restore what became of the rows that were held out."""
    listed = checked.listed(content, "given")
    given = tuple(checked.whole(listed, place, 0, 2**31) for place in range(len(listed)))
    array = checked.checked_array
    judged = array(tensors, "held_rows.judged", np.int64, (None, len(given)), least=0)
    wrong, commoner = (
        array(tensors, f"held_rows.{name}", np.int64, judged.shape, least=0) for name in ROW_COUNTS[1:]
    )
    if not judged.any() or len(judged) > rows or list(given) != sorted(set(given)):
        raise storage.FileError("its held-out rows have no other answers, or are more than its rows")
    if (wrong > judged).any() or (commoner > judged).any():
        raise storage.FileError("more answers of held-out rows are wrong than there are")
    return HeldRows(given, judged, wrong, commoner)


def _restored_whence(content: dict[str, Any]) -> str:
    """Restore where held-out answers come from; older files have only a fit's."""
    whence = checked.text(content, "whence") if "whence" in content else "fit"
    if whence not in WHERE:
        raise storage.FileError(f"held-out answers of {whence[:40]!r}")
    return whence


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


def _restored_updates(
    tensors: storage.Tensors, content: dict[str, Any], size: tuple[int, int]
) -> Updates:
    """Restore what a model was updated with; without these answers its ids count as fitted."""
    found = Updates(size)
    if "updates" in content:
        found = Updates.from_state(tensors, checked.section(content, "updates"), size)
    return found if "folded.sign" in tensors and "updates" in content else replace(found, since=size)


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
    weight = None
    if "answers.weight" in tensors:
        weight = weights_of(array(tensors, "answers.weight", np.float32, (n,), least=0, most=1e30), n)
    owner = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(start))
    everything = Observations.from_codes(rows, columns, owner, index, sign, weight, model.classes_)
    told = [
        None if encoder is None or f"features.{name}.start" not in tensors
        else restored_matrix(tensors, f"features.{name}", encoder, size)
        for name, encoder, size in zip(SIDES, model._encoders, sizes, strict=True)
    ]  # fmt: skip
    everything = everything.told((told[0], told[1]))
    return Answers(everything, int(held.sum()), None, held)
