"""How a posterior is found: ``fit`` is a function of a ``Recipe``, answers, workers and a generator.

Both are imported on first use: the command line asks this package for little more than device names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onebit.engine.fitting import Fitted, fit
    from onebit.engine.recipe import Recipe

__all__ = ["Fitted", "Recipe", "fit"]

_HOMES = {"Fitted": "fitting", "Recipe": "recipe", "fit": "fitting"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'onebit.engine' has no attribute {name!r}")
    return getattr(importlib.import_module(f"onebit.engine.{_HOMES[name]}"), name)
