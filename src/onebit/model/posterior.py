"""The result of a fit: an immutable Gaussian posterior over scores."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onebit.data import checked
from onebit.data.kernels import fixed
from onebit.data.sides import SIDES
from onebit.data.storage import Tensors, read, write
from onebit.model import score_kernels
from onebit.model.codes import check_codes, checked_pairs
from onebit.model.gaussians import Gaussians, independent_gaussians, packed_diagonal, packed_size
from onebit.model.hierarchy import (
    Hierarchy,
    HyperPosterior,
    hierarchy_from_settings,
    hierarchy_settings,
)
from onebit.model.hyper_state import hyper_state, restored_hyper
from onebit.model.placing import Placing, restored_placing
from onebit.model.regression import restored_regression

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

Task = Callable[[int, int], object]
# Runs a task over so many items of equal work, in pieces: (task, items, work of each).
Evenly = Callable[[Task, int, int], None]


def at_once(task: Task, size: int, work_each: int = 1) -> None:
    """Run a task over all items in one piece."""
    task(0, size)


def _gram_root(tall: Array) -> Array:
    """Return a small ``T`` with ``T' T = tall' tall``, to half the digits: no copy of a long matrix."""
    squares, turn = np.linalg.eigh(tall.T @ tall)
    return np.sqrt(np.maximum(squares, 0.0))[:, None] * turn.T


def live_columns(singular_values: Array) -> int:
    """Return how many singular values are above 5 % of the largest; none where that is below 0.01."""
    if len(singular_values) == 0 or singular_values[0] < 0.01:
        return 0
    return int((singular_values > 0.05 * singular_values[0]).sum())


@dataclass(frozen=True)
class Draw:
    """One predictor: a matrix of scores in factored form."""

    rows: Array
    columns: Array
    rank: int
    log_ratio: float = float("nan")

    def scores(self, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Array:
        """Return the scores of the pairs of codes ``(rows, columns)``."""
        check_codes(np.asarray(rows), len(self.rows), 0, "row")
        check_codes(np.asarray(columns), len(self.columns), 0, "column")
        left, right, k = self.rows[rows], self.columns[columns], self.rank
        score = np.einsum("nk,nk->n", left[:, :k], right[:, :k])
        return score + left[:, k:].sum(axis=1) + right[:, k:].sum(axis=1)


@dataclass(frozen=True, repr=False)
class Posterior:
    """The distribution that a fit returns, over factors, effects, their variances and the intercept.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit import LogisticCompleter, simulate
    >>> world = simulate.world("B1", rank=2, shape=(40, 30), density=0.5, seed=0)
    >>> posterior = LogisticCompleter(rank=4).fit(world.pairs, world.answers).posterior_
    >>> mean, variance = posterior.score_moments([0, 1], [2, -1])  # -1: a column never seen
    >>> bool((variance > 0).all())
    True
    >>> draw = posterior.sample(np.random.default_rng(0))
    >>> draw.scores(np.array([0]), np.array([2])).shape
    (1,)
    """

    rows: Gaussians
    columns: Gaussians
    hyper: HyperPosterior
    hierarchy: Hierarchy
    placings: tuple[Placing | None, Placing | None] = (None, None)
    spreads: tuple[Array | None, Array | None] = (None, None)

    # ``spreads``: covariances of the slopes of the effects on features (``model.feature_effects``).

    def __repr__(self) -> str:
        rows, columns = self.shape
        family = "full" if self.rows.full else "diagonal"
        return (
            f"Posterior({rows} rows, {columns} columns, rank {self.effective_rank}, {family} covariances)"
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns, folded-in ones included."""
        return len(self.rows.mean), len(self.columns.mean)

    @property
    def sides(self) -> tuple[Gaussians, Gaussians]:
        """The rows and the columns."""
        return self.rows, self.columns

    @property
    def patterned(self) -> bool:
        """Whether prior means depend on which entries were answered."""
        return any(part is not None and "pattern" in part.groups for part in self.hierarchy.regressions)

    def with_silent(self, side: int, rows: NDArray[np.int64]) -> Posterior:
        """Return the same, with rows (or columns) that have no answers where they are to be expected.

        A descent knows no more of them than their prior, in which they have the average pattern.
        """
        if len(rows) == 0 or self.hyper.slopes[side] is None:
            return self
        sides = list(self.sides)
        sides[side] = expected(self.sides[side], rows, *self.hierarchy.silent_moments(side, self.hyper))
        return replace(self, rows=sides[0], columns=sides[1])

    @cached_property
    def kl(self) -> float:
        """``KL(rho, pi)``, hyper-priors included."""
        hierarchy = self.hierarchy
        sums = self.rows.sums(hierarchy, 0), self.columns.sums(hierarchy, 1)
        return hierarchy.kl(sums, self.hyper)

    def centred_factors(self, side: int) -> Array:
        """Return the mean factors of rows (side 0) or columns around the mean that they share."""
        return self.sides[side].mean[:, : self.hierarchy.rank] - self.hyper.means[side]

    def main_effects(self, side: int) -> Array:
        """Return the mean effects of rows (side 0) or columns, on a typical column (or row).

        With the factors' means, ``nu`` of rows and ``kappa`` of columns, a score is the sum of
        ``a_i + L_i . kappa``, ``b_j + (R_j - kappa) . nu`` and ``(L_i - nu) . (R_j - kappa)``.
        """
        rank, means = self.hierarchy.rank, self.hyper.means
        gaussians = self.sides[side]
        factors = gaussians.mean[:, :rank]
        if side != self.hierarchy.intercept_side:
            factors = factors - means[side]
        return gaussians.mean[:, rank] + factors @ means[1 - side]

    @cached_property
    def singular_values(self) -> Array:
        """The singular values of the mean of ``L R'`` beyond main effects, as root-mean-square scores."""
        if self.hierarchy.rank == 0:
            return np.zeros(0)
        left, right = (_gram_root(self.centred_factors(side)) for side in (0, 1))
        values = np.linalg.svd(left @ right.T, compute_uv=False)
        return values / np.sqrt(np.prod([float(size) for size in self.shape]))

    @property
    def effective_rank(self) -> int:
        """The number of columns that the data kept: singular values above 5 % of the largest.

        A column that the data does not need shrinks geometrically to zero, so the count does not
        hang on the threshold; it is zero when no column adds 0.01 to a typical score.
        """
        return live_columns(self.singular_values)

    def score_moments(
        self, rows: ArrayLike, columns: ArrayLike, evenly: Evenly = at_once
    ) -> tuple[Array, Array]:
        """Return mean and variance under this posterior of the scores of pairs of codes.

        Code -1 stands for a row or column that was never seen: its factors and its effect follow their
        prior, so that what is known of the other side still counts. ``evenly`` shares the work out; see
        ``onebit.engine.scoring`` for threads and GPUs.
        """
        row_codes, column_codes = checked_pairs(rows, columns, self.shape)
        mean, variance = np.empty(len(row_codes)), np.empty(len(row_codes))
        self._score(row_codes, column_codes, mean, variance, evenly)
        return mean, variance

    def scores(self, rows: ArrayLike, columns: ArrayLike, evenly: Evenly = at_once) -> Array:
        """Return the means that ``score_moments`` returns, several times faster."""
        row_codes, column_codes = checked_pairs(rows, columns, self.shape)
        mean = np.empty(len(row_codes))
        self._score(row_codes, column_codes, mean, np.empty(0), evenly)
        return mean

    def _score(self, rows: Codes, columns: Codes, mean: Array, variance: Array, evenly: Evenly) -> None:
        """Write the means of the scores and, unless ``variance`` is empty, their variances."""
        unknown = np.flatnonzero((rows < 0) | (columns < 0))
        if len(unknown) and len(unknown) < len(rows):
            known = np.flatnonzero((rows >= 0) & (columns >= 0))
            for places in (known, unknown):
                part = np.empty(len(places)), np.empty(len(places) if len(variance) else 0)
                self._score(rows[places], columns[places], *part, evenly)
                mean[places] = part[0]
                if len(variance):
                    variance[places] = part[1]
            return
        arguments = []
        for side, codes in enumerate((rows, columns)):
            gaussians = self.sides[side]
            if len(unknown):
                gaussians, codes = self._with_prior(side, codes)
            arrays = [fixed(array) for array in (codes, gaussians.mean, gaussians.covariance)]
            arguments += [*arrays, self.hierarchy.has_effect(side)]

        def task(begin: int, end: int) -> None:
            score_kernels.score_moments(
                begin, end, *arguments, self.hierarchy.rank, self.rows.full, mean, variance
            )

        evenly(task, len(rows), 1)

    def aligned(self, codes: tuple[Codes, Codes]) -> Posterior:
        """Return the posterior of other rows and columns, given by their codes here; -1 is a new one.

        New ones have their prior.
        """
        sides = []
        for side, wanted in enumerate(codes):
            own = self.sides[side]
            mean, variance = self.hierarchy.prior_moments(side, self.hyper)
            prior = independent_gaussians(mean[None], variance[None], own.full)
            sides.append(prior.extended(own.mean, own.covariance).taken(wanted + 1))
        shape = (len(codes[0]), len(codes[1]))
        hierarchy = replace(self.hierarchy, shape=shape, regressions=(None, None))
        return Posterior(sides[0], sides[1], self.hyper, hierarchy)

    def _with_prior(self, side: int, codes: Codes) -> tuple[Gaussians, Codes]:
        """Return the Gaussians that these codes name, the prior of an unknown one first.

        With them come the codes in their new order.
        """
        distinct, place = np.unique(codes[codes >= 0], return_inverse=True)
        mean, variance = self.hierarchy.prior_moments(side, self.hyper)
        full = self.sides[side].full
        prior = independent_gaussians(mean[None], variance[None], full)
        taken = self.sides[side].taken(distinct)
        again = np.zeros(len(codes), dtype=np.int32)
        again[codes >= 0] = place + 1
        return prior.extended(taken.mean, taken.covariance), again

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        """Return everything as arrays and JSON, for saving."""
        tensors: Tensors = {}
        for name, gaussians in (("rows", self.rows), ("columns", self.columns)):
            tensors[f"{name}.mean"] = gaussians.mean
            tensors[f"{name}.covariance"] = gaussians.covariance
        above, content = hyper_state(self.hyper)
        tensors |= above
        content |= {"full": self.rows.full, "hierarchy": hierarchy_settings(self.hierarchy)}
        known: dict[str, Any] = {}
        for side, name in enumerate(SIDES):
            regression, slopes = self.hierarchy.regressions[side], self.hyper.slopes[side]
            placing = self.placings[side]
            if regression is not None and slopes is not None and placing is not None:
                more, known[name] = regression.state(f"known.{name}", slopes)
                tensors |= more | placing.state(f"known.{name}")
                spread = self.spreads[side]
                if spread is not None:
                    tensors[f"known.{name}.spread"] = spread
        return tensors, content | ({"known": known} if known else {})

    @classmethod
    def from_state(cls, tensors: Tensors, content: dict[str, Any]) -> Posterior:
        """Restore what ``state`` returned; what is no posterior is refused."""
        hierarchy = hierarchy_from_settings(checked.section(content, "hierarchy"))
        full = checked.flag(content, "full")
        hyper = restored_hyper(tensors, content, hierarchy)
        rows = restored_gaussians(tensors, "rows", hierarchy, 0, full)
        columns = restored_gaussians(tensors, "columns", hierarchy, 1, full)
        if "known" not in content:
            return cls(rows, columns, hyper, hierarchy)
        known = checked.section(content, "known")
        checked.only(known, SIDES, "what is known of the sides")
        regressions, slopes, placings, spreads = zip(
            *(_known_from(tensors, known, hierarchy, side) for side in (0, 1)), strict=True
        )
        hierarchy = replace(hierarchy, regressions=regressions)
        return cls(rows, columns, replace(hyper, slopes=slopes), hierarchy, placings, spreads)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior to one file: arrays and JSON, versioned, with a checksum."""
        write(path, "posterior", *self.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Posterior:
        """Read a posterior that ``save`` wrote."""
        tensors, content = read(path, "posterior")
        with checked.taken_apart(path, "save it again"):
            return cls.from_state(tensors, content)

    def sample(self, rng: np.random.Generator) -> Draw:
        """Draw one predictor (factors and effects) from the posterior.

        With it comes ``log_ratio``, the log density of the posterior over that of the prior at the draw,
        variances and means integrated out of the prior and an intercept drawn with the effects. Its mean
        is the divergence of the factors and effects alone, at most ``kl``.
        """
        rows, row_density = self.rows.sample(rng)
        columns, column_density = self.columns.sample(rng)
        log_ratio = row_density + column_density
        intercept = 0.0
        if self.hierarchy.intercept_side is not None:
            mean, variance = self.hyper.intercept_mean, self.hyper.intercept_variance
            noise = rng.standard_normal()
            intercept = mean + np.sqrt(variance) * noise
            log_ratio -= 0.5 * (noise**2 + np.log(2.0 * np.pi * variance))
        log_ratio -= self.hierarchy.log_prior((rows, columns), intercept)
        return Draw(rows, columns, self.hierarchy.rank, log_ratio)


def expected(gaussians: Gaussians, rows: NDArray[np.int64], shift: Array, variance: Array) -> Gaussians:
    """Return Gaussians of which some are shifted and have independent coordinates."""
    mean, covariance = gaussians.mean.copy(), gaussians.covariance.copy()
    mean[rows] += shift
    covariance[rows] = 0.0
    places = packed_diagonal(len(variance)) if gaussians.full else np.arange(len(variance))
    covariance[np.ix_(rows, places)] = variance
    return Gaussians.trusted(mean, covariance, gaussians.full)


def restored_gaussians(
    tensors: Tensors, name: str, hierarchy: Hierarchy, side: int, full: bool
) -> Gaussians:
    """Restore the Gaussians of a side, checked."""
    size, width = hierarchy.shape[side], hierarchy.n_free(side)
    far = checked.LARGEST_FACTOR
    mean = checked.checked_array(tensors, f"{name}.mean", np.float64, (size, width), least=-far, most=far)
    shape = (size, packed_size(width) if full else width)
    covariance = checked.checked_array(
        tensors, f"{name}.covariance", np.float64, shape, positive=not full, most=far * far
    )
    if full:
        checked.checked_covariances(covariance, width, f"{name}.covariance")
    return Gaussians.trusted(mean, covariance, full)


def _known_from(tensors: Tensors, known: dict[str, Any], hierarchy: Hierarchy, side: int) -> Any:
    """Return regression, slopes, placing and spread of a side, or None each."""
    name = SIDES[side]
    if name not in known:
        return None, None, None, None
    regression, slopes = restored_regression(
        tensors, f"known.{name}", known[name], hierarchy.n_free(side)
    )
    placing = restored_placing(tensors, f"known.{name}", regression.groups, hierarchy.shape[1 - side])
    spread, width = None, regression.groups.get("features", 0)
    if f"known.{name}.spread" in tensors:
        spread = checked.checked_array(tensors, f"known.{name}.spread", np.float64, (width, width))
        if (np.diag(spread) <= 0.0).any():
            raise checked.FileError(f"known.{name}.spread holds a variance that is not positive")
    return regression, slopes, placing, spread
