"""A map of rows: two axes along which their answers differ most, and what either end of an axis means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onebit.model.population import Population, Standing

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RowMap:
    """Rows as points of a plane.

    Attributes
    ----------
    centre : ndarray
        The mean of the fitted rows.
    axes : ndarray of shape (coordinates, 2)
        What takes a row's coordinates to the plane. Distances are root-mean-square differences of
        scores over the columns; the second axis is empty where rows differ along one alone.
    points : ndarray of shape (rows, 2)
        The fitted rows.
    leaning : ndarray of shape (columns, 2)
        How much each column's score grows along either axis.
    """

    centre: Array
    axes: Array
    points: Array
    leaning: Array

    @classmethod
    def of(cls, population: Population) -> RowMap:
        """Return the plane in which the scores of the rows differ most."""
        design, rows = population.design, population.rows
        centre = rows.mean(axis=0)
        # Scores of rows are rows times design': their principal axes, from small matrices alone.
        squares, turn = np.linalg.eigh(design.T @ design / len(design))
        root = turn * np.sqrt(np.maximum(squares, 0.0))
        spread = (rows - centre) @ root
        directions = np.linalg.eigh(spread.T @ spread)[1][:, ::-1][:, :2]
        axes = np.zeros((rows.shape[1], 2))
        axes[:, : directions.shape[1]] = root @ directions
        leaning = _leaning(design, axes)
        # So that to the right, and up, there is more "yes".
        flip = np.where(leaning.mean(axis=0) < 0, -1.0, 1.0)
        axes = axes * flip
        return cls(centre, axes, (rows - centre) @ axes, leaning * flip)

    @property
    def dimensions(self) -> int:
        """How many axes rows differ along: two, or fewer."""
        spread = self.points.std(axis=0)
        return int((spread > 1e-6 * max(float(spread.max(initial=0.0)), 1e-300)).sum())

    def place(self, standing: Standing) -> tuple[Array, Array]:
        """Return where a row stands on the plane, and the covariance of that."""
        point = (standing.mean - self.centre) @ self.axes
        return point, self.axes.T @ standing.covariance @ self.axes

    def ends(self, axis: int, count: int) -> tuple[list[int], list[int]]:
        """Return the columns that lean most to the low and to the high end of an axis."""
        centred = self.leaning[:, axis] - self.leaning[:, axis].mean()
        order = np.argsort(centred, kind="stable")
        return order[:count].tolist(), order[::-1][:count].tolist()


def _leaning(design: Array, axes: Array) -> Array:
    """Return how much each column's score grows with a step along either axis."""
    return np.asarray(design @ np.linalg.pinv(axes).T)
