"""What the blanks tell: the pattern of answers as a part of the model."""

import json
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss as sklearn_log_loss

import onebit
from onebit import (
    AutoCompleter,
    GibbsCompleter,
    HingeCompleter,
    LogisticCompleter,
    Observations,
    simulate,
)
from onebit.completers.search import FIRST, Search
from onebit.data.checked import FileError
from onebit.engine.workers import Cpu
from onebit.model.draws import Draws


def telling_world(seed, rows=200, columns=60, answers=8, first=0):
    """A world in which presence alone tells the answer.

    Rows are of two kinds. A kind answers the columns of its own half of the first forty mostly, by the
    toss of a coin; on the last twenty columns, which both answer, the kinds disagree.
    """
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, rows)
    pairs, signs = [], []
    for i in range(rows):
        own = 20 * kind[i] + rng.permutation(20)[: answers - 2]
        for j in [*own, *(40 + rng.permutation(columns - 40)[:2])]:
            pairs.append((first + i, int(j)))
            signs.append(int(rng.integers(0, 2)) if j < 40 else int(kind[i]))
    return np.array(pairs), np.array(signs), kind


@pytest.fixture(scope="module")
def world():
    return telling_world(0)


def log_loss(model, pairs, answers):
    return sklearn_log_loss(answers, model.predict_proba(pairs))


@pytest.mark.parametrize("kind", [LogisticCompleter, HingeCompleter])
@pytest.mark.parametrize("inference", ["variational", "sampling"])
def test_presence_tells_what_answers_do_not(world, kind, inference):
    pairs, answers, _ = world
    test = np.arange(len(answers)) % 8 == 7  # one of the two answers of each row that tell of it
    fitted = {}
    for pattern in ("both", None):
        model = kind(2, pattern=pattern, inference=inference, random_state=0)
        model.fit(pairs[~test], answers[~test])
        fitted[pattern] = model.score(pairs[test], answers[test])
    assert fitted["both"] > 0.9
    assert fitted["both"] > fitted[None] + 0.02


@pytest.mark.parametrize("side", ["rows", "columns"])
def test_each_side_may_have_a_pattern_of_its_own(world, side):
    pairs, answers, _ = world
    model = LogisticCompleter(2, pattern=side).fit(pairs, answers)
    there = [part is not None for part in model.posterior_.hierarchy.regressions]
    assert there == [side == "rows", side == "columns"]


@pytest.mark.parametrize("make", [LogisticCompleter, AutoCompleter])
def test_held_out_answers_do_not_enter_the_pattern(world, make):
    """A model that holds answers out is the one that never had them, presence included."""
    pairs, answers, _ = world
    settings = {"sampling_seconds": 0} if make is AutoCompleter else {}
    model = make(random_state=0, **settings).fit(pairs, answers, certify=0.3)
    held = model.held_out_
    gone = {(int(r), int(c)) for r, c in zip(held.rows, held.columns, strict=True)}
    codes = zip(model.rows_.encode(pairs[:, 0]), model.columns_.encode(pairs[:, 1]), strict=True)
    kept = np.array([(int(r), int(c)) not in gone for r, c in codes])
    assert 0.2 < 1 - kept.mean() < 0.4
    alone = make(random_state=0, **settings).fit(pairs[kept], answers[kept])
    asked = pairs[kept][:200]
    np.testing.assert_allclose(model.predict_proba(asked), alone.predict_proba(asked), atol=1e-9)


def test_the_search_does_not_see_the_pattern_of_what_it_scores(world):
    """Its held-out log-loss is that of answers that were never there."""
    pairs, answers, _ = world
    seen = Observations.from_pairs(pairs, answers)
    search = Search(seen, np.random.default_rng(0), Cpu(), None)
    from dataclasses import replace

    recipe = replace(FIRST, pattern="both")
    for number, (kept, _) in enumerate(search.splits):
        known = search.known(number, recipe)
        own = known.placings[0].coordinates(kept.by_row)
        np.testing.assert_allclose(known.values[0], own, atol=1e-4)
        assert np.abs(own - known.placings[0].coordinates(seen.by_row)).max() > 0.05


@pytest.mark.parametrize("inference", ["variational", "sampling"])
def test_a_new_row_is_known_by_its_own_pattern(world, inference, tmp_path):
    """Its answers are tosses of a coin: only which columns it answered tells its kind."""
    pairs, answers, _ = world
    model = LogisticCompleter(2, inference=inference, n_samples=100, random_state=0).fit(pairs, answers)
    model.save(tmp_path / "m.onebit")
    again = onebit.load(tmp_path / "m.onebit")
    new = [(1000 + kind, 20 * kind + j) for kind in (0, 1) for j in range(6)]
    coin = [0, 1] * 6
    asked = [(1000 + kind, j) for kind in (0, 1) for j in range(40, 60)]
    probability = model.fold_in(new, coin).predict_proba(asked)[:, 1].reshape(2, 20)
    assert probability[0].mean() < 0.25
    assert probability[1].mean() > 0.75
    np.testing.assert_array_equal(
        again.fold_in(new, coin).predict_proba(asked)[:, 1], probability.ravel()
    )


def test_a_folded_in_row_does_not_disturb_the_columns_to_come(world):
    pairs, answers, _ = world
    model = LogisticCompleter(2, random_state=0).fit(pairs, answers)
    model.fold_in([(1000, 0), (1000, 41)], [0, 1])
    model.fold_in([(0, 999), (1, 999), (1000, 999)], [1, 0, 1])
    assert np.isfinite(model.predict_proba([(1000, 999), (5, 999)])).all()


def test_weights_are_repeats_and_an_entry_counts_once_in_the_pattern(world):
    pairs, answers, _ = world
    twice = np.arange(len(answers)) % 3 == 0
    weight = np.where(twice, 2.0, 1.0)
    weighted = LogisticCompleter(2, pattern="both", random_state=0).fit(pairs, answers, weight)
    repeated = LogisticCompleter(2, pattern="both", random_state=0).fit(
        np.concatenate([pairs, pairs[twice]]), np.concatenate([answers, answers[twice]])
    )
    for side in (0, 1):
        ours, theirs = (model.posterior_.placings[side].loading for model in (weighted, repeated))
        np.testing.assert_array_equal(ours, theirs)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=0.05)


def test_a_pattern_that_tells_nothing_is_let_go():
    """Entries blank at random: with the pattern a fit is no worse than without it."""
    losses = []
    for seed in range(6):
        world = onebit.simulate.world("B2", rank=2, shape=(80, 60), density=0.4, seed=seed)
        test = np.random.default_rng(seed).random(len(world.answers)) < 0.2
        losses.append(
            [
                log_loss(
                    LogisticCompleter(4, pattern=pattern, random_state=0).fit(
                        world.pairs[~test], world.answers[~test]
                    ),
                    world.pairs[test],
                    world.answers[test],
                )
                for pattern in ("both", None)
            ]
        )
    with_it, without = np.array(losses).T
    assert (with_it - without).mean() < 0.003


def test_auto_keeps_the_pattern_where_it_wins(world):
    pairs, answers, _ = world
    model = AutoCompleter(random_state=0, sampling_seconds=0).fit(pairs, answers)
    assert model.best_params_["pattern"] == "both"
    assert set(model.search_["pattern"]) == {"both", "no"}
    without = AutoCompleter(random_state=0, sampling_seconds=0, pattern=None).fit(pairs, answers)
    assert without.best_params_["pattern"] is None


def test_a_stopped_fit_goes_on_to_the_same_model(world, tmp_path):
    pairs, answers, _ = world
    settings = {"rank": 2, "inference": "sampling", "n_samples": 30, "random_state": 0}
    whole = LogisticCompleter(**settings).fit(pairs, answers)
    for stop in (12, 60):
        told = []

        def stopping(progress, told=told, stop=stop):
            told.append(progress)
            if len(told) == stop:
                raise KeyboardInterrupt

        folder = tmp_path / str(stop)
        with pytest.raises(KeyboardInterrupt):
            LogisticCompleter(**settings).fit(pairs, answers, checkpoint=folder, callback=stopping)
        resumed = LogisticCompleter(**settings).fit(pairs, answers, checkpoint=folder)
        np.testing.assert_array_equal(resumed.predict_proba(pairs), whole.predict_proba(pairs))


def test_certificates_of_a_posterior_with_the_pattern_are_refused_with_the_reason(world):
    pairs, answers, _ = world
    model = LogisticCompleter(2, random_state=0).fit(pairs, answers, certify=0.2)
    assert model.certify().bound < 1.0
    assert not {"theorem-1", "catoni", "pac-bayes-kl"} & set(model.certificate_methods())
    with pytest.raises(ValueError, match="depend on which entries were answered"):
        model.certify(method="pac-bayes-kl")
    with pytest.raises(ValueError, match="pattern=None"):
        model.draw(0)


def test_what_has_no_pattern_says_so():
    with pytest.raises(ValueError, match='method="paper" knows no pattern'):
        HingeCompleter(2, method="paper", pattern="both").fit([(0, 0), (1, 1)], [1, 0])
    with pytest.raises(ValueError, match="pattern"):
        LogisticCompleter(2, pattern="diagonal").fit([(0, 0), (1, 1)], [1, 0])
    assert not hasattr(GibbsCompleter(), "pattern")
    model = LogisticCompleter(2, sparse="rows", pattern="both").fit([(0, 0), (1, 1), (0, 1)], [1, 0, 1])
    assert model.posterior_.hierarchy.regressions[0] is None


def test_draws_that_spread_by_less_than_nothing_are_refused():
    world = simulate.world("B1", rank=2, shape=(30, 20), density=0.4, seed=0)
    model = LogisticCompleter(
        2, inference="sampling", pattern="both", n_samples=10, n_chains=1, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tensors, content = model.fit(world.pairs, world.answers).draws_.state()
    content = json.loads(json.dumps(content))
    assert Draws.from_state(tensors, content).count == 10
    with pytest.raises(FileError, match="row_spread"):
        Draws.from_state(tensors | {"draws.row_spread": -tensors["draws.row_spread"]}, content)


def test_directions_do_not_hang_on_the_signs_of_eigenvectors(world, monkeypatch):
    seen, hierarchy = Observations.from_pairs(*world[:2]), FIRST.hierarchy((200, 60))
    before = Cpu().known(seen, hierarchy, True, (True, True))
    eigh = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: (eigh(matrix)[0], -eigh(matrix)[1]))
    after = Cpu().known(seen, hierarchy, True, (True, True))
    for one, other in zip(before.values, after.values, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
