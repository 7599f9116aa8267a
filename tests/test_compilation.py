"""The first compilation is announced, garbage is left alone meanwhile, samplers are compiled beside."""

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numba
import pytest
from numba.core import event

from onebit import AutoCompleter, LogisticCompleter, simulate
from onebit.engine.cpu import compilation
from onebit.engine.cpu.compilation import MESSAGE, announced
from onebit.engine.sampling import ahead, passes, whole

SAMPLERS = (passes.sample_rows, passes.draw_lanes, whole.along_blocks)

SCRIPT = """
import numba
from onebit.engine.cpu.compilation import announced
import onebit.data.observations  # compiled ahead: from its cache

def double(x):
    return 2 * x

with announced():
    numba.njit(double)(1)           # somebody else's function
    double.__module__ = "onebit.test"
    numba.njit(double)(1)
    numba.njit(double)(1.0)         # said before
with announced():
    numba.njit(double)("a")
"""


def test_one_line_says_that_kernels_are_compiled():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stderr == MESSAGE
    assert done.stdout == ""


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_left_alone_while_functions_are_compiled_and_no_longer(collects):
    seen = []

    @numba.njit
    def inner(x):
        return x + 1

    def once_more(x):
        """Nothing by itself: numba asks for what stands in its place."""

    @numba.extending.overload(once_more)
    def asked_while_compiling(x):  # after the inner function has been compiled
        seen.append(gc.isenabled())
        return lambda x: inner(x)

    def outer(x):
        return once_more(inner(x))

    if not collects:
        gc.disable()
    try:
        with announced():
            assert numba.njit(outer)(1) == 3
            assert gc.isenabled() == collects
        assert seen
        assert not any(seen)
        assert gc.isenabled() == collects
    finally:
        gc.enable()


def test_garbage_is_collected_again_after_a_block_that_another_thread_compiles_in():
    with announced():
        compilation._WATCH.on_start(event.Event("numba:compile", event.EventStatus.START, {}))
        assert gc.isenabled()  # nobody says what is compiled
        started = event.Event("numba:compile", event.EventStatus.START, {"dispatcher": object()})
        compilation._WATCH.on_start(started)
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_program_without_standard_error_compiles_in_silence(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    watch = compilation._Watch()
    ours = SimpleNamespace(py_func=passes.sample_rows.py_func)
    watch.on_start(event.Event("numba:compile", event.EventStatus.START, {"dispatcher": ours}))
    watch.collect_again()
    assert watch.announced


def test_garbage_is_collected_again_after_an_error_in_a_compilation():
    def broken(x):
        return x.nothing_of_this_name

    with announced(), pytest.raises(numba.TypingError):
        numba.njit(broken)(1)
    assert gc.isenabled()


class Pretended:
    """A process that has ended, or hangs."""

    hangs = False

    def __init__(self, command, **settings):
        self.command, self.environment, self.waited, self.killed = command, settings["env"], 0, False

    def wait(self, seconds=None):
        self.waited += 1
        if self.hangs and not self.killed:
            raise subprocess.TimeoutExpired(self.command, seconds)

    def kill(self):
        self.killed = True


@pytest.fixture
def started(monkeypatch):
    """The processes that would be started, with nothing compiled."""
    found = []

    def start(*given, **settings):
        found.append(Pretended(*given, **settings))
        return found[-1]

    monkeypatch.setattr(ahead.subprocess, "Popen", start)
    monkeypatch.setattr(ahead, "worth_compiling", lambda kernel: True)
    monkeypatch.setattr(ahead, "_tried", False)
    monkeypatch.setattr(ahead, "_others", [])
    monkeypatch.delenv(ahead.MARK, raising=False)
    return found


def test_the_samplers_are_compiled_beside_the_first_fits_once(started, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", ["", tmp_path, *sys.path])  # a path that is no text is nobody's
    ended = []
    monkeypatch.setattr(ahead.atexit, "register", ended.append)
    ahead.begin(1)  # whoever asks for one thread gets one
    assert not started
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ahead.begin, [2] * 8))
    assert ahead.PARTS == ("compile_rows", "compile_moves")
    assert len(started) == len(ahead.PARTS)
    assert ended == [ahead._end]
    for process, part in zip(started, ahead.PARTS, strict=True):
        assert process.command[:2] == [sys.executable, "-P"]
        assert process.command[-1].endswith(f"import {part}; {part}()")
        assert process.environment[ahead.MARK] == "1"  # it starts none itself
    folders = started[0].environment["PYTHONPATH"].split(os.pathsep)
    assert "" not in folders
    assert [path for path in sys.path if isinstance(path, str) and path] == folders
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ahead.wait(), range(8)))
    assert all(process.waited for process in started)
    assert ahead._others == []
    ahead.begin(2)
    assert len(started) == len(ahead.PARTS)


@pytest.mark.parametrize("what", ["compiled", "frozen", "inside", "another program"])
def test_no_process_is_started_where_there_is_no_need_or_no_python(started, monkeypatch, what):
    if what == "compiled":
        monkeypatch.setattr(ahead, "worth_compiling", lambda kernel: False)
    elif what == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    elif what == "inside":
        monkeypatch.setenv(ahead.MARK, "1")
    else:
        monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi")
    ahead.begin(2)
    assert not started


def test_a_process_that_hangs_is_ended(started, monkeypatch):
    monkeypatch.setattr(Pretended, "hangs", True)
    ahead.begin(2)
    ahead.wait()
    assert all(process.killed for process in started)


def test_sampled_fits_and_searches_begin_it_and_wait_for_it(monkeypatch, small_world):
    told = []
    monkeypatch.setattr(ahead, "begin", lambda threads: told.append(threads))
    monkeypatch.setattr(ahead, "wait", lambda: told.append("wait"))
    sampled = LogisticCompleter(1, inference="sampling", n_samples=4, n_burn_in=1, n_chains=1, n_jobs=2)
    sampled.fit(small_world.pairs, small_world.answers)
    assert told == [2, "wait"]
    told.clear()
    AutoCompleter(sampling_seconds=0, n_jobs=2).fit(small_world.pairs, small_world.answers)
    assert told == []
    AutoCompleter(sampling_seconds=0.1, n_jobs=2).fit(small_world.pairs, small_world.answers)
    assert told[0] == 2


def test_what_those_processes_compile_is_what_a_sampled_fit_needs():
    ahead.compile_samplers()
    world = simulate.world("B1", rank=1, shape=(20, 15), density=0.7, seed=0)
    known = [set(kernel.signatures) for kernel in SAMPLERS]
    LogisticCompleter(2, inference="sampling", n_samples=4, n_burn_in=1, n_chains=2).fit(
        world.pairs, world.answers
    )
    assert [set(kernel.signatures) for kernel in SAMPLERS] == known


def test_one_of_those_processes_compiles_the_pass_over_rows_and_the_other_the_rest(monkeypatch):
    asked = []

    def recorded(name, kernel):
        def called(*arguments):
            asked.append(name)
            return kernel(*arguments)

        return called

    monkeypatch.setattr(passes, "sample_rows", recorded("rows", passes.sample_rows))
    monkeypatch.setattr(whole, "along_blocks", recorded("moves", whole.along_blocks))
    ahead.compile_rows()
    assert asked == ["rows"]
    asked.clear()
    ahead.compile_moves()
    assert set(asked) == {"moves"}
    asked.clear()
    ahead.compile_samplers()
    assert set(asked) == {"rows", "moves"}
