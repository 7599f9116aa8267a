"""What happens to a fit when something happens to its cluster: the same bits, or one clear error."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

pytest.importorskip("distributed")

import onebit.dask

from cluster_tables import answers, run_scheduler, run_worker, written
from onebit import LogisticCompleter
from onebit.data.tables.problems import TableError
from onebit.engine.cluster import journal

SETTINGS = {"rank": 3, "max_iter": 9, "tol": 1e-12, "random_state": 0}
pytestmark = [
    pytest.mark.usefixtures("forks"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(answers(), tmp_path_factory.mktemp("answers") / "files")


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Checkpoints are frequent enough for short fits."""
    monkeypatch.setattr(journal, "EVERY", 2)


@pytest.fixture(scope="module")
def undisturbed(forks, folder):
    """The bits of a fit to which nothing happens."""
    with onebit.dask.local_client(1) as client:
        return bits(onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS)))


def bits(model):
    arrays = [model.objective_path_, *(side.mean for side in model.posterior_.sides)]
    return [array.tobytes() for array in arrays]


def at_round(number, action):
    """Return a callback that does something once, after a round."""
    done = []

    def callback(progress):
        if progress.round == number and not done:
            done.append(progress.round)
            action()

    return callback


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def test_a_worker_killed_in_the_middle_changes_nothing(folder, undisturbed):
    with onebit.dask.local_client(2) as client:
        workers = client.run(os.getpid)

        def kill_one():
            kill(next(iter(workers.values())))

        model = onebit.dask.fit(
            client, folder, LogisticCompleter(**SETTINGS), callback=at_round(5, kill_one)
        )
        assert set(client.run(os.getpid).values()) != set(workers.values())  # it was replaced
    assert bits(model) == undisturbed


def test_workers_without_data_and_workers_that_join_late_change_nothing(folder, undisturbed):
    with onebit.dask.local_client(3) as client:
        model = onebit.dask.fit(
            client,
            folder,
            LogisticCompleter(**SETTINGS),
            callback=at_round(3, lambda: client.cluster.scale(4)),
        )
    assert bits(model) == undisturbed


def test_answers_that_spill_to_disk_change_nothing(folder, undisturbed):
    import dask

    with (
        dask.config.set(
            {"distributed.worker.memory.target": 1e-7, "distributed.worker.memory.spill": 0.9}
        ),
        onebit.dask.local_client(1, memory_limit="4GiB") as client,
    ):
        spilled = []

        def look():
            spilled.extend(client.run(lambda dask_worker: dask_worker.data.spilled_total.disk).values())

        model = onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS), callback=at_round(4, look))
    assert min(spilled) > 0
    assert bits(model) == undisturbed


def test_a_part_that_cannot_be_read_is_named(tmp_path):
    folder = written(answers(), tmp_path / "files")
    path = folder / "part-1.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with onebit.dask.local_client(1) as client:
        with pytest.raises(TableError, match=r"part-1\.parquet cannot be read as Parquet"):
            onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS))
        whole = (folder / "part-0.parquet").read_bytes()
        path.write_bytes(whole[:500] + bytes(len(whole) - 4500) + whole[-4000:])  # the footer is right
        with pytest.raises(TableError, match=r"part-1\.parquet"):
            onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS))


def test_a_frame_without_a_client_is_refused():
    from dask import dataframe

    frame = dataframe.from_pandas(answers(100), npartitions=1)
    with pytest.raises(ValueError, match="no Dask client"):
        LogisticCompleter().fit(frame)


def test_nobody_waits_for_ever(folder):
    from distributed import Client, LocalCluster

    # Without nannies nobody replaces a worker.
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        begin = time.monotonic()
        with pytest.raises(onebit.dask.ClusterError, match="no worker came within 1 s"):
            onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS), patience=1)
        assert time.monotonic() - begin < 30
    with onebit.dask.local_client(1) as client:

        def stop_all():
            client.cluster.scale(0)

        with pytest.raises(
            onebit.dask.ClusterError, match=r"no task was done for \d+ s .*0 workers are there"
        ):
            onebit.dask.fit(
                client, folder, LogisticCompleter(**SETTINGS), callback=at_round(3, stop_all), patience=3
            )


def test_a_scheduler_that_does_not_answer_is_an_error(processes, folder, monkeypatch):
    from distributed import Client

    monkeypatch.setattr("onebit.engine.cluster.client._ANSWER", 2.0)
    scheduler = processes.running[0].pid
    with Client(processes.address, timeout=60) as client:
        stop = at_round(3, lambda: os.kill(scheduler, signal.SIGSTOP))
        begin = time.monotonic()
        with pytest.raises(onebit.dask.ClusterError, match="the cluster was lost"):
            onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS), callback=stop, patience=2)
        assert time.monotonic() - begin < 100
        os.kill(scheduler, signal.SIGCONT)


class Processes:
    """A scheduler and workers as processes of their own."""

    def __init__(self):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.running = []
        self.start()

    def start(self):
        context = multiprocessing.get_context("forkserver")
        self.running = [context.Process(target=run_scheduler, args=(self.port,))]
        self.running += [context.Process(target=run_worker, args=(self.address,)) for _ in range(2)]
        for process in self.running:
            process.start()

    def kill(self):
        for process in self.running:
            process.kill()
            process.join()


@pytest.fixture
def processes():
    made = Processes()
    yield made
    made.kill()


def test_a_scheduler_that_is_lost_is_an_error_and_the_fit_goes_on_at_the_next_one(
    processes, folder, undisturbed, tmp_path
):
    from distributed import Client

    kept = {"checkpoint": tmp_path / "kept"}
    with (
        Client(processes.address, timeout=60) as client,
        pytest.raises(
            onebit.dask.ClusterError, match=r"the cluster was lost.*the same fit goes on from there"
        ),
    ):
        onebit.dask.fit(
            client,
            folder,
            LogisticCompleter(**SETTINGS),
            **kept,
            callback=at_round(5, processes.kill),
            patience=20,
        )
    assert (tmp_path / "kept").is_dir()
    processes.start()
    rounds = []
    with Client(processes.address, timeout=60) as client:
        model = onebit.dask.fit(
            client,
            folder,
            LogisticCompleter(**SETTINGS),
            **kept,
            callback=lambda p: rounds.append(p.round),
        )
    assert rounds[0] == 5  # the last checkpoint was after the fourth
    assert bits(model) == undisturbed
    assert not (tmp_path / "kept").exists()


CLIENT = """
import os, signal, sys
from distributed import Client
import onebit.dask
from onebit import LogisticCompleter
from onebit.engine.cluster import journal

journal.EVERY = 2

def tell(progress):
    if progress.round == 7:
        os.kill(os.getpid(), signal.SIGKILL)

with Client(sys.argv[1]) as client:
    onebit.dask.fit(client, sys.argv[2], LogisticCompleter(3, max_iter=9, tol=1e-12, random_state=0),
                    checkpoint=sys.argv[3], callback=tell)
"""


def test_a_lost_client_is_followed_by_another(folder, undisturbed, tmp_path):
    script, kept = tmp_path / "client.py", tmp_path / "kept"
    script.write_text(CLIENT)
    with onebit.dask.local_client(2) as client:
        command = [sys.executable, str(script), client.scheduler.address, str(folder), str(kept)]
        assert subprocess.run(command, check=False, timeout=300).returncode == -signal.SIGKILL
        rounds = []
        model = onebit.dask.fit(
            client,
            folder,
            LogisticCompleter(**SETTINGS),
            checkpoint=kept,
            callback=lambda progress: rounds.append(progress.round),
        )
        assert rounds[0] == 7  # the last checkpoint was after the sixth
        assert bits(model) == undisturbed
        with pytest.raises(ValueError, match="random_state"):
            onebit.dask.fit(client, folder, LogisticCompleter(), checkpoint=kept)


def test_a_checkpoint_of_another_fit_is_refused(folder, tmp_path):
    class Stop(Exception):
        pass

    def stop(progress):
        if progress.round == 3:
            raise Stop

    kept = tmp_path / "kept"
    with onebit.dask.local_client(1) as client:
        with pytest.raises(Stop):
            onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS), checkpoint=kept, callback=stop)
        with pytest.raises(ValueError, match=r"another fit \(other settings"):
            onebit.dask.fit(client, folder, LogisticCompleter(4, random_state=0), checkpoint=kept)
        # What answers mean is part of a fit.
        with pytest.raises(ValueError, match=r"another fit \(other meaning of answers"):
            onebit.dask.fit(
                client, folder, LogisticCompleter(**SETTINGS), checkpoint=kept, yes="True", no="False"
            )
        split = next(kept.rglob("split-00001.arrow"))
        whole = split.read_bytes()
        split.write_bytes(next(kept.rglob("split-00000.arrow")).read_bytes())
        with pytest.raises(TableError, match=r"split-00001\.arrow holds something else"):
            onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS), checkpoint=kept)
        split.write_bytes(whole)
        path = next(kept.rglob("rows-00002.onebit"))
        other = next(kept.rglob("rows-00003.onebit"))
        before = path.read_bytes()
        path.write_bytes(other.read_bytes())
        with pytest.raises(ValueError, match=r"rows-00002\.onebit.*part is 3"):
            onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS), checkpoint=kept)
        path.write_bytes(before)
        content = bytearray(path.read_bytes())
        content[-9] ^= 1
        path.write_bytes(bytes(content))
        with pytest.raises(ValueError, match=r"rows-00002\.onebit is damaged"):
            onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS), checkpoint=kept)
