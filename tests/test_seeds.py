"""Random generators from seeds."""

import numpy as np
import pytest

from onebit.engine.seeds import generator


@pytest.mark.parametrize(
    "make", [lambda: 3, lambda: np.random.RandomState(3), lambda: np.random.default_rng(3)]
)
def test_what_is_the_same_gives_the_same_numbers(make):
    assert (generator(make()).random(4) == generator(make()).random(4)).all()


def test_a_generator_gives_another_one_each_time_and_keeps_its_own():
    given = np.random.default_rng(3)
    first, second = generator(given), generator(given)
    assert first is not given
    assert (first.random(4) != second.random(4)).all()
