"""Hashes of answers that depend on ids and on a key, not on the order or the place of the answers.

Whatever holds a part of the answers gets the same numbers for them: a choice by the smallest hashes does
not depend on where answers lie, and sums of hashes add over parts.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

GOLDEN = 0x9E3779B97F4A7C15
_WORD = 2**64


def mixed(values: Hashes) -> Hashes:
    """Return the finaliser of splitmix64 (Steele, Lea and Flood, 2014), which moves every bit."""
    values = values.astype(np.uint64, copy=True)
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def id_hashes(labels: pd.Index, key: int) -> Hashes:
    """Return a keyed hash of every id: of whole numbers by their value, of others by their text."""
    salt = np.uint64((key * GOLDEN + 1) % _WORD)
    if labels.dtype.kind in "iu":
        values = labels.to_numpy().astype(np.int64).view(np.uint64)
    else:
        texts = np.array([str(label) for label in labels], dtype=object)
        values = pd.util.hash_array(texts, categorize=False)
    return mixed(mixed(values ^ salt) + salt)


def answer_hashes(rows: Hashes, columns: Hashes, repeats: NDArray[np.int64]) -> Hashes:
    """Return a hash of each answer, from those of its row and its column and the number of the repeat."""
    turned = (columns << np.uint64(23)) | (columns >> np.uint64(41))
    return mixed(mixed(rows ^ turned) + repeats.astype(np.uint64) * np.uint64(GOLDEN))


def repeats(entries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers 0, 1, 2, ... of the answers of every entry, which stand side by side."""
    if len(entries) == 0:
        return np.zeros(0, dtype=np.int64)
    first = np.flatnonzero(np.r_[True, entries[1:] != entries[:-1]])
    lengths = np.diff(np.r_[first, len(entries)])
    return np.arange(len(entries)) - np.repeat(first, lengths)


def fingerprint(n: int, sums: Iterable[int]) -> str:
    """Write the number of answers and sums of their hashes."""
    return f"{n:x}-" + "".join(f"{total % _WORD:016x}" for total in sums)


def joined(fingerprints: Iterable[str]) -> str:
    """Return the fingerprint of all answers from those of parts that do not overlap.

    Examples
    --------
    >>> from onebit.data.hashing import joined
    >>> joined(["1-00000000000000010000000000000002", "2-ffffffffffffffff0000000000000003"])
    '3-00000000000000000000000000000005'
    """
    n, sums = 0, [0, 0]
    for text in fingerprints:
        count, _, digits = text.partition("-")
        n += int(count, 16)
        sums = [sums[0] + int(digits[:16], 16), sums[1] + int(digits[16:], 16)]
    return fingerprint(n, sums)
