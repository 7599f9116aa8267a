"""GibbsCompleter: the posterior whose PAC-Bayes certificate is best."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from onebit.certificates.optimised import OPTIMISED, optimise, prior_choices
from onebit.completers.base import Found, PairClassifier
from onebit.completers.bayes import CHECKS, descent_attributes, descent_state, restored_descent
from onebit.completers.parameters import Check, Instance, OneOf, Positive
from onebit.completers.predictions import Codes
from onebit.completers.predictors import GaussianPredictor
from onebit.data import checked
from onebit.data.observations import Observations
from onebit.data.storage import Tensors
from onebit.engine.crew import Callback
from onebit.engine.descent import Schedule
from onebit.engine.recipe import Recipe
from onebit.engine.workers import Machine, workers
from onebit.model.calibration import DrawnShare
from onebit.model.losses import GIBBS
from onebit.model.posterior import Posterior
from onebit.model.priors import VariancePrior

_SHARED = (
    "rank", "prior", "prior_scale", "covariance", "max_iter", "tol", "device", "verbose",
)  # fmt: skip


class GibbsCompleter(PairClassifier):
    """A posterior made for its certificate: the 0-1 loss of a drawn predictor, and the divergence.

    Minimises ``mean Phi(-y m / sd) + KL / lambda``, where ``m`` and ``sd`` are the exact mean and
    standard deviation of a score. Among the rank that the hinge loss finds and none, with and without
    effects, and a few ``lambda``, those with the least PAC-Bayes-kl bound are taken. The certificate pays
    for the choice of rank and effects, which are part of the prior, while ``lambda`` is free, since the
    bound holds for every posterior at once.

    The predictions are the signs of the mean scores, robust to wrong answers. ``predict_proba`` is the
    share of drawn predictors that say "yes": it is no calibrated probability.

    Parameters
    ----------
    rank : int, default 10
        The largest rank considered.
    temperature : float or "auto"
        ``lambda / n``, or the best of a few.
    effects : bool or "auto"
        Row and column effects, or whichever has the better bound.
    prior, prior_scale, covariance, max_iter, tol, random_state, n_jobs, device, verbose
        As for LogisticCompleter; ``prior_scale`` is smaller here, since columns are not pruned by it, and
        ``tol`` is a number.

    Attributes
    ----------
    temperature_ : float
        The ``lambda / n`` chosen.
    objective_path_ : ndarray
        The course of the objective. The 0-1 loss has no quadratic majoriser: unlike that of the logistic
        loss it may rise, by up to a thousandth in a step.

    Examples
    --------
    >>> from onebit import GibbsCompleter, simulate
    >>> world = simulate.world("A1", rank=2, shape=(100, 100), density=0.5, seed=0)
    >>> model = GibbsCompleter(random_state=0).fit(world.pairs, world.answers, certify=0)
    >>> model.certify(0.05, method="pac-bayes-kl").bound < 0.3  # nothing was held out
    True
    """

    temperature_: float
    prior_choices_: int

    _loss = GIBBS
    _made_for_it: ClassVar[bool] = True
    _uncalibrated: ClassVar[str | None] = "they are shares of drawn predictors that say yes"
    _checks: ClassVar[dict[str, Check]] = {name: CHECKS[name] for name in _SHARED} | {
        "prior_scale": Positive(),
        "tol": Positive(),
        "temperature": Instance((str,), Positive()),
        "effects": OneOf(("auto", True, False)),
    }

    def __init__(
        self,
        rank: int = 10,
        *,
        prior: str | VariancePrior = "inverse-gamma",
        prior_scale: float = 0.003,
        temperature: float | str = "auto",
        covariance: str = "full",
        effects: bool | str = "auto",
        max_iter: int = 200,
        tol: float = 1e-5,
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
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def _recipe(self) -> Recipe:
        effects = self.effects is not False
        return Recipe(
            loss=OPTIMISED.loss,
            rank=self.rank,
            prior=self.prior,
            prior_scale=self.prior_scale,
            full=self.covariance == "full",
            row_effects=effects,
            column_effects=effects,
            schedule=Schedule(self.max_iter, self.tol),
        )

    def _find(
        self,
        observations: Observations,
        machine: Machine,
        rng: np.random.Generator,
        callback: Callback | None,
        start: Posterior | None,
        pairs: tuple[Codes, Codes] | None,
    ) -> Found:
        if self.temperature != "auto" and isinstance(self.temperature, str):
            raise ValueError(f'temperature must be a positive number or "auto", got {self.temperature!r}')
        if start is not None:
            raise ValueError("GibbsCompleter starts from hinge fits of its own; leave start out")
        with workers(machine, observations.n) as crew:
            found = optimise(
                self._recipe(),
                observations,
                crew,
                rng,
                callback,
                temperature=None if isinstance(self.temperature, str) else float(self.temperature),
                try_effects=self.effects == "auto",
            )
        chosen = {"temperature_": found.temperature, "prior_choices_": found.prior_choices}
        predictor = self._predictor(found.fit.posterior, found.temperature)
        advice = []
        if not found.fit.converged:
            advice.append(
                f"stopped after {found.fit.n_iter} rounds before it settled to tol={self.tol:g}; "
                "raise max_iter or tol"
            )
        return Found(predictor, descent_attributes(found.fit) | chosen, advice)

    def _predictor(self, posterior: Posterior, temperature: float) -> GaussianPredictor:
        return GaussianPredictor(posterior, DrawnShare(), GIBBS, temperature)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, content = descent_state(self)
        found = {"temperature": self.temperature_, "prior_choices": self.prior_choices_}
        return tensors, content | found

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        posterior, attributes = restored_descent(tensors, content, (len(self.rows_), len(self.columns_)))
        temperature = checked.number(content, "temperature", positive=True)
        choices = prior_choices(self._recipe(), self.effects == "auto")
        if "prior_choices" in content:
            choices = checked.whole(content, "prior_choices", 1)
        attributes |= {"temperature_": temperature, "prior_choices_": choices}
        self._take(Found(self._predictor(posterior, temperature), attributes))
