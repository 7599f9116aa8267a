"""Algorithm 1 of the paper: the approximate variational bound (AVB), minimised as printed.

The family is the paper's ``F`` (independent coordinates, no effects). The AVB of Definition 2 is

``r_h(L0 R0') + spread + KL(rho, pi) / lambda``, with

``spread = 1/n sum_l sum_k [s_L s_R + |R0| s_L + |L0| s_R]``, ``s = sqrt(2 v / pi)`` at answer ``l``.

The means take sub-gradient steps of decreasing size; the variances and ``rho^gamma`` have closed forms.
Two departures from the print, both needed to run it: the loop goes on *while* the scores change (the
paper's test is inverted), and a step treats the separable terms, ``|L0| s_R`` and the prior's square,
implicitly (a proximal step), because the precision of a column on its way out exceeds any step size.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.data import checked
from onebit.data.kernels import kernel
from onebit.data.observations import Observations
from onebit.data.sorting import View
from onebit.engine.cpu.threads import Threads
from onebit.engine.crew import Callback, Progress
from onebit.engine.descent import Fit, Schedule
from onebit.engine.start import START_VARIANCE, Start
from onebit.model.gaussians import Gaussians
from onebit.model.hierarchy import Hierarchy, HyperPosterior, SideSums
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]

_HALF_NORMAL = float(np.sqrt(2.0 / np.pi))  # E|z| for a standard normal z
# Step t is FIRST_STEP / (1 + t / STEP_HALVING), relative to the mean sub-gradient of a row's answers:
# large enough to leave the spectral start, and summable enough to settle. Of 0.3, 1, 2 and 3 with this
# decay and with 1 / sqrt(t), it gave the lowest AVB over the paper's worlds.
FIRST_STEP = 2.0
STEP_HALVING = 20.0
# The means zigzag about the kinks of the hinge: the scores still move by a few per cent a step when the
# AVB has settled to a thousandth.
SQUARED_TOLERANCE = 100.0


@dataclass(frozen=True)
class ApproximateBound:
    """The AVB at a posterior and the terms it is made of.

    Proposition 1: ``E[hinge risk under rho] + KL / lambda <= total``.
    """

    hinge_risk: float
    spread: float
    divergence: float
    temperature_n: float

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> ApproximateBound:
        """Restore a bound from ``dataclasses.asdict`` of it, checked."""
        names = [part.name for part in fields(cls)]
        checked.only(settings, names, "the bound of the paper's method")
        terms = {name: checked.number(settings, name) for name in names}
        checked.number(settings, "temperature_n", positive=True)
        return cls(**terms)

    @property
    def total(self) -> float:
        """``AVB(rho) = hinge_risk + spread + KL / lambda``."""
        return self.hinge_risk + self.spread + self.divergence / self.temperature_n


@kernel(nogil=True, error_model="numpy")
def _walk(
    begin, end, start, index, sign, weight, mean, deviation, other_mean, other_deviation,
    hinge, gradient, absolute, facing_deviation,
):  # fmt: skip
    """For rows ``begin:end``: hinge loss, its sub-gradient, and the sums of ``|R0|`` and ``s_R``."""
    rank = mean.shape[1]
    for i in range(begin, end):
        hinge[i] = 0.0
        for k in range(rank):
            gradient[i, k] = 0.0
            absolute[i, k] = 0.0
            facing_deviation[i, k] = 0.0
        for t in range(start[i], start[i + 1]):
            j = index[t]
            u = weight[t] if weight.shape[0] > 0 else 1.0
            margin = 0.0
            for k in range(rank):
                margin += mean[i, k] * other_mean[j, k]
            margin *= sign[t]
            active = margin < 1.0
            if active:
                hinge[i] += u * (1.0 - margin)
            for k in range(rank):
                if active:
                    gradient[i, k] -= u * sign[t] * other_mean[j, k]
                absolute[i, k] += u * abs(other_mean[j, k])
                facing_deviation[i, k] += u * other_deviation[j, k]


class _Factor:
    """Means and variances of one side, and the sums over its answers."""

    def __init__(self, view: View, mean: Array, variance: Array) -> None:
        self.view = view
        self.mean = mean
        self.variance = variance
        self.hinge = np.zeros(len(mean))
        self.gradient = np.zeros_like(mean)
        self.absolute = np.zeros_like(mean)
        self.facing_deviation = np.zeros_like(mean)

    @property
    def deviation(self) -> Array:
        """``s = sqrt(2 v / pi)``, the mean absolute deviation of each coordinate."""
        return _HALF_NORMAL * np.sqrt(self.variance)

    def walk(self, other: _Factor, pool: Threads) -> None:
        """Sum over this side's answers, with the other side as it stands."""
        view, deviation, other_deviation = self.view, self.deviation, other.deviation

        def task(begin: int, end: int) -> None:
            _walk(
                begin, end, view.start, view.index, view.sign, view.weight, self.mean, deviation,
                other.mean, other_deviation, self.hinge, self.gradient, self.absolute,
                self.facing_deviation,
            )  # fmt: skip

        pool.ranges(task, view.start)

    def spread(self) -> float:
        """Return the sum over answers of ``s_L s_R + |R0| s_L + |L0| s_R``, after ``walk``."""
        own = self.deviation * (self.facing_deviation + self.absolute)
        return float((own + np.abs(self.mean) * self.facing_deviation).sum())

    def step_means(self, size: Array, temperature: float, precision: Array) -> None:
        """Take one sub-gradient step of ``lambda AVB``, implicit in its separable terms."""
        moved = self.mean - size * temperature * self.gradient
        threshold = size * temperature * self.facing_deviation
        shrunk = np.sign(moved) * np.maximum(np.abs(moved) - threshold, 0.0)
        self.mean = shrunk / (1.0 + size * precision)

    def solve_variances(self, temperature: float, precision: Array) -> None:
        """Minimise the AVB over the variances.

        In ``x = sqrt(v)`` the terms are ``c x + precision x^2 / 2 - log x``, whose minimum is the
        positive root of ``precision x^2 + c x = 1``.
        """
        c = temperature * _HALF_NORMAL * (self.facing_deviation + self.absolute)
        self.variance = (2.0 / (c + np.sqrt(c * c + 4.0 * precision))) ** 2

    def sums(self) -> SideSums:
        """Return the sums that the hierarchy needs."""
        return SideSums(
            len(self.mean),
            self.mean.sum(axis=0),
            (self.mean**2 + self.variance).sum(axis=0),
            float(np.log(self.variance).sum()),
        )


def _squared_change(new: tuple[Array, Array], old: tuple[Array, Array]) -> tuple[float, float]:
    """Return ``|L R' - L_ R_'|_F^2`` and ``|L R'|_F^2`` from products of small matrices."""

    def inner(a: tuple[Array, Array], b: tuple[Array, Array]) -> float:
        return float(((a[0].T @ b[0]) * (a[1].T @ b[1])).sum())

    size = inner(new, new)
    return max(size - 2.0 * inner(new, old) + inner(old, old), 0.0), size


def minimise_avb(
    observations: Observations,
    hierarchy: Hierarchy,
    start: Start,
    *,
    temperature: float,
    schedule: Schedule,
    pool: Threads,
    callback: Callback | None = None,
) -> tuple[Fit, ApproximateBound]:
    """Run Algorithm 1 and return the iterate with the lowest AVB.

    The loop ends when the squared change of the scores falls below ``100 schedule.tol`` of their square.
    """
    n = observations.total_weight
    lam = temperature * n
    rows = _Factor(observations.by_row, start.rows.copy(), np.full_like(start.rows, START_VARIANCE))
    columns = _Factor(
        observations.by_column, start.columns.copy(), np.full_like(start.columns, START_VARIANCE)
    )

    def sums() -> tuple[SideSums, SideSums]:
        return rows.sums(), columns.sums()

    def evaluate(hyper: HyperPosterior) -> ApproximateBound:
        """Return the AVB; ``rows`` have walked over the present state."""
        return ApproximateBound(
            float(rows.hinge.sum()) / n, rows.spread() / n, hierarchy.kl(sums(), hyper), lam
        )

    # A row's step is inverse to its number of answers: its gradient is a sum over them.
    scales = [
        1.0 / (temperature * np.maximum(factor.view.counts, 1.0))[:, None] for factor in (rows, columns)
    ]
    hyper = hierarchy.update(sums(), None)
    rows.walk(columns, pool)
    best = evaluate(hyper)
    best_state = (rows.mean, rows.variance, columns.mean, columns.variance, hyper)
    path = [best.total]
    converged = False
    assert not isinstance(schedule.tol, str)  # it has a rule of its own
    limit = SQUARED_TOLERANCE * schedule.tol
    n_iter = 0
    for n_iter in range(1, schedule.max_iter + 1):
        before = (rows.mean, columns.mean)
        step = FIRST_STEP / (1.0 + n_iter / STEP_HALVING)
        precision = hyper.factors.inverse
        rows.step_means(step * scales[0], temperature, precision)
        columns.walk(rows, pool)
        columns.step_means(step * scales[1], temperature, precision)
        rows.walk(columns, pool)
        rows.solve_variances(temperature, precision)
        columns.walk(rows, pool)
        columns.solve_variances(temperature, precision)
        if n_iter > schedule.held_rounds:
            hyper = hierarchy.update(sums(), hyper)
        rows.walk(columns, pool)
        present = evaluate(hyper)
        path.append(present.total)
        if present.total < best.total:
            best = present
            best_state = (rows.mean, rows.variance, columns.mean, columns.variance, hyper)
        if callback is not None:
            callback(Progress(n_iter, schedule.max_iter, present.total))
        change, size = _squared_change((rows.mean, columns.mean), before)
        if n_iter > schedule.held_rounds and change <= limit * max(size, 1e-12):
            converged = True
            break
    posterior = Posterior(
        Gaussians(best_state[0], best_state[1], full=False),
        Gaussians(best_state[2], best_state[3], full=False),
        best_state[4],
        hierarchy,
    )
    return Fit(posterior, best.total, np.array(path), n_iter, converged), best
