"""Models whose words for yes and no are not the usual ones, or turn these round."""

import numpy as np
import pytest
from typer.testing import CliRunner

import onebit
from onebit import LogisticCompleter, read_answers
from onebit.cli import app


def run(*words, typed=None):
    done = CliRunner().invoke(app, [str(word) for word in words], input=typed)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return tests that pupils fail, which is "yes", and ratings above three."""
    folder, rng = tmp_path_factory.mktemp("words"), np.random.default_rng(0)
    pairs = [(row, column) for row in range(40) for column in range(20) if rng.random() < 0.7]
    for name, words in (("tests", ("pass", "fail")), ("ratings", ("2", "5"))):
        lines = [f"s{row},q{column},{words[int(rng.random() < 0.5)]}" for row, column in pairs]
        (folder / f"{name}.csv").write_text("\n".join(["student,item,answer", *lines]) + "\n")
    for name, word in (("tests", "fail"), ("ratings", "1")):
        lines = [f"new,q{column},{word}" for column in range(12)]
        (folder / f"new {name}.csv").write_text("\n".join(["student,item,answer", *lines]) + "\n")
    fit = ["-m", "logistic", "--certify", 0, "-q", "-o"]
    run("fit", folder / "tests.csv", "--yes", "fail", "--no", "pass", *fit, folder / "tests.onebit")
    run("fit", folder / "ratings.csv", "--threshold", 3.5, *fit, folder / "ratings.onebit")
    return folder


@pytest.mark.parametrize(("name", "yes"), [("tests", True), ("ratings", False)])
def test_an_update_reads_as_the_fit_did(folder, name, yes):
    said = run(
        "update", folder / f"{name}.onebit", folder / f"new {name}.csv", "-o", folder / "out.onebit"
    )
    assert "as in the fit" in said
    known = onebit.load(folder / "out.onebit")
    assert known._folded[0][2].tolist() == [1 if yes else -1] * 12


def test_an_update_leaves_out_what_the_fit_did(tmp_path):
    """A survey whose file has an age and a word for no opinion, this week and the next ones."""
    rng = np.random.default_rng(0)

    def week(name, first, head):
        lines = [head]
        for row in range(first, first + 30):
            said = rng.choice(["Ja", "Nein", "weiß nicht", ""], 6, p=[0.4, 0.4, 0.1, 0.1])
            age = [str(20 + row)] if "age" in head else []
            lines.append(",".join([f"p{row}", *age, *said]))
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / name

    head = "id,age," + ",".join(f"question {k}" for k in range(6))
    fitted, model = week("first.csv", 0, head), tmp_path / "m.onebit"
    how = ["--wide", "--yes", "Ja", "--no", "Nein"]
    also = ["--drop", "age", "--blank", "weiß nicht"]
    run("fit", fitted, *how, *also, "-m", "logistic", "--certify", 0, "-q", "-o", model)
    for number, names in enumerate((head, head.replace("age,", ""))):
        run("update", model, week("next.csv", 30 * (number + 1), names), "--wide", "-o", model)
        found = onebit.load(model)
        assert len(found.rows_) == 30 * (number + 2)
        assert "age" not in found.columns_.labels


def test_an_interview_knows_the_models_words_first(folder, tmp_path):
    (tmp_path / "told.csv").write_text("".join(f"q{column},fail\n" for column in range(8)))
    model, asked = folder / "tests.onebit", tmp_path / "asked.csv"
    run("ask", model, "--answers", tmp_path / "told.csv", "-o", asked)
    written = [line.split(",")[1] for line in asked.read_text().splitlines()]
    assert written == ["answer"] + ["fail"] * 8
    shares = [float(line.split(",")[5]) for line in asked.read_text().splitlines()[1:]]
    assert shares[-1] > shares[0]
    again = run("ask", model, "--known", asked, "-n", 1, typed="fail\n")
    assert "yes over all" in again
    assert float(again.split("now ")[1].split(" %")[0]) > 100 * shares[-1]


def test_words_the_other_way_round_are_refused(folder):
    model = onebit.load(folder / "tests.onebit")
    usual = read_answers(folder / "new tests.csv")  # "fail" is no
    with pytest.raises(ValueError, match=r"the new answers take 'pass' for yes and 'fail' for no"):
        model.partial_fit(usual)
    seen = read_answers(folder / "tests.csv", yes=["fail"], no=["pass"])
    with pytest.raises(ValueError, match="the answers to hold out take 'pass' for yes"):
        LogisticCompleter(1).fit(seen, certify=read_answers(folder / "tests.csv"))


def test_what_is_replaced_keeps_its_mode(folder):
    for words in (
        ("update", folder / "private.onebit", folder / "new tests.csv", "-o", folder / "private.onebit"),
        ("certify", folder / "private.onebit", "--method", "progressive", "--save"),
    ):
        (folder / "private.onebit").write_bytes((folder / "tests.onebit").read_bytes())
        (folder / "private.onebit").chmod(0o600)
        run(*words)
        assert (folder / "private.onebit").stat().st_mode & 0o777 == 0o600


def test_a_fit_that_cannot_be_written_is_left_beside_its_checkpoint(folder, tmp_path, monkeypatch):
    save = LogisticCompleter.save

    def full(model, path, **others):
        if str(path).endswith("full.onebit"):
            raise OSError(28, "No space left on device", str(path))
        save(model, path, **others)

    monkeypatch.setattr(LogisticCompleter, "save", full)
    words = ["fit", folder / "tests.csv", "-m", "logistic", "--checkpoint", tmp_path / "ck"]
    done = CliRunner().invoke(app, [str(word) for word in [*words, "-o", tmp_path / "full.onebit"]])
    assert done.exit_code == 1
    assert "No space left on device; the model is in" in done.output
    assert onebit.load(tmp_path / "ck" / "model.onebit").n_observations_ > 100


def test_names_do_not_move_the_cursor(tmp_path):
    lines = [f"s{row},\x1b[2Jq{column},{(row + column) % 2}" for row in range(20) for column in range(6)]
    (tmp_path / "t.csv").write_text("\n".join(["student,item,answer", *lines]) + "\n")
    model = tmp_path / "t.onebit"
    run("fit", tmp_path / "t.csv", "-m", "logistic", "--certify", 0, "-o", model)
    said = run("ask", model, "-n", 2, typed="y\nn\n")
    assert "\x1b" not in said
    assert r"\x1b[2Jq" in said


def test_known_shares_are_weighted():
    pairs = [("a", "x")] * 3 + [("b", "x"), ("b", "y"), ("a", "y"), ("c", "x"), ("c", "y")]
    model = LogisticCompleter(1, random_state=0).fit(pairs, [1, 1, 0, 1, 0, 1, 0, 1], [1, 1, 8] + [1] * 5)
    assert model.complete().loc["a", "x"] == pytest.approx(0.2)
