"""A posterior seen through its signs: only the directions of rows and columns count.

Without effects the sign of ``L_i . R_j`` does not change when a row or a column is made longer or
shorter. So a predictor is a set of directions, the prior may be the uniform distribution on spheres, and
a Gaussian posterior of a row counts only through the distribution of ``x / |x|`` (a projected normal),
whose density is known: with ``A = u'V^-1 u``, ``D = u'V^-1 m / sqrt(A)`` and ``C = m'V^-1 m``,

    p(u) = (2 pi)^(-K/2) |V|^(-1/2) A^(-K/2) exp((D^2 - C) / 2) I_K(D),
    I_K(D) = integral over s > 0 of s^(K-1) exp(-(s - D)^2 / 2).

The divergence from the uniform prior is at most the Gaussian one minus what was spent on lengths. It is
an average over draws; ``divergence`` bounds it with a confidence of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr

from onebit.model.gaussians import Gaussians
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]

# Draws are taken until the confidence term is this share of the number of answers, or so many values.
TARGET = 0.001
LARGEST_WORK = 4_000_000
_AT_ONCE = 20_000
# Log densities are cut this far below their largest value, so that the average has a bounded range.
DEPTH = 10.0

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(120)


def log_radial_integral(rank: int, shift: Array) -> Array:
    """Return ``log I_K(D)`` for ``K = rank`` and every ``D`` of ``shift``.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit.certificates.directions import log_radial_integral
    >>> np.exp(log_radial_integral(1, np.array([0.0]))).round(4).tolist()  # half of sqrt(2 pi)
    [1.2533]
    """
    shift = np.asarray(shift, dtype=float)
    first = 0.5 * math.log(2.0 * math.pi) + log_ndtr(shift)
    if rank == 1:
        return first
    result = np.empty_like(shift)
    forward = shift >= 0  # every term of the recursion is positive there
    d, total = shift[forward], first[forward]
    ratio = np.exp(-0.5 * d * d - total) + d  # I_2 / I_1
    for k in range(3, rank + 1):
        total = total + np.log(ratio)
        ratio = d + (k - 2) / ratio
    result[forward] = total + np.log(ratio)
    d = shift[~forward]
    mode = 0.5 * (d + np.sqrt(d * d + 4.0 * (rank - 1)))
    spread = 1.0 / np.sqrt(1.0 + (rank - 1) / mode**2)
    low, high = np.maximum(mode - 12.0 * spread, 0.0), mode + np.minimum(12.0, 40.0 * spread)
    points = low[:, None] + 0.5 * (high - low)[:, None] * (_NODES + 1.0)
    exponent = (rank - 1) * np.log(points) - 0.5 * (points - d[:, None]) ** 2
    top = exponent.max(axis=1, initial=-np.inf)
    total = np.exp(exponent - top[:, None]) @ _NODE_WEIGHTS
    result[~forward] = top + np.log(0.5 * (high - low) * total)
    return result


@dataclass(frozen=True)
class Directions:
    """The distributions of the directions of Gaussian rows (or columns)."""

    mean: Array
    root: Array
    whitening: Array

    @classmethod
    def of(cls, gaussians: Gaussians) -> Directions:
        """Return the directions of these Gaussians."""
        return cls(gaussians.mean, gaussians.roots, np.asarray(np.linalg.inv(gaussians.roots)))

    @property
    def rank(self) -> int:
        """The number of coordinates."""
        return self.mean.shape[1]

    @cached_property
    def _whitened_mean(self) -> Array:
        return np.einsum("mab,mb->ma", self.whitening, self.mean)

    @cached_property
    def _constant(self) -> Array:
        """The log of the sphere's area over ``(2 pi)^(K/2) |V|^(1/2)``, less ``C / 2``."""
        k = self.rank
        area = (1.0 - 0.5 * k) * math.log(2.0) - float(gammaln(0.5 * k))
        half_log_determinant = np.log(np.einsum("maa->ma", self.root)).sum(axis=1)
        return area - half_log_determinant - 0.5 * (self._whitened_mean**2).sum(axis=1)

    def log_ratio(self, values: Array) -> Array:
        """Return the log density of each row's direction ``values / |values|`` over the uniform one.

        ``values`` has shape (draws, rows, coordinates).
        """
        units = values / np.linalg.norm(values, axis=-1, keepdims=True)
        white = _each_times(self.whitening, units)
        square = (white**2).sum(axis=-1)
        shift = (white * self._whitened_mean).sum(axis=-1) / np.sqrt(square)
        radial = log_radial_integral(self.rank, shift)
        return self._constant + 0.5 * shift**2 - 0.5 * self.rank * np.log(square) + radial

    def largest(self) -> Array:
        """Return what ``log_ratio`` never exceeds.

        ``D^2 <= C`` (Cauchy and Schwarz), and ``A`` is least along the covariance's longest axis.
        """
        length = np.linalg.norm(self._whitened_mean, axis=1)
        longest = np.linalg.norm(self.root, ord=2, axis=(1, 2))
        radial = log_radial_integral(self.rank, length)
        return self._constant + 0.5 * length**2 + self.rank * np.log(longest) + radial

    def sample(self, draws: int, rng: np.random.Generator) -> Array:
        """Draw values of every row; their directions are what counts."""
        noise = rng.standard_normal((draws, *self.mean.shape))
        return self.mean + _each_times(self.root, noise)


def _each_times(matrices: Array, values: Array) -> Array:
    """Multiply the values of every row, of shape (draws, rows, coordinates), by the row's own matrix."""
    return np.matmul(values.transpose(1, 0, 2), matrices.transpose(0, 2, 1)).transpose(1, 0, 2)


def apply_to(posterior: Posterior) -> bool:
    """Say whether directions are all that a posterior's signs depend on."""
    hierarchy = posterior.hierarchy
    return hierarchy.rank > 0 and not hierarchy.row_effects and not hierarchy.column_effects


def draw_log_ratio(posterior: Posterior, rows: Array, columns: Array) -> float:
    """Return the log density of a drawn predictor's directions over the uniform one."""
    return sum(
        float(Directions.of(gaussians).log_ratio(values[None]).sum())
        for gaussians, values in zip(posterior.sides, (rows, columns), strict=True)
    )


@dataclass(frozen=True)
class Divergence:
    """``KL`` of the directions from the uniform prior.

    With probability ``1 - delta`` over the draws it is at most ``upper``.
    """

    estimate: float
    upper: float
    draws: int
    delta: float


def divergence(
    posterior: Posterior,
    n: int,
    delta: float,
    rng: np.random.Generator,
    most: int | None = None,
) -> Divergence:
    """Estimate the divergence of a posterior's directions, and bound it.

    Rows are drawn independently, and their log densities, cut ``DEPTH + K`` below their largest value
    (which can only raise the average), have a bounded range, so Hoeffding's inequality applies to their
    sum. There are draws until its term is ``TARGET n``, at most as many as can be, and at most ``most``.
    """
    sides = [Directions.of(gaussians) for gaussians in posterior.sides]
    depth = DEPTH + posterior.hierarchy.rank
    size = sum(len(side.mean) for side in sides)
    log_term = math.log(1.0 / delta)
    wanted = math.ceil(depth**2 * size * log_term / (2.0 * (TARGET * n) ** 2))
    draws = max(1, min(wanted, LARGEST_WORK // size, wanted if most is None else most))
    floors = [side.largest() - depth for side in sides]
    total = 0.0
    at_once = max(1, _AT_ONCE // size)
    for begin in range(0, draws, at_once):
        count = min(at_once, draws - begin)
        for side, floor in zip(sides, floors, strict=True):
            total += float(np.maximum(side.log_ratio(side.sample(count, rng)), floor).sum())
    estimate = total / draws
    return Divergence(
        estimate, estimate + depth * math.sqrt(size * log_term / (2.0 * draws)), draws, delta
    )
