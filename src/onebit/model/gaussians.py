"""Independent Gaussians, one a row or column: what a posterior is made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from onebit.model.hierarchy import Hierarchy, SideSums

Array = NDArray[np.float64]


def packed_size(n: int) -> int:
    """Return the length of a packed lower triangle of an n x n matrix."""
    return n * (n + 1) // 2


def packed_diagonal(n: int) -> NDArray[np.int64]:
    """Return where the diagonal of an n x n matrix stands in its packed lower triangle."""
    k = np.arange(n)
    return k * (k + 3) // 2


@lru_cache(maxsize=64)
def lower_triangle(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows and columns of the lower triangle of an n x n matrix, in the order of a packed one."""
    first, second = np.tril_indices(n)
    return first, second


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
            lower = lower_triangle(n)
            dense[:, lower[0], lower[1]] = self.covariance
            dense[:, lower[1], lower[0]] = self.covariance
        else:
            dense[:, np.arange(n), np.arange(n)] = self.covariance
        return dense

    def log_determinants(self) -> Array:
        """Return the log determinant of each covariance."""
        if len(self.mean) > 1 and self.covariance.strides[0] == 0:
            one = Gaussians.trusted(self.mean[:1], self.covariance[:1], self.full)
            return np.repeat(one.log_determinants(), len(self.mean))
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
        values = self.at(noise)
        diagonal = np.einsum("maa->ma", self.roots)
        log_density = -0.5 * (noise**2 + np.log(2.0 * np.pi)).sum() - np.log(diagonal).sum()
        return values, float(log_density)

    def at(self, noise: Array) -> Array:
        """Return the value of every coordinate that standard normal noise leads to."""
        return self.mean + np.einsum("mab,mb->ma", self.roots, noise)

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

    @classmethod
    def alike(cls, mean: Array, variance: Array, count: int, full: bool) -> Gaussians:
        """Return so many Gaussians that are one and the same, and take the memory of one."""
        one = independent_gaussians(mean[None], variance[None], full)
        shared = [np.broadcast_to(part, (count, part.shape[1])) for part in (one.mean, one.covariance)]
        return cls.trusted(shared[0], shared[1], full)

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


def positive_root(matrix: Array) -> Array | None:
    """Return the lower triangular root of a matrix, or of each of several; None where one has none.

    >>> positive_root(np.array([[4.0]]))
    array([[2.]])
    >>> positive_root(np.array([[-4.0]])) is None
    True
    """
    try:
        root = np.asarray(np.linalg.cholesky(matrix), dtype=float)
    except np.linalg.LinAlgError:
        return None
    return root if np.isfinite(root).all() else None
