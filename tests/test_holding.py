"""What is held out depends on ids and a key: not on the order of answers, nor on where they lie."""

import numpy as np
import pytest

from onebit import HingeCompleter, LogisticCompleter, NuclearNormCompleter, Observations, simulate
from onebit.data import hashing
from onebit.data.holding import divided


def named(pairs, answers, held):
    """Return held-out answers as a set of ids and signs, with repeats counted."""
    seen = Observations.from_pairs(pairs, answers)
    found = divided(seen, held, 7).held
    rows, columns = seen.rows.values[found.rows], seen.columns.values[found.columns]
    return sorted(zip(rows.tolist(), columns.tolist(), found.sign.tolist(), strict=True))


@pytest.fixture(scope="module")
def world():
    return simulate.world("B1", rank=1, shape=(30, 20), density=0.8, repeats=True, seed=0)


def test_the_order_of_the_answers_does_not_change_what_is_held_out(world, rng):
    order = rng.permutation(len(world.answers))
    first = named(world.pairs, world.answers, 50)
    assert first == named(world.pairs[order], world.answers[order], 50)
    assert len(first) == 50


def test_a_part_of_the_table_holds_out_its_share_of_the_same_answers(world):
    """Answers keep their hashes wherever they lie, as long as entries are not torn apart."""
    seen = Observations.from_pairs(world.pairs, world.answers)
    whole = {
        (row, column): sorted(values) for (row, column), values in _by_entry(seen, seen.hashes(3)).items()
    }
    for half in (0, 1):
        mine = world.pairs[:, 0] % 2 == half
        part = Observations.from_pairs(world.pairs[mine], world.answers[mine])
        for entry, values in _by_entry(part, part.hashes(3)).items():
            assert sorted(values) == whole[entry]


def _by_entry(seen, hashes):
    found = {}
    view = seen.by_row
    for row, column, value in zip(view.owners(), view.index, hashes.tolist(), strict=True):
        found.setdefault((seen.rows.values[row], seen.columns.values[column]), []).append(value)
    return found


def test_hashes_are_spread_evenly_and_another_key_is_another_choice(rng):
    pairs = np.argwhere(np.ones((200, 150)))
    seen = Observations.from_pairs(pairs, rng.choice([0, 1], len(pairs)))
    one, two = seen.hashes(1), seen.hashes(2)
    assert len(np.unique(one)) == len(one)
    shares = np.histogram(one / 2.0**64, bins=20, range=(0, 1))[0] / len(one)
    assert np.abs(shares - 0.05).max() < 5 * np.sqrt(0.05 * 0.95 / len(one))
    low, other = one < np.median(one), two < np.median(two)
    assert abs((low == other).mean() - 0.5) < 0.02
    # Neither do rows or columns decide.
    held = low.reshape(200, 150)
    assert np.abs(held.mean(axis=1) - 0.5).max() < 0.25


def test_fingerprints_of_parts_add_up_to_that_of_the_whole(world):
    whole = Observations.from_pairs(world.pairs, world.answers)
    odd = world.pairs[:, 0] % 2 == 1
    parts = [Observations.from_pairs(world.pairs[m], world.answers[m]) for m in (odd, ~odd)]
    assert hashing.joined(part.fingerprint() for part in parts) == whole.fingerprint()
    flipped = world.answers.copy()
    flipped[0] = -flipped[0]
    assert Observations.from_pairs(world.pairs, flipped).fingerprint() != whole.fingerprint()


def test_a_fit_holds_out_the_same_answers_whatever_their_order_and_another_seed_others(world, rng):
    order = rng.permutation(len(world.answers))

    def held(pairs, answers, seed):
        model = LogisticCompleter(1, random_state=seed, max_iter=3).fit(pairs, answers, certify=0.2)
        return sorted(zip(model.held_out_.rows.tolist(), model.held_out_.columns.tolist(), strict=True))

    first = held(world.pairs, world.answers, 0)
    assert first == held(world.pairs[order], world.answers[order], 0)
    assert first != held(world.pairs, world.answers, 1)


def test_the_mask_can_be_made_again_from_two_numbers(world):
    model = LogisticCompleter(1, random_state=0, max_iter=3).fit(world.pairs, world.answers, certify=0.2)
    answers = model.kept_answers()
    assert answers.held.sum() == answers.n_held == len(model.held_out_.sign)
    rows, columns, sign, _ = answers.everything.entries(answers.held)
    mine = sorted(zip(rows.tolist(), columns.tolist(), sign.tolist(), strict=True))
    counted = model.held_out_
    theirs = zip(counted.rows.tolist(), counted.columns.tolist(), counted.sign.tolist(), strict=True)
    assert mine == sorted(theirs)
    assert answers.fitted.n == answers.everything.n - answers.n_held


def test_a_warm_start_begins_where_a_model_ended_and_takes_new_ids():
    world = simulate.world("B1", rank=2, shape=(60, 40), density=0.5, seed=1)
    old = world.pairs[:, 0] < 50
    first = LogisticCompleter(3, random_state=0).fit(world.pairs[old], world.answers[old])
    cold = LogisticCompleter(3, random_state=0, max_iter=60).fit(world.pairs, world.answers)
    warm = LogisticCompleter(3, random_state=0, max_iter=60).fit(world.pairs, world.answers, start=first)
    assert warm.objective_ == pytest.approx(cold.objective_, abs=5e-3)
    one = LogisticCompleter(3, random_state=0, max_iter=1)
    begun = one.fit(world.pairs, world.answers, start=cold).objective_path_[0]
    assert begun == pytest.approx(cold.objective_, abs=2e-3)
    with pytest.raises(ValueError, match="from a start, not both"):
        LogisticCompleter(3).fit(world.pairs, world.answers, certify=0.1, start=first)
    for other in (
        LogisticCompleter(2),
        LogisticCompleter(3, effects=False),
        HingeCompleter(3, effects="rows"),
    ):
        with pytest.raises(
            ValueError, match="start has rank 3 and effects of rows and columns, this fit"
        ):
            other.fit(world.pairs, world.answers, start=first)
    with pytest.raises(ValueError, match="NuclearNormCompleter has no posterior to begin from"):
        one.fit(world.pairs, world.answers, start=NuclearNormCompleter(2).fit(world.pairs, world.answers))


def test_a_calibrated_hinge_fit_begins_where_it_is_told():
    world = simulate.world("B1", rank=2, shape=(60, 40), density=0.5, seed=1)
    cold = HingeCompleter(3, random_state=0, max_iter=60).fit(world.pairs, world.answers)
    warm = HingeCompleter(3, random_state=0, max_iter=60).fit(world.pairs, world.answers, start=cold)
    assert warm.objective_path_[0] == pytest.approx(cold.objective_, abs=2e-3)
    assert cold.objective_path_[0] > cold.objective_ + 4e-3
    assert warm.calibration_ == cold.calibration_
