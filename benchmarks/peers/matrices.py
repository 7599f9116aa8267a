"""The matrices: MovieLens 100k, and two made here of the sizes of MovieLens 1M and 20M.

A made matrix has power-law rows and columns, a score of rank 10 plus row and column effects, and logistic
answers; every entry is answered at most once. It is generated under a seed and kept in a folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from onebit.data.datasets import load_movielens_100k
from onebit.data.files import written_whole

RANK = 10
# Standard deviations of effects and of the factors' score: the truth then errs on about a quarter.
INTERCEPT, ROW_EFFECT, COLUMN_EFFECT, FACTORS = 0.3, 0.8, 0.8, 1.2
# Weights are (position / size + offset) ** -exponent, with medians and largest counts like MovieLens's:
# half of the rows have fewer than some 80 answers, half of the columns fewer than 90.
ROW_LAW, COLUMN_LAW = (0.9, 0.003), (2.0, 0.02)
# A row answers at most this share of the columns: beyond, drawing distinct ones becomes slow.
LARGEST_SHARE = 0.35
NAMES = tuple(f"{part}_{name}" for part in ("train", "test") for name in ("rows", "columns", "signs"))


class Entries(NamedTuple):
    """Answers one by one: codes of rows and columns, and signs in {-1, 1}."""

    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    signs: NDArray[np.int8]

    def take(self, chosen: NDArray[np.int64]) -> Entries:
        """Return the chosen answers, in that order."""
        return Entries(self.rows[chosen], self.columns[chosen], self.signs[chosen])


class Split(NamedTuple):
    """What is fitted and what is predicted; ``truth`` holds the test's true probabilities, if known."""

    train: Entries
    test: Entries
    truth: NDArray[np.float32] | None


@dataclass(frozen=True)
class Matrix:
    """What a matrix is called, how large it is and how it is split."""

    name: str
    title: str
    shape: tuple[int, int]
    n: int
    n_test: int
    splits: int = 1
    seed: int = 0

    @property
    def made(self) -> bool:
        """Whether it is generated here, so that the truth is known."""
        return self.name != "ml-100k"

    def path(self, cache: Path, number: int | str) -> Path:
        """Return where a split is kept: its number, or "validation"."""
        return cache / f"{self.name}-seed{self.seed}-{number}.npz"

    def store(self, data: Path, cache: Path) -> None:
        """Write the splits, and the one inside the first training set that settings are chosen on.

        They are made here once, so that the processes that are measured only load them.
        """
        numbers = (*range(self.splits), "validation")
        if all(self.path(cache, number).is_file() for number in numbers):
            return
        cache.mkdir(parents=True, exist_ok=True)
        entries, truth = make(self.shape, self.n, self.seed) if self.made else (movielens(data), None)
        for number in numbers:
            order = np.random.default_rng(0 if number == "validation" else number).permutation(self.n)
            test, train = order[: self.n_test], order[self.n_test :]
            if number == "validation":
                test, train = train[: self.n_test], train[self.n_test :]
            arrays = dict(zip(NAMES, (*entries.take(train), *entries.take(test)), strict=True))
            if truth is not None:
                arrays["truth"] = truth[test]
            with written_whole(self.path(cache, number)) as temporary, temporary.open("wb") as file:
                np.savez(file, **arrays)

    def split(self, cache: Path, number: int | str) -> Split:
        """Read a split."""
        with np.load(self.path(cache, number), allow_pickle=False) as file:
            arrays = [file[name] for name in NAMES]
            truth = file.get("truth")
        return Split(Entries(*arrays[:3]), Entries(*arrays[3:]), truth)


def movielens(data: Path) -> Entries:
    """Return MovieLens 100k with users and films numbered from zero."""
    found = load_movielens_100k(data)
    rows, columns = (np.unique(found.pairs[:, side], return_inverse=True)[1] for side in (0, 1))
    return Entries(rows.astype(np.int32), columns.astype(np.int32), found.answers)


MATRICES = {
    matrix.name: matrix
    for matrix in (
        Matrix("ml-100k", "MovieLens 100k", (943, 1682), 100_000, 5_000, splits=5),
        Matrix("made-1m", "made, the size of MovieLens 1M", (6_040, 3_706), 1_000_209, 50_000, seed=1),
        Matrix(
            "made-20m",
            "made, the size of MovieLens 20M",
            (138_493, 26_744),
            20_000_000,
            1_000_000,
            seed=20,
        ),
    )
}


def make(shape: tuple[int, int], n: int, seed: int) -> tuple[Entries, NDArray[np.float32]]:
    """Generate a matrix: its answers, sorted by row, and the probability of each "yes"."""
    rng = np.random.default_rng(seed)
    counts = row_counts(power_law(shape[0], *ROW_LAW, rng), n, int(LARGEST_SHARE * shape[1]))
    rows = np.repeat(np.arange(shape[0], dtype=np.int32), counts)
    columns = np.empty(n, dtype=np.int32)
    _distinct_columns(counts, np.cumsum(power_law(shape[1], *COLUMN_LAW, rng)), columns, rng)
    effects = [
        scale * rng.standard_normal(size, dtype=np.float32)
        for scale, size in zip((ROW_EFFECT, COLUMN_EFFECT), shape, strict=True)
    ]
    scale = np.sqrt(FACTORS / np.sqrt(RANK))
    factors = [scale * rng.standard_normal((size, RANK), dtype=np.float32) for size in shape]
    truth = np.empty(n, dtype=np.float32)
    for begin in range(0, n, 1_000_000):  # in blocks: the gathered factors of all entries are large
        part = slice(begin, begin + 1_000_000)
        i, j = rows[part], columns[part]
        score = (
            INTERCEPT
            + effects[0][i]
            + effects[1][j]
            + np.einsum("nk,nk->n", factors[0][i], factors[1][j])
        )
        truth[part] = expit(score)
    signs = np.where(rng.random(n, dtype=np.float32) < truth, 1, -1).astype(np.int8)
    return Entries(rows, columns, signs), truth


def power_law(size: int, exponent: float, offset: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return weights that sum to one and fall like a power of the rank, in random order."""
    weight = (np.arange(size) / size + offset) ** -exponent
    return rng.permutation(weight / weight.sum())


def row_counts(weight: NDArray[np.float64], n: int, largest: int) -> NDArray[np.int64]:
    """Share ``n`` answers out by weight: at least one for each row, at most ``largest``."""
    if not len(weight) <= n <= largest * len(weight):
        raise ValueError(
            f"{n} answers cannot be shared out among {len(weight)} rows of at most {largest}"
        )

    def rounded(scale: float) -> NDArray[np.int64]:
        return np.clip((scale * weight).astype(np.int64), 1, largest)

    low, high = 0.0, (largest + 1) / weight.min()
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rounded(middle).sum() <= n else (low, middle)
    counts = rounded(low)
    while (missing := n - int(counts.sum())) > 0:  # what rounding has left over
        counts[np.flatnonzero(counts < largest)[:missing]] += 1
    return counts


@numba.njit(cache=True)
def _distinct_columns(counts, cumulative, columns, rng):
    """For each row draw distinct columns by weight; those drawn already are drawn again."""
    size = len(cumulative)
    total = cumulative[-1]
    # A table of first guesses makes the search in the cumulative weights nearly constant.
    guesses = np.searchsorted(cumulative, np.arange(4 * size) / (4 * size) * total)
    owner = np.full(size, -1, dtype=np.int64)
    position = 0
    for row in range(len(counts)):
        left = counts[row]
        while left > 0:
            u = rng.random()
            column = guesses[int(u * 4 * size)]
            while column < size - 1 and cumulative[column] < u * total:
                column += 1
            if owner[column] != row:
                owner[column] = row
                columns[position] = column
                position += 1
                left -= 1
