"""New answers for a fitted model: the posterior is their prior, and nobody else moves."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import onebit
from onebit import (
    AutoCompleter,
    GibbsCompleter,
    HingeCompleter,
    LogisticCompleter,
    NuclearNormCompleter,
    simulate,
)
from onebit.engine.sampling import update as sampled_update
from onebit.report.summary import summary

GRID = np.linspace(-12.0, 12.0, 4001)


def log_loss(model, pairs, answers):
    yes = np.clip(model.predict_proba(pairs)[:, 1], 1e-6, 1 - 1e-6)
    return float(-np.log(np.where(answers > 0, yes, 1 - yes)).mean())


@pytest.fixture(scope="module")
def stream():
    """A world whose answers come in order: 70 % to fit, 20 % to update with, 10 % to judge by."""
    world = simulate.world("B3", rank=2, shape=(150, 120), density=0.5, seed=3)
    order = np.random.default_rng(0).permutation(len(world.answers))
    # The last rows and columns have no answer in the first part.
    late = (world.pairs[order, 0] >= 140) | (world.pairs[order, 1] >= 115)
    order = np.concatenate([order[~late], order[late]])
    pairs, answers = world.pairs[order], world.answers[order]
    first = int((~late).sum()) - 1500
    rest = np.random.default_rng(1).permutation(len(answers) - first) + first
    cut = 2 * len(rest) // 3
    return [(pairs[part], answers[part]) for part in (np.arange(first), rest[:cut], rest[cut:])]


@pytest.fixture(scope="module")
def saved(stream, tmp_path_factory):
    path = tmp_path_factory.mktemp("updates") / "model.onebit"
    LogisticCompleter(4, random_state=0, n_jobs=1).fit(*stream[0]).save(path)
    return path


@pytest.fixture(scope="module")
def certified(stream, tmp_path_factory):
    path = tmp_path_factory.mktemp("updates") / "certified.onebit"
    LogisticCompleter(2, random_state=0, n_jobs=1).fit(*stream[0], certify=0.2).save(path)
    return path


@pytest.fixture(scope="module")
def sampled(stream, tmp_path_factory):
    path = tmp_path_factory.mktemp("updates") / "sampled.onebit"
    model = LogisticCompleter(3, inference="sampling", n_samples=60, n_chains=2, random_state=0, n_jobs=1)
    model.fit(*stream[0]).save(path)
    return path


def test_updates_come_close_to_a_refit(stream, saved):
    model = onebit.load(saved)
    before = log_loss(model, *stream[2])
    model.partial_fit(*stream[1])
    everything = [np.concatenate(parts) for parts in zip(stream[0], stream[1], strict=True)]
    refit = LogisticCompleter(4, random_state=0, n_jobs=1).fit(*everything)
    wanted = log_loss(refit, *stream[2])
    assert before > wanted + 0.02
    assert log_loss(model, *stream[2]) < wanted + 0.15 * (before - wanted)


def test_draws_take_up_answers_as_well_as_the_posterior_does(stream, sampled):
    model = onebit.load(sampled)
    before = log_loss(model, *stream[2])
    model.partial_fit(*stream[1])
    everything = [np.concatenate(parts) for parts in zip(stream[0], stream[1], strict=True)]
    refit = onebit.load(sampled).set_params(n_samples=60)
    wanted = log_loss(refit.fit(*everything), *stream[2])
    assert before > wanted + 0.02
    assert log_loss(model, *stream[2]) < wanted + 0.15 * (before - wanted)


def test_how_a_stream_is_cut_matters_little(stream, saved):
    pairs, answers = stream[1]
    found = []
    for size in (len(answers), 50, 1):
        model = onebit.load(saved)
        part = slice(None) if size > 1 else slice(0, 300)
        chosen = pairs[part], answers[part]
        for begin in range(0, len(chosen[1]), size):
            model.partial_fit(chosen[0][begin : begin + size], chosen[1][begin : begin + size])
        if size == 1:
            whole = onebit.load(saved).partial_fit(*chosen)
            assert abs(log_loss(model, *stream[2]) - log_loss(whole, *stream[2])) < 0.002
            assert model.updates_.times == 300
        else:
            found.append(log_loss(model, *stream[2]))
    assert abs(found[0] - found[1]) < 0.002


@pytest.mark.parametrize("kind", ["saved", "sampled"])
def test_the_order_of_a_batch_does_not_matter(stream, kind, request):
    pairs, answers = (part[:200] for part in stream[1])
    rng = np.random.default_rng(0)
    found = []
    for _ in range(3):
        order = rng.permutation(len(answers))
        model = onebit.load(request.getfixturevalue(kind)).partial_fit(pairs[order], answers[order])
        found.append(model.predict_proba(stream[2][0])[:, 1])
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("kind", ["saved", "sampled"])
def test_nobody_else_moves(stream, kind, request):
    model = onebit.load(request.getfixturevalue(kind))
    rows, columns = len(model.rows_), len(model.columns_)
    before = model.predictor_
    pairs = [(0, 3), (1, 4), (999, 3)]
    model.partial_fit(pairs, [1, 0, 1])
    touched = [model.rows_.encode([0, 1]), model.columns_.encode([3, 4])]
    for side, size in ((0, rows), (1, columns)):
        others = np.setdiff1d(np.arange(size), touched[side])
        old, new = before.posterior.sides[side], model.posterior_.sides[side]
        assert np.array_equal(old.mean[others], new.mean[others])
        assert np.array_equal(old.covariance[others], new.covariance[others])
        assert not np.array_equal(old.mean[touched[side]], new.mean[touched[side]])
        if kind == "sampled":
            assert np.array_equal(before.draws.sides[side][others], model.draws_.sides[side][others])
    assert len(model.rows_) == rows + 1
    assert model.rows_.encode([999])[0] == rows


def test_the_old_answers_are_not_needed(stream, tmp_path, saved):
    whole = onebit.load(saved)
    whole.save(tmp_path / "bare.onebit", answers=False)
    bare = onebit.load(tmp_path / "bare.onebit")
    assert not bare.answers_kept
    for model in (whole, bare):
        model.partial_fit(*stream[1])
    assert np.array_equal(whole.predict_proba(stream[2][0]), bare.predict_proba(stream[2][0]))


def posterior_by_quadrature(log_density):
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = float((weight * GRID).sum())
    return mean, float(np.sqrt((weight * (GRID - mean) ** 2).sum()))


def test_a_known_row_has_the_posterior_of_its_old_and_new_answers_together():
    # Rank 0 and row effects alone: one number a row, whose posterior can be integrated.
    rng = np.random.default_rng(0)
    effects = rng.normal(0.3, 1.0, 60)
    pairs = [(row, column) for row in range(60) for column in range(30)]
    answers = rng.random(len(pairs)) < expit(np.repeat(effects, 30))
    model = LogisticCompleter(
        0, effects="rows", inference="sampling", n_samples=500, n_chains=2, pattern=None,
        random_state=0, n_jobs=1,
    ).fit(pairs, answers)  # fmt: skip
    new = [(7, 100 + k) for k in range(20)]
    said = np.arange(20) % 4 > 0
    model.partial_fit(new, said)
    drawn = model.draws_.rows[7, :, 0].astype(float)
    draws = model.draws_
    yes = int(answers[7 * 30 : 8 * 30].sum()) + int(said.sum())
    likelihood = yes * np.log(expit(GRID)) + (50 - yes) * np.log(expit(-GRID))
    centre, variance = float(draws.intercept.mean()), float(draws.effects[:, 0].mean())
    mean, deviation = posterior_by_quadrature(likelihood - 0.5 * (GRID - centre) ** 2 / variance)
    assert abs(drawn.mean() - mean) < 0.25 * deviation
    assert drawn.std() == pytest.approx(deviation, rel=0.15)


def test_a_new_row_has_the_posterior_of_its_answers():
    rng = np.random.default_rng(1)
    effects = rng.normal(-0.2, 1.2, 80)
    pairs = [(row, column) for row in range(80) for column in range(25)]
    answers = rng.random(len(pairs)) < expit(np.repeat(effects, 25))
    settings = {"rank": 0, "effects": "rows", "pattern": None, "random_state": 0, "n_jobs": 1}
    sampled = LogisticCompleter(**settings, inference="sampling", n_samples=400, n_chains=2)
    for model in (LogisticCompleter(**settings), sampled):
        model.fit(pairs, answers).partial_fit([(500, k) for k in range(10)], [1] * 8 + [0] * 2)
        mean, deviation = (part[0] for part in (model.decision_function([(500, 0)]),
                                                model.predict_uncertainty([(500, 0)])))  # fmt: skip
        if model.is_sampled:
            drawn = model.draws_.rows[-1, :, 0].astype(float)
            mean, deviation = drawn.mean(), drawn.std()
            centre, variance = model.draws_.intercept.mean(), model.draws_.effects[:, 0].mean()
        else:
            prior = model.posterior_.hierarchy.prior_moments(0, model.posterior_.hyper)
            centre, variance = prior[0][0], prior[1][0]
        likelihood = 8 * np.log(expit(GRID)) + 2 * np.log(expit(-GRID))
        wanted = posterior_by_quadrature(likelihood - 0.5 * (GRID - centre) ** 2 / variance)
        assert abs(mean - wanted[0]) < 0.25 * wanted[1]
        assert deviation == pytest.approx(wanted[1], rel=0.15)


def test_forgetting_adds_the_share_that_is_kept_to_the_prior():
    rng = np.random.default_rng(2)
    pairs = [(row, column) for row in range(40) for column in range(30)]
    model = LogisticCompleter(0, effects="rows", pattern=None, random_state=0, n_jobs=1)
    model.fit(pairs, rng.random(len(pairs)) < 0.6)
    hierarchy, hyper = model.posterior_.hierarchy, model.posterior_.hyper
    before, prior = model.posterior_.rows.variance[5, 0], 1.0 / hierarchy.inverse(0, hyper)[0]
    model.partial_fit([(5, 99)], [1], forget=0.5)
    after = model.posterior_.rows.variance[5, 0]
    mean = model.posterior_.rows.mean[5, 0]
    root = np.sqrt(mean**2 + after)
    weight = np.tanh(root / 2) / (2 * root)  # what Jaakkola's bound adds for one answer
    assert 1 / after == pytest.approx(0.5 / before + 0.5 / prior + weight, rel=1e-3)


def test_forgetting_does_not_move_a_row_and_keeps_its_features():
    rng = np.random.default_rng(5)
    tall = rng.integers(0, 2, 60)
    pairs = [(row, column) for row in range(60) for column in range(30)]
    answers = rng.random(len(pairs)) < np.where(np.repeat(tall, 30) > 0, 0.9, 0.2)
    features = pd.DataFrame({"row": np.arange(60), "tall": tall.astype(bool)})
    settings = {"effects": True, "random_state": 0, "n_jobs": 1}
    sampling = {"inference": "sampling", "n_samples": 200, "n_chains": 2}
    for more in ({}, sampling):
        model = LogisticCompleter(1, **settings, **more).fit(pairs, answers, row_features=features)
        row = int(np.flatnonzero(tall)[0])
        before = model.predict_proba([(row, 3)])[0, 1]
        wide = model.predict_uncertainty([(row, 3)])[0]
        model.partial_fit([(row, 7)], [1], forget=0.05)
        assert model.predict_proba([(row, 3)])[0, 1] > before - 0.15
        assert model.predict_uncertainty([(row, 3)])[0] > wide


def test_temperature_and_weights_count_in_draws_and_posteriors():
    rng = np.random.default_rng(6)
    pairs = [(row, column) for row in range(80) for column in range(25)]
    answers = rng.random(len(pairs)) < expit(np.repeat(rng.normal(0, 1.2, 80), 25))
    settings = {"rank": 0, "effects": "rows", "pattern": None, "random_state": 0, "n_jobs": 1}
    sampled = {"inference": "sampling", "n_samples": 400, "n_chains": 2}
    new, said = [(500, k) for k in range(10)], np.array([1] * 8 + [0] * 2)
    for more, weight in (({}, None), (sampled, None), (sampled, np.full(10, 3.0))):
        model = LogisticCompleter(temperature=2.0, **settings, **more).fit(pairs, answers)
        model.partial_fit(new, said, sample_weight=weight)
        times = 2.0 * (1.0 if weight is None else 3.0)
        if model.is_sampled:
            drawn = model.draws_.rows[-1, :, 0].astype(float)
            mean, deviation = drawn.mean(), drawn.std()
            centre, variance = model.draws_.intercept.mean(), model.draws_.effects[:, 0].mean()
        else:
            gaussian = model.posterior_.rows
            mean, deviation = gaussian.mean[-1, 0], np.sqrt(gaussian.variance[-1, 0])
            prior = model.posterior_.hierarchy.prior_moments(0, model.posterior_.hyper)
            centre, variance = prior[0][0], prior[1][0]
        likelihood = times * (8 * np.log(expit(GRID)) + 2 * np.log(expit(-GRID)))
        wanted = posterior_by_quadrature(likelihood - 0.5 * (GRID - centre) ** 2 / variance)
        assert abs(mean - wanted[0]) < 0.3 * wanted[1]
        assert deviation == pytest.approx(wanted[1], rel=0.2)


@pytest.mark.parametrize("kind", ["variational", "sampling"])
def test_the_pattern_of_a_late_row_follows_its_answers(kind):
    # Who answers a column of the first half likes columns of that half: the pattern tells.
    rng = np.random.default_rng(7)
    taste = rng.integers(0, 2, 200)
    chance = np.where(np.arange(40) < 20, 0.5, 0.06)
    answered = rng.random((200, 40)) < np.where(taste[:, None] == 0, chance, chance[::-1])
    rows, columns = np.nonzero(answered)
    likes = rng.random(len(rows)) < np.where((columns < 20) == (taste[rows] == 0), 0.8, 0.2)
    pairs = np.column_stack([rows, columns])
    model = LogisticCompleter(2, inference=kind, n_samples=100, n_chains=2, random_state=0, n_jobs=1)
    model.fit(pairs, likes)
    new, said = [(900, column) for column in range(8)], [1, 0, 1, 0, 1, 0, 1, 0]
    asked = [(900, column) for column in range(8, 40)]
    once = copy.deepcopy(model).partial_fit(new, said)
    one_by_one, wrong_way = copy.deepcopy(model), copy.deepcopy(model)
    for pair, answer in zip(new, said, strict=True):
        one_by_one.partial_fit([pair], [answer])
        # Without remembering, each answer is a pattern of its own.
        wrong_way.updates_ = replace(wrong_way.updates_, since=(10**6, 10**6))
        wrong_way.partial_fit([pair], [answer])
    found = [one.decision_function(asked) for one in (once, one_by_one, wrong_way)]
    apart = [np.abs(found[0] - other).mean() for other in found[1:]]
    assert apart[0] < 0.6 * apart[1]


def test_an_entry_is_known_after_a_column_was_folded_in(certified):
    model = onebit.load(certified)
    fitted = model.kept_answers().fitted
    pairs = np.column_stack([fitted.by_row.owners(), fitted.by_row.index])
    assert not model.certified(pairs, 0.48).any()
    model.fold_in([(0, 5000), (1, 5000)], [1, 0])
    assert not model.certified(pairs, 0.48).any()


def test_the_completer_that_a_search_has_chosen_keeps_in_step(stream):
    pairs, answers = (part[:1500] for part in stream[0])
    model = AutoCompleter(losses=["logistic"], effort="quick", random_state=0, n_jobs=1).fit(
        pairs, answers
    )
    model.partial_fit([(0, 1), (7777, 2)], [1, 0])
    assert model.completer_.predictor_ is model.predictor_
    assert len(model.completer_.rows_) == len(model.rows_)
    model.fold_in([(8888, 2)], [1])
    assert model.completer_.predictor_ is model.predictor_


def test_a_fit_and_its_own_answers_do_not_certify_it(stream, certified):
    model = onebit.load(certified)
    fitted = model.kept_answers().fitted
    pairs = np.column_stack([fitted.by_row.owners(), fitted.by_row.index])
    with pytest.raises(ValueError, match="answered before"):
        model.partial_fit(pairs[:200], fitted.by_row.sign[:200], certify=0.3)
    assert model.updates_.times == 0


def test_ids_stay_of_their_kind():
    large = 2**60
    pairs = [(large + row, column) for row in range(12) for column in range(8)]
    model = LogisticCompleter(0, random_state=0).fit(pairs, np.arange(96) % 3 > 0)
    with pytest.raises((TypeError, ValueError), match=r"1\.5"):
        model.partial_fit([(1.5, 3)], [1])
    model.partial_fit([(5.0, 3)], [1])
    assert model.rows_.labels.dtype == np.int64
    assert model.rows_.encode([large + 3])[0] == 3


def test_a_copy_is_updated_like_the_model_itself(sampled):
    model = copy.deepcopy(onebit.load(sampled))
    assert model.partial_fit([(0, 1)], [1]).updates_.times == 1


def test_the_noise_of_an_answer_is_the_same_in_its_row_and_its_column():
    # Two effects with wide posteriors and one answer about their sum: the posterior of the sum and of
    # either, by quadrature over both.
    rng = np.random.default_rng(8)
    pairs = [(row, column) for row in range(30) for column in range(30)]
    chance = expit(np.add.outer(rng.normal(0, 1, 30), rng.normal(0, 1, 30)))
    settings = {"pattern": None, "random_state": 0, "n_jobs": 1, "prior_scale": 0.03}
    model = LogisticCompleter(0, inference="sampling", n_samples=600, n_chains=2, **settings)
    model.fit(pairs, rng.random(900) < chance.ravel())
    model.partial_fit([(500, 500)] * 3, [1, 1, 1])
    draws = model.draws_
    row, column = (side[-1, :, 0].astype(float) for side in draws.sides)
    grid = np.linspace(-8, 8, 321)
    u, v = np.meshgrid(grid, grid, indexing="ij")
    weight = np.zeros_like(u)
    for intercept, (a, b) in zip(draws.intercept[::20], draws.effects[::20], strict=True):
        prior = np.exp(-0.5 * (u - intercept) ** 2 / a - 0.5 * v**2 / b) / np.sqrt(a * b)
        weight += prior * expit(u + v) ** 3
    weight /= weight.sum()
    for drawn, values in ((row, u), (column, v), (row + column, u + v)):
        mean = (weight * values).sum()
        deviation = np.sqrt((weight * (values - mean) ** 2).sum())
        assert abs(drawn.mean() - mean) < 0.25 * deviation
        assert drawn.std() == pytest.approx(deviation, rel=0.15)


def test_error_bars_are_not_made_of_answers_that_were_weighted_or_forgotten(saved):
    for lossy in ({"forget": 0.9}, {"sample_weight": [2.0]}):
        model = onebit.load(saved).partial_fit([(0, 1)], [1], **lossy)
        with pytest.raises(ValueError, match="updated with weights, or with forget below one"):
            model.row_summary([0])


def test_forgetting_widens_draws_towards_their_prior():
    rng = np.random.default_rng(2)
    pairs = [(row, column) for row in range(40) for column in range(60)]
    fitted = LogisticCompleter(
        0, effects="rows", pattern=None, inference="sampling", n_samples=400, n_chains=2,
        random_state=0, n_jobs=1,
    ).fit(pairs, rng.random(len(pairs)) < 0.6)  # fmt: skip
    draws = fitted.draws_
    before = draws.rows[5, :, 0].var()
    fitted.partial_fit([(5, 99)], [1], forget=0.5)
    after = fitted.draws_.rows[5, :, 0].var()
    prior = float(draws.effects[:, 0].mean())
    assert 1 / after == pytest.approx(0.5 / before + 0.5 / prior + 0.24, rel=0.2)


def test_an_update_that_fails_leaves_the_model_as_it_was(stream, certified, monkeypatch):
    model = onebit.load(certified)
    before = model.predict_proba(stream[2][0])
    sentence = model.certify().sentence()

    def fail(*_):
        raise MemoryError("in the middle")

    for name in ("updated", "predicted"):
        monkeypatch.setattr(type(model.predictor_), name, fail)
        with pytest.raises(MemoryError):
            model.partial_fit(*stream[1], certify=0.3)
        monkeypatch.undo()
    assert model.updates_.times == 0
    assert len(model.rows_) == 140
    assert np.array_equal(model.predict_proba(stream[2][0]), before)
    assert model.certify().sentence() == sentence


def test_what_an_update_touches_is_no_longer_certified(stream, certified):
    model = onebit.load(certified)
    pairs = stream[0][0]
    everywhere = [(row, column) for row in range(140) for column in range(115)]
    before = model.certified(everywhere, max_error=0.35)
    counted = len(model.held_out_.wrong)
    model.partial_fit([(3, 5)], [1])
    after = model.certified(everywhere, max_error=0.35)
    touched = np.array([row == 3 or column == 5 for row, column in everywhere])
    assert before[touched].any()
    assert not after[touched].any()
    assert after[~touched].any()
    held = model.held_out_
    assert len(held.wrong) < counted
    assert not ((held.rows == 3) | (held.columns == 5)).any()
    assert "that no later update has touched, are wrong" in model.certify().sentence()
    assert model.certificate_methods() == ("hold-out",)
    model.partial_fit(pairs, stream[0][1])  # now everything is
    with pytest.raises(ValueError, match=r"has been updated.*partial_fit\(\.\.\., certify=0\.1\)"):
        model.certify()


def test_a_fresh_hold_out_certifies_the_updated_model(stream, certified):
    model = onebit.load(certified).partial_fit(*stream[1], certify=0.4)
    held = round(0.4 * len(stream[1][1]))
    assert model.updates_.answers == len(stream[1][1]) - held
    # Answers to entries that were answered before are held out and not counted.
    known = set(map(tuple, stream[0][0].tolist()))
    assert len(model.held_out_.wrong) <= held
    labels = model.rows_.labels, model.columns_.labels
    counted = zip(model.held_out_.rows, model.held_out_.columns, strict=True)
    assert not known & {(int(labels[0][row]), int(labels[1][column])) for row, column in counted}
    assert "that the last update answered for the first time" in model.certify().sentence()
    rows, columns = model.held_out_.rows, model.held_out_.columns
    wrong = model.predictions(rows, columns).decision * model.held_out_.sign <= 0
    assert np.array_equal(wrong, model.held_out_.wrong)
    marked = model.certified([(row, column) for row in range(150) for column in range(120)], 0.4)
    fitted = model.kept_answers().fitted  # a share of the first answers was held out of the fit
    codes = fitted.by_row.owners(), fitted.by_row.index
    assert marked.any()
    assert not marked[labels[0][codes[0]].to_numpy() * 120 + labels[1][codes[1]].to_numpy()].any()


def test_an_updated_model_is_the_same_after_saving(stream, sampled, tmp_path):
    model = onebit.load(sampled)
    model.partial_fit(*(part[:300] for part in stream[1]), certify=0.2)
    model.save(tmp_path / "again.onebit")
    again = onebit.load(tmp_path / "again.onebit")
    assert again.updates_.times == 1
    assert again.certify().sentence() == model.certify().sentence()
    for one in (model, again):
        one.partial_fit(*(part[300:400] for part in stream[1]), forget=0.9)
    assert np.array_equal(again.predict_proba(stream[2][0]), model.predict_proba(stream[2][0]))
    assert again.updates_.batches == model.updates_.batches
    assert again.complete().shape == (len(model.rows_), len(model.columns_))


def test_summaries_know_of_updates(stream, saved):
    model = onebit.load(saved)
    before, told = model.row_summary([0])["share"].iloc[0], summary(model)
    assert told["answers"] == len(stream[0][1])
    model.partial_fit([(0, column) for column in range(115)], [1] * 115)
    assert model.row_summary([0])["share"].iloc[0] > before + 0.2
    later = summary(model)
    assert later["answers"] == told["answers"] + 115
    assert later["density"] > told["density"]


def test_hinge_and_diagonal_posteriors_take_up_answers(stream):
    for model in (
        HingeCompleter(2, random_state=0, n_jobs=1),
        LogisticCompleter(2, covariance="diagonal", random_state=0, n_jobs=1),
        LogisticCompleter(2, temperature=1.5, sparse="columns", random_state=0, n_jobs=1),
    ):
        model.fit(*stream[0])
        before = log_loss(model, *stream[2])
        model.partial_fit(*stream[1])
        assert log_loss(model, *stream[2]) < before - 0.01


def test_weights_count(saved):
    once, twice = onebit.load(saved), onebit.load(saved)
    once.partial_fit([(0, 1), (2, 3)], [1, 0], sample_weight=[2.0, 1.0])
    twice.partial_fit([(0, 1), (0, 1), (2, 3)], [1, 1, 0])
    assert np.allclose(once.posterior_.rows.mean, twice.posterior_.rows.mean, atol=1e-4)


def test_what_cannot_be_updated_says_so(stream, saved):
    model = onebit.load(saved)
    for bad in (0.0, 1.5, True, "half"):
        with pytest.raises(ValueError, match="forget is the share that is kept"):
            model.partial_fit([(0, 1)], [1], forget=bad)
    with pytest.raises(TypeError, match="row ids here are strings"):
        model.partial_fit([("ann", 1)], [1])
    with pytest.raises(ValueError, match=r"certify=0\.1 of 2 answers"):
        model.partial_fit([(0, 1), (0, 2)], [1, 0], certify=0.1)
    with pytest.raises(ValueError, match=r"[Aa]t least one|empty|no answer"):
        model.partial_fit(np.empty((0, 2)), [])
    assert not hasattr(NuclearNormCompleter(), "partial_fit")
    for kind in (AutoCompleter, GibbsCompleter):
        assert hasattr(kind(), "partial_fit")
    hinge = HingeCompleter(1, inference="sampling", n_samples=5, n_burn_in=2, n_chains=1, random_state=0)
    hinge.fit(*(part[:500] for part in stream[0]))
    with pytest.raises(ValueError, match="draws of the hinge loss cannot take up new answers"):
        hinge.partial_fit([(0, 1)], [1])


def test_new_rows_and_new_columns_at_once_stand_the_same_way_round_as_the_known_ones():
    """A two-parameter test, and a second one with some of its items; one of these used to run away."""
    reversed_draws = 0
    for seed in (5, 11):
        rng = np.random.default_rng(seed)
        slope, difficulty = rng.lognormal(0.1, 0.3, 26), rng.standard_normal(26)
        parts = []
        for prefix, mean, items in (("a", 0.0, np.arange(16)), ("b", 0.6, np.arange(10, 26))):
            ability = mean + rng.standard_normal(80)
            chance = 1 / (1 + np.exp(-slope[items] * (ability[:, None] - difficulty[items])))
            yes = (rng.random((80, 16)) < chance).astype(int)
            parts.append(([(f"{prefix}{i}", int(j)) for i in range(80) for j in items], yes.ravel()))
        model = LogisticCompleter(
            1, effects="columns", pattern=None, prior_scale=0.1, inference="sampling", n_samples=50,
            n_burn_in=40, n_chains=2, random_state=0,
        )  # fmt: skip
        model.fit(*parts[0]).partial_fit(*parts[1])
        slopes, abilities = model.draws_.columns[:, :, 0], model.draws_.rows[:, :, 0]
        assert max(np.abs(slopes).max(), np.abs(abilities).max()) < 20.0
        reversed_draws += int((slopes[:16].sum(axis=0) * slopes[16:].sum(axis=0) < 0.0).sum())
    assert reversed_draws < 10


def test_an_update_beyond_all_numbers_is_refused_and_changes_nothing(monkeypatch):
    world = simulate.world("B1", rank=1, shape=(20, 10), density=0.6, seed=0)
    model = LogisticCompleter(1, inference="sampling", n_samples=10, n_burn_in=5, random_state=0)
    model.fit(world.pairs, world.answers)
    before = model.draws_.rows.copy()
    monkeypatch.setattr(
        sampled_update._Begun, "moved", lambda part, *_: np.full_like(part.anchor, np.inf)
    )
    with pytest.raises(FloatingPointError, match="fit again with all answers"):
        model.partial_fit([(99, 0), (99, 1)], [1, 0])
    np.testing.assert_array_equal(model.draws_.rows, before)
    assert model.updates_.times == 0
    assert len(model.rows_) == 20
