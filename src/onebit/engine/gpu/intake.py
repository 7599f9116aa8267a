"""Numbered ids and answers straight to a GPU: coded and checked there, at the speed of the bus.

Only what can be taken as it is: whole numbers as ids, answers as numbers or booleans, no weights. Of
anything else, and of anything wrong, ``taken_in`` says None, and ``Observations.from_pairs`` goes on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from onebit.data.ids import IdIndex, in_small_range, pair_columns
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS
from onebit.data.sorting import Entries
from onebit.engine.gpu.data import DeviceView
from onebit.engine.gpu.memory import usable_bytes
from onebit.engine.gpu.transfer import to_device, to_host

# Ids that lie far apart are sorted for their codes: at most so many, for want of memory.
MOST_SORTED = 2**28
_BLOCK = 2**26
_KINDS = {np.dtype(name) for name in ("int8", "uint8", "int16", "int32", "int64", "bool")}
_ANSWERS = _KINDS | {np.dtype(name) for name in ("float32", "float64")}


class DeviceEntries(NamedTuple):
    """Answers one by one in a GPU's memory; see ``onebit.data.sorting.Entries``."""

    rows: torch.Tensor
    columns: torch.Tensor
    sign: torch.Tensor
    weight: None = None

    def on_host(self) -> Entries:
        """Return the same in the host's memory."""
        return Entries(to_host(self.rows), to_host(self.columns), to_host(self.sign), None)


class SortedEntries:
    """The answers of a view by row one by one, made when they are asked for."""

    weight = None

    def __init__(self, view: DeviceView) -> None:
        self._view = view

    @property
    def rows(self) -> torch.Tensor:
        """The code of each answer's row."""
        every = torch.arange(self._view.size, dtype=torch.int32, device=self._view.device)
        return torch.repeat_interleave(every, self._view.counts)

    @property
    def columns(self) -> torch.Tensor:
        """The code of each answer's column."""
        return self._view.answers & 0x7FFFFFFF

    @property
    def sign(self) -> torch.Tensor:
        """The signs."""
        return _as_signs(self._view.answers >= 0)

    def on_host(self) -> Entries:
        """Return the same in the host's memory."""
        return DeviceEntries(self.rows, self.columns, self.sign).on_host()


def taken_in(pairs: Any, answers: Any, device: torch.device) -> Observations | None:
    """Return the observations, their answers on the device, or None."""
    values = _plain(answers)
    if values is None or values.dtype not in _ANSWERS or values.ndim != 1:
        return None
    # Ids of 8 bytes and their codes, what a count of ids takes, and the answers.
    if (2 * 12 + 40 + values.itemsize + 4) * len(values) > usable_bytes(device):
        return None
    columns = _columns_on(pairs, device)
    if columns is None:
        return None
    if len(values) == 0 or any(len(column) != len(values) for column, _, _ in columns):
        return None
    found = _signs(to_device(values, device), values.dtype)
    if found is None:
        return None
    indexes, codes = [], []
    for side, (column, dtype, name) in zip(MEMBERS, columns, strict=True):
        coded = _codes(column)
        if coded is None:
            return None
        index = pd.Index(to_host(coded[0]).astype(dtype)).rename(name)
        indexes.append(IdIndex(index, side))
        codes.append(coded[1])
    sign, classes = found
    entries = DeviceEntries(codes[0], codes[1], sign)
    return Observations.from_loose(indexes[0], indexes[1], entries, classes)


def _plain(values: Any) -> NDArray[Any] | None:
    """Return an array as it is, or the one inside a series."""
    if isinstance(values, pd.Series):
        values = values.array.to_numpy() if isinstance(values.dtype, np.dtype) else None
    return values if type(values) is np.ndarray else None  # a masked array is something else


def _columns_on(pairs: Any, device: torch.device) -> list[tuple[torch.Tensor, np.dtype[Any], Any]] | None:
    """Return the two columns of ids on the device, with the types and names they had."""
    if type(pairs) is np.ndarray and pairs.ndim == 2 and pairs.shape[1] == 2:
        if pairs.dtype not in _KINDS or pairs.dtype == bool:
            return None
        whole = to_device(pairs, device)  # at once: columns of a table are not contiguous
        return [(whole[:, side], pairs.dtype, None) for side in (0, 1)]
    if not isinstance(pairs, pd.DataFrame):
        return None
    found = []
    for values in pair_columns(pairs):
        array = _plain(values)
        if array is None or array.dtype not in _KINDS or array.dtype == bool:
            return None
        found.append((to_device(array, device), array.dtype, values.name))
    return found


def _signs(values: torch.Tensor, dtype: np.dtype[Any]) -> tuple[torch.Tensor, NDArray[Any]] | None:
    """Return signs and classes of answers in {-1, 1}, {0, 1} or of booleans; None of others."""
    yes = values == 1
    if dtype.kind == "b":
        return _as_signs(yes), np.array([False, True])
    has_zero = bool((values == 0).any())
    has_minus = dtype.kind != "u" and bool((values == -1).any())
    no = values == (-1 if has_minus else 0)
    if (has_zero and has_minus) or not bool((yes | no).all()):
        return None
    return _as_signs(yes), np.array([-1 if has_minus else 0, 1], dtype=dtype)


def _as_signs(yes: torch.Tensor) -> torch.Tensor:
    return yes.to(torch.int8) * 2 - 1


def _codes(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the distinct ids in order and the code of each value."""
    low, high = (int(bound) for bound in torch.aminmax(values))
    if not in_small_range(low, high, len(values)):
        if len(values) > MOST_SORTED:
            return None
        distinct, codes = torch.unique(values, return_inverse=True)
        return distinct, codes.int()
    present = torch.zeros(high - low + 1, dtype=torch.bool, device=values.device)
    blocks = [slice(begin, begin + _BLOCK) for begin in range(0, len(values), _BLOCK)]
    for block in blocks:
        present[values[block].long() - low] = True
    rank = torch.cumsum(present, 0, dtype=torch.int32) - 1
    codes = torch.empty(len(values), dtype=torch.int32, device=values.device)
    for block in blocks:
        codes[block] = rank[values[block].long() - low]
    return torch.arange(low, high + 1, device=values.device)[present], codes
