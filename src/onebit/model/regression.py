"""The prior mean of rows (or columns) as a regression on what is known of them.

What is known of a side is a matrix ``Q`` with a line for each row: coordinates of the pattern of its
answers, features that a user has of it. Its columns have mean zero, are orthogonal to each other and
come in groups, each scaled so that its lines have a mean squared length of one. A coordinate ``k`` of
row ``i`` (a factor or the effect) has the prior

    u_ik ~ N(q_i . h_k, gamma_k),    h_rk ~ N(0, gamma_k omega_gk)

besides the mean that all rows share. The strength ``omega_gk`` is the variance that group ``g`` explains
over the variance that it leaves. It lies on a grid, with the same prior probability at every point; the
lowest says that the group tells nothing.

Given ``gamma`` and ``omega`` the best distribution of a slope is its posterior,
``N(share p, gamma share)`` with ``share = 1 / (S + 1 / omega)``, ``S`` the squared length of the column
of ``Q`` and ``p`` its product with the mean coordinates. It is integrated out, as the shared mean is: the
variance ``gamma`` is left with the energy ``sum u^2 - sum share p^2``, and each column of ``Q`` costs
``log(1 + omega S) / 2``. Since the columns are orthogonal, no system is solved, and the distribution of a
strength on its grid is known exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.data import checked
from onebit.data.storage import Tensors

Array = NDArray[np.float64]

# Explained over unexplained variance: next to nothing, then from a thousandth to a hundred.
STRENGTHS = np.concatenate([[1e-6], np.logspace(-3.0, 2.0, 16)])
# Where a fit starts: as much explained as left.
_FIRST = 10
GROUPS = ("features", "pattern")
# Of a file.
LARGEST_WIDTH = 2**16


@dataclass(frozen=True)
class Slopes:
    """The posterior of a side's slopes and strengths.

    Attributes
    ----------
    mean : ndarray of shape (columns of Q, coordinates)
        Of the slopes.
    shares : ndarray of the same shape
        What the slopes' variances are, relative to those of the coordinates.
    weights : ndarray of shape (groups, coordinates, strengths)
        The probabilities of the strengths.
    """

    mean: Array
    shares: Array
    weights: Array

    @property
    def projections(self) -> Array:
        """The products of ``Q`` with the mean coordinates that these slopes are best for."""
        return self.mean / self.shares

    @property
    def strength(self) -> Array:
        """The mean strengths, of shape (groups, coordinates)."""
        return self.weights @ STRENGTHS


@dataclass(frozen=True, eq=False)
class Regression:
    """What the prior needs to know of ``Q``: the squared lengths of its columns, and its groups.

    Attributes
    ----------
    squares : ndarray
        The squared lengths.
    groups : dict of str to int
        The number of columns of each group, in order.
    typical : ndarray
        The mean line of all answers' rows: where a row stands of which nothing is known but that an
        answer is about it. Rows with many answers count more than in the mean of all rows, which is zero.
    """

    squares: Array
    groups: dict[str, int]
    typical: Array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Regression):
            return NotImplemented
        same = self.groups == other.groups and np.array_equal(self.squares, other.squares)
        return same and np.array_equal(self.typical, other.typical)

    __hash__ = None  # type: ignore[assignment]

    def close_to(self, other: Regression) -> bool:
        """Say whether another is of the same ``Q``, which another device sums up in single precision."""
        if self.groups != other.groups or self.squares.shape != other.squares.shape:
            return False
        near = 1e-4 * max(float(part.squares.max(initial=0.0)) for part in (self, other))
        return np.allclose(self.squares, other.squares, rtol=0.0, atol=near)

    @property
    def size(self) -> float:
        """The number of lines: the lines of every group have a mean squared length of one."""
        return float(self.squares.sum()) / len(self.groups)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.squares)

    def places(self, name: str) -> slice:
        """Return where the columns of a group are."""
        begin = 0
        for group, count in self.groups.items():
            if group == name:
                return slice(begin, begin + count)
            begin += count
        return slice(0, 0)

    def shares(self, strengths: Array) -> Array:
        """Return the share of every column for these strengths, of shape (strengths, columns)."""
        return 1.0 / (self.squares + 1.0 / np.asarray(strengths)[..., None])

    @cached_property
    def _grid(self) -> list[tuple[slice, Array, Array]]:
        """Of every group: its places, its shares and ``sum log(1 + omega S)``, for each strength."""
        grid = []
        for name in self.groups:
            places = self.places(name)
            costs = np.log1p(STRENGTHS[:, None] * self.squares[places]).sum(axis=1)
            grid.append((places, np.ascontiguousarray(self.shares(STRENGTHS)[:, places]), costs))
        return grid

    def log_weights(self, projections: Array, inverse: Array) -> Array:
        """Return log probabilities of the strengths given the coordinates, up to a constant.

        Of shape (groups, coordinates, strengths); ``inverse`` are the precisions of the coordinates.
        """
        square = projections**2
        return np.stack(
            [
                0.5 * (inverse[:, None] * (square[places].T @ shares.T) - costs)
                for places, shares, costs in self._grid
            ]
        )

    def fitted(self, projections: Array, inverse: Array | None) -> Slopes:
        """Return the slopes that are best for coordinates with these projections.

        ``inverse`` are the expected precisions of the coordinates; without them the strengths are those
        from which a fit starts.
        """
        if inverse is None:
            weights = np.zeros((len(self.groups), projections.shape[1], len(STRENGTHS)))
            weights[..., _FIRST] = 1.0
        else:
            logs = self.log_weights(projections, inverse)
            weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
        shares = np.empty_like(projections)
        for own, (places, every, _) in zip(weights, self._grid, strict=True):
            shares[places] = (own @ every).T
        return Slopes(shares * projections, shares, weights)

    def spread(self, slopes: Slopes, variances: Array, group: str | None = None) -> Array:
        """Return how much a row's coordinates vary with what is not known of it.

        All of it, or one group; its lines are taken to be like those of the others. ``variances`` are
        those of the coordinates around the regression.
        """
        places = slice(None) if group is None else self.places(group)
        square = slopes.mean[places] ** 2 + variances * slopes.shares[places]
        return (self.squares[places] / self.size) @ square

    def relief(self, slopes: Slopes, projections: Array | None) -> Array:
        """Return the energy of each coordinate that the slopes explain, their own energy paid.

        Without ``projections`` the coordinates are those that the slopes are best for.
        """
        best = slopes.projections
        if projections is None:
            return (slopes.shares * best**2).sum(axis=0)
        return (slopes.shares * (2.0 * best * projections - best**2)).sum(axis=0)

    def kl(self, slopes: Slopes) -> float:
        """Return what slopes and strengths add to the divergence, beside the energy that they relieve."""
        total = 0.0
        for weights, (_, _, costs) in zip(slopes.weights, self._grid, strict=True):
            total += 0.5 * float((weights @ costs).sum())
            relative = np.maximum(weights * len(STRENGTHS), 1e-300)
            total += float((weights * np.log(relative)).sum())
        return total

    def state(self, name: str, slopes: Slopes) -> tuple[Tensors, dict[str, Any]]:
        """Return regression and slopes as arrays, whose names begin with ``name``, and JSON."""
        tensors: Tensors = {f"{name}.squares": self.squares, f"{name}.slopes": slopes.mean}
        tensors[f"{name}.typical"] = self.typical
        tensors |= {f"{name}.shares": slopes.shares, f"{name}.weights": slopes.weights}
        return tensors, {group: int(count) for group, count in self.groups.items()}


def restored_regression(
    tensors: Tensors, name: str, groups: Any, n_free: int
) -> tuple[Regression, Slopes]:
    """Restore what ``Regression.state`` returned, checked."""
    checked.only(groups, GROUPS, "a regression")
    counts = {
        group: checked.whole(groups, group, 0, LARGEST_WIDTH) for group in GROUPS if group in groups
    }
    array, width = checked.checked_array, sum(counts.values())
    squares = array(tensors, f"{name}.squares", np.float64, (width,), positive=True)
    far = checked.LARGEST_FACTOR
    shape = (width, n_free)
    slopes = array(tensors, f"{name}.slopes", np.float64, shape, least=-far, most=far)
    shares = array(tensors, f"{name}.shares", np.float64, shape, positive=True)
    grid = (len(counts), n_free, len(STRENGTHS))
    weights = array(tensors, f"{name}.weights", np.float64, grid, least=0.0, most=1.0 + 1e-9)
    typical = array(tensors, f"{name}.typical", np.float64, (width,), least=-far, most=far)
    return Regression(squares, counts, typical), Slopes(slopes, shares, weights)
