"""What is read from a file is checked here before anything else sees it.

A checksum says that a file is as it was written, not who wrote it. The kernels do not look at the shapes
and the codes they are given, and what is not finite spreads, so that every array and every number passes
through one of these functions. Each raises ``FileError`` with the name of what is wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Products of three such numbers, summed, are still finite; no score comes near.
LARGEST = 1e60
# The same for products of four in single precision, in which the kernels gather factors and effects.
LARGEST_FACTOR = 1e9
# Whole numbers that a double holds exactly.
LARGEST_WHOLE = 2**53
# Covariances are computed in single precision in places: how far below zero, relative to its variances,
# one may go in some direction.
ROUNDING = 1e-5
# Numbers of covariances that are looked at together.
_AT_ONCE = 2**21

# What goes wrong while content is taken apart that has a right checksum and a wrong form.
_BROKEN = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, AssertionError, OverflowError,
    RecursionError, ArithmeticError, np.linalg.LinAlgError,
)  # fmt: skip


class FileError(ValueError):
    """A file that is not a readable onebit file: foreign, damaged, or of a newer version."""


@contextmanager
def taken_apart(where: object, advice: str) -> Iterator[None]:
    """Turn whatever goes wrong with the content of a file within the block into one ``FileError``."""
    try:
        yield
    except FileError as error:
        raise FileError(f"{where}: {error}; {advice}") from None
    except KeyError as error:
        raise FileError(f"{where}: {error} is missing or unknown; {advice}") from None
    except _BROKEN as error:
        raise FileError(f"{where}: {type(error).__name__}: {str(error)[:200]}; {advice}") from None


def parsed(text: str | bytes) -> Any:
    """Read JSON; numbers that JSON does not have, and depths that nobody writes, are refused."""

    def no_number(word: str) -> NoReturn:
        raise FileError(f"{word} is not a finite number")

    def finite(digits: str) -> float:
        value = float(digits)
        return value if math.isfinite(value) else no_number(digits[:40])

    try:
        return json.loads(text, parse_constant=no_number, parse_float=finite)
    except RecursionError:
        raise FileError("its JSON is nested too deeply") from None
    except FileError:
        raise
    except ValueError as error:
        raise FileError(f"its JSON cannot be read ({str(error)[:100]})") from None


def checked_array(
    tensors: Mapping[str, NDArray[Any]],
    name: str,
    dtype: DTypeLike,
    shape: Sequence[int | None],
    *,
    least: float | None = None,
    most: float | None = None,
    positive: bool = False,
) -> NDArray[Any]:
    """Return the array ``name`` of this type and shape, whose numbers are finite and in a range.

    ``None`` in the shape stands for any length. Numbers that are not whole lie within ``LARGEST``, in
    single precision within ``LARGEST_FACTOR``, unless the range says otherwise.
    """
    if name not in tensors:
        raise FileError(f"{name} is missing")
    array = tensors[name]
    if array.dtype != np.dtype(dtype):
        raise FileError(f"{name} holds {array.dtype}, not {np.dtype(dtype)}")
    fits = array.ndim == len(shape) and all(
        wanted is None or wanted == found for wanted, found in zip(shape, array.shape, strict=True)
    )
    if not fits:
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise FileError(f"{name} has the shape {array.shape}, not ({sizes})")
    if array.size == 0 or array.dtype.kind == "b":
        return array
    low, high = array.min(), array.max()  # NaN if any is
    if array.dtype.kind == "f":
        room = LARGEST_FACTOR if array.dtype == np.float32 else LARGEST
        least = -room if least is None else least
        most = room if most is None else most
    wrong = (least is not None and not low >= least) or (most is not None and not high <= most)
    if wrong or (positive and not low > 0):
        bad = ~np.isfinite(array)
        if least is not None:
            bad |= array < least
        if most is not None:
            bad |= array > most
        if positive:
            bad |= array <= 0
        place = np.unravel_index(int(np.argmax(bad)), array.shape)
        at = ", ".join(map(str, place))
        raise FileError(f"{name}[{at}] is {array[place].item()!r}, which it cannot be")
    return array


def checked_covariances(packed: NDArray[np.float64], size: int, name: str) -> None:
    """Refuse packed lower triangles that are not covariances of ``size`` coordinates."""
    if size == 0 or len(packed) == 0:
        return
    k = np.arange(size)
    lower, diagonal = np.tril_indices(size), k * (k + 3) // 2
    step = max(1, _AT_ONCE // (size * size))
    for begin in range(0, len(packed), step):
        block = packed[begin : begin + step]
        variance = block[:, diagonal]
        if not variance.min() > 0:
            row, at = np.argwhere(~(variance > 0))[0]
            raise FileError(
                f"{name} gives coordinate {at} of line {begin + row} the variance {variance[row, at]!r}"
            )
        scale = np.sqrt(variance)
        dense = np.zeros((len(block), size, size))
        dense[:, lower[0], lower[1]] = block / (scale[:, lower[0]] * scale[:, lower[1]])
        dense[:, k, k] = 1.0 + ROUNDING
        try:
            np.linalg.cholesky(dense)
        except np.linalg.LinAlgError:
            raise FileError(
                f"{name} holds a matrix, in the lines from {begin} on, that is no covariance"
            ) from None


def section(content: Any, name: Any) -> dict[str, Any]:
    """Return a part of the content that has parts of its own."""
    found: dict[str, Any] = _of_kind(content, name, dict, "a group of settings")
    return found


def listed(content: Any, name: Any, length: int | None = None) -> list[Any]:
    """Return a list, of this length."""
    found: list[Any] = _of_kind(content, name, list, "a list")
    if length is not None and len(found) != length:
        raise FileError(f"{name} has {len(found)} entries, not {length}")
    return found


def flag(content: Any, name: Any) -> bool:
    """Return a truth value."""
    found: bool = _of_kind(content, name, bool, "true or false")
    return found


def text(content: Any, name: Any) -> str:
    """Return a text."""
    found: str = _of_kind(content, name, str, "a text")
    return found


def whole(content: Any, name: Any, least: int = 0, most: int = LARGEST_WHOLE) -> int:
    """Return a whole number in a range."""
    value = _part(content, name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise FileError(f"{name} is {_short(value)}, not a whole number from {least} to {most}")
    return value


def number(
    content: Any, name: Any, *, least: float = -LARGEST, most: float = LARGEST, positive: bool = False
) -> float:
    """Return a finite number in a range."""
    value = _part(content, name)
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not real or not least <= value <= most or not math.isfinite(value) or (positive and value <= 0):
        wanted = "a positive number" if positive else f"a number from {least:g} to {most:g}"
        raise FileError(f"{name} is {_short(value)}, not {wanted}")
    return value


def only(content: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Refuse parts that nobody knows."""
    unknown = [name for name in content if name not in known]
    if unknown:
        raise FileError(f"{where} has the unknown part {_short(unknown[0])}")


def _of_kind(content: Any, name: Any, kind: type, words: str) -> Any:
    value = _part(content, name)
    if not isinstance(value, kind):
        raise FileError(f"{name} is {_short(value)}, not {words}")
    return value


def _part(content: Any, name: Any) -> Any:
    try:
        return content[name]
    except (KeyError, IndexError, TypeError):
        raise FileError(f"{name} is missing") from None


def _short(value: Any) -> str:
    shown = repr(value) if not isinstance(value, (dict, list)) else type(value).__name__
    return shown if len(shown) <= 60 else shown[:57] + "..."
