"""Without torch and Triton (``pip install onebit[gpu]``) the GPU's modules and tests are left out.

Tests of AutoCompleter ask what it does, not how well it has sampled: they sample less.
"""

from importlib.util import find_spec
from pathlib import Path

from onebit.completers.efforts import EFFORTS

EFFORTS["default"] = (3.0, 60)

if find_spec("torch") is None or find_spec("triton") is None:
    light = {"__init__.py", "device.py"}
    folder = Path(__file__).parent / "src" / "onebit" / "engine" / "gpu"
    collect_ignore_glob = ["tests/gpu"] + [
        f"src/onebit/engine/gpu/{module.name}"
        for module in folder.glob("*.py")
        if module.name not in light
    ]
