"""One process, one contestant: fit, time, predict, and write what was measured.

    python -m benchmarks.peers.worker TASK.json RESULT.json

Nothing is read from its standard output: some libraries print there.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.peers.contestants import CONTESTANTS, Prediction
from benchmarks.peers.matrices import MATRICES

SMALLEST_PROBABILITY = 1e-7  # single precision


def peak_megabytes() -> float:
    """Return the largest resident size of this process so far.

    Linux hands the size of the process that started this one on to ``getrusage``, so ask elsewhere.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        (line,) = (text for text in status.read_text().splitlines() if text.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset / 1e6
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def log_loss(probabilities: NDArray[Any], signs: NDArray[np.int8]) -> float:
    """Return the mean logarithmic loss."""
    right = np.where(signs > 0, probabilities, 1.0 - probabilities)
    return float(-np.log(np.clip(right, SMALLEST_PROBABILITY, 1.0)).mean())


def fitted_curve(scores: NDArray[Any], signs: NDArray[np.int8]) -> list[float]:
    """Return slope and intercept of the logistic curve through scores and answers (Platt's scaling)."""
    from sklearn.linear_model import LogisticRegression

    spread = float(scores.std()) or 1.0
    found = LogisticRegression(C=1e6).fit(scores[:, None] / spread, signs > 0)
    return [float(found.coef_[0, 0]) / spread, float(found.intercept_[0])]


def judged(
    found: Prediction, signs: NDArray[np.int8], curve: list[float] | None, needs_curve: bool
) -> dict[str, float]:
    """Return accuracy and log-loss; without probabilities, the log-loss is that of the curve, if any."""
    if not np.isfinite(found.scores).all():
        raise FloatingPointError("some scores are not finite")
    scaled = found.scores if curve is None else curve[0] * found.scores + curve[1]
    decisive = scaled if needs_curve else found.scores
    result = {"accuracy": float(((decisive > 0) == (signs > 0)).mean())}
    if found.probabilities is not None:
        result["log_loss"] = log_loss(found.probabilities, signs)
    if curve is not None:
        result["scaled_log_loss"] = log_loss(expit(scaled), signs)
    return result


def run(task: dict[str, Any], cache: Path) -> dict[str, Any]:
    """Fit the contestant on every split of the matrix, for each number of iterations asked for."""
    kind, matrix = CONTESTANTS[task["contestant"]], MATRICES[task["matrix"]]
    validation = task.get("validation", False)
    numbers = ["validation"] if validation else range(matrix.splits)
    points: list[dict[str, Any]] = []
    before = peak = 0.0
    for iterations in task["ladder"] or [None]:
        limit = {} if iterations is None else {"iterations": iterations}
        fits: list[dict[str, Any]] = []
        for number in numbers:
            split = matrix.split(cache, number)
            signs = split.test.signs
            contestant = kind(matrix.shape, task["threads"], task["settings"] | limit)
            contestant.prepare(split.train, split.test)
            del split  # what a contestant does not keep is not in its memory
            gc.collect()
            before = max(before, psutil.Process().memory_info().rss / 1e6)
            begin = time.perf_counter()
            contestant.fit()
            seconds = time.perf_counter() - begin
            peak = max(peak, peak_megabytes())
            found = contestant.predict()
            curve = fitted_curve(found.scores, signs) if validation else task["curve"]
            fit = judged(found, signs, curve, kind.needs_curve)
            fits.append(fit | {"seconds": seconds, "iterations": contestant.iterations()})
            if validation:
                fits[-1]["curve"] = curve
            del contestant, found
        points.append({name: [fit[name] for fit in fits] for name in fits[0]})
        if task.get("until") is not None and np.mean(points[-1]["accuracy"]) >= task["until"]:
            break
    return {"points": points, "peak_mb": peak, "before_mb": before}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the task of a file and write its result to another."""
    task, result = (Path(name) for name in (sys.argv[1:] if argv is None else argv))
    content = json.loads(task.read_text(encoding="utf-8"))
    try:
        outcome = run(content, task.parent)
    except Exception as error:  # told on the page; the other contestants go on
        outcome = {"error": f"{type(error).__name__}: {error}"}
    result.write_text(json.dumps(outcome), encoding="utf-8")


if __name__ == "__main__":
    main()
