"""The machine in general words, for the pages."""

from __future__ import annotations

import os
import platform

_KINDS = {"aarch64": "arm64", "AMD64": "x86-64", "x86_64": "x86-64"}


def machine() -> str:
    """Return the number and kind of cores, the system and the Python."""
    kind = _KINDS.get(platform.machine(), platform.machine())
    return f"{os.cpu_count()} {kind} cores, {platform.system()}, Python {platform.python_version()}"
