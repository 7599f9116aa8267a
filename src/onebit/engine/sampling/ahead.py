"""Compiling the samplers in processes of their own, while the variational fits that come first run.

Their kernels take longer to compile than all others, and numba compiles one function at a time in a
process. What the other processes have compiled is kept on disk, where this one finds it. They are started
once in the life of a process, and nothing depends on them: what they have not compiled is compiled here.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from onebit.data.kernels import worth_compiling
from onebit.data.observations import Observations
from onebit.engine.cpu.threads import Threads
from onebit.engine.recipe import Recipe
from onebit.engine.sampling import passes, whole
from onebit.engine.sampling.chain import Chain
from onebit.engine.sampling.plan import Plan
from onebit.engine.sampling.sampler import sample
from onebit.engine.sampling.target import Target, prior_terms
from onebit.model.gaussians import independent_gaussians
from onebit.model.losses import LOGISTIC
from onebit.model.posterior import Posterior

# Beyond this something is wrong with another process.
LONGEST_WAIT = 120.0
# In the environment of the other processes, so that they start none themselves.
MARK = "ONEBIT_COMPILING_AHEAD"
# What they do, one each: the pass that draws rows takes as long to compile as everything else.
PARTS = ("compile_rows", "compile_moves")
# Without a collector: a compiler makes many small objects, and the process ends when it is done.
_COMMAND = "import gc; gc.disable(); from onebit.engine.sampling.ahead import {part}; {part}()"

_lock = Lock()
_tried = False
_others: list[subprocess.Popen[bytes]] = []


def begin(threads: int) -> None:
    """Start compiling, unless that has been done or tried, or the fit is to have a single thread."""
    global _tried
    with _lock:
        if _tried or threads < 2 or not _may_start() or not _worth_compiling():
            return
        _tried = True
        folders = [part for part in sys.path if isinstance(part, str) and part]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), MARK: "1"}
        atexit.register(_end)
        for part in PARTS:
            try:
                other = subprocess.Popen(
                    [sys.executable, "-P", "-c", _COMMAND.format(part=part)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                )
            except (OSError, ValueError):
                return
            _others.append(other)


def wait() -> None:
    """Wait until the other processes, if there are any, have compiled what sampling needs."""
    with _lock:
        others = list(_others)
    if not others:
        return
    last = time.monotonic() + LONGEST_WAIT
    try:
        for other in others:
            other.wait(max(last - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        pass
    with _lock:
        _end()
        atexit.unregister(_end)


def _end() -> None:
    """End the other processes."""
    for other in _others:
        other.kill()
        other.wait()
    _others.clear()


def _may_start() -> bool:
    """Say whether this is Python itself, and not a program that has it inside, or the other process."""
    frozen = getattr(sys, "frozen", False) or MARK in os.environ
    return not frozen and "python" in Path(sys.executable or "").name.lower()


def _worth_compiling() -> bool:
    """Say whether there is something to compile that others can leave on disk."""
    try:
        return any(worth_compiling(kernel) for kernel in (passes.sample_rows, whole.along_blocks))
    except AttributeError:  # numba's own business, which may change, or is switched off
        return False


def compile_rows() -> None:
    """Draw the rows of a table that is made up once, so that the pass that draws them is compiled."""
    answers, posterior = _made_up()
    target = Target.of(answers, posterior.hierarchy, LOGISTIC, 1.0)
    chain = Chain.begin(target, posterior, 0, 0)
    precision, linear = prior_terms(target.hierarchy, chain.hyper, 0, np.zeros(target.hierarchy.rank))
    chain.lines.draw(0, chain.key, 0, precision, linear, None)


def compile_moves() -> None:
    """Sample the same table with its rows left where they are, so that everything else is compiled."""
    drawn, passes.sample_rows = passes.sample_rows, _leave_rows
    try:
        compile_samplers()
    finally:
        passes.sample_rows = drawn


def compile_samplers() -> None:
    """Sample the same table, so that all kernels are compiled."""
    answers, posterior = _made_up()
    sample(answers, posterior, LOGISTIC, 1.0, Plan(2, 1), 0, Threads(1, None))


def _leave_rows(*arguments: Any) -> None:
    """Stand in for the pass over rows: they say nothing of the scales, and have no evidence."""
    for sums in arguments[-3:]:
        sums[...] = 0.0


def _made_up() -> tuple[Observations, Posterior]:
    """Return a small table, and a posterior to start from."""
    rng = np.random.default_rng(0)
    pairs = np.stack(np.divmod(np.arange(60), 10), axis=1)
    answers = Observations.from_pairs(pairs, np.where(rng.random(60) < 0.5, 1, -1))
    recipe = Recipe(rank=2)
    hierarchy = recipe.sampled_hierarchy(recipe.hierarchy(answers.shape))
    means = [rng.standard_normal((size, 3)) for size in answers.shape]
    rows, columns = (independent_gaussians(mean, np.full_like(mean, 0.1), True) for mean in means)
    hyper = hierarchy.update((rows.sums(hierarchy, 0), columns.sums(hierarchy, 1)), None)
    return answers, Posterior(rows, columns, hyper, hierarchy)
