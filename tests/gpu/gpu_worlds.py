"""Answers for the tests on a GPU."""

import numpy as np
import pytest

from onebit import Observations
from onebit.engine.gpu import device as gpus

needs_gpu = pytest.mark.skipif(gpus.interpreted(), reason="needs a GPU: too long for the interpreter")


def random_answers(shape, density, seed=0, weighted=False):
    """Random answers, some entries answered twice."""
    rng = np.random.default_rng(seed)
    pairs = np.argwhere(rng.random(shape) < density)
    pairs = np.concatenate([pairs, pairs[: len(pairs) // 5]])
    rng.shuffle(pairs)
    weight = rng.random(len(pairs)) + 0.5 if weighted else None
    return Observations.from_pairs(pairs, rng.choice([-1, 1], len(pairs)), weight)
