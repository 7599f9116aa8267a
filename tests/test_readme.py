"""The commands of the README, run as they stand there in an empty folder."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from onebit import cli, simulate
from onebit.data.school import school

ROOT = Path(__file__).parents[1]


def blocks():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """The tables that the README's reader has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("onebit.data.school.school", lambda *_: school(50, 20, 800, 0))
    world = simulate.world("B1", rank=1, shape=(25, 20), density=0.8, seed=0)
    stars = np.where(world.answers > 0, 4, 2)
    ratings = pd.DataFrame(world.pairs, columns=["user", "movie"]).assign(stars=stars)
    ratings.to_csv("ratings.csv", index=False)
    ratings["right"] = pd.Series(stars > 3, dtype="Int8")
    runs = ratings.pivot(index="user", columns="movie", values="right")
    runs.rename_axis("model").to_csv("runs.csv")
    return tmp_path


def test_there_are_three_examples():
    assert len(blocks()) == 3


@pytest.mark.parametrize("number", range(3))
def test_the_commands_of_an_example_run(tables, number):
    for line in blocks()[number].splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "onebit"
        result = CliRunner().invoke(cli.app, words[1:])
        assert result.exit_code == 0, (line, result.output)
        for name in re.findall(r"-o (\S+)", line):
            assert (tables / name).stat().st_size > 0


def test_every_link_of_the_readme_leads_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target
