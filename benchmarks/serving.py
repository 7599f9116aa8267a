"""A served model under load, under fire and under the axe.

    make bench-serve                     # about twelve minutes on two cores
    python -m benchmarks.serving --output docs/serving-load.md

*Load*: a made model of 10,000 columns and K = 20; requests arrive at a fixed rate, whether earlier ones
have been answered or not, each a fold-in with answers of its own that wants the next question too.
*Fuzz*: mutated requests, straight into the application: what it answers, and how its memory grows.
*Kill*: a server that stores answers is killed with SIGKILL at random moments while answers come in; after
each restart every acknowledged answer must be there.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import onebit
from onebit import LogisticCompleter
from onebit.data.store import Store
from onebit.serve import Settings, create_app

COLUMNS, RANK, ROWS = 10_000, 20, 600
RATE, SECONDS = 50.0, 300.0
FUZZED = 1_000_000
KILLS = 100


def made_model(columns: int, rank: int, rows: int) -> Any:
    """Return a model of a made table; its size counts here, not its fit."""
    rng = np.random.default_rng(0)
    left, right = rng.normal(0, 0.5, (rows, rank)), rng.normal(0, 0.5, (columns, rank))
    each = max(40, 4 * columns // rows)
    who = np.repeat(np.arange(rows), each)
    what = np.concatenate([rng.choice(columns, each, replace=False) for _ in range(rows)])
    score = (left[who] * right[what]).sum(axis=1) + rng.normal(0, 1, columns)[what]
    yes = rng.random(len(score)) < 1 / (1 + np.exp(-score))
    pairs = np.column_stack([who, what])
    return LogisticCompleter(rank, random_state=0, max_iter=15, tol=1e-3).fit(pairs, yes)


def started(path: Path, *words: str) -> tuple[subprocess.Popen[str], int]:
    """Start a server; return it and its port."""
    command = [
        sys.executable,
        "-m",
        "onebit",
        "serve",
        str(path),
        "--port",
        "0",
        "--threads",
        "1",
        *words,
    ]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert server.stdout is not None
    for line in server.stdout:
        if line.startswith("Serving"):
            port = int(line.rsplit(":", 1)[1].split("/")[0])
            threading.Thread(target=_emptied, args=(server.stdout,), daemon=True).start()
            return server, port
    raise RuntimeError("the server did not start")


def _emptied(stream: Any) -> None:
    """Read what a server says until it is gone."""
    with stream:
        stream.read()


def asked(rng: random.Random, columns: int) -> bytes:
    """Return a request of somebody with up to fifty answers."""
    count = rng.randrange(51)
    answers = [[rng.randrange(columns), rng.random() < 0.6] for _ in range(count)]
    return json.dumps({"answers": answers, "questions": 1}).encode()


async def _one(port: int, path: str, body: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    reply = await reader.read()
    writer.close()
    return int(reply.split(b" ", 2)[1])


async def _load(port: int, rate: float, seconds: float, columns: int) -> tuple[list[float], Counter[Any]]:
    """Send requests at a fixed rate; return their times and statuses."""
    rng = random.Random(0)
    times: list[float] = []
    statuses: Counter[Any] = Counter()

    async def person(planned: float) -> None:
        body = asked(rng, columns)
        try:
            statuses[await asyncio.wait_for(_one(port, "/api/fold-in", body), 20)] += 1
        except (TimeoutError, OSError, IndexError):
            statuses["lost"] += 1
        # From when it should have been sent: whoever waits in line counts.
        times.append(time.perf_counter() - planned)

    begin = time.perf_counter()
    waiting = []
    for number in range(int(rate * seconds)):
        planned = begin + number / rate
        await asyncio.sleep(max(0.0, planned - time.perf_counter()))
        waiting.append(asyncio.create_task(person(planned)))
    await asyncio.gather(*waiting)
    return times, statuses


def load(columns: int, rank: int, rows: int, rate: float, seconds: float) -> dict[str, Any]:
    """Put a server under load."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onebit"
        made_model(columns, rank, rows).save(path)
        server, port = started(path, "--no-watch")
        memory = psutil.Process(server.pid)
        try:
            asyncio.run(_load(port, rate, min(5.0, seconds), columns))
            before = memory.memory_info().rss
            times, statuses = asyncio.run(_load(port, rate, seconds, columns))
            after = memory.memory_info().rss
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)
    milliseconds = 1e3 * np.array(times)
    return {
        "columns": columns, "rank": rank, "rate": rate, "seconds": seconds,
        "median": float(np.median(milliseconds)), "p99": float(np.quantile(milliseconds, 0.99)),
        "worst": float(milliseconds.max()), "people": len(times),
        "statuses": {str(name): count for name, count in statuses.items()},
        "growth": (after - before) / 2**20,
    }  # fmt: skip


# What mutations begin from, and what they put in.
SEEDS: list[tuple[str, str, Any]] = [
    ("POST", "/api/predict", {"pairs": [[1, 2], [3, 4]]}),
    ("POST", "/api/fold-in", {"answers": [[1, True], [2, False]], "columns": [3], "n": 2, "level": 0.9}),
    ("POST", "/api/next", {"answers": [[1, 1]], "n": 2, "goal": "mean", "among": [1, 2, 3, 4]}),
    ("POST", "/api/next", {"answers": {"1": 1}, "goal": [3, 4]}),
    ("POST", "/api/recommend", {"row": 3, "n": 5}),
    ("POST", "/api/recommend", {"answers": [[1, 1]], "n": 5}),
    ("POST", "/api/rows", {"rows": [1, 2], "level": 0.5}),
    ("POST", "/api/rows", {"search": "1", "n": 3, "offset": 1}),
    ("POST", "/api/answers", {"key": "k", "row": 1, "answers": [[1, 1]]}),
    ("GET", "/api/columns", {"search": "1", "n": "3", "offset": "2"}),
    ("GET", "/api/model", {}),
    ("GET", "/api/map", {}),
]
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**40, 0.5, 1e308, -0.0, 5e-324, "", "a", "1",
    "\x00", "\ud800", "é" * 50, "x" * 1100, [], {}, [[]], [[1]], [[1, 2, 3]], {"a": {"b": [1]}}, "mean",
    "row", "NaN", [None], [[None, None]], [[1, True]], [[1, "yes"]], ["1"], "__class__",
]  # fmt: skip


def mutated(rng: random.Random, content: Any) -> Any:
    """Return a request with something changed in it."""
    if rng.random() < 0.15:
        return rng.choice(ODD)
    if isinstance(content, dict) and content:
        changed = dict(content)
        name = rng.choice(list(changed))
        kind = rng.random()
        if kind < 0.2:
            del changed[name]
        elif kind < 0.3:
            changed[str(rng.choice(ODD))] = rng.choice(ODD)
        else:
            changed[name] = mutated(rng, changed[name])
        return changed
    if isinstance(content, list) and content:
        changed_list = list(content)
        place = rng.randrange(len(changed_list))
        changed_list[place] = mutated(rng, changed_list[place])
        if rng.random() < 0.1:
            changed_list *= rng.randrange(4)
        return changed_list
    return rng.choice(ODD)


def bytes_of(rng: random.Random, content: Any) -> bytes:
    """Return a body, of which some bytes may be wrong."""
    try:
        body = json.dumps(content).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError):
        body = b"{}"
    if rng.random() < 0.1 and body:
        changed = bytearray(body)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        body = bytes(changed)
    if rng.random() < 0.01:
        body = rng.choice([b"[" * 20_000, b"", b"\xff\xfe", b'{"n":' + b"9" * 5000 + b"}", body[:-1]])
    return body


async def _fuzz(app: Any, count: int, columns: int) -> tuple[Counter[int], list[float]]:
    rng = random.Random(1)
    statuses: Counter[int] = Counter()
    memory = psutil.Process()
    grown: list[float] = []
    heads = ["content-type", "host", "origin", "authorization", "x-odd", "content-length"]
    for number in range(count):
        method, path, content = rng.choice(SEEDS)
        body, query = b"", ""
        changed = mutated(rng, content) if rng.random() < 0.95 else content
        if method == "POST":
            body = bytes_of(rng, changed)
        elif isinstance(changed, dict):
            query = "&".join(f"{name}={value}" for name, value in changed.items())
        if rng.random() < 0.02:
            path = rng.choice(["/", "/nothing", "/api/../api/model", "//api/model", "/api/next/", path])
        if rng.random() < 0.02:
            method = rng.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "odd"])
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        if rng.random() < 0.03:
            name = rng.choice(heads)
            value = str(rng.choice(ODD)).encode("utf-8", "surrogatepass")[:50]
            headers = [*headers[: rng.randrange(3)], (name.encode(), value)]
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode(), "query_string": query.encode("utf-8", "surrogatepass"),
            "root_path": "", "scheme": "http", "headers": headers, "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }  # fmt: skip
        sent: list[Any] = []

        async def receive(body: bytes = body) -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        await app(scope, receive, send)
        statuses[sent[0]["status"]] += 1
        if number % max(1, count // 20) == 0:
            grown.append(memory.memory_info().rss / 2**20)
    grown.append(memory.memory_info().rss / 2**20)
    return statuses, grown


def fuzz(count: int, columns: int = 60) -> dict[str, Any]:
    """Send mutated requests straight into an application."""
    import logging

    logging.getLogger("onebit.serve").setLevel(logging.CRITICAL)
    model = made_model(columns, 2, 40)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(max_body=1 << 16)
        app = create_app(model, store=Path(folder) / "answers.db", settings=settings)
        statuses, grown = asyncio.run(_fuzz(app, count, columns))
    # The first tenth fills caches.
    settled = grown[max(1, len(grown) // 10)]
    return {
        "requests": count,
        "statuses": {str(status): statuses[status] for status in sorted(statuses)},
        "growth": grown[-1] - settled,
    }


def _write(port: int, acknowledged: set[int], numbers: Iterator[int], stop: threading.Event) -> None:
    """Send answers one after the other until the server is gone."""
    while not stop.is_set():
        number = next(numbers)
        body = json.dumps({"key": f"k{number}", "row": number, "answers": [[number % 60, True]]})
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("POST", "/api/answers", body, {"Content-Type": "application/json"})
            if connection.getresponse().status == 200:
                acknowledged.add(number)
        except (OSError, HTTPException):
            time.sleep(0.01)
        finally:
            connection.close()


def kill(kills: int) -> dict[str, Any]:
    """Kill a server that stores answers, again and again, and count what is lost."""
    rng = random.Random(2)
    acknowledged: set[int] = set()
    numbers = itertools.count()
    lost = 0
    with tempfile.TemporaryDirectory() as folder:
        path, store = Path(folder) / "model.onebit", Path(folder) / "answers.db"
        made_model(60, 2, 40).save(path)
        for _ in range(kills):
            server, port = started(path, "--no-watch", "--store", str(store))
            stop = threading.Event()
            writers = [
                threading.Thread(target=_write, args=(port, acknowledged, numbers, stop))
                for _ in range(2)
            ]
            for writer in writers:
                writer.start()
            time.sleep(rng.uniform(0.05, 0.8))
            os.kill(server.pid, signal.SIGKILL)
            server.wait()
            stop.set()
            for writer in writers:
                writer.join()
            kept = Store(store, create=False)
            stored = kept.after().rows
            kept.close()
            there = set(stored)
            lost = len(acknowledged - there)
            if lost:
                break
    doubled = len(stored) - len(there)
    return {"kills": kills, "acknowledged": len(acknowledged), "lost": lost, "doubled": doubled}


TEXT = """# A served model: the figures

Made by `make bench-serve` (onebit {version}, {machine}); the load comes from the same machine.

## Load

A made model of {columns:,} columns, K = {rank}. {rate:g} requests a second for {minutes:g} minutes;
each is a fold-in with up to fifty answers that wants the next question too (`{{"answers": [...],
"questions": 1}}`). Times count from the moment that a request should have been sent.

| requests | median | 99 % below | slowest | refused or lost | memory grew by |
| ---: | ---: | ---: | ---: | ---: | ---: |
| {people:,} | {median:.1f} ms | {p99:.1f} ms | {worst:.0f} ms | {bad} | {growth:.1f} MB |
"""
FUZZ = """
## Fuzz

{requests:,} mutated requests (fields, values, bytes, headers, paths, methods), straight into the
application:

| status | {head} |
| --- | {rule} |
| replies | {line} |

Memory grew by {growth:.1f} MB after the first tenth.
"""
KILL = """
## Kill

A server that stores answers, killed with SIGKILL at {kills} random moments while two clients sent
answers: {acknowledged:,} answers were acknowledged, {lost} of them were not there after the restarts, and
{doubled} were there twice.
"""


def page(found: dict[str, Any]) -> str:
    """Return the page."""
    text = ""
    if "load" in found:
        part = found["load"]
        bad = sum(count for name, count in part["statuses"].items() if name != "200")
        text += TEXT.format(
            **part,
            bad=bad,
            minutes=part["seconds"] / 60,
            version=found["version"],
            machine=found["machine"],
        )
    if "fuzz" in found:
        part = found["fuzz"]
        statuses = part["statuses"]
        text += FUZZ.format(
            **part, head=" | ".join(statuses), rule=" | ".join("---:" for _ in statuses),
            line=" | ".join(f"{count:,}" for count in statuses.values()),
        )  # fmt: skip
    if "kill" in found:
        text += KILL.format(**found["kill"])
    return text


def main(arguments: list[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--rank", type=int, default=RANK)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--fuzzed", type=int, default=FUZZED)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--only", nargs="*", default=["load", "fuzz", "kill"])
    parser.add_argument("--results", type=Path, help="keep what was measured here, and go on from it")
    parser.add_argument("--output", type=Path)
    asked_for = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    if asked_for.results is not None and asked_for.results.is_file():
        found = json.loads(asked_for.results.read_text())
    found |= {
        "version": onebit.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "load": lambda: load(
            asked_for.columns, asked_for.rank, asked_for.rows, asked_for.rate, asked_for.seconds
        ),
        "fuzz": lambda: fuzz(asked_for.fuzzed),
        "kill": lambda: kill(asked_for.kills),
    }
    for name, measure in parts.items():
        if name in asked_for.only:
            found[name] = measure()
            if asked_for.results is not None:
                asked_for.results.write_text(json.dumps(found))
    text = page(found)
    if asked_for.output is not None:
        asked_for.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
