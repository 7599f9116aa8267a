"""From a source of answers to blocks on a cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.ipc
from numpy.typing import NDArray

from onebit.data import checked, files
from onebit.data.ids import IdIndex
from onebit.data.sides import MEMBERS
from onebit.data.tables.answers import Vocabulary
from onebit.data.tables.problems import TableError
from onebit.engine.cluster.blocks import Blocks
from onebit.engine.cluster.client import Cluster
from onebit.engine.cluster.reading import (
    ADVICE,
    Plan,
    block_of,
    check_surveys,
    distinct_ids,
    meanings,
    sorted_labels,
    split,
    survey,
    united,
    whole_ids,
)

# Answers of a block, about: enough for a task to be worth its while. Blocks are counted in powers of
# two, from the number of answers alone, because the order of sums follows from them.
BLOCK_ANSWERS = 1 << 22
_LEAST_BLOCKS, MOST_BLOCKS = 8, 8192
_PLAN, _LABELS = "plan.json", "labels.arrow"


@dataclass(frozen=True)
class Source:
    """Where answers come from.

    Attributes
    ----------
    name : str
        For messages.
    pieces : list
        Pieces of Parquet files, or futures of frames.
    names : tuple of str
        The columns of row ids, column ids and answers, and that of weights if there is one.
    words : Vocabulary
        What answers are written as.
    """

    name: str
    pieces: list[Any]
    names: tuple[str, ...]
    words: Vocabulary


@dataclass(frozen=True)
class Taken:
    """Answers that were taken in: the blocks, the ids of the side that is not divided, the classes."""

    blocks: Blocks
    labels: Any
    others: IdIndex
    classes: NDArray[Any]
    names: tuple[str, ...]


def block_count(answers: int) -> int:
    """Return into how many blocks so many answers are cut."""
    wanted = max(1, -(-answers // BLOCK_ANSWERS))
    return min(max(1 << (wanted - 1).bit_length(), _LEAST_BLOCKS), MOST_BLOCKS)


def taken_in(cluster: Cluster, source: Source, blocks: int | None = None) -> Taken:
    """Bring the answers of a source to a cluster, cut into blocks by the ids of the larger side.

    Parameters
    ----------
    cluster : Cluster
        Where to.
    source : Source
        Where from. What an earlier run has split is taken up as it lies.
    blocks : int, optional
        How many blocks; the number of answers says so by itself.
    """
    folder = cluster.folder / "answers"
    if not (folder / _PLAN).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _split(cluster, source, folder, blocks)
    plan, paths, classes, sizes = _read_plan(folder)
    labels = read_labels(str(folder / _LABELS))
    here = cluster.submit(read_labels, str(folder / _LABELS), what="ids")
    many = range(plan.blocks)
    fixed = [[value] * plan.blocks for value in (plan, paths, len(labels))]
    futures = cluster.neighbours(block_of, many, *fixed, what="read-block")
    cluster.small(cluster.each(bool, futures, what="wait-for-block"), "reading blocks")
    cluster.settle(futures)
    found = Blocks.of(cluster, plan.side, len(labels), futures, len(plan.names) > 3)
    # Answers without weight were counted, too, when they were looked through.
    if len(labels) != sizes[1] or found.n > sizes[0] or (found.n < sizes[0] and not found.weighted):
        raise TableError(f"{folder} does not hold what was written there; {ADVICE}")
    others = IdIndex(labels, MEMBERS[1 - plan.side])
    return Taken(found, here, others, classes, plan.names)


def _split(cluster: Cluster, source: Source, folder: Path, blocks: int | None) -> None:
    """Look through all pieces, and split them into files by blocks."""
    pieces, count = source.pieces, len(source.pieces)
    if not pieces:
        raise TableError(f"{source.name} holds no answers")
    # Not tried again: what is wrong with a table stays wrong.
    looked = cluster.each(survey, pieces, [source.names] * count, what="survey", retries=0)
    surveys = cluster.small(looked, f"looking through {source.name}")
    check_surveys(surveys, source.name)
    signs = meanings(surveys, source.words, source.name)
    answers = sum(number for part in surveys for text, number in part.found.items() if signs[text] != 0)
    if not answers:
        raise TableError(f"{source.name} holds no answers, only blanks")
    sizes = [distinct_ids([part.sketches[side] for part in surveys]) for side in (0, 1)]
    side = 0 if sizes[0] >= sizes[1] else 1
    plan = Plan(source.names, signs, side, blocks or block_count(answers))
    parts = cluster.each(whole_ids, pieces, [plan] * count, what="distinct-ids")
    labels = cluster.submit(sorted_labels, cluster.added(parts, united, "unite-ids"), what="sort-ids")
    found: pd.Index = cluster.result(labels, f"coding the ids of {source.name}")
    _write_labels(found, folder / _LABELS)
    paths = [str(folder / f"split-{k:05d}.arrow") for k in range(count)]
    cluster.small(
        cluster.each(split, pieces, range(count), [plan] * count, [labels] * count, paths, what="split"),
        f"splitting {source.name}",
    )
    classes = source.words.classes
    content = {
        "answers": answers,
        "others": len(found),
        "names": plan.names,
        "signs": plan.signs,
        "side": side,
        "blocks": plan.blocks,
        "pieces": count,
        "classes": classes.tolist(),
    }
    with files.written_whole(folder / _PLAN) as temporary:
        temporary.write_text(json.dumps(content), encoding="utf-8")


def _read_plan(folder: Path) -> tuple[Plan, list[str], NDArray[Any], tuple[int, int]]:
    """Return how pieces were split, where to, the classes, and the numbers of answers and other ids."""
    path = folder / _PLAN
    with checked.taken_apart(path, ADVICE):
        content = checked.parsed(path.read_bytes())
        names = tuple(
            checked.text(checked.listed(content, "names"), k) for k in range(len(content["names"]))
        )
        plan = Plan(
            names,
            checked.section(content, "signs"),
            checked.whole(content, "side", 0, 1),
            checked.whole(content, "blocks", 1, MOST_BLOCKS),
        )
        if len(names) not in (3, 4):
            raise checked.FileError(f"it names {len(names)} columns")
        sizes = checked.whole(content, "answers", 1), checked.whole(content, "others", 1)
        count = checked.whole(content, "pieces", 1)
        classes = np.array(checked.listed(content, "classes", 2))
    return plan, [str(folder / f"split-{k:05d}.arrow") for k in range(count)], classes, sizes


def _write_labels(labels: pd.Index, path: Path) -> None:
    batch = pa.record_batch([pa.array(labels)], names=["id"])
    with files.written_whole(path) as temporary, pa.ipc.new_file(str(temporary), batch.schema) as file:
        file.write_batch(batch)


def read_labels(path: str) -> pd.Index:
    """Return the ids of the side that is not divided."""
    try:
        with pa.memory_map(path) as source:
            table = pa.ipc.open_file(source).read_all()
            table.validate(full=True)
            column = table.column(0)
            found = pd.Index(column.to_pandas())
    except (OSError, IndexError, pa.ArrowException) as error:
        raise TableError(f"{path} cannot be read: {error}; {ADVICE}") from None
    known = column.type in (pa.int64(), pa.string(), pa.large_string())
    if not known or column.null_count or not found.is_unique:
        raise TableError(f"{path} holds ids that are none; {ADVICE}")
    return found
