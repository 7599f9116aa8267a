"""Completers that sample: what a user sees of the draws."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

import onebit
from onebit import HingeCompleter, LogisticCompleter, simulate
from onebit.engine import checkpoint
from onebit.engine.cpu import threads
from onebit.engine.sampling import passes
from onebit.engine.sampling.kept import Kept
from onebit.engine.sampling.plan import Plan
from onebit.engine.sampling.sampler import Sampler
from onebit.model import draws as draws_module
from onebit.model.diagnostics import Diagnostics, Mixing
from onebit.model.draws import Draws
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import HINGE, LOGISTIC
from onebit.model.priors import InverseGamma

QUICK = {"inference": "sampling", "n_samples": 60, "random_state": 0, "n_chains": 1}


@pytest.fixture(scope="module")
def world():
    return simulate.world("B2", rank=2, shape=(60, 50), density=0.6, seed=1)


@pytest.fixture(scope="module", params=[LogisticCompleter, HingeCompleter], ids=["logistic", "hinge"])
def model(request, world):
    return request.param(4, **QUICK).fit(world.pairs, world.answers, certify=0.1)


@pytest.fixture(scope="module")
def logistic(world):
    return LogisticCompleter(4, **QUICK).fit(world.pairs, world.answers)


def test_probabilities_are_the_mean_of_the_draws_sigmoids(logistic):
    pairs = [(0, 1), (5, 7), (59, 49)]
    scores = logistic.draws_.scores([0, 5, 59], [1, 7, 49])
    assert logistic.predict_proba(pairs)[:, 1] == pytest.approx((1 / (1 + np.exp(-scores))).mean(axis=1))
    yes = logistic.predict_proba(pairs)[:, 1]
    assert logistic.decision_function(pairs) == pytest.approx(np.log(yes / (1 - yes)), abs=1e-6)
    found = logistic.predictions(*logistic._codes(pairs))
    assert found.score == pytest.approx(scores.mean(axis=1), abs=1e-6)
    assert logistic.predict_uncertainty(pairs) == pytest.approx(scores.std(axis=1, ddof=1), rel=1e-4)
    # Sixty draws leave sixty-one gaps, of which the interval takes as many as its level says.
    ends = logistic.predict_interval(pairs, level=1 - 2 * 6 / 61)
    assert ends == pytest.approx(np.sort(scores, axis=1)[:, [5, -6]], abs=1e-6)
    with pytest.raises(ValueError, match=r"level 0\.99 holds less than one of the 60 draws"):
        logistic.predict_interval(pairs, level=0.99)
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 'high'"):
        logistic.predict_interval(pairs, level="high")


def test_a_sampled_model_predicts_well_and_offers_what_every_model_offers(model, world):
    truth = np.where(world.truth > 0, 1, -1)
    filled = model.complete("answer", everywhere=True)
    assert (filled.to_numpy() == truth).mean() > 0.8
    chance = model.complete("probability", everywhere=True).to_numpy()
    assert chance.min() > 0
    assert chance.max() < 1
    assert model.draws_.count == 60
    assert 1 <= model.rank_ <= 4
    assert list(model.diagnostics_.columns) == ["mean", "sd", "rhat", "ess_bulk", "ess_tail"]
    assert len(model.row_effects_) == 60
    best = model._top_columns(np.array([0, 3], np.int32), 5)
    scores = model.complete("score").to_numpy()[3]
    assert best[1].tolist() == np.argsort(-scores, kind="stable")[:5].tolist()


def test_the_mean_factors_multiply_to_the_mean_of_what_factors_add_to_effects(logistic):
    draws = logistic.draws_
    left, right = draws.mean_factors
    centred = [side[:, :, :4] - side[:, :, :4].sum(axis=0) / (len(side) + 1) for side in draws.sides]
    mean = np.einsum("idk,jdk->ij", *centred) / draws.count
    u, size, vt = np.linalg.svd(mean)
    best = (u[:, :4] * size[:4]) @ vt[:4]  # no factors of this rank come closer
    assert np.linalg.norm(left @ right.T - mean) < 1.02 * np.linalg.norm(best - mean)
    assert draws.singular_values == pytest.approx(size[:4] / np.sqrt(60 * 50), rel=0.02)


def test_evenly_spaced_lines_tell_the_singular_values_of_all(monkeypatch):
    rng = np.random.default_rng(0)
    hierarchy = Hierarchy((6000, 4000), 2, True, True, InverseGamma(3.0, 1.5), InverseGamma(3.0, 1.5))
    parts = {"factors": np.ones((1, 2)), "effects": np.ones((1, 2)), "intercept": np.zeros(1)}
    sides = [rng.standard_normal((size, 1, 3)) * [2.0, 1.0, 0.5] for size in (6000, 4000)]
    rows, columns = (side.astype(np.float32) for side in sides)
    draws = Draws(rows, columns, **parts, hierarchy=hierarchy, seed=0)
    monkeypatch.setattr(draws_module, "_LINES_ENOUGH", 1500)
    assert draws._thinned().shape == (1500, 2000)
    assert draws.singular_values == pytest.approx([4.0, 1.0], rel=0.1)
    assert draws.mean_factors[0].shape == (6000, 2)


def test_intervals_of_a_well_specified_model_cover_the_true_scores():
    world = simulate.world("B3", rank=2, shape=(80, 80), density=0.5, seed=2)
    settings = QUICK | {"n_samples": 300}
    model = LogisticCompleter(2, effects=False, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(world.pairs, world.answers)
    ends = model.predict_interval(world.all_pairs, level=0.9)
    inside = (ends[:, 0] <= world.truth.ravel()) & (world.truth.ravel() <= ends[:, 1])
    assert 0.85 < inside.mean() < 0.95


def test_held_out_certificates_work_and_gaussian_ones_are_not_offered(model):
    assert 0 < model.certify(0.05).bound < 1
    methods = model.certificate_methods()
    assert "hold-out" in methods
    assert not {"theorem-1", "theorem-1-printed", "catoni", "pac-bayes-kl", "learnt-prior"} & set(methods)
    with pytest.raises(ValueError, match="divergence of a Gaussian posterior"):
        model.draw(0)
    with pytest.raises(ValueError, match="divergence of a Gaussian posterior"):
        model.certificate("pac-bayes-kl", 0.05)


def test_a_sampled_model_comes_back_from_disk_as_it_was(model, tmp_path):
    model.save(tmp_path / "model.onebit")
    again = onebit.load(tmp_path / "model.onebit")
    pairs = [(0, 1), (5, 7), (99, 3), (4, 99)]
    assert (again.predict_proba(pairs) == model.predict_proba(pairs)).all()
    assert (again.predict_interval(pairs) == model.predict_interval(pairs)).all()
    assert again.diagnostics_.equals(model.diagnostics_)
    assert again.rank_ == model.rank_
    assert again.certify(0.05).bound == model.certify(0.05).bound


def test_unknown_ids_count_with_what_is_known_of_the_other_one(logistic):
    mean, variance, chance = logistic.draws_.averages([-1, 3, -1], [2, -1, -1])
    known = logistic.draws_.averages([3], [2])[1][0]
    assert (variance > known).all()  # less is known of them
    assert ((chance > 0) & (chance < 1)).all()
    # The law of total variance, by simulation of the prior under every draw.
    draws, rng = logistic.draws_, np.random.default_rng(0)
    m = draws.shape[0] + 1.0
    mean_of_factors = draws.rows[:, :, :-1].sum(axis=0) / m
    # Of a row never seen, its pattern is not known either.
    typical, spread = draws.typical(0), draws.spread(0)
    spread_of_factors = draws.factors * (1 + 1 / m) + spread[:, :-1]
    new = rng.normal(size=(4000, *draws.factors.shape)) * np.sqrt(spread_of_factors)
    new += mean_of_factors + typical[:, :-1]
    effect = rng.normal(size=(4000, draws.count)) * np.sqrt(draws.effects[:, 0] + spread[:, -1])
    effect += draws.intercept + typical[:, -1]
    scores = (new * draws.columns[2, :, :-1]).sum(axis=-1) + effect + draws.columns[2, :, -1]
    assert mean[0] == pytest.approx(scores.mean(), abs=0.03)
    assert variance[0] == pytest.approx(scores.var(), rel=0.05)
    assert chance[0] == pytest.approx((1 / (1 + np.exp(-scores))).mean(), abs=0.005)


def test_effects_are_those_on_a_typical_column_or_row(logistic):
    draws = logistic.draws_
    m1, m2 = draws.shape
    rows, columns = np.divmod(np.arange(m1 * m2), m2)
    scores = draws.scores(rows, columns).mean(axis=1).reshape(m1, m2)
    for side, effects in enumerate((logistic.row_effects_, logistic.column_effects_)):
        average = scores.mean(axis=1 - side)
        # The mean of m factors is shrunk by m / (m + 1).
        np.testing.assert_allclose(effects - effects.mean(), average - average.mean(), atol=0.1)
        assert np.corrcoef(effects, average)[0, 1] > 0.999


def test_fold_in_draws_what_a_refit_would_find(world):
    new = world.pairs[:, 0] == 7
    pairs, answers = world.pairs, world.answers
    model = LogisticCompleter(3, **QUICK | {"n_samples": 150}).fit(pairs[~new], answers[~new])
    whole = LogisticCompleter(3, **QUICK | {"n_samples": 150}).fit(pairs, answers)
    model.fold_in(pairs[new], answers[new])
    test = [(7, column) for column in range(50)]
    assert np.abs(model.predict_proba(test) - whole.predict_proba(test)).mean() < 0.04
    assert np.corrcoef(model.decision_function(test), whole.decision_function(test))[0, 1] > 0.9
    assert model.predict_uncertainty(test) == pytest.approx(whole.predict_uncertainty(test), rel=0.5)


def test_fold_in_writes_only_where_there_is_room(world, monkeypatch):
    """What answers say of rows is not asked for there: memory behind it belonged to others."""
    rooms = []

    def guarded(rows, free):
        behind = np.full((free, 60, free), 7.0), np.full((60, free), 7.0)
        rooms.append((rows, behind))
        return behind[0][:, :rows], behind[1][:rows]

    new = world.pairs[:, 0] == 7
    model = LogisticCompleter(3, **QUICK).fit(world.pairs[~new], world.answers[~new])
    monkeypatch.setattr(passes, "evidence_room", guarded)
    model.fold_in(world.pairs[new], world.answers[new])
    assert rooms
    for rows, behind in rooms:
        assert rows == 0
        assert all((part == 7.0).all() for part in behind)


def test_the_chain_does_not_depend_on_the_number_of_threads(world, monkeypatch):
    monkeypatch.setattr(threads, "SMALLEST_TASK", 50)  # else so little work is not shared out
    for kind in (LogisticCompleter, HingeCompleter):
        one, *others = (
            kind(3, **QUICK | {"n_samples": 40, "n_chains": 2}, n_jobs=jobs).fit(
                world.pairs, world.answers
            )
            for jobs in (1, 3, 5)  # of five, each chain has two of its own
        )
        for other in others:
            assert (one.draws_.rows == other.draws_.rows).all()
            assert (one.draws_.columns == other.draws_.columns).all()
            assert (one.draws_.factors == other.draws_.factors).all()
            assert one.diagnostics_.equals(other.diagnostics_)


def test_chains_differ_and_a_seed_repeats_them(world):
    settings = QUICK | {"n_samples": 40, "n_chains": 2}
    first, again = (LogisticCompleter(3, **settings).fit(world.pairs, world.answers) for _ in range(2))
    other = LogisticCompleter(3, **settings | {"random_state": 1}).fit(world.pairs, world.answers)
    assert (first.draws_.rows == again.draws_.rows).all()
    assert not (first.draws_.rows == other.draws_.rows).any()
    assert not (first.draws_.rows[:, 0] == first.draws_.rows[:, 1]).any()  # of two chains


class Killed(Exception):
    pass


@pytest.mark.parametrize("kind", [LogisticCompleter, HingeCompleter])
def test_a_killed_chain_goes_on_to_the_same_draws(kind, world, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    settings = QUICK | {"n_samples": 40, "n_burn_in": 10, "n_chains": 2, "keep_mb": 0.02}
    kept = {"predict_for": [(1, 2), (3, 4)], "checkpoint": tmp_path / "kept"}
    whole = kind(3, **settings).fit(world.pairs, world.answers, predict_for=kept["predict_for"])
    for last in (4, 23, 41):

        def kill(progress, last=last):
            if progress.max_rounds == 50 and progress.round == last:
                raise Killed

        with pytest.raises(Killed):
            kind(3, **settings).fit(world.pairs, world.answers, callback=kill, **kept)
    if kind is LogisticCompleter:  # the other one was killed before it came to them
        with pytest.raises(ValueError, match="asked to predict other pairs"):
            kind(3, **settings).fit(world.pairs, world.answers, **kept | {"predict_for": [(0, 0)]})
    again = kind(3, **settings).fit(world.pairs, world.answers, **kept)
    assert not (tmp_path / "kept").exists()
    for name in ("rows", "columns", "factors", "effects", "intercept"):
        assert (getattr(again.draws_, name) == getattr(whole.draws_, name)).all()
    assert again.diagnostics_.equals(whole.diagnostics_)
    assert again.requested_.equals(whole.requested_)


def test_memory_does_not_grow_with_the_number_of_draws(world):
    pairs = [(0, 1), (5, 7), (99, 3)]
    sizes = []
    for count in (60, 240):
        model = LogisticCompleter(4, **QUICK | {"n_samples": count, "keep_mb": 0.05})
        model.fit(world.pairs, world.answers, predict_for=pairs)
        kept = model.draws_
        sizes.append(kept.rows.nbytes + kept.columns.nbytes + kept.factors.nbytes)
        assert sizes[-1] <= 0.05 * 2**20
        assert kept.count < count
        # Averages over every draw, near those of the kept ones.
        assert model.requested_["probability"].to_numpy() == pytest.approx(
            model.predict_proba(pairs)[:, 1], abs=0.12
        )
    assert sizes[0] == sizes[1]


def test_requested_pairs_are_averaged_over_every_draw(logistic, world):
    model = LogisticCompleter(4, **QUICK).fit(world.pairs, world.answers, predict_for=[(0, 1), (5, 7)])
    assert model.requested_["score"].to_numpy() == pytest.approx(
        logistic.complete("score").to_numpy()[[0, 5], [1, 7]], abs=1e-5
    )
    assert model.requested_["probability"].to_numpy() == pytest.approx(
        logistic.predict_proba([(0, 1), (5, 7)])[:, 1], abs=1e-6
    )


def test_a_chain_stops_once_its_functionals_have_settled(world):
    settings = QUICK | {"n_samples": 2000, "n_burn_in": 50}
    model = LogisticCompleter(2, **settings, settle=0.25).fit(world.pairs, world.answers)
    assert model.settled_
    assert model.n_sweeps_ < 1500
    assert model.draws_.count > 0
    assert model.diagnostics_["ess_bulk"].min() >= 16
    assert model.diagnostics_["rhat"].max() <= 1.05


def test_chains_that_settle_by_themselves_have_mixed_and_leave_their_way_there_behind(world):
    settings = QUICK | {"n_samples": 3000, "n_burn_in": 5, "n_chains": 2, "settle": "auto"}
    model = LogisticCompleter(2, **settings).fit(world.pairs, world.answers)
    assert model.settled_
    assert model.diagnostics_["rhat"].max() <= 1.05
    assert model.diagnostics_[["ess_bulk", "ess_tail"]].to_numpy().min() >= 100
    # Of all draws at most half of this: predictions are averages over those that are kept.
    assert 0 < model.loss_error_ <= 0.001
    assert model.n_draws_ <= 2 * (model.n_sweeps_ - 5)
    assert model.draws_.count <= 200
    if model.n_sweeps_ > 105:  # beyond the first stretch: its draws are not counted
        assert model.n_draws_ < 2 * (model.n_sweeps_ - 5)


def test_the_error_of_the_log_loss_falls_with_the_draws(world):
    errors = [
        LogisticCompleter(2, **QUICK | {"n_samples": n, "n_chains": 2})
        .fit(world.pairs, world.answers)
        .loss_error_
        for n in (60, 600)
    ]
    assert 0 < errors[1] < 0.6 * errors[0]


def test_the_error_of_the_log_loss_is_that_of_the_draws_that_are_kept(world):
    settings = QUICK | {"n_samples": 200, "n_chains": 2}
    every = LogisticCompleter(2, **settings).fit(world.pairs, world.answers)
    with pytest.warns(ConvergenceWarning, match="only 9 of 400 draws are kept"):
        few = LogisticCompleter(2, keep_mb=0.012, **settings).fit(world.pairs, world.answers)
    pairs = world.pairs[:2000]
    full, thin = (model.predict_proba(pairs)[:, 1] for model in (every, few))
    lost = (full * np.log(full / thin) + (1 - full) * np.log((1 - full) / (1 - thin))).mean()
    assert few.loss_error_ == pytest.approx(lost, rel=0.5)
    assert few.loss_error_ > 3 * every.loss_error_


@pytest.mark.parametrize(("chains", "draws"), [(4, 100), (4, 1000), (2, 200), (3, 100), (7, 90)])
def test_as_many_draws_of_every_chain_are_kept_evenly_spaced(chains, draws):
    kept = Kept.__new__(Kept)  # what it needs to choose
    kept.room, kept.chains = 200, chains
    assert kept.kept_of_all(draws, draws) == min(200, chains * draws)
    for number in range(chains):
        course = [kept.kept_of(number, k, draws) for k in range(draws + 1)]
        assert abs(course[-1] - 200 / chains) < 1
        gaps = np.diff(np.flatnonzero(np.diff(course)))
        assert gaps.max() - gaps.min() <= 1


def test_stretches_double_until_the_last_has_three_quarters_of_the_draws():
    assert Plan(750, settle="auto").stretches == [(0, 100), (100, 750)]
    assert Plan(3000, settle="auto").stretches == [(0, 100), (100, 300), (300, 700), (700, 3000)]
    assert Plan(390, settle=0.1).stretches == [(0, 390)]
    assert Plan(750).stretches == [(0, 750)]
    for draws in (400, 999, 1200, 2800, 5000):
        begin, end = Plan(draws, settle="auto").stretches[-1]
        assert end == draws
        assert end - begin >= 0.75 * draws


def test_looks_are_taken_in_the_second_half_of_a_stretch_and_never_after_few_draws():
    run = Sampler.__new__(Sampler)  # what a look needs
    run.plan, run.watched = Plan(900, settle="auto"), SimpleNamespace(loss=HINGE)
    looks = []

    def diagnostics():
        looks.append(run.draws)
        return SimpleNamespace(mixed=lambda: False)

    run.diagnostics = diagnostics
    for draws in range(1, 901):
        run.draws = draws
        assert not run._has_settled()
    assert looks == [50, 63, 75, 88, 100, 500, 600, 700, 800, 900]
    run.plan, looks[:] = Plan(60, settle="auto"), []
    for draws in range(1, 61):
        run.draws = draws
        run._has_settled()
    assert looks == [45, 53, 60]  # none before forty


@pytest.mark.parametrize(("error", "settled"), [(0.0004, True), (0.0006, False), (np.nan, False)])
def test_predictions_whose_error_is_large_or_unknown_have_not_settled(error, settled):
    run = Sampler.__new__(Sampler)
    run.plan, run.draws = Plan(100, settle="auto"), 100
    run.watched = SimpleNamespace(loss=LOGISTIC)
    run.loss_error = lambda: error
    run.diagnostics = lambda: SimpleNamespace(mixed=lambda: True)
    assert run._has_settled() == settled


def test_chains_abreast_draw_what_they_draw_one_after_the_other(world):
    settings = QUICK | {"n_samples": 12, "n_chains": 3}
    one, two = (
        LogisticCompleter(3, **settings, n_jobs=jobs).fit(world.pairs, world.answers) for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.draws_.rows, two.draws_.rows)
    np.testing.assert_array_equal(one.diagnostics_, two.diagnostics_)


def test_too_few_draws_are_called_too_few(world):
    with pytest.warns(ConvergenceWarning, match="too few draws to say"):
        model = LogisticCompleter(2, **QUICK | {"n_samples": 10}).fit(world.pairs, world.answers)
    assert model.diagnostics_["rhat"].isna().all()


def test_a_chain_that_has_not_mixed_is_called_that():
    rng = np.random.default_rng(0)

    def verdict(values):
        return Mixing.of(Diagnostics(("x",), values).table()).verdict

    good = rng.standard_normal((2, 400, 1))
    assert verdict(good) in ("mixed", "roughly mixed")
    assert verdict(good + np.array([0.0, 3.0])[:, None, None]) == "not mixed"
    assert verdict(np.cumsum(rng.standard_normal((1, 200, 1)), axis=1)) == "not mixed"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_samples": 0}, "n_samples must be an integer of at least 1 and at most 1,000,000, got 0"),
        ({"n_burn_in": -1}, "n_burn_in must be an integer of at least 0, got -1"),
        ({"n_chains": 0}, "n_chains must be an integer of at least 1 and at most 1,000, got 0"),
        ({"n_chains": 10**7}, "n_chains must be an integer of at least 1 and at most 1,000, got"),
        ({"inference": "mcmc"}, "inference must be one of 'variational', 'sampling', got 'mcmc'"),
        ({"settle": 0.0}, "settle must be a positive finite number of at most 1 or one of None, 'auto'"),
        ({"settle": 5}, "of at most 1 or one of None, 'auto', got 5"),
        ({"n_samples": 10**9}, "n_samples must be an integer of at least 1 and at most 1,000,000"),
        ({"keep_mb": 0}, "keep_mb must be a positive finite number, got 0"),
        ({"temperature": 1.5}, "temperature times weight is a whole number"),
        ({"sparse": "rows"}, 'inference="sampling" has no sparse prior'),
    ],
)
def test_what_cannot_be_sampled_is_said_at_the_door(settings, message, world):
    rounds = []
    with pytest.raises(ValueError, match=message):
        LogisticCompleter(2, **QUICK | settings).fit(world.pairs, world.answers, callback=rounds.append)
    assert not rounds


def test_weights_are_whole_for_the_logistic_loss_and_any_for_the_hinge_loss(world):
    weight = np.resize([1.0, 2.5], len(world.answers))
    with pytest.raises(ValueError, match=r"the weight 2\.5 of an answer"):
        LogisticCompleter(2, **QUICK).fit(world.pairs, world.answers, weight)
    for kind, factor in ((LogisticCompleter, 2.0), (HingeCompleter, 1.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = kind(2, **QUICK).fit(world.pairs, world.answers, factor * weight)
        assert np.isfinite(model.predict_proba([(0, 0)])).all()


def test_a_diverging_chain_names_itself_and_keeps_the_last_good_checkpoint(world, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    from onebit.engine.sampling.chain import Chain

    step = Chain._draw_side

    def fail(self, side, *others):
        if self.sweep == 7:
            self.lines.table(1 - side)[3, 0] = np.nan
        return step(self, side, *others)

    monkeypatch.setattr(Chain, "_draw_side", fail)
    model = LogisticCompleter(2, **QUICK)
    with pytest.raises(FloatingPointError, match=r"diverged in sweep 7: a draw of row \d+ is not finite"):
        model.fit(world.pairs, world.answers, checkpoint=tmp_path / "kept")
    monkeypatch.setattr(Chain, "_draw_side", step)
    sweeps = []
    model.fit(
        world.pairs,
        world.answers,
        checkpoint=tmp_path / "kept",
        callback=lambda p: sweeps.append(p.round),
    )
    assert sweeps[0] == 7  # the sixth was the last good one


def test_sampling_beats_the_variational_posterior_where_answers_are_few():
    world = simulate.world("B3", rank=3, seed=0)
    test = world.all_pairs
    chance = 1 / (1 + np.exp(-world.truth.ravel()))
    fresh = np.where(np.random.default_rng(0).random(len(chance)) < chance, 1, -1)
    losses = {}
    for inference in ("variational", "sampling"):
        model = LogisticCompleter(5, effects=False, inference=inference, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(world.pairs, world.answers)
        losses[inference] = log_loss(fresh, model.predict_proba(test)[:, 1])
    assert losses["sampling"] < losses["variational"]
