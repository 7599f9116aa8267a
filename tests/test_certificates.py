"""Certificates: they hold as often as they say, and refuse what they cannot know."""

import numpy as np
import pytest
from scipy.stats import binom

import onebit
from onebit import AutoCompleter, HingeCompleter, LogisticCompleter, NuclearNormCompleter, simulate
from onebit.bounds import binomial_upper_bound
from onebit.certificates import SHARES, Certificate, HeldOut, above, at_most, confidence


@pytest.mark.parametrize(("errors", "trials"), [(0, 10), (3, 50), (40, 400), (5000, 20000)])
@pytest.mark.parametrize("delta", [0.01, 0.05, 0.3])
def test_the_bound_is_where_so_few_errors_have_probability_delta(errors, trials, delta):
    bound = binomial_upper_bound(errors, trials, delta)
    assert binom.cdf(errors, trials, bound) == pytest.approx(delta, rel=1e-6)


def test_nothing_held_out_or_nothing_right_gives_the_trivial_bound():
    assert binomial_upper_bound(0, 0, 0.05) == 1.0
    assert binomial_upper_bound(7, 7, 0.05) == 1.0


def draw_held_out(rng, n):
    """Predictions whose error rate, given the confidence c, is 1 - c, with c uniform on (0.5, 1)."""
    confidence = rng.uniform(0.5, 1.0, n)
    return HeldOut.count(confidence, rng.random(n) < 1 - confidence)


@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_the_certificate_covers_the_risk_in_one_minus_delta_of_draws(delta):
    rng = np.random.default_rng(0)
    risk, draws = 0.25, 2000
    covered = np.mean([draw_held_out(rng, 150).certify(delta).bound >= risk for _ in range(draws)])
    assert covered >= 1 - delta - 3 * np.sqrt(delta * (1 - delta) / draws)
    assert covered <= 1 - delta / 3  # and is not vacuous


def selective_coverage(delta, split, draws=1500):
    """How often every rung of the ladder covers its own risk; ``split`` is what delta is divided by."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(draws):
        sample = draw_held_out(rng, 200)
        ladder = sample.certify_selective(delta)
        # Above a threshold t the confidence is uniform on (t, 1): the risk is (1 - t) / 2.
        risks = [(1 - max(t, 0.5)) / 2 for t in ladder.thresholds]
        counts = [(c.terms["errors"], c.terms["held-out answers"]) for c in ladder.certificates]
        bounds = [binomial_upper_bound(*count, delta / split) for count in counts]
        if split == len(SHARES):
            assert bounds == [certificate.bound for certificate in ladder.certificates]
        held += all(b >= r for b, r in zip(bounds, risks, strict=True))
    return held / draws


def test_the_selective_certificates_all_hold_at_once():
    assert selective_coverage(0.2, len(SHARES)) >= 0.8


def test_the_same_check_catches_a_delta_that_was_not_split():
    assert selective_coverage(0.2, 1) < 0.8 - 0.05


def test_what_is_kept_is_certified_and_the_largest_such_share(rng):
    sample = draw_held_out(rng, 5000)
    kept = sample.keep(max_error=0.2, delta=0.05)
    ladder = sample.certify_selective(0.05).table()
    assert kept.certificate.bound <= 0.2
    assert kept.share == ladder.loc[ladder["error_at_most"] <= 0.2, "share"].max()
    nothing = sample.keep(max_error=1e-6, delta=0.05)
    assert nothing.share == 0.0
    assert nothing.certificate is None


COMPLETERS = [
    LogisticCompleter(3, random_state=0),
    HingeCompleter(3, random_state=0),
    NuclearNormCompleter(2, random_state=0),
    AutoCompleter(random_state=0),
]


@pytest.mark.parametrize("model", COMPLETERS, ids=lambda model: type(model).__name__)
def test_every_completer_certifies_itself(model, small_world, tmp_path):
    model.fit(small_world.pairs, small_world.answers, certify=0.2)
    certificate = model.certify(delta=0.05)
    assert certificate.terms["held-out answers"] == round(0.2 * len(small_world.answers))
    assert 0.1 < certificate.bound < 0.5
    assert "With probability 0.95, at most" in str(certificate)
    kept = model.keep(max_error=0.35)
    assert (model.confidence(small_world.pairs) > kept.threshold).mean() > 0
    assert "surest 100%" in str(model.certify_selective())
    model.save(tmp_path / "model.onebit")
    assert onebit.load(tmp_path / "model.onebit").certify() == certificate


def test_certificates_of_fitted_models_hold_in_simulated_worlds():
    """The risk is that of a fresh answer to a fresh entry, known exactly in world A2."""
    delta, held = 0.2, []
    for seed in range(120):
        world = simulate.world("A2", rank=1, shape=(20, 20), density=1.0, repeats=True, seed=seed)
        model = HingeCompleter(2, calibrate=False, random_state=seed, max_iter=30)
        model.fit(world.pairs, world.answers, certify=0.25)
        wrong = model.decision_function(world.all_pairs).reshape(20, 20) * world.truth <= 0
        risk = np.mean(np.where(wrong, 0.9, 0.1))
        held.append(model.certify(delta).bound >= risk)
    assert np.mean(held) >= 1 - delta - 2.5 * np.sqrt(delta * (1 - delta) / len(held))


def test_the_held_out_answers_are_not_seen_by_the_fit(small_world):
    """Answers that contradict the truth when held out would be learnt if they leaked."""
    pairs = np.repeat(small_world.pairs[:300], 1, axis=0)
    answers = np.random.default_rng(0).choice([-1, 1], 300)
    model = LogisticCompleter(5, random_state=0, temperature=20.0, prior_scale=1.0)
    model.fit(pairs, answers, certify=0.5)
    assert 0.35 < model.certify().terms["observed error"] < 0.65


def test_a_certificate_survives_json(small_world):
    model = LogisticCompleter(2, random_state=0).fit(small_world.pairs, small_world.answers, certify=0.1)
    certificate = model.certify()
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_too_few_answers_give_a_trivial_bound_and_say_so():
    model = LogisticCompleter(1).fit(
        [(i, j) for i in range(4) for j in range(4)], [0, 1] * 8, certify=0.1
    )
    assert model.certify().trivial
    assert "to say more than guessing does" in str(model.certify())


def test_what_cannot_be_certified_is_refused(small_world):
    pairs, answers = small_world.pairs, small_world.answers
    model = LogisticCompleter(2).fit(pairs, answers)
    with pytest.raises(ValueError, match=r"cannot certify it; fit with certify=0\.1"):
        model.certify()
    with pytest.raises(ValueError, match="cannot be had with sample_weight"):
        LogisticCompleter(2).fit(pairs, answers, np.ones(len(answers)), certify=0.1)
    for share in (1.0, -0.2, True):
        with pytest.raises(ValueError, match="certify is the share"):
            LogisticCompleter(2).fit(pairs, answers, certify=share)
    with pytest.raises(ValueError, match="holds out 0"):
        LogisticCompleter(2).fit(pairs[:3], answers[:3], certify=0.1)
    model.fit(pairs, answers, certify=0.1)
    for delta in (0.0, 1.0, -1, 2):
        with pytest.raises(ValueError, match="delta must lie between 0 and 1"):
            model.certify(delta)
    with pytest.raises(ValueError, match="max_error"):
        model.keep(1.5)


def test_repeated_entries_are_counted_in_the_terms(small_world):
    pairs, answers = np.repeat(small_world.pairs, 2, axis=0), np.repeat(small_world.answers, 2)
    model = LogisticCompleter(2, random_state=0).fit(pairs, answers, certify=0.1)
    repeated = model.certify().terms["held-out answers to entries that were fitted too"]
    assert repeated > 0.5 * model.certify().terms["held-out answers"]


def test_what_is_kept_says_so_in_a_sentence(rng):
    sample = draw_held_out(rng, 5000)
    assert "Keep the predictions with a confidence above" in str(sample.keep(0.2, 0.05))
    assert "No share of the predictions can be kept" in str(sample.keep(1e-6, 0.05))


@pytest.mark.parametrize("bound", [0.0295131, 0.29999999, 0.05, 1e-7, 0.123456])
def test_what_is_printed_is_never_more_than_what_is_proved(bound):
    for digits in (1, 2):
        printed = float(at_most(bound, digits).rstrip("%")) / 100
        assert bound - 1e-9 <= printed < bound + 1.01 * 10.0 ** -(digits + 2)
    assert float(above(bound)) >= bound - 1e-9


@pytest.mark.parametrize("delta", [0.05, 0.2, 0.004, 1e-5, 3e-7, 0.123456])
def test_a_confidence_is_rounded_down_and_never_certainty(delta):
    assert 1 - 1.2 * delta - 1e-4 < float(confidence(delta)) <= 1 - delta + 1e-12
    assert float(confidence(delta)) < 1
