"""Measure on the GPU of this machine, and write the page's part on it.

make bench-gpu
python -m benchmarks.gpu --only made-20m,growth      # some of it
python -m benchmarks.gpu --draw build/gpu.json       # the page alone, from what was measured elsewhere
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.page import PART, part
from benchmarks.parts import write_part

PARTS = ("made-20m", "growth", "streamed", "billion", "half-bytes", "ten-billion")


def measured(only: list[str], keep: Path) -> dict[str, Any]:
    """Measure the parts asked for, and keep each as soon as it is there."""
    import torch

    from benchmarks.gpu import measure
    from benchmarks.peers.machine import machine
    from onebit.engine.gpu.device import find

    begin = time.perf_counter()

    def tell(text: str) -> None:
        print(f"[{time.perf_counter() - begin:6.1f} s] {text}", file=sys.stderr, flush=True)

    device = find("cuda")
    speed = measure.bandwidth(device)
    result: dict[str, Any] = json.loads(keep.read_text()) if keep.is_file() else {}
    result["machine"] = {
        "gpu": torch.cuda.get_device_name(device), "cpu": machine(), "torch": torch.__version__,
        "copy_tb_s": speed,
    }  # fmt: skip
    parts: dict[str, Callable[[], Any]] = {
        "made-20m": lambda: measure.made_20m(device, speed, tell),
        "growth": lambda: measure.growth(device, tell),
        "streamed": lambda: measure.streamed(device, tell),
        "billion": lambda: measure.billion(device, speed, tell),
        "half-bytes": lambda: measure.half_bytes(device, tell),
        "ten-billion": lambda: measure.ten_billion(device, tell),
    }
    for name in only:
        measure.clear()
        result[name] = parts[name]()
        keep.parent.mkdir(parents=True, exist_ok=True)
        keep.write_text(json.dumps(result, indent=1))
        tell(f"{name} done")
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--keep", type=Path, default=Path("build/gpu.json"), help="the numbers, as JSON")
    parser.add_argument("--draw", type=Path, help="write the page from these numbers, measure nothing")
    parser.add_argument("--output", type=Path, help="the page to write the part into")
    arguments = parser.parse_args(argv)
    only = arguments.only.split(",")
    unknown = [name for name in only if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; there are {', '.join(PARTS)}")
    result = json.loads(arguments.draw.read_text()) if arguments.draw else measured(only, arguments.keep)
    if arguments.output is not None:
        write_part(arguments.output, PART, part(result))


if __name__ == "__main__":
    main()
