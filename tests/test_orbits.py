"""The small pieces of the moves that no score notices, each against numpy's."""

import numpy as np

from onebit.engine.sampling.orbits import _drawn


def drawn(precision, linear, noise):
    place = linear.copy()
    return _drawn(precision.copy(), place, noise), place


def test_a_draw_has_the_mean_and_the_covariance_of_its_precision():
    rng = np.random.default_rng(0)
    roots, linear = rng.normal(size=(4, 6)), rng.normal(size=4)
    precision = roots @ roots.T
    there, mean = drawn(precision, linear, np.zeros(4))
    assert there
    np.testing.assert_allclose(mean, np.linalg.solve(precision, linear), rtol=1e-10)
    steps = np.array([drawn(precision, linear, unit)[1] - mean for unit in np.eye(4)])
    np.testing.assert_allclose(steps.T @ steps, np.linalg.inv(precision), rtol=1e-10)


def test_what_has_vanished_is_not_drawn():
    assert not drawn(np.diag([1.0, 0.0]), np.ones(2), np.ones(2))[0]
