"""The part on GPUs of the page of benchmarks, between two marks."""

from __future__ import annotations

import datetime
from typing import Any

from onebit.study.page import markdown

PART = "gpu"

INTRODUCTION = """The same fits on a GPU: `LogisticCompleter(device="cuda")`. Times are warm (compiled
before), synchronised, medians; a round is the time between two calls of the callback. A whole fit goes
from arrays in the host's memory (codes of 32 bits, signs of 8) to a model in the host's memory: copying,
coding the ids, sorting twice, the start, the rounds, copying back. The floor of a kernel is the bytes
that it has to read and write, every line of the other side's table once for each answer, over the speed
of a plain copy in the GPU's memory; where tables fit the caches a kernel can be faster than that. Up to
K = 11 a thread holds a system of `solve` whole; larger ones are spread over the threads of a warp, which
then pass numbers to each other most of the time."""


def part(result: dict[str, Any]) -> list[str]:
    """Return what the page says."""
    there = result["machine"]
    parts = [
        "## On a GPU",
        f"Made by `make bench-gpu` on {datetime.datetime.now(datetime.UTC).date()}: {there['gpu']} (a "
        f"copy reads and writes {there['copy_tb_s']:.2f} TB/s), {there['cpu']}, torch {there['torch']}.",
        INTRODUCTION,
    ]
    for name, section in (
        ("made-20m", _made),
        ("billion", _billion),
        ("half-bytes", _half_bytes),
        ("ten-billion", _ten_billion),
        ("streamed", _streamed),
        ("growth", _growth),
    ):
        if name in result:
            parts += section(result[name])
    return parts


def _made(found: dict[str, Any]) -> list[str]:
    whole, cpu, goal = found["whole"], found["cpu"], found["to_libmf"]
    rounds = found["rounds"]
    body = [
        ["GPU", _ms(whole["round_ms"]), str(whole["rounds"]), f"{whole['seconds']:.2f} s", *_fits(whole)],
        ["the same machine's CPU", _ms(cpu["round_ms"]), str(cpu["rounds"]), f"{cpu['seconds']:.1f} s",
         *_fits(cpu)],
    ]  # fmt: skip
    reached = (
        f"LIBMF's final accuracy (0.7223 above) is reached after {goal['rounds']} rounds, by a fit that "
        f"takes {goal['seconds']:.3f} s from arrays in the host's memory to a model "
        f"({goal['accuracy']:.4f})."
        if goal
        else "LIBMF's final accuracy was not reached."
    )
    kernels = [
        [
            str(line["rank"]), line["kernel"], line["side"], _ms(line["ms"]), f"{line['gigabytes']:.2f}",
            _ms(line["floor_ms"]), f"{line['ms'] / line['floor_ms']:.1f}",
        ]
        for line in found["kernels"]
    ]  # fmt: skip
    ranks = [
        [
            str(line["rank"]), _ms(line["round_ms"]),
            _ms(line["diagonal_ms"]) if "diagonal_ms" in line else "",
            f"{line['peak_gb']:.1f}",
        ]
        for line in found["ranks"]
    ]  # fmt: skip
    return [
        "### made, the size of MovieLens 20M",
        f"19 million answers for the fit, 1 million for the test, K = 10. {reached} With the answers on "
        f"the device a round takes {rounds['round_ms']:.2f} ms, the start {1e3 * rounds['start_s']:.0f} "
        f"ms; the GPU's memory peaks at {whole['peak_gb']:.1f} GB.",
        markdown(["", "round", "rounds", "whole fit", "accuracy", "log-loss"], body),
        "The kernels of a pass, by rank:",
        markdown(["K", "kernel", "side", "time", "GB moved", "floor", "times the floor"], kernels),
        "A round by rank, full covariances and independent coordinates:",
        markdown(["K", "round, full", "round, diagonal", "peak GB"], ranks),
    ]


def _billion(found: dict[str, Any]) -> list[str]:
    whole, guess = found["whole"], found["prediction"]
    tail = whole["seconds"] - whole["last_round_after"]
    scores, moments = guess["scores"], guess["moments"]
    return [
        "### A billion answers, 10 million x 1 million, K = 10",
        f"Power-law rows and columns. A round takes {whole['round_ms']:.0f} ms, the whole fit "
        f"{whole['seconds']:.1f} s with {whole['rounds']} rounds: {whole['first_round_after']:.1f} s "
        f"until the first is done (copying, coding, sorting, the start), {tail:.1f} s after the last "
        f"(copying back). The GPU's memory peaks at {whole['peak_gb']:.0f} GB. On a million fresh "
        f"entries: accuracy {whole['accuracy']:.4f}, log-loss {whole['log_loss']:.4f}; the true "
        f"probabilities reach {whole['best_accuracy']:.4f} and {whole['best_log_loss']:.4f}.",
        f"Predictions of that model, on the device: the scores of {guess['pairs']:,} random pairs in "
        f"{scores['ms']:.1f} ms (floor {scores['floor_ms']:.1f}), their means and variances in "
        f"{moments['ms']:.0f} ms (floor {moments['floor_ms']:.0f}), from and to the host in "
        f"{guess['from_host_s']:.2f} s. The ten best columns of all 10 million rows, 10^13 scores, in "
        f"{guess['top_ten_s']:.1f} s; to write every score and read it once would take "
        f"{guess['top_ten_floor_s']:.1f} s.",
    ]


def _half_bytes(found: dict[str, Any]) -> list[str]:
    whole, halved = found["whole"], found["halved"]
    rise = (
        "nowhere in these rounds does the objective rise"
        if halved["rise"] <= 0.0
        else f"the objective rises by {halved['rise']:.1e} of itself at most"
    )
    return [
        "### Half the bytes",
        f"Ten rounds to a billion answers, from tables in single precision {whole['round_ms']:.0f} ms a "
        f"round (peak {whole['peak_gb']:.1f} GB), from tables of sixteen-bit integers, which are taken "
        f"where a table does not fit the cache, {halved['round_ms']:.0f} ms (peak "
        f"{halved['peak_gb']:.1f} GB). Scores of two million random pairs move by "
        f"{found['moved']:.0e} of their standard deviation on average and {found['moved_most']:.0e} at "
        f"most; {rise}.",
    ]


def _ten_billion(found: dict[str, Any]) -> list[str]:
    return [
        "### Ten billion answers, 10 million x 1 million, K = 10",
        f"Made on the device, a thousand answers a row. A round takes {found['round_ms'] / 1e3:.2f} s, "
        f"the fit {found['seconds']:.1f} s with {found['rounds']} rounds (the start "
        f"{found['start_s']:.1f} s), copying the model to the host included; the GPU's memory peaks at "
        f"{found['peak_gb']:.0f} GB. On a million fresh entries: accuracy {found['accuracy']:.4f}; the "
        f"true probabilities reach {found['best_accuracy']:.4f}.",
    ]


def _streamed(found: dict[str, Any]) -> list[str]:
    rows, columns = found["shape"]
    resident, streamed = found["resident"], found["streamed"]
    return [
        "### Answers that stay in the host's memory",
        f"{found['n']:,} answers, {rows:,} x {columns:,}, K = 10: {resident['round_ms']:.1f} ms a round "
        f"in the GPU's memory (peak {resident['peak_gb']:.1f} GB), {streamed['round_ms']:.1f} ms "
        f"streamed from the host's (peak {streamed['peak_gb']:.1f} GB). Such answers are sorted by the "
        "CPU first.",
    ]


def _growth(found: list[dict[str, Any]]) -> list[str]:
    body = [
        [
            f"{line['n']:,}", _ms(line["round_ms"]), f"{1e6 * line['round_ms'] / (2 * line['n']):.2f}",
            f"{line['start_s']:.2f} s",
        ]
        for line in found
    ]  # fmt: skip
    return [
        "### Growth with the answers",
        "80 answers a row and 160 a column on average, power laws, K = 10. A round of few answers is the "
        "host's own work, some 2 ms.",
        markdown(["answers", "round", "ns per answer and side", "start"], body),
    ]


def _ms(value: float) -> str:
    return f"{value:.2f} ms" if value < 10 else f"{value:.0f} ms"


def _fits(found: dict[str, Any]) -> list[str]:
    return [f"{found['accuracy']:.4f}", f"{found['log_loss']:.4f}"]
