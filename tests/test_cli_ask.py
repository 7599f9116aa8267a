"""``onebit rows``, ``onebit columns`` and ``onebit ask``, as a person or a pipeline uses them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import onebit
from onebit import LogisticCompleter, cli, simulate
from onebit.cli import asking

runner = CliRunner()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A file with a Rasch model of 40 students and 12 exercises, of which some were not tried."""
    rng = np.random.default_rng(0)
    score = rng.normal(0, 1, (40, 1)) + rng.normal(0, 1, 12)
    pairs = np.argwhere(rng.random(score.shape) < 0.8)
    frame = pd.DataFrame(
        {
            "student": [f"s{i:02d}" for i in pairs[:, 0]],
            "exercise": [f"e{j:02d}" for j in pairs[:, 1]],
        }
    )
    solved = rng.random(len(pairs)) < expit(score[tuple(pairs.T)])
    path = tmp_path_factory.mktemp("ask") / "exam.onebit"
    made = LogisticCompleter(0, pattern=None, inference="sampling", n_samples=10, random_state=0)
    made.fit(frame, np.where(solved, "yes", "no") == "yes").save(path)
    return str(path)


def run(*arguments, typed=None):
    return runner.invoke(cli.app, list(arguments), input=typed)


def test_rows_are_written_with_the_columns_that_others_read(model, tmp_path):
    out = tmp_path / "rows.csv"
    result = run("rows", model, "-o", str(out))
    assert result.exit_code == 0, result.output
    found = pd.read_csv(out)
    assert found.columns.tolist() == [
        "student", "answers", "answered_share", "share", "share_low", "share_high", "share_least",
        "share_most", "effect", "effect_se", "rank", "rank_low", "rank_high",
    ]  # fmt: skip
    expected = onebit.load(model).row_summary()
    assert found["share"].to_numpy() == pytest.approx(expected["share"].to_numpy(), abs=1e-6)
    assert "credible" in result.output
    assert "come about like the answered" in result.output


def test_the_level_the_rows_and_the_columns_can_be_named(model, tmp_path):
    out = tmp_path / "rows.csv"
    run("rows", model, "-o", str(out))
    wide = pd.read_csv(out).set_index("student").loc["s03"]
    result = run("rows", model, "--row", "s03", "--level", "0.5", "--col", "e01", "-o", str(out))
    assert result.exit_code == 0, result.output
    narrow = pd.read_csv(out).set_index("student").loc["s03"]
    assert narrow["share_high"] - narrow["share_low"] <= 1.0
    assert narrow["share"] != wide["share"]
    assert len(pd.read_csv(out)) == 1


def test_abilities_and_difficulties_are_written_on_the_scale_of_a_test(model, tmp_path):
    out = tmp_path / "scale.csv"
    result = run("rows", model, "--scale", "irt", "-o", str(out))
    assert "reliability" in result.output
    persons = pd.read_csv(out)
    assert persons["ability"].mean() == pytest.approx(0.0, abs=1e-5)
    run("columns", model, "--scale", "irt", "-o", str(out))
    items = pd.read_csv(out)
    assert items.columns[0] == "exercise"
    assert {"difficulty", "difficulty_se", "discrimination", "discrimination_se"} <= set(items.columns)
    assert np.corrcoef(items["difficulty"], items["share"])[0, 1] < -0.9


def test_a_test_is_put_on_the_scale_of_another(model, tmp_path):
    """Its own, here: nothing moves; other words go with --scale irt and --like alone."""
    alone, linked = tmp_path / "alone.csv", tmp_path / "linked.csv"
    run("rows", model, "--scale", "irt", "-o", str(alone))
    other = tmp_path / "other.onebit"
    other.write_bytes(Path(model).read_bytes())
    words = ("rows", model, "--scale", "irt", "-o", str(linked), "--like")
    result = run(*words, str(other), "--anchor", "e01", "--anchor", "e02", "--anchor", "e03")
    assert "by way of 3 common columns" in " ".join(result.output.split())
    pd.testing.assert_frame_equal(pd.read_csv(linked), pd.read_csv(alone), atol=1e-5)
    assert "at least 3 columns" in run(*words, str(other), "--anchor", "e01").output
    for said, options in (
        ("goes with --scale irt", ("--like", str(other))),
        ("goes with --like", ("--scale", "irt", "--anchor", "e01")),
    ):
        refused = run("rows", model, *options)
        assert refused.exit_code == 2
        assert said in " ".join(refused.output.split())
    kept = other.read_bytes()
    assert run("rows", model, "--scale", "irt", "--like", str(other), "-o", str(other)).exit_code == 2
    assert other.read_bytes() == kept


def test_a_test_can_be_fitted_by_its_models_name(tmp_path):
    rng = np.random.default_rng(1)
    score = np.outer(rng.normal(0, 1, 60), [1.0, 2.0, 0.5, 1.5, 1.0, 1.0])
    frame = pd.DataFrame((rng.random(score.shape) < expit(score)).astype(int))
    frame.insert(0, "student", [f"s{i}" for i in range(60)])
    frame.to_csv(tmp_path / "exam.csv", index=False)
    out = str(tmp_path / "exam.onebit")
    arguments = ["fit", str(tmp_path / "exam.csv"), "-o", out, "--certify", "0"]
    for name, rank in (("rasch", 0), ("2pl", 1)):
        result = run(*arguments, "-m", name, "--samples", "20", "--burn-in", "5")
        assert result.exit_code == 0, result.output
        fitted = onebit.load(out)
        # As many draws as were asked for, settled or not.
        assert (fitted.rank, fitted.settle, fitted.n_draws_) == (rank, None, 20 * fitted.n_chains)
        assert run("columns", out, "--scale", "irt").exit_code == 0
    assert run(*arguments, "-m", "rasch").exit_code == 0
    told = onebit.load(out)
    assert told.settled_
    assert told.diagnostics_["ess_bulk"].min() >= 400
    assert run(*arguments, "-m", "rasch", "--rank", "2").exit_code == 2
    refused = run(*arguments, "-m", "2pl", "--inference", "variational")
    assert refused.exit_code == 2
    assert "is sampled, for its standard errors" in refused.output
    assert run(*arguments, "-m", "2pl", "--pattern", "rows").exit_code == 2


def test_a_person_is_asked_in_the_terminal(model, tmp_path):
    out = tmp_path / "asked.csv"
    result = run("ask", model, "-n", "3", "-o", str(out), typed="y\nperhaps\nno\ns\n1\n")
    assert result.exit_code == 0, result.output
    assert "'perhaps' is neither yes nor no" in result.output
    assert "3 answered (as many as were wanted)" in result.output
    assert "no fitted row has the 20 answers" in result.output  # of twelve exercises
    found = pd.read_csv(out)
    assert found["answer"].tolist() == [True, False, True]
    assert found["question"].is_unique
    assert ((found["share_low"] <= found["share"]) & (found["share"] <= found["share_high"])).all()


def test_whose_rows_have_many_answers_says_by_how_many_intervals_are_judged(tmp_path):
    world = simulate.world("B1", rank=1, shape=(30, 40), density=0.8, seed=0)
    made = LogisticCompleter(1, pattern=None).fit(world.pairs, world.answers)
    made.save(tmp_path / "m.onebit")
    assert made.interview().judged_by == 24
    result = run("ask", str(tmp_path / "m.onebit"), "-n", "1", typed="y\n")
    assert result.exit_code == 0, result.output
    assert "no fitted row" not in result.output


def test_some_answers_are_learnt_without_asking_for_them(model, tmp_path):
    out = tmp_path / "asked.csv"
    result = run("ask", model, "--for", "e03", "-n", "4", "-o", str(out), typed="y\ny\nn\ny\n")
    assert "e03: yes with probability 0." in result.output
    assert "e03" not in pd.read_csv(out)["question"].tolist()
    more = run("ask", model, "--known", str(out), "--next", "12")  # what was written is read again
    assert len(more.stdout.strip().splitlines()) == 1 + 12 - 4
    assert "the one wanted is yes with probability" in result.stderr
    assert "interval" not in result.stderr  # a single answer has no share in between
    assert run("ask", model, "--for", "e03", "--goal", "row").exit_code == 2


@pytest.mark.parametrize("typed", ["y\nq\n", "y\n"])
def test_who_ends_early_loses_nothing(model, tmp_path, typed):
    out = tmp_path / "asked.csv"
    result = run("ask", model, "-o", str(out), typed=typed)
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(out)) == 1


def test_a_pipeline_answers_from_a_file(model, tmp_path):
    script = tmp_path / "new.csv"
    lines = [f"e{j:02d},{'yes' if j % 3 else 'no'}" for j in range(12)]
    script.write_text("\n".join(["exercise,solved", *lines, "unknown one,yes", "e99,", ""]))
    out = tmp_path / "asked.csv"
    result = run("ask", model, "--answers", str(script), "--explore", "0.2", "-o", str(out))
    assert result.exit_code == 0, result.output
    assert "1 answer skipped, since the model does not know their columns, the first " in result.output
    assert "assuming no model (exact)" in result.output
    found = pd.read_csv(out)
    assert len(found) == 12
    assert found["share"].iloc[-1] == pytest.approx(8 / 12)
    assert found["chance"].between(0, 1).all()
    again = run("ask", model, "--answers", str(script), "--explore", "0.2", "-o", "-")
    assert again.stdout == out.read_text()


def test_where_all_that_could_be_asked_was_the_others_are_not_said_to_be_known(model, tmp_path):
    script = tmp_path / "new.csv"
    script.write_text("".join(f"e{j:02d},{'yes' if j % 3 else 'no'}\n" for j in range(8)))
    command = ["ask", model, "--answers", str(script), "-n", "8", "--explore", "0.1", "--json"]
    result = run(*command, "-o", str(tmp_path / "asked.csv"))
    found = json.loads(result.stdout)
    assert found["no_model"] is None
    assert found["why_no_model"].startswith("all 8 that could be asked were (62.5% yes); of the other 4")
    assert "unless these were drawn at random" in " ".join(result.stderr.split())


def test_what_is_known_in_the_end_can_be_had_as_json(model, tmp_path):
    script, out = tmp_path / "new.csv", tmp_path / "asked.csv"
    script.write_text("".join(f"e{j:02d},{'yes' if j % 3 else 'no'}\n" for j in range(12)))
    arguments = ["ask", model, "--answers", str(script), "-n", "8", "--for", "e03", "--json"]
    result = run(*arguments, "--explore", "0.2", "--level", "0.8", "-o", str(out))
    found, asked = json.loads(result.stdout), pd.read_csv(out)
    last = asked.iloc[-1]
    assert (found["answered"], found["over"], found["level"]) == (8, 1, 0.8)
    assert found["ended"] == "as many as were wanted"
    assert "e03" not in asked["question"].tolist()  # which is learnt from the others
    assert set(found["yes"]) == {"e03"}
    assert f"e03: yes with probability {found['yes']['e03']:.2f}" in result.stderr
    assert found["yes"]["e03"] == pytest.approx(found["share"])
    assert found["share"] == pytest.approx(last["share"])
    assert found["share_low"] is found["share_high"] is None  # one answer has nothing in between
    assert last[["share_low", "share_high"]].isna().all()
    bare = found["no_model"]
    assert (bare["over"], bare["of"]) == (11, "the columns that could be asked")
    assert bare["share_low"] <= bare["share"] <= bare["share_high"]
    assert (
        f"{100 * bare['share_low']:.1f} to {100 * bare['share_high']:.1f}, over the 11" in result.stderr
    )
    assert json.loads(run(*arguments).stdout)["no_model"] is None
    two = json.loads(run(*arguments, "--for", "e05", "-o", str(out)).stdout)
    last = pd.read_csv(out).iloc[-1]
    for name in ("share", "share_low", "share_high"):
        assert two[name] == pytest.approx(last[name])
    questions = run("ask", model, "--next", "2", "--json").stdout.splitlines()
    assert [set(json.loads(line)) for line in questions] == [{"column", "yes", "gain", "chance"}] * 2


def test_the_next_questions_can_be_had_without_being_asked(model, tmp_path):
    known = tmp_path / "known.csv"
    known.write_text("e01,1\ne02,0\n")
    result = run("ask", model, "--known", str(known), "--next", "3", "--output-format", "csv")
    assert result.exit_code == 0, result.output
    lines = result.stdout.strip().splitlines()
    assert lines[0] == "column,yes,gain,chance"
    assert len(lines) == 4
    assert not {"e01", "e02"} & {line.split(",")[0] for line in lines[1:]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("e01,yes\ne01,no\n", "line 2: 'e01' has two answers"),
        ("e01,yes\ne02,often\n", "line 2: 'often' is neither yes nor no"),
        ("e01\n", "line 1: 1 fields"),
        ("what,yes\n", "no answer about a column"),
    ],
)
def test_a_bad_file_of_answers_is_one_clear_error(model, tmp_path, text, message):
    script = tmp_path / "new.csv"
    script.write_text(text)
    result = run("ask", model, "--answers", str(script))
    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask", "--goal", "median"],
        ["ask", "--next", "2", "-n", "3"],
        ["ask", "--json", "-o", "-"],
        ["rows", "--scale", "theta"],
        ["rows", "--level", "1.5"],
    ],
)
def test_commands_that_make_no_sense_are_refused(model, arguments):
    result = run(arguments[0], model, *arguments[1:])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_answers_are_written_as_they_come(model, tmp_path, monkeypatch):
    """Whatever ends an interview, what was answered before is in the file."""
    asked, answered = tmp_path / "asked.csv", asking._answered

    def killed(number, *others):
        if number == 3:
            raise SystemExit(137)
        return answered(number, *others)

    monkeypatch.setattr(asking, "_answered", killed)
    done = run("ask", model, "-n", "5", "-o", str(asked), typed="y\nn\ny\n")
    assert done.exit_code == 137
    head, *lines = asked.read_text().splitlines()
    assert head.startswith("question,answer")
    assert len(lines) == 2


def test_nothing_but_the_result_reaches_standard_output(model):
    """In a process of its own: what stands in for standard output in tests hides what a prompt writes."""
    done = subprocess.run(
        [sys.executable, "-m", "onebit", "ask", model, "-q", "-o", "-"],
        input="y\ns\nn\nq\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("question,answer,")
    assert len(done.stdout.splitlines()) == 3


def test_answers_of_somebody_with_a_name_are_taken_up_by_an_update(model, tmp_path):
    asked, more = tmp_path / "asked.csv", tmp_path / "more.onebit"
    result = run("ask", model, "--as", "new", "-n", "4", "-o", str(asked), typed="y\ny\nn\ny\n")
    assert result.exit_code == 0, result.output
    result = run("update", model, str(asked), "-o", str(more))
    assert result.exit_code == 0, result.output
    assert onebit.load(more).rows_.labels[-1] == "new"
    assert run("ask", model, "--as", "new").exit_code == 2
    again = run("ask", str(more), "--as", "new", "-o", str(asked))
    assert again.exit_code == 1
    assert "the model has the row 'new' already" in again.output


def test_known_answers_leave_no_interval_without_a_model_and_it_says_why(model, tmp_path):
    known = tmp_path / "known.csv"
    known.write_text("e01,1\ne02,0\n")
    arguments = ["ask", model, "--known", str(known), "-n", "2", "--explore", "0.5", "--json"]
    found = json.loads(run(*arguments, "--for", "e01", typed="y\nn\n").stdout)
    assert found["no_model"] is None
    assert "were there before" in found["why_no_model"]
    assert found["yes"] == {"e01": 1.0}  # as it was said


def test_json_can_be_written_where_standard_output_is_no_utf8(model):
    settings = dict(os.environ, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    done = subprocess.run(
        [sys.executable, "-c", "from onebit.cli.shell import Voice; Voice(as_json=True).answer('é')"],
        capture_output=True, text=True, check=True, env=settings,
    )  # fmt: skip
    assert json.loads(done.stdout) == "é"


def test_words_that_differ_in_case_alone_are_told_apart(tmp_path):
    table, path, file = tmp_path / "t.csv", tmp_path / "m.onebit", tmp_path / "known.csv"
    rng = np.random.default_rng(0)
    table.write_text("row,col,y\n" + "".join(
        f"r{i},c{j},{'A' if rng.random() < 0.5 else 'a'}\n" for i in range(12) for j in range(6)
    ))  # fmt: skip
    result = run("fit", str(table), "--yes", "A", "--no", "a", "-m", "logistic", "-o", str(path))
    assert result.exit_code == 0, result.output
    asked = tmp_path / "asked.csv"
    run("ask", str(path), "-n", "3", "-o", str(asked), typed="a\nA\nyes\n")
    assert pd.read_csv(asked)["answer"].tolist() == ["a", "A", "A"]
    file.write_text("question,answer\nc1,a\nc2,A\n")
    run("ask", str(path), "--answers", str(file), "-o", str(asked))
    assert dict(pd.read_csv(asked)[["question", "answer"]].to_numpy()) == {"c1": "a", "c2": "A"}


def test_line_ends_within_ids_are_the_ids_own(tmp_path):
    columns = ["ef", "e\nf", "e\u2028f", "g"]
    pairs = [(i, column) for i in range(10) for column in columns]
    answers = np.random.default_rng(0).integers(2, size=len(pairs))
    path, known = tmp_path / "m.onebit", tmp_path / "known.csv"
    onebit.LogisticCompleter(1, random_state=0).fit(pairs, answers).save(path)
    known.write_text('question,answer\n"e\nf",yes\n"e\u2028f",no\n', encoding="utf-8", newline="")
    left = run("ask", str(path), "--known", str(known), "--next", "9", "--json").stdout.splitlines()
    assert sorted(json.loads(line)["column"] for line in left) == ["ef", "g"]


def test_a_closed_standard_input_is_one_clear_error(model):
    program = "import sys; sys.stdin = None; from onebit.cli import main; main()"
    for arguments in (["ask", model], ["ask", model, "--known", "-", "--next", "1"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True
        )  # fmt: skip
        assert done.returncode == 1
        option = "--known" if "--known" in arguments else "--answers"
        assert f"standard input is closed; name a file with {option}" in done.stderr
        assert "Traceback" not in done.stderr


def test_known_answers_are_read_from_standard_input_as_from_a_file(tmp_path):
    columns = ["c1", "c2", "c3"]
    pairs = [(i, column) for i in range(10) for column in columns]
    answers = np.random.default_rng(0).integers(2, size=len(pairs))
    path, known = tmp_path / "m.onebit", tmp_path / "known.csv"
    onebit.LogisticCompleter(1, random_state=0).fit(pairs, answers).save(path)

    def asked(text):
        known.write_text(text, encoding="utf-8")
        command = ["ask", str(path), "--next", "9", "--json", "--known"]
        done = run(*command, str(known)), run(*command, "-", typed=text)
        assert done[0].stdout == done[1].stdout
        return done[0], {json.loads(line)["column"] for line in done[0].stdout.splitlines()}

    # A byte order mark is no part of the first id.
    assert asked("\ufeffc1,yes\nc2,no\n")[1] == {"c3"}
    # An answer to a column that nobody knows is not dropped in silence, also in the first line.
    done, left = asked("c9,yes\nc2,no\n")
    assert left == {"c1", "c3"}
    assert "the first line is about no column of the model, and taken for names" in done.stderr
    done, left = asked("question,answer\nc2,no\n")
    assert left == {"c1", "c3"}
    assert "names" not in done.stderr
    known.write_text("question,answer\n\n\nc1,yes\nc2,maybe\n")
    bad = run("ask", str(path), "--known", str(known), "--next", "9")
    assert "line 5: 'maybe' is neither yes nor no" in bad.stderr


def test_what_an_interview_could_not_use_is_named_before_it_begins(tmp_path):
    pairs = [(i, f"c{j}") for i in range(10) for j in range(3)]
    answers = np.random.default_rng(0).integers(2, size=len(pairs))
    path, known = str(tmp_path / "m.onebit"), tmp_path / "known.csv"
    onebit.LogisticCompleter(1, random_state=0).fit(pairs, answers).save(path)
    asked = tmp_path / "asked.csv"
    # A table of ids of both kinds would be refused by an update, when all is answered.
    refused = run("ask", path, "--as", "newbie", "-o", str(asked))
    assert refused.exit_code == 1
    assert "choose a number with --as, such as 10" in refused.stderr
    assert run("ask", path, "--as", "10", "-n", "1", "-o", str(asked), typed="y\n").exit_code == 0
    updated = run("update", path, str(asked), "-o", str(tmp_path / "more.onebit"))
    assert updated.exit_code == 0, updated.stderr
    known.write_text("item,right\nItem 0,1\nItem 1,0\n")
    refused = run("ask", path, "--known", str(known), "--next", "1")
    assert refused.exit_code == 1
    assert "knows none of its columns, the first 'Item 0'; it has 'c0', 'c1', 'c2', ..." in refused.stderr
