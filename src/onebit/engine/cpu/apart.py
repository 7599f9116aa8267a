"""A pass in two steps: sum up what a row's answers say, then move the row.

The kernels of ``passes`` do both at once, which is what one machine wants. Where the answers of a row lie
in several places their natural parameters are summed first, and where earlier ones are stored they are
added to. Of independent coordinates the natural parameters are those of full covariances: the best mean
follows from the whole matrix, which the fused pass approaches by conjugate gradients in place of it, and
the best variances from its diagonal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel
from onebit.data.sorting import View
from onebit.engine.cpu.layout import Layout, lines_of_zeros, whole_blocks
from onebit.engine.cpu.passes import FAST, move, walk
from onebit.engine.cpu.room import chunk_room, row_room
from onebit.engine.cpu.solve import solve_lanes
from onebit.engine.cpu.threads import Threads
from onebit.engine.cpu.vectors import LANES
from onebit.model.gaussians import lower_triangle

Array = NDArray[np.float64]

# Small systems that are solved at once: some ten megabytes.
ROWS_AT_ONCE = 8192


class Natural(NamedTuple):
    """What the answers of every row say of it, without the prior and at temperature one.

    ``precision`` holds packed lower triangles, ``linear`` the linear terms, ``loss`` the bound on the
    loss at the state that the majorisers touch. All three add over parts of the answers.
    """

    precision: Array
    linear: Array
    loss: Array

    def __add__(self, other: Natural) -> Natural:  # type: ignore[override]
        return Natural(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


@kernel(nogil=True, error_model="numpy", fastmath=FAST)
def accumulate_full(
    begin, end, start, index, sign, weight, other, table, code, layout, precisions, linears, loss, room
):  # fmt: skip
    """Write the natural parameters of rows ``begin:end`` at their present state, and their loss."""
    n_free = linears.shape[1]
    of_chunk, of_row, none = room
    own, own_mean, precision, linear = of_row
    for i in range(begin, end):
        for t in range(layout.own.shape[0]):
            own[t] = table[i, layout.own[t]] * layout.times[t]
        for t in range(layout.own_mean.shape[0]):
            if layout.own_mean[t] >= 0:
                own_mean[t] = table[i, layout.own_mean[t]]
        loss[i] = walk(
            start[i], start[i + 1], index, sign, weight, other, own, own_mean, layout.mean_at, code,
            True, none, precision, linear, of_chunk,
        )  # fmt: skip
        for t in range(precisions.shape[1]):
            precisions[i, t] = precision[layout.precision[t]]
        for a in range(n_free):
            # Its own fixed 1 faces the other side's effect: a known offset.
            linears[i, a] = linear[layout.linear[a]] - precision[layout.offset[a]]


def accumulated(
    view: View,
    other: NDArray[np.float32],
    table: NDArray[np.float32],
    code: int,
    layout: Layout,
    pool: Threads,
    precision: Any = np.float64,
) -> Natural:
    """Return what the answers of a view say of the rows whose present state ``table`` holds.

    Sums are taken in double precision, and kept in ``precision``.
    """
    size, n_free = view.size, len(layout.linear)
    found = Natural(
        np.empty((size, len(layout.precision)), precision),
        np.empty((size, n_free), precision),
        np.empty(size),
    )

    def task(begin: int, end: int) -> None:
        width, none = table.shape[1], np.empty(0, np.float32)
        room = chunk_room(width), row_room(width, width - layout.mean_at), none
        accumulate_full(
            begin, end, view.start, view.index, view.sign, view.weight, other, table, code, layout,
            *found, room,
        )  # fmt: skip

    pool.ranges(task, view.start)
    return found


def full_table(table: NDArray[np.float32], slots: int) -> NDArray[np.float32]:
    """Return the table of full covariances that says the same as one of independent coordinates."""
    part = table.shape[1] // 3
    variance, mean = table[:, part : part + slots], table[:, 2 * part : 2 * part + slots]
    first, second = lower_triangle(slots)
    made = lines_of_zeros(len(table), whole_blocks(len(first)))
    made[:, : len(first)] = mean[:, first] * mean[:, second]
    made[:, np.flatnonzero(first == second)] += variance
    return made


def solve_diagonal(
    natural: Natural,
    prior_precision: Array,
    prior_linear: Array,
    temperature: float,
    relaxation: float,
    mean: Array,
    covariance: Array,
    log_determinant: Array,
) -> None:
    """Move rows with independent coordinates to what their natural parameters and the prior say."""
    n_free = mean.shape[1]
    lower = lower_triangle(n_free)
    for begin in range(0, len(mean), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        matrix = np.zeros((len(mean[rows]), n_free, n_free))
        matrix[:, lower[0], lower[1]] = temperature * natural.precision[rows]
        matrix[:, lower[1], lower[0]] = matrix[:, lower[0], lower[1]]
        one = prior_precision if len(prior_precision) == 1 else prior_precision[rows]
        matrix[:, np.arange(n_free), np.arange(n_free)] += one
        pull = prior_linear if len(prior_linear) == 1 else prior_linear[rows]
        best = np.linalg.solve(matrix, (temperature * natural.linear[rows] + pull)[:, :, None])[:, :, 0]
        mean[rows] += relaxation * (best - mean[rows])
        diagonal = np.einsum("maa->ma", matrix)
        covariance[rows] = 1.0 / diagonal
        log_determinant[rows] = -np.log(diagonal).sum(axis=1)


@kernel(nogil=True, error_model="numpy", fastmath=FAST)
def solve_full(
    begin, end, precisions, linears, prior_precision, prior_linear, temperature, relaxation, mean,
    covariance, log_determinant, table, has_effect, room,
):  # fmt: skip
    """Move rows ``begin:end`` to the minimum of what their natural parameters and the prior say."""
    n_free = mean.shape[1]
    systems, root, inverse, sides, product, determinants, vector = room
    for group in range(begin, end, LANES):
        count = min(LANES, end - group)
        for lane in range(LANES):
            i = group + min(lane, count - 1)  # lanes without a row solve the last one again
            line = i if prior_precision.shape[0] > 1 else 0
            linear_line = i if prior_linear.shape[0] > 1 else 0
            t = 0
            for a in range(n_free):
                at = a * n_free * LANES + lane
                for b in range(a + 1):
                    systems[at + b * LANES] = temperature * precisions[i, t]
                    t += 1
                systems[at + a * LANES] += prior_precision[line, a]
                sides[a * LANES + lane] = temperature * linears[i, a] + prior_linear[linear_line, a]
        solve_lanes(systems, sides, root, inverse, product, determinants)
        move(
            group, count, sides, systems, determinants, relaxation, mean, covariance, log_determinant,
            has_effect, vector, table,
        )  # fmt: skip
