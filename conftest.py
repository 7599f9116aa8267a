"""Without torch and Triton (``pip install onebit[gpu]``) the GPU's modules and tests are left out."""

from importlib.util import find_spec

if find_spec("torch") is None or find_spec("triton") is None:
    modules = ("data", "intake", "kernels", "predict", "prediction_kernels", "side", "sorting", "start")
    collect_ignore_glob = ["tests/gpu"] + [
        f"src/onebit/gpu/{name}.py" for name in (*modules, "transfer", "workers")
    ]
