"""Entries that are answered again and again: nothing is predicted from its own repeats."""

import numpy as np
import pytest

from onebit import (
    AutoCompleter,
    GibbsCompleter,
    HingeCompleter,
    LogisticCompleter,
    Observations,
    simulate,
)
from onebit.completers import evaluation, gibbs
from onebit.completers.evaluation import evaluate
from onebit.completers.search import Search
from onebit.data.holding import Cut
from onebit.engine.fitting import held_for_calibration
from onebit.engine.workers import Cpu


@pytest.fixture(scope="module")
def thrice():
    """Return a world whose answers were given three times."""
    world = simulate.world("B2", rank=2, shape=(30, 20), density=0.6, seed=0)
    return np.repeat(world.pairs, 3, axis=0), np.repeat(world.answers, 3)


def apart(fitted, rows, columns):
    """Say whether no entry is on both sides, and both have some."""
    own = set(zip(fitted.by_row.owners().tolist(), fitted.by_row.index.tolist(), strict=True))
    others = set(zip(rows.tolist(), columns.tolist(), strict=True))
    return bool(own) and bool(others) and not own & others


def test_folds_are_of_whole_entries_in_even_parts(thrice, monkeypatch):
    seen, folds = Observations.from_pairs(*thrice), []
    predicted = evaluation._predicted

    def spy(method, train, test):
        folds.append((apart(train, test.rows, test.columns), len(test.sign)))
        return predicted(method, train, test)

    monkeypatch.setattr(evaluation, "_predicted", spy)
    evaluate(LogisticCompleter(0, random_state=0), seen, 4)
    assert all(whole for whole, _ in folds)
    sizes = {size for _, size in folds}
    assert max(sizes) - min(sizes) <= 3


def test_a_search_holds_whole_entries_out(thrice):
    seen = Observations.from_pairs(*thrice)
    search = Search(seen, np.random.default_rng(0), Cpu(), None)
    assert search.usable
    entries = np.concatenate([held.rows * 20 + held.columns for _, held in search.splits])
    assert not set(entries[search.half]) & set(entries[~search.half])
    assert search.half.mean() == pytest.approx(0.5, abs=0.02)
    for fitted, held in search.splits:
        assert apart(fitted, held.rows, held.columns)


def test_curves_are_fitted_to_whole_entries(thrice, monkeypatch):
    seen = Observations.from_pairs(*thrice)
    held = held_for_calibration(seen, np.random.default_rng(0))
    rows, columns = seen.by_row.owners()[held], seen.by_row.index[held]
    assert apart(seen.take(~held), rows, columns)
    fitted = []
    optimise = gibbs.optimise

    def spy(*arguments, observations, **others):
        fitted.append(observations)
        return optimise(*arguments, observations=observations, **others)

    monkeypatch.setattr(gibbs, "optimise", spy)
    GibbsCompleter(1, temperature=1.0, max_iter=3, calibrate=True, random_state=0).fit(*thrice)
    first, everything = fitted
    assert first.n < everything.n == seen.n
    assert first.n == 3 * len(np.unique(first.entry_numbers()))


@pytest.mark.parametrize("entries", [1, 2, 3, 6])
@pytest.mark.parametrize(
    "model",
    [
        AutoCompleter(effort="quick", random_state=0),
        HingeCompleter(1, random_state=0),
        GibbsCompleter(1, calibrate=True, random_state=8),
    ],
    ids=["auto", "hinge", "gibbs"],
)
def test_few_entries_answered_again_and_again_are_fitted(model, entries):
    pairs = np.stack([np.arange(150) % entries, np.zeros(150, int)], axis=1)
    answers = np.random.default_rng(0).random(150) < 0.75
    chance = model.fit(pairs, answers).predict_proba(pairs[:entries])[:, 1]
    assert ((chance > 0.5) & (chance < 1.0)).all()


@pytest.mark.parametrize(
    ("entries", "said"),
    [(3, "400 answers of 3 entries are too few"), (9, "400 answers of 9 entries can be cut into 2 to 4")],
)
def test_an_evaluation_asks_for_enough_entries(entries, said):
    pairs = np.stack([np.arange(400) % entries, np.zeros(400, int)], axis=1)
    with pytest.raises(ValueError, match=said):
        evaluate(LogisticCompleter(0), Observations.from_pairs(pairs, np.arange(400) % 3 > 0), 5)


def test_a_cut_of_whole_entries_takes_all_their_answers(thrice):
    seen = Observations.from_pairs(*thrice)
    held = Cut(7, np.uint64(2**62), whole=True).marks(seen)
    assert apart(seen.take(~held), seen.by_row.owners()[held], seen.by_row.index[held])
    assert held.mean() == pytest.approx(0.25, abs=0.1)
    single = Cut(7, np.uint64(2**62)).marks(seen)
    assert not apart(seen.take(~single), seen.by_row.owners()[single], seen.by_row.index[single])


def test_what_is_said_of_blanks_names_what_repeats_may_hide():
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((60, 50)) < 0.7)
    answers = np.where(rng.random(len(pairs)) < 0.7, 1, -1)
    clause = "how often one was answered says nothing of how hard it is"
    once = LogisticCompleter(1, random_state=0).fit(pairs, answers, certify=0.3)
    assert clause not in str(once.certify())
    assert "answered more often" not in once.keep(0.5).caution
    twice = LogisticCompleter(1, random_state=0).fit(
        np.concatenate([pairs, pairs[:300]]), np.append(answers, answers[:300]), certify=0.3
    )
    said = str(twice.certify())
    assert "of the blanks of this table alone" in said
    assert f"drawn evenly at random, and {clause}" in said
    assert f"assumes: of entries without an answer, {clause}" in said
    assert "answered more often" in twice.keep(0.5).caution
