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
from onebit.engine.cpu import ahead, compilation, rehearsal
from onebit.engine.cpu.ahead import Rehearsal
from onebit.engine.cpu.compilation import MESSAGE, announced
from onebit.engine.cpu.passes import fill_table, update_full
from onebit.engine.cpu.solve import solve_lanes
from onebit.engine.sampling import orbits, passes, whole
from onebit.engine.sampling import rehearsal as sampling
from onebit.model.losses import majorise
from onebit.model.score_kernels import score_moments

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
    monkeypatch.setattr(Rehearsal, "running", 0)
    monkeypatch.delenv(ahead.MARK, raising=False)
    return found


@pytest.fixture
def rehearsed():
    """A rehearsal of two parts."""
    return Rehearsal("some.module", ("one", "two"), "kernel")


def test_kernels_are_compiled_beside_the_first_fit_once(started, rehearsed, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", ["", tmp_path, *sys.path])  # a path that is no text is nobody's
    ended = []
    monkeypatch.setattr(ahead.atexit, "register", ended.append)
    assert not rehearsed.begin(1)  # whoever asks for one thread gets one
    assert not started
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(rehearsed.begin, [2] * 8)) == 1
    assert len(started) == 2
    assert ended == [rehearsed._end]
    for process, part in zip(started, ("one", "two"), strict=True):
        assert process.command[:2] == [sys.executable, "-P"]
        assert process.command[-1].endswith(f"from some.module import {part}; {part}()")
        assert process.environment[ahead.MARK] == "1"  # it starts none itself
    folders = [path for path in sys.path if isinstance(path, str) and path]
    assert f"sys.path[:] = {folders!r};" in started[0].command[-1]
    # What lies in those folders is not run when Python starts, as it would be by PYTHONPATH.
    assert started[0].environment == os.environ | {ahead.MARK: "1"}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: rehearsed.wait(), range(8)))
    assert all(process.waited for process in started)
    assert Rehearsal.running == 0
    assert not rehearsed.begin(2)
    assert len(started) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_process_does_not_wait_for_what_another_one_holds():
    program = """
import os, sys, threading
from onebit.engine.cpu import ahead

with ahead._lock:
    child = os.fork()
    if child == 0:
        os._exit(0 if ahead._lock.acquire(timeout=5) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_process_that_is_started_finds_its_modules(tmp_path):
    (tmp_path / "some_module.py").write_text("def part():\n    open('done', 'w').close()\n")
    (tmp_path / "sitecustomize.py").write_text("open('run', 'w').close()\n")
    program = ahead._program([*sys.path, str(tmp_path)], "some_module", "part")
    subprocess.run([sys.executable, "-P", "-c", program], check=True, cwd=tmp_path)
    assert (tmp_path / "done").exists()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("threads", "both"), [(2, False), (3, True)])
def test_a_second_rehearsal_begins_where_there_are_cores_for_it(started, rehearsed, threads, both):
    second = Rehearsal("another.module", ("three",), "kernel")
    assert rehearsed.begin(threads)
    assert second.begin(threads) == both
    rehearsed.wait()
    second.wait()
    assert Rehearsal.running == 0
    assert second.begin(threads) != both  # it was not tried before, or was


@pytest.mark.parametrize("what", ["compiled", "frozen", "inside", "another program"])
def test_no_process_is_started_where_there_is_no_need_or_no_python(started, rehearsed, monkeypatch, what):
    if what == "compiled":
        monkeypatch.setattr(ahead, "worth_compiling", lambda kernel: False)
    elif what == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    elif what == "inside":
        monkeypatch.setenv(ahead.MARK, "1")
    else:
        monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi")
    assert not rehearsed.begin(2)
    assert not started


def test_a_process_waits_for_what_the_one_that_began_it_compiles_but_not_for_ever(monkeypatch):
    told, slept = iter([True, True, False]), []
    monkeypatch.setattr(ahead, "worth_compiling", lambda kernel: next(told))
    monkeypatch.setattr(ahead.time, "sleep", slept.append)
    ahead.wait_for("kernel")
    assert len(slept) == 3  # and a moment until it is written
    monkeypatch.setattr(ahead, "worth_compiling", lambda kernel: True)
    monkeypatch.setattr(ahead, "LONGEST_WAIT_FOR_ONE", 0.01)
    ahead.wait_for("kernel")
    assert len(slept) > 4


@pytest.mark.parametrize("kept", [True, False])
def test_where_nothing_can_be_kept_the_other_process_is_ended_at_once(started, monkeypatch, kept):
    monkeypatch.setattr(rehearsal, "DESCENT", Rehearsal("some.module", ("one",), "kernel"))
    monkeypatch.setattr(rehearsal, "compile_majoriser", lambda: None)
    monkeypatch.setattr(rehearsal, "on_disk", lambda kernel: kept)
    rehearsal.begin_compiling(2)
    assert [process.killed for process in started] == [not kept]
    assert Rehearsal.running == kept
    rehearsal.DESCENT.wait()


def test_a_process_that_hangs_is_ended(started, rehearsed, monkeypatch):
    monkeypatch.setattr(Pretended, "hangs", True)
    rehearsed.begin(2)
    rehearsed.wait()
    assert all(process.killed for process in started)


def test_fits_and_searches_begin_rehearsals_and_wait_for_them(monkeypatch, small_world):
    told = []
    for rehearsal_, name in ((sampling.SAMPLERS, "samplers"), (rehearsal.DESCENT, "descent")):
        monkeypatch.setattr(rehearsal_, "begin", lambda threads, name=name: told.append((name, threads)))
        monkeypatch.setattr(rehearsal_, "wait", lambda name=name: told.append((name, "wait")))
    sampled = LogisticCompleter(1, inference="sampling", n_samples=4, n_burn_in=1, n_chains=1, n_jobs=2)
    sampled.fit(small_world.pairs, small_world.answers)
    assert [told[0], told[-1]] == [("samplers", 2), ("samplers", "wait")]
    assert ("descent", 2) not in told
    told.clear()
    LogisticCompleter(1, n_jobs=2).fit(small_world.pairs, small_world.answers)
    assert told == [("descent", 2), ("descent", "wait")]
    told.clear()
    LogisticCompleter(1, covariance="diagonal", n_jobs=2).fit(small_world.pairs, small_world.answers)
    AutoCompleter(sampling_seconds=0, n_jobs=2).fit(small_world.pairs, small_world.answers)
    assert ("samplers", 2) not in told
    assert told[0] == ("descent", "wait")  # of the diagonal family there is nothing to rehearse
    told.clear()
    AutoCompleter(sampling_seconds=0.1, n_jobs=2).fit(small_world.pairs, small_world.answers)
    assert told[0] == ("samplers", 2)


def test_what_is_rehearsed_of_descent_is_what_a_fit_needs(small_world):
    kernels = update_full, fill_table, solve_lanes, majorise
    rehearsal.compile_majoriser()
    rehearsal.compile_pass()
    known = [set(kernel.signatures) for kernel in kernels]
    LogisticCompleter(2).fit(small_world.pairs, small_world.answers)
    assert [set(kernel.signatures) for kernel in kernels] == known


def test_what_those_processes_compile_is_what_a_sampled_fit_needs():
    sampling.compile_samplers()
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
    sampling.compile_rows()
    assert asked == ["rows"]
    asked.clear()
    sampling.compile_moves()
    assert set(asked) == {"moves"}
    asked.clear()
    sampling.compile_samplers()
    assert set(asked) == {"rows", "moves"}


def test_new_rows_and_certificates_compile_nothing_that_a_fit_has_compiled(small_world):
    """Whether an array may be written to is a type: a kernel is not to see now this, now that."""
    pairs, answers = small_world.pairs, small_world.answers
    chain = {"inference": "sampling", "n_samples": 4, "n_burn_in": 1, "n_chains": 1}
    models = [LogisticCompleter(2).fit(pairs, answers), LogisticCompleter(2, **chain).fit(pairs, answers)]
    for model in models:
        model.predict_proba(pairs)
    kernels = update_full, passes.sample_rows, score_moments
    known = [set(kernel.signatures) for kernel in kernels]
    for model in models:
        model.fold_in([(999, column) for column in range(5)], [1, 0, 1, 1, 0])
        model.predict_proba([(999, 7), (0, 888)])
    plain = LogisticCompleter(2, pattern=None).fit(pairs, answers, certify=0)
    plain.certify(method="pac-bayes-kl")
    assert [set(kernel.signatures) for kernel in kernels] == known


ALONE_OR_NOT = """
import sys
import numpy as np
from onebit import LogisticCompleter, simulate
if "first" in sys.argv:
    from onebit.engine.cpu.rehearsal import compile_majoriser, compile_pass
    compile_majoriser()
    compile_pass()
world = simulate.world("B1", rank=2, shape=(60, 50), density=0.5, seed=0)
model = LogisticCompleter(4, pattern=None, random_state=0, n_jobs=1).fit(world.pairs, world.answers)
print(model.decision_function(world.pairs).tobytes().hex())
"""


def test_bits_do_not_depend_on_what_else_a_process_has_compiled_or_loaded():
    found = {
        subprocess.run(
            [sys.executable, "-c", ALONE_OR_NOT, when], capture_output=True, text=True, check=True
        ).stdout
        for when in ("compiles", "alone", "first")
    }
    assert len(found) == 1
    assert len(found.pop()) > 10_000


def test_no_two_kernels_have_a_function_of_the_same_name():
    rehearsal.compile_majoriser()
    rehearsal.compile_pass()
    sampling.compile_samplers()
    kernels = update_full, majorise, solve_lanes, fill_table, passes.sample_rows, orbits.move_along_orbits
    seen = {}
    for kernel in kernels:
        assert kernel.overloads
        for made in kernel.overloads.values():
            functions = made.library._get_module_for_linking().functions
            names = {function.name for function in functions if not function.is_declaration}
            seen[made.signature, kernel] = {name for name in names if not name.startswith("NRT_")}
    assert sum(map(len, seen.values())) > 2 * len(seen)  # some calls are not inlined
    assert len(set.union(*seen.values())) == sum(map(len, seen.values()))
