"""``--row-features``, ``--col-features`` and ``--pattern`` in the shell."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import onebit
from onebit.cli import app
from test_features import world


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    people, pairs, answers, _ = world(0, rows=120)
    pairs.assign(solved=np.where(answers, "yes", "no")).to_csv(folder / "answers.csv", index=False)
    people.to_csv(folder / "people.csv", index=False)
    people.to_parquet(folder / "people.parquet")
    pd.DataFrame({"item": range(60), "hard": np.arange(60) % 2 == 0}).to_csv(
        folder / "items.csv", index=False
    )
    return folder


@pytest.mark.parametrize("name", ["people.csv", "people.parquet"])
def test_features_come_from_files_and_new_ids_are_known_by_them(folder, tmp_path, name):
    model = tmp_path / "m.onebit"
    fit = ("fit", folder / "answers.csv", "-o", model, "-m", "logistic", "--rank", 2)
    result = run(*fit, "--row-features", folder / name, "--col-features", folder / "items.csv")
    assert "5 row features" in result.stderr
    assert "1 column features" in result.stderr
    assert set(onebit.load(model).feature_effects_["side"]) == {"row", "column"}
    people = pd.read_csv(folder / "people.csv")
    people[:1].assign(person="newcomer", age=70.0, member=True).to_csv(tmp_path / "new.csv", index=False)
    asked = ("predict", model, "--pair", "newcomer,3", "--json")
    old = json.loads(run(*asked).stdout.splitlines()[0])
    new = json.loads(run(*asked, "--row-features", tmp_path / "new.csv").stdout.splitlines()[0])
    assert old["known"] != new["known"]
    assert new["probability"] > old["probability"]


def test_ids_that_are_numbers_are_the_answers_numbers(folder, tmp_path):
    frame = pd.read_csv(folder / "answers.csv")
    frame["person"] = frame["person"].str[1:].astype(int)
    frame.to_csv(tmp_path / "a.csv", index=False)
    people = pd.read_csv(folder / "people.csv")
    people["person"] = people["person"].str[1:].astype(int)
    people.to_csv(tmp_path / "p.csv", index=False)
    result = run(
        "fit", tmp_path / "a.csv", "-o", tmp_path / "m.onebit", "-m", "logistic", "--rank", 1,
        "--row-features", tmp_path / "p.csv",
    )  # fmt: skip
    assert "known by their features alone" not in result.stderr


def test_evaluate_takes_features_too(folder):
    arguments = (
        "evaluate",
        folder / "answers.csv",
        "-m",
        "logistic",
        "--rank",
        1,
        "--folds",
        2,
        "--json",
    )
    plain, told = (
        json.loads(run(*arguments, *more).stdout)["methods"]
        for more in ((), ("--row-features", folder / "people.csv"))
    )
    assert plain != told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--row-features", "nowhere.csv"), "there is no such file of row features"),
        (("--row-features", "answers.txt.zip"), "there is no such file"),
        (("--col-features", "people.csv"), "name of the other side"),
        (("--pattern", "diagonal"), "unknown pattern"),
        (("--pattern", "rows"), "tries the pattern by itself"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(folder, tmp_path, arguments, words):
    given = [folder / word if "." in word else word for word in arguments]
    result = run(
        "fit",
        folder / "answers.csv",
        "-o",
        tmp_path / "m.onebit",
        *given,
        code=2 if "--pattern" in arguments else 1,
    )
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_the_pattern_can_be_left_out(folder, tmp_path):
    fit = ("fit", folder / "answers.csv", "-o", tmp_path / "m.onebit", "-m", "logistic", "--rank", 1)
    run(*fit, "--pattern", "none")
    assert onebit.load(tmp_path / "m.onebit").pattern is None
    assert "knows no pattern" in run(*fit[:5], "gibbs", "--pattern", "rows", code=2).stderr


@pytest.mark.parametrize("shape", ["semicolons", "with an index", "parquet with an index", "gz", "zst"])
def test_tables_are_read_as_people_save_them(folder, tmp_path, shape):
    people = pd.read_csv(folder / "people.csv")
    path = tmp_path / ("p.parquet" if "parquet" in shape else "p.csv")
    if shape == "semicolons":
        people.to_csv(path, index=False, sep=";")
    elif shape == "with an index":
        people.to_csv(path)
    elif shape in ("gz", "zst"):
        path = tmp_path / f"p.csv.{shape}"
        with pa.output_stream(path, compression="gzip" if shape == "gz" else "zstd") as stream:
            stream.write(people.to_csv(index=False, sep=";").encode())
    else:
        people.set_index("person").to_parquet(path)
    fit = ("fit", folder / "answers.csv", "-o", tmp_path / "m.onebit", "-m", "logistic", "--rank", 1)
    assert "5 row features" in run(*fit, "--row-features", path).stderr


@pytest.mark.parametrize("word", ["007", "1.5", "x5"])
def test_an_id_that_is_not_written_as_the_answers_are_is_named(folder, tmp_path, word):
    frame = pd.read_csv(folder / "answers.csv")
    frame["person"] = frame["person"].str[1:].astype(int)
    frame.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "p.csv").write_text(f"person,age\n1,30\n{word},40\n2,50\n")
    fit = ("fit", tmp_path / "a.csv", "-o", tmp_path / "m.onebit", "-m", "logistic", "--rank", 1)
    result = run(*fit, "--row-features", tmp_path / "p.csv", code=1)
    assert f"the id '{word}' is no whole number" in result.stderr
