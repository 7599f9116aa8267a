"""``onebit update`` and ``onebit serve`` from the shell."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import onebit
from onebit.cli import app, serving
from onebit.cli.shell import Voice
from onebit.data.files import lock
from onebit.data.store import Store

HEAD = "person,statement,answer\n"


def lines(rows, columns):
    return "".join(
        f"p{row},s{column},{'agree' if (row * column + row) % 3 else 'disagree'}\n"
        for row in rows
        for column in columns
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("poll")
    (folder / "poll.csv").write_text(HEAD + lines(range(30), range(12)))
    words = ["--yes", "agree", "--no", "disagree"]
    run = CliRunner().invoke(
        app,
        ["fit", str(folder / "poll.csv"), "-o", str(folder / "poll.onebit"), "-m", "logistic", *words],
    )
    assert run.exit_code == 0, run.output
    return folder


@pytest.fixture
def folder(fitted, tmp_path):
    for path in fitted.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "new.csv").write_text(HEAD + lines(range(28, 34), range(14)))
    return tmp_path


def update(folder, *words):
    model = str(folder / "poll.onebit")
    return CliRunner().invoke(app, ["update", model, *words])


WORDS = ("--yes", "agree", "--no", "disagree")


def test_an_update_takes_up_new_rows_and_columns_in_place(folder):
    path = folder / "poll.onebit"
    run = update(folder, str(folder / "new.csv"), "-o", str(path), *WORDS)
    assert run.exit_code == 0, run.output
    new = "4 new rows ('p30', 'p31', 'p32', 'p33'), 2 new columns ('s12', 's13')."
    assert f"84 answers taken up; {new}" in run.output
    assert "Nothing of this model is certified any more" in run.output
    model = onebit.load(path)
    assert (len(model.rows_), len(model.columns_)) == (34, 14)
    assert model.updates_.answers == 84
    assert model.classes_.tolist() == ["disagree", "agree"]
    info = CliRunner().invoke(app, ["info", str(path)])
    assert "updated once, with 84 answers" in info.output
    told = json.loads(CliRunner().invoke(app, ["info", str(path), "--json"]).output)
    assert told["answers"] == 30 * 12 + 84  # as of rows and columns, after the update
    assert "yes" not in told  # which were counted at the fit


def test_nothing_is_certified_any_more_only_where_something_was(folder):
    fit = ["fit", str(folder / "poll.csv"), "-o", str(folder / "poll.onebit"), "-m", "logistic"]
    CliRunner().invoke(app, [*fit, "--certify", "0", *WORDS])
    (folder / "typo.csv").write_text(HEAD + "p1,S2,agree\n")
    run = update(folder, str(folder / "typo.csv"), "-o", str(folder / "poll.onebit"), *WORDS)
    assert "0 new rows, 1 new column ('S2')." in run.output
    assert "Nothing of this model is certified; --certify 0.1" in run.output


def test_the_same_answers_are_not_taken_up_twice_by_mistake(folder):
    path = str(folder / "poll.onebit")
    words = (str(folder / "new.csv"), "-o", path, *WORDS)
    assert update(folder, *words).exit_code == 0
    before = (folder / "poll.onebit").read_bytes()
    again = update(folder, *words)
    assert again.exit_code == 1
    assert "were taken up before" in again.output
    assert (folder / "poll.onebit").read_bytes() == before
    assert update(folder, *words, "--again").exit_code == 0
    assert onebit.load(path).updates_.times == 2


def test_a_file_that_holds_the_old_answers_too_counts_none_twice(folder):
    path, both = folder / "poll.onebit", folder / "both.csv"
    old, new = (pd.read_csv(folder / name) for name in ("poll.csv", "new.csv"))
    both.write_text(pd.concat([old, new]).to_csv(index=False))
    before = path.read_bytes()
    refused = update(folder, str(both), "-o", str(path), *WORDS)
    assert refused.exit_code == 1
    assert "384 of the 444 answers" in refused.output  # of the new ones two rows are known
    assert "--only-new leaves them out (60 answers left), --again takes up all" in refused.output
    assert path.read_bytes() == before
    for source, name in ((both, "one.onebit"), (folder / "new.csv", "two.onebit")):
        assert update(folder, str(source), "--only-new", "-o", str(folder / name), *WORDS).exit_code == 0
    one, two = onebit.load(folder / "one.onebit"), onebit.load(folder / "two.onebit")
    assert one.updates_.answers == two.updates_.answers == 60
    assert one.complete().equals(two.complete())
    # Now all is known: nothing is taken up, and the file asked for is there.
    copy = folder / "copy.onebit"
    run = CliRunner().invoke(
        app, ["update", str(folder / "one.onebit"), str(both), "--only-new", "-o", str(copy), *WORDS]
    )
    assert run.exit_code == 0
    assert "nothing new" in run.output
    assert onebit.load(copy).complete().equals(one.complete())
    wrong = update(folder, str(both), "--only-new", "--again", "-o", str(path), *WORDS)
    assert wrong.exit_code == 2


def test_what_is_new_to_a_model_without_its_answers_is_not_guessed(folder):
    bare = str(folder / "bare.onebit")
    fit = ["fit", str(folder / "poll.csv"), "-m", "logistic", "-o", bare, "--forget-answers", *WORDS]
    assert CliRunner().invoke(app, fit).exit_code == 0
    command = ["update", bare, str(folder / "poll.csv"), "-o", str(folder / "next.onebit"), *WORDS]
    for options, said in (
        ([], "were taken up before"),
        (["--only-new"], "does not hold the answers of its fit"),
    ):
        run = CliRunner().invoke(app, [*command, *options])
        assert run.exit_code == 1
        assert said in run.output
    assert not (folder / "next.onebit").exists()


def test_answers_that_differ_from_the_known_ones_are_new(folder):
    """Somebody may change their mind; few repeats are taken up and told."""
    old = pd.read_csv(folder / "poll.csv")
    model = onebit.load(folder / "poll.onebit")
    column = old.columns[-1]
    words = sorted(old[column].unique())
    changed = old.assign(**{column: old[column].map(dict(zip(words, words[::-1], strict=True)))})
    some = pd.concat([changed.iloc[:20], old.iloc[20:25]])
    (folder / "some.csv").write_text(some.to_csv(index=False))
    run = update(folder, str(folder / "some.csv"), "-o", str(folder / "next.onebit"), *WORDS)
    assert run.exit_code == 0, run.output
    assert "5 answers are in" in run.output
    assert "to count once more" in run.output
    assert onebit.load(folder / "next.onebit").updates_.answers == 25
    assert model.updates_.answers == 0


def test_numbers_that_are_answers_are_not_all_no_by_the_fits_threshold(tmp_path):
    rng = np.random.default_rng(0)
    pairs = np.argwhere(np.ones((12, 8)))
    table = pd.DataFrame({"user": pairs[:, 0], "item": pairs[:, 1], "rating": rng.integers(1, 6, 96)})
    table.iloc[:60].to_csv(tmp_path / "ratings.csv", index=False)
    later = table.iloc[60:].assign(rating=lambda part: (part["rating"] > 3).astype(int))
    later.to_csv(tmp_path / "likes.csv", index=False)
    model = str(tmp_path / "m.onebit")
    fit = ["fit", str(tmp_path / "ratings.csv"), "-m", "logistic", "--threshold", "3.5", "-o", model]
    assert CliRunner().invoke(app, fit).exit_code == 0
    command = ["update", model, str(tmp_path / "likes.csv"), "-o", model]
    run = CliRunner().invoke(app, command)
    assert run.exit_code == 1
    assert "are 0 and 1, both on one side of the fit's threshold" in run.output
    # Whoever says what they are is believed.
    other = [*command[:-1], str(tmp_path / "n.onebit"), "--threshold", "3.5"]
    assert CliRunner().invoke(app, other).exit_code == 0
    assert (onebit.load(tmp_path / "n.onebit")._folded[0][2] == -1).all()
    assert CliRunner().invoke(app, [*command, "--yes", "1", "--no=0"]).exit_code == 0
    assert onebit.load(model)._folded[0][2].sum() == (2 * later["rating"] - 1).sum()


def test_a_fresh_hold_out_certifies_the_new_model(folder):
    out = folder / "next.onebit"
    run = update(folder, str(folder / "new.csv"), "-o", str(out), "--certify", "0.5", "--json", *WORDS)
    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout.splitlines()[-1])
    assert said["answers"] == 42
    assert 0 < said["held_out"] <= 42
    assert "that the last update answered for the first time" in said["certificate"]
    assert CliRunner().invoke(app, ["certify", str(out)]).exit_code == 0
    assert onebit.load(folder / "poll.onebit").updates_.times == 0


def test_a_store_is_taken_up_as_far_as_it_goes(folder):
    store = Store(folder / "answers.db")
    store.add("a", "p99", [("s1", 1), ("s2", -1)])
    path = folder / "poll.onebit"
    words = ("--store", str(folder / "answers.db"), "-o", str(path))
    assert "2 answers taken up; 1 new row ('p99'), 0 new columns." in update(folder, *words).output
    nothing = update(folder, *words)
    assert nothing.exit_code == 0
    assert "nothing new since the last update" in nothing.output
    store.add("b", "p99", [("s3", 1)])
    assert "1 answer taken up; 0 new rows" in update(folder, *words).output
    assert onebit.load(path).updates_.answers == 3
    store.add("c", 7, [("s3", 1)])
    store.add("d", "p98", [("s3", 1)])
    run = update(folder, *words)
    assert "1 answers left out" in run.output
    assert "1 answer taken up" in run.output


def test_an_older_copy_of_a_store_is_refused(folder):
    path = folder / "poll.onebit"
    words = ("--store", str(folder / "answers.db"), "-o", str(path))
    store = Store(folder / "answers.db")
    store.add("a", "p99", [("s1", 1)])
    store.close()
    old = (folder / "answers.db").read_bytes()
    store = Store(folder / "answers.db")
    store.add("b", "p99", [("s2", 1)])
    store.close()
    assert update(folder, *words).exit_code == 0
    (folder / "answers.db").write_bytes(old)
    assert "an older copy" in update(folder, *words).output
    store = Store(folder / "answers.db")
    store.add("c", "p99", [("s5", -1)])  # has the number of the one that was taken up
    store.close()
    run = update(folder, *words)
    assert run.exit_code == 1
    assert "an older copy" in run.output


def test_two_updates_of_one_file_do_not_cross(folder):
    path = folder / "poll.onebit"
    with lock(path.with_name(".poll.onebit.lock"), "it"):
        runs = [
            update(folder, str(folder / "new.csv"), "-o", str(path), *WORDS),
            CliRunner().invoke(app, ["certify", str(path), "--save"]),
        ]
    for run in runs:
        assert run.exit_code == 1
        assert "which changes it" in run.output
    assert update(folder, str(folder / "new.csv"), "-o", str(path), *WORDS).exit_code == 0
    assert not list(folder.glob(".*lock"))


def test_wrong_updates_say_what_to_do(folder):
    path, new = str(folder / "poll.onebit"), str(folder / "new.csv")
    before = (folder / "poll.onebit").read_bytes()
    for words, code, said in (
        ((), 2, "name a file of new answers"),
        ((new, "--store", "x.db", "-o", path), 2, "not both"),
        ((new, *WORDS), 2, "name the model file to write with -o"),
        ((new, "-o", new, *WORDS), 2, "would overwrite the new answers"),
        ((new, "-o", path, "--forget", "2", *WORDS), 1, "forget is the share that is kept"),
        (("--store", str(folder / "no.db"), "-o", path), 1, "there is no such file of answers"),
        (("--store", new, "-o", path), 1, "is not a file of answers"),
    ):
        run = update(folder, *words)
        assert run.exit_code == code, (words, run.output)
        assert said in " ".join(run.output.split())
        assert "Traceback" not in run.output
    assert (folder / "poll.onebit").read_bytes() == before
    (folder / "numbers.csv").write_text("person,statement,answer\n1,s1,agree\n2,s2,disagree\n")
    run = update(folder, str(folder / "numbers.csv"), "-o", path, *WORDS)
    assert "row ids here are numbers (such as 1)" in run.output
    own = update(folder, str(folder / "poll.csv"), "-o", path, *WORDS)
    assert own.exit_code == 1
    assert "were taken up before" in own.output
    (folder / "empty.csv").write_text("person,statement,answer\n")
    run = update(folder, str(folder / "empty.csv"), "-o", path, *WORDS)
    assert run.exit_code == 1
    assert "nothing else" in run.output


def test_a_server_starts_answers_and_stops(folder):
    pytest.importorskip("uvicorn")
    command = [
        sys.executable, "-m", "onebit", "serve", str(folder / "poll.onebit"), "--port", "0",
        "--store", str(folder / "answers.db"),
    ]  # fmt: skip
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        said = ""
        while "Ctrl-C" not in said:
            line = server.stdout.readline()
            assert line, said
            said += line
        address = re.search(r"http://localhost:\d+/", said).group()
        with urllib.request.urlopen(address + "api/model", timeout=30) as reply:
            assert json.load(reply)["rows"] == 30
        with urllib.request.urlopen(address, timeout=30) as reply:
            assert b"Next question" in reply.read()
    finally:
        server.send_signal(signal.SIGINT)
        rest, _ = server.communicate(timeout=30)
    assert "Traceback" not in said + rest


def test_a_port_that_is_taken_is_one_clear_error(folder):
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = subprocess.run(
            [sys.executable, "-m", "onebit", "serve", str(folder / "poll.onebit"), "--port", str(port)],
            capture_output=True, text=True,
        )  # fmt: skip
    assert run.returncode == 1
    assert f"is port {port} taken?" in run.stderr
    assert "Traceback" not in run.stderr


def test_the_demo_is_fitted_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fits = []

    def quick(seed=0):
        fits.append(seed)
        return onebit.LogisticCompleter(0).fit([("a", "x"), ("b", "x"), ("a", "y")], [1, 0, 1])

    monkeypatch.setattr("onebit.study.demo.school_model", quick)
    for _ in range(2):
        assert serving._demo(Voice(quiet=True)) == os.path.join("demo", "school.onebit")
    assert fits == [0]
    assert onebit.load("demo/school.onebit").rows_.encode(["b"])[0] == 1


def test_a_server_for_others_needs_a_token(folder):
    pytest.importorskip("uvicorn")
    run = CliRunner().invoke(app, ["serve", str(folder / "poll.onebit"), "--host", "0.0.0.0"])
    assert run.exit_code == 2
    assert "--token new" in run.output
    run = CliRunner().invoke(app, ["serve"])
    assert "name a model, or say --demo" in run.output
    run = CliRunner().invoke(app, ["serve", "nothing.onebit"])
    assert run.exit_code == 1
    assert "nothing.onebit" in run.output
