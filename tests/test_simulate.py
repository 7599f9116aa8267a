"""The simulated worlds are what the paper says (corrected)."""

import numpy as np
import pytest

from onebit import simulate


@pytest.mark.parametrize("name", simulate.WORLDS)
@pytest.mark.parametrize("rank", [3, 5])
def test_the_truth_has_its_rank_and_type(name, rank):
    world = simulate.world(name, rank=rank, seed=0)
    assert np.linalg.matrix_rank(world.truth) == rank
    assert world.truth.shape == (200, 200)
    assert len(world.answers) == 8000
    assert len(np.unique(world.pairs, axis=0)) == 8000
    if name[0] == "A":
        assert set(np.unique(world.truth)) == {-1.0, 1.0}


@pytest.mark.parametrize(
    ("name", "wrong"), [("A1", 0.0), ("A2", 0.1), ("A3", 0.2689), ("B1", 0.0), ("B2", 0.1)]
)
def test_the_share_of_wrong_answers_is_that_of_the_noise(name, wrong):
    worlds = [simulate.world(name, seed=seed) for seed in range(5)]
    found = np.mean([np.mean(w.answers != np.sign(w.truth[tuple(w.pairs.T)])) for w in worlds])
    assert found == pytest.approx(wrong, abs=0.01)


def test_repeats_and_skewed_sampling():
    world = simulate.world("B1", shape=(60, 50), density=1.5, repeats=True, skew=1.0, seed=0)
    assert len(world.answers) == 4500
    counts = np.sort(np.bincount(world.pairs[:, 0], minlength=60))
    assert counts[-1] > 10 * counts[len(counts) // 2]
    assert len(np.unique(world.pairs, axis=0)) < 4500


def test_a_seed_is_a_world():
    one, same, other = (simulate.world("B2", seed=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(one.answers, same.answers)
    assert not np.array_equal(one.pairs, other.pairs)


def test_ties_are_errors():
    world = simulate.world("A1", shape=(20, 20), seed=0)
    assert world.error(np.zeros((20, 20))) == 1.0
    assert world.error(world.truth) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "C1"}, "unknown world 'C1'.*A1, A2"),
        ({"rank": 0}, "rank 0 does not fit"),
        ({"rank": 9, "shape": (5, 8)}, "rank 9 does not fit"),
        ({"density": 0.0}, "density 0.0"),
        ({"density": 1.5}, "density 1.5"),
        ({"flip": 1.5}, "flip is a share"),
        ({"skew": -1.0}, "skew must not be negative"),
    ],
)
def test_impossible_worlds_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        simulate.world(**({"name": "A2"} | arguments))


def test_the_chance_of_error_agrees_with_fresh_answers():
    for name, skew in (("A2", 0.0), ("B3", 1.0), ("B1", 0.5)):
        world = simulate.world(
            name, rank=2, shape=(20, 15), density=400.0, seed=1, repeats=True, skew=skew
        )
        scores = np.random.default_rng(0).choice([-1.0, 1.0], size=world.truth.shape)
        observed = np.mean(scores[tuple(world.pairs.T)] * world.answers <= 0)
        expected = (world.sampling * world.chance_of_error(scores)).sum()
        assert abs(observed - expected) < 5 * 0.5 / np.sqrt(len(world.answers))
        assert world.sampling.sum() == pytest.approx(1.0)
        assert (world.chance_of_error(np.zeros_like(scores)) == 1).all()
