"""Products of tall matrices with few columns on a GPU, in double precision."""

from __future__ import annotations

import torch

# Rows that are brought to double precision at once.
_AT_ONCE = 2**20
# Rows whose products are summed up together.
_STRIP = 1024


def inner(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return ``left' right`` in double precision."""
    total = torch.zeros((left.shape[1], right.shape[1]), dtype=torch.float64, device=left.device)
    for begin in range(0, len(left), _AT_ONCE):
        rows = slice(begin, begin + _AT_ONCE)
        one, two = left[rows].double(), right[rows].double()
        # A library shares out the few sums of a tall product among few cores; strips of it are many.
        strips = len(one) // _STRIP
        if strips > 1:
            even = strips * _STRIP
            ones, twos = (part[:even].reshape(strips, _STRIP, part.shape[1]) for part in (one, two))
            total += torch.bmm(ones.mT, twos).sum(0)
            one, two = one[even:], two[even:]
        total += one.T @ two
    return total


def times(tall: torch.Tensor, small: torch.Tensor) -> torch.Tensor:
    """Return ``tall small`` in double precision."""
    out = torch.empty((len(tall), small.shape[1]), dtype=torch.float64, device=tall.device)
    for begin in range(0, len(tall), _AT_ONCE):
        rows = slice(begin, begin + _AT_ONCE)
        out[rows] = tall[rows].double() @ small
    return out
