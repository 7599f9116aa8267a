"""From a table to predictions, certificates and a report, by commands alone."""

import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import onebit
from onebit import cli, simulate
from onebit.certificates.statements import at_most
from onebit.cli import shell
from onebit.data import storage
from onebit.data.school import school

runner = CliRunner()


def run(*arguments, code=0, **settings):
    result = runner.invoke(cli.app, [str(argument) for argument in arguments], **settings)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, its world and a model."""
    folder = tmp_path_factory.mktemp("files")
    drawn = school(60, 30, 1500, seed=2)
    drawn.frame().to_csv(folder / "school.csv", index=False)
    run("fit", folder / "school.csv", "-o", folder / "school.onebit", "--model", "logistic", "--rank", 3,
        "--pattern", "none")  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return onebit.load(folder / "school.onebit")


def test_fit_says_what_it_guessed_held_out_and_certified(folder, tmp_path):
    result = run("fit", folder / "school.csv", "-o", tmp_path / "m.onebit", "-m", "logistic", "--rank", 2)
    assert "taking rows 'student', columns 'exercise', answers 'solved'" in result.stderr
    assert "holding 10% of the answers out" in result.stderr
    certified = r"With probability 0.95, at most \d+\.\d% of the predictions on entries like the answered"
    assert re.search(certified, result.stdout)
    assert re.search(r"of 150 held-out .* always the commoner answer: \d+", result.stdout)
    fitted = onebit.load(tmp_path / "m.onebit")
    assert fitted.record_.n_held_out == 150
    assert fitted.record_.source["file"] == "school.csv"
    assert len(fitted.record_.certificates) == 3
    assert str(tmp_path) not in json.dumps(fitted.record_.state()[1])


def test_fit_repeats_and_is_what_python_does(folder, model, tmp_path):
    path = tmp_path / "m.onebit"
    run("fit", folder / "school.csv", "-o", path, "-m", "logistic", "--rank", 3, "--threads", 1, "-q",
        "--pattern", "none")  # fmt: skip
    again = onebit.load(path)
    seen = onebit.read_answers(folder / "school.csv")
    direct = onebit.LogisticCompleter(3, pattern=None, random_state=0).fit(seen, certify=0.1)
    for other in (again, direct):
        np.testing.assert_array_equal(other.posterior_.rows.mean, model.posterior_.rows.mean)
        assert other.certify().bound == model.certify().bound


def test_quiet_and_json(folder, tmp_path):
    path = tmp_path / "m.onebit"
    arguments = ("fit", folder / "school.csv", "-o", path, "-m", "logistic", "--rank", 1, "--json", "-q")
    result = run(*arguments)
    assert result.stderr == ""
    answer = json.loads(result.stdout)
    assert answer["answers"] == 1500
    assert answer["held_out"] == 150
    assert 0 < answer["error_at_most"] < 1


def test_nothing_held_out_means_no_certificate(folder, tmp_path):
    path = tmp_path / "m.onebit"
    result = run("fit", folder / "school.csv", "-o", path, "-m", "logistic", "--rank", 1, "--certify", 0,
                 "--pattern", "none")  # fmt: skip
    assert "With probability" not in result.stdout
    assert "held_out" in run("info", path, "--json").stdout
    result = run("predict", path, folder / "school.csv", "--max-error", 0.1, code=1)
    assert "fitted without held-out answers" in result.stderr
    assert "certified" not in run("predict", path, folder / "school.csv").stdout
    assert "no certificate of the model itself" in run("certify", path, code=1).stderr
    assert "PAC-Bayes-kl" in run("certify", path, "--method", "pac-bayes-kl").stdout


def test_a_refit_keeps_the_model_of_all_answers_and_says_its_price(folder, model, tmp_path):
    path = tmp_path / "m.onebit"
    arguments = ("-m", "logistic", "--rank", 3, "--refit", "--pattern", "none")
    result = run("fit", folder / "school.csv", "-o", path, *arguments)
    assert "refitted on all answers, on entries drawn evenly from the whole table," in result.stdout
    assert f"Before the refit it was {at_most(model.certify().bound)}" in result.stdout
    assert re.search(r"the two fits differ on \d+\.\d% of the table", result.stdout)
    again = onebit.load(path)
    everything = onebit.read_answers(folder / "school.csv")
    direct = onebit.LogisticCompleter(3, pattern=None, random_state=0).fit(everything)
    np.testing.assert_array_equal(again.posterior_.rows.mean, direct.posterior_.rows.mean)
    assert again.certify().bound == pytest.approx(model.certify().bound + again.held_out_.disagreement)
    refused = run("predict", path, folder / "school.csv", "--max-error", 0.2, code=1).stderr
    assert "it was refitted on all answers" in refused
    assert "certified" not in run("predict", path, folder / "school.csv").stdout
    wrong = run("fit", folder / "school.csv", "-o", path, "--refit", "--certify", 0, code=2)
    assert "--refit goes with a certificate" in wrong.stderr


@pytest.mark.parametrize("name", ["logistic", "hinge", "gibbs", "nuclear", "auto"])
def test_every_model_goes_all_the_way(tmp_path, name):
    world = simulate.world("B1", rank=1, shape=(25, 20), density=0.6, seed=1)
    pairs = pd.DataFrame(world.pairs, columns=["row", "column"]).assign(answer=world.answers)
    pairs.to_csv(tmp_path / "w.csv", index=False)
    run("fit", tmp_path / "w.csv", "-o", tmp_path / "m.onebit", "--model", name, "--quiet")
    run("report", tmp_path / "m.onebit", "-o", tmp_path / "r.html")
    run("info", tmp_path / "m.onebit")
    result = run("predict", tmp_path / "m.onebit", tmp_path / "w.csv", "--quiet")
    assert len(result.stdout.splitlines()) == len(world.pairs) + 1
    assert "nan" not in result.stdout


def test_a_sampled_model_goes_all_the_way(folder, tmp_path):
    made = tmp_path / "m.onebit"
    sampling = ["--inference", "sampling", "--samples", 50, "--chains", 2]
    run("fit", folder / "school.csv", "-o", made, "-m", "logistic", "--rank", 2, *sampling,
        "--report", tmp_path / "m.html")  # fmt: skip
    model = onebit.load(made)
    assert model.draws_.count == 100
    told = json.loads(run("info", made, "--json").stdout)
    assert told["draws"] == 100
    assert told["worst_rhat"] >= 0.9
    result = run("predict", made, "--pair", "Ada A.,fractions 01", "--json")
    assert json.loads(result.stdout)["probability"] == pytest.approx(
        model.predict_proba([("Ada A.", "fractions 01")])[0, 1], abs=1e-6
    )
    assert (tmp_path / "m.html").stat().st_size > 10_000
    run("certify", made)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--inference", "sampling"], "goes with --model logistic or hinge"),
        (["-m", "logistic", "--inference", "mcmc"], "unknown inference 'mcmc'"),
        (["-m", "logistic", "--samples", "9"], "go with --inference sampling"),
        (["-m", "logistic", "--loss", "hinge"], "--loss goes with --model auto"),
        (["--loss", "hinge"], "each after a --loss of its own, and --loss logistic"),
    ],
)
def test_sampling_options_that_do_not_go_together(folder, tmp_path, options, message):
    result = run("fit", folder / "school.csv", "-o", tmp_path / "m.onebit", *options, code=2)
    assert message in result.stderr


def test_predictions_are_the_models(folder, model, tmp_path):
    out = tmp_path / "out.parquet"
    result = run("predict", folder / "school.onebit", folder / "school.csv", "-o", out)
    assert "1,500 pairs predicted" in result.stderr
    table = pd.read_parquet(out)
    pairs = pd.read_csv(folder / "school.csv")[["student", "exercise"]]
    assert (table[["student", "exercise"]].astype(str) == pairs).all().all()
    np.testing.assert_allclose(table["probability"], model.predict_proba(pairs)[:, 1], atol=1e-6)
    np.testing.assert_allclose(table["uncertainty"], model.predict_uncertainty(pairs), atol=1e-6)
    assert (table["answer"] == model.predict(pairs)).all()
    assert set(table["answer"]) == {"no", "yes"}
    assert (table["certified"] == model.certified(pairs, 0.1)).all()
    assert (table["known"] == "both").all()


def test_pairs_typed_piped_and_never_seen(folder, model, tmp_path):
    name = folder / "school.onebit"
    student, exercise = model.rows_.labels[3], model.columns_.labels[5]
    result = run(
        "predict", name, "--pair", f"{student},{exercise}", "--pair", f'nobody,"{exercise}"', "--json"
    )
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert first["probability"] == pytest.approx(
        model.predict_proba([(student, exercise)])[0, 1], abs=1e-6
    )
    assert (first["known"], second["known"]) == ("both", "exercise")
    assert "1 with an unknown student" in result.stderr
    assert "knows no id of these" not in result.stderr
    swapped = run("predict", name, "--pair", f"{exercise},{student}", "--pair", "x,y")
    assert "knows no id of these, neither rows nor columns" in swapped.stderr
    every = [(row, column) for row in model.rows_.labels for column in model.columns_.labels]
    marked = every[int(np.argmax(model.certified(every, 0.9)))]
    pairs = ("--pair", f"{marked[0]},{marked[1]}", "--pair", f"nobody,{exercise}")
    loose = run("predict", name, *pairs, "--max-error", 0.9, "--json").stdout.splitlines()
    assert [json.loads(line)["certified"] for line in loose] == [True, False]
    piped = run("predict", name, "-", input=f"student,exercise\n{student},{exercise}\n")
    assert f"{first['probability']}" in piped.stdout
    for arguments in (("--pair", "only one"), ("--pair", "a,b,c"), ("--pair", ",b")):
        assert "--pair takes ROW,COLUMN" in run("predict", name, *arguments, code=1).stderr
    assert "give a file of pairs" in run("predict", name, code=1).stderr
    bare = tmp_path / "bare.csv"
    bare.write_text(f"{student},{exercise}\n{student},{exercise}\n")
    assert "say --no-header" in run("predict", name, bare, code=1).stderr
    assert len(run("predict", name, bare, "--no-header", "-q").stdout.splitlines()) == 3


def test_numbers_are_found_however_they_were_typed(tmp_path):
    table = pd.DataFrame({"user": [7, 8, 9] * 8, "item": np.arange(24) % 5, "liked": np.arange(24) % 2})
    table.to_parquet(tmp_path / "t.parquet")
    run("fit", tmp_path / "t.parquet", "-o", tmp_path / "m.onebit", "-m", "logistic", "--rank", 1, "-q")
    result = run("predict", tmp_path / "m.onebit", "-", input="user,item\n7,3\n007,3\n")
    lines = result.stdout.splitlines()
    assert lines[1].startswith("7,3,")
    assert lines[1].endswith("both")
    assert lines[2].startswith("007,3,")
    assert lines[2].endswith("item")


def test_the_best_blanks_are_blanks_and_the_best(folder, model, tmp_path):
    out = tmp_path / "best.csv"
    run("complete", folder / "school.onebit", "--top", 4, "-o", out)
    best = pd.read_csv(out)
    answered = set(map(tuple, pd.read_csv(folder / "school.csv")[["student", "exercise"]].to_numpy()))
    assert not answered & set(map(tuple, best[["student", "exercise"]].to_numpy()))
    assert best.groupby("student").size().max() <= 4
    assert set(best["student"]) == {
        student
        for student in model.rows_.labels
        if sum((student, exercise) not in answered for exercise in model.columns_.labels)
    }
    assert "certified" not in best.columns  # the best of each are a selection
    filled = model.complete("probability", everywhere=True)
    for student, lines in best.groupby("student"):
        blank = [name for name in filled.columns if (student, name) not in answered]
        np.testing.assert_allclose(
            lines["probability"], np.sort(filled.loc[student, blank])[::-1][:4], atol=1e-6
        )
    one = run("complete", folder / "school.onebit", "--top", 2, "--answered", "--row", "Ada A.").stdout
    expected = filled.loc["Ada A."].sort_values(ascending=False).head(2)
    assert [line.split(",")[2] for line in one.splitlines()[1:]] == expected.index.tolist()
    assert "does not know the row 'Nobody'" in run(
        "complete", folder / "school.onebit", "--top", 2, "--row", "Nobody", code=1
    ).stderr  # fmt: skip


def test_lists_of_columns_go_by_the_same_probabilities(folder, model):
    words = "complete", folder / "school.onebit", "--top", 3, "--by", "column"
    exercise = model.columns_.labels[2]
    one = pd.read_csv(io.StringIO(run(*words, "--col", exercise).stdout))
    theirs = model.recommend(columns=exercise, n=3, by="column")
    assert one.columns.tolist()[:3] == ["exercise", "rank", "student"]
    assert one["student"].tolist() == theirs["student"].tolist()
    np.testing.assert_allclose(one["probability"], theirs["probability"], atol=1e-6)
    all_of = pd.read_csv(
        io.StringIO(run(*words[:3], 99, *words[4:], "--col", exercise, "--answered").stdout)
    )
    assert sorted(all_of["student"]) == sorted(model.rows_.labels)
    assert (
        run(*words, "--col", exercise, "--col", exercise).stdout == run(*words, "--col", exercise).stdout
    )
    every = pd.read_csv(io.StringIO(run(*words).stdout))
    assert every.groupby("exercise").size().max() == 3
    wrong = {
        "it goes with --by column": ("--top", 3, "--col", exercise),
        "with --by column say --col": ("--top", 3, "--by", "column", "--row", "Ada A."),
        "say how long with --top": ("--by", "column"),
        "--by is row or column": ("--top", 3, "--by", "item"),
        "certifies lists of rows": ("--top", 3, "--by", "column", "--max-error", 0.2),
        "--long and --what are for the whole matrix": ("--top", 3, "--what", "score"),
    }
    for said, options in wrong.items():
        result = run("complete", folder / "school.onebit", *options, code=2)
        assert said in " ".join(result.stderr.split())


def test_the_whole_matrix_wide_and_long(folder, model, tmp_path):
    run("complete", folder / "school.onebit", "-o", tmp_path / "wide.csv")
    wide = pd.read_csv(tmp_path / "wide.csv", index_col="student")
    pd.testing.assert_frame_equal(wide, model.complete("probability").round(6), check_names=False)
    run("complete", folder / "school.onebit", "--what", "answer", "-o", tmp_path / "answers.parquet")
    answers = pd.read_parquet(tmp_path / "answers.parquet").set_index("student")
    assert (answers.to_numpy() == model.complete("answer").to_numpy()).all()
    run("complete", folder / "school.onebit", "--everywhere", "-o", tmp_path / "own.csv")
    own = pd.read_csv(tmp_path / "own.csv", index_col="student")
    pd.testing.assert_frame_equal(own, model.complete(everywhere=True).round(6), check_names=False)
    assert not own.equals(wide)
    long = ("--long", "--max-error", 0.6, "-o", tmp_path / "long.jsonl")
    run("complete", folder / "school.onebit", *long)
    long = pd.read_json(tmp_path / "long.jsonl", lines=True)
    assert len(long) == 60 * 30
    np.testing.assert_allclose(long["probability"].to_numpy().reshape(60, 30), wide.to_numpy())
    answered = long["answered"].to_numpy()
    log = pd.read_csv(folder / "school.csv")
    share = (log["solved"] == "yes").groupby([log["student"], log["exercise"]]).mean()
    assert answered.sum() == len(share)  # some were tried more than once
    known = long[answered].set_index(["student", "exercise"])["probability"]
    np.testing.assert_allclose(known, share.loc[known.index], atol=1e-6)
    assert not long["certified"][answered].any()
    assert long["certified"].any()


def test_a_wide_table_comes_back_in_its_own_order(tmp_path, rng):
    names = [f"item_{k}" for k in range(12)]  # as text, item_10 comes before item_2
    table = pd.DataFrame(rng.integers(0, 2, (20, 12)), columns=names)
    table.insert(0, "who", [f"r{k}" for k in rng.permutation(20)])
    table.insert(1, "age", 20 + np.arange(20))
    table.to_csv(tmp_path / "w.csv", index=False)
    made = tmp_path / "m.onebit"
    result = run("fit", tmp_path / "w.csv", "--wide", "-o", made, code=1)
    assert "the column 'age' holds" in result.stderr
    assert result.stderr.endswith("leave it out with --drop age\n")
    drop = ("--drop", "age", "-m", "logistic", "--rank", 1)
    assert "20 rows and 12 columns" in run("fit", tmp_path / "w.csv", *drop, "-o", made).stderr
    run("complete", made, "-o", tmp_path / "wide.csv")
    filled = pd.read_csv(tmp_path / "wide.csv")
    assert filled.columns.tolist() == ["who", *names]
    assert filled["who"].tolist() == table["who"].tolist()
    run("complete", made, "--top", 1, "--answered", "-o", tmp_path / "top.csv", "-q")
    assert pd.read_csv(tmp_path / "top.csv")["who"].tolist() == table["who"].tolist()
    assert "item_0, item_1, item_2" in run("info", made).stdout
    run("evaluate", tmp_path / "w.csv", *drop, "--folds", 2, "-q")


def test_a_table_without_ids_has_numbered_rows(tmp_path, rng):
    pd.DataFrame(rng.integers(0, 2, (20, 5))).to_csv(tmp_path / "w.csv", index=False, header=False)
    options = ("-o", tmp_path / "m.onebit", "-m", "logistic", "--rank", 1, "--no-header")
    assert "say --no-ids" in run("fit", tmp_path / "w.csv", "--wide", *options, code=1).stderr
    run("fit", tmp_path / "w.csv", "--no-ids", *options)
    lines = run("complete", tmp_path / "m.onebit", "-q").stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == ["row", *map(str, range(1, 21))]


def test_ids_that_spreadsheets_would_run_are_said_and_guarded_when_asked_to(tmp_path):
    answers = "who,=1+1,b,-3\n=HYPERLINK(),1,0,1\n@x,0,1,1\n-7,1,1,0\n"
    (tmp_path / "w.csv").write_text(answers)
    made, out = tmp_path / "m.onebit", tmp_path / "out.csv"
    run("fit", tmp_path / "w.csv", "-o", made, "-m", "logistic", "--rank", 0, "--certify", 0, "-q")
    result = run("complete", made, "-o", out)
    assert "3 ids begin as formulas of spreadsheet programs do, the first is '=1+1'" in result.stderr
    assert "--spreadsheet" in result.stderr
    assert out.read_text().splitlines()[0] == "who,=1+1,b,-3"
    result = run("complete", made, "-o", out, "--spreadsheet")
    assert "an apostrophe stands before each" in result.stderr
    begin = [line.split(",")[0] for line in out.read_text().splitlines()]
    assert begin == ["who", "'=HYPERLINK()", "'@x", "-7"]
    assert out.read_text().startswith("who,'=1+1,b,-3\n")
    pair = ("predict", made, "--pair", "@x,-3", "--pair", "-7,b")
    guarded = run(*pair, "--spreadsheet").stdout.splitlines()
    assert [line.split(",")[:2] for line in guarded[1:]] == [["'@x", "-3"], ["-7", "b"]]
    result = run(*pair)
    assert result.stderr.count("1 id begins as formulas") == 1
    assert result.stdout.splitlines()[1].startswith("@x,-3,")
    assert "formulas" not in run("complete", made, "-o", tmp_path / "out.parquet").stderr
    wrong = run("complete", made, "-o", tmp_path / "out.parquet", "--spreadsheet", code=2)
    assert "--spreadsheet goes with csv and tsv" in wrong.stderr


def test_a_model_that_forgot_its_answers_says_so(folder, tmp_path):
    path = tmp_path / "m.onebit"
    arguments = ("-m", "logistic", "--rank", 3, "--forget-answers", "-q", "--pattern", "none")
    run("fit", folder / "school.csv", "-o", path, *arguments)
    assert path.stat().st_size < (folder / "school.onebit").stat().st_size
    assert "does not hold its answers" in run("complete", path, "--top", 2, code=1).stderr
    assert "say --everywhere" in run("complete", path, code=1).stderr
    run("complete", path, "--everywhere")
    lists = ("complete", path, "--top", 2, "--max-error", 0.1)
    assert "does not hold its answers" in run(*lists, code=1).stderr
    assert "leave --answered out" in run(*lists, "--answered", code=2).stderr
    assert "does not hold its answers" in run("certify", path, "--method", "all", code=1).stderr
    run("complete", path, "--top", 2, "--answered")
    assert "hold-out" in run("certify", path).stdout
    run("report", path, "-o", tmp_path / "r.html")


def test_certificates_from_a_file(folder, model, tmp_path):
    path = tmp_path / "m.onebit"
    path.write_bytes((folder / "school.onebit").read_bytes())
    result = run("certify", path, "--max-error", 0.6, "--delta", 0.1)
    assert f"at most {at_most(model.certify(0.1).bound)}" in result.stdout
    assert 'of those said "yes", ' in result.stdout
    assert "at most 60.0% are wrong" in result.stdout
    said = run("certify", path, "--by", "answer").stdout
    assert 'of those said "no": at most' in said
    result = run("certify", path, "--method", "pac-bayes-kl,hold-out", "--save", "--json")
    (ladder,) = json.loads(result.stdout)["certificates"]
    assert [c["method"] for c in ladder["certificates"]] == ["PAC-Bayes-kl"]
    assert ladder["own"]["method"] == "hold-out, Clopper-Pearson"
    again = onebit.load(path)
    assert len(again.record_.certificates) == 4
    assert again.record_.certificates[-1] == model.certify(0.05, ("pac-bayes-kl", "hold-out"))
    run("report", path, "-o", tmp_path / "r.html")
    assert "PAC-Bayes-kl" in (tmp_path / "r.html").read_text()
    whole = json.loads(run("certify", path, "--method", "all", "--json", "-q").stdout)["certificates"][0]
    assert len(whole["certificates"]) == len(model.certificate_methods()) - 1
    assert {rung["delta"] for rung in whole["certificates"]} == {0.05 / len(whole["certificates"])}
    assert "no certificate 'magic'" in run("certify", path, "--method", "magic", code=1).stderr
    assert "delta" in run("certify", path, "--delta", 2, code=1).stderr
    assert "delta" in run("certify", path, "--delta", 1, code=1).stderr
    assert "all and best stand alone" in run("certify", path, "--method", "hold-out,all", code=2).stderr


def test_info_tells_what_is_inside(folder):
    answer = json.loads(run("info", folder / "school.onebit", "--json").stdout)
    assert (answer["rows"], answer["columns"], answer["answers"]) == (60, 30, 1500)
    assert answer["written_as"] == ["no", "yes"]
    assert re.fullmatch(r"[0-9a-f]+-[0-9a-f]{32}", answer["fingerprint"])
    assert answer["settings"]["rank"] == 3
    assert "LogisticCompleter" in run("info", folder / "school.onebit").stdout


def test_evaluation_beats_its_baselines(folder):
    large = folder / "large.csv"
    run("simulate", "school", "-o", large)
    result = run("evaluate", large, "--folds", 3, "-m", "logistic", "--rank", 3, "--json", "-q")
    methods = json.loads(result.stdout)["methods"]
    ours, effects, majority = (methods[name] for name in methods)
    assert list(methods) == ["LogisticCompleter", "effects only", "commoner answer"]
    assert ours["log_loss"] < effects["log_loss"] < majority["log_loss"]
    shown = run("evaluate", folder / "school.csv", "--folds", 2, "-m", "logistic", "--rank", 1)
    assert "commoner answer" in shown.stdout
    assert "not 900" in run("evaluate", folder / "school.csv", "--folds", 900, code=1).stderr


def test_simulated_worlds_come_with_their_truth(tmp_path):
    run("simulate", "a2", "--rank", 2, "--rows", 20, "--cols", 10, "-o", tmp_path / "w.csv",
        "--truth", tmp_path / "t.csv", "--seed", 4)  # fmt: skip
    world = simulate.world("A2", 2, (20, 10), 0.2, 4)
    seen = pd.read_csv(tmp_path / "w.csv")
    np.testing.assert_array_equal(seen[["row", "column"]], world.pairs)
    np.testing.assert_array_equal(seen["answer"], world.answers > 0)
    chance = pd.read_csv(tmp_path / "t.csv")["chance"].to_numpy().reshape(20, 10)
    np.testing.assert_allclose(chance, np.where(world.truth > 0, 0.9, 0.1))
    first = run("simulate", "school", "--rows", 10, "--cols", 5).stdout
    assert first.splitlines()[0] == "student,exercise,solved"
    assert first == run("simulate", "school", "--rows", 10, "--cols", 5).stdout
    assert "unknown world 'C9'" in run("simulate", "C9", code=1).stderr


BAD_COMMANDS = {
    "no file": (["fit", "nothing.csv", "-o", "m.onebit"], "no such file: nothing.csv"),
    "a folder": (["fit", ".", "-o", "m.onebit"], "is a folder"),
    "no such column": (["fit", "t.csv", "--row", "x", "-o", "m.onebit"], "columns are 'user', 'item'"),
    "no such model": (["fit", "t.csv", "-m", "magic", "-o", "m.onebit"], "choose one of auto, logistic"),
    "no such model, samples": (
        ["fit", "t.csv", "-m", "magic", "--samples", "9", "-o", "m.onebit"],
        "unknown model 'magic'",
    ),
    "rank of auto": (["fit", "t.csv", "--rank", "3", "-o", "m.onebit"], "finds the rank by itself"),
    "no output folder": (["fit", "t.csv", "-o", "no/m.onebit"], "the folder no does not exist"),
    "no folder to leave": (["fit", "t.csv", "-o", "no/../m.onebit"], "the folder no/.. does not exist"),
    "output is a folder": (["fit", "t.csv", "-o", "."], "it is a folder"),
    "a model to stdout": (["fit", "t.csv", "-o", "-"], "not to standard output"),
    "delta": (["fit", "t.csv", "--delta", "0", "-o", "m.onebit"], "delta"),
    "share": (
        ["fit", "t.csv", "--certify", "1.5", "-o", "m.onebit"],
        "--certify is a share of the answers",
    ),
    "too few": (["fit", "t.csv", "-m", "logistic", "-o", "m.onebit"], "need more answers"),
    "not a model": (["predict", "t.csv", "t.csv"], "t.csv is not a onebit file"),
    "no model": (["info", "nothing.onebit"], "no such file"),
    "unknown output": (["predict", "t.csv", "t.csv", "-o", "out.xls"], "a table is written as csv"),
    "what": (["complete", "t.csv", "--what", "dreams"], "probability, answer or score"),
}


WRONG = ("no such model", "no such model, samples", "rank of auto", "share", "what")


@pytest.mark.parametrize("what", BAD_COMMANDS)
def test_a_wrong_command_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("user,item,liked\na,x,1\nb,x,0\n")
    arguments, words = BAD_COMMANDS[what]
    result = run(*arguments, code=2 if what in WRONG else 1)
    message = [line for line in result.stderr.splitlines() if line.startswith("onebit: ")]
    assert len(message) == 1
    assert words in message[0]
    assert os.listdir(tmp_path) == ["t.csv"]


@pytest.mark.parametrize(
    "command", ["fit", "predict", "complete", "certify", "evaluate", "report", "simulate"]
)
def test_help_has_examples(command):
    assert f"onebit {command} " in run(command, "--help", env={"COLUMNS": "200"}).stdout


def test_a_full_disk_and_ctrl_c_leave_the_old_file(folder, tmp_path, monkeypatch):
    path = tmp_path / "m.onebit"
    path.write_bytes(b"old")
    arguments = ("fit", folder / "school.csv", "-o", path, "-m", "logistic", "--rank", 1)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "save_file", full)
        said = run(*arguments, code=1).stderr
    assert "No space left on device" in said
    assert str(path) in said
    with monkeypatch.context() as patch:
        patch.setattr(
            onebit.LogisticCompleter, "fit", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        assert "Stopped" in run(*arguments, code=130).stderr
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m.onebit"]


def test_a_read_only_folder_is_noticed_before_the_work(monkeypatch, folder, tmp_path):
    monkeypatch.setattr(shell, "_writable", lambda _: False)  # root may write everywhere
    result = run("fit", folder / "school.csv", "-o", tmp_path / "m.onebit", code=1)
    assert "is read-only" in result.stderr


def test_a_reader_that_has_seen_enough_is_no_error(folder):
    command = f'"{sys.executable}" -m onebit complete "{folder / "school.onebit"}" --long -q | head -2'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == ""


def test_version():
    assert run("--version").stdout == f"onebit {onebit.__version__}\n"


def test_answers_to_a_pair_that_has_one_are_counted_aloud(tmp_path):
    table = tmp_path / "long.csv"
    lines = [f"r{i},c{j},{(i * j) % 2}" for i in range(12) for j in range(6)]
    command = ["fit", str(table), "-m", "logistic", "-o", str(tmp_path / "m.onebit"), "--certify", "0"]
    for more, said in (([], False), (lines[:7], True)):
        table.write_text("student,item,right\n" + "\n".join(lines + more) + "\n")
        result = run(*command)
        assert result.exit_code == 0, result.stderr
        assert ("7 answers are to pairs that have one already; each counts" in result.stderr) == said
        assert "both answers" not in result.stderr
    other = [f"r{i},c1,{1 - i % 2}" for i in range(3)]
    table.write_text("student,item,right\n" + "\n".join(lines + lines[:4] + other) + "\n")
    assert "each counts, and 3 pairs have both answers" in run(*command).stderr


def test_ids_that_differ_by_blanks_or_case_alone_are_told(tmp_path):
    table = tmp_path / "long.csv"
    lines = [f"Ann {i},c{j},{(i * j) % 2}" for i in range(12) for j in range(6)]
    table.write_text("student,item,right\n" + "\n".join([*lines, "ann 3,c9,1", '"Ann  4",C2,0']) + "\n")
    kept = ["-o", str(tmp_path / "m.onebit"), "--certify", "0"]
    for name, *options in (["fit", *kept], ["evaluate", "--folds", "2"]):
        said = run(name, str(table), "-m", "logistic", *options).stderr
        by = "from another one by blanks or case alone, the first"
        assert f"of the row ids, 2 differ {by} 'ann 3'" in said
        assert f"of the column ids, 1 differs {by} 'C2'" in said
        assert "all answers are" not in said


def test_answers_that_are_all_the_same_are_told_by_an_evaluation_too(tmp_path):
    table = tmp_path / "likes.csv"
    lines = [f"r{i},c{j},1" for i in range(9) for j in range(i % 4 + 2)]
    table.write_text("user,item,answer\n" + "\n".join(lines) + "\n")
    said = run("evaluate", str(table), "-m", "logistic", "--folds", "2").stderr
    assert "likes without dislikes are for other programs" in said
    said = run("evaluate", str(table), "-m", "logistic", "--folds", "2", "--threshold", "5").stderr
    assert "all answers are no" in said
    assert "without dislikes" not in said
