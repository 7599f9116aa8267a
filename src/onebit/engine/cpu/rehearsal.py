"""The kernels of descent, used once so that they are compiled.

The pass that updates rows takes longer to compile than all that comes before it in a fit. So another
process compiles it, and needs little else to be imported: the arrays are made up here.
"""

from __future__ import annotations

import numpy as np

from onebit.engine.cpu.ahead import Rehearsal
from onebit.engine.cpu.layout import layout_of
from onebit.engine.cpu.passes import fill_table, update_full
from onebit.engine.cpu.solve import solve_lanes
from onebit.engine.cpu.vectors import LANES
from onebit.model.losses import LOGISTIC_CODE

_RANK = 1
_FREE = _RANK + 1  # with an effect


def compile_pass() -> None:
    """Update two rows, which are answered alike, against two columns."""
    places = layout_of(_RANK, True, True)
    width = places.mean_at + len(places.own_mean)
    table, other = np.zeros((2, width), np.float32), np.zeros((2, width), np.float32)
    mean, covariance = np.zeros((2, _FREE)), np.zeros((2, _FREE * (_FREE + 1) // 2))
    answers = (
        np.array([0, 2, 4], np.int64),
        np.array([0, 1, 0, 1], np.int32),
        np.array([1, -1, 1, -1], np.int8),
        np.empty(0, np.float32),
    )
    for part in answers:
        part.flags.writeable = False  # as those of ``Observations``, which is part of the type
    precision, linear = np.ones((1, _FREE)), np.zeros((1, _FREE))
    update_full(
        0, 2, *answers, other, table, mean, covariance, np.zeros(2), np.zeros(2),
        precision, linear, 1.0, LOGISTIC_CODE, True, places, True, 1.0,
    )  # fmt: skip


def compile_ends() -> None:
    """Solve systems and fill a table: what the pass does last, and the other process finds compiled."""
    systems, sides = np.ones(LANES), np.zeros(LANES)
    solve_lanes(systems, sides, np.zeros(LANES), np.zeros(LANES), np.empty(LANES))
    fill_table(0, 1, np.zeros((1, 1)), np.ones((1, 1)), True, True, np.zeros((1, 16), np.float32))


DESCENT = Rehearsal(__name__, ("compile_pass",), update_full)
