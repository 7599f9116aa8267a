"""Logistic likelihood under a nuclear-norm ball: the frequentist baseline of Davenport et al. (2014).

minimise ``f(M) = sum_l log(1 + exp(-y_l M_l))`` subject to ``|M|_* <= radius`` and, optionally,
``|M_ij| <= bound`` for all entries.

Accelerated projected gradient (FISTA with restarts). Without the entrywise bound nothing dense is ever
formed: the gradient is as sparse as the data, the iterates are kept as factors, and the projection
needs only the singular values above its threshold. With the bound the matrix is dense and the projection
onto the intersection is Dykstra's. Both stop on a duality gap, so the result is certified optimal:
``f(M) - min f <= <grad f(M), M> + sup_{feasible S} <-grad f(M), S>``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray
from scipy.special import expit

from onebit.data.kernels import kernel
from onebit.data.observations import Observations
from onebit.engine.crew import Callback, Progress

Array = NDArray[np.float64]

# Below this many entries a dense decomposition is faster than an iterative one.
_DENSE_SIZE = 100_000
_GAP_EVERY = 5
_DYKSTRA_ROUNDS = 200


@dataclass(frozen=True)
class NuclearFit:
    """The optimum in factored form, ``M = left right'``, and how close to optimal it is."""

    left: Array
    right: Array
    objective: float
    gap: float
    n_iter: int
    converged: bool


@kernel(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def pair_products(rows, columns, left, right, out):
    """Write ``left[i] . right[j]`` for each pair of codes."""
    for k in range(len(rows)):
        total = 0.0
        for a in range(left.shape[1]):
            total += left[rows[k], a] * right[columns[k], a]
        out[k] = total


def project_to_simplex(values: Array, radius: float) -> tuple[Array, float]:
    """Project non-negative values onto ``sum <= radius``; also return the threshold subtracted."""
    if values.sum() <= radius:
        return values, 0.0
    descending = np.sort(values)[::-1]
    thresholds = (np.cumsum(descending) - radius) / np.arange(1, len(values) + 1)
    threshold = float(thresholds[np.nonzero(descending > thresholds)[0][-1]])
    return np.maximum(values - threshold, 0.0), threshold


class _Likelihood:
    """The logistic loss of the observed entries and its sparse gradient."""

    def __init__(self, observations: Observations) -> None:
        view = observations.by_row
        self.shape = observations.shape
        self.rows, self.columns = view.owners(), view.index
        self.sign = view.sign.astype(float)
        self.weight = view.weight.astype(float) if len(view.weight) else np.ones(len(self.sign))
        self.total_weight = float(self.weight.sum())
        # f'' <= weight / 4, summed over the answers to one entry.
        self.lipschitz = 0.25 * float(self._sparse(self.weight).max())

    def _sparse(self, values: Array) -> scipy.sparse.csr_array:
        matrix = scipy.sparse.coo_array((values, (self.rows, self.columns)), shape=self.shape)
        return matrix.tocsr()  # repeated answers to one entry add up

    def at(self, scores: Array) -> tuple[float, scipy.sparse.csr_array]:
        """Return ``f`` and its gradient, from the scores of the observed entries."""
        margin = self.sign * scores
        value = float((self.weight * np.logaddexp(0.0, -margin)).sum())
        return value, self._sparse(-self.weight * self.sign * expit(-margin))


class _Domain(Protocol):
    """A feasible set and how its points are stored (``Any``: factors or dense matrices)."""

    def zero(self) -> Any:
        """Return the zero matrix."""

    def scores(self, point: Any) -> Array:
        """Return the observed entries of a point."""

    def combine(self, new: Any, old: Any, beta: float) -> Any:
        """Return ``new + beta (new - old)``."""

    def projected(self, point: Any, gradient: scipy.sparse.csr_array, step: float) -> Any:
        """Return the projection of ``point - step gradient``."""

    def gap(self, point: Any, gradient: scipy.sparse.csr_array) -> float:
        """Return an upper bound on the distance to the optimum, given the gradient at the point."""

    def factors(self, point: Any) -> tuple[Array, Array]:
        """Return the point as ``left right'``."""


class _LowRank:
    """The nuclear-norm ball, with iterates as factors."""

    def __init__(self, likelihood: _Likelihood, radius: float, rng: np.random.Generator) -> None:
        self.likelihood = likelihood
        self.radius = radius
        self.guess = 10
        self.start = rng.standard_normal(min(likelihood.shape))

    def zero(self) -> tuple[Array, Array]:
        rows, columns = self.likelihood.shape
        return np.zeros((rows, 1)), np.zeros((columns, 1))

    def scores(self, point: tuple[Array, Array]) -> Array:
        out = np.empty(len(self.likelihood.rows))
        pair_products(self.likelihood.rows, self.likelihood.columns, *point, out)
        return out

    def combine(
        self, new: tuple[Array, Array], old: tuple[Array, Array], beta: float
    ) -> tuple[Array, Array]:
        if beta == 0.0:
            return new
        left = np.hstack([(1.0 + beta) * new[0], -beta * old[0]])
        return left, np.hstack([new[1], old[1]])

    def projected(
        self, point: tuple[Array, Array], gradient: scipy.sparse.csr_array, step: float
    ) -> tuple[Array, Array]:
        left, right = point
        shape = self.likelihood.shape

        def exactly() -> tuple[Array, Array, Array]:
            return np.linalg.svd(left @ right.T - step * gradient.toarray(), full_matrices=False)

        if shape[0] * shape[1] <= _DENSE_SIZE:
            u, values, vt = exactly()
            kept, _ = project_to_simplex(values, self.radius)
        else:
            moved = scipy.sparse.linalg.LinearOperator(
                shape,
                matvec=lambda x: left @ (right.T @ x) - step * (gradient @ x),
                rmatvec=lambda x: right @ (left.T @ x) - step * (gradient.T @ x),
                dtype=float,
            )
            while True:
                whole = self.guess >= min(shape) - 1
                u, values, vt = (
                    exactly() if whole else scipy.sparse.linalg.svds(moved, k=self.guess, v0=self.start)
                )
                kept, threshold = project_to_simplex(values, self.radius)
                # Enough values are known once the smallest of them falls below the threshold.
                if whole or values.min() <= threshold:
                    break
                self.guess *= 2
            self.guess = int((kept > 0).sum()) + 5
        positive = kept > 0
        if not positive.any():
            return self.zero()
        root = np.sqrt(kept[positive])
        return np.ascontiguousarray(u[:, positive] * root), np.ascontiguousarray(vt[positive].T * root)

    def gap(self, point: tuple[Array, Array], gradient: scipy.sparse.csr_array) -> float:
        """Return ``<G, M> + radius |G|_op``."""
        inner = float(((gradient @ point[1]) * point[0]).sum())
        return inner + self.radius * self._operator_norm(gradient)

    def _operator_norm(self, matrix: scipy.sparse.csr_array) -> float:
        if min(matrix.shape) <= 2 or matrix.shape[0] * matrix.shape[1] <= _DENSE_SIZE:
            return float(np.linalg.norm(matrix.toarray(), 2))
        return float(
            scipy.sparse.linalg.svds(matrix, k=1, v0=self.start, return_singular_vectors=False)[0]
        )

    def factors(self, point: tuple[Array, Array]) -> tuple[Array, Array]:
        return point


class _Bounded:
    """The nuclear-norm ball cut by ``|M_ij| <= bound``, with dense iterates."""

    def __init__(self, likelihood: _Likelihood, radius: float, bound: float) -> None:
        self.likelihood = likelihood
        self.radius = radius
        self.bound = bound
        # Dykstra's corrections, in the normal cones of the ball and of the box. They are the dual
        # variables of the projection, and a good start for the next one.
        self.ball_normal = np.zeros(likelihood.shape)
        self.box_normal = np.zeros(likelihood.shape)
        self.step = 1.0

    def zero(self) -> Array:
        return np.zeros(self.likelihood.shape)

    def scores(self, point: Array) -> Array:
        return point[self.likelihood.rows, self.likelihood.columns]

    def combine(self, new: Array, old: Array, beta: float) -> Array:
        return new + beta * (new - old)

    def projected(self, point: Array, gradient: scipy.sparse.csr_array, step: float) -> Array:
        moved = point - step * gradient.toarray()
        for _ in range(_DYKSTRA_ROUNDS):
            u, values, vt = np.linalg.svd(moved - self.box_normal, full_matrices=False)
            ball = (u * project_to_simplex(values, self.radius)[0]) @ vt
            self.ball_normal = moved - self.box_normal - ball
            x = np.clip(moved - self.ball_normal, -self.bound, self.bound)
            self.box_normal = moved - self.ball_normal - x
            if np.abs(ball - x).max() <= 1e-7 * self.bound:
                break
        self.step = step
        norm = float(np.linalg.svd(x, compute_uv=False).sum())
        return x * min(1.0, self.radius / max(norm, 1e-300))

    def gap(self, point: Array, gradient: scipy.sparse.csr_array) -> float:
        """Bound ``sup <-G, S>`` by ``radius |A|_op + bound |B|_1`` for the split ``A + B = -G``."""
        dense = gradient.toarray()
        part = self.ball_normal / self.step
        support = self.radius * np.linalg.norm(part, 2) + self.bound * np.abs(dense + part).sum()
        # Either set alone gives a bound as well.
        ball = self.radius * np.linalg.norm(dense, 2)
        box = self.bound * np.abs(dense).sum()
        return float((dense * point).sum() + min(support, ball, box))

    def factors(self, point: Array) -> tuple[Array, Array]:
        u, values, vt = np.linalg.svd(point, full_matrices=False)
        keep = values > 1e-9 * max(values[0], 1e-300)
        root = np.sqrt(values[keep])
        return u[:, keep] * root, vt[keep].T * root


def minimise_nuclear(
    observations: Observations,
    radius: float,
    bound: float | None,
    *,
    max_iter: int,
    tol: float,
    rng: np.random.Generator,
    callback: Callback | None = None,
) -> NuclearFit:
    """Solve to a duality gap of ``tol`` per answer, or for ``max_iter`` iterations."""
    likelihood = _Likelihood(observations)
    domain: _Domain = (
        _LowRank(likelihood, radius, rng) if bound is None else _Bounded(likelihood, radius, bound)
    )
    step = 1.0 / likelihood.lipschitz
    point = ahead = domain.zero()
    momentum = 1.0
    value, gradient = likelihood.at(domain.scores(point))
    gap = np.inf
    n_iter = 0
    for n_iter in range(1, max_iter + 1):
        _, gradient_ahead = likelihood.at(domain.scores(ahead))
        new = domain.projected(ahead, gradient_ahead, step)
        new_value, gradient = likelihood.at(domain.scores(new))
        if new_value > value and momentum > 1.0:  # restart: the extrapolation overshot
            momentum, ahead = 1.0, point
            continue
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = domain.combine(new, point, (momentum - 1.0) / following)
        point, value, momentum = new, new_value, following
        if callback is not None:
            callback(Progress(n_iter, max_iter, value / likelihood.total_weight))
        if n_iter % _GAP_EVERY == 0 or n_iter == max_iter:
            gap = domain.gap(point, gradient) / likelihood.total_weight
            if gap <= tol:
                break
    left, right = domain.factors(point)
    return NuclearFit(left, right, value / likelihood.total_weight, float(gap), n_iter, bool(gap <= tol))
