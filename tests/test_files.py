"""No output takes the place of an input, and nothing is left behind by those who are killed."""

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import onebit
from onebit import (
    AutoCompleter,
    GibbsCompleter,
    HingeCompleter,
    LogisticCompleter,
    NuclearNormCompleter,
    cli,
    simulate,
)
from onebit.cli.shell import WrongCommand, check_distinct, checked_output
from onebit.data.files import InUse, clear_parts, identity, lock, written_whole
from onebit.data.school import school
from onebit.engine.checkpoint import checkpoint

posix = pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and signals of POSIX")
runner = CliRunner()


def run(*arguments, code=0):
    result = runner.invoke(cli.app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table and a model of it."""
    folder = tmp_path_factory.mktemp("made")
    school(30, 15, 300, seed=2).frame().to_csv(folder / "t.csv", index=False)
    run("fit", folder / "t.csv", "-o", folder / "m.onebit", "-m", "logistic", "--rank", 1, "-q")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of them, where the command runs."""
    for path in made.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    os.link(tmp_path / "t.csv", tmp_path / "hard.csv")
    os.symlink("m.onebit", tmp_path / "soft.csv")
    os.symlink("new.html", tmp_path / "nowhere.html")
    monkeypatch.chdir(tmp_path)
    return tmp_path


CLASHES = {
    "fit over its table": ("fit t.csv -o t.csv", "the model would overwrite the file of answers, t.csv"),
    "another spelling": ("fit t.csv -o ./../{here}/t.csv", "would overwrite the file of answers"),
    "a hard link": ("fit t.csv -o hard.csv", "would overwrite the file of answers, hard.csv"),
    "a report over the table": ("fit t.csv -o m2 --report t.csv", "the report would overwrite"),
    "model and report": ("fit t.csv -o x --report x", "the report would overwrite the model, x"),
    "by a link to nowhere": ("fit t.csv -o new.html --report nowhere.html", "overwrite the model"),
    "model and checkpoint": ("fit t.csv -o x --checkpoint x", "overwrite the folder of the checkpoint"),
    "table and checkpoint": ("fit t.csv -o x --checkpoint t.csv", "name a folder of its own"),
    "in the checkpoint": ("fit t.csv -o checkpoint.json --checkpoint .", "name that the checkpoint uses"),
    "report over its model": ("report m.onebit -o m.onebit", "the report would overwrite the model"),
    "predict over the pairs": ("predict m.onebit t.csv -o t.csv", "overwrite the file of pairs"),
    "predict over the model": ("predict m.onebit t.csv -o soft.csv", "overwrite the model, soft.csv"),
    "complete over the model": ("complete m.onebit -o soft.csv", "overwrite the model"),
    "world and truth": ("simulate A1 -o a.csv --truth a.csv", "the truth would overwrite the table"),
    "both to stdout": ("simulate A1 --truth -", "the truth would overwrite the table, -"),
}


@posix
@pytest.mark.parametrize("what", CLASHES)
def test_an_output_that_is_an_input_or_another_output_is_refused_before_any_work(folder, what):
    command, words = CLASHES[what]
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    result = run(*command.format(here=folder.name).split(), code=2)
    assert words in result.stderr.replace("\n", " ")
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@posix
def test_devices_may_be_named_twice_and_stay_devices(folder):
    run("fit", "t.csv", "-o", "/dev/null", "--report", "/dev/null", "-m", "logistic", "--rank", 1)
    run("predict", "m.onebit", "t.csv", "-o", "/dev/null", "--output-format", "csv")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@posix
def test_certificates_are_still_written_into_their_model(folder):
    run("certify", "soft.csv", "--save")
    assert (folder / "soft.csv").is_symlink()
    assert len(onebit.load("m.onebit").record_.certificates) >= 2


@posix
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    with written_whole(pipe) as path:
        path.write_bytes(b"through")
    reader.join(10)
    assert found == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@posix
@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path, there):
    (tmp_path / "data").mkdir()
    target, link = tmp_path / "data" / "target", tmp_path / "link"
    if there:
        target.write_text("old")
    link.symlink_to(Path("data") / "target")
    with written_whole(link) as path:
        path.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(os.listdir(tmp_path / "data")) == ["target"]


@posix
def test_one_file_is_the_same_by_every_name(tmp_path):
    path = tmp_path / "a"
    assert identity(path) == identity(tmp_path / "b" / ".." / "a") == identity(str(path))
    path.write_text("")
    os.link(path, tmp_path / "b")
    (tmp_path / "c").symlink_to("a")
    assert identity(path) == identity(tmp_path / "b") == identity(tmp_path / "c")
    assert identity(path) != identity(tmp_path / "d")


WRITER = """
import sys, time
from pathlib import Path
from onebit.data.files import written_whole
with written_whole(Path(sys.argv[1])) as path:
    path.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


@posix
def test_what_a_killed_process_left_is_removed_by_the_next_and_what_a_living_one_writes_is_not(tmp_path):
    target = tmp_path / "out.csv"
    foreign = tmp_path / ".out.csv.notes.part"
    foreign.write_text("mine")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == b"writing\n"
        parts = set(tmp_path.glob(".out.csv.*.part"))
        assert len(parts) == 3
        clear_parts(tmp_path, "out.csv")
        assert set(tmp_path.glob(".out.csv.*.part")) == parts
        writers[0].kill()
        writers[0].wait()
        with written_whole(target) as path:
            path.write_text("whole")
        assert len(set(tmp_path.glob(".out.csv.*.part"))) == 2
        assert target.read_text() == "whole"
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    with written_whole(target) as path:
        path.write_text("again")
    assert sorted(os.listdir(tmp_path)) == [".out.csv.notes.part", "out.csv"]


MODELS = {
    "logistic": lambda: LogisticCompleter(2, random_state=0),
    "sampled": lambda: LogisticCompleter(2, inference="sampling", n_samples=20, random_state=0),
    "hinge": lambda: HingeCompleter(2, random_state=0),
    "paper": lambda: HingeCompleter(2, method="paper", effects=False, random_state=0, max_iter=20),
    "gibbs": lambda: GibbsCompleter(1, temperature=1.0, random_state=0),
    "nuclear": lambda: NuclearNormCompleter(2, max_iter=20, tol=1.0, random_state=0),
    "auto": lambda: AutoCompleter(effort="quick", random_state=0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_the_same_model_gives_the_same_bytes_now_and_after_loading(tmp_path, name):
    world = simulate.world("B1", rank=1, shape=(15, 12), density=0.6, seed=1)
    ids = np.array([f"id {k}" for k in range(15)])
    pairs = np.column_stack([ids[world.pairs[:, 0]], ids[world.pairs[:, 1]]])
    model = MODELS[name]().fit(pairs, world.answers, certify=0.2)
    for number in range(5):
        model.save(tmp_path / f"{number}.onebit")
    onebit.load(tmp_path / "0.onebit").save(tmp_path / "5.onebit")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_a_second_fit_in_the_same_folder_is_told_who_is_there(tmp_path):
    folder = tmp_path / "kept"
    with checkpoint(folder, {"fit": 1}):
        with (
            pytest.raises(InUse, match=f"kept is in use by process {os.getpid()}; wait for it or name"),
            checkpoint(folder, {"fit": 1}),
        ):
            pass
        assert folder.is_dir()
    assert not folder.exists()


@posix
@pytest.mark.parametrize("kind", ["link", "second name", "notes"])
def test_what_is_no_lock_file_is_not_written_over(tmp_path, kind):
    mine, place = tmp_path / "mine.txt", tmp_path / "x.lock"
    content = "not a number" if kind == "notes" else "12345\n"  # as a lock has it
    mine.write_text(content)
    {"link": place.symlink_to, "second name": place.hardlink_to, "notes": mine.rename}[kind](
        place if kind == "notes" else mine
    )
    with pytest.raises(OSError, match=r"x\.lock is (a link|no lock file)"), lock(place, "x"):
        pass
    assert place.read_text() == content


def test_the_lock_of_a_process_that_was_killed_is_taken(tmp_path):
    (tmp_path / "x.lock").write_text("12345\n")
    with lock(tmp_path / "x.lock", "x"):
        assert (tmp_path / "x.lock").read_text() == f"{os.getpid()}\n"
    assert not (tmp_path / "x.lock").exists()


FIT = """
import sys
from onebit import LogisticCompleter, simulate
from onebit.engine import checkpoint
checkpoint.INTERVAL = 0.0
world = simulate.world("A2", rank=2, shape=(40, 30), density=0.5, seed=0)
def tell(progress):
    print(progress.round, flush=True)
    if progress.round == 3 and sys.argv[2] == "wait":
        sys.stdin.read()
model = LogisticCompleter(3, random_state=0)
model.fit(world.pairs, world.answers, callback=tell, checkpoint=sys.argv[1])
"""


@posix
def test_a_killed_fit_frees_its_folder_and_the_next_leaves_nothing(tmp_path):
    folder = tmp_path / "kept"
    command = [sys.executable, "-c", FIT, str(folder)]
    first = subprocess.Popen([*command, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        while first.stdout.readline() != b"3\n":
            assert first.poll() is None
        second = subprocess.run([*command, "go"], capture_output=True, text=True, check=False)
        assert f"is in use by process {first.pid}" in second.stderr
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    left = folder / f".descent-0001.onebit.{'0' * 32}.part"
    left.write_text("half")
    third = subprocess.run([*command, "go"], capture_output=True, text=True, check=False)
    assert third.returncode == 0, third.stderr
    assert int(third.stdout.split()[0]) > 1  # it went on
    assert not folder.exists()


def test_a_folder_that_was_there_before_stays(tmp_path):
    with checkpoint(tmp_path, {"fit": 1}):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder_for_a_checkpoint(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(NotADirectoryError, match="is a file; name a folder"),
        checkpoint(tmp_path / "file", {}),
    ):
        pass


def test_what_comes_in_by_standard_input_is_not_overwritten(tmp_path, monkeypatch):
    table, other = tmp_path / "t.csv", tmp_path / "new.onebit"
    table.write_text("a,b,1\n")
    with table.open() as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        check_distinct({"the file of answers": "-"}, {"the model": str(other)})
        with pytest.raises(
            WrongCommand, match=r"would overwrite what is read from standard input, .*t\.csv"
        ):
            check_distinct({"the file of answers": "-"}, {"the model": str(table)})
        check_distinct({"the file of answers": str(other)}, {"the model": str(table)})  # nobody reads it
    monkeypatch.setattr(sys, "stdin", None)
    check_distinct({"the file of answers": "-"}, {"the model": str(table)})


@posix
def test_a_name_that_is_too_long_while_it_is_written_is_refused_at_the_door(tmp_path):
    assert checked_output(str(tmp_path / ("a" * 100 + ".onebit")))
    with pytest.raises(OSError, match="too long; choose a shorter name"):
        checked_output(str(tmp_path / ("a" * 230 + ".onebit")))
    (tmp_path / "short").symlink_to(tmp_path / ("a" * 230 + ".onebit"))
    with pytest.raises(OSError, match="choose a shorter name"):
        checked_output(str(tmp_path / "short"))
