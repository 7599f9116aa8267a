"""Changes to a sound file that an attacker, or a faulty program, might make."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from onebit import storage

Tensors = storage.Tensors

# In place of any value of the JSON.
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 7, 2**31, 2**63, 10**30, -0.5, 0.5, 1e308, -1e308, 1e-320, "", "x",
    "x" * 1000, "../../etc/passwd", "U900000000", "<U900000000", "O", "V9", "f8", "M8[ns]", "gamma",
    "Trojan", "\ud800", "\x00", [], {}, [[]], [1, 2], [None, None], {"prior": {}}, {"name": "gamma"},
    [0] * 1000,
)  # fmt: skip
# In place of any number of an array; those that do not fit its type wrap around.
NUMBERS = (
    np.nan,
    np.inf,
    -np.inf,
    -1.0,
    0.0,
    1e300,
    -1e300,
    1e38,
    1e20,
    1e-320,
    127.0,
    2.0**31,
    -(2.0**63),
)
TYPES = ("float64", "float32", "float16", "int64", "int32", "int8", "uint8", "uint64", "bool")
DEEP = 100_000


def mutated(
    rng: np.random.Generator | None, kind: str, tensors: Tensors, content: dict[str, Any], path: Path
) -> None:
    """Write a file with one to three changes and a right checksum; none without ``rng``."""
    tensors = {name: array.copy() for name, array in tensors.items()}
    content = copy.deepcopy(content)
    if rng is None:
        storage.write(path, kind, tensors, content)
        return
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        change = _ARRAYS if tensors and rng.random() < 0.5 else _CONTENTS
        change[int(rng.integers(len(change)))](rng, tensors, content)
    text = json.dumps(content, sort_keys=True)
    if rng.random() < 0.08:
        text = _other_text(rng, text)
    storage.write_text(path, kind, tensors, text)
    if rng.random() < 0.04:
        _lie_in_header(rng, path)


def _picked(rng: np.random.Generator, tensors: Tensors) -> str:
    return sorted(tensors)[int(rng.integers(len(tensors)))]


def _flip_bits(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    name = _picked(rng, tensors)
    data = bytearray(tensors[name].tobytes())
    if not data:
        return
    for _ in range(int(rng.choice([1, 1, 3, 50]))):
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    if tensors[name].dtype == bool:
        data = bytearray(byte & 1 for byte in data)
    tensors[name] = np.frombuffer(bytes(data), tensors[name].dtype).reshape(tensors[name].shape)


def _set_number(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    name = _picked(rng, tensors)
    array = tensors[name].copy()
    if array.size:
        with np.errstate(all="ignore"):
            value = np.array(rng.choice(NUMBERS)).astype(array.dtype)
            places = slice(None) if rng.random() < 0.1 else int(rng.integers(array.size))
            array.reshape(-1)[places] = value
    tensors[name] = array


def _negate(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    name = _picked(rng, tensors)
    if tensors[name].dtype != bool:
        tensors[name] = np.negative(tensors[name])


def _drop(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    del tensors[_picked(rng, tensors)]


def _swap(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    one, other = _picked(rng, tensors), _picked(rng, tensors)
    tensors[one], tensors[other] = tensors[other], tensors[one]


def _retype(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    name = _picked(rng, tensors)
    with np.errstate(all="ignore"):
        tensors[name] = tensors[name].astype(str(rng.choice(TYPES)))


def _reshape(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    name = _picked(rng, tensors)
    array = tensors[name]
    shapes: list[Callable[[], Any]] = [
        lambda: array.reshape(-1),
        lambda: array[:-1],
        lambda: array[:0],
        lambda: array[None],
        lambda: array.T,
        lambda: np.concatenate([array, array[-1:]]),
        lambda: array[..., :-1],
        lambda: np.repeat(array, 50, axis=0),
        lambda: array.reshape(-1)[:1].reshape(()),
        lambda: np.empty((0, 2**40), array.dtype),
        lambda: np.empty((2**40, 0), array.dtype),
    ]
    try:
        tensors[name] = np.ascontiguousarray(shapes[int(rng.integers(len(shapes)))]())
    except (ValueError, IndexError):  # an array that cannot have such a shape
        tensors[name] = array.reshape(-1)


def _other_ids(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    name = str(rng.choice(["ids.rows", "ids.columns"]))
    texts = [
        "[" * DEEP, "[" * DEEP + "]" * DEEP, '["a","a"]', "[null]", "{}", '[["tuple"]]', "[]", "3", '["',
        '[["timestamp",1,"ns","Nowhere/Land"]]', '[["date","2020-13-45",false]]', '[["tuple",[[]]]]',
        '[["timestamp",1e99,"ns",null]]', "[1e999]", "[NaN]", "[" + "[]," * 200_000 + "[]]",
    ]  # fmt: skip
    tensors[name] = np.frombuffer(texts[int(rng.integers(len(texts)))].encode(), np.uint8)
    content[name.removeprefix("ids.")] = {"kind": "objects", "name": None}


def _places(content: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in list(pairs):
        found.append((content, name))
        if isinstance(value, (dict, list)):
            _places(value, found)
    return found


def _replace(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    places = _places(content, [])
    if places:
        parent, name = places[int(rng.integers(len(places)))]
        parent[name] = copy.deepcopy(VALUES[int(rng.integers(len(VALUES)))])


def _remove(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    places = _places(content, [])
    if places:
        parent, name = places[int(rng.integers(len(places)))]
        del parent[name]


def _add(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    parents = [content] + [p[n] for p, n in _places(content, []) if isinstance(p[n], dict)]
    parent = parents[int(rng.integers(len(parents)))]
    parent[str(rng.choice(["extra", "predict", "__class__", "sparse", "full"]))] = copy.deepcopy(
        VALUES[int(rng.integers(len(VALUES)))]
    )


def _scale(rng: np.random.Generator, tensors: Tensors, content: dict[str, Any]) -> None:
    numbers = [
        (parent, name)
        for parent, name in _places(content, [])
        if isinstance(parent[name], (int, float)) and not isinstance(parent[name], bool)
    ]
    if numbers:
        parent, name = numbers[int(rng.integers(len(numbers)))]
        parent[name] *= [-1, 2, 1000, 1e10, 1e200][int(rng.integers(5))]


def _other_text(rng: np.random.Generator, text: str) -> str:
    """Return JSON that no program of ours writes."""
    return [
        "[" * DEEP,
        '{"class":' * DEEP,
        text[:-1] + ',"deep":' + "[" * DEEP + "]" * DEEP + "}",
        text.replace("0.", "NaN, 0.", 1),
        text.replace(": 1", ": Infinity", 1),
        text.replace(": 1", ": 1e999", 1),
        text.replace(": 1", ": " + "9" * 5000, 1),
        text[: len(text) // 2],
        "null",
        "[]",
        "",
    ][int(rng.integers(11))]


def _lie_in_header(rng: np.random.Generator, path: Path) -> None:
    """Let the header speak of sizes, offsets or types that the file does not have."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    names = sorted(name for name in header if name != "__metadata__")
    if not names:
        return
    entry = header[names[int(rng.integers(len(names)))]]
    lies: list[dict[str, Any]] = [
        {"shape": [2**40, 2**20]}, {"shape": [2**62, 4]}, {"shape": [-1]}, {"data_offsets": [0, 2**60]},
        {"data_offsets": [8, 0]}, {"dtype": "BF16"}, {"dtype": "F8_E4M3"}, {"dtype": "U900000000"},
        {"dtype": "C64"}, {"shape": []}, {"shape": "x"},
    ]  # fmt: skip
    entry |= lies[int(rng.integers(len(lies)))]
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data[8 + size :])


_ARRAYS = (
    _flip_bits, _flip_bits, _set_number, _set_number, _negate, _drop, _swap, _retype, _reshape, _reshape,
)  # fmt: skip
_CONTENTS = (_replace, _replace, _replace, _remove, _add, _scale, _scale, _other_ids)
