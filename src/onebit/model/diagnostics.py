"""How well chains have mixed: R-hat and effective sample sizes of a few functionals, and words for them.

Rank-normalised split R-hat, bulk and tail effective sample size (Vehtari, Gelman, Simpson, Carpenter and
Bürkner, 2021), with the thresholds that the field uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

Array = NDArray[np.float64]

# Below this many draws in all, halves of chains cannot be compared, and averages are rough.
FEWEST_DRAWS = 40
# The quantiles whose effective sample size is that of the tails.
TAILS = (0.05, 0.95)
# What is said of every functional.
DIAGNOSTICS = ("mean", "sd", "rhat", "ess_bulk", "ess_tail")
# What the field calls mixed.
MIXED_RHAT, MIXED_ESS = 1.01, 400.0
# Good enough for averages over many entries: a mean is known to a tenth of its posterior deviation.
ROUGH_RHAT, ROUGH_ESS = 1.05, 100.0
# Probabilities average over much else: at this size a score's mean is known to a sixth of its deviation.
USABLE_RHAT, USABLE_ESS = 1.1, 40.0
# A chain has settled when its R-hat is below this, and its Monte Carlo error below what was asked.
SETTLED_RHAT = ROUGH_RHAT
# The Monte Carlo error of the log-loss at which predictions have settled.
LOSS_ERROR = 0.0005
# Functionals that all rows or all columns share. Single effects move with those of the effects.
OF_EFFECTS = ("mean score", "norm of the row effects", "norm of the column effects")
SHARED = (*OF_EFFECTS, "norm of the factors")


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
        """Return mean, standard deviation, R-hat and effective sample sizes, one line a functional.

        R-hat compares the halves of every chain, so that one chain suffices. All three are NaN where
        there are too few draws.
        """
        pooled = self.values.reshape(-1, len(self.names))
        deviation = pooled.std(axis=0, ddof=1) if len(pooled) > 1 else np.full(len(self.names), np.nan)
        unknown = (np.full(len(self.names), np.nan),) * 3
        judged = (self._rhats(), *self._sizes()) if self.enough else unknown
        columns = (pooled.mean(axis=0), deviation, *judged)
        return pd.DataFrame(
            dict(zip(DIAGNOSTICS, columns, strict=True)), index=pd.Index(self.names, name="functional")
        )

    @cached_property
    def _moving(self) -> NDArray[np.bool_]:
        """Which functionals have moved: a constant has mixed."""
        return np.asarray(self.values.std(axis=(0, 1)) > 0)

    def _rhats(self) -> Array:
        rhat = np.ones(len(self.names))
        moving = np.moveaxis(self.values[:, :, self._moving], 2, 0)
        rhat[self._moving] = [split_rhat(course) for course in moving]
        return rhat

    def _sizes(self) -> tuple[Array, Array]:
        """Return the effective sample sizes of the bulk and of the tails."""
        from arviz_stats.base import array_stats  # slow to import

        chains, draws, count = self.values.shape
        bulk, tail = np.full((2, count), float(chains * draws))
        if self._moving.any():
            part = self.values[:, :, self._moving]
            # It halves the chains itself.
            bulk[self._moving] = array_stats.ess(part, chain_axis=0, draw_axis=1, method="bulk")
            tail[self._moving] = array_stats.ess(
                part, chain_axis=0, draw_axis=1, method="tail", prob=TAILS
            )
        return bulk, tail

    @property
    def _alike(self) -> bool:
        return self.enough and bool(self._rhats().max() <= SETTLED_RHAT)

    def mixed(self) -> bool:
        """Say whether the chains have at least roughly mixed, in every functional."""
        return self._alike and bool(min(part.min() for part in self._sizes()) >= ROUGH_ESS)

    def settled(self, error: float) -> bool:
        """Say whether every functional's mean is known to ``error`` posterior standard deviations."""
        return self._alike and bool(self._sizes()[0].min() * error**2 >= 1.0)


def split_rhat(course: Array) -> float:
    """Return the rank-normalised split R-hat of one functional, of shape (chains, draws).

    The larger of two: of the draws, and of their distance from the median, which shows chains that differ
    in spread. Every chain is cut into halves, so that one chain suffices.
    """
    half = course.shape[1] // 2
    halves = np.concatenate([course[:, :half], course[:, -half:]])
    folded = np.abs(halves - np.median(halves))
    return max(_rhat(_normal_scores(part)) for part in (halves, folded))


def _normal_scores(values: Array) -> Array:
    ranks = rankdata(values, method="average").reshape(values.shape)
    return ndtri((ranks - 0.375) / (values.size + 0.25))


def _rhat(parts: Array) -> float:
    count = parts.shape[1]
    within = float(parts.var(axis=1, ddof=1).mean())
    between = float(parts.mean(axis=1).var(ddof=1))
    if within == 0:
        return 1.0 if between == 0 else math.inf
    return math.sqrt((count - 1) / count + between / within)


@dataclass(frozen=True)
class Mixing:
    """What the diagnostics of a sampled model mean for who reads it.

    Attributes
    ----------
    verdict : {"mixed", "roughly mixed", "not mixed", "unknown"}
        "mixed" is R-hat at most 1.01 and effective sample sizes of at least 400 for every functional,
        "roughly mixed" 1.05 and 100, "unknown" too few draws to tell.
    rhat, ess : float
        The worst R-hat and the smallest effective sample size.
    worst : str
        The functional that mixed worst.
    predictions : bool
        Whether the functionals that single entries are read from (loss and scores) can be used.
    movement : float
        How far what the effects of all rows or columns share, and with it every effect, may move from run
        to run (two Monte Carlo standard errors), beside what each effect moves by itself.
    """

    verdict: str
    rhat: float
    ess: float
    worst: str
    predictions: bool
    movement: float

    @classmethod
    def of(cls, table: pd.DataFrame) -> Mixing:
        """Judge a table of diagnostics."""
        if table["rhat"].isna().any():
            return cls("unknown", math.nan, math.nan, "", False, math.nan)
        rhat, ess = table["rhat"], table[["ess_bulk", "ess_tail"]].min(axis=1)
        if _within(rhat, ess, MIXED_RHAT, MIXED_ESS):
            verdict = "mixed"
        else:
            verdict = "roughly mixed" if _within(rhat, ess, ROUGH_RHAT, ROUGH_ESS) else "not mixed"
        shared = table.index.isin(SHARED)
        error = table["sd"] / np.sqrt(table["ess_bulk"].clip(lower=1.0))
        of_effects = table.index.isin(OF_EFFECTS)
        return cls(
            verdict,
            float(rhat.max()),
            float(ess.min()),
            str(rhat.idxmax() if rhat.max() > ROUGH_RHAT else ess.idxmin()),
            _within(rhat[~shared], ess[~shared], USABLE_RHAT, USABLE_ESS),
            2.0 * float(error[of_effects].max()) if of_effects.any() else 0.0,
        )

    def sentences(self) -> list[str]:
        """Return what this means, in words that can be acted on, without what to do about it."""
        if self.verdict == "unknown":
            return [
                "There are too few draws to say how well the chains have mixed, and averages over them "
                "are rough."
            ]
        figures = self.figures
        if self.verdict == "mixed":
            return [f"The chains have mixed ({figures})."]
        if self.verdict == "roughly mixed":
            return [f"The chains have roughly mixed ({figures}): good for predictions; {self._moving()}."]
        predictions = (
            "Predictions can be used" if self.predictions else "Single predictions are rough too"
        )
        return [
            f"The chains have not mixed ({figures}, of the {self.worst}). {predictions}; "
            f"{self._moving()}."
        ]

    @property
    def figures(self) -> str:
        """The worst figures."""
        return f"worst R-hat {self.rhat:.2f}, smallest effective sample size {math.floor(self.ess)}"

    def _moving(self) -> str:
        return (
            f"the level or the spread of all row effects or all column effects may move by up to about "
            f"{self.movement:.2g} from run to run"
        )

    def advice(self, remedy: str) -> list[str]:
        """Return what to warn of: nothing where the chains have mixed at least roughly."""
        if self.verdict in ("mixed", "roughly mixed"):
            return []
        return [" ".join([*self.sentences(), f"{remedy} for more draws"])]


def _within(rhat: pd.Series, ess: pd.Series, most: float, least: float) -> bool:
    return bool((rhat <= most).all() and (ess >= least).all())


def sampling_words(model: Any) -> Sequence[str]:
    """Say in a few sentences where a model's predictions come from: draws, or an approximation.

    Examples
    --------
    >>> from onebit import LogisticCompleter
    >>> from onebit.model.diagnostics import sampling_words
    >>> model = LogisticCompleter(1).fit([("a", 1), ("b", 1), ("a", 2)], [1, 0, 1])
    >>> print(sampling_words(model)[0])
    Not sampled: the posterior is a variational approximation.
    """
    part = getattr(model, "completer_", model)
    draws = getattr(part, "draws_", None)
    if draws is None:
        if not hasattr(part, "posterior_"):
            return ["Not sampled: the model has no posterior."]
        return [
            "Not sampled: the posterior is a variational approximation.",
            "Its uncertainties are approximate and too small: they leave out how rows and columns depend "
            "on each other.",
            *_of_the_search(model),
        ]
    chains = "one chain" if part.n_chains == 1 else f"{part.n_chains} chains"
    first = (
        f"Sampled: predictions are averages over {draws.count:,} draws of the exact posterior, evenly "
        f"spaced among the last {part.n_draws_:,} of {chains} of {part.n_sweeps_:,} sweeps each, which "
        f"began where {part.n_iter_:,} rounds of the variational descent ended."
    )
    if np.isfinite(part.loss_error_):
        first += f" More draws would lower the expected log-loss by about {part.loss_error_:.1g}."
    mixing = Mixing.of(part.diagnostics_)
    words = [first, *mixing.sentences()]
    return words if mixing.verdict == "mixed" else [*words, _more_draws(model, part, mixing.ess)]


def _of_the_search(model: Any) -> list[str]:
    """Say what a search that keeps a variational model has seen of sampling."""
    table = getattr(model, "search_", None)
    if table is None or table.empty:
        return []
    sampled = table.loc[table["inference"] == "sampling", "log_loss"]
    if sampled.empty:
        return ["The search did not try to sample: its effort had no time, or the answers have weights."]
    kept = float(table.loc[table["chosen"], "log_loss"].iloc[0])
    return [
        f"The search tried to sample: on the answers held out of it the log-loss was "
        f"{sampled.min():.4f}, that of what it keeps {kept:.4f}."
    ]


def _more_draws(model: Any, part: Any, least: float) -> str:
    """Return what to fit for chains that have mixed, reckoned from the effective sample size so far."""
    wanted = 1000
    if least > 0:  # not so where it is unknown
        # Shared out among four chains; beyond a hundred times as many the size was not known.
        draws = part.n_draws_ * min(MIXED_ESS / least, 100.0) / 4
        wanted = max(math.ceil(draws / 100) * 100, wanted)
    chosen = f'inference="sampling", n_chains=4, n_samples={wanted}'
    if model is part:
        chosen += "" if part.settle is None else ", settle=None"
        shell = f"--samples {wanted} --chains 4"
        return f"For effects that stay, fit again with {chosen} (in the shell, {shell})."
    usual = {"effects": (True,), "pattern": ("auto", "both"), "temperature": (1.0,)}
    found = {name: getattr(part, name, values[0]) for name, values in usual.items()}
    others = "".join(f"{name}={found[name]!r}, " for name in usual if found[name] not in usual[name])
    return (
        f"For effects that stay, fit {type(part).__name__}(rank={part.rank}, {others}{chosen}) in place "
        f"of {type(model).__name__}."
    )
