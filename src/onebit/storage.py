"""Models on disk: plain arrays and JSON in one safetensors file; nothing in it can run code.

A file carries its format version, what it holds, and a SHA-256 over everything, and is written whole
or not at all.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from onebit import checked
from onebit.checked import FileError as FileError
from onebit.files import written_whole

FORMAT = "onebit"
VERSION = 1

Tensors = dict[str, NDArray[Any]]

# The names that safetensors has for what we write, and for what older versions may have written.
_NAMES = {
    "float64": "F64", "int64": "I64", "uint64": "U64", "float32": "F32", "int32": "I32", "uint32": "U32",
    "float16": "F16", "int16": "I16", "uint16": "U16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_ID_KINDS = ("integer", "boolean", "floating", "datetime64", "objects")
_MOMENTS = tuple(f"<M8[{unit}]" for unit in ("s", "ms", "us", "ns"))


def write(path: str | os.PathLike[str], kind: str, tensors: Tensors, content: Mapping[str, Any]) -> None:
    """Write arrays and JSON content to ``path``, atomically; the same content gives the same bytes."""
    write_text(path, kind, tensors, json.dumps(content, sort_keys=True, allow_nan=False))


def write_text(path: str | os.PathLike[str], kind: str, tensors: Tensors, text: str) -> None:
    """Write arrays and content that is JSON already."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot save to {path}: the folder {path.parent} does not exist")
    arrays = {name: _plain_array(name, array) for name, array in tensors.items()}
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "kind": kind,
        "content": text,
        "sha256": _digest(kind, text, arrays),
    }
    with written_whole(path) as temporary:
        save_file(arrays, temporary, metadata)


def save_file(arrays: Tensors, path: Path, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file: the length of its header, the header, and the arrays one by one.

    The library's own writer puts the metadata in another order each time.
    """
    # Wide numbers first, so that all stand at multiples of their size; the library orders them so too.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name in order:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    head = json.dumps(header, separators=(",", ":")).encode("ascii")
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little"))
        file.write(head)
        for name in order:
            file.write(arrays[name].reshape(-1).view(np.uint8).data)


def _plain_array(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as it lies in a file."""
    plain = np.asarray(array, order="C")
    if plain.dtype.name not in _NAMES:
        raise TypeError(f"{name}: numbers of type {plain.dtype} cannot be saved")
    return plain.astype(plain.dtype.newbyteorder("<"), copy=False)


def read(path: str | os.PathLike[str], kind: str) -> tuple[Tensors, dict[str, Any]]:
    """Read what ``write`` wrote, checking kind, version and checksum.

    The checksum says that nothing is damaged. Whoever uses the content checks it (``onebit.checked``).
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise FileError(f"{path} is not a onebit file")
            version = metadata.get("version", "")
            if not (version.isascii() and version.isdigit() and len(version) < 10):
                raise FileError(f"{path} has the format version {version[:20]!r}, which is none")
            if int(version) > VERSION:
                raise FileError(
                    f"{path} has format version {version!r}, newer than this package reads "
                    f"({VERSION}); upgrade onebit"
                )
            if metadata.get("kind") != kind:
                raise FileError(f"{path} holds a {str(metadata.get('kind'))[:40]}, not a {kind}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileError:
        raise
    # An unknown type of numbers comes as one of the last, as does a shape that no array can have.
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileError(f"{path} is not a onebit file, or it is damaged ({error})") from None
    text = metadata.get("content", "")
    if metadata.get("sha256") != _digest(kind, text, tensors):
        raise FileError(f"{path} is damaged: its checksum does not match; restore it from a copy")
    with checked.taken_apart(path, "restore it from a copy"):
        content = checked.parsed(text)
        if not isinstance(content, dict):
            raise FileError(f"its content is a {type(content).__name__}")
    return tensors, content


def _digest(kind: str, text: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(f"{FORMAT}/{VERSION}/{kind}/{text}".encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"/{name}/{array.dtype.str}/{tensors[name].shape}/".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def pack_ids(index: pd.Index, name: str) -> tuple[Tensors, dict[str, Any]]:
    """Return arrays and JSON from which ``unpack_ids`` restores the ids, with their types."""
    kind = index.inferred_type
    if len(index) == 0:
        return {name: np.empty(0, np.int64)}, {"kind": "integer"}
    if kind == "integer" and index.dtype.kind in "iu":
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
    """Restore ids that ``pack_ids`` wrote; ids that no fit has are refused."""
    kind = checked.text(content, "kind")
    if kind not in _ID_KINDS:
        raise FileError(f"{name} are of the unknown kind {kind[:40]!r}")
    index = _unpacked(tensors, content, name, kind)
    if index.hasnans or (kind == "floating" and not np.isfinite(index.to_numpy()).all()):
        raise FileError(f"{name} hold a missing or infinite id")
    if not index.is_unique:
        raise FileError(f"{name} hold the id {index[index.duplicated()].tolist()[0]!r} twice")
    return index


def _unpacked(tensors: Tensors, content: Mapping[str, Any], name: str, kind: str) -> pd.Index:
    if kind == "integer":
        if name not in tensors or tensors[name].ndim != 1 or tensors[name].dtype.kind not in "iu":
            raise FileError(f"{name} are not a list of whole numbers")
        return pd.Index(tensors[name])
    if kind == "boolean":
        return pd.Index(checked.checked_array(tensors, name, np.uint8, (None,), most=1).astype(bool))
    if kind == "floating":
        return pd.Index(checked.checked_array(tensors, name, np.float64, (None,), most=np.inf))
    if kind == "datetime64":
        moments = checked.checked_array(tensors, name, np.int64, (None,))
        if checked.text(content, "type") not in _MOMENTS:
            raise FileError(f"{name} are moments of the unknown type {content['type'][:40]!r}")
        index = pd.DatetimeIndex(moments.view(content["type"]))
        zone = content.get("zone")
        return index.tz_localize("UTC").tz_convert(checked.text(content, "zone")) if zone else index
    stored = checked.checked_array(tensors, name, np.uint8, (None,))
    values = checked.parsed(stored.tobytes().decode("utf-8", "surrogatepass"))
    if not isinstance(values, list):
        raise FileError(f"{name} are not a list")
    return pd.Index([_restored(value) for value in values], tupleize_cols=False)


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
    if isinstance(value, (str, int, float)):
        return value
    if not isinstance(value, list) or not value:
        raise FileError(f"an id is {str(value)[:40]!r}")
    tag, *parts = value
    if tag == "tuple" and len(parts) == 1:
        return tuple(_restored(part) for part in checked.listed(parts, 0))
    if tag == "timestamp" and len(parts) == 3:
        return pd.Timestamp(checked.whole(parts, 0, -(2**63), 2**63 - 1), tz=parts[2]).as_unit(parts[1])
    if tag != "date" or len(parts) != 2:
        raise FileError(f"an id of the unknown kind {str(tag)[:40]!r}")
    kind = datetime.datetime if checked.flag(parts, 1) else datetime.date
    return kind.fromisoformat(checked.text(parts, 0))
