"""What a model file tells of its data and its fit, beside the model: enough for a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.certificates.bounds import LEAST_DELTA
from onebit.certificates.ladder import Ladder
from onebit.certificates.statements import Certificate, GroupCertificate, SelectiveCertificate
from onebit.completers.predictions import Answers, Codes, Predictions
from onebit.data import checked, storage
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS

MOST_SURPRISES = 50
_BLOCK = 1_000_000

Counts = NDArray[np.int64]
AnyCertificate = Certificate | GroupCertificate | SelectiveCertificate | Ladder


@dataclass(frozen=True)
class Surprises:
    """The fitted answers that a model finds least likely, most surprising first.

    Held-out answers are not among them: whoever saw one that is wrong, mended it and fitted again would
    have no certificate any more.

    Attributes
    ----------
    rows, columns : ndarray of int
        Codes of their rows and columns.
    sign : ndarray of int
        What was answered, -1 or 1.
    probability : ndarray of float
        How likely the model finds that answer.
    """

    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    sign: NDArray[np.int8]
    probability: NDArray[np.float64]

    @classmethod
    def of(cls, predictions: Callable[[Codes, Codes], Predictions], seen: Observations) -> Surprises:
        """Find the most surprising of the answers that a model was fitted to, a block at a time."""
        view, rows = seen.by_row, seen.by_row.owners()
        likelihood = np.empty(seen.n)
        for begin in range(0, seen.n, _BLOCK):
            part = slice(begin, begin + _BLOCK)
            yes = predictions(rows[part], view.index[part]).probability
            likelihood[part] = np.where(view.sign[part] > 0, yes, 1.0 - yes)
        order = np.argsort(likelihood, kind="stable")[:MOST_SURPRISES]
        return cls(rows[order], view.index[order], view.sign[order], likelihood[order])

    @classmethod
    def from_tensors(cls, tensors: storage.Tensors, shape: tuple[int, int]) -> Surprises:
        """Restore what a file holds, checked."""

        def part(name: str, dtype: type, least: float | None, most: float | None) -> NDArray[Any]:
            name = f"record.surprises.{name}"
            return checked.checked_array(tensors, name, dtype, (count,), least=least, most=most)

        count: int | None = None
        rows = part("rows", np.int32, 0, shape[0] - 1)
        count = len(rows)
        return cls(
            rows,
            part("columns", np.int32, 0, shape[1] - 1),
            part("sign", np.int8, -1, 1),
            part("probability", np.float64, 0.0, 1.0),
        )

    def none(self) -> Surprises:
        """Return no surprises: they are answers too."""
        return Surprises(*(getattr(self, part.name)[:0] for part in fields(self)))


@dataclass(frozen=True)
class Record:
    """The data that a model was fitted to, in numbers, and the certificates issued for it.

    Attributes
    ----------
    source : mapping
        Where the answers came from and how they were fitted: file, columns, command, seconds.
    fingerprint : str
        Of ids and answers, whatever their order; those of parts add up.
    n_answers, n_held_out : int
        All answers, and those of them that were held out.
    row_counts, row_yes, column_counts, column_yes : ndarray of int
        Answers, and answers "yes", of every row and column.
    surprises : Surprises
        The fitted answers that the model finds least likely.
    certificates : tuple of Certificate, GroupCertificate, SelectiveCertificate or Ladder
        Those issued so far.
    """

    source: Mapping[str, Any]
    fingerprint: str
    n_answers: int
    n_held_out: int
    row_counts: Counts
    row_yes: Counts
    column_counts: Counts
    column_yes: Counts
    surprises: Surprises
    certificates: tuple[AnyCertificate, ...] = field(default=())

    @classmethod
    def of(
        cls,
        answers: Answers,
        predictions: Callable[[Codes, Codes], Predictions],
        source: Mapping[str, Any] | None = None,
    ) -> Record:
        """Describe the answers of a fit; ``predictions`` are those of the model, of pairs of codes."""
        seen = answers.everything
        row_yes, column_yes = (
            np.add.reduceat(np.append(view.sign > 0, False).astype(np.int64), view.start[:-1])
            * (view.counts > 0)
            for view in (seen.by_row, seen.by_column)
        )
        return cls(
            dict(source or {}),
            seen.fingerprint(),
            seen.n,
            answers.n_held,
            seen.by_row.counts,
            row_yes,
            seen.by_column.counts,
            column_yes,
            Surprises.of(predictions, answers.fitted),
        )

    def with_certificate(self, certificate: AnyCertificate) -> Record:
        """Return this record with one more certificate, unless it is there already."""
        if certificate in self.certificates:
            return self
        return replace(self, certificates=(*self.certificates, certificate))

    def state(self) -> tuple[storage.Tensors, dict[str, Any]]:
        """Return everything as arrays and JSON, for saving."""
        tensors: storage.Tensors = {f"record.{name}": getattr(self, name) for name in _COUNTS}
        for part in fields(Surprises):
            tensors[f"record.surprises.{part.name}"] = getattr(self.surprises, part.name)
        return tensors, {
            "source": dict(self.source),
            "fingerprint": self.fingerprint,
            "n_answers": self.n_answers,
            "n_held_out": self.n_held_out,
            "certificates": [certificate_to_dict(certificate) for certificate in self.certificates],
        }

    @classmethod
    def from_state(
        cls, tensors: storage.Tensors, content: Mapping[str, Any], shape: tuple[int, int]
    ) -> Record:
        """Restore what ``state`` returned, of a model of this many rows and columns; checked."""
        n_answers = checked.whole(content, "n_answers")
        array = checked.checked_array
        counts: dict[str, Counts] = {}
        sizes: list[int] = []
        for side, most in zip(MEMBERS, shape, strict=True):
            count = array(tensors, f"record.{side}_counts", np.int64, (None,), least=0, most=n_answers)
            yes = array(tensors, f"record.{side}_yes", np.int64, count.shape, least=0, most=n_answers)
            if len(count) > most or int(count.sum()) != n_answers or (yes > count).any():
                raise checked.FileError(f"the answers of the {side}s do not add up to {n_answers}")
            counts |= {f"{side}_counts": count, f"{side}_yes": yes}
            sizes.append(len(count))
        source = checked.section(content, "source")
        for name, value in source.items():
            if name in ("seconds", "threshold", "bad_lines") and value is not None:
                checked.number(source, name)
            elif not isinstance(value, (str, int, float, bool, type(None))):
                raise checked.FileError(f"the source of the answers has no plain {name[:40]!r}")
        return cls(
            source=source,
            fingerprint=checked.text(content, "fingerprint"),
            n_answers=n_answers,
            n_held_out=checked.whole(content, "n_held_out", 0, n_answers),
            **counts,
            surprises=Surprises.from_tensors(tensors, (sizes[0], sizes[1])),
            certificates=tuple(map(certificate_from_dict, checked.listed(content, "certificates"))),
        )


_COUNTS = ("row_counts", "row_yes", "column_counts", "column_yes")


KINDS: dict[type, str] = {
    Certificate: "certificate",
    GroupCertificate: "groups",
    SelectiveCertificate: "selective",
    Ladder: "ladder",
}


def certificate_to_dict(certificate: AnyCertificate) -> dict[str, Any]:
    """Return any kind of certificate as JSON."""
    return {"kind": KINDS[type(certificate)]} | _plain(asdict(certificate))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def certificate_from_dict(content: Mapping[str, Any]) -> AnyCertificate:
    """Restore a certificate of any kind."""
    check_certificate(content)
    kind, delta = content["kind"], content["delta"]
    if kind == "certificate":
        return _single({name: value for name, value in content.items() if name != "kind"})
    parts = tuple(_single(part) for part in content["certificates"])
    where = {"where": content["where"]} if "where" in content else {}  # older ones have none
    if kind == "selective":
        shares, thresholds = tuple(content["shares"]), tuple(content["thresholds"])
        return SelectiveCertificate(shares, thresholds, parts, delta, **where)
    if kind == "groups":
        return GroupCertificate(content["by"], tuple(content["groups"]), parts, delta, **where)
    own = content.get("own")
    return Ladder(parts, delta, None if own is None else _single(own))


def _single(content: Mapping[str, Any]) -> Certificate:
    return Certificate(**(dict(content) | {"assumptions": tuple(content["assumptions"])}))


def check_certificate(content: Any) -> None:
    """Refuse what is no certificate of any kind."""
    kind = checked.text(content, "kind")
    checked.number(content, "delta", least=LEAST_DELTA, most=1.0)
    if kind == "certificate":
        _check_single(content)
        return
    if kind not in KINDS.values():
        raise checked.FileError(f"a certificate of the unknown kind {kind[:40]!r}")
    parts = checked.listed(content, "certificates")
    own = content.get("own") if kind == "ladder" else None
    for part in [*parts, *([] if own is None else [own])]:
        _check_single(part, counted=kind != "ladder")
    if not parts and own is None:
        raise checked.FileError(f"a {kind} certificate without certificates of its own")
    if "where" in content:
        checked.text(content, "where")
    if kind == "selective":
        for name in ("shares", "thresholds"):
            values = checked.listed(content, name, len(parts))
            for place in range(len(values)):
                checked.number(values, place, least=0.0, most=1.0)
    if kind == "groups":
        checked.text(content, "by")
        names = checked.listed(content, "groups", len(parts))
        for place in range(len(names)):
            checked.text(names, place)


def _check_single(content: Any, counted: bool = False) -> None:
    checked.number(content, "delta", least=LEAST_DELTA, most=1.0)
    checked.number(content, "bound", least=0.0, most=1.0)
    for name in ("method", "predictor"):
        checked.text(content, name)
    if "of_this_model" in content:
        checked.flag(content, "of_this_model")
    terms, assumptions = checked.section(content, "terms"), checked.listed(content, "assumptions")
    for name in terms:
        checked.number(terms, name)
    if counted or "observed error" in terms:
        for name in ("errors", "held-out answers", "observed error"):
            checked.number(terms, name, least=0.0)
    for place in range(len(assumptions)):
        checked.text(assumptions, place)
