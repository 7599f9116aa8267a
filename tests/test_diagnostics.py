"""How well chains have mixed, in numbers as the field has them and in words that can be acted on."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from arviz_stats.base import array_stats
from sklearn.exceptions import ConvergenceWarning

from onebit import AutoCompleter, LogisticCompleter, simulate
from onebit.model.diagnostics import Diagnostics, Mixing, sampling_words
from onebit.model.priors import InverseGamma
from onebit.report.summary import summary


def test_the_halves_of_a_chain_are_not_halved_twice():
    """A drift over four quarters that two halves show less than four quarters would."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2, 200, 3)) + np.linspace(0, 1, 200)[:, None]
    table = Diagnostics(("a", "b", "c"), values).table()
    np.testing.assert_allclose(table["rhat"], array_stats.rhat(values, chain_axis=0, draw_axis=1))
    alone = Diagnostics(("a", "b", "c"), values[:1]).table()["rhat"]
    assert (alone > 1.02).all()  # one chain suffices to see the drift
    for kind, more in (("bulk", {}), ("tail", {"prob": (0.05, 0.95)})):
        expected = array_stats.ess(values, chain_axis=0, draw_axis=1, method=kind, **more)
        np.testing.assert_allclose(table[f"ess_{kind}"], expected)


def stand_in(rhat, ess, tail=5000.0, **parts):
    table = pd.DataFrame(
        {"mean": 0.0, "sd": [1.0, 2.0], "rhat": [1.0, rhat], "ess_bulk": [5000.0, ess], "ess_tail": tail},
        index=["loss", "mean score"],
    )
    settings = {
        "n_chains": 1,
        "n_samples": 200,
        "settle": None,
        "n_sweeps_": 220,
        "rank": 5,
        "n_draws_": 200,
        "n_iter_": 9,
        "loss_error_": 1e-4,
        "diagnostics_": table,
    }
    return SimpleNamespace(draws_=SimpleNamespace(count=200), **settings | parts)


@pytest.mark.parametrize(
    ("rhat", "ess", "tail", "verdict"),
    [
        (1.01, 400.0, 400.0, "mixed"),
        (1.0101, 400.0, 400.0, "roughly mixed"),
        (1.0, 399.0, 400.0, "roughly mixed"),
        (1.0, 400.0, 399.0, "roughly mixed"),
        (1.051, 400.0, 400.0, "not mixed"),
        (1.0, 99.0, 400.0, "not mixed"),
        (1.0, 400.0, 99.0, "not mixed"),
        (np.nan, np.nan, np.nan, "unknown"),
    ],
)
def test_the_verdict_on_chains_is_the_fields_and_can_be_acted_on(rhat, ess, tail, verdict):
    model = stand_in(rhat, ess, tail)
    mixing = Mixing.of(model.diagnostics_)
    assert mixing.verdict == verdict
    words = " ".join(sampling_words(model))
    assert ("n_chains=4, n_samples=" in words) == (verdict != "mixed")
    assert bool(mixing.advice("Raise n_samples")) == (verdict in ("not mixed", "unknown"))


def test_how_far_effects_may_move_is_two_monte_carlo_errors_of_what_they_share():
    mixing = Mixing.of(stand_in(1.4, 16.0).diagnostics_)
    assert mixing.movement == pytest.approx(2 * 2.0 / 4.0)
    assert "may move by up to about 1 from run to run" in " ".join(mixing.sentences())
    assert mixing.predictions  # the loss has mixed


def test_what_to_fit_instead_is_named_where_a_search_chose_to_sample():
    search = SimpleNamespace(completer_=stand_in(1.3, 10.0, pattern=None))
    words = sampling_words(search)[-1]
    assert "(rank=5, pattern=None, inference=" in words
    assert "in place of SimpleNamespace" in words


@pytest.mark.parametrize("most", [200, 5000])
def test_how_many_draws_would_do_is_reckoned_from_those_that_were_made(most):
    # Two hundred draws of an effective size of 8: fifty times as many, shared out among four chains.
    model = stand_in(1.3, 8.0, n_samples=most, settle="auto")
    assert "n_chains=4, n_samples=2500, settle=None (in the shell" in sampling_words(model)[-1]


@pytest.fixture(scope="module")
def world():
    return simulate.world("B3", rank=1, shape=(60, 20), density=0.9, seed=0)


@pytest.mark.parametrize("mixes", [True, False])
def test_auto_lets_chains_go_on_until_they_have_settled_and_else_says_so(world, mixes, monkeypatch):
    for name in ("ROUGH_RHAT", "SETTLED_RHAT"):
        monkeypatch.setattr(f"onebit.model.diagnostics.{name}", 99.0 if mixes else 0.5)
    monkeypatch.setattr("onebit.model.diagnostics.ROUGH_ESS", 1.0)
    monkeypatch.setattr("onebit.completers.trials.Trial.log_loss", property(lowest_if_sampled))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = AutoCompleter(random_state=0, effort="quick").fit(world.pairs, world.answers)
    part = model.completer_
    assert part.settled_ == mixes
    assert part.n_sweeps_ - part.n_burn_in == (100 if mixes else 200)
    told = summary(model)
    assert told["mixing"] == ("roughly mixed" if mixes else "not mixed")
    assert told["sampling"].startswith("Sampled: ")
    said = [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert any("have not mixed" in text and 'effort="default"' in text for text in said) != mixes


@pytest.mark.parametrize("tried", [True, False])
def test_a_search_that_keeps_a_variational_model_says_what_it_saw_of_sampling(world, tried):
    model = LogisticCompleter(1, random_state=0).fit(world.pairs, world.answers)
    lines = [("variational", 0.5, False), ("variational", 0.41, True)]
    lines += [("sampling", 0.43, False), ("sampling", 0.42, False)] if tried else []
    table = pd.DataFrame(lines, columns=["inference", "log_loss", "chosen"])
    words = " ".join(sampling_words(SimpleNamespace(completer_=model, search_=table)))
    assert words.startswith("Not sampled: ")
    assert ("log-loss was 0.4200, that of what it keeps 0.4100" in words) == tried
    assert ("did not try to sample" in words) != tried


def lowest_if_sampled(trial):
    return 0.0 if trial.recipe.sampling is not None else 1.0


def test_a_variational_model_refuses_intervals_that_it_cannot_hold(world):
    model = LogisticCompleter(1, random_state=0).fit(world.pairs, world.answers)
    with pytest.raises(ValueError, match="too narrow for credible intervals"):
        model.predict_interval(world.pairs[:3])
    ends = model.predict_interval(world.pairs[:3], approximate=True)
    assert (ends[:, 0] < ends[:, 1]).all()
    assert "Not sampled" in summary(model)["sampling"]


def test_sampled_intervals_hold_the_truth_as_often_as_they_say_and_variational_ones_do_not():
    """Worlds drawn from the model itself: variances and factors from their prior, logistic answers."""
    prior, held, narrow = InverseGamma(3.0, 2.0), [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        variance = 2.0 / rng.gamma(3.0, size=2)
        left, right = (rng.normal(0.0, np.sqrt(variance), (size, 2)) for size in (40, 30))
        score = left @ right.T
        answers = rng.random(score.shape) < 1 / (1 + np.exp(-score))
        seen = rng.random(score.shape) < 0.6
        settings = {"prior": prior, "effects": False, "random_state": seed}
        chain = {"n_samples": 250, "n_burn_in": 50, "n_chains": 1}
        exact = LogisticCompleter(2, **settings, inference="sampling", **chain)
        for model, coverage in ((exact, held), (LogisticCompleter(2, **settings), narrow)):
            model.fit(np.argwhere(seen), answers[seen])
            # Every row and column has answers here, so codes are places.
            ends = model.predict_interval(np.argwhere(~seen), 0.9, approximate=True)
            coverage.append(np.mean((ends[:, 0] <= score[~seen]) & (score[~seen] <= ends[:, 1])))
    assert abs(np.mean(held) - 0.9) < 0.02  # within two points of nominal
    assert 0.5 < np.mean(narrow) < 0.8  # which is why the other one refuses


def test_predicted_answers_and_probabilities_of_draws_agree(world):
    sampled = LogisticCompleter(3, inference="sampling", n_samples=60, n_chains=1, random_state=0)
    sampled.fit(world.pairs, world.answers, certify=0.1)
    pairs = world.all_pairs
    yes = sampled.predict_proba(pairs)[:, 1] > 0.5
    rows, columns = sampled._codes(pairs)
    assert (np.sign(sampled._scores(rows, columns)) > 0).tolist() != yes.tolist()  # means would not
    assert ((sampled.predict(pairs) == sampled.classes_[1]) == yes).all()
    assert ((sampled.decision_function(pairs) > 0) == yes).all()
    assert (sampled.predictions(rows, columns).yes == yes).all()
    assert (sampled.confidence(pairs) >= 0.5).all()
