"""What an effort buys: how long AutoCompleter may sample, by a fixed reckoning.

The search must not depend on how busy a machine is, so it does not look at a clock: it reckons what a
sweep costs on one core (or on a GPU), and how many fit the seconds that an effort stands for.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from typing import NamedTuple

from onebit.engine.sampling.plan import Plan

# Seconds of one core (or of a GPU) for sampling, and the most draws of a chain.
EFFORTS: dict[str, tuple[float, int]] = {
    "quick": (20.0, 200),
    "default": (200.0, 3000),
    "thorough": (2000.0, 5000),
}


class Cost(NamedTuple):
    """What a sweep of one chain is taken to cost, in seconds.

    By itself, for each answer and side, and for each row and column, at rank 10; and how that grows with
    the rank, as a polynomial in its tenth.
    """

    sweep: float
    answer: float
    line: float
    grows: tuple[float, ...]


# On a core: by the sweeps of five (Neoverse-N1) and of six real tables (Sapphire Rapids) at ranks 10, 20
# and 40, two chains on two cores.
_ON_CORES = {
    "arm64": Cost(1.5e-2, 1.2e-7, 4e-6, (0.6, 0.32, 0.08)),
    "x86-64": Cost(7.2e-3, 6.3e-8, 6.4e-6, (0.75, 0.175, 0.075)),
}
# On a GPU (H200).
_ON_GPU = Cost(5e-3, 1.2e-10, 1e-9, (0.6, 0.32, 0.08))
# Short chains that are there to be ranked.
TRIAL = Plan(n_samples=40, n_burn_in=20, n_chains=2)
# The chains of the last fit: four, or two where four would be shorter than so many sweeps and than the
# effort allows at most, since what all rows share takes ten to two hundred sweeps to move (three would
# leave one of two cores idle in every second step); one where two would have fewer draws than the fewest.
CHAINS, FEW_CHAINS, LONG, FEWEST = 4, 2, 2000, 50
# A higher rank that leaves all chains together fewer draws than so many, where a lower one has more, is
# kept only where it gains this share of the log-loss: what all rows share would not have mixed.
ENOUGH, WORTH_SHORTER = 6000, 0.02
# The share of the seconds that a trial may take before its chains are the shortest, and its most draws.
_TRIAL_SHARE, _LONGEST_TRIAL = 0.05, 200


def architecture() -> str:
    """Return the architecture of this machine, by the name that costs are kept under.

    What is not arm64 is taken for x86-64.
    """
    return "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x86-64"


@dataclass(frozen=True)
class Budget:
    """The seconds of one core that sampling may take, and how they are spent.

    Attributes
    ----------
    seconds : float
        In all: trials on the held-out splits, and the last fit.
    most_draws : int
        Of a chain in the last fit.
    on_gpu : bool
        Where it runs.
    n_samples, n_chains, n_burn_in : int or None
        Of the last fit, where the user has asked for so many.
    """

    seconds: float
    most_draws: int
    on_gpu: bool = False
    n_samples: int | None = None
    n_chains: int | None = None
    n_burn_in: int | None = None

    def sweep(self, shape: tuple[int, int], n: int, rank: int) -> float:
        """Return the seconds that one sweep of one chain is taken to need."""
        cost = _ON_GPU if self.on_gpu else _ON_CORES[architecture()]
        wide = sum(share * (rank / 10.0) ** power for power, share in enumerate(cost.grows))
        return wide * (cost.sweep + 2.0 * n * cost.answer + sum(shape) * cost.line)

    def trial(self, shape: tuple[int, int], n: int, rank: int, splits: int) -> tuple[Plan, float]:
        """Return the plan of runs that are there to be ranked, one a split, and their seconds.

        They are short, but longer where that costs little: few draws say less than they could.
        """
        each = splits * TRIAL.n_chains * self.sweep(shape, n, rank)
        draws = int(_TRIAL_SHARE * self.seconds / each) - TRIAL.n_burn_in
        plan = replace(TRIAL, n_samples=min(max(draws, TRIAL.n_samples), _LONGEST_TRIAL))
        return plan, plan.sweeps * each

    def least(self, shape: tuple[int, int], n: int, rank: int) -> float:
        """Return the seconds of the shortest last fit that is worth its name."""
        return (self._burn_in + 2 * FEWEST) * self.sweep(shape, n, rank)

    @property
    def _burn_in(self) -> int:
        return TRIAL.n_burn_in if self.n_burn_in is None else self.n_burn_in

    def plan(self, shape: tuple[int, int], n: int, rank: int, spent: float) -> Plan:
        """Return the plan of the last fit for what is left of the seconds.

        Chains go on until they have settled, unless the user has said how long.
        """
        sweeps = int(max(self.seconds - spent, 0.0) / self.sweep(shape, n, rank))
        chains = self.n_chains
        if chains is None:
            affordable = max(sweeps // (self._burn_in + FEWEST), 1)
            longest = self._burn_in + (self.most_draws if self.n_samples is None else self.n_samples)
            many = affordable >= CHAINS and sweeps // CHAINS >= min(LONG, longest)
            chains = CHAINS if many else min(FEW_CHAINS, affordable)
        if self.n_samples is not None:
            return Plan(self.n_samples, self._burn_in, chains)
        draws = min(max(sweeps // chains - self._burn_in, FEWEST), self.most_draws)
        return Plan(draws, self._burn_in, chains, settle="auto")

    def too_short(self, shape: tuple[int, int], n: int, rank: int, higher: int, spent: float) -> bool:
        """Say whether a higher rank would leave the chains of the last fit too few draws."""
        plans = [self.plan(shape, n, tried, spent) for tried in (higher, rank)]
        few, many = (plan.n_samples * plan.n_chains for plan in plans)
        return few < min(ENOUGH, many)

    def sentence(self, seconds: float, cores: int) -> str:
        """Say how long sampling will take at most.

        By two cores at most: chains may be no more, and what more cores help a chain is not reckoned.
        """
        where = "on the GPU" if self.on_gpu else f"on {cores} core{'s' if cores > 1 else ''}"
        shared = 1 if self.on_gpu else min(cores, FEW_CHAINS)
        return f"sampling takes about {max(seconds / shared, 1.0):.0f} s at most {where}, by a reckoning"
