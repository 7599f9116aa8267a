"""What a model file tells of its data and its fit, beside the model: enough for a report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onebit import storage
from onebit.certificates import Certificate, GroupCertificate, SelectiveCertificate
from onebit.ladder import Ladder
from onebit.observations import Observations

if TYPE_CHECKING:
    from onebit.estimator import PairClassifier

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
    def of(cls, model: PairClassifier, seen: Observations) -> Surprises:
        """Find the most surprising of the answers that a model was fitted to, a block at a time."""
        view, rows = seen.by_row, seen.by_row.owners()
        likelihood = np.empty(seen.n)
        for begin in range(0, seen.n, _BLOCK):
            part = slice(begin, begin + _BLOCK)
            yes = model.predictions(rows[part], view.index[part]).probability
            likelihood[part] = np.where(view.sign[part] > 0, yes, 1.0 - yes)
        order = np.argsort(likelihood, kind="stable")[:MOST_SURPRISES]
        return cls(rows[order], view.index[order], view.sign[order], likelihood[order])

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
        A SHA-256 of ids and answers, which does not depend on their order.
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
    def of(cls, model: PairClassifier, source: Mapping[str, Any] | None = None) -> Record:
        """Describe the answers of a model that has kept them (``fit(..., certify=share)``)."""
        answers = model.kept_answers()
        seen = answers.everything
        row_yes, column_yes = (
            np.add.reduceat(np.append(view.sign > 0, False).astype(np.int64), view.start[:-1])
            * (view.counts > 0)
            for view in (seen.by_row, seen.by_column)
        )
        return cls(
            dict(source or {}),
            fingerprint(seen),
            seen.n,
            int(answers.held.sum()),
            seen.by_row.counts,
            row_yes,
            seen.by_column.counts,
            column_yes,
            Surprises.of(model, answers.fitted),
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
    def from_state(cls, tensors: storage.Tensors, content: Mapping[str, Any]) -> Record:
        """Restore what ``state`` returned."""
        surprises = Surprises(*(tensors[f"record.surprises.{part.name}"] for part in fields(Surprises)))
        return cls(
            source=content["source"],
            fingerprint=content["fingerprint"],
            n_answers=content["n_answers"],
            n_held_out=content["n_held_out"],
            **{name: tensors[f"record.{name}"] for name in _COUNTS},
            surprises=surprises,
            certificates=tuple(certificate_from_dict(part) for part in content["certificates"]),
        )


_COUNTS = ("row_counts", "row_yes", "column_counts", "column_yes")


def fingerprint(seen: Observations) -> str:
    """Return a SHA-256 of ids and answers, which does not depend on the order they came in."""
    digest = hashlib.sha256()
    for name, index in (("rows", seen.rows), ("columns", seen.columns)):
        ids, description = storage.pack_ids(index.labels, name)
        digest.update(json.dumps(description, sort_keys=True).encode())
        digest.update(np.ascontiguousarray(ids[name]).tobytes())
    view = seen.by_row
    for array in (view.start, view.index, view.sign, view.weight):
        digest.update(array.tobytes())
    return digest.hexdigest()


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
    kind, delta = content["kind"], content.get("delta")
    if kind == "certificate":
        return _single({name: value for name, value in content.items() if name != "kind"})
    parts = tuple(_single(part) for part in content["certificates"])
    if kind == "selective":
        return SelectiveCertificate(tuple(content["shares"]), tuple(content["thresholds"]), parts, delta)  # type: ignore[arg-type]
    if kind == "groups":
        return GroupCertificate(content["by"], tuple(content["groups"]), parts, delta)  # type: ignore[arg-type]
    if kind != "ladder":
        raise ValueError(f"a certificate of kind {kind!r}")
    own = content.get("own")
    return Ladder(parts, delta, None if own is None else _single(own))  # type: ignore[arg-type]


def _single(content: Mapping[str, Any]) -> Certificate:
    return Certificate(**(dict(content) | {"assumptions": tuple(content["assumptions"])}))
