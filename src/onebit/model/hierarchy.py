"""The hierarchical prior: which Gaussians share which variance, and the divergence from it.

The model of a score is ``M_ij = a_i + b_j + L_i . R_j`` with ``L_ik, R_jk ~ N(0, gamma_k)``,
``a_i ~ N(mu, gamma_a)``, ``b_j ~ N(0, gamma_b)`` and ``mu ~ N(0, intercept_variance)``. The paper's model
is the one without the effects ``a`` and ``b``. Everything that the hierarchy needs to know of the
factors' posterior is a handful of sums over rows and over columns.

With ``factor_means``, unless a side is sparse, the factors of rows have a mean if columns have effects:
``L_ik ~ N(nu_k, gamma_k)`` with ``nu_k ~ N(0, gamma_k)``, and columns likewise. ``nu . R_j`` is a part of
the effect of column ``j`` that goes with its factors: a column liked by most is liked by some in
particular. Given ``gamma`` the mean of ``m`` rows with sum ``F`` is ``N(F / (m + 1), gamma / (m + 1))``,
which is also its best distribution; so it is integrated out, and leaves the variance with the energy
``sum L^2 - F^2 / (m + 1)``.

A side may be ``sparse``: each of its coordinates then has a variance of its own, ``gamma_k psi_ik`` with
``psi_ik`` from ``LOCAL_PRIOR`` (a Student prior), so that a row (or column) takes part in few factors.
The best distribution of every ``psi_ik`` is known in closed form and is nowhere stored.

The prior mean of a side may also depend on what is known of its members: see ``onebit.model.regression``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.data import checked
from onebit.model.priors import InverseGamma, VariancePosterior, VariancePrior, prior_from_settings
from onebit.model.regression import Regression, Slopes

Array = NDArray[np.float64]

# Heavy tails: a Student distribution with half a degree of freedom. Errors change little from 0.03 to 1.
LOCAL_PRIOR = InverseGamma(0.25, 0.25)
NO_COORDINATES = np.empty((0, 0))
# Of a file: squares of it are sizes that an index still holds.
LARGEST_RANK = 2**20


@dataclass(frozen=True)
class SideSums:
    """Sums over the rows (or columns) of a factor posterior.

    ``first_moment`` and ``second_moment`` have one entry a coordinate (the factors, then the effect if
    there is one); ``log_determinant`` is that of the covariances. A sparse side also brings the second
    moments of its factors one by one, in ``coordinates``, and a side of which something is known the
    products of that with the means, in ``projections``.
    """

    size: int
    first_moment: Array
    second_moment: Array
    log_determinant: float
    coordinates: Array = field(default_factory=lambda: NO_COORDINATES)
    projections: Array | None = None


@dataclass(frozen=True)
class HyperPosterior:
    """The posterior of everything above the factors: variances, intercept and the factors' means.

    ``means`` are those of the rows' and of the columns' factors, of shape (2, rank), zero where they have
    none. Given the variances, their spread is known. ``slopes`` are those of the regressions of rows and
    of columns on what is known of them.
    """

    factors: VariancePosterior
    row_effect: VariancePosterior | None
    column_effect: VariancePosterior | None
    intercept_mean: float
    intercept_variance: float
    means: Array
    slopes: tuple[Slopes | None, Slopes | None] = (None, None)

    def effect(self, side: int) -> VariancePosterior | None:
        """Return the variance of the row effects (side 0) or of the column effects (side 1)."""
        return self.column_effect if side else self.row_effect


@dataclass(frozen=True)
class Hierarchy:
    """The prior of one model: its shape, its variance priors and its intercept."""

    shape: tuple[int, int]
    rank: int
    row_effects: bool
    column_effects: bool
    factor_prior: VariancePrior
    effect_prior: VariancePrior
    intercept_variance: float = 10.0
    sparse: int | None = None
    factor_means: bool = False
    regressions: tuple[Regression | None, Regression | None] = (None, None)

    def close_to(self, other: Hierarchy) -> bool:
        """Say whether another is the same, but for how devices round what is known of a side."""
        own, others = self.regressions, other.regressions
        return replace(self, regressions=others) == other and all(
            a is b or (a is not None and b is not None and a.close_to(b))
            for a, b in zip(own, others, strict=True)
        )

    def has_effect(self, side: int) -> bool:
        """Say whether side 0 (rows) or side 1 (columns) has effects."""
        return self.column_effects if side else self.row_effects

    def n_free(self, side: int) -> int:
        """Return the number of coordinates of one row (or column)."""
        return self.rank + self.has_effect(side)

    @property
    def intercept_side(self) -> int | None:
        """The side whose effects are centred at the intercept: rows first, None without effects."""
        if self.row_effects:
            return 0
        return 1 if self.column_effects else None

    def mean_share(self, side: int) -> float:
        """Return what makes the mean of a side's factors out of their sum: 1 / (m + 1), or zero."""
        has_mean = self.factor_means and self.sparse is None and self.has_effect(1 - side)
        return 1.0 / (self.shape[side] + 1.0) if has_mean else 0.0

    def resistance(self, side: int) -> float:
        """Return what is left of the resistance to a shift of all factors, once their mean goes along."""
        return 1.0 - self.shape[side] * self.mean_share(side)

    def factor_energy(self, side: int, factors: Array) -> Array:
        """Return the energy of known factors of a side, their mean integrated out."""
        return (factors**2).sum(axis=0) - self.mean_share(side) * factors.sum(axis=0) ** 2

    def update(
        self,
        sums: tuple[SideSums, SideSums],
        hyper: HyperPosterior | None,
        hold_strengths: bool = False,
    ) -> HyperPosterior:
        """Return the variances that are best for these factors, given the intercept of ``hyper``.

        ``hold_strengths`` leaves the strengths of regressions where a fit starts.
        """
        mean, variance = self._intercept(sums, hyper)
        means = np.stack(
            [self.mean_share(side) * part.first_moment[: self.rank] for side, part in enumerate(sums)]
        )
        given = None if hold_strengths else hyper
        slopes = self._slopes(0, sums[0], given), self._slopes(1, sums[1], given)
        relief = [self._relief(side, part, slopes[side]) for side, part in enumerate(sums)]
        energy = np.zeros(self.rank)
        for side, part in enumerate(sums):
            if side == self.sparse and hyper is not None:
                energy += (part.coordinates * self.local_precision(part.coordinates, hyper)).sum(axis=0)
            else:
                energy += self._expected_energy(side, part, means[side])
                energy -= relief[side][: self.rank]
        effects: list[VariancePosterior | None] = []
        for side, part in enumerate(sums):
            if not self.has_effect(side):
                effects.append(None)
                continue
            left = self._effect_energy(side, part, mean, variance)
            left -= relief[side][self.rank]
            effects.append(self.effect_prior.posterior(part.size, [left]))
        factors = self.factor_prior.posterior(sum(self.shape), energy)
        return HyperPosterior(factors, effects[0], effects[1], mean, variance, means, slopes)

    def _slopes(self, side: int, sums: SideSums, hyper: HyperPosterior | None) -> Slopes | None:
        """Return the slopes that are best for these coordinates, given the variances of ``hyper``."""
        regression = self.regressions[side]
        if regression is None:
            return None
        assert sums.projections is not None
        return regression.fitted(sums.projections, None if hyper is None else self.inverse(side, hyper))

    def _relief(self, side: int, sums: SideSums, slopes: Slopes | None) -> Array:
        """Return the energy of each coordinate that the regression of a side explains."""
        regression = self.regressions[side]
        if regression is None or slopes is None:
            return np.zeros(self.n_free(side))
        return regression.relief(slopes, sums.projections)

    def inverse(self, side: int, hyper: HyperPosterior) -> Array:
        """Return the expected precisions of a side's coordinates around their means."""
        effect = hyper.effect(side)
        return (
            hyper.factors.inverse if effect is None else np.append(hyper.factors.inverse, effect.inverse)
        )

    def _expected_energy(self, side: int, sums: SideSums, mean: Array) -> Array:
        """Return the energy of the factors around a mean of their own, and that of the mean."""
        energy = sums.second_moment[: self.rank]
        share = self.mean_share(side)
        if share == 0.0:
            return energy
        return energy - 2.0 * mean * sums.first_moment[: self.rank] + mean * mean / share

    def _intercept(
        self, sums: tuple[SideSums, SideSums], hyper: HyperPosterior | None
    ) -> tuple[float, float]:
        side = self.intercept_side
        if side is None:
            return 0.0, 0.0
        if hyper is None:
            return self._effect_sum(sums[side]) / sums[side].size, 1.0 / sums[side].size
        effect = hyper.effect(side)
        assert effect is not None
        inverse = float(effect.inverse[0])
        precision = 1.0 / self.intercept_variance + sums[side].size * inverse
        return inverse * self._effect_sum(sums[side]) / precision, 1.0 / precision

    def _effect_sum(self, sums: SideSums) -> float:
        return float(sums.first_moment[self.rank])

    def _effect_energy(self, side: int, sums: SideSums, mean: float, variance: float) -> float:
        energy = float(sums.second_moment[self.rank])
        if side == self.intercept_side:
            energy += sums.size * (mean * mean + variance) - 2.0 * mean * self._effect_sum(sums)
        return energy

    @property
    def rotates(self) -> bool:
        """Whether the factors may be rotated: a sparse prior knows its axes."""
        return self.sparse is None

    def side_sums(
        self,
        side: int,
        mean: Array,
        variance: Array,
        log_determinant: float,
        projections: Array | None = None,
    ) -> SideSums:
        """Return what the hierarchy needs of all rows (side 0) or columns."""
        second_moment = mean**2 + variance
        return SideSums(
            len(mean),
            mean.sum(axis=0),
            second_moment.sum(axis=0),
            log_determinant,
            second_moment[:, : self.rank] if side == self.sparse else NO_COORDINATES,
            projections,
        )

    def precision_and_linear(
        self, side: int, hyper: HyperPosterior, sums: SideSums
    ) -> tuple[Array, Array]:
        """Return the prior's precision and linear term of the coordinates.

        One line for all rows (or columns), or one a row where the side is sparse. What a regression adds
        to the mean of each row is not in it: see ``WorkingSide.prior``.
        """
        precision = self.inverse(side, hyper)
        linear = np.zeros(self.n_free(side))
        linear[: self.rank] = hyper.factors.inverse * hyper.means[side]
        effect = hyper.effect(side)
        if effect is not None and side == self.intercept_side:
            linear[self.rank] = effect.inverse[0] * hyper.intercept_mean
        if side != self.sparse:
            return precision[None, :], linear[None, :]
        own = np.tile(precision, (sums.size, 1))
        own[:, : self.rank] *= self.local_precision(sums.coordinates, hyper)
        return own, np.tile(linear, (sums.size, 1))

    def local_precision(self, coordinates: Array, hyper: HyperPosterior) -> Array:
        """Return ``E[1 / psi]`` of each coordinate of the sparse side from its second moment."""
        return LOCAL_PRIOR.scale_mixture(coordinates * hyper.factors.inverse)[1]

    def prior_moments(
        self, side: int, hyper: HyperPosterior, known: Array | None = None
    ) -> tuple[Array, Array]:
        """Return mean and variances of a row (or column) that has not been seen.

        ``known`` are the coordinates of several in the regression of their side: a line each.
        """
        mean, variance = np.zeros(self.n_free(side)), np.empty(self.n_free(side))
        mean[: self.rank] = hyper.means[side]
        variance[: self.rank] = hyper.factors.mean * (1.0 + self.mean_share(side))
        effect = hyper.effect(side)
        if effect is not None:
            variance[self.rank] = effect.mean[0]
            if side == self.intercept_side:
                mean[self.rank] = hyper.intercept_mean
                variance[self.rank] += hyper.intercept_variance
        slopes, regression = hyper.slopes[side], self.regressions[side]
        if slopes is None or regression is None:
            return mean, variance
        own = self.variances(side, hyper)
        if known is None:
            return mean + regression.typical @ slopes.mean, variance + regression.spread(slopes, own)
        return mean + known @ slopes.mean, variance + (known**2 @ slopes.shares) * own

    def variances(self, side: int, hyper: HyperPosterior) -> Array:
        """Return the expected variances of a side's coordinates around their means."""
        effect = hyper.effect(side)
        return hyper.factors.mean if effect is None else np.append(hyper.factors.mean, effect.mean)

    def silent_moments(self, side: int, hyper: HyperPosterior) -> tuple[Array, Array]:
        """Return what is added to the means of rows (or columns) without answers, and their variances.

        Their pattern is not known: it is taken to be that of a typical answer's row, give or take as
        much as rows differ.
        """
        slopes, regression = hyper.slopes[side], self.regressions[side]
        assert slopes is not None
        assert regression is not None
        own = self.variances(side, hyper)
        return regression.typical @ slopes.mean, own + regression.spread(slopes, own, "pattern")

    def log_prior(self, factors: tuple[Array, Array], intercept: float) -> float:
        """Return the log density of factors, effects and intercept, all above them integrated out.

        Not known in closed form for a sparse side, nor without the values that a side is regressed on:
        NaN.
        """
        if self.sparse is not None or any(part is not None for part in self.regressions):
            return float("nan")
        energy = np.zeros(self.rank)
        for side, values in enumerate(factors):
            energy += self.factor_energy(side, values[:, : self.rank])
        total = float(self.factor_prior.log_marginal(sum(self.shape), energy).sum())
        total -= self._log_sizes()
        for side, values in enumerate(factors):
            if self.has_effect(side):
                centre = intercept if side == self.intercept_side else 0.0
                square = ((values[:, self.rank] - centre) ** 2).sum()
                total += float(self.effect_prior.log_marginal(len(values), square))
        if self.intercept_side is not None:
            total -= 0.5 * intercept**2 / self.intercept_variance
            total -= 0.5 * float(np.log(2.0 * np.pi * self.intercept_variance))
        return total

    def _log_sizes(self) -> float:
        """Return what the means cost besides the energy: ``log(m + 1) / 2`` each."""
        shares = [self.mean_share(side) for side in (0, 1)]
        return -0.5 * self.rank * sum(float(np.log(share)) for share in shares if share)

    def kl(self, sums: tuple[SideSums, SideSums], hyper: HyperPosterior) -> float:
        """Return ``KL(rho, pi)`` in full: factors, effects, their variances, intercept and means."""
        factor_energy = np.zeros(self.rank)
        relief = [self._relief(side, part, hyper.slopes[side]) for side, part in enumerate(sums)]
        total = 0.0
        for side, part in enumerate(sums):
            if side == self.sparse:
                square = part.coordinates * hyper.factors.inverse
                total += float(LOCAL_PRIOR.scale_mixture(square)[0].sum())
            else:
                factor_energy += self._expected_energy(side, part, hyper.means[side])
                factor_energy -= relief[side][: self.rank]
            regression, slopes = self.regressions[side], hyper.slopes[side]
            if regression is not None and slopes is not None:
                total += regression.kl(slopes)
        total += self._log_sizes()
        total += float(hyper.factors.gaussian_kl(sum(self.shape), factor_energy).sum())
        for side, part in enumerate(sums):
            total -= 0.5 * part.log_determinant
            effect = hyper.effect(side)
            if effect is not None:
                effect_energy = self._effect_energy(
                    side, part, hyper.intercept_mean, hyper.intercept_variance
                )
                effect_energy -= relief[side][self.rank]
                total += float(effect.gaussian_kl(part.size, effect_energy)[0])
        if self.intercept_side is not None:
            ratio = hyper.intercept_variance / self.intercept_variance
            centre = hyper.intercept_mean * hyper.intercept_mean / self.intercept_variance
            total += 0.5 * (ratio + centre - 1.0 - float(np.log(ratio)))
        return total


def hierarchy_settings(hierarchy: Hierarchy) -> dict[str, Any]:
    """Return a hierarchy as JSON, but for its regressions."""
    return {name: value for name, value in asdict(replace(hierarchy, regressions=(None, None))).items()
            if name != "regressions"}  # fmt: skip


def hierarchy_from_settings(settings: Any) -> Hierarchy:
    """Restore what ``hierarchy_settings`` returned, checked."""
    known = [part.name for part in fields(Hierarchy) if part.name != "regressions"]
    checked.only(settings, known, "the prior")
    shape = checked.listed(settings, "shape", 2)
    more: dict[str, Any] = {}  # what files of before do not have
    if "intercept_variance" in settings:
        more["intercept_variance"] = checked.number(settings, "intercept_variance", positive=True)
    if settings.get("sparse") is not None:
        more["sparse"] = checked.whole(settings, "sparse", 0, 1)
    if "factor_means" in settings:
        more["factor_means"] = checked.flag(settings, "factor_means")
    return Hierarchy(
        (checked.whole(shape, 0), checked.whole(shape, 1)),
        checked.whole(settings, "rank", 0, LARGEST_RANK),
        checked.flag(settings, "row_effects"),
        checked.flag(settings, "column_effects"),
        prior_from_settings(checked.section(settings, "factor_prior")),
        prior_from_settings(checked.section(settings, "effect_prior")),
        **more,
    )
