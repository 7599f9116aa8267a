"""Models on disk: plain arrays and JSON in one safetensors file; nothing in it can run code.

A file carries its format version, what it holds, and a SHA-256 over everything, and is written whole
or not at all.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

FORMAT = "onebit"
VERSION = 1

Tensors = dict[str, NDArray[Any]]


class FileError(ValueError):
    """A file that is not a readable onebit file: foreign, damaged, or of a newer version."""


def write(path: str | os.PathLike[str], kind: str, tensors: Tensors, content: Mapping[str, Any]) -> None:
    """Write arrays and JSON content to ``path``, atomically."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot save to {path}: the folder {path.parent} does not exist")
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "kind": kind,
        "content": text,
        "sha256": _digest(kind, text, arrays),
    }
    with written_whole(path) as temporary:
        mode = temporary.stat().st_mode  # of any new file; the writer makes private ones
        try:
            save_file(arrays, temporary, metadata=metadata)
        except SafetensorError as error:  # a full disk comes as this
            raise OSError(f"{path} could not be written: {error}") from None
        temporary.chmod(mode)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a new file to write to, which takes the place of ``path`` at the end, or nothing does."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        temporary.touch()
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(path)  # a full disk does not say which file it had no room for
        raise


def read(path: str | os.PathLike[str], kind: str) -> tuple[Tensors, dict[str, Any]]:
    """Read what ``write`` wrote, checking kind, version and checksum."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise FileError(f"{path} is not a onebit file")
            version = metadata.get("version", "")
            if not version.isdigit() or int(version) > VERSION:
                raise FileError(
                    f"{path} has format version {version!r}, newer than this package reads "
                    f"({VERSION}); upgrade onebit"
                )
            if metadata.get("kind") != kind:
                raise FileError(f"{path} holds a {metadata.get('kind')}, not a {kind}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} is not a onebit file, or it is damaged ({error})") from None
    text = metadata.get("content", "")
    if metadata.get("sha256") != _digest(kind, text, tensors):
        raise FileError(f"{path} is damaged: its checksum does not match; restore it from a copy")
    return tensors, json.loads(text)


def _digest(kind: str, text: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(f"{FORMAT}/{VERSION}/{kind}/{text}".encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"/{name}/{array.dtype.str}/{array.shape}/".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def pack_ids(index: pd.Index, name: str) -> tuple[Tensors, dict[str, Any]]:
    """Return arrays and JSON from which ``unpack_ids`` restores the ids, with their types."""
    kind = index.inferred_type
    if len(index) == 0 or (kind == "integer" and index.dtype.kind in "iu"):
        return {name: np.asarray(index)}, {"kind": "integer"}
    if kind == "boolean":
        return {name: index.to_numpy(dtype=np.uint8)}, {"kind": "boolean"}
    if kind in ("floating", "mixed-integer-float"):
        return {name: index.to_numpy(dtype=np.float64)}, {"kind": "floating"}
    if isinstance(index, pd.DatetimeIndex):
        zone = str(index.tz) if index.tz is not None else None
        naive = index.tz_convert("UTC").tz_localize(None) if zone else index
        moments = naive.to_numpy()
        description = {"kind": "datetime64", "zone": zone, "type": moments.dtype.str}
        return {name: moments.view(np.int64)}, description
    values = [_plain(value, name) for value in index]
    text = json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return {name: np.frombuffer(text, dtype=np.uint8)}, {"kind": "objects"}


def unpack_ids(tensors: Tensors, content: Mapping[str, Any], name: str) -> pd.Index:
    """Restore ids that ``pack_ids`` wrote."""
    array, kind = tensors[name], content["kind"]
    if kind == "datetime64":
        index = pd.DatetimeIndex(array.view(content["type"]))
        zone = content["zone"]
        return index.tz_localize("UTC").tz_convert(zone) if zone else index
    if kind == "objects":
        values = json.loads(array.tobytes().decode("utf-8", "surrogatepass"))
        return pd.Index([_restored(value) for value in values])
    return pd.Index(array.astype(bool) if kind == "boolean" else array)


def _plain(value: Any, name: str) -> Any:
    """Write an id of any other type as JSON; what JSON lacks is a tagged list."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, pd.Timestamp):
        zone = str(value.tz) if value.tz is not None else None
        return ["timestamp", value.value, value.unit, zone]
    if isinstance(value, (datetime.datetime, datetime.date)):
        return ["date", value.isoformat(), isinstance(value, datetime.datetime)]
    if isinstance(value, tuple):
        return ["tuple", [_plain(part, name) for part in value]]
    raise TypeError(
        f"{name}: ids of type {type(value).__name__} cannot be saved; use strings, numbers or dates"
    )


def _restored(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if value[0] == "tuple":
        return tuple(_restored(part) for part in value[1])
    if value[0] == "timestamp":
        return pd.Timestamp(value[1], tz=value[3]).as_unit(value[2])
    kind = datetime.datetime if value[2] else datetime.date
    return kind.fromisoformat(value[1])
