"""HingeCompleter: robust where answers are wrong; also the paper's Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from onebit.completers.base import Found, PairClassifier
from onebit.completers.bayes import CHECKS, bayes_state, followed, found_of, recipe_of, restored_found
from onebit.completers.parameters import Check, OneOf
from onebit.completers.predictions import Codes
from onebit.data.observations import Observations
from onebit.data.storage import Tensors
from onebit.engine.crew import Callback
from onebit.engine.fitting import TOO_FEW_TO_CALIBRATE, Fitted
from onebit.engine.recipe import Recipe
from onebit.engine.workers import Machine
from onebit.model.calibration import natural_calibration
from onebit.model.losses import HINGE
from onebit.model.posterior import Posterior
from onebit.model.priors import VariancePrior


class HingeCompleter(PairClassifier):
    """Variational Bayes with the hinge loss: robust where answers are wrong or the truth is sharp.

    Two methods. ``"engine"`` bounds the expected hinge loss by Jensen's inequality and descends by
    closed-form updates. ``"paper"`` is the paper's Algorithm 1: its approximate variational bound (AVB),
    sub-gradient steps, independent coordinates and no effects.

    Probabilities: hinge scores are no log-odds. ``predict_proba`` applies a logistic curve in
    ``mean / sqrt(1 + variance)`` that is fitted on a tenth of the answers (forty of fewer than 400, at
    most a third), held out of a first fit from which the engine's final one, on all answers, starts. Of
    some hundred answers and fewer there is no such curve, and a warning says so. ``calibrate=False``
    saves that fit. Both use the curve of the pseudo-likelihood, ``sigmoid(2 temperature x)``.

    Parameters
    ----------
    method : {"engine", "paper"}
        How the posterior is found. Sub-gradient steps of the paper's method may raise ``objective_path_``
        by per cents on the way; what they return is its lowest point.
    calibrate : bool, default True
        Whether to fit the curve of ``predict_proba``.
    effects, covariance : as for LogisticCompleter, or "auto"
        "auto" is True and "full" for the engine, False and "diagonal" for the paper's method.
    rank, prior, prior_scale, temperature, sparse, pattern, inference, n_samples, n_burn_in, n_chains,
    n_thin, settle, keep_mb, n_init, max_iter, tol, random_state, n_jobs, device, verbose
        As for LogisticCompleter; ``method="paper"`` runs on the CPU only.

    Attributes
    ----------
    calibration_ : Calibration
        The curve of ``predict_proba``.
    avb_ : ApproximateBound
        Of the paper's method: the AVB and its terms (Proposition 1).

    Examples
    --------
    >>> from onebit import HingeCompleter, simulate
    >>> world = simulate.world("A2", rank=2, shape=(80, 80), density=0.4, seed=0)
    >>> model = HingeCompleter(rank=5, effects=False).fit(world.pairs, world.answers)
    >>> world.error(model.decision_function(world.all_pairs).reshape(80, 80)) < 0.02
    True
    """

    _loss = HINGE
    _takes_features: ClassVar[bool] = True
    _checks: ClassVar[dict[str, Check]] = CHECKS | {
        "method": OneOf(("engine", "paper")),
        "calibrate": OneOf((True, False)),
        "effects": OneOf(("auto", True, False, "rows", "columns")),
        "covariance": OneOf(("auto", "full", "diagonal")),
    }

    def __init__(
        self,
        rank: int = 10,
        *,
        method: str = "engine",
        prior: str | VariancePrior = "inverse-gamma",
        prior_scale: float | str = "auto",
        temperature: float = 1.0,
        covariance: str = "auto",
        effects: bool | str = "auto",
        sparse: str | None = None,
        pattern: str | None = "auto",
        inference: str = "variational",
        n_samples: int = 100,
        n_burn_in: int = 20,
        n_chains: int = 4,
        n_thin: int = 1,
        settle: float | str | None = None,
        keep_mb: float = 256,
        calibrate: bool = True,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float | str = 1e-5,
        random_state: Any = None,
        n_jobs: int | None = -1,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.prior = prior
        self.prior_scale = prior_scale
        self.temperature = temperature
        self.covariance = covariance
        self.effects = effects
        self.sparse = sparse
        self.pattern = pattern
        self.inference = inference
        self.n_samples = n_samples
        self.n_burn_in = n_burn_in
        self.n_chains = n_chains
        self.n_thin = n_thin
        self.settle = settle
        self.keep_mb = keep_mb
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose
        self.method = method
        self.calibrate = calibrate

    @property
    def probability_note(self) -> str | None:
        """Why averages of this model's probabilities are no shares of "yes"; None where they may be."""
        if not self.calibrate:
            return "they were not calibrated (calibrate=False)"
        own = getattr(self, "calibration_", None) == natural_calibration(float(self.temperature))
        return f"its answers were {TOO_FEW_TO_CALIBRATE}" if own else None

    @property
    def _machine(self) -> Machine:
        if self.method == "engine":
            return super()._machine
        if self.device not in ("cpu", "auto"):
            raise ValueError(
                f'method="paper" runs on the CPU only; set device="cpu", not {self.device!r}'
            )
        return Machine(self.n_jobs, "cpu")

    def _recipe(self) -> Recipe:
        engine = self.method == "engine"
        effects = engine if self.effects == "auto" else self.effects
        if effects and not engine:
            raise ValueError('method="paper" has no row and column effects; set effects=False')
        if not engine and self.covariance == "full":
            raise ValueError('method="paper" has independent coordinates; set covariance="diagonal"')
        if not engine and self.pattern not in ("auto", None):
            raise ValueError(f'method="paper" knows no pattern; set pattern=None, not {self.pattern!r}')
        if not engine and self.tol == "auto":
            raise ValueError('method="paper" stops where scores change little; set tol to a number')
        full = self.covariance == "full" or (self.covariance == "auto" and engine)
        return recipe_of(self, effects=effects, full=full, paper=not engine, calibrate=self.calibrate)

    def _find(
        self,
        observations: Observations,
        machine: Machine,
        rng: np.random.Generator,
        callback: Callback | None,
        start: Posterior | None,
        pairs: tuple[Codes, Codes] | None,
    ) -> Found:
        if start is not None and self.method == "paper":
            raise ValueError('method="paper" has a start of its own; leave start out')
        return followed(self._recipe(), observations, machine, rng, callback, start, pairs)

    def _keeps_checkpoints(self) -> bool:
        return self.method != "paper"

    def _on_cluster(
        self, sample: Callable[[], Observations], n: int, callback: Callback | None
    ) -> tuple[Recipe, Callable[[Fitted], Found]]:
        recipe = self._recipe()
        return recipe, partial(found_of, recipe)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        return bayes_state(self)

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        shape = (len(self.rows_), len(self.columns_))
        self._take(restored_found(self._recipe(), tensors, content, shape))
