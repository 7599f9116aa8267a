"""The command line: what it says, what it leaves behind, how it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import onebit
from onebit import cli, datasets, simulate, study
from onebit.data.school import school
from onebit.study import demo

runner = CliRunner()


def test_help_shows_examples():
    result = runner.invoke(cli.app, ["study", "--help"])
    assert result.exit_code == 0
    assert "onebit study --quick" in result.output


def test_a_small_study_leaves_page_and_figure(tmp_path, monkeypatch):
    small = study.Plan(
        seeds=1, figure_seeds=1, movielens_splits=0, shape=(30, 30), density=0.6, splits=1,
        worlds=("A2",), ranks=(3,), flips=(0.0, 0.1), methods=("Logit-IG",),
    )  # fmt: skip
    monkeypatch.setattr(study.Plan, "quick", lambda movielens_splits=0: small)
    result = runner.invoke(cli.app, ["study", "--quick", "-o", str(tmp_path), "--jobs", "1"])
    assert result.exit_code == 0, result.output
    assert "the page is" in result.output
    assert {path.name for path in tmp_path.iterdir()} == {
        "study.md", "study.csv", "study-noise.png", "study-noise.svg", "study-results.jsonl",
    }  # fmt: skip


def test_an_unknown_world_is_one_line_and_exit_code_one(tmp_path):
    result = runner.invoke(cli.app, ["study", "-o", str(tmp_path), "--world", "C9"])
    assert result.exit_code == 1
    assert "unknown worlds: C9" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("arguments", [["--seeds", "-3"], ["--seeds", "many"], ["--figure-seeds", "-1"]])
def test_a_wrong_number_is_refused_at_the_door(arguments):
    result = runner.invoke(cli.app, ["study", *arguments])
    assert result.exit_code == 2
    assert "Invalid value" in result.output


def test_a_folder_without_movielens_is_named(tmp_path):
    arguments = ["study", "-o", str(tmp_path / "out"), "--movielens", str(tmp_path), "--world", "A1"]
    result = runner.invoke(cli.app, arguments)
    assert result.exit_code == 1
    assert "no u.data in" in result.output


def test_ctrl_c_ends_cleanly_and_says_that_nothing_is_lost(tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "run", interrupted)
    result = runner.invoke(cli.app, ["study", "--quick", "-o", str(tmp_path)])
    assert result.exit_code == 130
    assert "goes on from here" in result.output


def test_ctrl_c_while_the_program_is_imported_is_one_line(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    found = os.pathsep.join([str(tmp_path), str(Path(onebit.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-m", "onebit", "--version"],
        env=os.environ | {"PYTHONPATH": found}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout) == (130, "\nStopped.\n", "")


def test_the_demo_leaves_pictures_models_and_reports(tmp_path, monkeypatch):
    small = {"A2": simulate.world("A2", rank=3, shape=(40, 40), density=0.5)}
    monkeypatch.setattr(demo.simulate, "world", lambda name, **_: small[name])
    monkeypatch.setattr(demo, "school", lambda seed: school(60, 30, 2000, seed))
    result = runner.invoke(cli.app, ["demo", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "rank found" in result.output
    assert "With probability 0.95, at most" in result.output
    assert "on entries like the answered ones" in result.output
    assert f"The report is {tmp_path / 'school.html'}" in result.output
    assert {path.name for path in tmp_path.iterdir()} == {
        "completion.png", "school.csv", "school.html", "school.onebit",
    }  # fmt: skip


def test_the_demo_shows_movielens_with_its_titles(movielens_folder, tmp_path):
    data = datasets.load_movielens_100k(movielens_folder)
    few = datasets.Answers(data.pairs[:3000], data.answers[:3000])
    demo.films(tmp_path, few, movielens_folder, 0)
    model = onebit.load(tmp_path / "movielens.onebit")
    assert "Toy Story (1995)" in model.columns_.labels
    assert "Toy Story (1995)" in (tmp_path / "movielens.html").read_text()


@pytest.mark.parametrize("other", ["yes", "no"])
def test_answers_that_are_all_the_same_are_spoken_of(tmp_path, other):
    lines = [f"p{i},f{j},{'yes' if (i, j) != (1, 1) else other}" for i in range(6) for j in range(5)]
    table = tmp_path / "likes.csv"
    table.write_text("person,film,liked\n" + "\n".join(lines) + "\n")
    result = runner.invoke(
        cli.app, ["fit", str(table), "-m", "logistic", "-o", str(tmp_path / "m.onebit")]
    )
    assert result.exit_code == 0, result.output
    assert ("all answers are" in result.output) == (other == "yes")


def test_advice_of_the_library_is_spelt_as_options_of_the_shell():
    from onebit.cli.shell import _message

    for said, spelt in (
        ("fit with certify=0.1 to hold", "fit with --certify 0.1 to hold"),
        ("certify=0.1. Others", "--certify 0.1. Others"),
        ('or with inference="variational"', "or with --inference variational"),
        ("or with pattern=None", "or with --pattern none"),
        ("certify_rows=0.2 of 3", "--certify-rows 0.2 of 3"),
        ("as certify=(pairs, answers)", "as certify=(pairs, answers)"),
    ):
        assert _message(ValueError(said)) == spelt
