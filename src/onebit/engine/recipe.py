"""The recipe of a fit: every setting that changes its result, frozen.

Estimators turn their parameters into a recipe, a search compares recipes, and ``engine.fit`` follows one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from onebit.data.sides import SIDES
from onebit.engine.descent import Schedule
from onebit.engine.sampling.plan import Plan
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import LOGISTIC, Loss
from onebit.model.priors import Gamma, InverseGamma, VariancePrior

# The inverse-Gamma prior's scale by default. The variational posterior lets go of a column at once, and
# this is the variance that it keeps; in the exact posterior a column without support spreads as far as
# the prior invites it to, and a smaller scale invites it less.
VARIATIONAL_SCALE, SAMPLING_SCALE = 0.03, 0.0003
PATTERNS = {None: (False, False), "rows": (True, False), "columns": (False, True), "both": (True, True)}


def variance_prior(prior: str | VariancePrior, scale: float, count: int) -> VariancePrior:
    """Return the prior on variances that ``count`` Gaussians share.

    A prior with constant parameters vanishes beside the ``count`` coordinates that bear on each variance,
    so its weight grows with them. The inverse-Gamma prior adds ``scale`` to every variance,
    ``E[gamma] = scale + energy / count`` nearly: the variance that a column keeps without support. The
    Gamma prior draws variances towards ``10 scale``, with a tenth of the coordinates' weight; it bounds
    large variances where the other lifts small ones.
    """
    if prior == "inverse-gamma":
        return InverseGamma(1.0, 0.5 * scale * count)
    if prior == "gamma":
        shape = 1.0 + 0.05 * count
        return Gamma(shape, shape / (10.0 * scale))
    assert not isinstance(prior, str)
    return prior


@dataclass(frozen=True)
class Recipe:
    """What a fit is made of.

    Attributes
    ----------
    loss : Loss
        What is minimised.
    rank : int
        The largest rank considered; the matrix's own is another bound.
    prior, prior_scale : str or VariancePrior, float or "auto"
        The prior on the variances of the factors' columns; see ``variance_prior``.
    temperature : float
        ``lambda / n``.
    full : bool
        Whether a row's posterior has a full covariance, or independent coordinates.
    row_effects, column_effects : bool
        Which sides have effects.
    sparse : {None, "rows", "columns"}
        The side whose coordinates have variances of their own.
    pattern : {None, "rows", "columns", "both"}
        The sides whose prior means depend on the pattern of their answers. A sparse side's do not.
    paper : bool
        Whether to descend by the paper's Algorithm 1 instead of the engine.
    calibrate : bool
        Of the hinge loss: whether to fit the curve of its probabilities on answers held out.
    schedule : Schedule
        How long to descend.
    n_init : int
        Starts; the lowest objective is kept.
    sampling : Plan or None
        Whether, and how long, to go on by sampling the exact posterior.
    """

    loss: Loss = LOGISTIC
    rank: int = 10
    prior: str | VariancePrior = "inverse-gamma"
    prior_scale: float | str = "auto"
    temperature: float = 1.0
    full: bool = True
    row_effects: bool = True
    column_effects: bool = True
    sparse: str | None = None
    pattern: str | None = None
    paper: bool = False
    calibrate: bool = False
    schedule: Schedule = field(default_factory=Schedule)
    n_init: int = 1
    sampling: Plan | None = None

    def hierarchy(self, shape: tuple[int, int]) -> Hierarchy:
        """Return the prior of a matrix of this shape, as the variational fit has it."""
        if self.sparse is not None and not self.full:
            raise ValueError(f'sparse={self.sparse!r} needs covariance="full"')
        scale = VARIATIONAL_SCALE if isinstance(self.prior_scale, str) else self.prior_scale
        return Hierarchy(
            shape,
            min(self.rank, *shape),
            self.row_effects,
            self.column_effects,
            variance_prior(self.prior, scale, sum(shape)),
            InverseGamma(1.0, 1.0),
            sparse=None if self.sparse is None else SIDES.index(self.sparse),
            factor_means=True,
        )

    def pattern_sides(self, hierarchy: Hierarchy) -> tuple[bool, bool]:
        """Say for rows and for columns whether their prior means depend on the pattern."""
        rows, columns = PATTERNS[self.pattern]
        return rows and hierarchy.sparse != 0, columns and hierarchy.sparse != 1

    def sampled_hierarchy(self, hierarchy: Hierarchy) -> Hierarchy:
        """Return the prior that is sampled: that of the variational fit, but for an automatic scale."""
        if self.prior != "inverse-gamma" or not isinstance(self.prior_scale, str):
            return hierarchy
        prior = variance_prior(self.prior, SAMPLING_SCALE, sum(hierarchy.shape))
        return replace(hierarchy, factor_prior=prior)
