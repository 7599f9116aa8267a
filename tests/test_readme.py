"""The commands of the README, run as they stand there in an empty folder."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from benchmarks import pages
from onebit import cli, simulate

ROOT = Path(__file__).parents[1]
TITLES = ("MovieLens 100k", "made, the size of MovieLens 20M")


def blocks(kind):
    return pages.blocks((ROOT / "README.md").read_text(encoding="utf-8"), kind)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """What the README's reader has: a table in a file, and in memory."""
    monkeypatch.chdir(tmp_path)
    made = simulate.world("B1", rank=1, shape=(25, 20), density=0.8, seed=0)
    people, films = (
        [f"person {k}" for k in range(24)] + ["ann"],
        [f"film {k}" for k in range(19)] + ["Alien"],
    )
    frame = pd.DataFrame({"person": [people[i] for i in made.pairs[:, 0]]})
    frame["film"] = [films[j] for j in made.pairs[:, 1]]
    frame.assign(liked=np.where(made.answers > 0, "yes", "no")).to_csv("answers.csv", index=False)
    return frame, made.answers > 0


def test_the_commands_run(world, tmp_path):
    assert len(blocks("sh")) == 1
    for line in blocks("sh")[0].splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "onebit"
        result = CliRunner().invoke(cli.app, words[1:])
        assert result.exit_code == 0, (line, result.output)
        for name in re.findall(r"(?:-o|--report) (\S+)", line):
            assert (tmp_path / name).stat().st_size > 0


def test_the_python_runs(world, capsys):
    assert len(blocks("python")) == 1
    names = {"pairs": world[0], "answers": world[1], "new_pairs": [("ann", "film 3")]}
    exec(compile(blocks("python")[0], "README.md", "exec"), names)
    assert "entries like the answered ones" in capsys.readouterr().out
    assert "newcomer" in names["model"].rows_.labels


def test_the_two_commands_are_targets_of_make():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (block,) = blocks("")
    assert [line.split()[1] for line in block.splitlines()] == ["demo", "test"]
    for line in block.splitlines():
        assert re.search(rf"^{line.split()[1]}:", makefile, re.MULTILINE)


def test_every_link_of_the_readme_leads_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (ROOT / target).exists(), target


def test_the_figures_are_those_of_the_page():
    """Of MovieLens 100k and of 20 million answers, to the digits that are shown."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    parts = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").split("\n## ")
    small, large = (next(part for part in parts if part.startswith(title)) for title in TITLES)
    lines = [
        line.strip("|").split("|") for line in text.splitlines() if re.match(r"\| [A-Za-z].*\d", line)
    ]
    assert len(lines) == 7
    for line in lines:
        name, *cells = (cell.strip().strip("*") for cell in line)
        for part, shown in ((small, cells[:3]), (large, cells[3:])):
            if not shown[1]:
                continue
            row = next(row for row in part.splitlines() if row.startswith(f"| {name} |"))
            for said, full in zip(shown, row.strip("|").split("|")[1:4], strict=True):
                digits = len(said.strip("*").partition(".")[2])
                exact = float(full.strip().strip("*"))
                assert float(said.strip("*")) == pytest.approx(exact, abs=0.5001 * 10.0**-digits), name
