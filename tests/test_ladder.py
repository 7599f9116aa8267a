"""The ladder: every rung is what its formula says, and holds as often as it says."""

import math

import numpy as np
import pytest
from sklearn.base import clone

import onebit
from onebit import (
    AutoCompleter,
    GibbsCompleter,
    HingeCompleter,
    LogisticCompleter,
    NuclearNormCompleter,
    Observations,
    simulate,
)
from onebit.certificates.bounds import catoni, pac_bayes_kl, theorem_1
from onebit.certificates.directions import divergence
from onebit.certificates.gibbs_risk import gibbs_risk
from onebit.certificates.procedures import TILTS
from onebit.certificates.statements import Certificate
from onebit.engine.descent import Schedule, minimise
from onebit.engine.seeds import generator
from onebit.engine.workers import Cpu
from onebit.model.learnt_prior import LearntPrior
from onebit.model.losses import LOGISTIC


@pytest.fixture(scope="module")
def world():
    return simulate.world("A2", rank=2, shape=(80, 70), density=0.5, seed=0)


@pytest.fixture(scope="module")
def fitted(world):
    return LogisticCompleter(4, pattern=None, random_state=0).fit(world.pairs, world.answers, certify=0.1)


@pytest.fixture(scope="module")
def ladder(fitted):
    return fitted.certify(0.05, method="all")


@pytest.fixture(scope="module")
def gibbs(world):
    return GibbsCompleter(4, random_state=0).fit(world.pairs, world.answers, certify=0)


def test_the_ladder_shares_delta_and_its_rungs_are_those_asked_for_one_by_one(fitted, ladder):
    assert len(ladder.certificates) == 9
    assert all(c.delta == pytest.approx(0.05 / 9) for c in ladder.certificates)
    assert ladder.own == fitted.certify(0.05, method="hold-out")
    alone = fitted.certify(0.05 / 9, method="catoni")
    assert alone in ladder.certificates
    assert list(ladder.table()["at_most"]) == [c.bound for c in ladder.rungs]
    assert str(ladder).count("\n") == 11
    # The paper's own bound says nothing; each later data-free rung says more.
    bounds = {c.method: c.bound for c in ladder.certificates}
    values = list(bounds.values())
    assert values[0] == 1.0
    assert values[0] > values[1] > values[2] > bounds["PAC-Bayes-kl, posterior optimised for it"]


def test_the_best_is_of_the_model_itself_and_never_of_another_predictor(world, fitted, gibbs):
    assert fitted.certify(0.05).method == "hold-out, Clopper-Pearson"
    assert fitted.certify(0.05).of_this_model
    # A rung with a lower bound than the model's own must not become the best.
    sharp = simulate.world("A1", rank=1, shape=(60, 60), density=0.7, seed=0)
    model = HingeCompleter(2, effects=False, calibrate=False, random_state=0)
    model.fit(sharp.pairs, sharp.answers, certify=0.02)
    ladder = model.certify(0.05, method=("progressive", "hold-out"))
    assert ladder.certificates[0].bound < ladder.own.bound
    assert ladder.best is ladder.own
    assert not any(c.of_this_model for c in ladder.certificates)
    with pytest.raises(ValueError, match="no certificate of the model itself"):
        gibbs.certify(0.05)
    with pytest.raises(ValueError, match="none of these certificates speaks of the model itself"):
        _ = gibbs.certify(0.05, method=("pac-bayes-kl", "catoni")).best
    drawn = gibbs.certify(0.05, method="pac-bayes-kl")
    assert drawn.bound < 0.5
    assert not drawn.of_this_model


@pytest.mark.parametrize("effects", [True, False])
def test_pac_bayes_kl_is_its_formula(world, effects):
    model = GibbsCompleter(4, effects=effects, temperature=1.0, random_state=0)
    model.fit(world.pairs, world.answers, certify=0)
    seen, rng = model._answers.fitted, np.random.default_rng([2, 3])  # a stream of its own
    certificate = model.certify(0.05, method="pac-bayes-kl", random_state=3)
    price, choices, rest = model.posterior_.kl, 5, 0.045  # ranks 0 to 4
    if not effects:  # then the lengths of rows and columns do not count
        price = divergence(model.posterior_, seen.n, 0.005, rng).upper
        assert price < model.posterior_.kl
        choices, rest = 2 * choices, 0.04
    risk = gibbs_risk(model.posterior_, seen, 0.005, rng)
    expected = pac_bayes_kl(risk.upper, price + math.log(choices), seen.n, rest)
    assert certificate.bound == pytest.approx(expected)
    spent = [value for name, value in certificate.terms.items() if name.startswith("delta of")]
    assert sum(spent) == pytest.approx(0.05)


def test_theorem_1_of_the_papers_method_uses_its_avb(world):
    model = HingeCompleter(
        3, method="paper", max_iter=30, temperature=1.0, calibrate=False, random_state=0
    )
    model.fit(world.pairs, world.answers, certify=0)
    n = len(world.answers)
    printed = model.certificate("theorem-1-printed", 0.05)
    avb = model.avb_
    expected = theorem_1(avb.hinge_risk + avb.spread, avb.divergence, n, n, 0.05, printed=True)
    assert printed.bound == pytest.approx(min(expected, 1.0))
    sharp = model.certificate("theorem-1", 0.05)
    assert sharp.terms["bound on the hinge risk"] == pytest.approx(avb.hinge_risk + avb.spread)


def test_the_optimised_posterior_has_a_better_certificate_than_the_others(world):
    data = simulate.world("A1", rank=2, shape=(100, 100), density=0.3, seed=1)
    hinge = HingeCompleter(2, effects=False, calibrate=False, random_state=0)
    logistic = LogisticCompleter(2, effects=False, random_state=0)
    bounds = [
        model.fit(data.pairs, data.answers, certify=0).certify(0.05, method="pac-bayes-kl").bound
        for model in (GibbsCompleter(2, random_state=0), hinge, logistic)
    ]
    assert bounds[0] < min(bounds[1:])


def test_drawing_again_with_a_seed_is_the_same_draw_and_each_seed_has_its_share_of_delta(world):
    model = GibbsCompleter(3, random_state=0).fit(world.pairs, world.answers, certify=0)
    first, again, other = (model.draw(seed) for seed in (0, 0, 1))
    assert first.certify(0.05) == again.certify(0.05)
    np.testing.assert_array_equal(first.predictor.rows, again.predictor.rows)
    assert not np.array_equal(first.predictor.rows, other.predictor.rows)
    shares = [model.draw(seed).certify(0.05).terms["delta of this draw"] for seed in range(40)]
    assert shares[0] == pytest.approx(0.05 / 2)
    assert shares[1] == pytest.approx(0.05 / 6)
    assert sum(shares) == pytest.approx(0.05 * (1 - 1 / 41))  # all seeds together spend delta
    for seed in (-1, 0.5, True, None):
        with pytest.raises(ValueError, match="whole number from 0"):
            model.draw(seed)


def test_a_drawn_predictor_predicts_with_its_own_scores(world, gibbs):
    drawn = gibbs.draw(1)
    scores = drawn.decision_function(world.all_pairs).reshape(world.truth.shape)
    assert world.error(scores) < 0.2
    assert not np.array_equal(np.sign(scores), np.sign(gibbs.complete("score").to_numpy()))
    np.testing.assert_array_equal(
        drawn.predict(world.pairs[:5]), np.sign(scores[tuple(world.pairs[:5].T)])
    )
    with pytest.raises(ValueError, match="row id 999 was not fitted"):
        drawn.predict([(999, 0)])


def test_a_refitted_model_adds_what_it_changed(fitted, world):
    second = fitted.refit()
    certificate = second.certify(0.05)
    differ = np.mean(
        np.sign(second.decision_function(world.all_pairs))
        != np.sign(fitted.decision_function(world.all_pairs))
    )
    share = certificate.terms["share on which the two fits disagree"]
    assert share >= differ > 0
    assert certificate.bound == pytest.approx(fitted.certify(0.05).bound + share)
    assert second.n_observations_ == len(world.answers)
    with pytest.raises(ValueError, match="before refit"):
        second.certify_selective()
    with pytest.raises(ValueError, match="as it was fitted"):
        second.refit()


def test_a_saved_model_keeps_the_hold_out_and_says_what_is_gone(fitted, tmp_path):
    fitted.refit().save(tmp_path / "second.onebit")
    again = onebit.load(tmp_path / "second.onebit")
    assert again.certify(0.05).bound == fitted.refit().certify(0.05).bound
    with pytest.raises(ValueError, match="no certificate 'catoni'; it has hold-out"):
        again.certify(0.05, method="catoni")
    with pytest.raises(ValueError, match="fit with certify=0"):
        again.draw()


@pytest.mark.parametrize(
    "model",
    [
        AutoCompleter(losses=("logistic",), sampling_seconds=0, random_state=0),
        NuclearNormCompleter(random_state=0),
    ],
    ids=["auto", "nuclear"],
)
def test_a_tuned_model_has_no_data_free_certificate_of_its_own(model, world):
    model.fit(world.pairs, world.answers, certify=0)
    with pytest.raises(ValueError, match="nothing was held out"):
        model.certify(0.05)
    with pytest.raises(ValueError, match="no certificate 'pac-bayes-kl'"):
        model.certify(0.05, method="pac-bayes-kl")
    assert model.certify(0.05, method="progressive").bound < 0.3


def test_what_cannot_be_certified_is_refused(world, fitted):
    plain = LogisticCompleter(2).fit(world.pairs, world.answers)
    with pytest.raises(ValueError, match=r"certify=0\.1"):
        plain.certify()
    with pytest.raises(ValueError, match="certify=0"):
        plain.draw()
    with pytest.raises(ValueError, match="sample_weight"):
        LogisticCompleter(2).fit(world.pairs, world.answers, np.ones(len(world.answers)) * 2.5, certify=0)
    with pytest.raises(ValueError, match="delta must lie"):
        fitted.certify(1.5)
    with pytest.raises(ValueError, match="from 0 to below 1"):
        LogisticCompleter(2).fit(world.pairs, world.answers, certify=1.0)
    with pytest.raises(ValueError, match="no certificate 'magic'"):
        fitted.certify(0.05, method="magic")


def test_folding_in_leaves_no_certificate_of_the_posterior(world):
    model = LogisticCompleter(2, pattern=None, random_state=0).fit(
        world.pairs, world.answers, certify=0.1
    )
    model.fold_in([(1000, 0), (1000, 1)], [1, 0])
    with pytest.raises(ValueError, match="no certificate 'pac-bayes-kl'"):
        model.certify(0.05, method="pac-bayes-kl")


def test_certificates_survive_json(ladder):
    for certificate in ladder.certificates:
        assert Certificate.from_json(certificate.to_json()) == certificate


def risk_of(world, scores, flip):
    """The risk of signs on a fresh entry with fresh noise."""
    wrong = scores * np.sign(world.truth) <= 0
    return float(np.where(wrong, 1 - flip, flip).mean())


@pytest.fixture(scope="module")
def small_worlds():
    return [
        simulate.world("A2", rank=1, shape=(25, 25), density=0.8, seed=seed, repeats=True)
        for seed in range(12)
    ]


@pytest.fixture(scope="module")
def optimised(small_worlds):
    model = GibbsCompleter(2, effects=False, random_state=0)
    return [clone(model).fit(world.pairs, world.answers, certify=0) for world in small_worlds]


def test_progressive_validation_covers_in_small_worlds(small_worlds):
    held, slack = 0, []
    for world in small_worlds:
        model = GibbsCompleter(2, effects=False, temperature=2.0, random_state=0)
        model.fit(world.pairs, world.answers, certify=0)
        bound = model.certify(0.2, method="progressive").bound
        scores = model.complete("score").reindex(range(25), axis=0).reindex(range(25), axis=1)
        risk = risk_of(world, scores.fillna(0).to_numpy(), 0.1)
        held += bound >= risk
        slack.append(bound - risk)
    assert held >= 10
    assert np.mean(slack) < 0.5


@pytest.mark.parametrize("method", ["draw", "optimised"])
def test_the_rungs_cover_in_small_worlds(method, small_worlds, optimised):
    held, slack = 0, []
    for world, model in zip(small_worlds, optimised, strict=True):
        drawn = model.draw(0)
        drawn_bound, mean = drawn.certify(0.2).bound, model.certify(0.2, method="pac-bayes-kl").bound
        bound = drawn_bound if method == "draw" else mean
        known = world.all_pairs[
            np.isin(world.all_pairs[:, 0], world.pairs[:, 0])
            & np.isin(world.all_pairs[:, 1], world.pairs[:, 1])
        ]
        wrong = drawn.decision_function(known) * np.sign(world.truth[tuple(known.T)]) <= 0
        risk = float(np.where(wrong, 0.9, 0.1).mean())
        held += bound >= risk
        slack.append(bound - risk)
    assert held >= 10
    assert np.mean(slack) < 0.5


@pytest.fixture(scope="module")
def learnt(world):
    first = LogisticCompleter(2, effects=True, pattern=None, random_state=0).fit(
        world.pairs[:1500], world.answers[:1500]
    )
    start = first.posterior_
    means = (start.rows.mean, start.columns.mean)
    variances = (0.5 * start.rows.variance, 0.5 * start.columns.variance)
    return start, LearntPrior(start.hierarchy, means, variances), first


def test_the_divergence_from_a_learnt_prior_is_that_between_gaussians(learnt):
    start, prior, _ = learnt
    total = 0.0
    for side, mean, variance in zip(start.sides, prior.means, prior.variances, strict=True):
        for i, covariance in enumerate(side.dense_covariance()):
            shift = side.mean[i] + 0.1 - mean[i]
            total += 0.5 * (
                np.trace(covariance / variance[i]) + (shift**2 / variance[i]).sum() - len(shift)
                + np.log(variance[i]).sum() - np.linalg.slogdet(covariance)[1]
            )  # fmt: skip
    sums = [
        prior.side_sums(k, side.mean + 0.1, side.variance, float(side.log_determinants().sum()))
        for k, side in enumerate(start.sides)
    ]
    assert prior.kl(tuple(sums), start.hyper) == pytest.approx(total, rel=1e-10)


def test_the_engine_descends_from_a_learnt_prior(learnt, world):
    start, prior, first = learnt
    rows, columns = (
        first.rows_.encode(world.pairs[1500:, 0]),
        first.columns_.encode(world.pairs[1500:, 1]),
    )
    rest = Observations.from_codes(first.rows_, first.columns_, rows, columns, world.answers[1500:])
    fit = minimise(
        rest, prior, LOGISTIC, start,
        full=True, temperature=1.0, schedule=Schedule(40, 1e-9), workers=Cpu(),
    )  # fmt: skip
    assert np.diff(fit.path).max() <= 1e-7 * abs(fit.path[-1])
    view = rest.by_row
    mean, variance = fit.posterior.score_moments(view.owners(), view.index)
    loss = LOGISTIC.bound(view.sign, mean, mean**2 + variance).mean()
    assert fit.objective == pytest.approx(loss + fit.divergence / rest.n, rel=1e-6)


def test_a_learnt_prior_pays_for_the_shares_and_the_widths_it_tried(fitted):
    certificate = fitted.certify(0.05, method="learnt-prior")
    terms = certificate.terms
    assert certificate.bound < fitted.certify(0.05, method="pac-bayes-kl").bound
    tried, share = int(terms["lambdas tried"]), terms["delta each"]
    assert terms["delta of the draws"] + tried * share == pytest.approx(0.025)
    price, n = terms["KL"] + math.log(3), int(terms["held-out answers"])
    expected = min(catoni(terms["at most"], price, n, tilt * n, share) for tilt in TILTS)
    assert certificate.bound == pytest.approx(expected)
    assert tried == len(TILTS)
    together = terms["answers that taught the prior"] + terms["held-out answers"]
    assert together == len(fitted._answers.everything.by_row.sign)


def test_rows_folded_in_since_the_fit_are_an_error_not_a_crash(world):
    model = LogisticCompleter(2, pattern=None, random_state=0).fit(world.pairs, world.answers, certify=0)
    model.fold_in([(1000 + k, 0) for k in range(40)], [1] * 40)
    with pytest.raises(ValueError, match="folded in since the fit"):
        model.certificate("pac-bayes-kl", 0.05)


def test_each_rung_says_whose_predictions_and_which_entries_it_speaks_of(ladder):
    rungs = {c.method: c for c in ladder.rungs}
    assert (
        "of a GibbsCompleter (random_state=0)"
        in rungs["PAC-Bayes-kl, posterior optimised for it"].predictor
    )
    assert "of a GibbsCompleter" in rungs["one draw, disintegrated PAC-Bayes-kl"].predictor
    for method, certificate in rungs.items():
        said = " ".join(certificate.assumptions)
        inside = "PAC-Bayes" in method or "Theorem 1" in method
        whole = inside and "learnt" not in method
        assert ("the whole table, the answered ones included" in said) == whole, method
        assert ("outside the fitted part" in said) != whole, method
        searched = "log of the priors chosen from" in certificate.terms and "learnt" not in method
        assert ("the choice among them is paid for" in said) == searched, method
        assert not (searched and "the prior (rank" in said), method


def test_the_draw_of_a_ladder_does_not_loosen_when_it_is_asked_for_again(world, tmp_path):
    model = LogisticCompleter(2, pattern=None, random_state=0).fit(world.pairs, world.answers, certify=0)
    first, again = (model.certify(0.05, method="draw") for _ in range(2))
    assert first == again
    model.save(tmp_path / "m.onebit")
    assert onebit.load(tmp_path / "m.onebit").certify(0.05, method="draw") == first
    other = model.certify(0.05, method="draw", random_state=3)
    assert other.terms["delta of this draw"] == pytest.approx(0.05 / 20)


@pytest.mark.parametrize("method", ["progressive", "learnt-prior"])
def test_too_few_answers_to_divide_is_one_clear_error(method):
    model = LogisticCompleter(1).fit([(0, 0), (1, 1), (0, 1), (1, 0)], [1, 0, 1, 0], certify=0)
    with pytest.raises(ValueError, match="4 answers are too few to be divided"):
        model.certify(0.05, method=method)


def test_a_gibbs_completer_of_noise_has_no_nan_and_survives_saving(tmp_path):
    rng = np.random.default_rng(0)
    pairs, answers = rng.integers(0, 20, (200, 2)), rng.integers(0, 2, 200)
    model = GibbsCompleter(2, effects=False, random_state=0).fit(pairs, answers)
    assert np.isfinite(model.predict_proba(pairs)).all()
    model.save(tmp_path / "model.onebit")
    assert onebit.load(tmp_path / "model.onebit").temperature_ == model.temperature_


def test_a_draw_is_independent_of_the_fit_that_has_the_same_seed(world, monkeypatch):
    """The stream that started the fit must not be the one that draws."""
    model = GibbsCompleter(2, effects=False, temperature=1.0, random_state=0)
    model.fit(world.pairs, world.answers, certify=0)
    fitting = generator(model.random_state).standard_normal(5)
    posterior = model.posterior_
    noise = (model.draw(0).predictor.rows - posterior.rows.mean)[0]
    root = posterior.rows.roots[0]
    drawn = np.linalg.solve(root, noise)
    assert not np.allclose(drawn, fitting[: len(drawn)])


def test_draws_and_choices_are_the_same_after_saving(world, tmp_path):
    model = GibbsCompleter(3, temperature=1.0, random_state=0)
    model.fit(world.pairs, world.answers, certify=0)
    model.save(tmp_path / "m.onebit")
    again = onebit.load(tmp_path / "m.onebit")
    assert again.draw(2).certify(0.05) == model.draw(2).certify(0.05)
    price = "log of the priors chosen from"
    before = again.certify(0.05, method="pac-bayes-kl").terms[price]
    again.set_params(rank=0, effects=False)  # a fit pays for what it chose from, not for what is set now
    assert again.certify(0.05, method="pac-bayes-kl").terms[price] == before


def test_small_data_still_has_the_rungs_that_divide_nothing():
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 8, (80, 2))
    model = LogisticCompleter(1, random_state=0).fit(pairs, rng.integers(0, 2, 80), certify=0.2)
    methods = [c.method for c in model.certify(0.1, method="all").rungs]
    assert any("hold-out" in method for method in methods)
    assert not any("progressive" in method for method in methods)
