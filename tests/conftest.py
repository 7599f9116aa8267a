"""Shared pieces of the tests."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from onebit import simulate

# The first example of a test pays for compilation; results repeat from run to run.
settings.register_profile("onebit", deadline=None, derandomize=True)
settings.load_profile("onebit")

DATA = Path(os.environ.get("ONEBIT_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def small_world():
    """A noisy world that every completer handles in a blink."""
    return simulate.world("B2", rank=2, shape=(50, 40), density=0.75, seed=3)


@pytest.fixture
def rng():
    return np.random.default_rng(12345)


@pytest.fixture(scope="session")
def movielens():
    """The pairs and answers of MovieLens 100k; like = rating > 3.5."""
    path = DATA / "ml-100k" / "u.data"
    if not path.is_file():
        pytest.skip(f"MovieLens 100k is not at {path}; set ONEBIT_DATA to the folder that holds ml-100k")
    table = np.loadtxt(path, dtype=int)
    return table[:, :2], np.where(table[:, 2] > 3.5, 1, -1)
