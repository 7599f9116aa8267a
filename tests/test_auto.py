"""AutoCompleter: it chooses well, cheaply, and says what it chose."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from onebit import AutoCompleter, GibbsCompleter, LogisticCompleter, load, simulate
from onebit.completers.archive import fit_identity
from onebit.completers.efforts import EFFORTS, FEWEST, LONG, Budget
from onebit.completers.search import FIRST, RANKS, Search, sampled_recipe
from onebit.completers.trials import Trial
from onebit.data.observations import Observations
from onebit.engine.workers import Cpu
from onebit.model.losses import HINGE


@pytest.mark.parametrize(("name", "loss"), [("A2", "hinge"), ("B3", "logistic")])
def test_it_chooses_the_loss_that_fits_the_world(name, loss):
    world = simulate.world(name, rank=3, seed=0)
    model = AutoCompleter(random_state=0, effort="quick").fit(world.pairs, world.answers)
    assert model.best_params_["loss"] == loss
    assert model.completer_.temperature == model.best_params_["temperature"]


@pytest.fixture(scope="module")
def flipped():
    """A world in which a tenth of the answers is wrong for sure, and the model of it."""
    world = simulate.world("B2", rank=2, shape=(50, 40), density=0.5, seed=5)
    return world, AutoCompleter(random_state=1, sampling_seconds=0).fit(world.pairs, world.answers)


def test_the_gibbs_loss_is_chosen_where_answers_are_flipped(flipped):
    world, model = flipped
    assert model.best_params_["loss"] == "gibbs"
    assert isinstance(model.completer_, GibbsCompleter)
    assert model.completer_.temperature == model.best_params_["temperature"]
    without = AutoCompleter(losses=["logistic", "hinge"], random_state=1, sampling_seconds=0)
    without.fit(world.pairs, world.answers)
    assert "gibbs" not in set(without.search_["loss"])
    assert len(without.search_) < len(model.search_)
    errors = [world.error(each.complete("score").to_numpy()) for each in (model, without)]
    assert errors[0] < errors[1]


def test_losses_that_are_left_out_are_not_tried(flipped):
    world, _ = flipped
    model = AutoCompleter(losses=("logistic",), random_state=1, sampling_seconds=0)
    model.fit(world.pairs, world.answers)
    assert set(model.search_["loss"]) == {"logistic"}
    assert "effect" in model.row_summary().columns


@pytest.mark.parametrize("losses", [(), ("hinge",), ("logistic", "probit"), "logistic", None])
def test_losses_that_are_none_are_refused(losses, flipped):
    world, _ = flipped
    with pytest.raises(ValueError, match="losses must be a tuple or list of some of 'logistic', 'hinge'"):
        AutoCompleter(losses=losses).fit(world.pairs, world.answers)


def test_a_model_of_the_gibbs_loss_predicts_by_its_curve_is_saved_and_says_what_it_cannot(
    flipped, tmp_path
):
    world, model = flipped
    assert model.probability_note is None
    chance = model.predict_proba(world.all_pairs)[:, 1]
    curve = model.calibration_.probability(*model.predictor_.moments(*world.all_pairs.T, model._machine))
    np.testing.assert_allclose(chance, curve, atol=1e-12)
    with pytest.raises(ValueError, match=r"gibbs loss\) are no log-odds"):
        model.predict_interval(world.pairs[:3], output="probability")
    model.save(tmp_path / "gibbs.onebit")
    model.completer_.save(tmp_path / "chosen.onebit")
    chosen = load(tmp_path / "chosen.onebit")
    np.testing.assert_array_equal(chosen.predict_proba(world.pairs), model.predict_proba(world.pairs))
    assert chosen.temperature_ == model.best_params_["temperature"]
    again = load(tmp_path / "gibbs.onebit")
    np.testing.assert_array_equal(again.predict_proba(world.pairs), model.predict_proba(world.pairs))
    assert again.best_params_ == model.best_params_
    for name in ("temperature_", "prior_choices_"):
        assert getattr(again.completer_, name) == getattr(model.completer_, name)
    again.completer_.save(tmp_path / "chosen again.onebit")
    again.fold_in([(99, column) for column in range(20)], world.answers[:20])
    assert again.predict_proba([(99, 3)])[0, 1] != pytest.approx(0.5, abs=1e-6)


def test_probabilities_of_the_gibbs_loss_are_as_sure_as_they_are_right():
    """The curve is fitted on a trial and used for the last fit, which ends at another scale of scores."""
    gaps = []
    for seed in (0, 2, 3):
        world = simulate.world("B2", rank=2, shape=(60, 50), density=0.9, seed=seed)
        held = np.random.default_rng(seed).random(len(world.answers)) < 0.45
        model = AutoCompleter(random_state=seed, sampling_seconds=0)
        model.fit(world.pairs[~held], world.answers[~held])
        assert model.best_params_["loss"] == "gibbs"
        confidence = model.confidence(world.pairs[held]).mean()
        gaps.append(confidence - model.score(world.pairs[held], world.answers[held]))
    assert abs(np.mean(gaps)) < 0.02


def test_a_model_of_the_gibbs_loss_learns_from_new_answers():
    world = simulate.world("B2", rank=2, shape=(60, 50), density=0.9, seed=2)
    part = np.random.default_rng(2).random(len(world.answers))
    first, then, last = part < 0.5, (part >= 0.5) & (part < 0.8), part >= 0.8
    model = AutoCompleter(random_state=2, sampling_seconds=0).fit(
        world.pairs[first], world.answers[first]
    )
    assert model.best_params_["loss"] == "gibbs"

    def loss():
        chance = model.predict_proba(world.pairs[last])[:, 1]
        return -np.log(np.where(world.answers[last] > 0, chance, 1 - chance)).mean()

    before = loss()
    model.partial_fit(world.pairs[then], world.answers[then])
    assert loss() < before


def test_the_gibbs_loss_is_not_tried_beside_features(small_world):
    """Nothing that is known of rows and columns goes with it."""
    ids = np.unique(small_world.pairs[:, 0])
    features = pd.DataFrame({"id": ids, "place": np.arange(float(len(ids)))})
    model = AutoCompleter(random_state=0, sampling_seconds=0)
    model.fit(small_world.pairs, small_world.answers, row_features=features)
    assert "gibbs" not in set(model.search_["loss"])


def test_it_is_not_worse_than_the_defaults_where_they_are_far_off():
    """World B1 has no noise: a higher temperature is right."""
    world = simulate.world("B1", rank=3, shape=(120, 120), density=0.3, seed=1)
    auto = AutoCompleter(random_state=0, effort="quick").fit(world.pairs, world.answers)
    plain = LogisticCompleter(random_state=0).fit(world.pairs, world.answers)
    errors = [world.error(model.complete("score").to_numpy()) for model in (auto, plain)]
    assert errors[0] < errors[1]
    assert auto.best_params_["temperature"] > 1


@pytest.fixture(scope="module")
def searched(small_world):
    """A search of the small world, and what it told of its progress."""
    seen = []
    model = AutoCompleter(random_state=0)
    return model.fit(small_world.pairs, small_world.answers, callback=seen.append), seen


def test_the_search_can_be_read(searched):
    model, seen = searched
    table = model.search_
    assert set(model.best_params_) | {"log_loss", "accuracy", "rounds", "chosen"} == set(table)
    assert np.isfinite(table["log_loss"]).all()
    best = model.best_params_ | {name: model.best_params_[name] or "no" for name in ("sparse", "pattern")}
    (chosen,) = table[table["chosen"]][list(best)].to_dict(orient="records")
    assert chosen == best
    assert len(seen) >= len(table)


def test_a_search_costs_about_ten_plain_fits():
    rng = np.random.default_rng(0)
    world = simulate.world("B3", rank=4, shape=(400, 300), density=0.35, seed=0)
    weights = rng.random(len(world.answers)) < 0.95
    plain = LogisticCompleter(random_state=0).fit(world.pairs[weights], world.answers[weights])
    auto = AutoCompleter(random_state=0).fit(world.pairs[weights], world.answers[weights])
    rounds = auto.search_["rounds"].sum() * 0.85 + auto.completer_.n_iter_
    assert rounds <= 14 * plain.n_iter_


def test_too_few_answers_to_choose_by_leave_the_defaults():
    model = AutoCompleter(random_state=0).fit([(0, 0), (1, 1), (0, 1)], [1, 0, 1])
    assert model.best_params_["loss"] == "logistic"
    assert len(model.search_) == 0


def test_a_seed_repeats_the_search(small_world, searched):
    one, two = searched[0], AutoCompleter(random_state=0).fit(small_world.pairs, small_world.answers)
    assert one.search_.equals(two.search_)
    np.testing.assert_array_equal(one.posterior_.rows.mean, two.posterior_.rows.mean)


def test_on_noise_the_reported_log_loss_is_not_better_than_guessing():
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(12):
        pairs, answers = rng.integers(0, 12, (80, 2)), rng.integers(0, 2, 80)
        settings = {"losses": ("logistic", "hinge"), "sampling_seconds": 5, "n_samples": 5}
        table = AutoCompleter(random_state=0, **settings).fit(pairs, answers).search_
        assert "sampling" in set(table["inference"])
        losses.append(table.groupby("loss")["log_loss"].mean())
    mean = pd.concat(losses, axis=1).mean(axis=1)
    assert mean["hinge"] > np.log(2) - 0.01
    assert mean["logistic"] > np.log(2) - 0.01


def test_the_exact_posterior_is_kept_where_it_wins(tmp_path):
    world = simulate.world("B3", rank=3, shape=(150, 120), density=0.25, seed=1)
    model = AutoCompleter(losses=["logistic"], effort="quick", random_state=0).fit(
        world.pairs, world.answers
    )
    tried = model.search_[model.search_["inference"] == "sampling"]
    assert len(tried) >= 1
    assert tried["rank"].is_monotonic_increasing
    others = model.search_[model.search_["inference"] != "sampling"]["log_loss"].min()
    assert (tried["log_loss"].iloc[0] < others) or model.best_params_["inference"] == "variational"
    if model.best_params_["inference"] == "sampling":
        assert model.completer_.is_sampled
        assert model.predict_interval(world.pairs[:3]).shape == (3, 2)
    model.save(tmp_path / "auto.onebit")
    again = load(tmp_path / "auto.onebit")
    assert (again.predict_proba(world.pairs[:9]) == model.predict_proba(world.pairs[:9])).all()


def test_nothing_is_sampled_beyond_the_stated_seconds(small_world):
    for seconds in (0, 0.01):
        model = AutoCompleter(losses=["logistic"], random_state=0, sampling_seconds=seconds)
        model.fit(small_world.pairs, small_world.answers)
        assert set(model.search_["inference"]) == {"variational"}
    with pytest.raises(ValueError, match="effort must be one of 'quick', 'default', 'thorough'"):
        AutoCompleter(effort="much").fit(small_world.pairs, small_world.answers)
    with pytest.raises(ValueError, match="sampling_seconds must be a positive finite number"):
        AutoCompleter(sampling_seconds=-1).fit(small_world.pairs, small_world.answers)


def test_an_effort_buys_sweeps_by_a_reckoning_that_grows_with_the_table_and_the_rank():
    quick, thorough = (Budget(*EFFORTS[name]) for name in ("quick", "thorough"))
    shape, n = (2000, 1500), 100_000
    assert quick.sweep(shape, n, 20) > 1.3 * quick.sweep(shape, n, 10)
    assert quick.sweep(shape, 10 * n, 10) > 3 * quick.sweep(shape, n, 10)
    assert Budget(1.0, 5, on_gpu=True).sweep(shape, 10**8, 10) < 0.01 * quick.sweep(shape, 10**8, 10)
    few, many = (budget.plan(shape, n, 10, 2.0) for budget in (quick, thorough))
    for budget, plan in ((quick, few), (thorough, many)):
        assert plan.n_chains * plan.sweeps * budget.sweep(shape, n, 10) <= budget.seconds
        assert plan.settle == "auto"
    assert few.n_chains * few.n_samples < many.n_chains * many.n_samples
    assert (few.n_chains, many.n_chains) == (2, 4)  # fewer chains rather than shorter ones
    # Two chains may be all, and what a third core does for them is not reckoned.
    assert [quick.sentence(20.0, cores).split(" s ")[0].split()[-1] for cores in (1, 2, 64)] == [
        "20", "10", "10",
    ]  # fmt: skip
    tiny = quick.plan((50, 40), 1500, 10, 2.0)
    assert (tiny.n_chains, tiny.n_samples) == (4, 200)  # and not fewer where they would be no longer
    assert quick.plan(shape, n, 40, 18.0).n_chains == 1
    asked = Budget(12.0, 200, n_samples=7, n_chains=3, n_burn_in=1).plan(shape, n, 10, 0.0)
    assert (asked.n_samples, asked.n_chains, asked.n_burn_in, asked.settle) == (7, 3, 1, None)


def test_chains_are_four_where_these_are_long_and_two_where_not():
    shape, n = (400, 300), 20_000
    counts = set()
    for seconds in np.geomspace(1, 2000):
        budget = Budget(seconds, 3000)
        plan = budget.plan(shape, n, 10, 0.0)
        counts.add(plan.n_chains)
        sweeps = int(seconds / budget.sweep(shape, n, 10))
        assert (plan.n_chains == 4) == (sweeps // 4 >= LONG)
        if plan.n_chains == 1:  # two would be shorter than is worth its name
            assert sweeps // 2 < plan.n_burn_in + FEWEST
    assert counts == {1, 2, 4}  # three would leave one of two cores idle in every second step
    assert Budget(20.0, 200).plan((50, 40), 1500, 10, 0.0).n_chains == 4  # all that the effort allows
    assert Budget(200.0, 3000, n_samples=9).plan((50, 40), 1500, 10, 0.0).n_chains == 4


def test_an_effort_is_reckoned_for_the_architecture_of_the_machine(monkeypatch):
    found = {}
    for machine in ("aarch64", "arm64", "x86_64", "AMD64"):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        found[machine] = Budget(1.0, 5).sweep((2000, 1500), 100_000, 10)
    assert found["aarch64"] == found["arm64"]
    assert found["x86_64"] == found["AMD64"] < found["arm64"]


def test_a_checkpoint_is_of_the_architecture_that_its_chains_were_reckoned_for(monkeypatch):
    found = []
    for machine in ("aarch64", "x86_64"):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        found.append(fit_identity(AutoCompleter(random_state=0), None))
    assert found[0] != found[1]
    assert found[1] == fit_identity(AutoCompleter(random_state=0, n_jobs=2), None)


def test_the_plain_completer_is_always_tried_with_effects_and_pattern(small_world):
    model = AutoCompleter(losses=["logistic"], random_state=0, sampling_seconds=0)
    model.fit(small_world.pairs, small_world.answers)
    tried = model.search_
    assert not tried["effects"][tried["chosen"]].any()  # the world has none, so that the walk leaves them
    wanted = {"loss": "logistic", "rank": 10, "temperature": 1.0, "effects": True, "pattern": "both"}
    assert (tried[list(wanted)] == list(wanted.values())).all(axis=1).any()


def test_what_was_asked_for_of_chains_is_not_used_with_weights_and_the_reason_is_said(small_world):
    model = AutoCompleter(losses=["logistic"], random_state=0, n_samples=9)
    weights = np.ones(len(small_world.answers))
    with pytest.warns(ConvergenceWarning, match="nothing was sampled, since the answers have weights"):
        model.fit(small_world.pairs, small_world.answers, weights)


@pytest.mark.parametrize(
    ("budget", "gain", "rank"),
    [
        pytest.param(Budget(20_000.0, 3000), 0.002, 40, id="chains are long"),
        pytest.param(
            Budget(200.0, 3000), 0.002, 10, id="higher ranks shorten them, and little is gained"
        ),
        pytest.param(Budget(200.0, 3000), 0.05, 40, id="higher ranks shorten them, and much is gained"),
        pytest.param(Budget(20_000.0, 3000), -0.002, 10, id="nothing is gained"),
        pytest.param(Budget(20_000.0, 200), 0.002, 40, id="chains are as short at every rank"),
        pytest.param(Budget(200.0, 3000, n_samples=9), 0.002, 40, id="their length was asked for"),
    ],
)
def test_higher_ranks_that_leave_chains_short_are_kept_only_where_they_gain_much(
    small_world, monkeypatch, budget, gain, rank
):
    losses = 0.4 + 0.1 * np.random.default_rng(0).random(500)

    def trial(search, recipe, warm, settle=False):
        scored = losses * (1.0 - gain) ** (RANKS.index(recipe.rank) + 1)
        return Trial(recipe, scored, np.ones(500), 0.7, 0, (), None)

    monkeypatch.setattr(Search, "trial", trial)
    seen = Observations.from_pairs(small_world.pairs, small_world.answers)
    search = Search(seen, np.random.default_rng(0), Cpu(), None, budget=budget)
    search.shape, search.n = (2500, 17_000), 240_000
    begin = Trial(FIRST, 2.0 * losses, np.ones(500), 0.7, 0, (), None)
    assert search.sampled(begin).recipe.rank == rank


@pytest.mark.parametrize(("ahead", "ranks"), [(0.05, [10]), (0.001, list(RANKS))])
def test_higher_ranks_are_sampled_only_where_the_first_comes_close_to_the_best(
    small_world, monkeypatch, ahead, ranks
):
    losses, tried = 0.4 + 0.1 * np.random.default_rng(0).random(500), []

    def trial(search, recipe, warm, settle=False):
        tried.append(recipe.rank)
        return Trial(recipe, losses / len(tried), np.ones(500), 0.7, 0, (), None)

    monkeypatch.setattr(Search, "trial", trial)
    seen = Observations.from_pairs(small_world.pairs, small_world.answers)
    search = Search(seen, np.random.default_rng(0), Cpu(), None, budget=Budget(20_000.0, 3000))
    search.shape = (2500, 17_000)
    best = Trial(FIRST, losses - ahead, np.ones(500), 0.7, 0, (), None)
    assert (search.sampled(best) is best) == (len(ranks) == 1)
    assert tried == ranks


def test_chains_of_the_last_fit_can_be_asked_for(small_world, monkeypatch):
    monkeypatch.setattr("onebit.completers.search.Search.sampled", sampled_anyway)
    model = AutoCompleter(losses=["logistic"], random_state=0, n_samples=9, n_chains=2, n_burn_in=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(small_world.pairs, small_world.answers)
    assert (model.completer_.n_sweeps_, model.completer_.n_draws_) == (12, 18)


def test_draws_that_were_asked_for_and_not_taken_are_spoken_of(small_world, monkeypatch):
    monkeypatch.setattr("onebit.completers.search.Search.sampled", lambda search, best: best)
    settings = {"losses": ["logistic"], "pattern": None, "n_samples": 9, "random_state": 0}
    model = AutoCompleter(**settings)
    assert model.effort_words() == "9 draws of each chain, however long they take, if sampling pays"
    with pytest.warns(ConvergenceWarning, match="nothing was sampled, since a variational model was"):
        model.fit(small_world.pairs, small_world.answers)
    model = AutoCompleter(**settings, sampling_seconds=0)
    with pytest.warns(ConvergenceWarning, match="nothing was sampled, since sampling_seconds is 0"):
        model.fit(small_world.pairs, small_world.answers)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({}, 'Set effort="thorough"'),
        ({"effort": "quick"}, 'Set effort="default"'),
        ({"effort": "thorough"}, "Raise sampling_seconds"),
        ({"sampling_seconds": 9.0}, "Raise sampling_seconds"),
        ({"n_samples": 9}, "Raise n_samples"),
    ],
)
def test_the_remedy_for_chains_that_have_not_mixed_is_one_that_helps(settings, remedy):
    assert AutoCompleter(**settings)._longer().startswith(remedy)


def sampled_anyway(search, best):
    return search.trial(sampled_recipe(best.recipe), None)


def test_a_choice_that_lost_to_the_plain_logistic_model_is_not_kept(small_world):
    seen = Observations.from_pairs(small_world.pairs, small_world.answers)
    search = Search(seen, np.random.default_rng(0), Cpu(), None, pattern=False)
    plain = search.trial(FIRST, None)
    worse = replace(plain, losses=plain.losses + 0.1, recipe=replace(FIRST, loss=HINGE))
    assert search.defended(worse) is plain
    better = replace(plain, losses=plain.losses - 0.1, recipe=replace(FIRST, loss=HINGE))
    assert search.defended(better) is better
