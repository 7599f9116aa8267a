"""Draws from the generalised inverse Gaussian distribution, for every order and argument."""

from __future__ import annotations

import math

import numpy as np

# Devroye's hat accepts more than half of the proposals, whatever the arguments: so many rejections in a
# row do not happen, and where numbers that are none make them happen, the mode in x stands in.
_MOST_PROPOSALS = 10_000
# Below these, squares vanish.
_TINY, _FLATTEST = 1e-290, 1e-150


def generalised_inverse_gaussian(order: float, a: float, b: float, rng: np.random.Generator) -> float:
    """Draw from the density ``~ x^(order - 1) exp(-(a x + b / x) / 2)`` (Devroye, 2014).

    Parameters
    ----------
    order, a, b : float
        The order may have either sign; ``a`` and ``b`` are positive.
    rng : Generator
        Where the uniform numbers come from.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit.gig import generalised_inverse_gaussian
    >>> 0.9 < generalised_inverse_gaussian(-1e4, 1.0, 2e4, np.random.default_rng(0)) < 1.1
    True
    """
    size = abs(order)
    omega = math.sqrt(a * b) if a * b > _TINY else math.sqrt(a) * math.sqrt(b)  # a b may vanish
    # sqrt(omega^2 + order^2) - |order| without the cancellation.
    alpha = omega * (omega / (math.hypot(omega, size) + size)) if size else omega
    alpha = max(alpha, _FLATTEST)

    def log_density(x: float) -> float:
        return -alpha * (math.cosh(x) - 1.0) - size * (math.expm1(x) - x)

    def slope(x: float) -> float:
        return -alpha * math.sinh(x) - size * math.expm1(x)

    # Where the hat's tails touch the log density: some unit below its mode.
    right = left = 1.0
    if -log_density(1.0) > 2.0:
        right = math.sqrt(2.0 / (alpha + size))
    elif -log_density(1.0) < 0.5:
        right = math.log(4.0 / (alpha + 2.0 * size))
    if -log_density(-1.0) > 2.0:
        left = math.sqrt(4.0 / (alpha * math.cosh(1.0) + size))
    elif -log_density(-1.0) < 0.5:
        far = math.log1p(1.0 / alpha + math.sqrt(1.0 / alpha**2 + 2.0 / alpha))
        left = min(1.0 / size, far) if size else far
    eta, zeta = -log_density(right), -slope(right)
    theta, xi = -log_density(-left), slope(-left)
    p, r = 1.0 / xi, 1.0 / zeta
    top = right - r * eta  # the hat is flat from here to there
    bottom = left - p * theta
    flat = bottom + top
    for _ in range(_MOST_PROPOSALS):
        u, v, w = rng.random(), 1.0 - rng.random(), rng.random()
        part = u * (flat + p + r)
        if part < flat:
            x = -bottom + flat * v
            hat = 1.0
        elif part < flat + r:
            x = top - r * math.log(v)
            hat = math.exp(-eta - zeta * (x - right))
        else:
            x = -bottom + p * math.log(v)
            hat = math.exp(-theta + xi * (x + left))
        if w * hat <= math.exp(log_density(x)):
            break
    else:
        x = 0.0
    ratio = size / omega
    value = math.exp(x) * (ratio + math.hypot(1.0, ratio))
    return (value if order >= 0 else 1.0 / value) * math.sqrt(b / a)
