"""The scale of item response theory: abilities with mean zero and variance one, items in their terms.

A model of rank 0 with effects is Rasch's: ``logit P = a_i + b_j``. A model of rank 1 with column effects
alone is the two-parameter logistic one: ``logit P = l_i r_j + b_j``. Shift, scale and sign of ``a_i`` or
``l_i`` are nobody's to know; here, under every draw, abilities have mean zero and variance one over the
rows, and the sign is the one that makes discriminations positive on average:
``logit P = discrimination_j (ability_i - difficulty_j)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from onebit.model.draws import Draws
from onebit.model.hierarchy import Hierarchy

Array = NDArray[np.float64]
Codes = NDArray[np.integer]
# The least variance, or standard error, that is divided by.
_LEAST = 1e-12
# Fewer draws do not tell how sure a link is.
FEWEST_DRAWS = 10


# The models that have this scale.
OF_ITEM_RESPONSES = (
    "a Rasch model, LogisticCompleter(rank=0, pattern=None) (--model rasch), or a two-parameter one, "
    'LogisticCompleter(rank=1, effects="columns") (--model 2pl)'
)


@dataclass(frozen=True)
class Scale:
    """Draws of abilities, and of the slopes and intercepts of items.

    Attributes
    ----------
    ability : ndarray of shape (rows, draws)
        With mean zero and variance one under every draw; of a linked scale, of the other one's rows.
    slope, intercept : ndarray of shape (columns, draws)
        ``logit P = slope ability + intercept``: the slope is the discrimination.
    """

    ability: Array
    slope: Array
    intercept: Array

    @staticmethod
    def fits(draws: Draws) -> bool:
        """Say whether a model is Rasch's, or the two-parameter one, of rows that can be compared."""
        return _is_of_item_responses(draws.hierarchy) and len(draws.rows) > 1

    @classmethod
    def of(cls, draws: Draws) -> Scale:
        """Put the draws of a Rasch or of a two-parameter model on the scale."""
        hierarchy = draws.hierarchy
        rank, effects = hierarchy.rank, (hierarchy.has_effect(0), hierarchy.has_effect(1))
        if not _is_of_item_responses(hierarchy):
            whose = {(True, True): "of both sides", (True, False): "of rows", (False, True): "of columns"}
            raise ValueError(
                f"the scale of item response theory is that of {OF_ITEM_RESPONSES}; this model may have "
                f"rank {rank} and has effects {whose.get(effects, 'of neither side')}"
            )
        if not cls.fits(draws):
            raise ValueError(
                "the scale of item response theory places rows among each other: this model has one row"
            )
        latent, intercept = draws.rows[:, :, 0].astype(float), draws.columns[:, :, rank].astype(float)
        slope = draws.columns[:, :, 0].astype(float) if rank else np.ones_like(intercept)
        centre, size = latent.mean(axis=0), latent.std(axis=0)
        sign = _signs(slope * size)
        return cls(sign * (latent - centre) / size, sign * slope * size, intercept + slope * centre)

    def linked(self, other: Scale, own: Codes, others: Codes) -> tuple[Scale, Array]:
        """Put this scale in the units of another, by items that both have.

        ``ability A + B`` are the abilities there, with ``A`` and ``B`` such that slopes and intercepts
        of the common items (codes ``own`` here, ``others`` there) agree on average, each weighed by its
        precision and turned so that its slope is positive. Draws of both are paired at random, so that
        what either does not know of the items is in the standard errors.

        Returns
        -------
        Scale, ndarray
            The linked scale, and by how many standard errors each common item's intercept has moved.
        """
        if self.common_slope != other.common_slope:
            raise ValueError(
                "a Rasch model and a two-parameter one have no common scale: link models of one kind"
            )
        if min(self.slope.shape[1], other.slope.shape[1]) < FEWEST_DRAWS:
            raise ValueError(f"scales are linked by at least {FEWEST_DRAWS} draws of each model")
        pairing = self._paired(other)
        slope, other_slope = self.slope[own], other.slope[others][:, pairing]
        intercept, other_intercept = self.intercept[own], other.intercept[others][:, pairing]
        # Which end of the abilities is up is nobody's to know, of either model.
        turn = 1.0 if (slope.mean(axis=1) * other_slope.mean(axis=1)).sum() >= 0.0 else -1.0
        slope = turn * slope
        sign = np.where(other_slope.mean(axis=1) < 0.0, -1.0, 1.0)
        by_slope, by_intercept = (
            sign / np.maximum(one.var(axis=1) + two.var(axis=1), _LEAST)
            for one, two in ((slope, other_slope), (intercept, other_intercept))
        )
        sums = by_slope @ slope, by_slope @ other_slope, by_intercept @ other_slope
        if any(total.mean() <= 3.0 * total.std() for total in sums):
            raise ValueError(
                "the common columns do not tell abilities apart: their discriminations are too near to "
                "zero, or too uncertain, to link by"
            )
        size = sums[0] / sums[1]
        shift = by_intercept @ (intercept - other_intercept) / sums[2]
        found = Scale(
            turn * self.ability * size + shift, turn * self.slope / size,
            self.intercept - turn * self.slope * shift / size,
        )  # fmt: skip
        moved = found.intercept[own] - other_intercept
        return found, moved.mean(axis=1) / np.maximum(moved.std(axis=1, ddof=1), _LEAST)

    def _paired(self, other: Scale) -> NDArray[np.int64]:
        """Return a draw of another scale for each of this one.

        At random: runs with one seed have drawn with the same random numbers, and go up and down together
        though they know nothing of each other. The draws of one and the same run stay together.
        """
        count, there = self.slope.shape[1], other.slope.shape[1]
        if np.array_equal(self.intercept, other.intercept):
            return np.arange(count)
        return np.resize(np.random.default_rng(0).permutation(there), count)

    @property
    def common_slope(self) -> bool:
        """Whether all items share one discrimination, as in Rasch's model."""
        return bool((self.slope == self.slope[:1]).all())

    @cached_property
    def abilities(self) -> tuple[Array, Array]:
        """Mean and standard error of each ability."""
        return self.ability.mean(axis=1), self.ability.std(axis=1, ddof=1)

    @cached_property
    def discriminations(self) -> tuple[Array, Array]:
        """Mean and standard error of each discrimination."""
        return self.slope.mean(axis=1), self.slope.std(axis=1, ddof=1)

    @cached_property
    def difficulties(self) -> tuple[Array, Array]:
        """Difficulty of each item, ``-intercept / slope`` of the means, and its standard error.

        By the delta method: a ratio of draws has no moments where a slope may be zero. NaN where the
        slope is within two standard errors of zero: such an item says nothing of where it is difficult.
        """
        slope, intercept = self.slope.mean(axis=1), self.intercept.mean(axis=1)
        difficulty = np.where(np.abs(slope) > 2.0 * self.discriminations[1], -intercept / slope, np.nan)
        moved = (self.intercept - intercept[:, None]) + difficulty[:, None] * (
            self.slope - slope[:, None]
        )
        return difficulty, moved.std(axis=1, ddof=1) / np.abs(slope)

    def curves(self, abilities: Array) -> Array:
        """Return each item's probability of "yes" at some abilities: (items, abilities)."""
        slope, intercept = self.slope.mean(axis=1), self.intercept.mean(axis=1)
        return expit(slope[:, None] * abilities + intercept[:, None])

    def information(self, abilities: Array) -> Array:
        """Return each item's information, ``slope^2 P (1 - P)``, at some abilities."""
        chance = self.curves(abilities)
        return self.discriminations[0][:, None] ** 2 * chance * (1.0 - chance)

    @property
    def reliability(self) -> float:
        """The share of the abilities' variance that their estimates have (empirical)."""
        mean, error = self.abilities
        signal = float(mean.var())
        return signal / (signal + float((error**2).mean()))

    def fit_statistics(
        self, rows: NDArray[np.integer], columns: NDArray[np.integer], yes: Array
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Return infit and outfit mean squares of rows and of columns, given their answers.

        Outfit is the mean of ``(y - P)^2 / (P (1 - P))``, infit the sum of ``(y - P)^2`` over that of
        ``P (1 - P)``, at the estimates of abilities and items; both are near one where the model fits, a
        little below it in short tests. NaN without answers.
        """
        slope, intercept = self.slope.mean(axis=1), self.intercept.mean(axis=1)
        chance = expit(slope[columns] * self.abilities[0][rows] + intercept[columns])
        variance = chance * (1.0 - chance)
        square = (yes - chance) ** 2
        found = []
        for codes, size in ((rows, len(self.ability)), (columns, len(self.slope))):
            count = np.bincount(codes, minlength=size)
            with np.errstate(invalid="ignore", divide="ignore"):
                infit = np.bincount(codes, square, size) / np.bincount(codes, variance, size)
                outfit = np.bincount(codes, square / variance, size) / count
            found.append((infit, outfit))
        return found[0], found[1]


def _is_of_item_responses(hierarchy: Hierarchy) -> bool:
    effects = hierarchy.has_effect(0), hierarchy.has_effect(1)
    return (hierarchy.rank, effects) in ((0, (True, True)), (1, (False, True)))


def _signs(slope: Array) -> Array:
    """Return the sign of each draw: such that draws agree, and their mean slope is positive.

    Where items are keyed both ways the mean slope of a draw is near zero, and says nothing of its sign.
    """
    sign = np.ones(slope.shape[1])
    reference = slope[:, 0]
    for _ in range(3):
        sign = np.where(reference @ slope < 0.0, -1.0, 1.0)
        reference = (sign * slope).mean(axis=1)
    return sign if reference.mean() >= 0.0 else -sign
