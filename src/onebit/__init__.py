"""onebit: fill the blanks of a yes/no matrix, and say how sure you are.

>>> from onebit import LogisticCompleter
>>> pairs = [("ann", "tea"), ("ann", "jam"), ("bob", "tea"), ("eve", "jam"), ("eve", "tea")]
>>> model = LogisticCompleter(rank=2).fit(pairs, [1, 0, 1, 0, 1])
>>> int(model.predict([("bob", "jam")])[0])
0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from onebit import plots, simulate
    from onebit.auto import AutoCompleter
    from onebit.completers import HingeCompleter, LogisticCompleter
    from onebit.models import load
    from onebit.nuclear import NuclearNormCompleter
    from onebit.observations import Observations
    from onebit.posterior import Posterior
    from onebit.randomised import GibbsCompleter
    from onebit.tables import read_answers

# Imported on first use: `import onebit` itself costs nothing.
_HOMES = {
    "AutoCompleter": "onebit.auto",
    "GibbsCompleter": "onebit.randomised",
    "HingeCompleter": "onebit.completers",
    "LogisticCompleter": "onebit.completers",
    "NuclearNormCompleter": "onebit.nuclear",
    "Observations": "onebit.observations",
    "Posterior": "onebit.posterior",
    "load": "onebit.models",
    "plots": "onebit.plots",
    "read_answers": "onebit.tables",
    "simulate": "onebit.simulate",
}

__all__ = [
    "AutoCompleter",
    "GibbsCompleter",
    "HingeCompleter",
    "LogisticCompleter",
    "NuclearNormCompleter",
    "Observations",
    "Posterior",
    "load",
    "plots",
    "read_answers",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'onebit' has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    return module if name in ("plots", "simulate") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
