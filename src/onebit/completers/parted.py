"""Models that stay in parts, where one machine does not hold them.

A part is an ordinary model file: the rows of one block (or the columns, where there are more of those),
all columns, and the answers of its rows. ``onebit.load`` reads any of them.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from onebit.certificates.claims import Sheet
from onebit.certificates.hold_out import SAID, HeldOut
from onebit.certificates.statements import Certificate
from onebit.completers.archive import held_out_state
from onebit.completers.base import PairClassifier
from onebit.completers.cluster_work import Done, Wanted, Work, named_indexes
from onebit.completers.clustered import begun, listed, source_and_columns
from onebit.completers.loading import load, restored_held_out
from onebit.completers.predictions import Answers
from onebit.completers.sheets import sheet_of
from onebit.data import checked, files
from onebit.data.ids import IdIndex, pair_columns
from onebit.data.observations import MAX_SIZE
from onebit.data.sides import MEMBERS
from onebit.data.storage import read, write
from onebit.data.tables.answers import Vocabulary
from onebit.engine.cluster.client import PATIENCE
from onebit.engine.cluster.outcome import Part, part_posterior
from onebit.engine.cluster.reading import Block, block_numbers
from onebit.engine.crew import Callback
from onebit.engine.descent import Fit
from onebit.engine.fitting import Fitted
from onebit.model.calibration import Sigmoid
from onebit.model.posterior import Posterior

_CARD, _HELD = "parts.json", "held-out.onebit"
# What a fit that was stopped may have left.
_UNFINISHED = re.compile(r"\.?(part-\d{5}|held-out)\.onebit.*")
ADVICE = "fit again"


@dataclass(frozen=True)
class _Common:
    """What all parts share."""

    model: Any
    done: Any
    side: int
    above: Any
    placings: Any
    classes: NDArray[Any]
    names: tuple[str, ...]


def _write_part(
    block: Block, own: Part, other: Part, loading: Any, labels: pd.Index, common: _Common, path: str
) -> list[str]:
    """Write the model of a block's rows; return what to warn of."""
    side = common.side
    indexes = named_indexes(side, common.names, block.labels, labels)
    placings = list(common.placings)
    if placings[1 - side] is not None:
        placings[1 - side] = replace(placings[1 - side], loading=loading)
    posterior = replace(part_posterior(own, other, side, common.above), placings=tuple(placings))
    model = clone(common.model)
    found = common.done(posterior)
    seen = replace(block.seen, rows=indexes[0], columns=indexes[1], classes=common.classes)
    model._know_from_cluster(found, indexes[0], indexes[1], common.classes, seen.n)
    model._answers = Answers(seen)
    model.save(path)
    return list(found.advice)


class _Keeper:
    """Makes what a model keeps of a part's posterior."""

    def __init__(self, done: Done) -> None:
        self.keep, self.calibration, self.course = done.keep, done.calibration, done.course

    def __call__(self, posterior: Posterior) -> Any:
        return self.keep(Fitted(Fit(posterior, *self.course), self.calibration))


def fit_parts(
    client: Any,
    source: Any,
    completer: PairClassifier,
    folder: str | os.PathLike[str],
    *,
    row: str | None = None,
    column: str | None = None,
    answer: str | None = None,
    weight: str | None = None,
    threshold: float | None = None,
    yes: Sequence[str] | None = None,
    no: Sequence[str] | None = None,
    blank: Sequence[str] | None = None,
    certify: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callback | None = None,
    patience: float = PATIENCE,
    blocks: int | None = None,
) -> PartedModel:
    """Fit on a Dask cluster, and leave the model in parts: a file for each block of rows.

    Parameters
    ----------
    client, source, completer
        As for ``fit``.
    folder : path
        Where the parts go: a new or an empty folder that this machine and all workers see, or one in
        which such a fit was stopped.
    row, column, answer, weight, threshold, yes, no, blank
        How the source is read, as for ``fit``.
    certify, checkpoint, callback, patience, blocks
        As for ``fit``.

    Returns
    -------
    PartedModel
    """
    place = Path(folder).resolve()
    place.mkdir(parents=True, exist_ok=True)
    if any(not _UNFINISHED.fullmatch(path.name) for path in place.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name a new folder for the parts")
    given, names = source_and_columns(source, row, column, answer, weight)
    wanted = Wanted(certify, callback, checkpoint, patience, blocks)
    words = Vocabulary(threshold, listed(yes), listed(no), listed(blank))
    with begun(completer, client, given, names, words, wanted) as work:
        advice = _write_parts(work, work.done(), place)
    for text in advice:
        warnings.warn(f"{type(completer).__name__}: {text}", ConvergenceWarning, stacklevel=2)
    return PartedModel(place)


def _write_parts(work: Work, done: Done, folder: Path) -> list[str]:
    """Have each block write its part, and write what they have in common; return what to warn of."""
    fitted, cluster, outcome, taken = done.fitted, work.cluster, done.outcome, work.taken
    side, count = fitted.side, len(fitted.futures)
    states, placings = done.descent.states, list(done.descent.known.placings)
    sizes = [facts.size for facts in fitted.facts]
    loadings: list[Any] = [None] * count
    placing = placings[1 - side]
    if placing is not None:
        loadings = list(np.split(placing.loading, np.cumsum(sizes)[:-1]))
        placings[1 - side] = replace(placing, loading=np.empty((0, 0), np.float32))
    above = states.hyper, states.hierarchy
    common = _Common(work.model, _Keeper(done), side, above, placings, taken.classes, taken.names)
    paths = [str(folder / f"part-{k:05d}.onebit") for k in range(count)]
    fixed = [[value] * count for value in (taken.labels, common)]
    advice = cluster.small(
        cluster.each(
            _write_part, work.blocks.futures, outcome.own, [outcome.other] * count, loadings, *fixed,
            paths, what="write-part",
        ),
        "writing the parts",
    )  # fmt: skip
    if done.held is not None:
        curve = Sigmoid() if done.calibration is None else done.calibration
        starts = np.concatenate([[0], np.cumsum(sizes)])
        held = work.counted(done, curve, np.arange(starts[-1], dtype=np.int32), starts)
        write(folder / _HELD, "held-out", *held_out_state(held))
    card = {"side": side, "sizes": sizes, "others": fitted.others, "answers": work.blocks.n}
    with files.written_whole(folder / _CARD) as temporary:
        temporary.write_text(json.dumps(card), encoding="utf-8")
    return list(advice[0])


def _parts_of(ids: Any, side: int, parts: int) -> NDArray[np.int64]:
    """Return the part that each id of the divided side belongs to."""
    # Equal ids have one representation here as in a fit: 3, 3.0 and a category 3 are one.
    index, codes = IdIndex.from_values(ids, MEMBERS[side])
    labels = index.labels
    if labels.inferred_type == "floating" and (labels == labels.astype(np.int64)).all():
        labels = labels.astype(np.int64)
    return block_numbers(labels, parts)[codes]


@lru_cache(maxsize=2)
def _loaded(path: str, changed: int, number: int, size: int, side: int, parts: int) -> Any:
    """Load a part, and see that it is the one; a file that has changed is loaded anew."""
    found = load(path)
    index = (found.rows_, found.columns_)[side]
    if len(index) != size or (_parts_of(index.values, side, parts) != number).any():
        raise checked.FileError(f"{path} is not part {number} of this model; {ADVICE}")
    return found


class PartedModel:
    """A model in parts, as ``fit_parts`` left it.

    Parameters
    ----------
    folder : path
        Where the parts lie.

    Attributes
    ----------
    shape_ : tuple of int
        The numbers of rows and columns.
    n_observations_ : int
        The number of answers.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).resolve()
        path = self.folder / _CARD
        if not path.is_file():
            raise FileNotFoundError(f"{folder} holds no model in parts: there is no {_CARD}")
        with checked.taken_apart(path, ADVICE):
            card = checked.parsed(path.read_bytes())
            self.side = checked.whole(card, "side", 0, 1)
            listed = checked.listed(card, "sizes")
            self.sizes = [checked.whole(listed, place, 0, MAX_SIZE) for place in range(len(listed))]
            if not any(self.sizes):
                raise checked.FileError("it has no part with a row")
            shape = [checked.whole(card, "others", 1)] * 2
            shape[self.side] = sum(self.sizes)
            self.n_observations_ = checked.whole(card, "answers", 1)
        self.shape_ = shape[0], shape[1]

    def part(self, number: int) -> Any:
        """Return one part: an ordinary model of its rows."""
        path = self.folder / f"part-{number:05d}.onebit"
        if not path.is_file():
            raise FileNotFoundError(
                f"part {number} of {len(self.sizes)} is not in {self.folder}; {ADVICE}"
            )
        place = number, self.sizes[number], self.side, len(self.sizes)
        return _loaded(str(path), path.stat().st_mtime_ns, *place)

    def __repr__(self) -> str:
        rows, columns = self.shape_
        return f"PartedModel({rows} rows, {columns} columns, {len(self.sizes)} parts)"

    def parts_of(self, ids: Any) -> NDArray[np.int64]:
        """Return the part that each id of the divided side belongs to, known or not."""
        return _parts_of(ids, self.side, len(self.sizes))

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of "no" and "yes" of pairs.

        Parameters
        ----------
        X : two-column table or Dask dataframe
            Row ids and column ids. Of a Dask dataframe the result is a Dask series, of the probability of
            "yes" alone: nothing is computed before it is asked for, partition by partition, each with the
            parts that it needs.

        Returns
        -------
        ndarray of shape (n, 2) or Dask series
        """
        if hasattr(X, "map_partitions"):
            if len(X.columns) != 2:
                raise ValueError(
                    "X must have two columns, row ids and column ids; got "
                    f"{', '.join(map(str, X.columns))}"
                )
            meta = pd.Series(dtype=float, name="probability")
            return X.map_partitions(_of_partition, str(self.folder), meta=meta)
        rows, columns = pair_columns(X)
        number = self.parts_of(columns if self.side else rows)
        found = np.full((len(number), 2), np.nan)
        pairs = pd.DataFrame(
            {"row": pd.Series(np.asarray(rows)), "column": pd.Series(np.asarray(columns))}
        )
        for part in np.unique(number):
            here = number == part
            found[here] = self.part(int(part)).predict_proba(pairs[here])
        return found

    def recommend(self, n: int = 10) -> Any:
        """Return the ``n`` columns that each row most likely says "yes" to, as a Dask dataframe.

        A partition for each part: row id, rank, column id and probability, without what a row has
        answered. Only where blocks divide the rows.
        """
        if self.side == 1:
            raise ValueError(
                "this model is divided by columns, of which there are more than rows, and no part knows "
                "all columns of a row; fit the table the other way round"
            )
        from dask.dataframe import from_map

        used = [k for k, size in enumerate(self.sizes) if size]
        meta = self.part(used[0]).recommend(n=n).iloc[:0]
        return from_map(_best, used, folder=str(self.folder), n=n, meta=meta)

    def certify(self, delta: float = 0.05) -> Certificate:
        """Bound the error rate of all predictions of all parts together, with probability 1 - delta."""
        return self._held_out().certify(delta)

    def sheet(self, delta: float = 0.05, shift: float = 2.0) -> Sheet:
        """Return all that held-out answers say of all parts together, on one sheet, all at once."""
        return sheet_of(self._held_out(), SAID, delta, shift)

    def _held_out(self) -> HeldOut:
        path = self.folder / _HELD
        if not path.is_file():
            raise ValueError("nothing was held out; fit with certify=0.1")
        tensors, content = read(path, "held-out")
        with checked.taken_apart(path, ADVICE):
            return restored_held_out(tensors, content, self.shape_)


def _of_partition(pairs: pd.DataFrame, folder: str) -> pd.Series:
    found = PartedModel(folder).predict_proba(pairs)[:, 1] if len(pairs) else np.empty(0)
    return pd.Series(found, index=pairs.index, name="probability")


def _best(number: int, folder: str, n: int) -> pd.DataFrame:
    return PartedModel(folder).part(number).recommend(n=n)
