"""The functionals of a chain's state that are watched: fixed answers and pairs, and norms."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from onebit.engine.sampling.chain import Chain
from onebit.engine.sampling.lines import Lines
from onebit.model.losses import Loss

Array = NDArray[np.float64]

# Answers whose loss is one of the functionals, and pairs whose scores are.
_WATCHED_ANSWERS, _WATCHED_PAIRS = 2000, 8
# A stream of its own for the choice of what is watched.
_OF_WATCHED = 5


class Watched:
    """The functionals: fixed answers and pairs, and norms that no rotation changes."""

    def __init__(self, lines: Lines, shape: tuple[int, int], n: int, loss: Loss, seed: int) -> None:
        rng = np.random.default_rng([_OF_WATCHED, seed])
        count = min(n, _WATCHED_ANSWERS)
        # Of very many, two of the same do no harm.
        few = n <= 10**7
        places = rng.choice(n, size=count, replace=False) if few else rng.integers(n, size=count)
        self.loss = loss
        *seen, self.sign = lines.answers(np.sort(places))
        # Of rows and columns at random: entries that nobody answered among them.
        more = [rng.integers(size, size=_WATCHED_PAIRS).astype(np.int32) for size in shape]
        # First those of the answers, then these: asked for at once.
        self.rows, self.columns = (np.append(*both) for both in zip(seen, more, strict=True))
        self.names = (
            "loss", "mean score", "norm of the factors", "norm of the row effects",
            "norm of the column effects", *(f"score {k + 1}" for k in range(_WATCHED_PAIRS)),
        )  # fmt: skip

    def margins(self, chain: Chain) -> tuple[Array, Array]:
        """Return the scores of the answers, those of "no" with the other sign, and of the pairs."""
        scores = chain.scores(self.rows, self.columns)
        count = len(self.sign)
        return self.sign * scores[:count], scores[count:]

    def mean_loss(self, margins: Array) -> float:
        """Return the mean loss of the watched answers."""
        return float(self.loss.value(margins).mean())

    def values(self, chain: Chain, margins: Array, scores: Array) -> Array:
        """Return the functionals of a chain's present state, of such margins and scores."""
        hierarchy, rank = chain.target.hierarchy, chain.target.hierarchy.rank
        means = [part.total / part.size for part in chain.moments]
        averages = [mean[:rank] for mean in means]
        level = sum(float(mean[rank]) for side, mean in enumerate(means) if hierarchy.has_effect(side))
        # Effects as users see them, on a typical column (or row), and what the factors add to them.
        centres = [hierarchy.mean_share(side) * hierarchy.shape[side] * averages[side] for side in (0, 1)]
        spreads, squares = [], []
        for side, part in enumerate(chain.moments):
            about = part.gram / part.size
            main = np.append(centres[1 - side], 1.0)[: len(part.total)]
            variance = float(main @ (about - np.outer(means[side], means[side])) @ main)
            spreads.append(math.sqrt(max(variance, 0.0)))
            cross = np.outer(averages[side], centres[side])
            squares.append(about[:rank, :rank] - cross - cross.T + np.outer(centres[side], centres[side]))
        return np.array(
            [
                self.mean_loss(margins),
                level + (averages[0] * averages[1]).sum(),
                np.sqrt(max(float((squares[0] * squares[1]).sum()), 0.0)),
                *spreads,
                *scores,
            ]
        )
