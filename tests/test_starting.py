"""Where chains start, against the roots of dense covariances."""

import numpy as np
import pytest

from onebit.engine.cpu.threads import threads
from onebit.engine.sampling.lines import ALONE
from onebit.engine.sampling.starting import drawn_values
from onebit.model.gaussians import Gaussians


def test_chains_start_at_draws_of_their_gaussians():
    rng = np.random.default_rng(0)
    spread = rng.standard_normal((50, 3, 4))
    dense = np.einsum("mab,mcb->mac", spread, spread)
    mean, lower = rng.standard_normal((50, 3)), np.tril_indices(3)
    gaussians = Gaussians(mean, dense[:, lower[0], lower[1]], True)
    noise = np.random.default_rng(1).standard_normal((50, 3))
    expected = mean + np.einsum("mab,mb->ma", np.linalg.cholesky(dense), noise)
    for count in (1, 3):
        with threads(count) as pool:
            drawn = drawn_values(gaussians, np.random.default_rng(1), pool)
        np.testing.assert_allclose(drawn, expected, atol=1e-12)
    apart = Gaussians(mean, dense[:, range(3), range(3)], False)
    drawn = drawn_values(apart, np.random.default_rng(1), ALONE)
    np.testing.assert_allclose(drawn, mean + np.sqrt(apart.covariance) * noise)


def test_no_chain_starts_at_a_covariance_without_a_root():
    wrong = Gaussians(np.zeros((2, 2)), np.array([[1.0, 0.0, 1.0], [1.0, 2.0, 1.0]]), True)
    with pytest.raises(ValueError, match="not positive definite"):
        drawn_values(wrong, np.random.default_rng(0), ALONE)
