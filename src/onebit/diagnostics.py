"""How well chains have mixed: R-hat and effective sample size of a few functionals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Below this many draws in all, halves of chains cannot be compared, and averages are rough.
FEWEST_DRAWS = 40
# What is said of every functional.
DIAGNOSTICS = ("mean", "sd", "rhat", "ess")
# What is called poor. At an effective size of 30 a posterior mean is known to a fifth of its deviation.
POOR_RHAT, POOR_ESS = 1.1, 30.0
# A chain has settled when its R-hat is below this, and its Monte Carlo error below what was asked.
SETTLED_RHAT = 1.05


@dataclass(frozen=True)
class Diagnostics:
    """The course of some functionals of the state, none of which a rotation of the factors changes.

    Attributes
    ----------
    names : tuple of str
        The functionals.
    values : ndarray of shape (chains, draws, functionals)
        Their values at every draw.
    """

    names: tuple[str, ...]
    values: Array

    @property
    def enough(self) -> bool:
        """Whether there are enough draws to say anything."""
        chains, draws, _ = self.values.shape
        return chains * draws >= FEWEST_DRAWS and draws >= 8

    def table(self) -> pd.DataFrame:
        """Return mean, standard deviation, R-hat and effective sample size, a line a functional.

        R-hat compares the halves of every chain (rank-normalised, Vehtari et al., 2021), so that one
        chain suffices. Both are NaN where there are too few draws.
        """
        pooled = self.values.reshape(-1, len(self.names))
        rhat, ess = self._rhat_ess()
        deviation = pooled.std(axis=0, ddof=1) if len(pooled) > 1 else np.full(len(self.names), np.nan)
        return pd.DataFrame(
            dict(zip(DIAGNOSTICS, (pooled.mean(axis=0), deviation, rhat, ess), strict=True)),
            index=pd.Index(self.names, name="functional"),
        )

    def _rhat_ess(self) -> tuple[Array, Array]:
        from arviz_stats.base import array_stats  # slow to import

        count = len(self.names)
        if not self.enough:
            return np.full(count, np.nan), np.full(count, np.nan)
        chains, draws, _ = self.values.shape
        half = draws // 2
        halves = self.values[:, : 2 * half].reshape(chains * 2, half, count)
        rhat, ess = np.ones(count), np.full(count, float(chains * draws))
        moving = halves.std(axis=(0, 1)) > 0  # a constant has mixed
        if moving.any():
            part = halves[:, :, moving]
            rhat[moving] = array_stats.rhat(part, chain_axis=0, draw_axis=1)
            ess[moving] = array_stats.ess(part, chain_axis=0, draw_axis=1, method="bulk")
        return rhat, ess

    def settled(self, error: float) -> bool:
        """Say whether every functional's mean is known to ``error`` posterior standard deviations."""
        if not self.enough:
            return False
        rhat, ess = self._rhat_ess()
        return bool(rhat.max() <= SETTLED_RHAT and ess.min() >= 1.0 / error**2)

    def advice(self) -> list[str]:
        """Return what to warn of."""
        chains, draws, _ = self.values.shape
        if not self.enough:
            return [
                f"{chains * draws} draws are too few to say how well the chain has mixed, and averages "
                f"over them are rough; ask for at least {FEWEST_DRAWS}, better a few hundred (n_samples)"
            ]
        rhat, ess = self._rhat_ess()
        worst, fewest = int(np.argmax(rhat)), int(np.argmin(ess))
        advice = []
        if rhat[worst] > POOR_RHAT:
            advice.append(f"R-hat of {self.names[worst]} is {rhat[worst]:.2f} (above {POOR_RHAT})")
        if ess[fewest] < POOR_ESS:
            size = math.floor(ess[fewest])
            advice.append(f"{self.names[fewest]} has an effective sample size of {size} only")
        if not advice:
            return []
        return [f"the chain has not mixed well: {' and '.join(advice)}; raise n_samples or n_burn_in"]
