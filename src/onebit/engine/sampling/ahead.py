"""Compiling the samplers in a process of its own, while the variational fits that come first run.

Their kernels take longer to compile than all others, and numba compiles one function at a time in a
process. What the other process has compiled is kept on disk, where this one finds it. It is started once
in the life of a process, and nothing depends on it: what it has not compiled is compiled here.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from pathlib import Path
from threading import Lock

import numpy as np

from onebit.data.observations import Observations
from onebit.engine.cpu.threads import Threads
from onebit.engine.recipe import Recipe
from onebit.engine.sampling import passes
from onebit.engine.sampling.plan import Plan
from onebit.engine.sampling.sampler import sample
from onebit.model.gaussians import independent_gaussians
from onebit.model.posterior import Posterior

# Beyond this something is wrong with the other process.
LONGEST_WAIT = 120.0
# In the environment of the other process, so that it starts none itself.
MARK = "ONEBIT_COMPILING_AHEAD"
# Without a collector: a compiler makes many small objects, and the process ends when it is done.
_COMMAND = (
    "import gc; gc.disable(); "
    "from onebit.engine.sampling.ahead import compile_samplers; compile_samplers()"
)

_lock = Lock()
_tried = False
_other: subprocess.Popen[bytes] | None = None


def begin(threads: int) -> None:
    """Start compiling, unless that has been done or tried, or the fit is to have a single thread."""
    global _tried, _other
    with _lock:
        if _tried or threads < 2 or not _may_start() or _compiled():
            return
        _tried = True
        folders = [part for part in sys.path if isinstance(part, str) and part]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), MARK: "1"}
        try:
            _other = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except (OSError, ValueError):
            return
        atexit.register(_end, _other)


def wait() -> None:
    """Wait until the other process, if there is one, has compiled what sampling needs."""
    global _other
    with _lock:
        if _other is None:
            return
        try:
            _other.wait(LONGEST_WAIT)
        except subprocess.TimeoutExpired:
            _end(_other)
        atexit.unregister(_end)
        _other = None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _may_start() -> bool:
    """Say whether this is Python itself, and not a program that has it inside, or the other process."""
    frozen = getattr(sys, "frozen", False) or MARK in os.environ
    return not frozen and "python" in Path(sys.executable or "").name.lower()


def _compiled() -> bool:
    """Say whether this process or the disk has what is compiled of the present sources."""
    try:
        return bool(passes.sample_rows.signatures or passes.sample_rows._cache._cache_file._load_index())
    except (AttributeError, OSError):  # numba's own business, which may change: then as if it were there
        return True


def compile_samplers() -> None:
    """Draw twice from the posterior of a table that is made up, so that all kernels are compiled."""
    rng = np.random.default_rng(0)
    pairs = np.stack(np.divmod(np.arange(60), 10), axis=1)
    answers = Observations.from_pairs(pairs, np.where(rng.random(60) < 0.5, 1, -1))
    recipe = Recipe(rank=2)
    hierarchy = recipe.sampled_hierarchy(recipe.hierarchy(answers.shape))
    means = [rng.standard_normal((size, 3)) for size in answers.shape]
    rows, columns = (independent_gaussians(mean, np.full_like(mean, 0.1), True) for mean in means)
    hyper = hierarchy.update((rows.sums(hierarchy, 0), columns.sums(hierarchy, 1)), None)
    posterior = Posterior(rows, columns, hyper, hierarchy)
    sample(answers, posterior, recipe.loss, 1.0, Plan(2, 1), 0, Threads(1, None))
