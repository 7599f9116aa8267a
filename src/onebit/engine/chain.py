"""One Markov chain on factors, effects, variances and intercept: its state and its steps.

The chain's target is the density ``prior x prod_l exp(-T u_l loss(y_l x_l))``: with the logistic loss
and ``T = 1`` the posterior, with the hinge loss the paper's pseudo-posterior ``rho_lambda``. A sweep
draws all rows, then all columns (``onebit.engine.sampling_kernels``), the variances and the intercept
after each. So that a column of factors can vanish or come back, its scale and its variance are drawn
together, given the variables of the answers (Yu and Meng's interweaving, 2011), from sums that the row
pass has at hand. Last it moves along directions that no score notices, in which other steps would creep:

* the effects against each other, ``a + t``, ``b - t``, ``mu + t``;
* the factors of one side against the effects of the other, ``L_i + c``, ``b_j - c . R_j``;
* the scale of a column between both sides, ``s L_k``, ``R_k / s``.

Each of these is a draw from the exact conditional along the orbit of a group that leaves the likelihood
as it is (Liu and Sabatti, 2000), so the target stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onebit import checked
from onebit.engine import sampling_kernels
from onebit.engine.counter import chain_key, sweep_generator
from onebit.engine.draws import LARGEST_COPIES, polya_gamma_hats
from onebit.engine.kernels import whole_blocks
from onebit.engine.vectors import LANES
from onebit.gig import generalised_inverse_gaussian
from onebit.hierarchy import Hierarchy
from onebit.losses import LOGISTIC, Loss
from onebit.observations import Observations, View
from onebit.posterior import Gaussians, Posterior
from onebit.storage import Tensors
from onebit.threads import Threads

Array = NDArray[np.float64]
Table = NDArray[np.float32]

# Rows whose start is drawn at once: their covariances' roots are held.
_ROWS_AT_ONCE = 16384
# Most steps of a slice to either side, each of one in the logarithm.
_STEPS = 30
# Most shrinkings of a slice. Each leaves three quarters of it on average: after so many nothing is left.
_SHRINKS = 500
SIDES = ("row", "column")


@dataclass(frozen=True)
class Hyper:
    """A draw of what stands above the factors: variances and intercept.

    ``effects`` has the variance of the row effects, then that of the column effects; one where there are
    none. The factors' means are integrated out but for the pass over a side's rows, which needs them.
    """

    factors: Array
    effects: Array
    intercept: float


class Target:
    """What a chain samples: a prior, a loss and the answers, as the kernel takes them."""

    def __init__(
        self, hierarchy: Hierarchy, loss: Loss, temperature: float, views: tuple[View, View]
    ) -> None:
        if hierarchy.sparse is not None:
            raise ValueError('inference="sampling" has no sparse prior; set sparse=None')
        self.hierarchy = hierarchy
        self.loss = loss
        self.temperature = float(temperature)
        self.views = views
        self.copies = tuple(self._whole_weights(view) for view in views)
        self.hats = polya_gamma_hats()

    @classmethod
    def of(
        cls, observations: Observations, hierarchy: Hierarchy, loss: Loss, temperature: float
    ) -> Target:
        """Return the posterior of some answers."""
        return cls(hierarchy, loss, temperature, (observations.by_row, observations.by_column))

    def _whole_weights(self, view: View) -> NDArray[np.int64]:
        """Return how many answers each one counts for, or nothing where that is one."""
        if self.loss is not LOGISTIC:
            return np.empty(0, np.int64)
        weight = np.ones(1) if len(view.weight) == 0 else view.weight.astype(float)
        copies = np.rint(self.temperature * weight).astype(np.int64)
        bad = np.abs(self.temperature * weight - copies) > 1e-6 * copies
        bad |= (copies < 1) | (copies > LARGEST_COPIES)
        if bad.any():
            what = f"temperature {self.temperature:g}"
            if len(view.weight):
                what += f" times the weight {weight[bad][0]:g} of an answer"
            raise ValueError(
                f"the logistic loss is sampled exactly where temperature times weight is a whole number "
                f"from 1 to {LARGEST_COPIES}; got {what}. Set temperature=1 and whole weights, or use "
                'HingeCompleter, which takes any, or inference="variational"'
            )
        if len(view.weight) == 0:
            return np.empty(0, np.int64) if copies[0] == 1 else np.full(len(view.index), copies[0])
        return copies


class Chain:
    """The present draw of one chain.

    Attributes
    ----------
    tables : two arrays
        The lines ``(factors, 1, effect)`` of all rows and of all columns.
    hyper : Hyper
        Variances and intercept.
    sweep : int
        How many sweeps have been made.
    """

    def __init__(
        self, target: Target, key: tuple[int, int], tables: list[Table], hyper: Hyper, sweep: int = 0
    ) -> None:
        self.target = target
        self.key = key
        self.tables = tables
        self.hyper = hyper
        self.sweep = sweep

    @classmethod
    def begin(cls, target: Target, posterior: Posterior, seed: int, number: int) -> Chain:
        """Start chain ``number`` at a draw from the variational posterior."""
        key = chain_key(seed, number)
        rng = sweep_generator(key, 0)
        hierarchy = target.hierarchy
        tables = [
            filled_table(_drawn(gaussians, rng), hierarchy.rank, hierarchy.has_effect(side))
            for side, gaussians in enumerate(posterior.sides)
        ]
        means = posterior.hyper
        effects = [means.effect(side) for side in (0, 1)]
        start = Hyper(
            means.factors.mean.copy(),
            np.array([1.0 if effect is None else effect.mean[0] for effect in effects]),
            float(means.intercept_mean),
        )
        chain = cls(target, key, tables, start)
        chain.hyper = chain._drawn_hyper(rng)
        return chain

    def state(self, name: str) -> Tensors:
        """Return what the chain needs to go on, as arrays whose names begin with ``name``."""
        hyper = self.hyper
        above = np.concatenate([hyper.factors, hyper.effects, [hyper.intercept]])
        return {f"{name}.0": self.tables[0], f"{name}.1": self.tables[1], f"{name}.hyper": above}

    def restore(self, tensors: Tensors, name: str, sweep: int) -> None:
        """Take up what ``state`` returned after so many sweeps, checked."""
        hierarchy = self.target.hierarchy
        rank, tables = hierarchy.rank, []
        for side in (0, 1):
            part = f"{name}.{side}"
            table = checked.checked_array(tensors, part, np.float32, self.tables[side].shape)
            beyond = rank + 2 if hierarchy.has_effect(side) else rank + 1
            if (table[:, rank] != 1.0).any() or table[:, beyond:].any():
                raise checked.FileError(f"{part} is no table of factors and effects")
            tables.append(table.copy())
        hyper = checked.checked_array(tensors, f"{name}.hyper", np.float64, (rank + 3,))
        if not (hyper[:-1] > 0).all():
            raise checked.FileError(f"{name}.hyper holds a variance that is not positive")
        self.tables, self.sweep = tables, sweep
        self.hyper = Hyper(hyper[:rank], hyper[rank : rank + 2], float(hyper[rank + 2]))

    def step(self, pool: Threads) -> None:
        """Make one sweep."""
        self.sweep += 1
        rng = sweep_generator(self.key, self.sweep)
        for side in (0, 1):
            scales = self._draw_side(side, pool, rng)
            self._stretch(scales, rng)
            self.hyper = self._drawn_hyper(rng)
        self._move(rng)

    def factors(self, side: int) -> Array:
        """Return the factors of one side in double precision."""
        return self.tables[side][:, : self.target.hierarchy.rank].astype(float)

    def effect(self, side: int) -> Array:
        """Return the effects of one side in double precision; zeros where it has none."""
        return self.tables[side][:, self.target.hierarchy.rank + 1].astype(float)

    def free(self, side: int) -> Table:
        """Return the coordinates of one side: the factors, then the effect if there is one."""
        rank = self.target.hierarchy.rank
        table = self.tables[side]
        if not self.target.hierarchy.has_effect(side):
            return table[:, :rank]
        return np.delete(table[:, : rank + 2], rank, axis=1)

    def scores(self, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Array:
        """Return the present scores of pairs of codes."""
        rank = self.target.hierarchy.rank
        left, right = self.tables[0][rows], self.tables[1][columns]
        score = np.einsum("nk,nk->n", left[:, :rank], right[:, :rank]).astype(float)
        return score + left[:, rank + 1] + right[:, rank + 1]

    def _draw_side(self, side: int, pool: Threads, rng: np.random.Generator) -> Array:
        """Draw all rows (or columns); return what they say of the scales of the columns of factors."""
        target, hierarchy = self.target, self.target.hierarchy
        if hierarchy.n_free(side) == 0:
            return np.empty(0)
        view, copies = target.views[side], target.copies[side]
        share, noise = hierarchy.mean_share(side), rng.standard_normal(hierarchy.rank)
        mean = share * self.factors(side).sum(axis=0) + np.sqrt(share * self.hyper.factors) * noise
        precision, linear = prior_terms(hierarchy, self.hyper, side, mean)
        table, other = self.tables[side], self.tables[1 - side]
        rank, groups = hierarchy.rank, -(-view.size // LANES)
        scales = np.empty((groups if rank else 0, rank * (rank + 1)))

        def task(begin: int, end: int) -> None:
            sampling_kernels.sample_rows(
                begin, end, view.start, view.index, view.sign, view.weight, copies, other, table,
                precision, linear, target.temperature, target.loss.code, rank,
                hierarchy.has_effect(side), target.hats, self.key, self.sweep, side, scales,
            )  # fmt: skip

        work = np.append(view.start[:-1:LANES], view.start[-1])
        pool.ranges(task, work)
        if not np.isfinite(table.sum(dtype=float)):
            bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
            where = f"{SIDES[side]} {bad[0]}" if len(bad) else f"the {SIDES[side]}s"
            raise FloatingPointError(
                f"the chain diverged in sweep {self.sweep}: a draw of {where} is not finite; lower the "
                f"temperature ({target.temperature:g}) or the weights of the answers"
            )
        return scales.sum(axis=0)

    def _stretch(self, scales: Array, rng: np.random.Generator) -> None:
        """Stretch each column of both factors together with its variance.

        With ``gamma_k``, ``L_k L_k'`` and ``R_k R_k'`` multiplied by ``g_k`` the prior of the
        standardised factors stays, and the augmented likelihood is Gaussian in ``g``: a one-dimensional
        density a column, by a slice.
        """
        rank = self.target.hierarchy.rank
        if rank == 0:
            return
        curvature = scales[: rank * rank].reshape(rank, rank)
        curvature = np.tril(curvature) + np.tril(curvature, -1).T
        pull, prior = scales[rank * rank :], self.target.hierarchy.factor_prior
        stretch = np.ones(rank)
        for k in range(rank):
            linear = pull[k] - curvature[k] @ stretch + curvature[k, k] * stretch[k]
            square, variance = 0.5 * curvature[k, k], self.hyper.factors[k]

            def log_density(
                t: float, linear: float = linear, square: float = square, variance: float = variance
            ) -> float:
                g = math.exp(t)
                if not 0.0 < variance * g < math.inf:  # beyond what a double holds
                    return -math.inf
                return prior.log_density(variance * g) + t + g * (linear - square * g)

            stretch[k] = math.exp(slice_draw(log_density, 0.0, rng))
        root = np.sqrt(stretch).astype(np.float32)
        for table in self.tables:
            table[:, :rank] *= root
        self.hyper = Hyper(self.hyper.factors * stretch, self.hyper.effects, self.hyper.intercept)

    def _drawn_hyper(self, rng: np.random.Generator) -> Hyper:
        """Draw variances and intercept given factors and effects."""
        hierarchy = self.target.hierarchy
        energy = self._energy(0) + self._energy(1)
        count = np.full(hierarchy.rank, sum(hierarchy.shape))
        factors = hierarchy.factor_prior.draw(count, energy, rng)
        effects, intercept = self.hyper.effects.copy(), self.hyper.intercept
        for side in (0, 1):
            if not hierarchy.has_effect(side):
                continue
            values = self.effect(side)
            if side == hierarchy.intercept_side:
                precision = 1.0 / hierarchy.intercept_variance + len(values) / effects[side]
                mean = values.sum() / effects[side] / precision
                intercept = float(mean + rng.standard_normal() / np.sqrt(precision))
                values = values - intercept
            effects[side] = hierarchy.effect_prior.draw([len(values)], [(values**2).sum()], rng)[0]
        return Hyper(factors, effects, intercept)

    def _energy(self, side: int) -> Array:
        return self.target.hierarchy.factor_energy(side, self.factors(side))

    def _move(self, rng: np.random.Generator) -> None:
        """Move along what no score notices."""
        hierarchy = self.target.hierarchy
        rank = hierarchy.rank
        if rank:
            self._move_scales(rng)
            for side in (0, 1):
                if hierarchy.has_effect(1 - side):
                    self._move_factors(side, rng)
        if hierarchy.row_effects and hierarchy.column_effects:
            # Rows are centred at the intercept, which goes with them.
            shared, spread = self.effect(1), self.hyper.effects[1]
            precision = len(shared) / spread + 1.0 / hierarchy.intercept_variance
            linear = shared.sum() / spread - self.hyper.intercept / hierarchy.intercept_variance
            shift = float(linear / precision + rng.standard_normal() / np.sqrt(precision))
            self.tables[0][:, rank + 1] += np.float32(shift)
            self.tables[1][:, rank + 1] -= np.float32(shift)
            hyper = self.hyper
            self.hyper = Hyper(hyper.factors, hyper.effects, hyper.intercept + shift)

    def _move_scales(self, rng: np.random.Generator) -> None:
        """Draw the squared scales: ``v^((m1 - m2) / 2 - 1) exp(-(v S_L + S_R / v) / (2 gamma))``."""
        rank, (m1, m2) = self.target.hierarchy.rank, self.target.hierarchy.shape
        energy = [self._energy(side) / self.hyper.factors for side in (0, 1)]
        square = [
            generalised_inverse_gaussian(0.5 * (m1 - m2), a, b, rng)
            for a, b in zip(*np.maximum(energy, 1e-290), strict=True)
        ]
        scale = np.sqrt(square)
        self.tables[0][:, :rank] *= scale.astype(np.float32)
        self.tables[1][:, :rank] /= scale.astype(np.float32)

    def _move_factors(self, side: int, rng: np.random.Generator) -> None:
        """Shift the factors of one side by ``c``, and the effects of the other by what that adds."""
        hierarchy, hyper = self.target.hierarchy, self.hyper
        rank, other = hierarchy.rank, 1 - side
        facing, effect = self.factors(other), self.effect(other)
        if other == hierarchy.intercept_side:
            effect = effect - hyper.intercept
        spread = hyper.effects[other]
        # Without a linear algebra library: its threads must not change the chain.
        precision = np.einsum("mi,mj->ij", facing, facing) / spread
        left = hierarchy.resistance(side)
        precision += np.diag(left * hierarchy.shape[side] / hyper.factors)
        linear = (facing * effect[:, None]).sum(axis=0) / spread
        linear -= left * self.factors(side).sum(axis=0) / hyper.factors
        lower = np.linalg.cholesky(precision)
        noise = rng.standard_normal(rank)
        shift = np.linalg.solve(lower.T, np.linalg.solve(lower, linear) + noise)
        self.tables[side][:, :rank] += shift.astype(np.float32)
        moved = (facing * shift.astype(np.float32)).sum(axis=1)
        self.tables[other][:, rank + 1] -= moved.astype(np.float32)


def prior_terms(hierarchy: Hierarchy, hyper: Hyper, side: int, mean: Array) -> tuple[Array, Array]:
    """Return the prior's precision and linear term of one row (or column), given what is above it."""
    precision, linear = np.empty(hierarchy.n_free(side)), np.zeros(hierarchy.n_free(side))
    precision[: hierarchy.rank] = 1.0 / hyper.factors
    linear[: hierarchy.rank] = mean / hyper.factors
    if hierarchy.has_effect(side):
        precision[hierarchy.rank] = 1.0 / hyper.effects[side]
        if side == hierarchy.intercept_side:
            linear[hierarchy.rank] = hyper.intercept / hyper.effects[side]
    return precision, linear


def slice_draw(log_density: Callable[[float], float], start: float, rng: np.random.Generator) -> float:
    """Draw once from a density on the line by a slice (Neal, 2003): step out, then shrink.

    Where the slice is too thin for doubles, or the density is not a number, the present value stays: a
    step that leaves the target as it is.
    """
    level = log_density(start) - rng.standard_exponential()
    low = start - rng.random()
    high = low + 1.0
    for _ in range(_STEPS):
        if log_density(low) <= level:
            break
        low -= 1.0
    for _ in range(_STEPS):
        if log_density(high) <= level:
            break
        high += 1.0
    for _ in range(_SHRINKS):
        value = low + (high - low) * rng.random()
        if log_density(value) > level:
            return value
        if value < start:
            low = value
        else:
            high = value
    return start


def filled_table(values: NDArray[np.floating], rank: int, has_effect: bool) -> Table:
    """Return the table that the other side gathers from, for these factors and effects."""
    table = np.zeros((len(values), whole_blocks(rank + 2)), np.float32)
    table[:, :rank] = values[:, :rank]
    table[:, rank] = 1.0
    if has_effect:
        table[:, rank + 1] = values[:, rank]
    return table


def _drawn(gaussians: Gaussians, rng: np.random.Generator) -> Array:
    """Return one draw of all rows, a block at a time."""
    rows = np.arange(len(gaussians.mean))
    blocks = [rows[begin : begin + _ROWS_AT_ONCE] for begin in range(0, len(rows), _ROWS_AT_ONCE)]
    return np.concatenate([gaussians.taken(block).sample(rng)[0] for block in blocks])
