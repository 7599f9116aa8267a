"""Without torch and Triton (``pip install onebit[gpu]``) the GPU's modules and tests are left out.

Tests of AutoCompleter ask what it does, not how well it has sampled: they sample less. Certificates of
drawn predictors hold for any number of draws, and take fewer here. And each process of the tests has a
core to itself: with tables this small, threads mostly wait for one another.
"""

import os

# Before numpy and joblib are imported; processes that tests start inherit it.
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if os.name == "posix":  # workers of a cluster are forked, see ``forks`` in tests/conftest.py
    os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")

from importlib.util import find_spec
from pathlib import Path

from onebit.certificates import directions, gibbs_risk
from onebit.completers import efforts
from onebit.engine.sampling.plan import Plan

efforts.EFFORTS["default"] = (6.0, 60)
efforts.TRIAL = Plan(n_samples=15, n_burn_in=5, n_chains=2)
gibbs_risk.TARGET = directions.TARGET = 0.004

if find_spec("torch") is None or find_spec("triton") is None:
    light = {"__init__.py", "device.py"}
    folder = Path(__file__).parent / "src" / "onebit" / "engine" / "gpu"
    collect_ignore_glob = ["tests/gpu"] + [
        f"src/onebit/engine/gpu/{module.name}"
        for module in folder.glob("*.py")
        if module.name not in light
    ]
