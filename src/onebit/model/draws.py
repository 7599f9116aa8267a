"""The result of a sampled fit: draws of factors and effects, and what can be said from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from onebit.data import checked
from onebit.data.sides import MEMBERS
from onebit.data.storage import Tensors
from onebit.model import score_kernels
from onebit.model.calibration import CERTAINTY, expected_sigmoid
from onebit.model.codes import checked_pairs
from onebit.model.hierarchy import Hierarchy, hierarchy_from_settings, hierarchy_settings
from onebit.model.posterior import Evenly, at_once, live_columns

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

# Scores of single draws that are held at once: some 32 megabytes.
_AT_ONCE = 4_000_000
_TURNS = 3
# Lines whose products are summed up at once, and how far down single precision can tell.
_LINES_AT_ONCE, _SINGLE = 2**18, 1e-6
# Lines of a side whose average tells as much as that of all.
_LINES_ENOUGH = 2**17
NO_SLOPES = np.zeros((0, 0, 0), np.float32)
NO_SPREAD = np.zeros((0, 0))
_ARRAYS = ("rows", "columns", "factors", "effects", "intercept", "row_slopes", "column_slopes",
           "row_typical", "column_typical", "row_spread", "column_spread")  # fmt: skip


@dataclass(frozen=True, repr=False)
class Draws:
    """Draws from the exact posterior.

    Attributes
    ----------
    rows, columns : ndarray of float32, shape (m, draws, coordinates)
        The factors, then the effect if the side has one.
    factors : ndarray of shape (draws, rank)
        The variances of the columns of factors.
    effects : ndarray of shape (draws, 2)
        The variances of the row effects and of the column effects; one where there are none.
    intercept : ndarray of shape (draws,)
        The intercept.
    hierarchy : Hierarchy
        The prior.
    seed : int
        What the chains were drawn from.
    row_slopes, column_slopes : ndarray of float32, shape (draws, columns of Q, coordinates)
        The slopes of the regressions on what is known of a side; none where nothing is.
    row_typical, column_typical : ndarray of shape (draws, coordinates)
        What the regression adds to a member of which nothing is known; none where there is none.
    row_spread, column_spread : ndarray of shape (draws, coordinates)
        How much coordinates vary with what is not known of a member; none where nothing is.

    Examples
    --------
    >>> from onebit import LogisticCompleter, simulate
    >>> world = simulate.world("B1", rank=2, shape=(40, 30), density=0.5, seed=0)
    >>> model = LogisticCompleter(3, inference="sampling", n_samples=50, n_chains=1, random_state=0)
    >>> draws = model.fit(world.pairs, world.answers).draws_
    >>> draws.count
    50
    >>> draws.scores([0, 1], [2, -1]).shape  # -1: a column never seen
    (2, 50)
    """

    rows: NDArray[np.float32]
    columns: NDArray[np.float32]
    factors: Array
    effects: Array
    intercept: Array
    hierarchy: Hierarchy
    seed: int
    row_slopes: NDArray[np.float32] = field(default_factory=lambda: NO_SLOPES)
    column_slopes: NDArray[np.float32] = field(default_factory=lambda: NO_SLOPES)
    row_typical: Array = field(default_factory=lambda: NO_SPREAD)
    column_typical: Array = field(default_factory=lambda: NO_SPREAD)
    row_spread: Array = field(default_factory=lambda: NO_SPREAD)
    column_spread: Array = field(default_factory=lambda: NO_SPREAD)

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            array = np.ascontiguousarray(getattr(self, name))
            if not np.isfinite(array).all():
                raise ValueError(f"the draws' {name} hold a value that is not finite")
            array = array.view()
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"Draws({self.count} draws of {rows} rows, {columns} columns, rank {self.hierarchy.rank})"

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns, folded-in ones included."""
        return len(self.rows), len(self.columns)

    @property
    def count(self) -> int:
        """The number of draws kept."""
        return len(self.intercept)

    @property
    def sides(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The rows and the columns."""
        return self.rows, self.columns

    @property
    def slopes(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The slopes of the regressions of rows and of columns."""
        return self.row_slopes, self.column_slopes

    def spread(self, side: int) -> Array:
        """Return how much coordinates vary with what is not known of a member, for each draw."""
        found = (self.row_spread, self.column_spread)[side]
        return found if found.size else np.zeros((self.count, self.hierarchy.n_free(side)))

    def typical(self, side: int) -> Array:
        """Return what the regression adds to a member of which nothing is known, for each draw."""
        found = (self.row_typical, self.column_typical)[side]
        return found if found.size else np.zeros((self.count, self.hierarchy.n_free(side)))

    def centre(self, side: int) -> Array:
        """Return what the effects of a side are centred at, a number a draw."""
        return self.intercept if side == self.hierarchy.intercept_side else np.zeros(self.count)

    @cached_property
    def factor_means(self) -> tuple[Array, Array]:
        """What the factors of rows and of columns are centred at, of shape (draws, rank)."""
        rank, share = self.hierarchy.rank, self.hierarchy.mean_share
        rows, columns = (side[:, :, :rank].sum(axis=0, dtype=float) for side in self.sides)
        return share(0) * rows, share(1) * columns

    def effect_draws(self, side: int) -> Array:
        """Return the effects of rows (side 0) or columns under every draw: (members, draws).

        They are the effects on a typical column (or row): see ``Posterior.main_effects``.
        """
        rank, means = self.hierarchy.rank, self.factor_means
        values = self.sides[side]
        effects = values[:, :, rank].astype(float)
        effects += np.einsum("mdk,dk->md", values[:, :, :rank], means[1 - side])
        if side != self.hierarchy.intercept_side:
            effects -= (means[side] * means[1 - side]).sum(axis=1)
        return effects

    def main_effects(self, side: int) -> Array:
        """Return the mean effects of rows (side 0) or columns."""
        return self.effect_draws(side).mean(axis=1)

    def effect_slopes(self, side: int) -> Array:
        """Return the slopes of the effects on a typical column (or row): (draws, columns of Q)."""
        rank, slopes = self.hierarchy.rank, self.slopes[side].astype(float)
        typical = self.factor_means[1 - side]
        return slopes[:, :, rank] + np.einsum("dqk,dk->dq", slopes[:, :, :rank], typical)

    def averages(
        self, rows: ArrayLike, columns: ArrayLike, evenly: Evenly = at_once, chances: bool = True
    ) -> tuple[Array, Array, Array]:
        """Return mean and variance of the scores of pairs of codes, and the mean of their sigmoids.

        Code -1 stands for a row or column that was never seen: its factors and its effect follow their
        prior, of which the exact moments are averaged over the draws. Without ``chances`` the last
        array is empty.
        """
        row_codes, column_codes = checked_pairs(rows, columns, self.shape)
        n = len(row_codes)
        mean, variance, chance = np.empty(n), np.empty(n), np.empty(n if chances else 0)
        known = np.flatnonzero((row_codes >= 0) & (column_codes >= 0))
        part = mean[known], variance[known], chance[known if chances else []]
        rank = self.hierarchy.rank
        arguments = (
            row_codes[known], self.rows, self.hierarchy.row_effects,
            column_codes[known], self.columns, self.hierarchy.column_effects, rank, *part,
        )  # fmt: skip

        def task(begin: int, end: int) -> None:
            score_kernels.average_scores(begin, end, *arguments)

        evenly(task, len(known), self.count)
        mean[known], variance[known] = part[0], part[1]
        if chances:
            chance[known] = part[2]
        unknown = np.flatnonzero((row_codes < 0) | (column_codes < 0))
        for places in self._blocks(unknown):
            centre, spread = self._conditional(row_codes[places], column_codes[places])
            mean[places] = centre.mean(axis=1)
            variance[places] = centre.var(axis=1) + spread.mean(axis=1)
            if chances:
                chance[places] = expected_sigmoid(centre, spread).mean(axis=1)
        return mean, variance, np.clip(chance, CERTAINTY, 1.0 - CERTAINTY)

    def scores(self, rows: ArrayLike, columns: ArrayLike) -> Array:
        """Return the scores of pairs of codes under every draw, of shape (pairs, draws).

        The scores of unknown ids (-1) are spread as their prior says.
        """
        row_codes, column_codes = checked_pairs(rows, columns, self.shape)
        centre, spread = self._conditional(row_codes, column_codes)
        if not spread.any():
            return centre
        levels = ndtri((np.arange(self.count) + 0.5) / self.count)
        return centre + np.sqrt(spread) * np.random.default_rng(0).permutation(levels)

    def intervals(self, rows: ArrayLike, columns: ArrayLike, level: float) -> Array:
        """Return the ends of central intervals that hold one more draw of a score with chance ``level``.

        Between the ranks ``k`` and ``l`` of ``n`` draws lies a share ``(l - k) / (n + 1)`` on average.
        """
        row_codes, column_codes = checked_pairs(rows, columns, self.shape)
        if 0.5 * (1.0 - level) * (self.count + 1) < 1.0:
            raise ValueError(
                f"each tail of level {level:g} holds less than one of the {self.count} draws that are "
                "kept; lower level, or fit with more draws"
            )
        ends = np.empty((len(row_codes), 2))
        for places in self._blocks(np.arange(len(row_codes))):
            scores = self.scores(row_codes[places], column_codes[places])
            tails = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
            ends[places] = np.quantile(scores, tails, axis=1, method="weibull").T
        return ends

    def _blocks(self, places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        size = max(1, _AT_ONCE // max(self.count, 1))
        for begin in range(0, len(places), size):
            yield places[begin : begin + size]

    def _conditional(self, rows: Codes, columns: Codes) -> tuple[Array, Array]:
        """Return mean and variance of the scores given each draw: of known ids the score, and zero."""
        rank, hierarchy = self.hierarchy.rank, self.hierarchy
        centre, spread = np.zeros((2, len(rows), self.count))
        known = [codes >= 0 for codes in (rows, columns)]
        parts: list[NDArray[np.float32]] = []
        for side, codes in enumerate((rows, columns)):
            part = self.sides[side][np.maximum(codes, 0)]
            parts.append(part[:, :, :rank])
            if hierarchy.has_effect(side):
                unknown = ~known[side]
                usual = self.centre(side) + self.typical(side)[:, rank]
                centre += np.where(unknown[:, None], usual, part[:, :, rank])
                spread[unknown] += self.effects[:, side] + self.spread(side)[:, rank]
        both = known[0] & known[1]
        centre[both] += np.einsum("ndk,ndk->nd", parts[0][both], parts[1][both])
        means = [self.factor_means[side] + self.typical(side)[:, :rank] for side in (0, 1)]
        variances = [
            self.factors * (1.0 + hierarchy.mean_share(side)) + self.spread(side)[:, :rank]
            for side in (0, 1)
        ]
        for side in (0, 1):
            one = known[side] & ~known[1 - side]
            centre[one] += np.einsum("ndk,dk->nd", parts[side][one], means[1 - side])
            spread[one] += np.einsum("ndk,dk->nd", parts[side][one] ** 2, variances[1 - side])
        neither = ~known[0] & ~known[1]
        centre[neither] += (means[0] * means[1]).sum(axis=1)
        spread[neither] += (
            (means[0] ** 2 + variances[0]) * (means[1] ** 2 + variances[1]) - (means[0] * means[1]) ** 2
        ).sum(axis=1)
        return centre, spread

    @cached_property
    def mean_factors(self) -> tuple[Array, Array]:
        """Factors whose product is the mean of ``L R'``, up to its rank, along its principal axes.

        Both sides are taken around their means: it is what main effects do not say. Draws differ by
        rotations that no score notices, so that means of the factors over draws say nothing.
        """
        rank = self.hierarchy.rank
        left, right = (
            (side[:, :, :rank] - mean.astype(np.float32)).reshape(len(side), -1)
            for side, mean in zip(self.sides, self.factor_means, strict=True)
        )
        wanted = min(rank + 8, *self.shape) if rank else 0
        basis = np.random.default_rng(0).standard_normal((len(right), wanted)).astype(np.float32)
        for _ in range(_TURNS):
            basis = _principal(left @ (right.T @ basis))[0]
            basis = _principal(right @ (left.T @ basis))[0]
        rows, size, turn = _principal(left @ (right.T @ basis) / np.float32(self.count))
        root = np.sqrt(size[:rank])
        other = basis.astype(float) @ turn[:, :rank]
        return rows[:, :rank].astype(float) * root, other * root

    @cached_property
    def singular_values(self) -> Array:
        """The singular values of the mean of ``L R'`` beyond main effects, as root-mean-square scores.

        Of a side with very many lines, evenly spaced ones (131,072 or more) stand for all.
        """
        some = self._thinned()
        values = (some.mean_factors[0] ** 2).sum(axis=0)
        return values / np.sqrt(np.prod([float(size) for size in some.shape]))

    def _thinned(self) -> Draws:
        """Return these draws of no more lines than averages over lines need."""
        rows, columns = (side[:: max(len(side) // _LINES_ENOUGH, 1)] for side in self.sides)
        if (len(rows), len(columns)) == self.shape:
            return self
        hierarchy = replace(self.hierarchy, shape=(len(rows), len(columns)))
        return replace(self, rows=rows, columns=columns, hierarchy=hierarchy)

    @property
    def effective_rank(self) -> int:
        """The number of columns that the mean score needs: singular values above 5 % of the largest."""
        return live_columns(self.singular_values)

    def extended(self, side: int, added: NDArray[np.float32]) -> Draws:
        """Return these draws with those of new rows (side 0) or columns appended."""
        sides = list(self.sides)
        sides[side] = np.concatenate([sides[side], added])
        shape = (len(sides[0]), len(sides[1]))
        hierarchy = replace(self.hierarchy, shape=shape)
        return replace(self, rows=sides[0], columns=sides[1], hierarchy=hierarchy)

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        """Return everything as arrays and JSON, for saving."""
        tensors: Tensors = {f"draws.{name}": getattr(self, name) for name in _ARRAYS}
        return tensors, {"seed": self.seed, "hierarchy": hierarchy_settings(self.hierarchy)}

    @classmethod
    def from_state(cls, tensors: Tensors, content: dict[str, Any]) -> Draws:
        """Restore what ``state`` returned; arrays that do not fit each other are refused."""
        hierarchy = hierarchy_from_settings(checked.section(content, "hierarchy"))
        widths = [tensors.get(f"draws.{name}_slopes", NO_SLOPES).shape[1:2] for name in MEMBERS]
        parts = checked_draws(tensors, "draws", hierarchy, [w[0] if w else 0 for w in widths])
        if len(parts["intercept"]) == 0:
            raise checked.FileError("there are no draws")
        return cls(**parts, hierarchy=hierarchy, seed=checked.whole(content, "seed"))


def _principal(tall: NDArray[np.floating]) -> tuple[NDArray[np.float32], Array, Array]:
    """Return a tall matrix as ``axes * sizes @ turn.T``, sizes in descending order.

    By its products in double precision, which one walk over the lines gives: what is smaller than the
    largest by more than single precision can tell gets no axis.
    """
    gram = np.zeros((tall.shape[1], tall.shape[1]))
    for begin in range(0, len(tall), _LINES_AT_ONCE):
        part = tall[begin : begin + _LINES_AT_ONCE].astype(float)
        gram += part.T @ part
    squares, turn = (found[..., ::-1] for found in np.linalg.eigh(gram))
    sizes = np.sqrt(np.maximum(squares, 0.0))
    live = sizes > _SINGLE * sizes[:1].sum()
    inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=live)
    axes = np.asarray(tall @ (turn * inverse).astype(np.float32), np.float32)
    return axes, sizes, turn


def checked_draws(
    tensors: Tensors,
    name: str,
    hierarchy: Hierarchy,
    widths: Sequence[int],
    count: int | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the arrays of some draws by their names, if they fit the prior and each other.

    ``widths`` are the columns that rows and columns are regressed on.
    """
    intercept = checked.checked_array(tensors, f"{name}.intercept", np.float64, (count,))
    count, (rows, columns) = len(intercept), hierarchy.shape
    array = checked.checked_array
    return (
        {
            "rows": array(tensors, f"{name}.rows", np.float32, (rows, count, hierarchy.n_free(0))),
            "columns": array(
                tensors, f"{name}.columns", np.float32, (columns, count, hierarchy.n_free(1))
            ),
            "factors": array(
                tensors, f"{name}.factors", np.float64, (count, hierarchy.rank), positive=True
            ),
            "effects": array(tensors, f"{name}.effects", np.float64, (count, 2), positive=True),
            "intercept": intercept,
        }
        | {
            f"{side}_slopes": array(
                tensors, f"{name}.{side}_slopes", np.float32, (count, widths[k], hierarchy.n_free(k))
            )
            for k, side in enumerate(MEMBERS)
            if f"{name}.{side}_slopes" in tensors and widths[k]
        }
        | {
            f"{side}_{part}": array(
                tensors, f"{name}.{side}_{part}", np.float64, (count, hierarchy.n_free(k)), least=least
            )
            for k, side in enumerate(MEMBERS)
            for part, least in (("typical", None), ("spread", 0))
            if f"{name}.{side}_{part}" in tensors and widths[k]
        }
    )
