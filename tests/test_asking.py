"""What to ask next: interviews, fixed sets, and shares from random questions."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from onebit import HingeCompleter, LogisticCompleter

COLUMNS = 60


def drawn(rows, rng, columns):
    """Answers of new rows to all columns of one world."""
    slope, easiness = columns
    ability = rng.normal(0.3, 1.0, rows)
    return np.where(rng.random((rows, COLUMNS)) < expit(np.outer(ability, slope) + easiness), 1, -1)


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    columns = rng.lognormal(0.2, 0.5, COLUMNS), rng.normal(0.0, 1.0, COLUMNS)
    return columns, drawn(150, rng, columns)


@pytest.fixture(scope="module")
def model(world):
    rows, columns = np.indices(world[1].shape)
    pairs = pd.DataFrame({"who": rows.ravel(), "what": [f"q{j:02d}" for j in columns.ravel()]})
    return LogisticCompleter(1, random_state=0).fit(pairs, world[1].ravel())


def asked(model, row, **settings):
    interview = model.interview(**settings)
    for question in interview:
        interview.answer(int(row[int(question.column[1:])]))
    return interview


def test_an_interview_knows_more_than_as_many_random_answers(model, world):
    rng = np.random.default_rng(1)
    errors = {"asked": [], "random": []}
    for row in drawn(60, rng, world[0]):
        truth = (row.mean() + 1) / 2
        errors["asked"].append(asked(model, row, n=10).share - truth)
        some = rng.choice(COLUMNS, 10, replace=False)
        told = {f"q{j:02d}": int(row[j]) for j in some}
        errors["random"].append(model.interview(told).share - truth)
    assert np.abs(errors["asked"]).mean() < 0.8 * np.abs(errors["random"]).mean()


def test_credible_intervals_of_interviews_cover(model, world):
    inside = []
    for row in drawn(120, np.random.default_rng(2), world[0]):
        found = asked(model, row, n=8)
        inside.append(found.low <= (row.mean() + 1) / 2 <= found.high)
    assert 0.84 <= np.mean(inside) <= 0.97


def test_confidence_intervals_of_the_policy_cover_even_rows_of_another_world(model):
    # Rows that answer the other way round: predictions mislead, and the interval holds all the same.
    rng = np.random.default_rng(3)
    inside = []
    for seed in range(40):
        row = np.where(rng.random(COLUMNS) < 0.65, 1, -1)
        found = asked(model, row, n=30, explore=0.3, random_state=seed).row_mean()
        inside.append(found.low <= (row.mean() + 1) / 2 <= found.high)
    assert np.mean(inside) >= 0.8


def test_the_best_question_comes_first_and_gains_fall(model):
    found = model.next_questions(n=5, explore=0)
    assert found.columns.tolist() == ["column", "yes", "gain", "chance"]
    assert found["gain"].is_monotonic_decreasing
    assert (found["chance"] == 1.0).all()
    assert found["column"].is_unique
    assert found["gain"].between(0, 1).all()


def test_chances_are_those_of_the_draw(model):
    counts = pd.Series(
        [model.next_questions(explore=0.2, random_state=seed)["column"][0] for seed in range(400)]
    ).value_counts(normalize=True)
    question = model.next_questions(explore=0.2, random_state=0).iloc[0]
    share = counts[question["column"]]
    assert abs(share - question["chance"]) < 4 * (question["chance"] / 400) ** 0.5
    assert model.next_questions(explore=1.0, random_state=0)["chance"][0] == pytest.approx(1 / COLUMNS)


def test_a_goal_of_some_answers_asks_about_those(model):
    found = model.next_questions(n=1, goal=["q05"], explore=0)
    assert found["column"][0] == "q05"
    pair = model.next_questions(n=1, goal=[("somebody", "q05")], explore=0)
    assert pair["column"][0] == "q05"
    elsewhere = model.next_questions(n=1, goal=["q05"], among=["q01", "q02"], explore=0)
    assert elsewhere["column"][0] in ("q01", "q02")


def test_a_known_row_is_asked_what_it_has_not_answered(world):
    rows, columns = np.indices(world[1].shape)
    pairs = np.column_stack([rows.ravel(), columns.ravel()])
    shown = (pairs[:, 0] > 0) | (pairs[:, 1] < 50)
    model = LogisticCompleter(1, random_state=0).fit(pairs[shown], world[1].ravel()[shown])
    found = model.next_questions(0, n=20, explore=0)
    assert sorted(found["column"]) == list(range(50, 60))
    with pytest.raises(ValueError, match="nothing is left to ask: all 60 columns"):
        model.next_questions(1)


def test_an_interview_stops_when_it_is_told_to(model, world):
    row = world[1][0]
    assert asked(model, row, n=4).asked == 4
    narrow = asked(model, row, width=0.2)
    assert narrow.high - narrow.low <= 0.2
    assert "wide" in narrow.finished
    everything = asked(model, row)
    assert everything.asked == COLUMNS
    assert everything.share == pytest.approx((row.mean() + 1) / 2)
    assert everything.low == pytest.approx(everything.high)


def test_answers_can_come_in_several_forms(model):
    told = {"q01": 1, "q02": -1}
    shares = [
        model.interview(form).share
        for form in (told, pd.Series(told), list(told.items()), pd.DataFrame(list(told.items())))
    ]
    assert len(set(shares)) == 1
    with pytest.warns(UserWarning, match="1 of 3 answers skipped"):
        skipped = model.interview(told | {"never seen": 1})
    assert (skipped.share, skipped.skipped) == (shares[0], 1)


def test_contradictory_answers_count_both(model):
    both = model.interview([("q01", 1), ("q01", -1)])
    one, other = model.interview({"q01": 1}), model.interview({"q01": -1})
    assert min(one.share, other.share) < both.share < max(one.share, other.share)


def test_a_fixed_set_is_printed_once_for_all(model):
    chosen = model.choose_columns(6)
    assert len(set(chosen)) == 6
    assert model.choose_columns(3) == chosen[:3]
    assert set(model.choose_columns(2, among=["q07", "q08"])) == {"q07", "q08"}
    with pytest.raises(ValueError, match="61 columns were asked for and there are 60"):
        model.choose_columns(61)


def test_random_questions_give_shares_of_several_rows(model, world):
    rng = np.random.default_rng(4)
    rows = drawn(5, rng, world[0])
    pairs, answers = [], []
    for number, row in enumerate(rows):
        for j in rng.choice(COLUMNS, 40, replace=False):
            pairs.append((f"new {number}", f"q{j:02d}"))
            answers.append(row[j])
    found = model.row_mean(pairs, answers)
    truth = (rows.mean(axis=1) + 1) / 2
    assert found.index.tolist() == [f"new {k}" for k in range(5)]
    assert ((found["share_low"] <= truth) & (found["share_high"] >= truth)).mean() >= 0.6
    assert (found["answers"] == 40).all()
    assert set(found["kind"]) <= set(found.attrs["interval"])
    assert (found["worth"] > 10).all()


def test_questions_that_an_interview_drew_uniformly_are_as_good_as_any(model):
    """A row that says yes to nearly all has few answers that were not foreseen: they are counted."""
    interview = model.interview(explore=1.0, n=20, random_state=0)
    for number, _ in enumerate(interview):
        interview.answer(number != 3)
    found = interview.row_mean()
    pairs = [("new", column) for column in interview.columns]
    (other,) = model.row_mean(pairs, interview.answers, random_state=0).to_dict("records")
    assert found.kind == other["kind"] == "exact"
    assert (found.low, found.high) == (other["share_low"], other["share_high"])
    assert found.low > 0.7


@pytest.mark.parametrize(
    ("pairs", "probabilities", "message"),
    [
        ([("new", "q01"), ("new", "q01")], None, "'q01' is there twice"),
        ([("new", "q01"), ("new", "what")], None, "'what' is not among those"),
        ([(3, "q01"), (3, "q02")], None, "one of the model's own"),
        ([("new", "q01"), ("new", "q02")], [0.5, 0.0], "probability of question 2 is .*0.0"),
        ([("new", "q01"), ("new", "q02")], [0.5, 1.5], "at most 1"),
        ([("new", "q01"), ("new", "q02")], [1.0, 0.5], "chosen with probability 1"),
        ([("new", "q01"), ("new", "q02")], [0.5], "probabilities of shape"),
        ([("new", "q01"), (None, "q02")], None, "row id at position 1 is missing"),
        ([], None, "at least one answer|two columns"),
    ],
)
def test_questions_that_were_not_drawn_at_random_are_refused(model, pairs, probabilities, message):
    with pytest.raises(ValueError, match=message):
        model.row_mean(pairs, [1] * len(pairs), probabilities=probabilities)


def test_answers_that_were_there_before_give_no_confidence_interval(model):
    interview = model.interview({"q01": 1}, explore=0.2, random_state=0)
    interview.next()
    interview.answer(1)
    with pytest.raises(ValueError, match="were there before the interview"):
        interview.row_mean()
    skipping = model.interview(explore=0.2, random_state=0)
    first = skipping.next()
    with pytest.raises(ValueError, match="is open"):
        skipping.next()
    skipping.skip()
    assert skipping.next().column != first.column
    skipping.answer(0)
    with pytest.raises(ValueError, match="skipped"):
        skipping.row_mean()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"goal": "median"}, '"mean", "row" or a list'),
        ({"goal": ["what"]}, "goal names the column 'what'"),
        ({"among": []}, "among names no column"),
        ({"explore": 1.5}, "explore is a share"),
        ({"n": 0}, "at least one"),
        ({"width": 2.0}, "between 0 and 1"),
        ({"level": "high"}, "level must be between 0 and 1"),
        ({"answers": "nobody"}, "row ids here are strings|does not know the row"),
    ],
)
def test_bad_settings_are_refused_at_the_door(model, settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        model.interview(**settings)


def test_models_in_which_rows_are_alike_or_scores_no_log_odds_say_so(world):
    pairs = np.argwhere(np.ones((20, 10)))
    answers = world[1][:20, :10].ravel()
    alike = LogisticCompleter(0, effects="columns").fit(pairs, answers)
    with pytest.raises(ValueError, match="all rows are alike"):
        alike.next_questions()
    with pytest.raises(ValueError, match="posterior of log-odds"):
        HingeCompleter(1).fit(pairs, answers).choose_columns(2)


def test_a_refit_is_asked_anew(model, world):
    before = model.interview().share
    pairs = np.argwhere(np.ones((30, COLUMNS)))
    again = LogisticCompleter(1, random_state=0).fit(pairs, np.where(pairs[:, 1] > 5, 1, -1))
    first = again.interview().share
    again.fit(pairs, np.where(pairs[:, 1] > 50, 1, -1))
    assert first != again.interview().share
    assert model.interview().share == before
