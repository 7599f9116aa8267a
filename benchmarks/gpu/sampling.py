"""The sampler on a GPU: the time of a sweep, and of a sampled model of a billion answers.

    python -m benchmarks.gpu.sampling --output docs/sampling-gpu.md

Times are means of warm, synchronised sweeps of one chain, in one run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from onebit import LogisticCompleter
from onebit.engine.sampling.chain import Chain
from onebit.study.page import markdown

SHAPE, N = (138_493, 26_744), 20_000_000
MANY, BILLION = (10_000_000, 1_000_000), 1_000_000_000
RANKS = (10, 20, 32)
SWEEPS = 60

TEXT = """Made by `python -m benchmarks.gpu.sampling` on {gpu} with torch {torch}. One chain of
`LogisticCompleter(K, inference="sampling", device="cuda")` without the pattern, answers at random.
A sweep is everything from its begin to that of the next: the draws of all rows and of all columns,
variances, moves and what is watched. In every second one the move of the whole walks the answers
twice more. The host's work does not grow with the answers; part of it is done while the GPU walks.
Means of the last three quarters of {sweeps} sweeps; few draws are kept.

Twenty million answers, 138,493 x 26,744:
"""


def answers(shape: tuple[int, int], n: int) -> tuple[pd.DataFrame, Any]:
    """Return answers at random: who asks how long a sweep takes does not ask what it finds."""
    rng = np.random.default_rng(0)
    rows = rng.integers(shape[0], size=n, dtype=np.int32)
    columns = (rng.random(n, dtype=np.float32) ** 1.5 * (shape[1] - 1)).astype(np.int32)
    signs = (rng.integers(2, size=n, dtype=np.int8) * 2 - 1).astype(np.int8)
    return pd.DataFrame({"row": rows, "column": columns}, copy=False), signs


class Watch:
    """Notes when the sweeps of the chain begin that a fit makes."""

    def __init__(self) -> None:
        self.begun: list[float] = []

    def __enter__(self) -> Watch:
        self.before = Chain.step

        def noted(chain: Any) -> None:
            self.begun.append(time.perf_counter())
            self.before(chain)

        Chain.step = noted  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        Chain.step = self.before  # type: ignore[method-assign]

    @property
    def milliseconds(self) -> float:
        """From one begin to the next, on average: every second sweep has a move more than the others."""
        late = self.begun[len(self.begun) // 8 * 2 :]
        pairs_of_sweeps = late[: (len(late) - 1) // 2 * 2 + 1]
        return 1e3 * (pairs_of_sweeps[-1] - pairs_of_sweeps[0]) / (len(pairs_of_sweeps) - 1)


def swept(
    shape: tuple[int, int], n: int, rank: int, sweeps: int, device: str, keep_mb: int
) -> tuple[float, float]:
    """Return the milliseconds of a sweep, and the seconds of the whole fit."""
    pairs, signs = answers(shape, n)
    begin = time.perf_counter()
    with Watch() as watch:
        LogisticCompleter(
            rank, inference="sampling", n_samples=sweeps, n_burn_in=2, n_chains=1, max_iter=5,
            random_state=0, device=device, pattern=None, keep_mb=keep_mb,
        ).fit(pairs, signs)  # fmt: skip
    return watch.milliseconds, time.perf_counter() - begin


def page(lines: list[list[str]], whole: tuple[float, float] | None, about: dict[str, str]) -> str:
    """Return the page."""
    body = markdown(["K", "a sweep, ms"], lines)
    parts = ["# Sampling on a GPU", TEXT.format(**about, sweeps=SWEEPS).strip(), body]
    if whole is not None:
        parts.append(
            f"A billion answers, 10 million x 1 million, K = 10: {whole[0]:.0f} ms a sweep, "
            f"kept draws brought to the host; 200 draws from arrays in the host's memory to a "
            f"model in {whole[1]:.0f} s, five rounds of descent before them."
        )
    return "\n\n".join(parts) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the page to write")
    parser.add_argument("--answers", type=int, default=N, help="of the smaller table")
    parser.add_argument("--no-billion", action="store_true")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args(argv)
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    about, lines = {"gpu": name, "torch": torch.__version__}, []
    for rank in RANKS:
        found = swept(SHAPE, arguments.answers, rank, SWEEPS, arguments.device, keep_mb=16)
        lines.append([str(rank), f"{found[0]:.1f}"])
        print(f"K = {rank}: {found}", flush=True)
        arguments.output.write_text(page(lines, None, about), encoding="utf-8")
    whole = None
    if not arguments.no_billion:
        whole = swept(MANY, BILLION, 10, 200, arguments.device, keep_mb=2048)
        print(f"a billion: {whole}", flush=True)
    arguments.output.write_text(page(lines, whole, about), encoding="utf-8")


if __name__ == "__main__":
    main()
