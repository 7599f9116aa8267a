"""The result of a fit: an immutable Gaussian posterior over scores."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onebit import checked
from onebit.engine import kernels
from onebit.gpu import device as gpus
from onebit.hierarchy import Hierarchy, HyperPosterior, SideSums, hierarchy_from_settings
from onebit.priors import VariancePosterior
from onebit.storage import Tensors, read, write
from onebit.threads import threads

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

_VARIANCES = ("factors", "row_effect", "column_effect")
_VARIANCE_PARTS = tuple(field.name for field in fields(VariancePosterior))


def packed_size(n: int) -> int:
    """Return the length of a packed lower triangle of an n x n matrix."""
    return n * (n + 1) // 2


def packed_diagonal(n: int) -> NDArray[np.int64]:
    """Return where the diagonal of an n x n matrix stands in its packed lower triangle."""
    k = np.arange(n)
    return k * (k + 3) // 2


@dataclass(frozen=True)
class Gaussians:
    """Independent Gaussians, one a row (or column): the means and covariances of its coordinates.

    Attributes
    ----------
    mean : ndarray of shape (m, coordinates)
        The factors, then the effect if the side has one.
    covariance : ndarray
        Packed lower triangles of shape (m, coordinates (coordinates + 1) / 2) when ``full``, else the
        variances, of the shape of ``mean``.
    """

    mean: Array
    covariance: Array
    full: bool

    def __post_init__(self) -> None:
        for name in ("mean", "covariance"):
            array = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            if not np.isfinite(array).all():
                raise ValueError(f"the posterior's {name} holds a value that is not finite")
            if array is getattr(self, name):
                array = array.view()
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def variance(self) -> Array:
        """The variances of the coordinates."""
        return self.covariance[:, packed_diagonal(self.mean.shape[1])] if self.full else self.covariance

    def dense_covariance(self) -> Array:
        """Return the covariances as an array of shape (m, coordinates, coordinates)."""
        m, n = self.mean.shape
        dense = np.zeros((m, n, n))
        if self.full:
            lower = np.tril_indices(n)
            dense[:, lower[0], lower[1]] = self.covariance
            dense[:, lower[1], lower[0]] = self.covariance
        else:
            dense[:, np.arange(n), np.arange(n)] = self.covariance
        return dense

    def log_determinants(self) -> Array:
        """Return the log determinant of each covariance."""
        if self.full and self.mean.shape[1]:
            return np.linalg.slogdet(self.dense_covariance())[1]
        return np.log(self.covariance).sum(axis=1)

    def sums(self, hierarchy: Hierarchy, side: int) -> SideSums:
        """Return the sums over rows that the hierarchical prior needs of this side."""
        log_determinant = float(self.log_determinants().sum())
        return hierarchy.side_sums(side, self.mean, self.variance, log_determinant)

    @cached_property
    def roots(self) -> Array:
        """The lower triangular roots of the covariances, of shape (m, coordinates, coordinates)."""
        dense = self.dense_covariance()
        return np.asarray(np.linalg.cholesky(dense)) if self.mean.shape[1] else dense

    def sample(self, rng: np.random.Generator) -> tuple[Array, float]:
        """Draw one value of every coordinate; return them and their log density."""
        noise = rng.standard_normal(self.mean.shape)
        values = self.mean + np.einsum("mab,mb->ma", self.roots, noise)
        diagonal = np.einsum("maa->ma", self.roots)
        log_density = -0.5 * (noise**2 + np.log(2.0 * np.pi)).sum() - np.log(diagonal).sum()
        return values, float(log_density)

    def taken(self, rows: NDArray[np.integer]) -> Gaussians:
        """Return some of these Gaussians."""
        return Gaussians(self.mean[rows], self.covariance[rows], self.full)

    @classmethod
    def trusted(cls, mean: Array, covariance: Array, full: bool) -> Gaussians:
        """Return Gaussians of arrays in double precision that have been checked before."""
        made = object.__new__(cls)
        for name, array in (("mean", mean), ("covariance", covariance)):
            array.setflags(write=False)
            object.__setattr__(made, name, array)
        object.__setattr__(made, "full", full)
        return made

    def extended(self, mean: Array, covariance: Array) -> Gaussians:
        """Return these Gaussians with new ones appended."""
        new = Gaussians(mean, covariance, self.full)
        return Gaussians.trusted(
            np.concatenate([self.mean, new.mean]),
            np.concatenate([self.covariance, new.covariance]),
            self.full,
        )


def independent_gaussians(mean: Array, variance: Array, full: bool) -> Gaussians:
    """Return Gaussians whose coordinates are independent, in either family."""
    if not full:
        return Gaussians(mean, variance, full)
    m, n = mean.shape
    covariance = np.zeros((m, packed_size(n)))
    covariance[:, packed_diagonal(n)] = variance
    return Gaussians(mean, covariance, full)


def _gram_root(tall: Array) -> Array:
    """Return a small ``T`` with ``T' T = tall' tall``, to half the digits: no copy of a long matrix."""
    squares, turn = np.linalg.eigh(tall.T @ tall)
    return np.sqrt(np.maximum(squares, 0.0))[:, None] * turn.T


def _check_codes(codes: NDArray[np.integer], size: int, least: int, side: str) -> None:
    bad = (codes < least) | (codes >= size)
    if bad.any():
        value = codes[bad][0]
        raise ValueError(f"{side} code {value} is outside {least}..{size - 1}")


def checked_pairs(rows: ArrayLike, columns: ArrayLike, shape: tuple[int, int]) -> tuple[Codes, Codes]:
    """Return pairs of codes as arrays; -1 is an unknown id, and others must be inside ``shape``."""
    row_codes = np.ascontiguousarray(rows, dtype=np.int32)
    column_codes = np.ascontiguousarray(columns, dtype=np.int32)
    if row_codes.ndim != 1 or row_codes.shape != column_codes.shape:
        raise ValueError(
            f"rows and columns must be lists of codes of one length, got shapes "
            f"{row_codes.shape} and {column_codes.shape}"
        )
    _check_codes(row_codes, shape[0], -1, "row")
    _check_codes(column_codes, shape[1], -1, "column")
    return row_codes, column_codes


@dataclass(frozen=True)
class Draw:
    """One predictor: a matrix of scores in factored form."""

    rows: Array
    columns: Array
    rank: int
    log_ratio: float = float("nan")

    def scores(self, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Array:
        """Return the scores of the pairs of codes ``(rows, columns)``."""
        _check_codes(np.asarray(rows), len(self.rows), 0, "row")
        _check_codes(np.asarray(columns), len(self.columns), 0, "column")
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
        values = self.singular_values
        if len(values) == 0 or values[0] < 0.01:
            return 0
        return int((values > 0.05 * values[0]).sum())

    def score_moments(
        self, rows: ArrayLike, columns: ArrayLike, n_jobs: int | None = None, device: str = "cpu"
    ) -> tuple[Array, Array]:
        """Return the exact mean and variance of the scores of pairs of codes.

        Many pairs go to the GPU that ``device`` names. Code -1 stands for a row or column that was never
        seen: its factors and its effect follow their prior, so that what is known of the other side still
        counts.
        """
        row_codes, column_codes = self._pairs(rows, columns)
        mean, variance = np.empty(len(row_codes)), np.empty(len(row_codes))
        self._score(row_codes, column_codes, mean, variance, n_jobs, device)
        return mean, variance

    def scores(
        self, rows: ArrayLike, columns: ArrayLike, n_jobs: int | None = None, device: str = "cpu"
    ) -> Array:
        """Return the means that ``score_moments`` returns, several times faster."""
        row_codes, column_codes = self._pairs(rows, columns)
        mean = np.empty(len(row_codes))
        self._score(row_codes, column_codes, mean, np.empty(0), n_jobs, device)
        return mean

    def _pairs(self, rows: ArrayLike, columns: ArrayLike) -> tuple[Codes, Codes]:
        return checked_pairs(rows, columns, self.shape)

    def _score(
        self, rows: Codes, columns: Codes, mean: Array, variance: Array, n_jobs: int | None, device: str
    ) -> None:
        """Write the means of the scores and, unless ``variance`` is empty, their variances."""
        unknown = np.flatnonzero((rows < 0) | (columns < 0))
        if len(unknown) and len(unknown) < len(rows):
            known = np.flatnonzero((rows >= 0) & (columns >= 0))
            for places in (known, unknown):
                part = np.empty(len(places)), np.empty(len(places) if len(variance) else 0)
                self._score(rows[places], columns[places], *part, n_jobs, device)
                mean[places] = part[0]
                if len(variance):
                    variance[places] = part[1]
            return
        found = None if len(unknown) else gpus.for_prediction(device, len(rows))
        if found is not None:
            from onebit.gpu.predict import on_device

            try:
                with gpus.at_work(found):
                    on_device(self, found).score(rows, columns, mean, variance)
                return
            except gpus.TooLittleMemory:
                if device != "auto":
                    raise
        arguments = []
        for side, codes in enumerate((rows, columns)):
            gaussians = self.sides[side]
            if len(unknown):
                gaussians, codes = self._with_prior(side, codes)
            arguments += [codes, gaussians.mean, gaussians.covariance, self.hierarchy.has_effect(side)]

        def task(begin: int, end: int) -> None:
            kernels.score_moments(
                begin, end, *arguments, self.hierarchy.rank, self.rows.full, mean, variance
            )

        with threads(n_jobs) as pool:
            pool.even(task, len(rows))

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
        for name in _VARIANCES:
            variances = getattr(self.hyper, name)
            if variances is not None:
                for part, values in asdict(variances).items():
                    tensors[f"{name}.{part}"] = values
        tensors["means"] = self.hyper.means
        return tensors, {
            "full": self.rows.full,
            "intercept": [self.hyper.intercept_mean, self.hyper.intercept_variance],
            "hierarchy": asdict(self.hierarchy),
        }

    @classmethod
    def from_state(cls, tensors: Tensors, content: dict[str, Any]) -> Posterior:
        """Restore what ``state`` returned; what is no posterior is refused."""
        hierarchy = hierarchy_from_settings(checked.section(content, "hierarchy"))
        full = checked.flag(content, "full")
        return cls(
            _gaussians_from(tensors, "rows", hierarchy, 0, full),
            _gaussians_from(tensors, "columns", hierarchy, 1, full),
            _hyper_from(tensors, content, hierarchy),
            hierarchy,
        )

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


def _gaussians_from(
    tensors: Tensors, name: str, hierarchy: Hierarchy, side: int, full: bool
) -> Gaussians:
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


def _hyper_from(tensors: Tensors, content: dict[str, Any], hierarchy: Hierarchy) -> HyperPosterior:
    row_effect, column_effect = (
        _variances_from(tensors, name, 1) if hierarchy.has_effect(side) else None
        for side, name in enumerate(("row_effect", "column_effect"))
    )
    intercept = checked.listed(content, "intercept", 2)
    has_intercept = hierarchy.intercept_side is not None
    means = np.zeros((2, hierarchy.rank))
    if hierarchy.factor_means:
        means = checked.checked_array(tensors, "means", np.float64, (2, hierarchy.rank))
    return HyperPosterior(
        _variances_from(tensors, "factors", hierarchy.rank),
        row_effect,
        column_effect,
        checked.number(intercept, 0),
        checked.number(intercept, 1, least=0.0, positive=has_intercept),
        means,
    )


def _variances_from(tensors: Tensors, name: str, count: int) -> VariancePosterior:
    # A column that has vanished has a precision near the largest double.
    largest = {"inverse": sys.float_info.max}
    return VariancePosterior(
        **{
            part: checked.checked_array(
                tensors, f"{name}.{part}", np.float64, (count,),
                positive=part in ("inverse", "mean"), most=largest.get(part),
            )
            for part in _VARIANCE_PARTS
        }
    )  # fmt: skip
