"""Loose answers on a GPU, sorted by row and by column.

The order is the one of ``Observations``: rows list their columns in order, repeats of one entry a "no"
before a "yes", then by weight. Keys are sorted a range of rows at a time, which bounds the memory that a
sort takes beside the answers.
"""

from __future__ import annotations

import torch

from onebit.engine.gpu.data import DeviceView, packed_answers

# Answers that are sorted at once, and at which rows are counted at once.
AT_ONCE = 2**27


def sorted_view(
    owner: torch.Tensor,
    other: torch.Tensor,
    sign: torch.Tensor,
    weight: torch.Tensor,
    size: int,
    n_other: int,
) -> DeviceView:
    """Return loose answers as a view by ``owner``, of which there are ``size``.

    ``owner`` and ``other`` are codes (int32), ``weight`` is empty or in ascending order.
    """
    device = owner.device
    counts = torch.zeros(size, dtype=torch.int64, device=device)
    for begin in range(0, len(owner), AT_ONCE):
        counts += torch.bincount(owner[begin : begin + AT_ONCE], minlength=size)
    start = torch.zeros(size + 1, dtype=torch.int64, device=device)
    torch.cumsum(counts, 0, out=start[1:])
    answers = torch.empty(len(owner), dtype=torch.int32, device=device)
    weights = torch.empty_like(weight)
    bits = (2 * n_other - 1).bit_length()
    row = 0
    while row < size:
        reach = (start[row] + AT_ONCE).reshape(1)
        end = max(int(torch.searchsorted(start, reach, right=True)) - 1, row + 1)
        parts = (owner, other, sign)
        chosen: torch.Tensor | None = None
        if (row, end) != (0, size):
            chosen = _positions(owner, row, end)
            parts = tuple(part[chosen] for part in parts)
        key = ((parts[0].long() - row) << bits) | (parts[1].long() << 1) | (parts[2] > 0)
        place = slice(int(start[row]), int(start[end]))
        key, order = torch.sort(key, stable=True)
        code = key & ((1 << bits) - 1)
        answers[place] = packed_answers((code >> 1).int(), (code & 1) * 2 - 1)
        if len(weight):
            weights[place] = weight[order if chosen is None else chosen[order]]
        row = end
    return DeviceView(start, answers, weights, device)


def _positions(owner: torch.Tensor, row: int, end: int) -> torch.Tensor:
    """Return where the answers of the rows ``row:end`` stand."""
    found = []
    for begin in range(0, len(owner), AT_ONCE):
        part = owner[begin : begin + AT_ONCE]
        found.append(torch.nonzero((part >= row) & (part < end)).flatten() + begin)
    return torch.cat(found)


def sorted_views(
    rows: torch.Tensor,
    columns: torch.Tensor,
    sign: torch.Tensor,
    weight: torch.Tensor,
    shape: tuple[int, int],
) -> tuple[DeviceView, DeviceView]:
    """Return loose answers as views by row and by column."""
    if len(weight):
        weight, order = torch.sort(weight, stable=True)
        rows, columns, sign = rows[order], columns[order], sign[order]
    return (
        sorted_view(rows, columns, sign, weight, *shape),
        sorted_view(columns, rows, sign, weight, shape[1], shape[0]),
    )
