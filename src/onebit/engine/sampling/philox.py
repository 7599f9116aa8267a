"""Random numbers that depend on where they are used, not on when: Philox 4x32-10.

A generator with a state would give other numbers to another order of work. This one is a function: a key
(the seed and the chain) and a counter of four words (the answer or coordinate, the row, the sweep, and
what the numbers are for) give four random words (Salmon et al., "Parallel random numbers: as easy as 1,
2, 3", 2011). So a chain is the same for any number of threads, and it can be taken up at any sweep.
"""

from __future__ import annotations

import numba
import numpy as np

from onebit.data.kernels import within_kernels

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_HIGH = np.uint64(32)
_ROUNDS = 10

# These have a type. Of a plain number numba makes a type of its own, and a copy of each function it is
# passed to.
ZERO, ONE = np.int64(0), np.int64(1)
# What numbers are for: the lowest bit of the last word is the side, then the purpose, then the attempt.
OF_ANSWERS, OF_ROWS, OF_LENGTHS, OF_ELLIPSES = np.uint32(0), np.uint32(1), np.uint32(2), np.uint32(3)
_PURPOSE_BITS, _ATTEMPT_BITS = 1, 3


@within_kernels(forceinline=True, error_model="numpy")
def random_words(key, first, second, third, fourth):
    """Return four random words of 32 bits for a key of two words and a counter of four."""
    a, b, c, d = np.uint32(first), np.uint32(second), np.uint32(third), np.uint32(fourth)
    k, m = np.uint32(key[0]), np.uint32(key[1])
    for _ in range(_ROUNDS):
        left, right = _MULTIPLIER_0 * np.uint64(a), _MULTIPLIER_1 * np.uint64(c)
        a, b, c, d = (
            np.uint32(right >> _HIGH) ^ b ^ k,
            np.uint32(right),
            np.uint32(left >> _HIGH) ^ d ^ m,
            np.uint32(left),
        )
        k, m = np.uint32(k + _WEYL_0), np.uint32(m + _WEYL_1)
    return np.uint32(a), b, np.uint32(c), d  # numba widens what it combines


@numba.njit(inline="always")
def use(side, purpose, attempt):
    """Return the last word of a counter: what the numbers are for."""
    return np.uint32(side | purpose << _PURPOSE_BITS | attempt << _ATTEMPT_BITS)


@within_kernels(forceinline=True)
def uniform(word):
    """Return a number between 0 and 1, neither of them, from one word."""
    return (np.float64(word) + 0.5) * 2.3283064365386963e-10


@within_kernels(forceinline=True)
def fine_uniform(high, low):
    """Return a number between 0 and 1, neither of them, from two words, with all bits of a double."""
    whole = (np.uint64(high) << np.uint64(20)) ^ (np.uint64(low) >> np.uint64(12))
    return (np.float64(whole) + 0.5) * 2.220446049250313e-16


def chain_key(seed: int, chain: int) -> tuple[int, int]:
    """Return the key of one chain.

    Examples
    --------
    >>> from onebit.engine.sampling.philox import chain_key
    >>> chain_key(0, 0) == chain_key(0, 1)
    False
    """
    first, second = np.random.SeedSequence([seed, chain]).generate_state(2, np.uint32).tolist()
    return first, second


def sweep_generator(key: tuple[int, int], sweep: int) -> np.random.Generator:
    """Return a generator for the few numbers of one sweep that no row owns."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([*key, sweep])))
