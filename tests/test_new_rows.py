"""Rows held out whole: folded in with some of their answers, judged on the rest, counted row by row."""

import copy

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner

import onebit
from onebit import AutoCompleter, LogisticCompleter, NuclearNormCompleter, Observations, simulate
from onebit.certificates.new_rows import HeldRows
from onebit.cli import app
from onebit.completers.holding_out import hold_out_key
from onebit.completers.new_rows import hold_rows_out
from onebit.data import storage
from onebit.data.joining import with_features


@pytest.fixture(scope="module")
def world():
    return simulate.world("B1", rank=1, shape=(120, 30), density=0.6, seed=1)


def fitted(world, **how):
    return LogisticCompleter(2, random_state=0, n_jobs=1).fit(world.pairs, world.answers, **how)


@pytest.fixture(scope="module")
def model(world):
    return fitted(world, certify=0.1, certify_rows=0.25)


def test_each_count_is_that_of_folding_the_row_in_by_hand(world, model):
    held = model.held_rows_
    assert held.judged.shape == (30, len(held.given))
    rest = fitted(world, certify_rows=0.25)
    new = rest.rows_.labels[-30:]
    assert set(new) <= set(world.pairs[:, 0])
    assert len(rest.rows_) == len(np.unique(world.pairs[:, 0]))
    # Before anything is given a new row stands at its prior: nobody in particular.
    inside = np.isin(world.pairs[:, 0], new)
    plain = LogisticCompleter(2, random_state=0, n_jobs=1).fit(
        world.pairs[~inside], world.answers[~inside]
    )
    unknown = np.stack([np.full(inside.sum(), -1), world.pairs[inside, 1]], axis=1)
    wrong = np.sign(plain.decision_function(unknown)) != np.where(world.answers[inside] > 0, 1, -1)
    counted = pd.Series(wrong).groupby(world.pairs[inside, 0]).sum()
    order = {label: k for k, label in enumerate(new)}
    assert [rest.held_rows_.wrong[order[label], 0] for label in counted.index] == counted.tolist()


def test_answers_given_are_folded_in_and_the_others_predicted(world):
    """By hand, of one row: some of its answers drawn by hashes, folded in; errors on the rest."""
    model = fitted(world, certify_rows=0.25)
    new = model.rows_.labels[-30:]
    inside = np.isin(world.pairs[:, 0], new)
    plain = LogisticCompleter(2, random_state=0, n_jobs=1)
    plain.fit(world.pairs[~inside], world.answers[~inside])
    held = Observations.from_pairs(world.pairs[inside], world.answers[inside])
    hashes = held.hashes(hold_out_key(0) + 2)
    k = model.held_rows_.given.index(5)
    common = 1 if (world.answers[~inside] > 0).mean() > 0.5 else -1
    for row in (0, 7):
        part = slice(held.by_row.start[row], held.by_row.start[row + 1])
        order = np.argsort(hashes[part], kind="stable")
        columns = held.by_row.index[part][order]
        sign = held.by_row.sign[part][order]
        again = copy.deepcopy(plain)
        again.fold_in([(9_999, int(column)) for column in columns[:5]], (sign[:5] > 0).astype(int))
        said = np.sign(again.decision_function([(9_999, int(column)) for column in columns[5:]]))
        label = list(new).index(held.rows.labels[row])
        assert model.held_rows_.wrong[label, k] == (said != sign[5:]).sum()
        assert model.held_rows_.judged[label, k] == len(sign) - 5
        assert model.held_rows_.commoner[label, k] == (sign[5:] != common).sum()


def test_the_order_of_rows_does_not_decide():
    """Rows that come in time, the careless ones last: in whichever order, no more failures than delta."""
    rng = np.random.default_rng(0)
    failures, worlds = 0, 300
    rate = np.where(np.arange(189) < 94, 0.0, 0.5)
    for _ in range(worlds):
        wrong = rng.binomial(40, rate)[:, None]
        found = HeldRows((5,), np.full((189, 1), 40), wrong, wrong).certify(0.2).lines[0]
        failures += found.bound < rate.mean()
    assert binomtest(failures, worlds, 0.2, alternative="greater").pvalue > 0.01


def test_one_number_of_answers_may_have_all_of_delta(model):
    alone = model.certify(0.05, target="new rows", given=5).lines
    among = {line.given: line for line in model.certify(0.05, target="new rows").lines}
    assert [line.given for line in alone] == [5]
    assert alone[0].bound < among[5].bound
    with pytest.raises(ValueError, match="one of"):
        model.certify(target="new rows", given=3)


def test_rows_are_listed_as_in_the_file(tmp_path):
    names = [f"p{k}" for k in np.random.default_rng(0).permutation(60)]
    lines = ["who,what,answer"]
    lines += [f"{name},q{k},{(k + len(name)) % 2}" for name in names for k in range(8)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    model = LogisticCompleter(1, random_state=0, n_jobs=1)
    model.fit(onebit.read_answers(path), certify_rows=0.3)
    assert model.complete().index.tolist() == names
    assert model.n_observations_ == 480


def test_rows_held_out_are_known_afterwards_by_all_their_answers(world, model):
    new = model.rows_.labels[-30:]
    pairs = world.pairs[np.isin(world.pairs[:, 0], new)]
    right = np.sign(model.decision_function(pairs)) == np.where(
        world.answers[np.isin(world.pairs[:, 0], new)] > 0, 1, -1
    )
    assert right.mean() > 1 - model.held_rows_.certify(0.05).lines[0].observed
    assert not model.certified(pairs, 0.45).any()  # their answers are known


def test_more_answers_say_more(model):
    lines = {line.given: line for line in model.certify(target="new rows").lines}
    assert lines[10].observed < lines[0].observed
    assert all(line.bound > line.observed for line in lines.values())
    assert lines[0].rows == 30


@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_rows_are_counted_as_rows_and_answers_of_one_row_not_as_independent(delta):
    rng = np.random.default_rng(0)
    failures = pooled = 0
    worlds, rows, answers, truth = 300, 25, 40, 0.25
    for _ in range(worlds):
        # Half of the people are predicted wholly right, half with an error of a half.
        rate = rng.choice([0.0, 0.5], rows)
        wrong = rng.binomial(answers, rate)[:, None]
        judged = np.full((rows, 1), answers)
        found = HeldRows((5,), judged, wrong, wrong).certify(delta).lines[0]
        failures += found.bound < truth
        from onebit.certificates.bounds import binomial_upper_bound

        pooled += binomial_upper_bound(int(wrong.sum()), rows * answers, delta) < truth
    assert binomtest(failures, worlds, delta, alternative="greater").pvalue > 0.01
    assert binomtest(pooled, worlds, delta, alternative="greater").pvalue < 1e-4


def test_a_second_answer_to_an_entry_that_was_given_is_not_judged():
    pairs = np.repeat(np.stack(np.divmod(np.arange(60 * 12), 12), axis=1), 4, axis=0)
    rng = np.random.default_rng(0)
    answers = np.repeat(rng.choice([-1, 1], 60 * 12), 4)  # the same four times, and nothing else to learn
    model = LogisticCompleter(1, random_state=0, n_jobs=1).fit(pairs, answers, certify_rows=0.5)
    lines = {line.given: line for line in model.certify(target="new rows").lines}
    assert lines[20].observed == pytest.approx(0.5, abs=0.05)  # 0.37 if second answers were judged


def test_all_lines_share_delta():
    judged, wrong = np.full((50, 2), 10), np.full((50, 2), 3)
    both = HeldRows((0, 5), judged, wrong, wrong).certify(0.1)
    one = HeldRows((0,), judged[:, :1], wrong[:, :1], wrong[:, :1]).certify(0.05)
    assert both.lines[0].bound == pytest.approx(one.lines[0].bound)
    few = HeldRows((0,), judged[:1, :1], wrong[:1, :1], wrong[:1, :1]).certify(0.05)
    assert few.lines[0].bound == 1.0
    assert "nothing can be said" in str(few)


def test_it_is_saved_put_on_the_sheet_and_lost_with_an_update(model, tmp_path):
    model.save(tmp_path / "m.onebit")
    again = onebit.load(tmp_path / "m.onebit")
    assert str(again.certify(target="new rows")) == str(model.certify(target="new rows"))
    claims = again.sheet().claims
    of_rows = [one for one in claims if one.counted == "held-out rows"]
    lines = model.certify(target="new rows").lines
    assert [one.answers for one in of_rows] == [line.rows for line in lines]
    # The sheet has more lines to pay for: seven on answers, seven on rows.
    assert of_rows[0].bound == model.held_rows_.certify(0.05 * 7 / 14).lines[0].bound
    assert claims[0].bound == model.held_out_.certify(0.05 / 14).bound
    again.fold_in([(5_000, 1)], [1])
    assert again.held_rows_ is not None
    again.partial_fit([(0, 0)], [1])
    with pytest.raises(ValueError, match="no rows were held out of this model as it is"):
        again.certify(target="new rows")


def test_certificates_of_answers_are_of_the_rows_that_were_fitted(world, model, tmp_path):
    """Answers of rows held out were neither fitted nor counted, and these are in the table."""
    rows, columns = len(model.rows_), len(model.columns_)
    of_others = model.rows_.labels[: rows - 30]
    answered = np.isin(world.pairs[:, 0], of_others).sum()
    assert (
        model.held_out_.blanks == len(of_others) * columns - answered < rows * columns - len(world.pairs)
    )
    model.save(tmp_path / "m.onebit")
    storage_of_before = storage.read(tmp_path / "m.onebit", "model")
    storage_of_before[1]["held_out"]["whence"] = "fit"  # as files had it
    storage.write(tmp_path / "old.onebit", "model", *storage_of_before)
    for one in (model, onebit.load(tmp_path / "m.onebit"), onebit.load(tmp_path / "old.onebit")):
        assert "answered ones, of the rows that were fitted, are wrong" in one.certify().sentence()
        assert "of the blanks of the rows that were fitted alone" in str(one.certify())
        assert "blanks of the rows that were fitted: half could be wrong if" in str(one.certify())
        assert "of this table" not in str(one.certify())
        assert "blanks of the rows that were fitted are" in one.certify(shift=2.0).sentence()
        for several in (one.certify(by="answer"), one.certify_selective(), one.keep(0.4)):
            assert "entries like the answered ones, of the rows that were fitted" in str(several)
        assert all("of the rows that were fitted" in c.of for c in one.sheet().claims[:8])
        ladder = one.certify(method=("progressive", "hold-out"))
        assert all("of the rows that were fitted" in c.predictor for c in ladder.certificates)
    later = onebit.load(tmp_path / "m.onebit").partial_fit([(0, 0)], [1])
    assert "rows that were fitted, and of rows and columns that no later" in later.certify().sentence()
    assert (
        "rows that were fitted, of rows and columns that no later" in later.certify(shift=2.0).sentence()
    )
    without = fitted(world, certify=0.1)
    assert "rows that were fitted" not in str(without.certify()) + str(without.sheet())


def test_a_file_in_which_more_is_wrong_than_was_judged_is_refused(model, tmp_path):
    path = tmp_path / "m.onebit"
    model.save(path)
    tensors, content = storage.read(path, "model")
    for name, value in (("wrong", model.held_rows_.judged + 1), ("judged", 0 * model.held_rows_.judged)):
        storage.write(path, "model", tensors | {f"held_rows.{name}": value}, content)
        with pytest.raises(storage.FileError):
            onebit.load(path)


def test_features_of_held_out_rows_are_theirs():
    rng = np.random.default_rng(0)
    group = rng.choice([-1.0, 1.0], 200)
    pairs = np.stack(np.divmod(np.arange(200 * 20), 20), axis=1)
    sign = np.where(rng.random(len(pairs)) < 0.85, 1, -1) * group[pairs[:, 0]]
    known = pd.DataFrame({"group": group}, index=pd.RangeIndex(200, name="row"))
    model = LogisticCompleter(1, random_state=0, n_jobs=1).fit(
        pairs, sign, row_features=known, certify_rows=0.3
    )
    # Without an answer, the feature alone tells.
    assert model.held_rows_.certify(0.05).lines[0].observed < 0.2


def test_rows_and_their_features_are_divided_together():
    rng = np.random.default_rng(2)
    pairs = np.stack(np.divmod(np.arange(80 * 10), 10), axis=1)
    sign = rng.choice([-1, 1], len(pairs))
    known = pd.DataFrame({"age": rng.gamma(2.0, 10.0, 80)}, index=pd.RangeIndex(80, name="row"))
    seen = with_features(Observations.from_pairs(pairs, sign), (known, None))
    kept, held = hold_rows_out(seen, 0.4, 0)
    assert kept.features[0].encoder is held.features[0].encoder
    assert abs(kept.features[0].transposed_times(np.ones((len(kept.rows), 1)))).max() < 1e-9
    model = LogisticCompleter(1, random_state=0, n_jobs=1).fit(
        pairs, sign, row_features=known, certify_rows=0.4
    )
    plain = LogisticCompleter(1, random_state=0, n_jobs=1).fit(kept)
    by_hand = plain.predictor_.folded_in(0, held.by_row, held.features[0])
    rows = np.arange(len(kept.rows), len(kept.rows) + len(held.rows), dtype=np.int32)
    columns = np.zeros(len(rows), np.int32)
    found = model.predictor_.scores(model.rows_.encode(held.rows.labels), columns, model._machine)
    assert np.allclose(found, by_hand.scores(rows, columns, model._machine))


@pytest.mark.parametrize("completer", [
    AutoCompleter(losses=("logistic",), sampling_seconds=0, random_state=0, n_jobs=1),
    LogisticCompleter(1, inference="sampling", n_samples=10, n_burn_in=10, n_chains=1, settle=None,
                      random_state=0, n_jobs=1),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_any_model_with_a_posterior_takes_it(world, completer):
    asked = [(row, 0) for row in range(120)]
    model = completer.fit(world.pairs, world.answers, certify_rows=0.2, predict_for=asked)
    observed = {line.given: line.observed for line in model.certify(target="new rows").lines}
    assert observed[10] < observed[0]
    # Also of rows that were held out when draws were averaged.
    assert np.allclose(model.requested_["probability"], model.predict_proba(asked)[:, 1], atol=0.1)
    inner = getattr(model, "completer_", model)
    assert np.array_equal(inner.predict_proba(asked), model.predict_proba(asked))
    assert len(inner.rows_) == len(model.rows_)


def test_what_cannot_be_is_said(world, model):
    for share in (0, 1.0, True, "x", 1e-9):
        with pytest.raises(ValueError, match="certify_rows"):
            fitted(world, certify_rows=share)
    with pytest.raises(ValueError, match="sample_weight"):
        LogisticCompleter(1).fit(
            world.pairs, world.answers, np.ones(len(world.answers)), certify_rows=0.2
        )
    with pytest.raises(ValueError, match="cannot fold rows in"):
        NuclearNormCompleter().fit(world.pairs, world.answers, certify_rows=0.1)
    with pytest.raises(ValueError, match="stands alone"):
        model.certify(target="new rows", shift=2.0)
    with pytest.raises(ValueError, match="no rows were held out"):
        fitted(world, certify=0.1).certify(target="new rows")
    with pytest.raises(ValueError, match="and no rows"):
        model.refit()
    assert "refit" not in model.certificate_methods()
    with pytest.raises(ValueError, match="not both"):
        fitted(world, certify_rows=0.1, start=model)


def test_the_shell_and_the_report_have_it(world, tmp_path):
    path, report = tmp_path / "a.csv", tmp_path / "r.html"
    pd.DataFrame(
        {"row": world.pairs[:, 0], "col": world.pairs[:, 1], "answer": (world.answers > 0).astype(int)}
    ).to_csv(path, index=False)
    words = ["fit", path, "-o", tmp_path / "m.onebit", "-m", "logistic", "--rank", "1", "--certify", "0",
             "--certify-rows", "0.25", "--report", report]  # fmt: skip
    run = CliRunner().invoke(app, [str(word) for word in words])
    assert run.exit_code == 0, run.output
    assert "after 10 answers: at most" in run.output
    assert "Of rows that are yet to come" in report.read_text()
    run = CliRunner().invoke(app, ["certify", str(tmp_path / "m.onebit"), "--new-rows", "--json"])
    assert run.exit_code == 0, run.output
    assert '"error_at_most"' in run.output
    assert CliRunner().invoke(app, ["certify", str(tmp_path / "m.onebit"), "--all"]).exit_code == 0
    assert (
        CliRunner().invoke(app, ["certify", str(tmp_path / "m.onebit"), "--all", "--new-rows"]).exit_code
        == 2
    )
