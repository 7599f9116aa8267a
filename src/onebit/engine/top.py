"""The highest scores of every row, without the matrix.

Scores are formed a block of columns at a time, small enough for the nearest cache, as sums of vectors;
only those above the row's present threshold are looked at twice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import fixed, kernel
from onebit.data.sorting import View
from onebit.engine.cpu.threads import threads
from onebit.engine.gpu import device as gpus
from onebit.model.posterior import Posterior

Codes = NDArray[np.int32]

_BLOCK = 2048


@kernel(nogil=True, error_model="numpy", fastmath={"contract"})
def _top(begin, end, rows, row_mean, factors, offset, seen_start, seen_index, best, score):
    """Write the best columns of ``rows[begin:end]`` and their scores, highest first.

    ``factors`` has one line a factor, ``offset`` what is added to each column's scores. The columns of
    ``seen_index`` (sorted within a row) are left out.
    """
    wanted = best.shape[1]
    rank, columns = factors.shape
    scores = np.empty(_BLOCK, np.float32)
    for place in range(begin, end):
        i = rows[place]
        found = 0
        seen, last = 0, 0
        if i < seen_start.shape[0] - 1:
            seen, last = seen_start[i], seen_start[i + 1]
        for block in range(0, columns, _BLOCK):
            size = min(_BLOCK, columns - block)
            for j in range(size):
                scores[j] = offset[block + j]
            for a in range(rank):
                weight = np.float32(row_mean[i, a])
                for j in range(size):
                    scores[j] += weight * factors[a, block + j]
            while seen < last and seen_index[seen] < block + size:
                scores[seen_index[seen] - block] = -np.inf
                seen += 1
            threshold = score[place, wanted - 1] if found == wanted else -np.inf
            for j in range(size):
                value = scores[j]
                if not value > threshold:
                    continue
                at = found if found < wanted else wanted - 1
                found = min(found + 1, wanted)
                while at > 0 and score[place, at - 1] < value:
                    score[place, at], best[place, at] = score[place, at - 1], best[place, at - 1]
                    at -= 1
                score[place, at], best[place, at] = value, block + j
                if found == wanted:
                    threshold = score[place, wanted - 1]


def top_columns(
    posterior: Posterior,
    rows: Codes,
    count: int,
    seen: View | None = None,
    n_jobs: int | None = None,
    device: str = "cpu",
) -> Codes:
    """Return the columns with the highest mean scores of some rows, highest first.

    Parameters
    ----------
    posterior : Posterior
        Of a fit.
    rows : array of codes
        Of known rows.
    count : int
        How many columns; -1 fills up where there are fewer.
    seen : View, optional
        The answers by row, whose entries are left out.
    n_jobs : int, optional
        Threads.
    device : str
        The GPU that many scores go to; among columns whose scores differ by rounding alone it may choose
        another order than the CPU.
    """
    if count < 1:
        raise ValueError(f"count must be at least one, got {count}")
    if len(rows) and not (rows.min() >= 0 and rows.max() < posterior.shape[0]):
        raise ValueError(
            f"row codes must lie in 0..{posterior.shape[0] - 1}, got {rows.min()} to {rows.max()}"
        )
    rows = np.ascontiguousarray(rows, dtype=np.int32)
    found = gpus.for_prediction(device, len(rows) * posterior.shape[1])
    if found is not None:
        from onebit.engine.gpu.predict import on_device

        try:
            with gpus.at_work(found):
                return on_device(posterior, found).top_columns(rows, count, seen)
        except gpus.TooLittleMemory:
            if device != "auto":
                raise
    hierarchy = posterior.hierarchy
    mean = posterior.columns.mean
    factors = np.ascontiguousarray(mean[:, : hierarchy.rank].T, dtype=np.float32)
    effects = mean[:, hierarchy.rank] if hierarchy.has_effect(1) else np.zeros(len(mean))
    offset = effects.astype(np.float32)
    best = np.full((len(rows), count), -1, dtype=np.int32)
    score = np.full((len(rows), count), -np.inf, dtype=np.float32)
    start = np.zeros(1, dtype=np.int64) if seen is None else seen.start
    index = np.zeros(0, dtype=np.int32) if seen is None else seen.index

    arrays = [fixed(array) for array in (rows, posterior.rows.mean, factors, offset, start, index)]

    def task(begin: int, end: int) -> None:
        _top(begin, end, *arrays, best, score)

    with threads(n_jobs) as pool:
        pool.even(task, len(rows), len(mean))
    return best
