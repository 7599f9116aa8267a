"""One Markov chain on factors, effects, variances and intercept: its state and its steps.

The chain's target is the density ``prior x prod_l exp(-T u_l loss(y_l x_l))``: with the logistic loss
and ``T = 1`` the posterior, with the hinge loss the paper's pseudo-posterior ``rho_lambda``. A sweep
draws all rows, then all columns (``onebit.engine.sampling.passes``), the variances and the intercept
after each. So that a column of factors can vanish or come back, its scale and its variance are drawn
together, given the variables of the answers (Yu and Meng's interweaving, 2011), from sums that the row
pass has at hand. Slopes, and the means of factors, move once more together with their rows
(``onebit.engine.sampling.trends``). Then come the moves that no row makes by itself:
``onebit.engine.sampling.moves``.

The lines of rows and columns are where the kernels walk them; here are sums over them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onebit.data import checked
from onebit.data.storage import Tensors
from onebit.engine.cpu.threads import Threads
from onebit.engine.sampling.lines import ALONE, Change, Lines, Moments, Place, on_one_thread
from onebit.engine.sampling.moves import move_unnoticed, move_whole
from onebit.engine.sampling.philox import chain_key, sweep_generator
from onebit.engine.sampling.starting import drawn_values
from onebit.engine.sampling.target import NO_PLACES, HyperDraw, Places, Target, prior_terms
from onebit.engine.sampling.trends import FIXED, Trend, leading
from onebit.model.posterior import Posterior
from onebit.model.regression import STRENGTHS, Slopes

Array = NDArray[np.float64]
Table = NDArray[np.float32]

# Sweeps from one move of the whole, and of slopes together with their rows, to the next.
_WHOLE_EVERY, _TRENDS_EVERY = 2, 2


class Chain:
    """The present draw of one chain.

    Attributes
    ----------
    lines : Lines
        The lines of all rows and of all columns.
    moments : list of two Moments
        Sums over them.
    hyper : HyperDraw
        Variances and intercept.
    sweep : int
        How many sweeps have been made.
    """

    moments: list[Moments]

    def __init__(
        self, target: Target, key: tuple[int, int], lines: Lines, hyper: HyperDraw, sweep: int = 0
    ) -> None:
        self.target = target
        self.key = key
        self.lines = lines
        self.hyper = hyper
        self.sweep = sweep
        self._known_strengths: list[tuple[Places, Array, Array] | None] = [None, None]
        self.moments = self.lines.moments()

    @classmethod
    def begin(
        cls,
        target: Target,
        posterior: Posterior,
        seed: int,
        number: int,
        place: Place = on_one_thread,
        pool: Threads = ALONE,
    ) -> Chain:
        """Start chain ``number`` at a draw from the variational posterior; ``place`` says where."""
        key = chain_key(seed, number)
        rng = sweep_generator(key, 0)
        values: list[NDArray[np.floating]] = [drawn_values(side, rng, pool) for side in posterior.sides]
        means = posterior.hyper
        effects = [means.effect(side) for side in (0, 1)]
        start = HyperDraw(
            means.factors.mean.copy(),
            np.array([1.0 if effect is None else effect.mean[0] for effect in effects]),
            float(means.intercept_mean),
            (_likeliest(means.slopes[0]), _likeliest(means.slopes[1])),
        )
        chain = cls(target, key, place(target, values), start)
        chain.hyper = chain._drawn_hyper(rng)
        return chain

    def state(self, name: str) -> Tensors:
        """Return what the chain needs to go on, as arrays whose names begin with ``name``."""
        hyper = self.hyper
        above = np.concatenate([hyper.factors, hyper.effects, [hyper.intercept]])
        tensors: Tensors = {f"{name}.{side}": self.lines.table(side) for side in (0, 1)}
        tensors[f"{name}.hyper"] = above
        for side in (0, 1):
            tensors[f"{name}.strengths.{side}"] = hyper.strengths[side]
            tensors |= self.moments[side].state(f"{name}.moments.{side}")
        return tensors

    def restore(self, tensors: Tensors, name: str, sweep: int) -> None:
        """Take up what ``state`` returned after so many sweeps, checked."""
        hierarchy = self.target.hierarchy
        rank, tables = hierarchy.rank, []
        for side in (0, 1):
            part = f"{name}.{side}"
            shape = self.lines.table(side).shape
            table = checked.checked_array(tensors, part, np.float32, shape)
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
        for side, table in enumerate(tables):
            self.lines.put(side, table)
        self.sweep = sweep
        self.hyper = HyperDraw(
            hyper[:rank], hyper[rank : rank + 2], float(hyper[rank + 2]), (strengths[0], strengths[1])
        )
        # The chain goes on from its own sums, which rounding tells from these.
        self.moments = [
            measured.restored(tensors, f"{name}.moments.{side}")
            for side, measured in enumerate(self.lines.moments())
        ]

    def step(self) -> None:
        """Make one sweep."""
        self.sweep += 1
        rng = sweep_generator(self.key, self.sweep)
        for side in (0, 1):
            scales = self._draw_side(side, rng)
            if side == 1:
                move_unnoticed(self, scales, rng)
            self.hyper = self._drawn_hyper(rng)
        if self.sweep % _WHOLE_EVERY == 0:
            move_whole(self, rng)
        self.lines.expect(self.key, self.sweep + 1)

    def change(self, side: int, change: Change) -> None:
        """Change all lines of a side, and their moments."""
        self.take(side, change, self.moments[side].changed(change))

    def take(self, side: int, change: Change, moments: Moments) -> None:
        """Change all lines of a side, whose moments are then these."""
        self.moments[side] = moments
        self.lines.change(side, change)

    def factors(self, side: int) -> Array:
        """Return the factors of one side in double precision."""
        return self.lines.table(side)[:, : self.target.hierarchy.rank].astype(float)

    def effect(self, side: int) -> Array:
        """Return the effects of one side in double precision; zeros where it has none."""
        return self.lines.table(side)[:, self.target.hierarchy.rank + 1].astype(float)

    def free(self, side: int) -> Table:
        """Return the coordinates of one side: the factors, then the effect if there is one."""
        return self.lines.free(side)

    def scores(self, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Array:
        """Return the present scores of pairs of codes."""
        return self.lines.scores(rows, columns)

    def _draw_side(self, side: int, rng: np.random.Generator) -> Array:
        """Draw all rows (or columns); return what they say of the scales of the columns of factors."""
        hierarchy = self.target.hierarchy
        if hierarchy.n_free(side) == 0:
            return np.empty(0)
        rank, moments = hierarchy.rank, self.moments[side]
        share, noise = hierarchy.mean_share(side), rng.standard_normal(rank)
        mean = share * moments.total[:rank] + np.sqrt(share * self.hyper.factors) * noise
        precision, linear = prior_terms(hierarchy, self.hyper, side, mean)
        trend = self._drawn_trend(side, mean, rng)
        scales, drawn = self.lines.draw(side, self.key, self.sweep, precision, linear, trend)
        self.moments[side] = drawn
        return scales

    def _strengths(self, side: int) -> Array:
        """Return the present strengths, of shape (columns of Q, coordinates)."""
        return self._told(side)[1]

    def shares(self, side: int) -> Array:
        """Return the shares of the present strengths, of shape (columns of Q, coordinates)."""
        return self._told(side)[2]

    def _told(self, side: int) -> tuple[Places, Array, Array]:
        """Return the places of a side's strengths, the strengths and their shares, found once a draw."""
        told, places = self._known_strengths[side], self.hyper.strengths[side]
        if told is None or told[0] is not places:
            regression = self.target.hierarchy.regressions[side]
            assert regression is not None
            strengths = np.repeat(STRENGTHS[places], list(regression.groups.values()), axis=0)
            told = places, strengths, 1.0 / (regression.squares[:, None] + 1.0 / strengths)
            self._known_strengths[side] = told
        return told

    def drawn_slopes(self, side: int, rng: np.random.Generator) -> Array:
        """Draw the slopes of a side's regression given everything else."""
        projections, shares = self.moments[side].projections, self.shares(side)
        assert projections is not None
        noise = rng.standard_normal(shares.shape)
        return shares * projections + np.sqrt(shares * self._variances(side)) * noise

    def _drawn_trend(self, side: int, mean: Array, rng: np.random.Generator) -> Trend | None:
        """Draw the slopes of a side's regression, and what draws the leading ones and its mean anew."""
        hierarchy, spread = self.target.hierarchy, self._variances(side)
        regression, means = hierarchy.regressions[side], hierarchy.mean_share(side) > 0.0
        if regression is None and not means:
            return None
        nothing, places = np.zeros((0, len(spread))), np.arange(0)
        slopes = nothing
        if regression is not None:
            slopes, places = self.drawn_slopes(side, rng), leading(regression.squares)
        if self.sweep % _TRENDS_EVERY:
            return Trend(slopes, places, nothing, nothing, spread, None)
        centre, freedom_of_mean = np.zeros((1, len(spread))), np.full((1, len(spread)), FIXED)
        if means:
            centre[0, : hierarchy.rank], freedom_of_mean[0, : hierarchy.rank] = mean, self.hyper.factors
        freedom = nothing if regression is None else (self._strengths(side) * spread)[places]
        return Trend(
            slopes, places, np.vstack([slopes[places], centre]), np.vstack([freedom, freedom_of_mean]),
            spread, rng.standard_normal((len(spread), len(places) + 1)),
        )  # fmt: skip

    def _variances(self, side: int) -> Array:
        return self.hyper.variances(side, self.target.hierarchy.has_effect(side))

    def _relief(self, side: int) -> Array:
        """Return the energy of each coordinate that the regression of a side explains."""
        projections = self.moments[side].projections
        if projections is None:
            return np.zeros(self.target.hierarchy.n_free(side))
        return (self.shares(side) * projections**2).sum(axis=0)

    def _drawn_strengths(self, side: int, variances: Array, rng: np.random.Generator) -> Places:
        """Draw the strengths of a side's regression given coordinates and their variances."""
        regression, projections = self.target.hierarchy.regressions[side], self.moments[side].projections
        if regression is None or projections is None:
            return self.hyper.strengths[side]
        logs = regression.log_weights(projections, 1.0 / variances)
        # The largest of the log weights with Gumbel noise is a draw.
        return (logs + rng.gumbel(size=logs.shape)).argmax(axis=-1)

    def _drawn_hyper(self, rng: np.random.Generator) -> HyperDraw:
        """Draw variances, intercept and strengths given factors and effects."""
        hierarchy, rank = self.target.hierarchy, self.target.hierarchy.rank
        reliefs = self._relief(0), self._relief(1)
        energy = self._left_energy(0, reliefs[0]) + self._left_energy(1, reliefs[1])
        factors = hierarchy.factor_prior.draw(sum(hierarchy.shape), energy, rng)
        effects, intercept = self.hyper.effects.copy(), self.hyper.intercept
        for side in (0, 1):
            if not hierarchy.has_effect(side):
                continue
            moments = self.moments[side]
            size, total, square = moments.size, moments.total[rank], moments.gram[rank, rank]
            if side == hierarchy.intercept_side:
                precision = 1.0 / hierarchy.intercept_variance + size / effects[side]
                mean = total / effects[side] / precision
                intercept = float(mean + rng.standard_normal() / np.sqrt(precision))
                square = square - 2.0 * intercept * total + size * intercept**2
            left = np.array([max(square - reliefs[side][rank], 0.0)])
            effects[side] = hierarchy.effect_prior.draw(size, left, rng)[0]
        drawn = HyperDraw(factors, effects, intercept)
        rows, columns = (
            self._drawn_strengths(side, drawn.variances(side, hierarchy.has_effect(side)), rng)
            for side in (0, 1)
        )
        return HyperDraw(factors, effects, intercept, (rows, columns))

    def _left_energy(self, side: int, relief: Array) -> Array:
        """Return the energy of each column that its mean, and what relieves it, leave."""
        hierarchy, moments = self.target.hierarchy, self.moments[side]
        rank = hierarchy.rank
        own = moments.gram.diagonal()[:rank] - hierarchy.mean_share(side) * moments.total[:rank] ** 2
        return np.maximum(own - relief[:rank], 0.0)


def _likeliest(slopes: Slopes | None) -> Places:
    """Return the likeliest strengths."""
    return NO_PLACES if slopes is None else slopes.weights.argmax(axis=-1)
