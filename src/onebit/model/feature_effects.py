"""How much a feature moves the effect of a row (or column): coefficients with their uncertainty.

The factors of a model may be turned without a change of any score, so that slopes of single factors say
nothing. The effect of a row on a typical column does: ``e_i = a_i + L_i . kappa``, with ``kappa`` the
mean of the columns' factors (``Posterior.main_effects``). Its slopes are ``s = h_a + H kappa``.

A variational posterior takes slopes and rows for independent, and its own variances of the slopes are too
small where a row has few answers. Here the rows are integrated out: with ``g`` the precision of ``e_i``
around its regression and ``v_i`` its posterior variance, row ``i`` says as much of the slopes as an
observation with precision ``g (1 - g v_i)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.model.gaussians import Gaussians, lower_triangle
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]

# The least that a row says, relative to one that is known exactly.
_LEAST = 1e-9


def _direction(posterior: Posterior, side: int) -> Array:
    """Return what makes the effect on a typical column out of a row's coordinates."""
    return np.append(posterior.hyper.means[1 - side], 1.0)


def _variances(gaussians: Gaussians, direction: Array) -> Array:
    """Return the variances of ``direction . u`` of all rows."""
    if not gaussians.full:
        return gaussians.covariance @ direction**2
    a, b = lower_triangle(len(direction))
    weights = np.where(a == b, 1.0, 2.0) * direction[a] * direction[b]
    return gaussians.covariance @ weights


def slope_means(posterior: Posterior, side: int) -> Array:
    """Return the slopes of the effects on the features of a side."""
    regression, slopes = posterior.hierarchy.regressions[side], posterior.hyper.slopes[side]
    assert regression is not None
    assert slopes is not None
    return slopes.mean[regression.places("features")] @ _direction(posterior, side)


def slope_covariance(posterior: Posterior, side: int, values: NDArray[Any]) -> Array:
    """Return the covariance of the slopes of the effects; ``values`` are the lines of the features."""
    regression, slopes = posterior.hierarchy.regressions[side], posterior.hyper.slopes[side]
    assert regression is not None
    assert slopes is not None
    hyper, direction = posterior.hyper, _direction(posterior, side)
    effect = hyper.effect(side)
    assert effect is not None
    own = np.append(hyper.factors.mean, effect.mean) * direction**2
    precision = 1.0 / own.sum()
    said = precision * np.maximum(1.0 - precision * _variances(posterior.sides[side], direction), _LEAST)
    number = list(regression.groups).index("features")
    prior = float((own * slopes.strength[number]).sum())
    lines = values.astype(float)
    information = lines.T @ (said[:, None] * lines) + np.eye(lines.shape[1]) / prior
    return np.linalg.inv(information)
