"""The command line: what it says, what it leaves behind, how it ends."""

import pytest
from typer.testing import CliRunner

from onebit import cli, study

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


def test_the_demo_draws_its_picture(tmp_path):
    result = runner.invoke(cli.app, ["demo", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "rank found" in result.output
    assert "certificate" in result.output
    assert (tmp_path / "completion.png").exists()
    assert (tmp_path / "risk-coverage.png").exists()
