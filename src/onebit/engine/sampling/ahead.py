"""Compiling the samplers in a process of its own, while the variational fits that come first run.

Their kernels take longer to compile than all others, and numba compiles one function at a time in a
process. What the other process has compiled is kept on disk, where this one finds it.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from onebit.data.observations import Observations
from onebit.engine.cpu.threads import Threads
from onebit.engine.recipe import Recipe
from onebit.engine.sampling import passes
from onebit.engine.sampling.plan import Plan
from onebit.engine.sampling.sampler import sample
from onebit.model.gaussians import independent_gaussians
from onebit.model.posterior import Posterior

# Beyond this something is wrong with the other process: they are compiled here after all.
LONGEST_WAIT = 120.0

_other: subprocess.Popen[bytes] | None = None


def begin(threads: int) -> None:
    """Start compiling, where that has not been done and there is a core to do it."""
    global _other
    python = "python" in Path(sys.executable or "").name.lower()
    if _other is not None or threads < 2 or not python or _compiled():
        return
    command = [sys.executable, "-P", "-W", "ignore", "-m", "onebit.engine.sampling.ahead"]
    try:
        _other = subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return
    atexit.register(_other.kill)


def wait() -> None:
    """Wait until the other process, if there is one, has compiled what sampling needs."""
    global _other
    if _other is None:
        return
    try:
        _other.wait(LONGEST_WAIT)
    except subprocess.TimeoutExpired:
        _other.kill()
    atexit.unregister(_other.kill)
    _other = None


def _compiled() -> bool:
    """Say whether the disk holds what was compiled of the present sources."""
    try:
        return bool(passes.sample_rows._cache._cache_file._load_index())
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


if __name__ == "__main__":
    compile_samplers()
