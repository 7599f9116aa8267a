"""Columns as they would be had one row not been fitted, by taking out again what its answers said.

The Gaussian of column ``j`` has the precision ``prior + sum_i w_ij x_i x_i'``, where ``x_i`` is the row
as the column meets it, ``(factors, 1)``, and ``w_ij`` the weight of the logistic loss at that score
(``onebit.model.losses``). At its mean the slopes of the prior and of all answers add up to zero; without
row ``i`` the slope of that row's answer is missing, and one step of Newton's method leads to the new
mean: given the other rows and the weights, everything is quadratic. These would have changed a little
too; that is left alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from onebit.model.gaussians import Gaussians, lower_triangle
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]

# What is left of a precision along a row's line is not less than this share: single rows that are all
# that is known of a column would otherwise leave nothing but rounding.
_LEAST = 0.05


def without_row(
    posterior: Posterior, row: int, columns: NDArray[np.int32], shares: Array, temperature: float
) -> Posterior:
    """Return a posterior whose columns have not met one row's answers.

    Parameters
    ----------
    posterior : Posterior
        Of a fit with the logistic loss.
    row : int
        The code of the row.
    columns : ndarray
        The codes of the columns that it was fitted to.
    shares : ndarray
        Its answers to them, from 0 ("no") to 1.
    temperature : float
        Of the fit.
    """
    rank, gaussians = posterior.hierarchy.rank, posterior.columns
    line = posterior.rows.mean[row, :rank]
    if posterior.hierarchy.has_effect(1):
        line = np.append(line, 1.0)
    mean, variance = posterior.score_moments(np.full(len(columns), row), columns)
    root = np.sqrt(np.maximum(mean**2 + variance, 1e-12))
    weight = temperature * np.tanh(0.5 * root) / (2.0 * root)
    slope = temperature * (shares - 0.5) - weight * mean
    touched = gaussians.taken(columns)
    if gaussians.full:
        dense = touched.dense_covariance()
        moved = dense @ line
        left = np.maximum(1.0 - weight * (moved @ line), _LEAST)
        dense += (weight / left)[:, None, None] * moved[:, :, None] * moved[:, None, :]
        lower = lower_triangle(dense.shape[1])
        covariance, step = dense[:, lower[0], lower[1]], moved * (slope / left)[:, None]
    else:
        least = _LEAST / touched.covariance
        covariance = 1.0 / np.maximum(1.0 / touched.covariance - weight[:, None] * line**2, least)
        step = covariance * line * slope[:, None]
    means, covariances = gaussians.mean.copy(), gaussians.covariance.copy()
    means[columns], covariances[columns] = touched.mean - step, covariance
    return replace(posterior, columns=Gaussians.trusted(means, covariances, gaussians.full))
