"""The first compilation is announced, and only that."""

import os
import subprocess
import sys

from onebit import LogisticCompleter, simulate
from onebit.engine.cpu.compilation import MESSAGE
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


class Pretended:
    """A process that is started and has ended."""

    def __init__(self, command, **settings):
        self.command, self.waited = command, False

    def wait(self, seconds):
        self.waited = True

    def kill(self):
        raise AssertionError("nothing went wrong")


def test_the_samplers_are_compiled_beside_the_first_fits_where_they_are_not_there(monkeypatch):
    started = []
    monkeypatch.setattr(
        ahead.subprocess, "Popen", lambda *given, **more: started.append(Pretended(*given)) or started[-1]
    )
    monkeypatch.setattr(ahead, "_compiled", lambda: True)
    ahead.begin(2)
    assert not started
    monkeypatch.setattr(ahead, "_compiled", lambda: False)
    ahead.begin(1)  # a single core has no room for it
    assert not started
    ahead.begin(2)
    ahead.begin(2)
    assert [process.command[-1] for process in started] == ["onebit.engine.sampling.ahead"]
    ahead.wait()
    assert started[0].waited
    ahead.wait()  # nothing to wait for


def test_what_that_process_compiles_is_what_a_sampled_fit_needs():
    ahead.compile_samplers()
    world = simulate.world("B1", rank=1, shape=(20, 15), density=0.7, seed=0)
    known = [set(kernel.signatures) for kernel in SAMPLERS]
    LogisticCompleter(2, inference="sampling", n_samples=4, n_burn_in=1, n_chains=2).fit(
        world.pairs, world.answers
    )
    assert [set(kernel.signatures) for kernel in SAMPLERS] == known
