"""Worlds in which the truth is known: the paper's simulated matrices, at any size.

Type A matrices hold signs (``rank`` independent columns, the others copies of them up to a sign);
type B matrices are products of Gaussian factors. Noise 1 is none, noise 2 flips answers, noise 3 is
logistic. (The paper calls A3 "a switch noise with probability e/(1+e)": that is the probability of
*no* switch.)
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

WORLDS = ("A1", "A2", "A3", "B1", "B2", "B3")


@dataclass(frozen=True)
class World:
    """A simulated matrix, what was seen of it, and the truth.

    ``sampling`` is the probability of each entry to be asked about next (the first one, where entries
    come only once), and ``flip`` the share of answers that noise 2 flips.
    """

    name: str
    truth: NDArray[np.float64]
    pairs: NDArray[np.int64]
    answers: NDArray[np.int8]
    sampling: NDArray[np.float64]
    flip: float

    def error(self, scores: NDArray[np.float64]) -> float:
        """Return the share of entries whose predicted sign differs from the truth; ties are wrong."""
        return float(np.mean(scores * np.sign(self.truth) <= 0))

    def chance_of_error(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return, for each entry, how likely a fresh answer to it differs from the predicted sign."""
        yes = expit(self.truth) if self.name[1] == "3" else (self.truth > 0).astype(float)
        if self.name[1] == "2":
            yes = yes * (1.0 - self.flip) + (1.0 - yes) * self.flip
        return np.where(scores == 0, 1.0, np.where(scores > 0, 1.0 - yes, yes))

    @property
    def all_pairs(self) -> NDArray[np.int64]:
        """Every (row, column) of the matrix, row by row."""
        rows, columns = self.truth.shape
        return np.stack(np.divmod(np.arange(rows * columns), columns), axis=1)


def world(
    name: str,
    rank: int = 3,
    shape: tuple[int, int] = (200, 200),
    density: float = 0.2,
    seed: int = 0,
    flip: float = 0.1,
    repeats: bool = False,
    skew: float = 0.0,
) -> World:
    """Draw one of the paper's worlds.

    Parameters
    ----------
    name : {"A1", "A2", "A3", "B1", "B2", "B3"}
        Type of matrix and type of noise.
    rank : int
        Rank of the matrix.
    shape : (int, int)
        Rows and columns.
    density : float
        Number of answers as a share of the entries.
    seed : int
        The draw; the same seed gives the same world.
    flip : float
        Share of answers that noise 2 flips.
    repeats : bool
        Draw entries independently, so that one may come several times, as in the paper's theory;
        otherwise each is seen at most once, as in its experiments.
    skew : float
        Zero samples entries uniformly. Otherwise row ``i`` and column ``j`` are drawn with
        probability proportional to a power law of this exponent.

    Examples
    --------
    >>> from onebit import simulate
    >>> world = simulate.world("A2", rank=3, seed=1)
    >>> world.truth.shape, len(world.answers)
    ((200, 200), 8000)
    """
    if name not in WORLDS:
        raise ValueError(f"unknown world {name!r}; choose one of {', '.join(WORLDS)}")
    if len(shape) != 2 or not all(isinstance(size, Integral) for size in (*shape, rank)):
        raise ValueError(f"shape and rank are whole numbers, got shape {shape!r} and rank {rank!r}")
    if not np.isfinite([density, flip, skew]).all():
        raise ValueError(f"density, flip and skew are numbers, got {density!r}, {flip!r}, {skew!r}")
    rows, columns = shape
    if min(rows, columns) < 1 or not 1 <= rank <= min(rows, columns):
        raise ValueError(f"rank {rank} does not fit a matrix of shape {tuple(shape)}")
    if not 0 <= flip <= 1:
        raise ValueError(f"flip is a share between 0 and 1, got {flip!r}")
    n = round(density * rows * columns)
    if n < 1 or (n > rows * columns and not repeats):
        raise ValueError(f"density {density!r} asks for {n} of {rows * columns} entries")
    if skew < 0:
        raise ValueError(f"skew must not be negative, got {skew!r}")
    rng = np.random.default_rng(seed)
    if name[0] == "A":
        base = rng.choice([-1.0, 1.0], size=(rows, rank))
        copies = np.concatenate([np.arange(rank), rng.integers(rank, size=columns - rank)])
        turns = np.concatenate([np.ones(rank), rng.choice([-1.0, 1.0], size=columns - rank)])
        truth = base[:, copies] * turns
    else:
        truth = rng.standard_normal((rows, rank)) @ rng.standard_normal((columns, rank)).T
    probability = None
    if skew:
        popularity = [(np.arange(size) + 1.0) ** -skew for size in shape]
        probability = np.outer(*(rng.permutation(p) for p in popularity)).ravel()
        probability /= probability.sum()
    entries = rng.choice(rows * columns, size=n, replace=repeats, p=probability)
    pairs = np.stack(np.divmod(entries, columns), axis=1)
    scores = truth.ravel()[entries]
    if name[1] == "3":
        scores = scores + rng.logistic(size=n)
    answers = np.where(scores > 0, 1, -1).astype(np.int8)
    if name[1] == "2":
        answers = np.where(rng.random(n) < flip, -answers, answers)
    sampling = np.full(truth.size, 1.0 / truth.size) if probability is None else probability
    return World(name, truth, pairs, answers.astype(np.int8), sampling.reshape(truth.shape), flip)
