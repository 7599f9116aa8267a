"""Shared pieces of the tests."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from onebit import simulate
from onebit.data.datasets import load_movielens_100k

# The first example of a test pays for compilation; results repeat from run to run.
settings.register_profile("onebit", deadline=None, derandomize=True)
settings.load_profile("onebit")

DATA = Path(os.environ.get("ONEBIT_DATA", Path(__file__).parents[1] / "data"))


@pytest.fixture(scope="session")
def small_world():
    """A noisy world that every completer handles in a blink."""
    return simulate.world("B2", rank=2, shape=(50, 40), density=0.75, seed=3)


@pytest.fixture(scope="session")
def forks():
    """Fork the workers of clusters from a process that has imported what they need, seconds each."""
    if os.name == "posix":
        needed = ["distributed", "onebit.completers.clustered", "onebit.engine.cluster.fitting"]
        multiprocessing.set_forkserver_preload(needed)
        forkserver.ensure_running()  # before Dask names its own modules


@pytest.fixture
def rng():
    return np.random.default_rng(12345)


@pytest.fixture(scope="session")
def movielens_folder():
    """The folder of MovieLens 100k."""
    folder = DATA / "ml-100k"
    if not (folder / "u.data").is_file():
        pytest.skip(
            f"MovieLens 100k is not in {folder}; set ONEBIT_DATA to the folder that holds ml-100k"
        )
    return folder


@pytest.fixture(scope="session")
def movielens(movielens_folder):
    """The pairs and answers of MovieLens 100k; like = rating > 3.5."""
    data = load_movielens_100k(movielens_folder)
    return data.pairs, data.answers
