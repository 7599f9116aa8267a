"""The kernels of descent, used once so that they are compiled.

The pass that updates rows takes longer to compile than all that comes before it in a fit. So another
process compiles it, and needs little else to be imported: the arrays are made up here. The two share the
work: this one compiles what a pass asks of a loss, the other one what it ends with, and then the pass.
"""

from __future__ import annotations

import numpy as np

from onebit.data.kernels import on_disk
from onebit.engine.cpu.ahead import Rehearsal, wait_for
from onebit.engine.cpu.layout import layout_of
from onebit.engine.cpu.passes import fill_table, update_full
from onebit.engine.cpu.room import chunk_room, full_room
from onebit.engine.cpu.solve import solve_lanes
from onebit.engine.cpu.vectors import LANES
from onebit.model.losses import LOGISTIC_CODE, majorise

_RANK = 1
_FREE = _RANK + 1  # with an effect


def _answers() -> tuple[np.ndarray, ...]:
    """Return four answers of two rows, as those of ``Observations``: that they are fixed is a type."""
    answers = (
        np.array([0, 2, 4], np.int64),
        np.array([0, 1, 0, 1], np.int32),
        np.array([1, -1, 1, -1], np.int8),
        np.empty(0, np.float32),
    )
    for part in answers:
        part.flags.writeable = False
    return answers


def compile_majoriser() -> None:
    """Majorise the loss of these answers."""
    *_, sign, weight = _answers()
    numbers = [np.ones_like(part) for part in chunk_room(1)[:5]]
    majorise(LOGISTIC_CODE, 0, len(sign), sign, weight, *numbers)


def compile_pass() -> None:
    """Update two rows, which are answered alike, against two columns.

    What that ends with comes first, while the other process compiles what it begins with.
    """
    systems, sides = np.ones(LANES), np.zeros(LANES)
    solve_lanes(systems, sides, *(np.zeros(LANES) for _ in range(4)))
    table, vector = np.zeros((1, 16), np.float32), np.empty(3)
    fill_table(0, 1, np.zeros((1, 1)), np.ones((1, 1)), True, True, vector, table)
    places = layout_of(_RANK, True, True)
    width = places.mean_at + len(places.own_mean)
    table, other = np.zeros((2, width), np.float32), np.zeros((2, width), np.float32)
    mean, covariance = np.zeros((2, _FREE)), np.zeros((2, _FREE * (_FREE + 1) // 2))
    precision, linear = np.ones((1, _FREE)), np.zeros((1, _FREE))
    wait_for(majorise)
    update_full(
        0, 2, *_answers(), other, table, mean, covariance, np.zeros(2), np.zeros(2),
        precision, linear, 1.0, LOGISTIC_CODE, True, places, True, 1.0,
        full_room(_FREE, width, places.mean_at),
    )  # fmt: skip


DESCENT = Rehearsal(__name__, ("compile_pass",), update_full)


def begin_compiling(threads: int) -> None:
    """Share the compilation of the pass with another process, if it is still to be compiled."""
    if DESCENT.begin(threads):
        compile_majoriser()
        if not on_disk(majorise):  # then nothing is: the other process would wait in vain
            DESCENT.give_up()
