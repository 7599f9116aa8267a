"""Abilities of two tests on one scale, by the items that both have."""

import copy

import numpy as np
import pandas as pd
import pytest

from onebit import LogisticCompleter
from onebit.completers import linking
from onebit.model.irt import Scale


def drawn(rows, columns, draws, seed, common=False, unsure=1.0):
    rng = np.random.default_rng(seed)
    spread = 1 + 0.05 * unsure * rng.standard_normal((columns, draws))
    slope = np.exp(0.3 * rng.standard_normal((columns, 1))) * spread
    if common:
        slope = np.repeat(slope[:1], columns, axis=0)
    intercept = rng.standard_normal((columns, 1)) + 0.1 * unsure * rng.standard_normal((columns, draws))
    return Scale(rng.standard_normal((rows, draws)), slope, intercept)


@pytest.mark.parametrize(("common", "turn"), [(False, 1.0), (False, -1.0), (True, 1.0)])
def test_a_scale_in_other_units_is_linked_back(common, turn):
    """With items that are known exactly ``A`` and ``B`` are the units', also if keyed both ways."""
    other = drawn(30, 8, 50, 0, common, unsure=0.0)
    if not common:
        other.slope[:3] *= -1.0
    size, shift = turn * 1.7, -0.6
    here = Scale(
        (other.ability - shift) / size, other.slope * size, other.intercept + other.slope * shift
    )
    found, moved = here.linked(other, np.arange(8), np.arange(8))
    np.testing.assert_allclose(found.ability, other.ability, atol=1e-9)
    np.testing.assert_allclose(found.slope, other.slope, atol=1e-9)
    np.testing.assert_allclose(found.intercept, other.intercept, atol=1e-9)
    np.testing.assert_allclose(moved, 0.0, atol=0.01)


def test_linking_changes_no_probability_and_names_what_moved():
    other, here = drawn(30, 8, 400, 0), drawn(40, 6, 300, 1)
    own, others = np.array([0, 2, 3, 5]), np.array([7, 1, 0, 4])
    here.intercept[own[2]] += 9.0
    found, moved = here.linked(other, own, others)
    for item in range(6):
        np.testing.assert_allclose(
            found.slope[item] * found.ability + found.intercept[item],
            here.slope[item] * here.ability + here.intercept[item],
        )
    assert np.argmax(np.abs(moved)) == 2
    assert moved[2] > 3.0


def test_what_either_test_does_not_know_of_the_items_is_in_the_errors():
    other, here = drawn(30, 8, 400, 0), drawn(40, 8, 400, 1)
    every = np.arange(8)
    errors = [here.linked(other, every, every)[0].ability.std(axis=1)]
    for unsure in (other, here):
        rng = np.random.default_rng(5)
        more = Scale(
            unsure.ability, unsure.slope, unsure.intercept + rng.standard_normal(unsure.intercept.shape)
        )
        pair = (more, other) if unsure is here else (here, more)
        errors.append(pair[0].linked(pair[1], every, every)[0].ability.std(axis=1))
    assert (errors[1].mean() > 1.02 * errors[0].mean()) & (errors[2].mean() > 1.02 * errors[0].mean())


def test_items_that_are_known_better_count_for_more():
    other = drawn(30, 2, 400, 0)
    here = Scale(other.ability, other.slope, other.intercept.copy())
    rng = np.random.default_rng(3)
    here.intercept[0] += 5.0 + 5.0 * rng.standard_normal(400)
    found = here.linked(other, np.arange(2), np.arange(2))[0]
    assert abs((found.ability - other.ability).mean()) < 0.1


def test_scales_that_cannot_be_linked_are_refused():
    other = drawn(30, 4, 50, 0)
    every = np.arange(4)
    with pytest.raises(ValueError, match="Rasch model and a two-parameter one"):
        drawn(30, 4, 50, 1, common=True).linked(other, every, every)
    flat = Scale(other.ability, np.random.default_rng(0).standard_normal((4, 50)), other.intercept)
    with pytest.raises(ValueError, match="do not tell abilities apart"):
        other.linked(flat, every, every)
    with pytest.raises(ValueError, match="do not tell abilities apart"):
        flat.linked(other, every, every)
    few = Scale(other.ability[:, :5], other.slope[:, :5], other.intercept[:, :5])
    for pair in ((few, other), (other, few)):
        with pytest.raises(ValueError, match="at least 10 draws of each model"):
            pair[0].linked(pair[1], every, every)


def test_what_is_sure_of_two_runs_with_one_seed_is_not_taken_for_known():
    """Draws that go up and down together, of models that know nothing of each other."""
    other, here = drawn(30, 8, 400, 0), drawn(40, 8, 400, 1)
    every, noise = np.arange(8), np.random.default_rng(2).standard_normal(400)
    alike, apart = (
        Scale(here.ability, here.slope, here.intercept + 0.5 * wave)
        for wave in (noise, np.random.default_rng(3).standard_normal(400))
    )
    common = Scale(other.ability, other.slope, other.intercept + 0.5 * noise)
    errors = [each.linked(common, every, every)[0].ability.mean(axis=0).std() for each in (alike, apart)]
    assert errors[0] == pytest.approx(errors[1], rel=0.15)


def rasch(table):
    settings = {"inference": "sampling", "n_samples": 80, "n_burn_in": 40, "random_state": 0}
    return LogisticCompleter(0, pattern=None, **settings).fit(table)


def answers_of(ability, difficulty, items, prefix, seed):
    rng = np.random.default_rng(seed)
    chance = 1 / (1 + np.exp(-1.4 * (ability[:, None] - difficulty[items])))
    yes = (rng.random(chance.shape) < chance).astype(int)
    index = [f"{prefix}{i}" for i in range(len(ability))]
    return pd.DataFrame(yes, index=index, columns=[f"q{j}" for j in items])


@pytest.fixture(scope="module")
def years():
    """A second year that is better by a standard deviation and has half of its items anew."""
    rng = np.random.default_rng(7)
    difficulty = rng.standard_normal(24)
    first, second = rng.standard_normal(150), 1.0 + 1.3 * rng.standard_normal(150)
    first = (first - first.mean()) / first.std()
    tables = (
        answers_of(first, difficulty, np.arange(16), "a", 1),
        answers_of(second, difficulty, np.arange(8, 24)[::-1], "b", 2),
    )
    return first, second, difficulty, [rasch(table) for table in tables]


def test_a_second_year_is_on_the_first_ones_scale(years):
    _, second, difficulty, (before, after) = years
    alone = after.row_summary(scale="irt")
    linked = after.row_summary(scale="irt", like=before)
    assert abs(alone["ability"].mean()) < 0.05
    assert linked["ability"].mean() == pytest.approx(second.mean(), abs=0.35)
    assert np.mean(np.abs(linked["ability"] - second) < 1.645 * linked["ability_se"]) > 0.8
    items = after.column_summary(scale="irt", like=before)
    assert np.abs(items["difficulty"] - difficulty[:7:-1]).mean() < 0.4
    assert linked["ability_se"].mean() > 1.1 * alone["ability_se"].mean()
    # Discriminations are in units of the first year's students, who differ less.
    own = after.column_summary(scale="irt")
    size = linked["ability"].std() / alone["ability"].std()
    np.testing.assert_allclose(items["discrimination"], own["discrimination"] / size, rtol=0.03)
    # All items of a Rasch model share one, which is the first year's there.
    first = before.column_summary(scale="irt")
    np.testing.assert_allclose(items["discrimination_se"], first["discrimination_se"].iloc[0], rtol=1e-6)
    assert (items["difficulty_se"] > 1.1 * own["difficulty_se"]).all()
    # What does not depend on the scale stays.
    for name in ("share", "rank", "rank_low", "rank_high", "infit", "outfit"):
        np.testing.assert_array_equal(linked[name], alone[name])
    assert linked.attrs["reliability"] == alone.attrs["reliability"]
    assert "whose 150 rows have mean 0 and variance 1, by way of 8 common columns" in linked.attrs["note"]
    assert "other model" not in alone.attrs["note"]


def test_a_test_linked_to_itself_stays_where_it_is(years):
    before = years[3][0]
    alone, linked = before.row_summary(scale="irt"), before.row_summary(scale="irt", like=before)
    np.testing.assert_allclose(linked["ability"], alone["ability"], atol=1e-9)


def test_anchors_choose_the_columns_to_link_by(years):
    before, after = years[3]
    chosen = after.row_summary(scale="irt", like=before, anchors=["q8", "q9", "q10", "q11"])
    assert "by way of 4 common columns" in chosen.attrs["note"]
    assert not chosen["ability"].equals(after.row_summary(scale="irt", like=before)["ability"])
    with pytest.raises(ValueError, match="at least 3 columns that both models know, and these are 2"):
        after.row_summary(scale="irt", like=before, anchors=["q8", "q9", "q20"])
    with pytest.raises(ValueError, match="these are 1;"):
        after.row_summary(scale="irt", like=before, anchors=["q8", "q8", "q8"])
    with pytest.raises(ValueError, match="does not know the column 'q1'"):
        after.row_summary(scale="irt", like=before, anchors=["q1"])


@pytest.mark.parametrize(
    ("moved", "anchors", "said"),
    [
        ([], None, None),
        ([4], None, "; q4 moved by over 3 standard errors against the others: link by the others."),
        ([4], [4, 5, 6], "link by the others, of which there are too few."),
        ([9, 2, 13, 4], None, " and 1 more moved by over 3 standard errors"),
    ],
)
def test_columns_that_moved_are_named_and_no_others(moved, anchors, said, years):
    before, rng = years[3][0], np.random.default_rng(9)
    difficulty = years[2][:16].copy()
    difficulty[moved] += np.where(difficulty[moved] > 0.0, -3.0, 3.0)
    after = rasch(answers_of(rng.standard_normal(150), difficulty, np.arange(16)[::-1], "c", 3))
    if anchors is not None:
        anchors = [f"q{j}" for j in anchors]
    note = after.row_summary(scale="irt", like=before, anchors=anchors).attrs["note"]
    assert (said is None) == ("moved" not in note)
    if said is not None:
        assert said in note
        named = note.partition("as they were; ")[2].partition(" moved")[0]
        named = named.partition(" and ")[0].split(", ")
        assert set(named) <= {f"q{j}" for j in moved}
        assert len(named) == min(len(moved), 3)


def test_columns_that_alone_are_too_uncertain_to_link_by_do_not_spoil_a_link():
    """Four discriminations, each of 1.0 +- .6, link; the three beside the moved one do not."""
    rng = np.random.default_rng(0)
    slope, every = 1.0 + 0.6 * rng.standard_normal((4, 400)), np.arange(4)
    other = Scale(rng.standard_normal((9, 400)), slope, 0.01 * rng.standard_normal((4, 400)))
    here = drawn(9, 4, 400, 1, unsure=0.1)
    here.intercept[:] = 0.01 * rng.standard_normal((4, 400))
    here.intercept[2] += 9.0
    moved = here.linked(other, every, every)[1]
    with pytest.raises(ValueError, match="too uncertain"):
        here.linked(other, every[[0, 1, 3]], every[[0, 1, 3]])
    assert linking._furthest(moved, here, other, every, every).tolist() == [2]


def test_what_goes_with_what_is_said(years):
    before, after = years[3]
    with pytest.raises(ValueError, match='it goes with scale="irt"'):
        after.row_summary(like=before)
    with pytest.raises(ValueError, match="which is missing"):
        after.row_summary(scale="irt", anchors=["q8"])
    with pytest.raises(ValueError, match="like is a fitted model"):
        after.row_summary(scale="irt", like="before.onebit")
    factors = LogisticCompleter(2, random_state=0).fit(
        answers_of(np.zeros(9), years[2], np.arange(8, 16), "d", 4)
    )
    with pytest.raises(ValueError, match=r"of the other model, .*: the scale of item response theory is"):
        after.row_summary(scale="irt", like=factors)


def test_what_the_other_models_error_bars_lack_is_said(years):
    before, after = years[3]
    note = after.row_summary(scale="irt", like=before).attrs["note"]
    assert ("The other model's error bars:" in note) == ("have not mixed" in note)
    short = LogisticCompleter(
        0, pattern=None, inference="sampling", n_samples=10, n_burn_in=0, n_chains=2, random_state=0
    ).fit(answers_of(np.zeros(40), years[2], np.arange(8, 24), "e", 5))
    assert "The other model's error bars: " in after.row_summary(scale="irt", like=short).attrs["note"]


def test_a_model_that_was_updated_is_not_linked(years):
    before, after = years[3]
    updated = copy.deepcopy(after).partial_fit([("late", "q8"), ("late", "q9")], [1, 0])
    for model, like in ((updated, before), (before, updated)):
        with pytest.raises(ValueError, match="updated since its fit cannot be put on another's scale"):
            model.row_summary(scale="irt", like=like)
