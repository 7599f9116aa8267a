"""A prior learnt from other answers: a Gaussian around what a first fit found.

It takes the hierarchy's place in the engine where a bound is to be had from one part of the answers for a
posterior that starts from what the other part taught. Every row and column has a prior mean and prior
variances of its own, and there is nothing above them to learn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onebit.model.hierarchy import Hierarchy, HyperPosterior

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LearntSums:
    """What the divergence needs of one side: a quadratic form and the covariances' log determinants."""

    quadratic: float
    log_determinant: float


@dataclass(frozen=True)
class LearntPrior:
    """Independent Gaussians, one a coordinate of every row and column.

    Attributes
    ----------
    hierarchy : Hierarchy
        The prior of the first fit, which still says what a model is made of.
    means, variances : two arrays each
        Of the rows' and of the columns' coordinates.
    """

    hierarchy: Hierarchy
    means: tuple[Array, Array]
    variances: tuple[Array, Array]

    sparse: None = None
    rotates: bool = False

    @property
    def rank(self) -> int:
        """The number of factors."""
        return self.hierarchy.rank

    def has_effect(self, side: int) -> bool:
        """Say whether side 0 (rows) or side 1 (columns) has effects."""
        return self.hierarchy.has_effect(side)

    def side_sums(self, side: int, mean: Array, variance: Array, log_determinant: float) -> LearntSums:
        """Return what the divergence needs of all rows (side 0) or columns."""
        square = (mean - self.means[side]) ** 2 + variance
        return LearntSums(float((square / self.variances[side]).sum()), log_determinant)

    def update(
        self,
        sums: tuple[LearntSums, LearntSums],
        hyper: HyperPosterior | None,
        hold_strengths: bool = False,
    ) -> HyperPosterior:
        """Return the variances of the first fit: they are not part of this prior."""
        assert hyper is not None
        return hyper

    def precision_and_linear(
        self, side: int, hyper: HyperPosterior, sums: LearntSums
    ) -> tuple[Array, Array]:
        """Return the prior's precision and linear term, one line a row (or column)."""
        precision = 1.0 / self.variances[side]
        return precision, precision * self.means[side]

    def kl(self, sums: tuple[LearntSums, LearntSums], hyper: HyperPosterior) -> float:
        """Return the divergence of a posterior from this prior."""
        total = 0.0
        for part, variance in zip(sums, self.variances, strict=True):
            total += part.quadratic - variance.size + float(np.log(variance).sum()) - part.log_determinant
        return 0.5 * total
