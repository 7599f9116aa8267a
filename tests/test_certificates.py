"""Certificates: they hold as often as they say, and refuse what they cannot know."""

import re

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

import onebit
from onebit import AutoCompleter, HingeCompleter, LogisticCompleter, NuclearNormCompleter, simulate
from onebit.certificates.bounds import binomial_upper_bound
from onebit.certificates.hold_out import KEPT_SHARES, SHARES, HeldOut
from onebit.certificates.shifts import breaking_shift
from onebit.certificates.statements import (
    BLANKS,
    COMMONER,
    LIKE_THE_ANSWERED,
    Certificate,
    above,
    at_most,
    confidence,
)


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
    decision, right = rng.choice([-1.0, 1.0], n), rng.random(n) < confidence
    return HeldOut.count(confidence, decision, np.where(right, decision, -decision).astype(np.int8))


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
    assert kept.bound <= 0.2
    for part, yes in ((kept.no, False), (kept.yes, True)):
        mine = sample.yes == yes
        for share in KEPT_SHARES:
            threshold = np.append(sample.confidence[mine], 0.0)[round(share * mine.sum())]
            wrong = sample.wrong[mine & (sample.confidence > threshold)]
            bound = binomial_upper_bound(int(wrong.sum()), len(wrong), 0.05 / (2 * len(KEPT_SHARES)))
            if threshold < part.threshold:
                assert bound > 0.2
            elif threshold == part.threshold:
                assert part.certificate.bound == bound <= 0.2
                assert part.share == pytest.approx(share, abs=1e-3)
    nothing = sample.keep(max_error=1e-6, delta=0.05)
    assert nothing.share == 0.0
    assert nothing.bound is None
    assert not nothing.includes(sample.yes, sample.confidence).any()


COMPLETERS = [
    LogisticCompleter(3, random_state=0),
    HingeCompleter(3, random_state=0),
    NuclearNormCompleter(2, random_state=0),
    AutoCompleter(effort="quick", random_state=0),
]


@pytest.mark.parametrize("model", COMPLETERS, ids=lambda model: type(model).__name__)
def test_every_completer_certifies_itself(model, small_world, tmp_path):
    model.fit(small_world.pairs, small_world.answers, certify=0.2)
    certificate = model.certify(delta=0.05)
    assert certificate.terms["held-out answers"] == round(0.2 * len(small_world.answers))
    assert 0.1 < certificate.bound < 0.5
    assert "With probability 0.95, at most" in str(certificate)
    assert model.certified(small_world.all_pairs, max_error=0.35).any()
    assert "surest  90%" in str(model.certify_selective())
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
    assert "no lower than what always the commoner answer reaches" in str(model.certify())


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
    with pytest.raises(ValueError, match=r"delta must be at most 0\.2"):
        model.certify(0.4)
    with pytest.raises(ValueError, match="max_error"):
        model.keep(1.5)


def test_repeated_entries_are_counted_in_the_terms(small_world):
    pairs, answers = np.repeat(small_world.pairs, 2, axis=0), np.repeat(small_world.answers, 2)
    model = LogisticCompleter(2, random_state=0).fit(pairs, answers, certify=0.1)
    certificate = model.certify()
    repeated = certificate.terms["held-out answers to entries that were fitted too"]
    assert repeated > 0.5 * certificate.terms["held-out answers"]
    assert f"{int(repeated)} are of entries that were fitted too" in str(certificate)


def test_one_repeated_line_leaves_what_is_said_of_few_blanks():
    world = simulate.world("B2", rank=2, shape=(30, 30), density=0.92, seed=1)
    pairs, answers = world.pairs, world.answers
    again = np.vstack([pairs, pairs[:1]]), np.append(answers, answers[0])
    once, twice = (
        LogisticCompleter(2, random_state=0).fit(*given, certify=0.1)
        for given in ((pairs, answers), again)
    )
    assert twice.held_out_.blanks == once.held_out_.blanks == 900 - len(pairs)
    for model in (once, twice):
        assert "of the blanks of this table alone" in str(model.certify())
        assert "Few entries are blank here" in model.keep(0.4).caution
    sparse = simulate.world("B2", rank=2, shape=(60, 60), density=0.2, seed=1)
    other = LogisticCompleter(2, random_state=0).fit(sparse.pairs, sparse.answers, certify=0.1)
    assert "Few entries" not in other.keep(0.4).caution


def test_repeats_of_fitted_entries_say_nothing_of_blanks():
    """Ten entries without a fitted answer, all wrong, two of them twice; ninety repeats, all right."""
    right = np.repeat([1, -1], [90, 12])
    rows = np.append(np.arange(100), [90, 91]).astype(np.int32)
    counted = HeldOut.count(
        np.full(102, 0.7), np.ones(102), right.astype(np.int8), rows, np.zeros(102, np.int32),
        np.arange(102) < 90, blanks=20,
    )  # fmt: skip
    assert counted.blanks_bound(0.05) == 1.0
    assert counted.certify(0.05).bound < 0.25
    assert "90 are of entries that were fitted too" in str(counted.certify(0.05))


@pytest.mark.parametrize("says", [-1, 1])
def test_of_an_entry_answered_both_ways_one_answer_at_random_speaks_for_the_blanks(says):
    """Repeats are listed "no" first: whoever predicts "no" is not right because of that."""
    rows = np.repeat(np.arange(200), 2).astype(np.int32)
    sign = np.tile([-1, 1], 200).astype(np.int8)
    counted = HeldOut.count(
        np.full(400, 0.7), np.full(400, float(says)), sign, rows, np.zeros(400, np.int32), blanks=10**6
    )
    assert 0.47 < counted.blanks_bound(0.05) < 0.67


def test_the_shift_from_which_on_a_certificate_says_nothing_is_where_certify_says_so():
    world = simulate.world("B2", rank=2, shape=(30, 30), density=0.92, seed=1)
    model = LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers, certify=0.1)
    certificate = model.certify()
    said = float(
        re.search(r"have ([\d.]+) times their odds of a right prediction, or more", str(certificate))[1]
    )
    assert model.certify(shift=said).bound == pytest.approx(0.5, abs=0.01)
    # Where few entries are blank it begins with what an even draw says of these, which is more.
    assert certificate.terms[BLANKS] > certificate.bound
    assert said == pytest.approx(breaking_shift(certificate.terms[BLANKS]), rel=0.01)


def test_what_is_kept_says_so_in_a_sentence(rng):
    sample = draw_held_out(rng, 5000)
    said = str(sample.keep(0.2, 0.05))
    assert 'of those said "yes", those with a confidence above' in said
    assert LIKE_THE_ANSWERED in said
    assert "No share of the predictions can be kept" in str(sample.keep(1e-6, 0.05))


@pytest.mark.parametrize("bound", [0.0295131, 0.29999999, 0.05, 1e-7, 0.123456])
def test_what_is_printed_is_never_more_than_what_is_proved(bound):
    printed = float(at_most(bound).rstrip("%")) / 100
    assert bound - 1e-9 <= printed < bound + (1.01e-3 if bound > 0.01 else 1.01e-4)
    assert float(above(bound)) >= bound - 1e-9


@pytest.mark.parametrize("delta", [0.05, 0.2, 0.004, 1e-5, 3e-7, 0.123456])
def test_a_confidence_is_rounded_down_and_never_certainty(delta):
    assert 1 - 1.2 * delta - 1e-4 < float(confidence(delta)) <= 1 - delta + 1e-12
    assert float(confidence(delta)) < 1


def rare_yes(seed, shape=(60, 50), rate=0.06, density=0.6):
    """A table in which 6 % say yes, and hardly anything tells who: a yes is mostly noise."""
    rng = np.random.default_rng(seed)
    effect = rng.normal(0.0, 0.7, shape[1])
    chance = 1 / (1 + np.exp(-(np.log(rate / (1 - rate)) + effect)))
    answers = np.where(rng.random(shape) < chance, 1.0, 0.0)
    matrix = np.where(rng.random(shape) < density, answers, np.nan)
    return matrix, np.broadcast_to(chance, shape)


def test_where_yes_is_rare_only_the_predictions_that_say_no_are_certified():
    """Of all predictions few are wrong; of those that say yes, nearly half are."""
    matrix, chance = rare_yes(0, shape=(200, 80))
    model = LogisticCompleter(2, random_state=0).fit(matrix, certify=0.2)
    assert model.certify().bound < 0.1
    groups = model.certify(by="answer")
    assert groups['said "no"'].bound < 0.1
    assert groups['said "yes"'].bound > 0.2  # few of them, or wrong ones
    pairs = np.argwhere(np.isnan(matrix))
    marked = model.certified(pairs, max_error=0.1)
    assert marked.mean() > 0.5
    assert not marked[model.predict(pairs) == model.classes_[1]].any()
    wrong = chance[tuple(pairs[marked].T)].mean()  # every marked one says no
    assert wrong < 0.1


def test_groups_by_predicted_answer_hold_at_once_as_often_as_they_say():
    rng, delta, held = np.random.default_rng(3), 0.2, []
    for _ in range(600):
        yes = rng.random(300) < 0.15
        wrong = rng.random(300) < np.where(yes, 0.4, 0.03)
        decision = np.where(yes, 1.0, -1.0)
        sample = HeldOut.count(
            rng.uniform(0.5, 1, 300), decision, np.where(wrong, -decision, decision).astype(np.int8)
        )
        no, said_yes = (c.bound for c in sample.certify_by_answer(delta).certificates)
        held.append(no >= 0.03 and said_yes >= 0.4)
    assert np.mean(held) >= 1 - delta
    assert np.mean(held) <= 1 - delta / 4  # and is not vacuous


def test_kept_predictions_of_each_answer_hold_at_once_as_often_as_they_say():
    """Above its threshold an answer's risk is known here, and the share was chosen after looking."""
    rng, delta, held = np.random.default_rng(4), 0.2, []
    for _ in range(500):
        sample = draw_held_out(rng, 600)
        kept = sample.keep(0.2, delta)
        risks = [(1 - max(part.threshold, 0.5)) / 2 for part in kept.parts if part.certificate]
        bounds = [part.certificate.bound for part in kept.parts if part.certificate]
        held.append(all(b >= r for b, r in zip(bounds, risks, strict=True)))
    assert np.mean(held) >= 1 - delta


def test_unknown_folded_in_and_fitted_entries_are_never_certified(small_world):
    world = small_world
    model = LogisticCompleter(3, random_state=0).fit(world.pairs, world.answers, certify=0.2)
    rows, columns = len(model.rows_), len(model.columns_)
    model.fold_in([(10_000, int(c)) for c in model.columns_.values[:5]], [1, 0, 1, 0, 1])
    loose = 0.49
    fitted = model.kept_answers().fitted.by_row
    pairs = np.column_stack([model.rows_.values[fitted.owners()], model.columns_.values[fitted.index]])
    assert not model.certified(pairs, loose).any()
    assert not model.certified([(10_000, int(c)) for c in model.columns_.values], loose).any()
    assert not model.certified([(77_777, int(c)) for c in model.columns_.values], loose).any()
    everything = world.all_pairs
    assert model.certified(everything, loose).sum() <= rows * columns - len(pairs)
    assert model.certified(everything, loose).any()


def test_ties_are_counted_with_the_share_that_they_keep():
    """With two distinct confidences no share between them exists, whatever the grid asks for."""
    confidence = np.repeat([0.9, 0.6], 500)
    decision = np.ones(1000)
    sign = np.where(np.arange(1000) % 10 == 0, -1, 1).astype(np.int8)
    shares = HeldOut.count(confidence, decision, sign).certify_selective(0.05)
    assert set(shares.shares) <= {0.0, 0.5}
    table = shares.table()
    assert (table["held_out"] == 1000 * table["share"]).all()
    assert "no smaller share: the surest are all as sure as each other" in str(shares)
    assert "surest   0%" not in str(shares)
    kept = HeldOut.count(confidence, decision, sign).keep(0.2, 0.05)
    assert kept.share in (0.5, 1.0)


def test_the_commoner_answers_error_stands_beside_the_bound_and_decides_what_is_trivial():
    matrix, _ = rare_yes(1)
    model = LogisticCompleter(1, random_state=0).fit(matrix, certify=0.2)
    certificate = model.certify()
    assert certificate.terms[COMMONER] == pytest.approx(np.mean(model.held_out_.sign > 0))
    assert certificate.trivial == (certificate.bound >= certificate.terms[COMMONER])
    assert certificate.trivial  # always "no" is as good, though the bound is far below one half
    assert f"always the commoner answer: {certificate.terms[COMMONER]:.1%}" in str(certificate)


def test_the_blanks_of_a_nearly_full_table_have_a_bound_of_their_own():
    """Enumerated worlds: distinct entries, few blanks; the plain bound is of all outside the fit."""
    rng, delta, plain, own = np.random.default_rng(5), 0.1, [], []
    outside, size, blanks = 120, 100, 20
    wrong = np.arange(outside) < 30
    for _ in range(2000):
        order = rng.permutation(outside)
        held, blank = wrong[order[:size]], wrong[order[size:]]
        sign = np.where(held, -1, 1).astype(np.int8)
        counted = HeldOut.count(np.full(size, 0.7), np.ones(size), sign, blanks=blanks)
        certificate = counted.certify(delta)
        plain.append(certificate.bound >= blank.mean())
        own.append(certificate.terms[BLANKS] >= blank.mean())
    assert np.mean(plain) < 1 - delta - 0.03  # what all outside are held to, the blanks alone exceed
    assert np.mean(own) >= 1 - delta


def test_every_statement_says_of_which_entries_it_speaks(small_world):
    world = small_world
    model = LogisticCompleter(3, random_state=0).fit(world.pairs, world.answers, certify=0.2)
    for said in (
        model.certify(),
        model.certify(by="answer"),
        model.certify_selective(),
        model.keep(0.3),
        model.keep(1e-6),
    ):
        assert LIKE_THE_ANSWERED in str(said), said
    assert "on entries drawn evenly from the whole table" in str(model.refit().certify())
    assert str(model.certify(method=("hold-out", "progressive"))).count(LIKE_THE_ANSWERED) == 2


def test_one_certificate_reads_the_same_everywhere(small_world, tmp_path):
    world = small_world
    model = LogisticCompleter(3, random_state=0).fit(world.pairs, world.answers, certify=0.2)
    alone = model.certify(0.05)
    assert model.certify(0.05, method=("optimised", "hold-out")).best == alone
    printed = f"at most {at_most(alone.bound)} of"
    assert printed in str(alone)
    assert printed in str(model.certify(0.05, method=("optimised", "hold-out")))


def test_a_grouping_that_does_not_exist_is_refused(small_world):
    model = LogisticCompleter(2, random_state=0).fit(small_world.pairs, small_world.answers, certify=0.1)
    with pytest.raises(ValueError, match='by must be "answer"'):
        model.certify(by="colour")
    with pytest.raises(ValueError, match="only held-out answers certify this"):
        model.certify(method="pac-bayes-kl", by="answer")
    with pytest.raises(ValueError, match="before refit"):
        model.refit().certify(by="answer")


def repeated_world(seed):
    """A fixed answer for each entry, and draws that mostly repeat entries: they are learnt by heart."""
    rng = np.random.default_rng(seed)
    truth = rng.choice([-1, 1], (40, 40))
    weight = np.outer(*(1.0 / np.arange(1, 41) for _ in range(2))).ravel()
    entry = rng.choice(1600, 2000, p=weight / weight.sum())
    pairs = np.column_stack(np.divmod(entry, 40))
    return truth, pairs, truth[tuple(pairs.T)]


def test_repeats_of_fitted_entries_do_not_flatter_what_is_marked():
    """Held-out repeats are nearly all right; open entries are a coin toss, and none may be marked."""
    for seed in range(4):
        truth, pairs, answers = repeated_world(seed)
        model = LogisticCompleter(10, random_state=0).fit(pairs, answers, certify=0.1)
        assert model.certify().bound < 0.35  # it speaks of draws like these, repeats and all
        every = np.argwhere(np.ones((40, 40)))
        marked = model.certified(every, max_error=0.2)
        wrong = model.predict(every) != truth.ravel()
        assert not marked.any() or wrong[marked].mean() <= 0.2


def test_rows_without_a_fitted_answer_are_never_marked():
    world = simulate.world("A1", rank=1, shape=(60, 40), density=0.8, seed=0)
    matrix = np.full((60, 40), np.nan)
    matrix[tuple(world.pairs.T)] = world.answers
    matrix[50:], matrix[:, 35:] = np.nan, np.nan
    model = LogisticCompleter(2, random_state=0).fit(matrix, certify=0.2)
    marked = model.certified(world.all_pairs, max_error=0.3).reshape(60, 40)
    assert marked[:50, :35].any()
    assert not marked[50:].any()
    assert not marked[:, 35:].any()


def test_a_model_saved_without_its_answers_marks_nothing(small_world, tmp_path):
    model = LogisticCompleter(3, random_state=0).fit(small_world.pairs, small_world.answers, certify=0.2)
    model.save(tmp_path / "m.onebit", answers=False)
    again = onebit.load(tmp_path / "m.onebit")
    assert again.keep(0.4).bound == model.keep(0.4).bound
    with pytest.raises(ValueError, match="saved without its answers"):
        again.certified(small_world.pairs, 0.4)


def test_the_binomial_bound_covers_draws_without_replacement_where_not_nearly_all_are_wrong():
    """Enumerated: every population of up to 30 entries, every sample of it."""
    for delta in (0.05, 0.1, 0.2):
        for entries in range(2, 31):
            for held in range(1, entries):
                bounds = np.array([binomial_upper_bound(e, held, delta) for e in range(held + 1)])
                for wrong in range(int(0.85 * entries) + 1):
                    chance = hypergeom.pmf(np.arange(held + 1), entries, wrong, held)
                    assert chance[bounds < wrong / entries - 1e-12].sum() <= delta + 1e-12
