"""Small tables in Parquet files and processes of a cluster, for the tests of fits on one."""

import asyncio

import numpy as np
import pandas as pd

N, ROWS, COLUMNS = 6000, 150, 40


def answers(n=N, rows=ROWS, columns=COLUMNS, seed=0):
    """Return a made table: rows are numbers, columns are words."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(rows, 2)), rng.normal(size=(columns, 2))
    i, j = rng.integers(0, rows, n), rng.integers(0, columns, n)
    chance = 1 / (1 + np.exp(-(left[i] * right[j]).sum(axis=1) - 0.5))
    names = np.array([f"item {k}" for k in range(columns)])
    return pd.DataFrame({"user": 3 * i, "item": names[j], "liked": rng.random(n) < chance})


def written(frame, folder, files=3, order=1, group=None):
    """Write a table to files, its lines shared out in turns."""
    folder.mkdir(exist_ok=True)
    for k in range(files):
        part = frame.iloc[k::files][::order]
        part.to_parquet(folder / f"part-{k}.parquet", row_group_size=group or len(part))
    return folder


def run_scheduler(port):
    """Be a scheduler, until somebody ends it."""
    from distributed import Scheduler

    asyncio.run(_until_ended(Scheduler, host="127.0.0.1", port=port, dashboard=False))


def run_worker(address):
    """Be a worker without a nanny, until somebody ends it."""
    from distributed import Worker

    asyncio.run(_until_ended(Worker, address, nthreads=1, dashboard=False))


async def _until_ended(kind, *arguments, **settings):
    async with kind(*arguments, **settings) as made:
        await made.finished()
