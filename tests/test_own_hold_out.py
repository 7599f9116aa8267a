"""A hold-out of one's own: a mask, further answers, a moment in a file; of whom it speaks."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from typer.testing import CliRunner

import onebit
from onebit import LogisticCompleter, Observations, simulate
from onebit.certificates.statements import BLANKS
from onebit.certificates.whence import NOT_TOLD, WHERE
from onebit.cli import app
from onebit.data.holding import joined, marked
from onebit.data.ids import IdIndex
from onebit.data.joining import with_features
from onebit.data.tables.times import After, looks_like_time


@pytest.fixture(scope="module")
def world():
    return simulate.world("B1", rank=1, shape=(60, 40), density=0.6, seed=3, repeats=True)


def fitted(world, **how):
    return LogisticCompleter(2, random_state=0, n_jobs=1).fit(world.pairs, world.answers, **how)


def late(world):
    return np.random.default_rng(0).random(len(world.answers)) < 0.3


def test_marks_follow_their_answers_through_the_sorting():
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 6, (400, 2))  # every entry many times, with either answer
    answers, marks = rng.choice([-1, 1], 400), rng.random(400) < 0.4
    seen, sorted_marks = marked(Observations.from_pairs(pairs, answers), marks)
    view = seen.by_row
    expected = pd.Series(marks).groupby([pairs[:, 0], pairs[:, 1], answers]).sum()
    found = pd.Series(sorted_marks).groupby([view.owners(), view.index, view.sign]).sum()
    assert expected.tolist() == found.tolist()


def test_a_mask_holds_out_what_it_marks_and_nothing_else(world):
    mask = late(world)
    model = fitted(world, certify=mask)
    alone = LogisticCompleter(2, random_state=0, n_jobs=1).fit(
        Observations.from_pairs(world.pairs[~mask], world.answers[~mask])
    )
    held = model.held_out_
    assert len(held.wrong) == mask.sum()
    assert model.kept_answers().fitted.fingerprint() == alone.kept_answers().everything.fingerprint()
    pairs = world.pairs[mask]
    wrong = np.sign(model.decision_function(pairs)) != np.where(world.answers[mask] > 0, 1, -1)
    assert held.wrong.sum() == wrong.sum()


def test_a_mask_a_matrix_and_further_answers_are_the_same_hold_out():
    rng = np.random.default_rng(1)
    matrix = np.where(rng.random((30, 20)) < 0.5, rng.choice([0.0, 1.0], (30, 20)), np.nan)
    where = rng.random(matrix.shape) < 0.25
    rows, columns = np.nonzero(~np.isnan(matrix))
    pairs, answers = np.stack([rows, columns], axis=1), matrix[rows, columns]
    mask = where[rows, columns]
    besides = pairs[mask], answers[mask]
    sparse = scipy.sparse.coo_array((answers, (rows, columns)), shape=matrix.shape)
    frame = pd.DataFrame(matrix)
    calls = [
        ((pairs, answers), mask),
        ((pairs, answers), mask.tolist()),
        ((matrix,), where),
        ((frame,), pd.DataFrame(where)),
        ((sparse,), where),
        ((pairs[~mask], answers[~mask]), besides),
        ((Observations.from_pairs(pairs[~mask], answers[~mask]),), Observations.from_pairs(*besides)),
    ]
    found = {
        LogisticCompleter(1, random_state=0, n_jobs=1).fit(*given, certify=certify).certify().bound
        for given, certify in calls
    }
    assert len(found) == 1


def test_further_answers_may_bring_ids_of_their_own(world):
    survey = [(10_000, 0), (10_000, 1), (0, 10_000)], [1, 0, 1]
    model = fitted(world, certify=survey)
    assert 10_000 in model.rows_.labels
    assert len(model.held_out_.wrong) == 3
    assert not model.held_out_.open.any()  # an id without a fitted answer, or an entry that was fitted


def test_features_of_ids_that_only_the_held_out_answers_have_are_unknown(world):
    ages = pd.DataFrame({"age": np.arange(60.0)}, index=pd.RangeIndex(60, name="row"))
    seen = with_features(Observations.from_pairs(world.pairs, world.answers), (ages, None))
    both, marks = joined(seen, Observations.from_pairs([(999, 0)], [1]))
    assert both.features[0].shape[0] == len(both.rows) == 61
    assert not both.features[0].there[both.rows.encode([999])[0]]
    assert marks.sum() == 1


def test_certificates_say_of_whom_they_speak(world):
    model = fitted(world, certify=late(world))
    text = str(model.certify())
    assert "like the held-out ones, which the user chose" in text
    assert "independent draws of what this speaks of" in text
    assert "entries that were held out have" in text
    assert "like the answered ones" not in text + str(model.sheet()) + str(model.certify(by="answer"))
    assert "blanks" not in str(model.sheet()) + text
    assert model.certificate_methods() == ("hold-out",)
    assert "being held out" in str(model.certify(shift=1.5))
    assert model.certify_lists(5, 0.4).whole.bound <= 1.0
    with pytest.raises(ValueError, match="a share of the answers"):
        model.refit()
    with pytest.raises(ValueError, match="at random"):
        model.certify(target="blanks", propensities=np.full((60, 40), 0.5))
    assert "chosen at random" not in str(model.certify_lists(5, 0.4).whole)


def test_it_is_saved_and_updated_as_what_it_is(world, tmp_path):
    model = fitted(world, certify=late(world))
    model.save(tmp_path / "m.onebit")
    again = onebit.load(tmp_path / "m.onebit")
    assert again.held_out_.whence == "own"
    assert str(again.certify()) == str(model.certify())
    again.partial_fit([(0, 0)], [1])
    assert again.held_out_.whence == "own, elsewhere"
    assert again.held_out_.where in WHERE.values()
    assert "no later update has touched" in again.certify().sentence()


def test_what_cannot_be_held_out_is_said(world):
    n = len(world.answers)
    for certify, words in [
        (np.zeros(n, bool), "none of the"),
        (np.ones(n, bool), "all of the"),
        (np.zeros(n - 1, bool), "of shape"),
        (np.zeros(n), "True for every answer"),
        ("0.1", "a share of the answers"),
        (True, "0 to below 1"),
        ([world.pairs, world.answers], "True for every answer"),
        ((world.pairs,), "certify=\\(pairs, answers\\)"),
    ]:
        with pytest.raises(ValueError, match=words):
            fitted(world, certify=certify)
    with pytest.raises(ValueError, match="an order of their own"):
        LogisticCompleter(1).fit(Observations.from_pairs(world.pairs, world.answers), certify=late(world))
    with pytest.raises(ValueError, match="sample_weight"):
        LogisticCompleter(1).fit(world.pairs, world.answers, np.ones(n), certify=late(world))
    with pytest.raises(TypeError, match="strings"):
        fitted(world, certify=([("a", "b")], [1]))
    with pytest.raises(ValueError, match="share no row and no column"):
        fitted(world, certify=([(777, 888)], [1]))


def test_what_was_fitted_certifies_nothing(world):
    with pytest.raises(ValueError, match="stands among the answers to fit"):
        fitted(world, certify=(world.pairs[:50], world.answers[:50]))
    # Some may: a survey at random meets entries that were answered.
    flipped = np.where(np.arange(50) < 5, -world.answers[:50], world.answers[:50])
    found = fitted(world, certify=(world.pairs[:50], flipped)).certify()
    assert "50 are of entries that were fitted too" in str(found)


def test_answers_of_strangers_are_counted_and_blanks_have_a_certificate(world):
    survey = [(10_000 + k, k % 40) for k in range(30)] + [tuple(pair) for pair in world.pairs[:10]]
    answers = np.r_[np.arange(30) % 2, (world.answers[:10] > 0).astype(int)]
    model = fitted(world, certify=(survey, answers))
    assert "30 are of rows or columns without a fitted answer" in str(model.certify())
    assert model.certify(target="blanks").terms["held-out answers"] == 30
    model.name_hold_out("a survey in May")
    assert "like the held-out ones, a survey in May" in str(model.certify(by="answer"))
    with pytest.raises(ValueError, match="at random"):
        fitted(world, certify=0.2).name_hold_out("x")


def test_labels_of_masks_are_those_of_what_they_mask(world):
    frame = pd.DataFrame(world.pairs, columns=["r", "c"])
    mask = pd.Series(late(world))
    shuffled = mask.sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match="another index"):
        LogisticCompleter(1).fit(frame, world.answers, certify=shuffled)
    matrix = pd.DataFrame(np.where(np.eye(5) > 0, 1.0, 0.0))
    with pytest.raises(ValueError, match="other labels"):
        LogisticCompleter(1).fit(matrix, certify=(matrix > 0)[[4, 3, 2, 1, 0]])
    with pytest.raises(ValueError, match="missing values"):
        fitted(world, certify=pd.array([True, None] + [False] * (len(world.answers) - 2)))


def test_ids_of_a_second_file_are_their_text(world, tmp_path):
    frame = pd.DataFrame(world.pairs, columns=["row", "col"]).assign(
        answer=(world.answers > 0).astype(int)
    )
    frame[50:].to_csv(tmp_path / "a.csv", index=False)
    frame[:50].astype({"row": str, "col": str}).to_parquet(tmp_path / "b.parquet")
    found = run("fit", tmp_path / "a.csv", "-o", tmp_path / "m.onebit", "-m", "logistic", "--rank", "1",
                "--certify-file", tmp_path / "b.parquet")  # fmt: skip
    assert found.exit_code == 0, found.output
    assert "without a fitted answer" not in found.output


def test_a_checkpoint_is_of_one_hold_out(world, tmp_path):
    mask = late(world)

    class Stop(Exception):
        pass

    def stop(progress):
        if progress.round == 3:
            raise Stop

    with pytest.raises(Stop):
        fitted(world, certify=mask, checkpoint=tmp_path / "part", callback=stop)
    with pytest.raises(ValueError, match="what is held out"):
        fitted(world, certify=~mask, checkpoint=tmp_path / "part")
    assert fitted(world, certify=mask, checkpoint=tmp_path / "part").held_out_ is not None


def test_a_hold_out_of_ones_own_says_nothing_of_all_blanks():
    rng = np.random.default_rng(0)
    matrix = np.where(rng.random((30, 20)) < 0.9, rng.choice([0.0, 1.0], (30, 20)), np.nan)
    random = LogisticCompleter(1, random_state=0, n_jobs=1).fit(matrix, certify=0.2)
    own = LogisticCompleter(1, random_state=0, n_jobs=1).fit(matrix, certify=rng.random((30, 20)) < 0.2)
    assert BLANKS in random.certify().terms
    assert BLANKS not in own.certify().terms


def test_after_an_update_an_own_hold_out_names_what_it_assumes(world):
    model = fitted(world, certify=late(world))
    model.partial_fit([(0, 0)], [1])
    assert NOT_TOLD in model.certify().assumptions
    weighted = Observations.from_pairs(world.pairs, world.answers, np.ones(len(world.answers)))
    with pytest.raises(ValueError, match="sample_weight"):
        LogisticCompleter(1).fit(weighted, certify=([(0, 0)], [1]))


def test_ids_of_a_survey_are_listed_as_they_came():
    first = Observations.from_pairs([("b", "x"), ("a", "y")], [1, 0])
    path_order = IdIndex(pd.Index(["aa", "mm", "zz"]), "row", [2, 0, 1])
    codes = np.arange(3, dtype=np.int32)
    column = IdIndex(pd.Index(["x"]), "column")
    signs = np.array([1, -1, 1], np.int8)
    others = Observations.from_codes(path_order, column, codes, np.zeros(3, np.int32), signs)
    both, _ = joined(first, others)
    assert both.rows.listed_labels.tolist() == ["a", "b", "zz", "aa", "mm"]


@pytest.mark.parametrize(
    ("value", "fields", "expected"),
    [
        ("100", ["99", "100", "101", " 1e3", "x", ""], [0, 0, 1, 1, None, None]),
        ("2024-05-31", ["2024-05-30", "2024-05-31", "2024-05-31T00:01", "2024-06-01 10:00:00", "5"],
         [0, 0, 0, 1, None]),
        ("2024-05-31T00:00", ["2024-05-31", "2024-05-31T00:01"], [0, 1]),
        ("2024-05-31T12:00+02:00", ["2024-05-31T09:59Z", "2024-05-31T10:01Z"], [0, 1]),
    ],
)  # fmt: skip
def test_moments_are_compared_as_numbers_or_as_dates(value, fields, expected):
    later, unknown = After("when", value).later(fields)
    assert [None if bad else int(after) for after, bad in zip(later, unknown, strict=True)] == expected


def test_columns_of_times_are_known_by_what_they_hold_and_by_name():
    for name in ("timestamp", "rated_at_time", "Date", "createdDate", "answer date"):
        assert looks_like_time(name, ["31/12/2024", "1/1/2025"])
    assert looks_like_time("4", ["881250949", "891717742"])
    assert looks_like_time("x", ["2024-01-02", "2024-01-03T10:00"])
    assert looks_like_time("x", ["20240102", "20240103"])
    for name in ("rating", "candidate", "response_time", "time_spent"):
        assert not looks_like_time(name, ["3", "4.5"])
    assert not looks_like_time("date_of_birth", ["1980-01-02", "1990-01-03"])
    assert not looks_like_time("when", ["often", "never"])


def written(path, world, mask):
    table = pd.DataFrame(
        {
            "person": world.pairs[:, 0],
            "question": world.pairs[:, 1],
            "answer": np.where(world.answers > 0, "yes", "no"),
            "when": np.where(mask, "2024-06-01", "2024-01-01"),
        }
    )
    table.to_csv(path, index=False)


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_answers_after_a_moment_are_read_apart(world, tmp_path):
    mask, path = late(world), tmp_path / "answers.csv"
    written(path, world, mask)
    early, later = onebit.read_answers(path, after=("when", "2024-03-01"))
    assert (early.n, later.n) == ((~mask).sum(), mask.sum())
    whole = onebit.read_answers(path, drop=["when"])
    assert whole.n == len(mask)


def test_the_shell_holds_out_what_is_later_or_what_stands_in_a_file(world, tmp_path):
    mask, path = late(world), tmp_path / "answers.csv"
    written(path, world, mask)
    frame = pd.read_csv(path)
    frame[~mask].drop(columns="when").to_csv(tmp_path / "early.csv", index=False)
    frame[mask].drop(columns="when").to_csv(tmp_path / "survey.csv", index=False)
    how = ["-m", "logistic", "--rank", "2"]
    one = run("fit", path, "-o", tmp_path / "a.onebit", *how, "--certify-after", "when", "2024-03-01")
    two = run("fit", tmp_path / "early.csv", "-o", tmp_path / "b.onebit", *how, "--certify-file",
              tmp_path / "survey.csv")  # fmt: skip
    assert one.exit_code == 0, one.output
    assert two.exit_code == 0, two.output
    assert f"and {mask.sum()} held out" in one.output
    bounds = {onebit.load(tmp_path / f"{name}.onebit").certify().bound for name in "ab"}
    assert len(bounds) == 1
    assert "ones, answers after 2024-03-01 in column 'when'" in " ".join(one.output.split())
    assert "ones, those of survey.csv" in " ".join(two.output.split())


def test_the_shell_says_what_is_wrong_with_times(world, tmp_path):
    path = tmp_path / "answers.csv"
    written(path, world, late(world))
    for words, said in [
        (("--certify-after", "when", "2030-01-01"), "no answer of"),
        (("--certify-after", "when", "soon"), "neither a number nor a date"),
        (("--certify-after", "when", "12"), "is no number"),
        (("--certify-after", "then", "12"), "has no column 'then'"),
        (("--certify-after", "answer", "12"), "seems to hold the answers"),
        (("--certify-after", "when", "now"), "neither a number nor a date"),
        (("--certify-after", "when", "2024-03-01", "--certify-rows", "0.2"), "goes with --certify"),
        (("--certify-file", str(path)), "names the file that is fitted"),
        (("--certify-rows", "nan"), "a share of the rows"),
        (("--certify-after", "when", "2024-03-01", "--certify", "0.1"), "choose one of them"),
        (("--certify-after", "when", "2024-03-01", "--refit"), "--refit goes with"),
        (("--certify-after", "when", "2024-03-01", "--wide"), "wide table"),
    ]:
        found = run("fit", path, "-o", tmp_path / "m.onebit", "-m", "logistic", *words)
        assert found.exit_code != 0
        assert said in " ".join(found.output.split()), found.output


def test_a_random_hold_out_of_timed_answers_is_warned_of(world, tmp_path):
    path, report = tmp_path / "answers.csv", tmp_path / "r.html"
    written(path, world, late(world))
    how = ["-m", "logistic", "--rank", "1", "--report", report]
    found = run("fit", path, "-o", tmp_path / "m.onebit", *how)
    assert found.exit_code == 0, found.output
    assert "'when' seems to hold times" in found.output
    assert "--certify-after when VALUE" in report.read_text()
    run("fit", path, "-o", tmp_path / "m.onebit", *how, "--certify-after", "when", "2024-03-01")
    assert "--certify-after when VALUE" not in report.read_text()
