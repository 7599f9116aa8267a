"""Tasks of a cluster's workers on a GPU: what they are on a CPU, to rounding."""

import numpy as np
import pandas as pd
import pytest
from gpu_worlds import random_answers

from onebit.engine.cluster import sides
from onebit.engine.cluster.reading import Block
from onebit.model.gaussians import independent_gaussians
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import HINGE, LOGISTIC
from onebit.model.priors import InverseGamma


def setting_of(hierarchy, side, device):
    return sides.Setting(hierarchy, side, device)


def world(rank, effects, weighted):
    seen = random_answers((9, 7), 0.6, 3, weighted)
    prior = InverseGamma(1.0, 1.5)
    hierarchy = Hierarchy(seen.shape, rank, *effects, prior, InverseGamma(1.0, 1.0), factor_means=True)
    rng = np.random.default_rng(0)
    states = []
    for side in (0, 1):
        mean = rng.standard_normal((seen.shape[side], hierarchy.n_free(side))) / 2
        gaussians = independent_gaussians(mean, rng.random(mean.shape) + 0.1, True)
        on_cpu = setting_of(hierarchy, side, "cpu")
        states.append(sides.taken_up(on_cpu, gaussians.mean, gaussians.covariance, None, None))
    return Block(pd.RangeIndex(seen.shape[0]), seen), hierarchy, states


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=lambda loss: loss.name)
@pytest.mark.parametrize(
    ("rank", "effects", "weighted"), [(3, (True, True), False), (2, (False, True), True)]
)
def test_what_a_worker_does_on_a_gpu_is_what_it_does_on_a_cpu(device, loss, rank, effects, weighted):
    block, hierarchy, states = world(rank, effects, weighted)
    hyper = hierarchy.update(tuple(state.sums.side for state in states), None)
    found = {}
    for where in ("cpu", "cuda", "auto"):
        rows, columns = (setting_of(hierarchy, side, where) for side in (0, 1))
        table = sides.table_of(states[1], columns)
        found[where] = (
            sides.moved(block, states[0], None, rows, table, hyper, 1.3, loss, 1.6),
            sides.loss_of(block, states[0], rows, table, loss),
            sides.said(block, states[0], columns, table, loss),
        )
    cpu = found.pop("cpu")
    for gpu in found.values():
        for name in ("mean", "covariance", "log_determinant"):
            np.testing.assert_allclose(getattr(gpu[0], name), getattr(cpu[0], name), atol=1e-4)
        assert gpu[0].sums.loss == pytest.approx(cpu[0].sums.loss, rel=1e-6)
        assert gpu[1] == pytest.approx(cpu[1], rel=1e-6)
        for mine, theirs in zip(gpu[2], cpu[2], strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_the_same_task_gives_the_same_bits(device):
    block, hierarchy, states = world(3, (True, True), False)
    columns = setting_of(hierarchy, 1, "cuda")
    table = sides.table_of(states[1], columns)
    first, second = (sides.said(block, states[0], columns, table, LOGISTIC) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
