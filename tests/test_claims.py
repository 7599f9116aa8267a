"""Certificates of what people ask: blanks, groups, lists, gains; each held against a known truth."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, binomtest, hypergeom
from typer.testing import CliRunner

from onebit import LogisticCompleter, simulate
from onebit.certificates import scores
from onebit.certificates.betting import _stakes, betting_upper_bound, shuffled
from onebit.certificates.blanks import REALISED, odds_of_blank, weighted_bound
from onebit.certificates.bounds import hypergeometric_upper_bound, rest_upper_bound
from onebit.certificates.claims import Claim, Sheet
from onebit.certificates.hold_out import HeldOut
from onebit.certificates.shifts import breaking_shift, shifted
from onebit.certificates.statements import BLANKS
from onebit.cli import app
from onebit.completers.claiming import given_propensities
from onebit.completers.lists import _counted_lists, kept_of_lists

DELTAS = (0.05, 0.2)


def at_most_delta(failures, worlds, delta):
    """Say whether so many failures are compatible with a probability of delta."""
    return binomtest(failures, worlds, delta, alternative="greater").pvalue > 0.01


def counted(confidence, yes, sign, **more):
    decision = np.where(yes, 1.0, -1.0)
    return HeldOut.count(confidence, decision, sign, **more)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("draw", [
    lambda rng: rng.uniform(0, 1, 150),
    lambda rng: (rng.random(150) < 0.03).astype(float),
    lambda rng: rng.beta(0.2, 3.0, 150),
])  # fmt: skip
def test_betting_fails_no_more_often_than_it_says(draw, delta):
    rng = np.random.default_rng(0)
    mean = np.mean([draw(rng).mean() for _ in range(4000)])
    bounds = np.array([betting_upper_bound(draw(rng), delta) for _ in range(400)])
    assert at_most_delta(int((bounds < mean).sum()), 400, delta)
    assert bounds.mean() < mean + 0.15  # and it says something


def test_a_stake_depends_on_no_draw_that_it_bets_on():
    draws = np.random.default_rng(0).random(30)
    before = _stakes(draws, 0.05)
    for k in (0, 1, 7, 29):
        other = np.where(np.arange(30) < k, draws, 1.0 - draws)
        assert (_stakes(other, 0.05)[: k + 1] == before[: k + 1]).all()
    assert (np.diff(before) != 0).any()


def test_betting_tightens_with_more_draws_and_refuses_what_is_no_share():
    rng = np.random.default_rng(1)
    wide, narrow = (betting_upper_bound(rng.random(n) * 0.4, 0.05) for n in (50, 5000))
    assert 0.2 < narrow < wide
    assert narrow < 0.215
    assert betting_upper_bound(np.empty(0), 0.05) == 1.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        betting_upper_bound(np.array([0.5, 1.2]), 0.05)


def test_the_hypergeometric_bound_is_the_largest_that_the_count_leaves():
    for errors, trials, population, delta in ((0, 20, 30, 0.05), (3, 25, 40, 0.2), (10, 10, 15, 0.05)):
        found = hypergeometric_upper_bound(errors, trials, population, delta)
        assert hypergeom.cdf(errors, population, found, trials) >= delta or found == errors
        if found < population - (trials - errors):
            assert hypergeom.cdf(errors, population, found + 1, trials) < delta
    with pytest.raises(ValueError, match="errors <= trials"):
        hypergeometric_upper_bound(3, 2, 10, 0.05)


@pytest.mark.parametrize("delta", DELTAS)
def test_the_blanks_of_a_nearly_full_table_have_a_bound_of_their_own(delta):
    rng = np.random.default_rng(2)
    failures, worlds = 0, 400
    for _ in range(worlds):
        wrong = rng.random(120) < 0.15
        order = rng.permutation(120)
        held, blank = wrong[order[:90]], wrong[order[90:]]
        most = hypergeometric_upper_bound(int(held.sum()), 90, 120, delta)
        failures += blank.sum() > most - held.sum()
    assert at_most_delta(failures, worlds, delta)


def test_a_shift_is_a_ratio_of_odds():
    for risk in (0.01, 0.2, 0.4):
        for shift in (1.0, 1.5, 4.0):
            found = shifted(risk, shift)
            assert (1 - risk) / risk == pytest.approx(shift * (1 - found) / found)
        assert shifted(risk, breaking_shift(risk)) == pytest.approx(0.5)
        assert shifted(risk, 1.0, "density") == pytest.approx(risk)
    # The density ratio's bound is reached by the worst weighting within it.
    wrong = np.arange(1000) < 200
    weight = np.where(wrong, 2.0, (1 - 0.4) / 0.8)
    assert np.average(wrong, weights=weight) == pytest.approx(shifted(0.2, 2.0, "density"))
    with pytest.raises(ValueError, match="at least 1"):
        shifted(0.1, 0.5)
    with pytest.raises(ValueError, match="odds"):
        shifted(0.1, 2.0, "other")


def chosen_world(rng, size=(60, 50)):
    """A world in which what is hard is seldom answered: errors, chances of being answered, answered."""
    hard = rng.random(size)
    wrong = rng.random(size) < 0.05 + 0.4 * hard
    chance = 0.05 + 0.6 * (1 - hard) ** 2
    answered = rng.random(size) < chance
    return wrong, chance, answered


@pytest.mark.parametrize("delta", DELTAS)
def test_weights_by_the_odds_of_being_blank_hold_where_the_plain_count_fails(delta):
    rng = np.random.default_rng(3)
    worlds, failures, plain, slack = 300, 0, 0, []
    for _ in range(worlds):
        wrong, chance, answered = chosen_world(rng)
        held = answered & (rng.random(wrong.shape) < 0.3)
        outside = ~(answered & ~held)
        place = rng.permutation(np.flatnonzero(held))
        share = held.sum() / answered.sum()
        found = weighted_bound(wrong.ravel()[place], chance.ravel()[place], chance[outside], share, delta)
        blank = odds_of_blank(chance[outside], share)[0]
        truth = np.average(wrong[outside], weights=1 - blank)
        failures += found.bound < truth
        slack.append(found.bound - truth)
        plain += betting_upper_bound(wrong.ravel()[place].astype(float), delta) < truth
    assert at_most_delta(failures, worlds, delta)
    assert plain > 0.5 * worlds
    assert np.mean(slack) < 0.25


@pytest.mark.parametrize("delta", DELTAS)
def test_scores_and_gains_hold(delta):
    rng = np.random.default_rng(4)
    worlds, failures = 250, np.zeros(4, dtype=int)
    truth = None
    for number in range(worlds + 1):
        n = 200_000 if number == 0 else 300
        chance = rng.beta(2, 1.5, n)
        answer = rng.random(n) < np.clip(chance + 0.05 * np.sin(9 * chance), 0, 1)
        held = counted(np.maximum(chance, 1 - chance), chance > 0.5, np.where(answer, 1, -1), commoner=1)
        means = [scores.log_loss_bound(held, delta), scores.brier_bound(held, delta),
                 scores.gain_bound(held, held.sign < 0, delta)]  # fmt: skip
        if number == 0:
            truth = [mean.observed for mean in means]
            frequency = [band.observed for band in scores.calibration_bands(held, delta)]
            continue
        failures[0] += means[0].bound < truth[0]
        failures[1] += means[1].bound < truth[1]
        failures[2] += means[2].bound > truth[2]
        bands = scores.calibration_bands(held, delta)
        failures[3] += any(
            not band.low <= true <= band.high for band, true in zip(bands, frequency, strict=True)
        )
    for count in failures:
        assert at_most_delta(int(count), worlds, delta)


def test_mcnemar_is_the_binomial_test_of_what_differs():
    sign = np.array([1] * 30 + [-1] * 10)
    held = counted(np.full(40, 0.9), np.array([True] * 28 + [False] * 12), sign)
    other = held.sign < 0
    better, worse = int((other & ~held.wrong).sum()), int((~other & held.wrong).sum())
    assert (better, worse) == (10, 2)
    assert scores.mcnemar(held, other) == pytest.approx(
        sum(math.comb(12, k) for k in range(10, 13)) / 2**12
    )


@pytest.fixture(scope="module")
def world():
    return simulate.world("B3", rank=2, shape=(100, 80), density=0.5, seed=1)


@pytest.fixture(scope="module")
def model(world):
    model = LogisticCompleter(3, random_state=0, n_jobs=1)
    return model.fit(world.pairs, world.answers, certify=0.3)


def test_a_certificate_prints_the_shift_at_which_it_says_nothing(model):
    found = model.certify()
    # The blanks of this table are few enough to have a bound of their own.
    of_blanks = max(found.bound, found.terms[BLANKS])
    assert f"have {breaking_shift(of_blanks):.3g} times their odds of a right prediction" in str(found)
    other = model.certify(shift=2.0)
    assert other.bound == pytest.approx(shifted(of_blanks, 2.0))
    assert "multiplies the odds that a prediction is right by at most 2" in other.assumptions[0]
    assert "or more" not in str(other)
    assert other.predictor == "the predictions of blanks"


def test_a_shift_of_weighed_blanks_is_one_from_how_they_are_weighed(model):
    weighed = model.certify(target="blanks")
    found = model.certify(target="blanks", shift=1.5)
    assert found.bound == pytest.approx(shifted(weighed.bound, 1.5))
    assert "at most 1.5 times as high among blanks as they are weighed as" in found.assumptions[0]
    assert "like those answered" not in found.assumptions[0]


def test_groups_hold_all_at_once_and_small_ones_say_so(model):
    groups = {row: "even" if row % 2 == 0 else "odd" for row in range(99)}
    found = model.certify(row_groups=groups | {99: "alone"})
    assert found.groups == ("in alone", "in even", "in odd")
    held = model.held_out_
    even = int((held.rows % 2 == 0).sum())
    assert found["in even"].terms["held-out answers"] == even
    assert found["in even"].delta == pytest.approx(0.05 / 3)
    total = sum(
        int(one.terms["held-out answers"]) for one in model.certify(by="column answers").certificates
    )
    assert total == len(held.wrong)
    few = model.certify(row_groups={0: "one row"}, delta=0.05)
    assert few.certificates[0].bound > 0.1
    none = model.certify(row_groups={"a": "b"} if model.rows_.values.dtype.kind == "U" else {5000: "b"})
    assert "nothing can be said" in str(none)


def test_what_is_asked_wrongly_is_said(model):
    for settings, words in (
        ({"by": "colour"}, "by must be"),
        ({"target": "rows"}, 'target must be "blanks"'),
        ({"propensities": np.ones((2, 2))}, "go with target"),
        ({"by": "answer", "shift": 2.0}, "one at a time"),
        ({"shift": 0.5}, "at least 1"),
        ({"target": "blanks", "propensities": np.ones((2, 2))}, "100 x 80"),
        ({"target": "blanks", "propensities": np.zeros((100, 80))}, "above 0"),
        ({"by": "row answers", "method": "optimised"}, "leave method"),
    ):
        with pytest.raises(ValueError, match=words):
            model.certify(**settings)
    with pytest.raises(ValueError, match="max_error must lie"):
        model.certify_lists(5, 1.5)
    with pytest.raises(ValueError, match="at least one"):
        model.certify_lists(0)


def test_given_propensities_are_found_by_their_ids(model):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0.1, 0.9, (100, 80)))
    shuffled = frame.sample(frac=1, random_state=0).sample(frac=1, axis=1, random_state=0)
    assert np.allclose(given_propensities(model, frame), given_propensities(model, shuffled))
    more = pd.concat([frame, frame.iloc[:1].rename(index={0: 10_000})])  # somebody who came later
    assert np.allclose(given_propensities(model, frame), given_propensities(model, more))
    with pytest.raises(ValueError, match="each of the 100 rows that were fitted"):
        given_propensities(model, frame.iloc[1:])


def test_even_propensities_weigh_nothing(model):
    found = model.certify(target="blanks", propensities=np.full((100, 80), 0.5))
    plain = model.certify()
    assert found.terms["weighted error"] == pytest.approx(plain.terms["observed error"])
    assert found.terms["worth so many of equal weight"] == pytest.approx(len(model.held_out_.wrong))
    assert abs(found.bound - plain.bound) < 0.04  # which entries are blank is paid for too
    assert any("as they were given" in text for text in found.assumptions)
    estimated = model.certify(target="blanks")
    assert any("nothing here checks" in text for text in estimated.assumptions)
    assert abs(estimated.bound - plain.bound) < 0.08


def test_the_order_of_bets_is_not_the_same_for_every_table_of_a_size():
    """Sure predictions stand first; an order that is the same for all lets them bet first for some."""
    failures, size, worlds = 0, 189, 300
    rng = np.random.default_rng(0)
    for _ in range(worlds):
        sure = np.sort(np.where(rng.random(size) < 0.5, 0.99, 0.51))[::-1]
        right = rng.random(size) < sure
        held = counted(sure, np.ones(size, bool), np.where(right, 1, -1), rows=rng.integers(0, 90, size),
                       columns=rng.integers(0, 90, size))  # fmt: skip
        truth = 0.5 * (0.99 * 0.01) + 0.5 * (0.51 * 0.49)
        failures += scores.brier_bound(held, 0.2).bound < truth
    assert at_most_delta(failures, worlds, 0.2)
    one, two = (shuffled(np.arange(50), np.full(50, k)) for k in (0, 1))
    assert (one != two).any()
    assert (one == shuffled(np.arange(50), np.zeros(50, int))).all()


def test_weighted_bounds_hold_for_the_blanks_that_there_are():
    rng = np.random.default_rng(0)
    failures, worlds = 0, 200
    for _ in range(worlds):
        answered = rng.random(1000) < 0.95
        wrong = rng.random(1000) < 0.3
        held = rng.permutation(np.flatnonzero(answered))[:300]
        outside = ~answered
        outside[held] = True
        share = 300 / answered.sum()
        found = weighted_bound(wrong[held], np.full(300, 0.95), np.full(outside.sum(), 0.95), share, 0.2,
                               blanks=int((~answered).sum()))  # fmt: skip
        failures += found.bound < wrong[~answered].mean()
    assert at_most_delta(failures, worlds, 0.2)


def test_a_bound_for_the_blanks_spends_delta_once():
    """A part on the rate that is to be expected of blanks, the rest on how many of these are wrong."""
    wrong, chance = np.arange(300) % 10 == 0, np.full(300, 0.95)
    parts = wrong, chance, np.full(800, 0.95), 0.3
    expected = weighted_bound(*parts, (1.0 - REALISED) * 0.1).bound
    counted = binom.isf(REALISED * 0.1, 500, expected) / 500
    assert weighted_bound(*parts, 0.1, blanks=500).bound == pytest.approx(counted, abs=1e-12)


def test_lists_are_of_those_who_were_counted(world):
    model = LogisticCompleter(3, random_state=0, n_jobs=1).fit(world.pairs, world.answers, certify=0.2)
    before = model.certify_lists(10, 0.45)
    new = np.array([(1_000 + k, k % 80) for k in range(200)])
    model.fold_in(new, np.ones(len(new)))
    after = model.certify_lists(10, 0.45)
    assert (after.threshold, after.share) == (before.threshold, before.share)
    every = np.arange(len(model.rows_), dtype=np.int32)
    shown = [row for row, *_ in kept_of_lists(model, 10, every, after.threshold)]
    assert np.concatenate(shown).max() < 100


@pytest.mark.parametrize("how", ["repeated", "own"])
def test_what_is_shown_of_lists_is_held_to_their_bound_whatever_was_held_out(how):
    """Of repeated answers one counts; the places that are shown are those without a held-out answer."""
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((40, 30)) < 0.9)
    answers = rng.random(len(pairs)) < 0.6
    held = 0.3
    if how == "repeated":  # often twice among those held out
        again = rng.random(len(pairs)) < 0.6
        pairs, answers = np.concatenate([pairs, pairs[again]]), np.concatenate([answers, answers[again]])
    else:
        held = rng.random(len(pairs)) < 0.3
    model = LogisticCompleter(2, random_state=0).fit(pairs, answers, certify=held)
    terms = model.certify_lists(5, 0.9).whole.terms
    every = np.arange(len(model.rows_), dtype=np.int32)
    shown = sum(len(row) for row, *_ in kept_of_lists(model, 5, every, 0.0))
    lists = sum(len(row) for row, *_ in _counted_lists(model, 5, every, model.held_out_))
    errors, trials = int(terms["errors"]), int(terms["held-out answers"])
    assert trials == lists - shown
    assert terms[BLANKS] == rest_upper_bound(errors, trials, shown, 0.05)


def test_lists_do_not_give_up_where_the_surest_are_few(world):
    model = LogisticCompleter(3, random_state=0, n_jobs=1).fit(world.pairs, world.answers, certify=0.2)
    whole = model.certify_lists(3, 0.5).whole
    # The surest twentieth holds too few held-out answers for any bound; the whole lists do not.
    wanted = min(whole.bound + 0.01, 0.99)
    assert model.certify_lists(3, wanted).certificate is not None


def test_groups_by_how_often_rows_were_answered_know_what_came_later(world):
    model = LogisticCompleter(2, random_state=0, n_jobs=1).fit(world.pairs, world.answers, certify=0.2)
    new = [(500 + k % 20, k % 80) for k in range(200)]
    model.partial_fit(new, np.arange(200) % 2, certify=0.5)
    found = model.certify(by="row answers")
    assert sum(int(part.terms["held-out answers"]) for part in found.certificates) == len(
        model.held_out_.wrong
    )


def test_after_an_update_nothing_is_said_of_what_it_touched(world):
    model = LogisticCompleter(2, random_state=0, n_jobs=1).fit(world.pairs, world.answers, certify=0.2)
    model.partial_fit([(0, 0)], [1])
    said = "of rows and columns that no later update has touched"
    assert said in model.certify(shift=1.5).sentence()
    assert all(said in one.of for one in model.sheet().claims)


def test_lists_keep_what_their_held_out_answers_certify(model, world):
    found = model.certify_lists(10, 0.45)
    assert found.certificate is not None
    assert found.certificate.bound <= 0.45
    assert found.whole.terms["held-out answers"] >= found.certificate.terms["held-out answers"]
    # What is printed has been proved: a threshold is rounded up.
    part = replace(found, share=0.5, threshold=0.7312)
    assert "with a probability of at least 0.732, 50%" in str(part)
    tight = model.certify_lists(10, 0.01)
    assert tight.certificate is None
    assert "No part of the lists" in str(tight)
    assert "Both hold" not in str(tight)
    between = replace(tight, max_error=tight.whole.bound + 0.01)
    assert "Both hold: the choice of a part tests the whole lists too" in str(between)
    # Held-out answers that the lists hold, counted by hand.
    rows, columns = np.divmod(np.arange(100 * 80), 80)
    chance = model.predict_proba(np.column_stack([rows, columns]))[:, 1].reshape(100, 80)
    fitted = model.kept_answers().fitted
    chance[fitted.by_row.owners(), fitted.by_row.index] = -1.0
    best = np.argsort(-chance, axis=1)[:, :10]
    held = model.held_out_
    inside = np.array([column in best[row] for row, column in zip(held.rows, held.columns, strict=True)])
    assert found.whole.terms["held-out answers"] == inside.sum()
    assert found.whole.terms["errors"] == (held.sign[inside] < 0).sum()


def test_the_sheet_of_a_refit_is_refused(model):
    with pytest.raises(ValueError, match="take the sheet from the model before"):
        model.refit().sheet()


def test_gains_over_effects_are_over_effects_of_the_fitted_answers_alone(model):
    gain = model.sheet().claims[-1]
    assert "effects alone" in gain.claim
    fitted = model.kept_answers().fitted
    effects = LogisticCompleter(0, pattern=None, random_state=0, n_jobs=1).fit(fitted)
    held = model.held_out_
    wrong = effects.predictions(held.rows, held.columns).decision * held.sign <= 0
    assert gain.observed == pytest.approx(wrong.mean() - held.wrong.mean(), abs=0.01)


def test_the_sheet_has_every_claim_with_its_assumption(model):
    sheet = model.sheet(0.05)
    table = sheet.table()
    assert len(table) == 8
    assert (table["assumes"].str.len() > 10).all()
    assert (table["of"].str.len() > 10).all()
    lower = table["direction"] == "at least"
    assert (
        table["bound"][~lower & table["observed"].notna()] >= table["observed"].dropna()[~lower]
    ).all()
    assert (table["bound"][lower] <= table["observed"][lower]).all()
    text = str(sheet)
    assert text.startswith("With probability 0.95, all of these at once")
    # All at once costs a little.
    assert table["bound"][0] > model.certify(0.05).bound


def test_the_sheet_says_from_which_shift_on_it_says_nothing_of_few_blanks():
    world = simulate.world("B2", rank=2, shape=(30, 30), density=0.92, seed=1)
    model = LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers, certify=0.1)
    shifted = next(claim for claim in model.sheet().claims if "multiplies the odds" in claim.assumes)
    said = float(re.search(r"from ([\d.]+) on half of them", shifted.assumes)[1])
    found = model.sheet(shift=said).claims
    assert next(one for one in found if one.of == shifted.of).bound == pytest.approx(0.5, abs=0.05)


def test_numbers_of_a_sheet_are_rounded_to_the_side_that_was_proved():
    line = Claim("wrong", "all", "nothing", 0.12301, 0.1)
    assert line.bounded() == "at most 12.4%"
    assert (
        Claim("better by", "all", "nothing", 0.0349, 0.05, "points", True).bounded()
        == "at least 3.4 points"
    )
    assert (
        Claim("better by", "all", "nothing", -0.01, 0.05, "points", True).bounded()
        == "nothing can be said"
    )
    assert Claim("log-loss", "all", "nothing", 0.51201, 0.5, "nats").bounded() == "at most 0.513"
    for unit, most in (("nats", -math.log(0.01)), ("score", 1.0), ("share", 1.0)):
        assert Claim("x", "all", "nothing", most, 0.5, unit).bounded() == "nothing can be said"
    assert "observed 10.0%" in str(Sheet((line,), 0.05))


def test_the_shell_has_the_sheet_the_shift_and_certified_lists(model, tmp_path):
    path = tmp_path / "m.onebit"
    model.save(path)
    run = CliRunner().invoke(app, ["certify", str(path), "--all"])
    assert run.exit_code == 0, run.output
    assert "better than" in run.output
    run = CliRunner().invoke(app, ["certify", str(path), "--all", "--json"])
    assert run.exit_code == 0
    assert '"claims"' in run.output
    for words in (["--shift", "2"], ["--blanks"], ["--by", "row-answers"]):
        run = CliRunner().invoke(app, ["certify", str(path), *words])
        assert run.exit_code == 0, run.output
    (tmp_path / "groups.csv").write_text("row,group\n" + "".join(f"{k},g{k % 3}\n" for k in range(100)))
    run = CliRunner().invoke(app, ["certify", str(path), "--row-groups", str(tmp_path / "groups.csv")])
    assert "of those in g0: at most" in run.output
    assert CliRunner().invoke(app, ["certify", str(path), "--all", "--shift", "2"]).exit_code == 2
    out = tmp_path / "lists.csv"
    words = ["complete", str(path), "--top", "10", "--max-error", "0.45", "-o", str(out)]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    lines = pd.read_csv(out)
    assert lines["certified"].all()
    assert len(lines) > 0
    least = model.certify_lists(10, 0.45).threshold
    assert (lines["probability"] >= least - 1e-6).all()
    known = model.kept_answers().everything
    answered = set(zip(known.by_row.owners().tolist(), known.by_row.index.tolist(), strict=True))
    assert not answered & set(zip(lines["row"], lines["column"], strict=True))
