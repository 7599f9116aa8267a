"""How long to sample, and what to keep of it."""

from __future__ import annotations

from dataclasses import dataclass

# Of a chain: what is watched of each is held.
MOST_DRAWS = 10**6
# Each chain has a state of its own, as large as a model.
MOST_CHAINS = 1000
# The draws of a chain in its first stretch.
_FIRST_STRETCH = 100


@dataclass(frozen=True)
class Plan:
    """How long to sample and what to keep.

    Attributes
    ----------
    n_samples, n_burn_in, n_chains : int
        Draws of each chain, the sweeps before them, and chains.
    n_thin : int
        Sweeps between two draws.
    settle : float, "auto" or None
        Stop before ``n_samples`` once the Monte Carlo error of every functional is below this share of
        its posterior standard deviation; "auto": once every R-hat is at most 1.05, every effective
        sample size at least 100 and the Monte Carlo error of the log-loss at most 0.0005.
    keep_bytes : int
        The most that the kept draws of the factors may take.
    """

    n_samples: int = 200
    n_burn_in: int = 20
    n_chains: int = 1
    n_thin: int = 1
    settle: float | str | None = None
    keep_bytes: int = 2**28

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The first draw of each stretch, and the first one after it."""
        if self.settle is None:
            return [(0, self.n_samples)]
        found, begin, length = [], 0, _FIRST_STRETCH
        while begin < self.n_samples:
            end = begin + length
            if 4 * end > self.n_samples:  # no more than a quarter is left behind
                end = self.n_samples
            found.append((begin, end))
            begin, length = end, 2 * length
        return found

    def stretch(self, draws: int) -> tuple[int, int]:
        """Return the stretch that a chain is in which has so many draws; the last one at the end."""
        return next((part for part in self.stretches if draws < part[1]), self.stretches[-1])

    @property
    def sweeps(self) -> int:
        """The sweeps of one chain."""
        return self.n_burn_in + self.n_samples * self.n_thin
