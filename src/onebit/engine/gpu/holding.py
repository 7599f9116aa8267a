"""Holding answers out where they lie: chosen by their hashes, on a GPU.

The choice is the host's (``onebit.data.hashing``), bit for bit: the answers with the smallest hashes.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from onebit.data import hashing
from onebit.data.holding import Cut, Division, Held
from onebit.data.observations import Observations
from onebit.engine.gpu.intake import DeviceEntries
from onebit.engine.gpu.memory import usable_bytes
from onebit.engine.gpu.transfer import to_device, to_host

# Numbers of eight bytes that the work takes for each answer at its height.
_NUMBERS = 10
_LOWEST = -(2**63)


def divided(observations: Observations, size: int, key: int) -> Division | None:
    """Hold ``size`` answers out; None where they are not on a GPU, or too many to be sorted there."""
    entries = observations.loose
    if not isinstance(entries, DeviceEntries):
        return None
    device = entries.rows.device
    if 8 * _NUMBERS * observations.n > usable_bytes(device):
        return None
    hashes = [hashing.id_hashes(side.labels, key) for side in (observations.rows, observations.columns)]
    rows, columns = (to_device(part.view(np.int64), device) for part in hashes)
    entry = entries.rows.long() * observations.shape[1] + entries.columns
    ordered, order = torch.sort(entry * 2 + (entries.sign > 0), stable=True)
    ordered = ordered >> 1
    first = torch.ones(len(ordered), dtype=torch.bool, device=device)
    first[1:] = ordered[1:] != ordered[:-1]
    count = int(first.sum())
    repeated = count < len(first)
    place = torch.arange(len(ordered), device=device)
    repeat = torch.zeros_like(entry)
    if repeated:
        begin = torch.cummax(torch.where(first, place, 0), 0).values
        repeat[order] = place - begin
    # Signed numbers in the order of the unsigned ones that the host compares.
    value = _answer_hashes(rows[entries.rows.long()], columns[entries.columns.long()], repeat) ^ _LOWEST
    last = int(torch.sort(value).values[size - 1])  # far faster than selecting
    held = value <= last
    fitted = DeviceEntries(entries.rows[~held], entries.columns[~held], entries.sign[~held])
    here = DeviceEntries(entries.rows[held], entries.columns[held], entries.sign[held])
    fitted_too = torch.zeros(len(here.rows), dtype=torch.bool, device=device)
    if repeated:
        group = torch.empty_like(entry)
        group[order] = torch.cumsum(first, 0) - 1
        fitted_too = (torch.bincount(group[~held], minlength=count) > 0)[group[held]]
    known = torch.ones_like(fitted_too)
    for codes, all_codes, many in zip(here[:2], fitted[:2], observations.shape, strict=True):
        known &= (torch.bincount(all_codes, minlength=many) > 0)[codes.long()]
    cut = Cut(key, np.uint64((last ^ _LOWEST) % 2**64))
    yes = int((fitted.sign > 0).sum())
    return Division(
        Observations.from_loose(
            observations.rows, observations.columns, fitted, observations.classes
        ).told(observations.features),
        Held(*here.on_host()[:3], _host(fitted_too), _host(known & ~fitted_too)),
        count,
        1 if 2 * yes > len(fitted.sign) else -1,
        cut,
    )


def _host(marks: torch.Tensor) -> NDArray[np.bool_]:
    return to_host(marks.to(torch.uint8)).astype(bool)


def _mixed(values: torch.Tensor) -> torch.Tensor:
    """Return ``hashing.mixed`` of unsigned numbers that are held as signed ones."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values = (values ^ _shifted(values, shift)) * _signed(factor)
    return values ^ _shifted(values, 31)


def _shifted(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift right without drawing the sign along."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _answer_hashes(rows: torch.Tensor, columns: torch.Tensor, repeat: torch.Tensor) -> torch.Tensor:
    turned = (columns << 23) | _shifted(columns, 41)
    return _mixed(_mixed(rows ^ turned) + repeat * _signed(hashing.GOLDEN))


def descending(values: NDArray[np.float64], device: torch.device) -> NDArray[np.int64]:
    """Return the places of numbers from the largest on, equal ones in the order they came."""
    return to_host(torch.argsort(to_device(-values, device), stable=True))
