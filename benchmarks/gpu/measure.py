"""What is measured: times warm, synchronised, medians."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import log_loss

from benchmarks.gpu.worlds import Truth, power_law_entries, regular_views
from benchmarks.peers.matrices import MATRICES, Entries, make
from onebit import LogisticCompleter, Observations
from onebit.data.ids import IdIndex
from onebit.engine.crew import Progress
from onebit.engine.descent import Fit, Schedule, minimise
from onebit.engine.gpu import side
from onebit.engine.gpu.data import DeviceView
from onebit.engine.gpu.layout import LineLayout
from onebit.engine.gpu.memory import state_bytes
from onebit.engine.gpu.predict import TopFinder, on_device
from onebit.engine.gpu.side import DeviceSide
from onebit.engine.gpu.sorting import sorted_views
from onebit.engine.gpu.workers import Gpu
from onebit.engine.scoring import score_moments
from onebit.model.gaussians import packed_size
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import LOGISTIC
from onebit.model.priors import InverseGamma

RANK = 10
# With which LIBMF ends on the made matrix of the size of MovieLens 20M, see the peers' part of the page.
LIBMF = 0.7223
MANY = (10_000_000, 1_000_000)
SIDES = ("row", "column")

Result = dict[str, Any]


def clear() -> None:
    """Give back what is not used any more, and start counting memory anew."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def peak() -> float:
    """Return the peak of the GPU's memory in gigabytes."""
    return torch.cuda.max_memory_allocated() / 1e9


def median_ms(work: Callable[[], object], repeats: int = 5) -> float:
    """Return the median time of some work on the device, in milliseconds, after one warm-up."""
    work()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return float(np.median(times))


def bandwidth(device: torch.device) -> float:
    """Return the terabytes a second that a copy reads and writes together."""
    source = torch.randn(2**30, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / median_ms(lambda: target.copy_(source)) / 1e9


def hierarchy_of(shape: tuple[int, int], rank: int) -> Hierarchy:
    """Return the prior of ``LogisticCompleter(rank)``."""
    prior = InverseGamma(1.0, 0.5 * 0.03 * sum(shape))
    return Hierarchy(shape, rank, True, True, prior, InverseGamma(1.0, 1.0), factor_means=True)


def bare_observations(shape: tuple[int, int], n: int) -> Observations:
    """Return observations that say how large they are; their answers are elsewhere."""
    rows, columns = (IdIndex(pd.RangeIndex(size), name) for size, name in zip(shape, SIDES, strict=True))
    return Observations.from_loose(rows, columns, _Elsewhere(n))


class _Elsewhere:
    """Answers of which only the number is known."""

    weight = None

    def __init__(self, n: int) -> None:
        self.sign = range(n)


class Clock:
    """Notes when rounds end; synchronised, since the objective is read on the host."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.ends: list[float] = []

    def __call__(self, progress: Progress) -> None:
        self.ends.append(time.perf_counter() - self.begin)

    @property
    def round_ms(self) -> float:
        """The median time from one end to the next."""
        return 1e3 * float(np.median(np.diff(self.ends))) if len(self.ends) > 1 else float("nan")


def descended(
    views: tuple[DeviceView, DeviceView],
    rank: int,
    rounds: int,
    tol: float = 1e-5,
    full: bool = True,
    seed: int = 0,
) -> tuple[Fit, Clock, float, float]:
    """Fit to views on the device; return fit, clock, seconds of the start and seconds in all."""
    device = views[0].device
    gpu = Gpu(device, 1)
    shape = views[0].size, views[1].size
    seen = bare_observations(shape, int(views[0].start[-1]))
    gpu.hold(seen, views)
    hierarchy = hierarchy_of(shape, rank)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    start = gpu.start(seen, hierarchy, np.random.default_rng(seed))
    torch.cuda.synchronize()
    started = time.perf_counter() - begin
    clock = Clock()
    fit = minimise(
        seen, hierarchy, LOGISTIC, start, full=full, temperature=1.0, schedule=Schedule(rounds, tol),
        workers=gpu, callback=clock,
    )  # fmt: skip
    return fit, clock, started, time.perf_counter() - begin


def passes(
    views: tuple[DeviceView, DeviceView], rank: int, speed: float, repeats: int = 5
) -> list[Result]:
    """Time the two kernels of a pass on either side, beside the bytes that they have to move."""
    shape = views[0].size, views[1].size
    hierarchy = hierarchy_of(shape, rank)
    device = views[0].device
    sides = []
    for k, view in enumerate(views):
        mean = torch.randn((view.size, rank + 1), dtype=torch.float64, device=device) * 0.3
        sides.append(DeviceSide.independent(mean, 0.1, True, hierarchy, k, view))
    hyper = hierarchy.update((sides[0].sums(), sides[1].sums()), None)
    found = []
    layout = LineLayout(rank)
    for k, mine in enumerate(sides):
        prior = hierarchy.precision_and_linear(k, hyper, mine.sums())

        def work(mine: DeviceSide = mine, prior: Any = prior, other: DeviceSide = sides[1 - k]) -> None:
            mine.pass_over(other.table, prior, 1.0, LOGISTIC)

        both = median_ms(work, repeats)
        solve, DeviceSide._solve = DeviceSide._solve, _nothing
        walk = median_ms(work, repeats)
        DeviceSide._solve = solve
        view = views[k]
        n, chunks = int(view.start[-1]), view.n_chunks
        line = 4 * layout.size if isinstance(sides[1 - k].table, torch.Tensor) else 2 * layout.size + 2
        walked = n * (4 + line) + chunks * 4 * (layout.size + layout.partial)
        state = 8 * (packed_size(rank + 1) + 2 * (rank + 1) + 1)
        solved = chunks * 4 * layout.partial + view.size * (state + 4 * layout.size)
        for name, ms, moved in (("walk", walk, walked), ("solve", both - walk, solved)):
            found.append(
                {
                    "rank": rank, "side": ("rows", "columns")[k], "kernel": name, "ms": ms,
                    "gigabytes": moved / 1e9, "floor_ms": moved / speed / 1e9,
                }
            )  # fmt: skip
    return found


def _nothing(*_: Any) -> None:
    """Solve no system."""


def quality(probability: np.ndarray[Any, Any], sign: np.ndarray[Any, Any]) -> Result:
    """Return accuracy and log-loss of probabilities of a "yes"."""
    return {
        "accuracy": float(((probability > 0.5) == (sign > 0)).mean()),
        "log_loss": float(log_loss(sign > 0, probability)),
    }


def made_20m(device: torch.device, speed: float, tell: Callable[[str], None]) -> Result:
    """Measure the made matrix of the size of MovieLens 20M: rounds, whole fits, kernels, ranks, CPU."""
    matrix = MATRICES["made-20m"]
    entries, _ = make(matrix.shape, matrix.n, matrix.seed)
    order = np.random.default_rng(0).permutation(matrix.n)
    test, train = entries.take(order[: matrix.n_test]), entries.take(order[matrix.n_test :])
    pairs, answers = pd.DataFrame({"row": train.rows, "column": train.columns}), train.signs
    asked = pd.DataFrame({"row": test.rows, "column": test.columns})
    result: Result = {}

    def fitted(kind: str, **settings: Any) -> tuple[Result, LogisticCompleter]:
        clock = Clock()
        model = LogisticCompleter(RANK, random_state=0, device=kind, **settings)
        model.fit(pairs, answers, callback=clock)
        seconds = time.perf_counter() - clock.begin
        return {
            "seconds": seconds, "rounds": model.n_iter_, "round_ms": clock.round_ms,
            "first_round_after": clock.ends[0],
        } | quality(model.predict_proba(asked)[:, 1], test.signs), model  # fmt: skip

    def median(**settings: Any) -> Result:
        """Of three fits, that of the middle one: a busy host makes single ones slow."""
        repeats = [fitted("cuda", **settings)[0] for _ in range(3)]
        return sorted(repeats, key=lambda each: each["seconds"])[1]

    fitted("cuda", max_iter=2)  # compiles
    clear()
    result["whole"] = median() | {"peak_gb": peak()}
    tell(f"20M whole fit {result['whole']}")
    result["course"] = []
    for rounds in (1, 2, 3, 4, 5, 6, 8, 10):
        result["course"].append(median(max_iter=rounds, tol=1e-12) | {"rounds": rounds})
    reached = [each for each in result["course"] if each["accuracy"] >= LIBMF]
    result["to_libmf"] = reached[0] if reached else None
    tell(f"20M to LIBMF's accuracy {result['to_libmf']}")
    codes = [torch.from_numpy(part).to(device) for part in train]
    views = sorted_views(*codes, torch.empty(0, device=device), matrix.shape)
    _, clock, started, _ = descended(views, RANK, 30, 1e-12)
    result["rounds"] = {"round_ms": clock.round_ms, "start_s": started}
    tell(f"20M rounds {result['rounds']}")
    result["kernels"], result["ranks"] = [], []
    for rank in (10, 32, 64):
        result["kernels"] += passes(views, rank, speed, 3)
        tell(f"kernels {result['kernels'][-4:]}")
    for rank in (2, 5, 10, 16, 20, 32, 48, 64):
        clear()
        _, clock, _, _ = descended(views, rank, 7, 1e-12)
        line = {"rank": rank, "round_ms": clock.round_ms, "peak_gb": peak()}
        if rank in (10, 32, 64):
            _, clock, _, _ = descended(views, rank, 7, 1e-12, full=False)
            line["diagonal_ms"] = clock.round_ms
        result["ranks"].append(line)
        tell(f"rank {line}")
    del views, codes
    result["cpu"] = cpu_20m(pairs, answers, asked, test)
    tell(f"CPU {result['cpu']}")
    return result


def cpu_20m(pairs: Any, answers: Any, asked: Any, test: Entries) -> Result:
    """Measure the same matrix on the CPU of this machine, all its cores."""
    small = slice(0, 100_000)
    LogisticCompleter(RANK, max_iter=2).fit(pairs[small], answers[small])  # compiles
    clock = Clock()
    model = LogisticCompleter(RANK, random_state=0).fit(pairs, answers, callback=clock)
    seconds = time.perf_counter() - clock.begin
    return {"seconds": seconds, "rounds": model.n_iter_, "round_ms": clock.round_ms} | quality(
        model.predict_proba(asked)[:, 1], test.signs
    )


def growth(device: torch.device, tell: Callable[[str], None]) -> list[Result]:
    """Measure a round at growing numbers of answers, 80 a row and 160 a column, K = 10."""
    found = []
    for n in (10**5, 10**6, 10**7, 10**8, 10**9):
        clear()
        shape = n // 80, n // 160
        truth = Truth.drawn(shape, device, 0)
        views = sorted_views(
            *power_law_entries(truth, n, device, 1), torch.empty(0, device=device), shape
        )
        _, clock, started, _ = descended(views, RANK, 9, 1e-12)
        found.append({"n": n, "round_ms": clock.round_ms, "start_s": started})
        tell(f"growth {found[-1]}")
    return found


def billion(device: torch.device, speed: float, tell: Callable[[str], None]) -> Result:
    """Measure a billion answers from arrays in the host's memory, and predictions of that model."""
    n = 1_000_000_000
    truth = Truth.drawn(MANY, device, 0)
    codes = power_law_entries(truth, n, device, 1)
    rows, columns, sign = (part.cpu().numpy() for part in codes)
    del codes
    clear()
    result: Result = {"n": n, "shape": MANY}
    pairs = pd.DataFrame({"row": rows, "column": columns}, copy=False)
    clock = Clock()
    model = LogisticCompleter(RANK, random_state=0, device="cuda")
    model.fit(pairs, sign, callback=clock)
    result["whole"] = {
        "seconds": time.perf_counter() - clock.begin, "rounds": model.n_iter_,
        "round_ms": clock.round_ms, "first_round_after": clock.ends[0],
        "last_round_after": clock.ends[-1], "peak_gb": peak(), "rank": model.rank_,
    }  # fmt: skip
    result["whole"] |= held_out(model, truth, device)
    tell(f"billion {result['whole']}")
    result["prediction"] = predictions(model, device, speed)
    tell(f"prediction {result['prediction']}")
    return result


def half_bytes(device: torch.device, tell: Callable[[str], None]) -> Result:
    """Compare ten rounds to a billion answers from whole tables with those from halved ones."""
    truth = Truth.drawn(MANY, device, 0)
    codes = power_law_entries(truth, 1_000_000_000, device, 1)
    views = sorted_views(*codes, torch.empty(0, device=device), MANY)
    del truth, codes
    generator = torch.Generator(device=device).manual_seed(5)
    pairs = [
        torch.randint(size, (2_000_000,), device=device, generator=generator, dtype=torch.int32)
        for size in MANY
    ]
    result: Result = {"n": int(views[0].start[-1]), "shape": MANY}
    moments = []
    pays = side.pays
    for name in ("whole", "halved"):
        side.pays = pays if name == "halved" else _never
        clear()
        fit, clock, _, _ = descended(views, RANK, 10, 1e-12)
        result[name] = {
            "round_ms": clock.round_ms, "peak_gb": peak(), "objective": fit.objective,
            "rise": float((np.diff(fit.path) / fit.path[:-1]).max()),
        }  # fmt: skip
        moments.append(on_device(fit.posterior, device).moments(*pairs, True))
        del fit
    side.pays = pays
    (mean, variance), (other, _) = moments
    moved = (other - mean).abs() / variance.sqrt()
    result |= {"moved": float(moved.mean()), "moved_most": float(moved.max())}
    tell(f"half the bytes {result}")
    return result


def _never(*_: Any) -> bool:
    """Halve no table."""
    return False


def streamed(device: torch.device, tell: Callable[[str], None]) -> Result:
    """Compare the rounds of answers in the GPU's memory with those of answers left in the host's."""
    n, shape = 200_000_000, (2_000_000, 200_000)
    truth = Truth.drawn(shape, device, 0)
    rows, columns, sign = (part.cpu().numpy() for part in power_law_entries(truth, n, device, 1))
    del truth
    hierarchy = hierarchy_of(shape, RANK)
    ids = (IdIndex(pd.RangeIndex(size), name) for size, name in zip(shape, SIDES, strict=True))
    seen = Observations.from_codes(*ids, rows, columns, sign)
    assert seen.by_row.size == shape[0]  # sorted here
    result: Result = {"n": n, "shape": shape}
    little = state_bytes(shape, n, hierarchy, True) + 2**30
    for name, memory in (("resident", None), ("streamed", little)):
        clear()
        gpu = Gpu(device, 1, memory)
        start = gpu.start(seen, hierarchy, np.random.default_rng(0))
        clock = Clock()
        minimise(
            seen, hierarchy, LOGISTIC, start, full=True, temperature=1.0, schedule=Schedule(9, 1e-12),
            workers=gpu, callback=clock,
        )  # fmt: skip
        result[name] = {"round_ms": clock.round_ms, "peak_gb": peak()}
        del gpu, start
        tell(f"{name} {result[name]}")
    return result


def held_out(model: LogisticCompleter, truth: Truth, device: torch.device) -> Result:
    """Return accuracy and log-loss on a million fresh entries, beside those of the truth."""
    fresh = power_law_entries(truth, 1_000_000, device, 2)
    yes = truth.probability(fresh[0], fresh[1]).cpu().numpy()
    rows, columns, sign = (part.cpu().numpy() for part in fresh)
    found = model.predict_proba(pd.DataFrame({"row": rows, "column": columns}))[:, 1]
    best = quality(yes, sign)
    return quality(found, sign) | {f"best_{name}": value for name, value in best.items()}


def predictions(model: LogisticCompleter, device: torch.device, speed: float) -> Result:
    """Measure scores of pairs, and the ten best columns of every row."""
    n = 100_000_000
    generator = torch.Generator(device=device).manual_seed(3)
    there = on_device(model.posterior_, device)
    rows, columns = (
        torch.randint(size, (n,), device=device, generator=generator, dtype=torch.int32) for size in MANY
    )
    free = RANK + 1
    result: Result = {"pairs": n}
    for name, variance, line in (
        ("scores", False, 16 * free + 16),
        ("moments", True, 16 * (free + packed_size(free)) + 24),
    ):
        ms = median_ms(partial(there.moments, rows, columns, variance), 3)
        result[name] = {"ms": ms, "floor_ms": n * line / speed / 1e9}
    codes = [part.cpu().numpy() for part in (rows, columns)]
    del rows, columns
    begin = time.perf_counter()
    score_moments(model.posterior_, *codes, None, "cuda")
    result["from_host_s"] = time.perf_counter() - begin
    finder = TopFinder(there, 10)
    every = torch.arange(MANY[0], device=device)
    finder.find(every[: finder.rows_at_once])
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for first in range(0, MANY[0], finder.rows_at_once):
        finder.find(every[first : first + finder.rows_at_once])
    torch.cuda.synchronize()
    result["top_ten_s"] = time.perf_counter() - begin
    # Writing every score once and reading it once.
    result["top_ten_floor_s"] = MANY[0] * MANY[1] * 8 / speed / 1e12
    return result


def ten_billion(device: torch.device, tell: Callable[[str], None]) -> Result:
    """Fit ten billion answers that are made on the device."""
    clear()
    truth = Truth.drawn(MANY, device, 0)
    begin = time.perf_counter()
    views = regular_views(truth, 1000, device)
    torch.cuda.synchronize()
    made = time.perf_counter() - begin
    fit, clock, started, seconds = descended(views, RANK, 30)
    result = {
        "n": int(views[0].start[-1]), "made_s": made, "start_s": started, "seconds": seconds,
        "rounds": fit.n_iter, "round_ms": clock.round_ms, "peak_gb": peak(),
        "rank": fit.posterior.effective_rank,
    }  # fmt: skip
    del views
    clear()
    generator = torch.Generator(device=device).manual_seed(4)
    rows, columns = (
        torch.randint(size, (1_000_000,), device=device, generator=generator, dtype=torch.int32)
        for size in MANY
    )
    yes = truth.probability(rows, columns)
    sign = torch.where(torch.rand(len(yes), device=device, generator=generator) < yes, 1, -1)
    mean = on_device(fit.posterior, device).moments(rows, columns, False)[0].cpu().numpy()
    result["accuracy"] = float(((mean > 0) == (sign.cpu().numpy() > 0)).mean())
    result["best_accuracy"] = float(((yes > 0.5) == (sign > 0)).float().mean())
    tell(f"ten billion {result}")
    return result
