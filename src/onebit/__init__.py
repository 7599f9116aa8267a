"""onebit: fill the blanks of a yes/no matrix, and say how sure you are.

>>> from onebit import LogisticCompleter
>>> pairs = [("ann", "tea"), ("ann", "jam"), ("bob", "tea"), ("eve", "jam"), ("eve", "tea")]
>>> model = LogisticCompleter(rank=2).fit(pairs, [1, 0, 1, 0, 1])
>>> int(model.predict([("bob", "jam")])[0])
0
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from onebit.completers.auto import AutoCompleter
    from onebit.completers.gibbs import GibbsCompleter
    from onebit.completers.hinge import HingeCompleter
    from onebit.completers.loading import load
    from onebit.completers.logistic import LogisticCompleter
    from onebit.completers.nuclear import NuclearNormCompleter
    from onebit.data import datasets, school, simulate
    from onebit.data.observations import Observations
    from onebit.data.tables import read_answers
    from onebit.model.posterior import Posterior
    from onebit.report import plots

# Imported on first use: `import onebit` itself costs nothing.
_HOMES = {
    "AutoCompleter": "onebit.completers.auto",
    "GibbsCompleter": "onebit.completers.gibbs",
    "HingeCompleter": "onebit.completers.hinge",
    "LogisticCompleter": "onebit.completers.logistic",
    "NuclearNormCompleter": "onebit.completers.nuclear",
    "Observations": "onebit.data.observations",
    "Posterior": "onebit.model.posterior",
    "load": "onebit.completers.loading",
    "read_answers": "onebit.data.tables",
}
# Modules with a public name of their own: the room that a file lies in is not for users to know.
_PUBLIC_MODULES = {
    "bounds": "onebit.certificates.bounds",
    "dask": "onebit.completers.distributed",
    "datasets": "onebit.data.datasets",
    "directions": "onebit.certificates.directions",
    "evaluation": "onebit.completers.evaluation",
    "gpu": "onebit.engine.gpu",
    "gpu.device": "onebit.engine.gpu.device",
    "plots": "onebit.report.plots",
    "record": "onebit.completers.record",
    "school": "onebit.data.school",
    "simulate": "onebit.data.simulate",
    "storage": "onebit.data.storage",
    "tables": "onebit.data.tables",
}

__all__ = [
    "AutoCompleter",
    "GibbsCompleter",
    "HingeCompleter",
    "LogisticCompleter",
    "NuclearNormCompleter",
    "Observations",
    "Posterior",
    "datasets",
    "load",
    "plots",
    "read_answers",
    "school",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _PUBLIC_MODULES:
        return importlib.import_module(_PUBLIC_MODULES[name])
    raise AttributeError(f"module 'onebit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


class _PublicNames(MetaPathFinder, Loader):
    """Finds a module by its public name: ``import onebit.bounds`` gives the one in ``certificates``."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        known = fullname.startswith("onebit.") and fullname.removeprefix("onebit.") in _PUBLIC_MODULES
        return ModuleSpec(fullname, self) if known else None

    def __init__(self) -> None:
        self._own: dict[str, ModuleSpec | None] = {}

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_PUBLIC_MODULES[spec.name.removeprefix("onebit.")])
        self._own[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # It has run under its own name, which importing it under the other one must not change.
        assert module.__spec__ is not None
        module.__spec__ = self._own.pop(module.__spec__.name)


if not any(isinstance(finder, _PublicNames) for finder in sys.meta_path):
    sys.meta_path.append(_PublicNames())
