"""Arrays as tasks need them: at addresses that suit their numbers.

What comes over a network or from a disk lies in one buffer, piece after piece, and an array may begin
anywhere in it. numpy and compiled kernels work on such arrays as well, in other ways and with other last
bits; and the bits of a fit are to be the same wherever its blocks have been.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

# Whose objects are looked into; those of pandas and its like find their way themselves.
_OURS = "onebit."


def on_aligned(task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task on arguments whose arrays are aligned."""
    return task(*aligned(arguments))


def aligned(value: Any) -> Any:
    """Return a value as it is, or with copies of those of its arrays that are not aligned."""
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else _copied(value)
    if isinstance(value, (list, tuple)):
        parts = [aligned(part) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if type(value).__module__.startswith(_OURS) and hasattr(value, "__dict__"):
        held = {name: aligned(part) for name, part in vars(value).items()}
        if all(held[name] is part for name, part in vars(value).items()):
            return value
        made = copy(value)
        vars(made).update(held)  # also of frozen ones, and what they have found out already
        return made
    return value


def _copied(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made = array.copy(order="K")
    made.setflags(write=array.flags.writeable)
    return made
