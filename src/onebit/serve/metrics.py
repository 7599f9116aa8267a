"""Counts of what a server has done, in the text format that Prometheus reads."""

from __future__ import annotations

import threading
from collections import Counter

# Seconds.
EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0)


class Metrics:
    """Requests by path and status, and how long they took."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._paths = frozenset(paths)
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._below: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()
        self.reloads = 0
        self.stored = 0

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count one request; paths that do not exist count as one."""
        path = path if path in self._paths else "other"
        with self._lock:
            self._requests[path, status] += 1
            self._seconds[path] += seconds  # type: ignore[assignment]
            for edge in EDGES:
                if seconds <= edge:
                    self._below[path, edge] += 1

    def text(self, model: str, busy: int) -> str:
        """Return all counts as text."""
        with self._lock:
            requests, below, seconds = dict(self._requests), dict(self._below), dict(self._seconds)
        lines = ["# TYPE onebit_requests_total counter"]
        total: Counter[str] = Counter()
        for (path, status), count in sorted(requests.items()):
            total[path] += count
            lines.append(f'onebit_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE onebit_request_seconds histogram")
        for path in sorted(total):
            name = f'onebit_request_seconds_bucket{{path="{path}",le='
            lines += [f'{name}"{edge}"}} {below.get((path, edge), 0)}' for edge in EDGES]
            lines.append(f'{name}"+Inf"}} {total[path]}')
            lines.append(f'onebit_request_seconds_sum{{path="{path}"}} {seconds[path]:.6f}')
            lines.append(f'onebit_request_seconds_count{{path="{path}"}} {total[path]}')
        for name, kind, value in (
            ("onebit_requests_in_work", "gauge", busy),
            ("onebit_model_reloads_total", "counter", self.reloads),
            ("onebit_answers_stored_total", "counter", self.stored),
        ):
            lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
        lines += ["# TYPE onebit_model_info gauge", f'onebit_model_info{{version="{model}"}} 1']
        return "\n".join(lines) + "\n"
