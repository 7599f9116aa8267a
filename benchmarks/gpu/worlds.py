"""Answers made on the device: power-law rows and columns, or a regular pattern that needs no sorting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from benchmarks.peers.matrices import (
    COLUMN_EFFECT,
    COLUMN_LAW,
    FACTORS,
    INTERCEPT,
    RANK,
    ROW_EFFECT,
    ROW_LAW,
)
from onebit.engine.gpu.data import DeviceView

_BLOCK = 2**26
_EDGE = 16


@dataclass(frozen=True)
class Truth:
    """The true scores in factored form: lines of factors, effect and 1, the last two crossed."""

    rows: torch.Tensor
    columns: torch.Tensor

    @classmethod
    def drawn(cls, shape: tuple[int, int], device: torch.device, seed: int) -> Truth:
        """Draw effects and factors as those of ``benchmarks.peers.matrices`` are."""
        generator = torch.Generator(device=device).manual_seed(seed)
        sides = []
        for size, effect in zip(shape, (ROW_EFFECT, COLUMN_EFFECT), strict=True):
            lines = torch.zeros((size, _EDGE), dtype=torch.float32, device=device)
            drawn = torch.randn((size, RANK + 1), device=device, generator=generator)
            lines[:, :RANK] = drawn[:, :RANK] * float(np.sqrt(FACTORS / np.sqrt(RANK)))
            lines[:, RANK] = drawn[:, RANK] * effect
            lines[:, RANK + 1] = 1.0
            sides.append(lines)
        sides[0][:, RANK] += INTERCEPT
        sides[1][:, [RANK, RANK + 1]] = sides[1][:, [RANK + 1, RANK]]
        return cls(sides[0], sides[1])

    def probability(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Return the probabilities of a "yes"."""
        return torch.sigmoid((self.rows[rows.long()] * self.columns[columns.long()]).sum(1))


def power_law_entries(
    truth: Truth, n: int, device: torch.device, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw rows and columns by power laws, an entry as often as it comes, and their answers.

    Which rows and columns are popular does not depend on the seed.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    shuffle = torch.Generator(device=device).manual_seed(len(truth.rows))
    codes = []
    for size, law in ((len(truth.rows), ROW_LAW), (len(truth.columns), COLUMN_LAW)):
        exponent, offset = law
        weight = (torch.arange(size, device=device, dtype=torch.float64) / size + offset) ** -exponent
        share = torch.cumsum(weight[torch.randperm(size, device=device, generator=shuffle)], 0)
        share /= share[-1].clone()
        drawn = torch.empty(n, dtype=torch.int32, device=device)
        for begin in range(0, n, _BLOCK):
            block = drawn[begin : begin + _BLOCK]
            uniform = torch.rand(len(block), device=device, generator=generator, dtype=torch.float64)
            block.copy_(torch.searchsorted(share, uniform).clamp_(max=size - 1))
        codes.append(drawn)
    sign = torch.empty(n, dtype=torch.int8, device=device)
    for begin in range(0, n, _BLOCK // 4):
        part = slice(begin, begin + _BLOCK // 4)
        yes = truth.probability(codes[0][part], codes[1][part])
        sign[part] = (torch.rand(len(yes), device=device, generator=generator) < yes).to(
            torch.int8
        ) * 2 - 1
    return codes[0], codes[1], sign


@triton.jit
def _regular(
    answers, rows, columns, shifts, first, n, n_rows, n_columns, each, step, unstep,
    BY_ROW: tl.constexpr, EDGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write answers of a pattern: row ``i`` has answered columns ``step i + shifts[t]``, modulo."""
    k = first + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = k < n
    if BY_ROW:
        i = k // each
        j = (i * step + tl.load(shifts + k % each, mask=there, other=0)) % n_columns
        other = j
    else:
        times = n_rows // n_columns
        j = k // (each * times)
        place = k % (each * times)
        shift = tl.load(shifts + place // times, mask=there, other=0)
        i = ((j + n_columns - shift) * unstep) % n_columns + (place % times) * n_columns
        other = i
    a = tl.arange(0, EDGE)
    left = tl.load(rows + i[:, None] * EDGE + a[None, :], mask=there[:, None], other=0.0)
    right = tl.load(columns + j[:, None] * EDGE + a[None, :], mask=there[:, None], other=0.0)
    yes = 1.0 / (1.0 + tl.exp(-tl.sum(left * right, axis=1)))
    seed = (i * 2654435761 + j * 40503).to(tl.int32)  # of the entry, whichever side it is seen from
    no = tl.rand(seed, (i ^ (j << 8)).to(tl.int32)) >= yes
    packed = other.to(tl.int32) | tl.where(no, -2147483648, 0)
    tl.store(answers + k, packed, mask=there)


def regular_views(truth: Truth, each: int, device: torch.device) -> tuple[DeviceView, DeviceView]:
    """Return the two views of ``each`` answers a row; the rows are a multiple of the columns."""
    n_rows, n_columns = len(truth.rows), len(truth.columns)
    n = n_rows * each
    step = 617_039 if n_columns > 617_039 else 7
    unstep = pow(step, -1, n_columns)
    generator = torch.Generator(device=device).manual_seed(each)
    shifts = torch.randperm(n_columns, device=device, generator=generator)[:each].contiguous()
    views = []
    for by_row, size in ((True, n_rows), (False, n_columns)):
        answers = torch.empty(n, dtype=torch.int32, device=device)
        for first in range(0, n, 2**32):
            blocks = triton.cdiv(min(2**32, n - first), 128)
            _regular[(blocks,)](
                answers, truth.rows, truth.columns, shifts, first, n, n_rows, n_columns, each, step,
                unstep, BY_ROW=by_row, EDGE=_EDGE, BLOCK=128,
            )  # fmt: skip
        start = torch.arange(size + 1, dtype=torch.int64, device=device) * (n // size)
        views.append(DeviceView(start, answers, torch.empty(0, device=device), device))
    return views[0], views[1]
