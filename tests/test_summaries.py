"""Rows and columns with error bars: what they say, what they cover, what is refused."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import beta
from sklearn.base import clone

import onebit
from onebit import HingeCompleter, LogisticCompleter, NuclearNormCompleter, simulate
from onebit.completers.filling import known_observations
from onebit.model.draws import Draws
from onebit.model.irt import Scale
from onebit.model.shares import shares_of

ROWS, COLUMNS = 60, 40


def world(seed, shown=0.5, rows=ROWS):
    """A full table of answers of a rank 1 model with effects, and which of them are shown."""
    rng = np.random.default_rng(seed)
    score = rng.normal(0, 1, (rows, 1)) + rng.normal(0, 1, COLUMNS)
    score = score + np.outer(rng.normal(0, 1, rows), rng.normal(0, 1, COLUMNS))
    answers = (rng.random(score.shape) < expit(score)).astype(int)
    return answers, np.argwhere(rng.random(score.shape) < shown)


def names(pairs):
    return [(f"r{i:02d}", f"c{j:02d}") for i, j in pairs]


@pytest.fixture(scope="module")
def table():
    return world(0)


@pytest.fixture(scope="module")
def sampled(table):
    answers, pairs = table
    model = LogisticCompleter(
        2, pattern=None, inference="sampling", n_samples=50, n_burn_in=50, random_state=0
    )
    return model.fit(names(pairs), answers[tuple(pairs.T)])


@pytest.fixture(scope="module")
def variational(table):
    answers, pairs = table
    return LogisticCompleter(2, pattern=None, random_state=0).fit(names(pairs), answers[tuple(pairs.T)])


def test_shares_are_those_of_the_completed_table(sampled):
    found = sampled.row_summary()
    completed = sampled.complete()
    assert found["share"].to_numpy() == pytest.approx(completed.mean(axis=1).to_numpy(), abs=1e-4)
    assert found.index.equals(completed.index)
    columns = sampled.column_summary()
    assert columns["share"].to_numpy() == pytest.approx(completed.mean(axis=0).to_numpy(), abs=1e-4)


def test_counts_effects_and_ranks_are_those_of_the_model(sampled, table):
    answers, pairs = table
    found = sampled.row_summary()
    assert found["answers"].to_numpy() == pytest.approx(np.bincount(pairs[:, 0], minlength=ROWS))
    assert found["effect"].to_numpy() == pytest.approx(sampled.row_effects_.to_numpy())
    assert (found["effect_se"] > 0).all()
    assert found["rank"].sort_values().iloc[0] == 1
    assert found["share"].idxmax() == found["rank"].idxmin()
    assert (found["rank_low"] <= found["rank"]).mean() > 0.95
    assert found.loc["r03", "answered_share"] == pytest.approx(
        answers[3, pairs[pairs[:, 0] == 3, 1]].mean()
    )
    assert list(found.columns) == [
        "answers", "answered_share", "share", "share_low", "share_high", "share_least", "share_most",
        "effect", "effect_se", "rank", "rank_low", "rank_high",
    ]  # fmt: skip


def test_a_row_without_blanks_has_no_interval(table):
    answers, _ = table
    pairs = np.argwhere(np.ones((10, 8)))
    model = LogisticCompleter(0, inference="sampling", n_samples=5, random_state=0)
    found = model.fit(names(pairs), answers[tuple(pairs.T)]).row_summary()
    assert found["share_low"].to_numpy() == pytest.approx(found["share_high"].to_numpy())
    assert found["share"].to_numpy() == pytest.approx(answers[:10, :8].mean(axis=1))
    assert (found["rank_low"] == found["rank"]).all()  # those that are level share their places
    assert (found["rank_high"] >= found["rank"]).all()


@pytest.mark.parametrize("settings", [{}, {"inference": "sampling"}, {"temperature": 2.0}])
def test_intervals_of_shares_cover_on_fresh_worlds(settings):
    # A temperature of two halves a posterior's variance, and a variational one is too narrow: both are
    # sampled again for their error bars.
    inside = []
    for seed in range(3):
        answers, pairs = world(seed + 10)
        chains = {"n_samples": 40, "n_burn_in": 40} if "inference" in settings else {}
        model = LogisticCompleter(2, pattern=None, random_state=0, **settings, **chains)
        found = model.fit(names(pairs), answers[tuple(pairs.T)]).row_summary()
        truth = answers.mean(axis=1)
        inside.append((found["share_low"] <= truth + 1e-9) & (found["share_high"] >= truth - 1e-9))
    assert 0.84 <= np.mean(inside) <= 0.97


def test_a_summary_of_a_variational_model_is_made_once_and_leaves_the_model_alone(variational):
    before = variational.predict_proba(names([(0, 0), (5, 7)]))
    first = variational.row_summary(["r00", "r05"])
    assert "a sampling run" in first.attrs["note"]
    assert not variational.is_sampled
    assert np.array_equal(variational.predict_proba(names([(0, 0), (5, 7)])), before)
    pd.testing.assert_frame_equal(first, variational.row_summary(["r00", "r05"]))


def test_a_named_set_of_columns_is_what_a_share_is_taken_over(sampled, table):
    answers, pairs = table
    some = [f"c{j:02d}" for j in range(5)]
    found = sampled.row_summary(["r07"], columns=some)
    known = pairs[(pairs[:, 0] == 7) & (pairs[:, 1] < 5), 1]
    chance = sampled.predict_proba([("r07", name) for name in some])[:, 1]
    chance[known] = answers[7, known]
    assert found["share"].iloc[0] == pytest.approx(chance.mean(), abs=1e-4)
    assert "5 named columns" in found.attrs["note"]
    # What was answered is counted over the same ones.
    assert found["answers"].iloc[0] == len(known)
    assert found["answered_share"].iloc[0] == pytest.approx(answers[7, known].mean())
    rows = ["r01", "r02", "r05"]
    of_column = sampled.column_summary(["c03"], rows=rows).iloc[0]
    assert of_column["answers"] == np.isin(pairs[pairs[:, 1] == 3, 0], [1, 2, 5]).sum()
    assert found["rank"].iloc[0] == 1


def test_comparing_is_antisymmetric_and_agrees_with_the_draws(sampled):
    found = sampled.row_summary()
    best, worst = found["share"].idxmax(), found["share"].idxmin()
    ahead, behind = sampled.compare(best, worst), sampled.compare(worst, best)
    assert ahead.probability > 0.99
    assert ahead.probability + behind.probability == pytest.approx(1.0)
    assert ahead.difference == pytest.approx(found["share"].max() - found["share"].min(), abs=1e-6)
    assert ahead.low <= ahead.difference <= ahead.high
    assert sampled.compare(best, best).probability == pytest.approx(0.5)


def test_shares_do_not_depend_on_the_threads(sampled):
    def summed(jobs):
        sampled.n_jobs = jobs
        return sampled.row_summary()

    pd.testing.assert_frame_equal(summed(1), summed(2))


def test_drawn_shares_have_the_moments_of_their_chances(sampled):
    draws: Draws = sampled.draws_
    codes, wanted = np.arange(5, dtype=np.int32), np.arange(COLUMNS, dtype=np.int32)
    nothing = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0))
    shares = shares_of(draws, 0, codes, wanted, nothing)
    for code in codes:
        scores = draws.scores(np.full(COLUMNS, code), wanted)
        chance = expit(scores)
        assert shares.expected[code] == pytest.approx(chance.mean(), abs=1e-5)
        spread = chance.mean(axis=0).var() + (chance * (1 - chance)).sum(axis=0).mean() / COLUMNS**2
        assert shares.drawn[code].var() == pytest.approx(spread, rel=0.35)


def test_new_rows_are_summed_up_once_they_are_folded_in(sampled, tmp_path):
    sampled.save(tmp_path / "m.onebit")
    model = onebit.load(tmp_path / "m.onebit")
    model.fold_in([("new", f"c{j:02d}") for j in range(20)], [1] * 18 + [0] * 2)
    found = model.row_summary()
    assert found.loc["new", "answers"] == 20
    assert found.loc["new", "share"] > found["share"].median()
    assert model.compare("new", found["share"].idxmin()).probability > 0.9


def test_rows_folded_into_a_variational_model_stand_where_those_of_a_sampled_one_do():
    # Asked a part of what all others answered: their pattern is theirs alone, and tells nothing.
    answers, _ = world(3, rows=50)
    pairs = np.argwhere(np.ones((49, COLUMNS)))
    widths = []
    for settings in ({}, {"inference": "sampling", "n_samples": 50}):
        model = LogisticCompleter(2, random_state=0, **settings)
        model.fit(names(pairs), answers[:49].ravel())
        model.fold_in([("new", f"c{j:02d}") for j in range(0, 40, 2)], answers[49, ::2])
        found = model.row_summary(["new", "r00"]).loc["new"]
        widths.append(found["share_high"] - found["share_low"])
    assert widths[0] == pytest.approx(widths[1], rel=0.3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": ["nobody"]}, "does not know the row 'nobody'"),
        ({"rows": []}, "names no row"),
        ({"columns": ["c00", "what"]}, "does not know the column 'what'"),
        ({"level": 1.0}, "level must be between 0 and 1"),
        ({"scale": "theta"}, '"logit" or "irt"'),
    ],
)
def test_bad_questions_are_refused_at_the_door(sampled, arguments, message):
    with pytest.raises(ValueError, match=message):
        sampled.row_summary(**arguments)


def test_models_without_log_odds_say_so(table):
    answers, pairs = table
    hinge = HingeCompleter(1, random_state=0).fit(names(pairs), answers[tuple(pairs.T)])
    with pytest.raises(ValueError, match="posterior of log-odds"):
        hinge.row_summary()
    assert not hasattr(NuclearNormCompleter(), "row_summary")


def test_a_model_that_forgot_its_answers_cannot_keep_them_as_they_are(sampled, tmp_path):
    sampled.save(tmp_path / "m.onebit", answers=False)
    with pytest.raises(ValueError, match="has not kept its answers"):
        onebit.load(tmp_path / "m.onebit").row_summary()


def test_weights_are_kept_for_error_bars(small_world, tmp_path, rng):
    weight = rng.choice([1.0, 4.0], len(small_world.pairs))
    model = LogisticCompleter(2, random_state=0).fit(small_world.pairs, small_world.answers, weight)
    model.save(tmp_path / "weighted.onebit")
    loaded = onebit.load(tmp_path / "weighted.onebit")
    pd.testing.assert_frame_equal(loaded.row_summary(), model.row_summary())
    model.partial_fit([(0, 1), (1, 2)], [1, 0])
    known = known_observations(model)
    assert known.total_weight == pytest.approx(weight.sum() + 2.0)


def test_a_model_with_features_has_error_bars_until_answers_are_added(small_world):
    rows = np.arange(small_world.truth.shape[0])
    features = pd.DataFrame({"row": rows, "age": np.linspace(-1, 1, len(rows))})
    model = LogisticCompleter(1, random_state=0).fit(
        small_world.pairs, small_world.answers, row_features=features
    )
    assert (model.row_summary()["effect_se"] > 0).all()
    model.fold_in([(999, 0)], [1])
    with pytest.raises(ValueError, match="does not keep the features"):
        model.row_summary()


def test_shares_of_a_population_add_what_drawing_rows_leaves_to_chance():
    """With nothing blank a share is a beta variable, and columns that are alike have the same."""
    rng = np.random.default_rng(0)
    answers = rng.random((40, 5)) < [0.05, 0.5, 0.5, 0.9, 0.0]
    answers[:, 2] = answers[:, 1]
    pairs = np.argwhere(np.ones_like(answers))
    model = LogisticCompleter(0, inference="sampling", n_samples=600, n_burn_in=20, random_state=0)
    model.fit(pairs, answers[tuple(pairs.T)])
    here, there = model.column_summary(), model.column_summary(population=True)
    yes = answers.sum(axis=0)
    assert here["share_low"].to_numpy() == pytest.approx(yes / 40)
    expected = beta(yes + 0.5, 40 - yes + 0.5)
    assert there["share"].to_numpy() == pytest.approx(expected.mean())
    assert there["share_low"].to_numpy() == pytest.approx(expected.ppf(0.05), abs=0.01)
    assert there["share_high"].to_numpy() == pytest.approx(expected.ppf(0.95), abs=0.01)
    assert there["rank_high"].iloc[1] - there["rank_low"].iloc[1] == 1  # the two that are one
    assert "drawn from at random" in there.attrs["note"]


def test_shares_of_a_population_are_over_the_rows_that_are_named(sampled):
    few = sampled.column_summary(rows=["r00", "r01", "r02"], population=True)
    all_ = sampled.column_summary(population=True)
    width = [(table["share_high"] - table["share_low"]).mean() for table in (few, all_)]
    assert width[0] > 2 * width[1]
    assert "3 named rows were drawn" in few.attrs["note"]


def test_those_with_the_same_score_on_a_test_have_the_same_ability_and_place():
    """In Rasch's model the number of right answers says all; which they are does not matter."""
    rng = np.random.default_rng(0)
    right = rng.random((60, 12)) < 1 / (1 + np.exp(-(rng.normal(size=(60, 1)) - rng.normal(size=12))))
    pairs = np.argwhere(np.ones_like(right))
    settings = {"inference": "sampling", "n_samples": 20, "n_burn_in": 20, "random_state": 0}
    model = LogisticCompleter(0, pattern=None, **settings).fit(pairs, right[tuple(pairs.T)])
    score = right.sum(axis=1)
    found = model.row_summary(scale="irt").groupby(score)
    for name in ("ability", "ability_se", "rank", "rank_low", "rank_high", "share"):
        assert (found[name].nunique() == 1).all(), name
    assert found["outfit"].nunique().max() > 1  # which ones were right does
    drawn = Scale.of(model.draws_).abilities[0]
    mean = np.bincount(score, drawn)[score] / np.bincount(score)[score]
    assert model.row_summary(scale="irt")["ability"].to_numpy() == pytest.approx(mean)
    # Over some columns alone shares are of the answers to these.
    some = model.row_summary(columns=[0, 1, 2])["share"]
    assert some.to_numpy() == pytest.approx(right[:, :3].mean(axis=1))


def test_those_of_whom_features_tell_more_keep_their_own_numbers():
    rng = np.random.default_rng(0)
    answers = np.tile(rng.random(10) < 0.5, (12, 1))  # all answer alike
    pairs = np.argwhere(np.ones_like(answers))
    settings = {"inference": "sampling", "n_samples": 10, "n_burn_in": 5, "random_state": 0}
    plain = LogisticCompleter(1, pattern=None, **settings).fit(pairs, answers[tuple(pairs.T)])
    assert plain.row_summary()["effect"].nunique() == 1
    ages = pd.DataFrame({"row": range(12), "age": rng.normal(size=12)})
    told = LogisticCompleter(1, pattern=None, **settings)
    told.fit(pairs, answers[tuple(pairs.T)], row_features=ages)
    assert told.row_summary()["effect"].nunique() == 12


def test_least_and_most_shares_assume_nothing_of_blanks(sampled, table):
    answers, pairs = table
    seen = np.zeros(answers.shape, dtype=bool)
    seen[tuple(pairs.T)] = True
    sides = ((sampled.row_summary(), 1), (sampled.column_summary(), 0))
    for found, axis in sides:
        least = (answers.astype(bool) & seen).mean(axis=axis)
        most = (answers.astype(bool) | ~seen).mean(axis=axis)
        assert found["share_least"].to_numpy() == pytest.approx(least)
        assert found["share_most"].to_numpy() == pytest.approx(most)
        assert (found["share"] > found["share_least"] - 1e-12).all()
        assert (found["share"] < found["share_most"] + 1e-12).all()
    assert "share_least" not in sampled.row_summary(population=True)
    some = sampled.row_summary(["r03"], columns=["c00", "c05"]).iloc[0]
    here = seen[3, [0, 5]]
    assert some["share_most"] - some["share_least"] == pytest.approx(1 - here.mean())


def test_those_whose_answers_count_differently_keep_their_own_numbers():
    rng = np.random.default_rng(0)
    answers = rng.random((20, 10)) < 0.5
    answers[1] = answers[0]
    pairs = np.argwhere(np.ones_like(answers))
    weights = np.where(pairs[:, 0] == 0, 9.0, 1.0)
    model = LogisticCompleter(0, pattern=None, inference="sampling", n_samples=30, random_state=0)
    model.fit(pairs, answers[tuple(pairs.T)], weights)
    found = model.row_summary()["effect_se"]
    assert found.iloc[0] < 0.7 * found.iloc[1]


@pytest.mark.parametrize("level", [1e-9, 0.5])
def test_ranks_lie_within_their_intervals(sampled, level):
    for population in (False, True):
        found = sampled.column_summary(level=level, population=population)
        assert (found["rank_low"] <= found["rank"]).all()
        assert (found["rank"] <= found["rank_high"]).all()


def test_error_bars_do_not_take_over_a_prior_scale_that_suits_a_variational_fit():
    """Under it columns that the fit has pruned would add noise to every draw."""
    world = simulate.world("B3", rank=2, shape=(150, 30), density=0.3, seed=0)
    found = [
        LogisticCompleter(6, prior_scale=scale, random_state=0)
        .fit(world.pairs, world.answers)
        .column_summary()
        for scale in ("auto", 0.1)
    ]
    spreads = [table["effect"].std() for table in found]
    errors = [table["effect_se"].mean() for table in found]
    assert spreads[1] == pytest.approx(spreads[0], rel=0.25)
    assert errors[1] == pytest.approx(errors[0], rel=0.25)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_error_bars_keep_the_prior_scale_that_a_model_was_sampled_with(small_world, monkeypatch):
    made = []

    def recorded(own):
        made.append(clone(own))
        return made[-1]

    monkeypatch.setattr("onebit.completers.error_bars.clone", recorded)
    few = {"n_samples": 10, "n_chains": 1, "random_state": 0}
    model = LogisticCompleter(1, inference="sampling", temperature=2.0, prior_scale=0.1, **few)
    model.fit(small_world.pairs, small_world.answers).column_summary()
    assert [part.prior_scale for part in made] == [0.1]
