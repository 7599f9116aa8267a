"""The scale of item response theory, against a marginal-likelihood fit."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from benchmarks.asking.scales import fitted, marginal_likelihood, simulated
from onebit import LogisticCompleter, Observations, plots, simulate
from onebit.completers.summaries import rest_correlations
from onebit.model.irt import Scale
from onebit.report import persons, render_report
from onebit.report.figures import item_curves
from onebit.report.items import items_of
from onebit.report.layout import on_one_ruler
from onebit.report.persons import persons_of
from onebit.report.words import number


@pytest.fixture(scope="module")
def two_parameter():
    world = simulated(500, 20, 1)
    return world, fitted(world[3], 1)


@pytest.fixture(scope="module")
def rasch():
    world = simulated(200, 20, 2, discriminating=False)
    return world, fitted(world[3], 0)


def test_a_two_parameter_model_agrees_with_marginal_likelihood(two_parameter):
    (_, _, _, answers), model = two_parameter
    slope, intercept, ability = marginal_likelihood(answers)
    items = model.column_summary(scale="irt")
    error = items["discrimination_se"].to_numpy()
    assert (np.abs(items["discrimination"] - slope) < 1.5 * error).all()
    difficulty = -intercept / slope
    assert (np.abs(items["difficulty"] - difficulty) < 1.5 * items["difficulty_se"]).all()
    persons = model.row_summary(scale="irt")
    assert (np.abs(persons["ability"] - ability) < persons["ability_se"]).all()
    assert np.corrcoef(persons["ability"], ability)[0, 1] > 0.99


def test_a_rasch_model_agrees_with_marginal_likelihood(rasch):
    (_, _, _, answers), model = rasch
    slope, intercept, ability = marginal_likelihood(answers, common=True)
    items = model.column_summary(scale="irt")
    assert items["discrimination"].nunique() == 1
    assert abs(items["discrimination"].iloc[0] - slope[0]) < 1.5 * items["discrimination_se"].iloc[0]
    assert (np.abs(items["difficulty"] + intercept / slope) < 1.5 * items["difficulty_se"]).all()
    assert (np.abs(model.row_summary(scale="irt")["ability"] - ability) < 0.5).all()


def test_abilities_and_items_are_covered_by_their_standard_errors(two_parameter):
    (ability, slope, _, _), model = two_parameter
    persons, items = model.row_summary(scale="irt"), model.column_summary(scale="irt")
    inside = np.abs(persons["ability"] - ability) < 1.645 * persons["ability_se"]
    assert 0.86 < inside.mean() < 0.94
    z = (items["discrimination"] - slope) / items["discrimination_se"]
    assert (np.abs(z) < 3.5).all()
    assert 0.6 < z.std() < 1.5


def test_the_scale_has_mean_zero_and_variance_one_under_every_draw(two_parameter, rasch):
    for _, model in (two_parameter, rasch):
        scale = Scale.of(model.draws_)
        assert scale.ability.mean(axis=0) == pytest.approx(0.0, abs=1e-9)
        assert scale.ability.std(axis=0) == pytest.approx(1.0)
        assert (scale.slope.mean(axis=0) > 0).all()


def test_the_scale_changes_no_score(two_parameter):
    _, model = two_parameter
    draws, scale = model.draws_, Scale.of(model.draws_)
    rows, columns = np.array([0, 7, 400]), np.array([3, 3, 19])
    expected = draws.scores(rows, columns)
    assert scale.slope[columns] * scale.ability[rows] + scale.intercept[columns] == pytest.approx(
        expected, abs=1e-4
    )


def test_items_keyed_both_ways_have_one_scale():
    ability, _, _, answers = simulated(300, 16, 5)
    answers[:, ::2] = 1.0 - answers[:, ::2]
    model = fitted(answers, 1)
    persons, items = model.row_summary(scale="irt"), model.column_summary(scale="irt")
    assert np.corrcoef(persons["ability"], ability)[0, 1] ** 2 > 0.6
    assert persons.attrs["reliability"] > 0.6
    slopes = items["discrimination"].to_numpy()
    assert np.sign(slopes[::2]).tolist() == [-np.sign(slopes[1])] * 8


def test_the_difficulty_of_an_item_that_measures_nothing_is_not_said():
    _, _, _, answers = simulated(200, 12, 6)
    answers[:, 0] = np.random.default_rng(1).random(200) < 0.5
    items = fitted(answers, 1).column_summary(scale="irt")
    assert np.isnan(items["difficulty"].iloc[0])
    assert items["difficulty"].iloc[1:].notna().mean() > 0.8


@pytest.mark.parametrize("solved", [1.0, 0.0])
def test_an_item_that_all_or_none_solve_has_no_discrimination_and_stands_at_its_end(solved):
    _, _, _, answers = simulated(200, 12, 6)
    answers[:, 0] = solved
    model = fitted(answers, 1)
    items = model.column_summary(scale="irt")
    first = items.loc[:, ["discrimination", "discrimination_se", "difficulty"]].iloc[0]
    assert first.isna().all()
    assert items["discrimination"].iloc[1:].notna().all()
    _, difficulty = on_one_ruler(Scale.of(model.draws_))
    end = difficulty.min() if solved else difficulty.max()
    assert difficulty[0, 0] == end
    assert np.abs(difficulty[1:]).max() <= abs(end)


def test_an_item_that_all_solve_shares_the_discrimination_of_raschs_model():
    _, _, _, answers = simulated(200, 12, 6)
    answers[:, 0] = 1
    items = fitted(answers, 0).column_summary(scale="irt")
    assert items["discrimination"].nunique() == 1
    assert items["discrimination"].notna().all()


def test_information_is_the_derivative_of_the_expected_score(two_parameter):
    scale = Scale.of(two_parameter[1].draws_)
    at = np.array([-1.0, 0.3, 2.0])
    chance, step = scale.curves(at), 1e-5
    slope = (scale.curves(at + step) - scale.curves(at - step)) / (2 * step)
    assert scale.information(at) == pytest.approx(slope**2 / (chance * (1 - chance)), rel=1e-4)


def test_reliability_is_the_squared_correlation_with_the_truth(two_parameter):
    (ability, *_), model = two_parameter
    found = model.row_summary(scale="irt")
    truth = np.corrcoef(found["ability"], ability)[0, 1] ** 2
    assert found.attrs["reliability"] == pytest.approx(truth, abs=0.06)


def test_items_that_fit_have_mean_squares_near_one_and_others_do_not():
    _, _, _, answers = simulated(300, 15, 3, discriminating=False, strength=2.0)
    clean = fitted(answers, 0).column_summary(scale="irt")
    assert clean["infit"].between(0.75, 1.25).all()
    answers[:, 0] = np.random.default_rng(0).random(300) < 0.5  # an item that measures nothing
    answers[:, 1] = 1.0 - answers[:, 1]  # one with its key turned round
    items = fitted(answers, 0).column_summary(scale="irt")
    for name in ("infit", "outfit"):
        assert items[name].iloc[:2].min() > items[name].iloc[2:].max() + 0.3


@pytest.mark.parametrize("settings", [{"rank": 2}, {"rank": 1}, {"rank": 0, "effects": "columns"}])
def test_other_models_have_no_such_scale(settings):
    _, _, _, answers = simulated(30, 8, 4)
    rows, columns = np.indices(answers.shape)
    pairs = np.column_stack([rows.ravel(), columns.ravel()])
    model = LogisticCompleter(**settings, inference="sampling", n_samples=3, n_burn_in=0, n_chains=2)
    model.fit(pairs, answers.ravel().astype(int))
    with pytest.raises(ValueError, match=r"--model rasch.*--model 2pl"):
        model.row_summary(scale="irt")


def test_plots_show_items_by_name_where_they_are_few(two_parameter):
    _, model = two_parameter
    few = plots.item_curves(model, columns=[3, 5])
    assert [text.get_text() for text in few.get_legend().get_texts()] == ["3", "5"]
    assert len(plots.item_curves(model).lines) == 20
    drawn = plots.information(model, columns=[3, 5])
    total, *each = (line.get_ydata() for line in drawn.lines)
    assert total == pytest.approx(np.sum(each, axis=0))


def test_the_report_lists_the_items_and_what_to_look_at_first():
    _, _, _, answers = simulated(200, 12, 6)
    answers[:, 3] = 1.0 - answers[:, 3]  # its key is reversed
    answers[:, 7] = np.random.default_rng(1).random(200) < 0.5
    answers[:, 9] = 1.0
    model = fitted(answers, 1)
    items, table = items_of(model, "right"), model.column_summary(scale="irt")
    assert [item.name for item in items[:2]] == ["3", "7"]
    assert "the abler get right less often; is its key reversed?" in items[0].remark
    assert items[1].remark == "hardly tells abilities apart"
    assert (items[1].difficulty, items[1].share) == ("\u2013", f"{100 * answers[:, 7].mean():.0f} %")
    by_name = {item.name: item for item in items}
    assert len(by_name) == 12
    assert by_name["9"].remark == "all or none got right"
    line = table.loc[5]
    assert by_name["5"].difficulty == f"{number(line.difficulty, '+.2f')} ± {line.difficulty_se:.2f}"
    assert by_name["5"].discrimination == f"{line.discrimination:.2f} ± {line.discrimination_se:.2f}"
    assert [item.remark == "" for item in items] == sorted(item.remark == "" for item in items)
    page = render_report(model)
    assert page.index("As a test") < page.index("What the data looks like")
    assert page.count("is its key reversed?") == 1
    assert page.count("the reverse is true: those further on get yes less often") == 1
    assert "somewhat too small" not in page
    assert "The factor is the ability of each row" in page
    assert "once each row and each column has its own rate" not in page


@pytest.mark.parametrize(
    ("slope", "error", "misfit", "remark", "suspect"),
    [
        (-1.0, 0.3, 1.0, "the wrong way round", True),
        (-0.9, 0.5, 1.0, "seems the wrong way round", True),
        (-0.14, 0.12, 1.0, "hardly tells abilities apart, if not the wrong way round", True),
        (0.1, 0.15, 1.0, "hardly tells abilities apart", True),
        (0.9, 0.5, 1.4, "foreseen worse", True),
        (0.9, 0.5, 1.0, "too few answers to judge", False),
        (-0.2, 0.5, 1.0, "too few answers to judge", False),
        (1.2, 0.3, 0.6, "", False),
        (1.2, 0.3, 1.0, "", False),
    ],
)
def test_a_remark_on_an_item_says_no_more_than_its_answers(slope, error, misfit, remark, suspect):
    line = {
        "answers": 60, "answered_share": 0.5, "difficulty": 0.1, "difficulty_se": 0.2, "infit": misfit,
        "discrimination": slope, "discrimination_se": error, "rest_correlation": 0.3, "outfit": 1.0,
    }  # fmt: skip

    class Fitted:
        def column_summary(self, scale):
            return pd.DataFrame([line], index=["it"])

    (item,) = items_of(Fitted(), "right")
    assert item.remark.startswith(remark)
    assert bool(item.remark) == bool(remark)
    assert item.suspect == suspect


def test_correlations_with_the_rest_are_those_of_the_answers_whoever_gave_few():
    _, _, _, answers = simulated(60, 5, 2)
    answers[:, 4] = 1.0
    seen = np.random.default_rng(3).random(answers.shape) < 0.8
    seen[0] = [True, False, False, False, False]  # nothing else to go with
    pairs = np.argwhere(seen)
    model = LogisticCompleter(0, pattern=None, inference="sampling", n_samples=20, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(pairs, answers[tuple(pairs.T)].astype(int))
    found = model.column_summary(scale="irt")["rest_correlation"]
    for item in range(4):
        who = [row for row in range(60) if seen[row, item] and seen[row].sum() > 1]
        rest = [answers[row, seen[row] & (np.arange(5) != item)].mean() for row in who]
        assert found[item] == pytest.approx(np.corrcoef(answers[who, item], rest)[0, 1])
    assert np.isnan(found[4])
    assert "rest_correlation" not in model.row_summary(scale="irt")


def test_the_report_lists_who_took_the_test_by_ability(monkeypatch):
    _, _, _, answers = simulated(30, 12, 6)
    model = fitted(answers, 1)
    table = model.row_summary(scale="irt").sort_values("ability", ascending=False)
    listed = persons_of(model)
    assert [person.name for person in listed] == [str(row) for row in table.index]
    first = table.iloc[0]
    assert listed[0].ability == f"{number(first.ability, '+.2f')} ± {first.ability_se:.2f}"
    assert listed[0].place == f"{first.rank_low:.0f} to {first.rank_high:.0f}"
    assert listed[0].share == f"{100 * first.answered_share:.0f} %"
    monkeypatch.setattr(persons, "MOST_PERSONS", 8)
    few = [person.name for person in persons_of(model)]
    assert few == [str(row) for row in [*table.index[:4], *table.index[-4:]]]
    assert "Each row: the 4 ablest and the 4 least able of 30" in render_report(model)
    monkeypatch.setattr(persons, "MOST_PLACED", 29)
    assert "<summary>Each row" not in render_report(model)


def test_a_model_that_is_no_test_has_no_items():
    world = simulate.world("B2", rank=2, shape=(40, 30), density=0.6, seed=0)
    model = LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers)
    assert "Each column" not in render_report(model)


@pytest.mark.parametrize("settings", [{"rank": 0, "pattern": None}, {"rank": 1, "effects": "columns"}])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_test_of_one_person_has_a_report_and_no_scale(settings):
    model = LogisticCompleter(**settings, inference="sampling", n_samples=10, random_state=0)
    model.fit([("ann", item) for item in range(3)], [1, 0, 1])
    assert "As a test" not in render_report(model)
    with pytest.raises(ValueError, match="this model has one row"):
        model.row_summary(scale="irt")


def test_items_of_raschs_model_are_not_judged_by_the_discrimination_that_all_share():
    """Abilities that hardly differ make it small: that is of the test, and of no item."""
    rng = np.random.default_rng(3)
    chance = 1.0 / (1.0 + np.exp(-(0.3 * rng.normal(size=(300, 1)) + np.linspace(-1, 1, 8))))
    items = items_of(fitted((rng.random(chance.shape) < chance).astype(float), 0), "right")
    assert [item.remark for item in items] == [""] * 8
    assert not any(item.suspect for item in items)


def test_a_rows_further_answers_to_an_item_are_not_the_rest():
    rng = np.random.default_rng(0)
    chance = rng.random((400, 4))  # of each row and item by itself: items have nothing in common
    rows, columns = (np.tile(part.ravel(), 5) for part in np.indices((400, 4)))
    answers = rng.random(len(rows)) < chance[rows, columns]
    known = Observations.from_pairs(np.column_stack([rows, columns]), answers)
    assert np.abs(rest_correlations(known)).max() < 0.12
    one = Observations.from_pairs([(0, 0), (0, 0), (1, 0), (1, 1)], [1, 0, 1, 0])
    assert np.isnan(rest_correlations(one)).all()


def test_curves_of_suspect_items_are_named_and_few_answers_are_said_to_be_few():
    _, _, _, answers = simulated(60, plots.NAMED + 2, 6)
    answers[:, 3] = 1.0 - answers[:, 3]
    model = fitted(answers, 1)
    page = render_report(model)
    (suspect, *_) = items_of(model, "1")
    assert suspect.id == 3
    named, unnamed = (item_curves(model, suspects, "1").count(">3</") for suspects in ([3], []))
    assert named == unnamed + 1
    assert "somewhat too small" in page


def test_of_too_many_persons_the_report_says_where_they_are(monkeypatch, rasch):
    _, model = rasch
    assert "no list is made" not in render_report(model)
    monkeypatch.setattr(persons, "MOST_PLACED", 100)
    assert "no list is made; <code>onebit rows --scale irt</code> writes all 200" in render_report(model)
