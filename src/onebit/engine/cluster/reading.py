"""From files or frames to blocks of answers: every step is a task for one piece of the input.

A *piece* is some row groups of a Parquet file, or a partition of a Dask frame. Pieces are looked through
first (how many lines, which answers, how many ids), then each is split by the hash of the ids of the
larger side, into one Arrow file with one batch for each block.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from onebit.data.hashing import id_hashes
from onebit.data.ids import IdIndex
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS
from onebit.data.tables.answers import BAD, BLANK, Vocabulary
from onebit.data.tables.encoding import distinct
from onebit.data.tables.problems import TableError, shown
from onebit.data.weights import LARGEST_WEIGHT

# Lines of a Parquet file that one task reads, unless a row group alone has more.
LINES = 2_000_000
# Ids of each side whose hashes are the smallest: enough to tell which side is larger.
_SKETCH = 4096
# Different answers that are told apart; ratings need a threshold far below.
_MOST_ANSWERS = 10_000
_KEY = 7  # of the hashes that say which block an id belongs to
_NAMES = ("id", "other", "sign", "weight")
ADVICE = "delete the folder of the checkpoint to start anew"


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """Yield an open Parquet file; what is wrong with it names it."""
    try:
        with pa.parquet.ParquetFile(path) as file:
            yield file
    except TableError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise TableError(f"{path} cannot be read as Parquet: {error}") from None


@dataclass(frozen=True)
class Piece:
    """Some row groups of a Parquet file."""

    path: str
    groups: tuple[int, ...]

    def columns(self, names: Sequence[str]) -> list[Any]:
        """Return some columns."""
        with opened(self.path) as file:
            table = file.read_row_groups(list(self.groups), columns=list(dict.fromkeys(names)))
        for name in names:
            if name not in table.column_names:
                raise TableError(f"{self.path} has no column {shown(name)}, which other files have")
        return [table.column(name) for name in names]


class Survey(NamedTuple):
    """What a piece holds: lines, answers and how often, kinds of ids, sketches of them, weights."""

    lines: int
    found: dict[str, int]
    kinds: tuple[str, str]
    sketches: tuple[NDArray[np.uint64], NDArray[np.uint64]]
    weights: tuple[float, float, int]


@dataclass(frozen=True)
class Plan:
    """How pieces are split.

    Attributes
    ----------
    names : tuple of str
        The columns of row ids, of column ids and of answers, and that of weights if there is one.
    signs : dict
        What each answer as it is written means: 1, -1 or 0 for a blank.
    side : int
        The side that blocks divide: 0 for rows.
    blocks : int
        Into how many.
    """

    names: tuple[str, ...]
    signs: Mapping[str, int]
    side: int
    blocks: int


def parquet_files(path: str | os.PathLike[str] | Sequence[str]) -> list[str]:
    """Return the Parquet files that a path, a folder, a pattern or a list of these names."""
    if not isinstance(path, (str, os.PathLike)):
        return list(dict.fromkeys(file for part in path for file in parquet_files(part)))
    text = os.fspath(path)
    if os.path.isdir(text):
        found = glob.glob(os.path.join(glob.escape(text), "**", "*.parquet"), recursive=True)
    else:
        found = [text] if os.path.isfile(text) else glob.glob(text, recursive=True)
    files = sorted(os.path.abspath(name) for name in found if os.path.isfile(name))
    if not files:
        raise FileNotFoundError(f"no Parquet files at {text}")
    return files


def parquet_pieces(files: Sequence[str]) -> list[Piece]:
    """Cut Parquet files into pieces of a few million lines."""
    pieces = []
    for path in files:
        with opened(path) as file:
            meta = file.metadata
            sizes = [meta.row_group(k).num_rows for k in range(meta.num_row_groups)]
        groups: list[int] = []
        for k, size in enumerate(sizes):
            if groups and sum(sizes[g] for g in groups) + size > LINES:
                pieces.append(Piece(path, tuple(groups)))
                groups = []
            groups.append(k)
        if groups:
            pieces.append(Piece(path, tuple(groups)))
    return pieces


def _columns(piece: Any, names: Sequence[str]) -> list[Any]:
    if isinstance(piece, Piece):
        return piece.columns(names)
    return [pa.array(piece[name], from_pandas=True) for name in names]


def _where(piece: Any) -> str:
    return piece.path if isinstance(piece, Piece) else "the frame"


def _ids(column: Any, side: int, where: str) -> pa.Array:
    """Return ids as 64-bit integers or text."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        raise TableError(
            f"{where}: a {MEMBERS[side]} id is missing; drop such lines, or name the {MEMBERS[side]}"
        )
    if pa.types.is_integer(column.type):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            raise TableError(
                f"{where}: a {MEMBERS[side]} id is above {2**63 - 1}; use text instead"
            ) from None
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.large_string())
    if str(column.type) == "string_view":
        return column.cast(pa.large_string())
    raise TableError(
        f"{where}: {MEMBERS[side]} ids are of type {column.type}; make them whole numbers or text"
    )


def _weights(column: Any, where: str) -> NDArray[np.float32]:
    try:
        values = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=float)
    except (pa.ArrowException, TypeError):
        raise TableError(f"{where}: weights are of type {column.type}; they are numbers") from None
    bad = ~((values >= 0) & (values < 1e30))
    if bad.any():
        raise TableError(
            f"{where}: a weight is {values[int(np.argmax(bad))]}; weights are not negative and below 1e30"
        )
    return values.astype(np.float32)


def _texts(values: pa.Array) -> list[str]:
    return [value.decode("utf-8", "replace") for value in values.to_pylist()]


def survey(piece: Any, names: Sequence[str]) -> Survey:
    """Look through a piece."""
    where = _where(piece)
    rows, columns, answers, *weight = _columns(piece, names)
    values, codes = distinct(answers)
    if len(values) > _MOST_ANSWERS:
        raise TableError(
            f"{where}: {len(values):,} different answers in {shown(names[2])}; answers are yes and no, "
            "or numbers with a threshold"
        )
    counts = np.bincount(codes[codes >= 0], minlength=len(values))
    found = {text: int(count) for text, count in zip(_texts(values), counts, strict=True)}
    sides = [_ids(column, side, where) for side, column in enumerate((rows, columns))]
    sketches = [_sketch(ids) for ids in sides]
    weights = (0.0, 0.0, 0)
    if weight:
        single = _weights(weight[0], where)
        counted = single[single > 0]
        weights = float(counted.sum(dtype=float)), float(single.max(initial=0.0)), len(counted)
    kinds = tuple("number" if ids.type == pa.int64() else "text" for ids in sides)
    return Survey(len(answers), found, (kinds[0], kinds[1]), (sketches[0], sketches[1]), weights)


def _sketch(ids: pa.Array) -> NDArray[np.uint64]:
    return _smallest(id_hashes(pd.Index(pc.unique(ids).to_pandas()), _KEY))


def _smallest(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.unique(hashes)[:_SKETCH]


def distinct_ids(sketches: Sequence[NDArray[np.uint64]]) -> float:
    """Return about how many ids there are, from the smallest hashes of parts; exact for few."""
    together = _smallest(np.concatenate(sketches))
    if len(together) < _SKETCH:
        return float(len(together))
    return (_SKETCH - 1) / (float(together[-1]) / 2.0**64)


def meanings(surveys: Sequence[Survey], words: Vocabulary, source: str) -> dict[str, int]:
    """Return what each answer as it is written means; a bad one is an error."""
    found: dict[str, int] = {}
    for part in surveys:
        for text, count in part.found.items():
            found[text] = found.get(text, 0) + count
    texts = sorted(found)
    signs = words.signs(texts)
    for text, sign in zip(texts, signs, strict=True):
        if sign == BAD:
            hint = words.hint(found)
            raise TableError(f"{source}: {words.reason(text, found)}" + (f"; {hint}" if hint else ""))
    return {text: 0 if sign == BLANK else int(sign) for text, sign in zip(texts, signs, strict=True)}


def check_surveys(surveys: Sequence[Survey], source: str) -> None:
    """Refuse what parts of the input do not agree on, and weights that drown others."""
    for side, member in enumerate(MEMBERS):
        kinds = {part.kinds[side] for part in surveys if part.lines}
        if len(kinds) > 1:
            raise TableError(f"{source}: {member} ids are numbers in one part and text in another")
    count = sum(part.weights[2] for part in surveys)
    top = max(part.weights[1] for part in surveys)
    if top:
        mean = sum(part.weights[0] for part in surveys) / max(count, 1)
        if top > LARGEST_WEIGHT * mean:
            raise TableError(
                f"{source}: a weight is {top:g}, more than {LARGEST_WEIGHT:g} times the mean {mean:g}; "
                "beside it the others would vanish in rounding"
            )


def _lines(piece: Any, plan: Plan) -> tuple[list[pa.Array], NDArray[np.int8], NDArray[np.float32] | None]:
    """Return ids, signs and weights of the lines that are not blank; without weight the sign is 0."""
    where = _where(piece)
    rows, columns, answers, *weight = _columns(piece, plan.names)
    values, codes = distinct(answers)
    table = np.array([plan.signs[text] for text in _texts(values)] + [0], dtype=np.int8)
    sign = table[codes]  # a missing answer has code -1
    keep = sign != 0
    weights = _weights(weight[0], where)[keep] if weight else None
    chosen = pa.array(keep)
    ids = [_ids(column, side, where).filter(chosen) for side, column in enumerate((rows, columns))]
    sign = sign[keep]
    if weights is not None:
        sign = np.where(weights > 0, sign, 0).astype(np.int8)
    return ids, sign, weights


def whole_ids(piece: Any, plan: Plan) -> pa.Array:
    """Return the distinct ids of the side that is not divided."""
    return pc.unique(_lines(piece, plan)[0][1 - plan.side])


def united(*parts: pa.Array) -> pa.Array:
    """Return the distinct ids of several parts."""
    return pc.unique(pa.concat_arrays(list(parts)))


def sorted_labels(ids: pa.Array) -> pd.Index:
    """Return distinct ids in their order."""
    return pd.Index(ids.take(pc.sort_indices(ids)).to_pandas())


def block_numbers(ids: pd.Index, blocks: int) -> NDArray[np.int64]:
    """Return the block that each id of the divided side belongs to."""
    return (id_hashes(ids, _KEY) % np.uint64(blocks)).astype(np.int64)


def split(piece: Any, number: int, plan: Plan, labels: pd.Index, path: str) -> str:
    """Write the lines of a piece to a file, a batch for each block; return its path."""
    ids, sign, weight = _lines(piece, plan)
    own = ids[plan.side].dictionary_encode()
    of_each = block_numbers(pd.Index(own.dictionary.to_pandas()), plan.blocks)
    block = of_each[own.indices.to_numpy()]
    other = IdIndex(labels, MEMBERS[1 - plan.side]).encode(ids[1 - plan.side].to_pandas())
    order = np.argsort(block, kind="stable")
    ends = np.searchsorted(block[order], np.arange(plan.blocks + 1))
    columns = [ids[plan.side].take(pa.array(order)), pa.array(other[order]), pa.array(sign[order])]
    if weight is not None:
        columns.append(pa.array(weight[order]))
    names = list(_NAMES[: len(columns)])
    whole = pa.record_batch(columns, names=names, metadata={"piece": str(number)})
    temporary = f"{path}.{os.getpid()}.part"
    with pa.ipc.new_file(temporary, whole.schema) as file:
        for begin, end in pairwise(ends):
            file.write_batch(whole.slice(begin, end - begin))
    os.replace(temporary, path)
    return path


class Block(NamedTuple):
    """The answers of some ids of the divided side, and these ids; the other side has codes alone."""

    labels: pd.Index
    seen: Observations


def block_of(number: int, plan: Plan, paths: Sequence[str], others: int) -> Block:
    """Read a block from the files that pieces were split into."""
    batches = [_batch(path, piece, number, plan) for piece, path in enumerate(paths)]
    table = pa.Table.from_batches(batches).combine_chunks()
    own, codes = IdIndex.from_values(table.column(0).to_pandas(), MEMBERS[plan.side])
    other, sign = (table.column(k).to_numpy() for k in (1, 2))
    answered = sign != 0
    weight = table.column(3).to_numpy()[answered] if len(plan.names) > 3 else None
    fine = bool((block_numbers(own.labels, plan.blocks) == number).all())
    fine &= not len(other) or (other.min() >= 0 and other.max() < others)
    fine &= bool(np.isin(sign, (-1, 0, 1)).all())
    fine &= weight is None or bool(((weight > 0) & (weight < 1e30)).all())
    if not fine:
        raise TableError(
            f"{Path(paths[0]).parent} holds answers of block {number} that are none; {ADVICE}"
        )
    sides: list[Any] = [None, None]
    coded: list[Any] = [None, None]
    sides[plan.side], coded[plan.side] = own, codes[answered]
    sides[1 - plan.side] = IdIndex(pd.RangeIndex(others), MEMBERS[1 - plan.side])
    coded[1 - plan.side] = other[answered].astype(np.int32)
    seen = Observations.from_codes(sides[0], sides[1], coded[0], coded[1], sign[answered], weight)
    seen.by_row.freeze()  # sorted here, once
    return Block(own.labels, seen)


def _batch(path: str, piece: int, number: int, plan: Plan) -> pa.RecordBatch:
    """Read a block's batch of one file, of the types that ``split`` writes."""
    try:
        with pa.memory_map(path) as source:
            file = pa.ipc.open_file(source)
            batch = file.get_batch(number)
            batch.validate(full=True)
            count = file.num_record_batches
    except (OSError, ValueError, pa.ArrowException) as error:
        raise TableError(f"{path} cannot be read: {error}; {ADVICE}") from None
    types = [batch.schema.field(k).type for k in range(batch.num_columns)]
    wanted = [pa.int32(), pa.int8(), pa.float32()][: len(plan.names) - 1]
    fine = count == plan.blocks and types[1:] == wanted and types[0] in (pa.int64(), pa.large_string())
    fine &= (batch.schema.metadata or {}).get(b"piece") == str(piece).encode()
    if not fine or any(column.null_count for column in batch.columns):
        raise TableError(f"{path} holds something else than was written there; {ADVICE}")
    return batch.replace_schema_metadata(None)
