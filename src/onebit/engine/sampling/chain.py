"""One Markov chain on factors, effects, variances and intercept: its state and its steps.

The chain's target is the density ``prior x prod_l exp(-T u_l loss(y_l x_l))``: with the logistic loss
and ``T = 1`` the posterior, with the hinge loss the paper's pseudo-posterior ``rho_lambda``. A sweep
draws all rows, then all columns (``onebit.engine.sampling.passes``), the variances and the intercept
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
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from onebit.data import checked
from onebit.data.sides import MEMBERS
from onebit.data.storage import Tensors
from onebit.engine.cpu import tall
from onebit.engine.cpu.threads import Threads
from onebit.engine.cpu.vectors import LANES
from onebit.engine.sampling import passes
from onebit.engine.sampling.philox import chain_key, sweep_generator
from onebit.engine.sampling.slices import slice_draw
from onebit.engine.sampling.target import NO_PLACES, HyperDraw, Places, Target, filled_table, prior_terms
from onebit.model.gaussians import Gaussians
from onebit.model.gig import generalised_inverse_gaussian
from onebit.model.posterior import Posterior
from onebit.model.regression import STRENGTHS, Slopes

Array = NDArray[np.float64]
Table = NDArray[np.float32]

# Rows whose start is drawn at once: their covariances' roots are held.
_ROWS_AT_ONCE = 16384


class Chain:
    """The present draw of one chain.

    Attributes
    ----------
    tables : two arrays
        The lines ``(factors, 1, effect)`` of all rows and of all columns.
    hyper : HyperDraw
        Variances and intercept.
    sweep : int
        How many sweeps have been made.
    """

    def __init__(
        self, target: Target, key: tuple[int, int], tables: list[Table], hyper: HyperDraw, sweep: int = 0
    ) -> None:
        self.target = target
        self.key = key
        self.tables = tables
        self.hyper = hyper
        self.sweep = sweep
        # Products of what is known with the coordinates, as far as they have been asked for.
        self._products: list[Array | None] = [None, None]

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
        start = HyperDraw(
            means.factors.mean.copy(),
            np.array([1.0 if effect is None else effect.mean[0] for effect in effects]),
            float(means.intercept_mean),
            (_likeliest(means.slopes[0]), _likeliest(means.slopes[1])),
        )
        chain = cls(target, key, tables, start)
        chain.hyper = chain._drawn_hyper(Threads(1, None), rng)
        return chain

    def state(self, name: str) -> Tensors:
        """Return what the chain needs to go on, as arrays whose names begin with ``name``."""
        hyper = self.hyper
        above = np.concatenate([hyper.factors, hyper.effects, [hyper.intercept]])
        tensors = {f"{name}.0": self.tables[0], f"{name}.1": self.tables[1], f"{name}.hyper": above}
        return tensors | {f"{name}.strengths.{k}": hyper.strengths[k] for k in (0, 1)}

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
        strengths = []
        for side in (0, 1):
            part, shape = f"{name}.strengths.{side}", self.hyper.strengths[side].shape
            last = len(STRENGTHS) - 1
            strengths.append(checked.checked_array(tensors, part, np.int64, shape, least=0, most=last))
        self.tables, self.sweep = tables, sweep
        self.hyper = HyperDraw(
            hyper[:rank], hyper[rank : rank + 2], float(hyper[rank + 2]), (strengths[0], strengths[1])
        )

    def step(self, pool: Threads) -> None:
        """Make one sweep."""
        self.sweep += 1
        self._products = [None, None]  # a chain that was stopped begins its sweep so too
        rng = sweep_generator(self.key, self.sweep)
        for side in (0, 1):
            scales = self._draw_side(side, pool, rng)
            self._stretch(scales, rng)
            self.hyper = self._drawn_hyper(pool, rng)
        self._move(pool, rng)

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
        linear = linear[None]
        values = target.known.values[side]
        if values is not None:
            slopes = self.drawn_slopes(side, pool, rng)
            linear = linear + precision * tall.times(values, slopes, pool)
        table, other = self.tables[side], self.tables[1 - side]
        rank, groups = hierarchy.rank, -(-view.size // LANES)
        scales = np.empty((groups if rank else 0, rank * (rank + 1)))

        def task(begin: int, end: int) -> None:
            passes.sample_rows(
                begin, end, view.start, view.index, view.sign, view.weight, copies, other, table,
                precision, linear, target.temperature, target.loss.code, rank,
                hierarchy.has_effect(side), target.hats, self.key, self.sweep, side, scales,
            )  # fmt: skip

        work = np.append(view.start[:-1:LANES], view.start[-1])
        pool.ranges(task, work)
        self._products[side] = None
        if not np.isfinite(table.sum(dtype=float)):
            bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
            where = f"{MEMBERS[side]} {bad[0]}" if len(bad) else f"the {MEMBERS[side]}s"
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
        for side, table in enumerate(self.tables):
            table[:, :rank] *= root
            self._stretch_products(side, root.astype(float))
        self.hyper = replace(self.hyper, factors=self.hyper.factors * stretch)

    def projections(self, side: int, pool: Threads) -> Array | None:
        """Return the products of what is known of a side with its coordinates."""
        values, found = self.target.known.values[side], self._products[side]
        if values is not None and found is None:
            found = self._products[side] = tall.inner(values, self.free(side), pool)
        return found

    def _stretch_products(self, side: int, scale: Array) -> None:
        """Let the products go along with factors that are multiplied by a scale."""
        found = self._products[side]
        if found is not None:
            found[:, : len(scale)] *= scale

    def _shares(self, side: int) -> Array:
        """Return the shares of the present strengths, of shape (columns of Q, coordinates)."""
        regression = self.target.hierarchy.regressions[side]
        assert regression is not None
        shares = np.empty((regression.width, self.target.hierarchy.n_free(side)))
        for number, name in enumerate(regression.groups):
            places, strength = regression.places(name), STRENGTHS[self.hyper.strengths[side][number]]
            shares[places] = regression.shares(strength).T[places]
        return shares

    def drawn_slopes(self, side: int, pool: Threads, rng: np.random.Generator) -> Array:
        """Draw the slopes of a side's regression given everything else."""
        projections, shares = self.projections(side, pool), self._shares(side)
        assert projections is not None
        variances = self.hyper.variances(side, self.target.hierarchy.has_effect(side))
        noise = rng.standard_normal(shares.shape)
        return shares * projections + np.sqrt(shares * variances) * noise

    def _relief(self, side: int, projections: Array | None) -> Array:
        """Return the energy of each coordinate that the regression of a side explains."""
        if projections is None:
            return np.zeros(self.target.hierarchy.n_free(side))
        return (self._shares(side) * projections**2).sum(axis=0)

    def _drawn_strengths(
        self, side: int, projections: Array | None, hyper: HyperDraw, rng: np.random.Generator
    ) -> Places:
        """Draw the strengths of a side's regression given coordinates and variances."""
        regression = self.target.hierarchy.regressions[side]
        if regression is None or projections is None:
            return hyper.strengths[side]
        variances = hyper.variances(side, self.target.hierarchy.has_effect(side))
        logs = regression.log_weights(projections, 1.0 / variances)
        # The largest of the log weights with Gumbel noise is a draw.
        return (logs + rng.gumbel(size=logs.shape)).argmax(axis=-1)

    def _drawn_hyper(self, pool: Threads, rng: np.random.Generator) -> HyperDraw:
        """Draw variances, intercept and strengths given factors and effects."""
        hierarchy = self.target.hierarchy
        projections = [self.projections(side, pool) for side in (0, 1)]
        relief = [self._relief(side, projections[side]) for side in (0, 1)]
        energy = self._energy(0, relief[0]) + self._energy(1, relief[1])
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
            left = (values**2).sum() - relief[side][hierarchy.rank]
            effects[side] = hierarchy.effect_prior.draw([len(values)], [left], rng)[0]
        drawn = HyperDraw(factors, effects, intercept, self.hyper.strengths)
        rows, columns = (self._drawn_strengths(side, projections[side], drawn, rng) for side in (0, 1))
        return replace(drawn, strengths=(rows, columns))

    def _energy(self, side: int, relief: Array) -> Array:
        hierarchy = self.target.hierarchy
        return hierarchy.factor_energy(side, self.factors(side)) - relief[: hierarchy.rank]

    def _move(self, pool: Threads, rng: np.random.Generator) -> None:
        """Move along what no score notices."""
        hierarchy = self.target.hierarchy
        rank = hierarchy.rank
        if rank:
            self._move_scales(pool, rng)
            for side in (0, 1):
                if hierarchy.has_effect(1 - side):
                    self._move_factors(side, pool, rng)
        if hierarchy.row_effects and hierarchy.column_effects:
            # Rows are centred at the intercept, which goes with them.
            shared, spread = self.effect(1), self.hyper.effects[1]
            precision = len(shared) / spread + 1.0 / hierarchy.intercept_variance
            linear = shared.sum() / spread - self.hyper.intercept / hierarchy.intercept_variance
            shift = float(linear / precision + rng.standard_normal() / np.sqrt(precision))
            self.tables[0][:, rank + 1] += np.float32(shift)
            self.tables[1][:, rank + 1] -= np.float32(shift)
            self.hyper = replace(self.hyper, intercept=self.hyper.intercept + shift)

    def _move_scales(self, pool: Threads, rng: np.random.Generator) -> None:
        """Draw the squared scales: ``v^((m1 - m2) / 2 - 1) exp(-(v S_L + S_R / v) / (2 gamma))``."""
        rank, (m1, m2) = self.target.hierarchy.rank, self.target.hierarchy.shape
        relief = [self._relief(side, self.projections(side, pool)) for side in (0, 1)]
        energy = [self._energy(side, relief[side]) / self.hyper.factors for side in (0, 1)]
        square = [
            generalised_inverse_gaussian(0.5 * (m1 - m2), a, b, rng)
            for a, b in zip(*np.maximum(energy, 1e-290), strict=True)
        ]
        scale = np.sqrt(square)
        self.tables[0][:, :rank] *= scale.astype(np.float32)
        self.tables[1][:, :rank] /= scale.astype(np.float32)
        self._stretch_products(0, scale)
        self._stretch_products(1, 1.0 / scale)

    def _move_factors(self, side: int, pool: Threads, rng: np.random.Generator) -> None:
        """Shift the factors of one side by ``c``, and the effects of the other by what that adds."""
        hierarchy, hyper = self.target.hierarchy, self.hyper
        rank, other = hierarchy.rank, 1 - side
        facing, effect = self.factors(other), self.effect(other)
        if other == hierarchy.intercept_side:
            effect = effect - hyper.intercept
        spread = hyper.effects[other]
        # Without a linear algebra library: its threads must not change the chain.
        precision = np.einsum("mi,mj->ij", facing, facing)
        linear = (facing * effect[:, None]).sum(axis=0)
        projections = self.projections(other, pool)
        if projections is not None:
            # The part of the effects that their regression explains resists less.
            shared = self._shares(other)[:, rank, None] * projections[:, :rank]
            precision -= np.einsum("di,dj->ij", shared, projections[:, :rank])
            linear -= (shared * projections[:, rank, None]).sum(axis=0)
        precision, linear = precision / spread, linear / spread
        left = hierarchy.resistance(side)
        precision += np.diag(left * hierarchy.shape[side] / hyper.factors)
        linear -= left * self.factors(side).sum(axis=0) / hyper.factors
        lower = np.linalg.cholesky(precision)
        noise = rng.standard_normal(rank)
        shift = np.linalg.solve(lower.T, np.linalg.solve(lower, linear) + noise)
        self.tables[side][:, :rank] += shift.astype(np.float32)
        moved = (facing * shift.astype(np.float32)).sum(axis=1)
        self.tables[other][:, rank + 1] -= moved.astype(np.float32)
        if projections is not None:  # what is known has mean zero: the shift itself does not show
            projections[:, rank] -= projections[:, :rank] @ shift


def _likeliest(slopes: Slopes | None) -> Places:
    """Return the likeliest strengths."""
    return NO_PLACES if slopes is None else slopes.weights.argmax(axis=-1)


def _drawn(gaussians: Gaussians, rng: np.random.Generator) -> Array:
    """Return one draw of all rows, a block at a time."""
    rows = np.arange(len(gaussians.mean))
    blocks = [rows[begin : begin + _ROWS_AT_ONCE] for begin in range(0, len(rows), _ROWS_AT_ONCE)]
    return np.concatenate([gaussians.taken(block).sample(rng)[0] for block in blocks])
