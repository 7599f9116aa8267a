"""The contestants, each with the settings that are cross-validated inside its training data."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from onebit.completers.auto import AutoCompleter
from onebit.completers.base import PairClassifier
from onebit.completers.gibbs import GibbsCompleter
from onebit.completers.hinge import HingeCompleter
from onebit.completers.logistic import LogisticCompleter
from onebit.completers.nuclear import NuclearNormCompleter

RANK = 10  # K in the paper
HELD_OUT = 0.15
# From this many answers on, one split is enough to choose by.
ENOUGH = 30_000
MOST_DOUBLINGS = 5


@dataclass(frozen=True)
class Method:
    """A way to complete a matrix: how to make it, and what to choose.

    ``grid`` gives the values tried of each parameter, the first being where the search stands; the
    parameters are chosen one after the other, in this order. Of an ``open_ended`` parameter, values are
    doubled (or halved) beyond the grid's ends for as long as the best one lies there.
    """

    name: str
    make: Callable[..., PairClassifier]
    grid: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    open_ended: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """A digest of what this method is: results of another one do not compare."""
        parts = (self.make.__name__, self.grid, self.fixed, self.open_ended, HELD_OUT, ENOUGH)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]

    def fit(
        self, pairs: NDArray[Any], answers: NDArray[Any], seed: int, splits: int, calibrate: bool
    ) -> tuple[PairClassifier, dict[str, Any]]:
        """Choose the settings, fit on everything; return the model and the choice."""
        with warnings.catch_warnings():
            # The paper's own method falls into L = R = 0 at some settings; it then simply loses.
            warnings.simplefilter("ignore", ConvergenceWarning)
            choice = self._choose(pairs, answers, seed, splits)
            settings = self.fixed | choice
            if self.make is HingeCompleter:
                settings["calibrate"] = calibrate
            model = self.make(**settings, random_state=seed).fit(pairs, answers)
        return model, choice

    def _choose(
        self, pairs: NDArray[Any], answers: NDArray[Any], seed: int, splits: int
    ) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        count = splits if len(answers) < ENOUGH else 1
        held = [rng.random(len(answers)) < HELD_OUT for _ in range(count)]
        known: dict[tuple[Any, ...], float] = {}

        def error(choice: dict[str, Any]) -> float:
            key = tuple(choice.values())
            if key not in known:
                known[key] = float(
                    np.mean([self._error(choice, pairs, answers, seed, mask) for mask in held])
                )
            return known[key]

        choice = {name: values[0] for name, values in self.grid.items()}
        for name, values in self.grid.items():
            choice = min(({**choice, name: value} for value in values), key=error)
            if name in self.open_ended and choice[name] in (min(values), max(values)):
                factor = 2.0 if choice[name] == max(values) else 0.5
                for _ in range(MOST_DOUBLINGS):
                    further = {**choice, name: choice[name] * factor}
                    if error(further) >= error(choice):
                        break
                    choice = further
        return choice

    def _error(
        self,
        choice: dict[str, Any],
        pairs: NDArray[Any],
        answers: NDArray[Any],
        seed: int,
        held: NDArray[np.bool_],
    ) -> float:
        settings = self.fixed | choice
        if self.make is HingeCompleter:
            settings["calibrate"] = False
        model = self.make(**settings, random_state=seed).fit(pairs[~held], answers[~held])
        return float(np.mean(answers[held] * model.decision_function(pairs[held]) <= 0))


def _bayes(name: str, make: Callable[..., PairClassifier], grid: dict[str, Any], **fixed: Any) -> Method:
    return Method(name, make, grid, {"rank": RANK, "effects": False, "n_jobs": 1} | fixed)


_SCALES = (0.03, 0.01, 0.1)
_PAPER_TEMPERATURES = (2.0, 1.4, 2.8, 4.0)
_SPARSE = (None, "columns", "rows")

METHODS = {
    method.name: method
    for method in (
        _bayes("Logit-G", LogisticCompleter, {"prior_scale": (*_SCALES, 0.3)}, prior="gamma"),
        _bayes("Logit-IG", LogisticCompleter, {"prior_scale": (*_SCALES, 0.3)}),
        _bayes(
            "HL-G",
            HingeCompleter,
            {"temperature": _PAPER_TEMPERATURES, "prior_scale": _SCALES},
            prior="gamma",
            method="paper",
            max_iter=300,
        ),
        _bayes(
            "HL-IG",
            HingeCompleter,
            {"temperature": _PAPER_TEMPERATURES, "prior_scale": _SCALES},
            method="paper",
            max_iter=300,
        ),
        Method(
            "freq. Logit",
            NuclearNormCompleter,
            {"rank": (1.0, 0.25, 0.5, 2.0, 4.0)},
            open_ended=("rank",),
        ),
        _bayes(
            "engine hinge",
            HingeCompleter,
            {"temperature": (0.7, 0.5, 1.0, 1.4, 2.0), "prior_scale": _SCALES, "sparse": _SPARSE},
        ),
        _bayes(
            "engine logistic",
            LogisticCompleter,
            {"temperature": (1.0, 0.7, 1.4, 2.0), "prior_scale": _SCALES, "sparse": _SPARSE},
        ),
        _bayes("engine Gibbs", GibbsCompleter, {}),
        Method("AutoCompleter", AutoCompleter, fixed={"n_jobs": 1}),
    )
}
ORACLE = "oracle"
