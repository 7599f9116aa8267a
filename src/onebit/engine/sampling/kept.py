"""The draws that are kept of a run: as many of each chain, evenly spaced."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.data.sides import MEMBERS, SIDES
from onebit.engine.sampling.chain import Chain
from onebit.engine.sampling.lines import Lines
from onebit.engine.sampling.philox import sweep_generator
from onebit.engine.sampling.plan import Plan
from onebit.model.posterior import Posterior

# Draws that are kept at most: more would make averages a little better, and every prediction longer.
MOST_KEPT = 200
# Slopes that are kept are drawn from numbers of their own: sweeps are fewer.
OF_KEPT_SLOPES = 2**31


class Kept:
    """Room for the draws that are kept, and which they are."""

    def __init__(self, plan: Plan, posterior: Posterior, lines: Lines) -> None:
        hierarchy = posterior.hierarchy
        widths = [hierarchy.n_free(side) for side in (0, 1)]
        numbers = sum(size * width for size, width in zip(posterior.shape, widths, strict=True))
        each = 4 * numbers + 8 * (hierarchy.rank + 3)
        longest = max(end - begin for begin, end in plan.stretches) * plan.n_chains
        self.room = max(1, min(longest, MOST_KEPT, plan.keep_bytes // each))
        self.chains = plan.n_chains
        self.sides = [
            np.empty((size, self.room, width), np.float32)
            for size, width in zip(posterior.shape, widths, strict=True)
        ]
        self.factors = np.empty((self.room, hierarchy.rank))
        self.effects = np.empty((self.room, 2))
        self.intercept = np.empty(self.room)
        self.regressed = [
            0 if regression is None else regression.width for regression in hierarchy.regressions
        ]
        self.slopes = [
            np.empty((self.room, width, free), np.float32)
            for width, free in zip(self.regressed, widths, strict=True)
        ]
        self.typical = [np.empty((self.room, free)) for free in widths]
        self.spread = [np.empty((self.room, free)) for free in widths]
        self.count = 0
        nobody = np.empty(0, np.int64)
        self.silent = [lines.silent(side) if self.regressed[side] else nobody for side in (0, 1)]

    def kept_of(self, number: int, draws: int, total: int) -> int:
        """Return how many of the first ``draws`` of ``total`` of chain ``number`` are kept."""
        share = self.room // self.chains + (number < self.room % self.chains)
        return draws * min(share, total) // total

    def kept_of_all(self, draws: int, total: int) -> int:
        """Return how many are kept of the first draws of all chains."""
        return sum(self.kept_of(number, draws, total) for number in range(self.chains))

    def offer(self, number: int, draw: int, total: int, chain: Chain) -> bool:
        """Keep draw ``draw`` of ``total`` of chain ``number`` if it is its turn; say whether it was."""
        if self.kept_of(number, draw + 1, total) == self.kept_of(number, draw, total):
            return False
        for side, kept in enumerate(self.sides):
            kept[:, self.count] = chain.free(side)
        self.factors[self.count] = chain.hyper.factors
        self.effects[self.count] = chain.hyper.effects
        self.intercept[self.count] = chain.hyper.intercept
        rng = sweep_generator(chain.key, OF_KEPT_SLOPES + chain.sweep)
        for side, slopes in enumerate(self.slopes):
            if self.regressed[side]:
                drawn = chain.drawn_slopes(side, rng)
                slopes[self.count] = drawn
                typical, spread, pattern = chain.target.unknown(side, drawn)
                self.typical[side][self.count], self.spread[side][self.count] = typical, spread
                silent = self.silent[side]
                noise = rng.standard_normal((len(silent), drawn.shape[1]))
                more = typical + noise * np.sqrt(pattern)
                self.sides[side][silent, self.count] += more.astype(np.float32)
        self.count += 1
        return True

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is kept so far, by name."""
        arrays: dict[str, NDArray[Any]] = {
            "rows": self.sides[0][:, : self.count],
            "columns": self.sides[1][:, : self.count],
            "factors": self.factors[: self.count],
            "effects": self.effects[: self.count],
            "intercept": self.intercept[: self.count],
        }
        for side, name in enumerate(MEMBERS):
            if self.regressed[side]:
                arrays[f"{name}_slopes"] = self.slopes[side][: self.count]
                arrays[f"{name}_typical"] = self.typical[side][: self.count]
                arrays[f"{name}_spread"] = self.spread[side][: self.count]
        return arrays

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take up what ``arrays`` returned."""
        self.count = len(arrays["intercept"])
        for side, name in enumerate(SIDES):
            self.sides[side][:, : self.count] = arrays[name]
        for name in ("factors", "effects", "intercept"):
            getattr(self, name)[: self.count] = arrays[name]
        for side, name in enumerate(MEMBERS):
            if self.regressed[side]:
                self.slopes[side][: self.count] = arrays[f"{name}_slopes"]
                self.typical[side][: self.count] = arrays[f"{name}_typical"]
                self.spread[side][: self.count] = arrays[f"{name}_spread"]
