"""Where a new row (or column) stands among what is known of its side: its line of ``Q``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from onebit.data import checked
from onebit.data.sorting import View
from onebit.data.storage import Tensors
from onebit.model.regression import LARGEST_WIDTH

Array = NDArray[np.float64]
Single = NDArray[np.float32]

# Added to the counts by whose roots the pattern is divided. A fitted answer is a part of its own row's
# pattern and a blank never is; in rows with few answers that difference would count for too much.
DAMPING = 30.0


@dataclass(frozen=True)
class Placing:
    """The maps from answers and features to the coordinates of a regression.

    Attributes
    ----------
    loading : ndarray of float32, shape (members of the other side, columns of the pattern)
        What an answer about each of them adds, before the division by the root of the count.
    offset : ndarray
        What is taken off, so that the fitted rows have mean zero.
    features : ndarray of shape (features, columns of the features)
        What each standardised feature adds.
    cross : ndarray of shape (columns of the features, columns of the pattern)
        What is taken off the pattern for the features, so that the two are orthogonal.
    typical : ndarray
        Where those stand in the pattern who have no answers; see ``Regression.typical``.
    """

    loading: Single
    offset: Array
    features: Array
    cross: Array
    typical: Array

    def coordinates(self, view: View, features: Any = None) -> Array:
        """Return the lines of rows with the answers of ``view`` and these features, standardised."""
        told = np.zeros((view.size, self.features.shape[1]))
        if features is not None and self.features.size:
            told = features.times(self.features)
        if self.loading.shape[1] == 0:
            return told
        present = scipy.sparse.csr_array(
            (np.ones(len(view.index)), view.index.copy(), view.start.copy()),
            shape=(view.size, len(self.loading)),
        )
        present.sum_duplicates()
        present.data[:] = 1.0
        counts = np.diff(present.indptr)
        pattern = (present @ self.loading.astype(float)) / np.sqrt(counts + DAMPING)[:, None]
        pattern -= self.offset + told @ self.cross
        # Of those without answers the pattern is not known, which is not to say that it is empty.
        return np.hstack([told, np.where(counts[:, None] > 0, pattern, self.typical)])

    def extended(self, count: int) -> Placing:
        """Return the same with so many new members of the other side, about whom answers tell nothing."""
        if count == 0:
            return self
        added = np.zeros((count, self.loading.shape[1]), np.float32)
        return replace(self, loading=np.concatenate([self.loading, added]))

    def state(self, name: str) -> Tensors:
        """Return the maps as arrays whose names begin with ``name``."""
        return {
            f"{name}.loading": self.loading, f"{name}.offset": self.offset,
            f"{name}.features": self.features, f"{name}.cross": self.cross,
            f"{name}.standing": self.typical,
        }  # fmt: skip


def restored_placing(tensors: Tensors, name: str, groups: dict[str, int], others: int) -> Placing:
    """Restore what ``Placing.state`` returned, checked, for a regression with these groups."""
    told, pattern = groups.get("features", 0), groups.get("pattern", 0)
    array, far = checked.checked_array, checked.LARGEST_FACTOR
    features = array(tensors, f"{name}.features", np.float64, (None, told), least=-far, most=far)
    if len(features) > LARGEST_WIDTH:
        raise checked.FileError(f"{name}.features is of {len(features)} features")
    return Placing(
        array(tensors, f"{name}.loading", np.float32, (others, pattern), least=-far, most=far),
        array(tensors, f"{name}.offset", np.float64, (pattern,), least=-far, most=far),
        features,
        array(tensors, f"{name}.cross", np.float64, (told, pattern), least=-far, most=far),
        array(tensors, f"{name}.standing", np.float64, (pattern,), least=-far, most=far),
    )
