"""Draws from the generalised inverse Gaussian distribution, for every order and argument."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Devroye's hat accepts more than half of the proposals, whatever the arguments: so many rejections in a
# row do not happen, and where numbers that are none make them happen, the mode in x stands in.
_MOST_PROPOSALS = 10_000
# Below these, squares vanish.
_TINY, _FLATTEST = 1e-290, 1e-150


def generalised_inverse_gaussian(
    order: ArrayLike, a: ArrayLike, b: ArrayLike, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw from the densities ``~ x^(order - 1) exp(-(a x + b / x) / 2)`` (Devroye, 2014).

    Parameters
    ----------
    order, a, b : array-like
        One each for every draw. Orders may have either sign; ``a`` and ``b`` are positive.
    rng : Generator
        Where the uniform numbers come from.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit.model.gig import generalised_inverse_gaussian
    >>> draws = generalised_inverse_gaussian(-1e4, 1.0, [2e4, 8e4], np.random.default_rng(0))
    >>> draws.round().tolist()
    [1.0, 4.0]
    """
    order, a, b = (np.asarray(part, dtype=float) for part in np.broadcast_arrays(order, a, b))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # in what is not chosen
        return _draws(order, a, b, rng)


def _draws(
    order: NDArray[np.float64], a: NDArray[np.float64], b: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    size = np.abs(order)
    omega = np.where(a * b > _TINY, np.sqrt(a * b), np.sqrt(a) * np.sqrt(b))  # a b may vanish
    # sqrt(omega^2 + order^2) - |order| without the cancellation.
    alpha = np.maximum(omega * (omega / (np.hypot(omega, size) + size)), _FLATTEST)

    def depth(x: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far the log density is below its mode."""
        return alpha * (np.cosh(x) - 1.0) + size * (np.expm1(x) - x)

    def slope(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return -alpha * np.sinh(x) - size * np.expm1(x)

    # Where the hat's tails touch the log density: some unit below its mode.
    one = np.ones_like(alpha)
    up, down = depth(one), depth(-one)
    right = np.where(up > 2.0, np.sqrt(2.0 / (alpha + size)), one)
    right = np.where(up < 0.5, np.log(4.0 / (alpha + 2.0 * size)), right)
    left = np.where(down > 2.0, np.sqrt(4.0 / (alpha * np.cosh(1.0) + size)), one)
    far = np.log1p(1.0 / alpha + np.sqrt(1.0 / alpha**2 + 2.0 / alpha))
    left = np.where(down < 0.5, np.minimum(1.0 / size, far), left)
    eta, zeta = depth(right), -slope(right)
    theta, xi = depth(-left), slope(-left)
    p, r = 1.0 / xi, 1.0 / zeta
    top = right - r * eta  # the hat is flat from here to there
    bottom = left - p * theta
    flat = bottom + top
    found, wanted = np.zeros_like(alpha), np.ones(alpha.shape, bool)
    for _ in range(_MOST_PROPOSALS):
        u, v, w = rng.random((3, *alpha.shape))
        part, log_v = u * (flat + p + r), np.log1p(-v)
        x = np.where(part < flat + r, top - r * log_v, p * log_v - bottom)
        hat = np.where(part < flat + r, -eta - zeta * (x - right), xi * (x + left) - theta)
        even = part < flat
        x, hat = np.where(even, flat * v - bottom, x), np.where(even, 0.0, hat)
        taken = wanted & (w * np.exp(hat) <= np.exp(-depth(x)))
        found = np.where(taken, x, found)
        wanted &= ~taken
        if not wanted.any():
            break
    ratio = size / omega
    value = np.exp(found) * (ratio + np.hypot(1.0, ratio))
    return np.asarray(np.where(order >= 0, value, 1.0 / value) * np.sqrt(b / a))
