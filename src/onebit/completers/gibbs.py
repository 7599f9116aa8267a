"""GibbsCompleter: the posterior whose PAC-Bayes certificate is best."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar

import numpy as np

from onebit.certificates.optimised import OPTIMISED, optimise, prior_choices
from onebit.completers.base import Found, PairClassifier
from onebit.completers.bayes import CHECKS, descent_attributes, descent_state, restored_descent
from onebit.completers.parameters import Check, Either, OneOf, Positive, plain
from onebit.completers.predictions import Codes
from onebit.completers.predictors import GaussianPredictor
from onebit.data import checked
from onebit.data.observations import Observations
from onebit.data.storage import Tensors
from onebit.engine import scoring
from onebit.engine.crew import Callback
from onebit.engine.descent import Schedule
from onebit.engine.fitting import TOO_FEW_TO_CALIBRATE, held_for_calibration
from onebit.engine.recipe import Recipe
from onebit.engine.workers import Machine, workers
from onebit.model.calibration import Calibration, DrawnShare, fit_calibration
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
    share of drawn predictors that say "yes": it is no calibrated probability, unless ``calibrate=True``.

    Parameters
    ----------
    rank : int, default 10
        The largest rank considered.
    temperature : float or "auto"
        ``lambda / n``, or the best of a few.
    effects : bool or "auto"
        Row and column effects, or whichever has the better bound.
    calibrate : bool, default False
        Whether a first search on nine tenths of the answers fits the curve of the probabilities on the
        others, as HingeCompleter's; it takes twice as long.
    prior, prior_scale, covariance, max_iter, tol, random_state, n_jobs, device, verbose
        As for LogisticCompleter; ``prior_scale`` is smaller here, since columns are not pruned by it, and
        ``tol`` is a number.

    Attributes
    ----------
    temperature_ : float
        The ``lambda / n`` chosen.
    calibration_ : Calibration
        With ``calibrate``: the curve.
    objective_path_ : ndarray
        The course of the objective. It may rise, unlike that of the logistic loss, since the 0-1 loss
        has no quadratic majoriser: single steps have been seen to raise it by a thousandth.

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
    calibration_: Calibration

    _loss = GIBBS
    _made_for_it: ClassVar[bool] = True
    _uncalibrated: ClassVar[str | None] = "they are shares of drawn predictors that say yes"
    _checks: ClassVar[dict[str, Check]] = {name: CHECKS[name] for name in _SHARED} | {
        "prior_scale": Positive(),
        "tol": Positive(),
        "temperature": Either(Positive(), OneOf(("auto",))),
        "effects": OneOf(("auto", True, False)),
        "calibrate": OneOf((True, False)),
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
        calibrate: bool = False,
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
        self.calibrate = calibrate
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    @property
    def probability_note(self) -> str | None:
        """Why averages of this model's probabilities are no shares of "yes"; None where they may be."""
        return None if hasattr(self, "calibration_") else self._uncalibrated

    @property
    def _chooses(self) -> bool:
        """Whether it chooses the temperature by itself."""
        return isinstance(self.temperature, str)

    def _recipe(self) -> Recipe:
        effects = self.effects is not False
        return Recipe(
            loss=OPTIMISED.loss,
            rank=plain(self.rank),
            prior=self.prior,
            prior_scale=plain(self.prior_scale),
            temperature=OPTIMISED.temperature if self._chooses else float(self.temperature),
            full=self.covariance == "full",
            row_effects=effects,
            column_effects=effects,
            schedule=Schedule(plain(self.max_iter), plain(self.tol)),
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
        if start is not None:
            raise ValueError("GibbsCompleter starts from hinge fits of its own; leave start out")
        recipe, advice = self._recipe(), []
        search = partial(
            optimise,
            recipe,
            rng=rng,
            callback=callback,
            temperature=None if self._chooses else recipe.temperature,
            try_effects=self.effects == "auto",
        )
        calibration = None
        with workers(machine, observations.n) as crew:
            if self.calibrate:
                held = held_for_calibration(observations, rng)
                if held is None:
                    advice.append(
                        f"{observations.n:,} answers are {TOO_FEW_TO_CALIBRATE}: probabilities are "
                        "shares of drawn predictors that say yes"
                    )
                else:
                    first = search(observations=observations.take(~held), workers=crew).fit.posterior
                    rows, columns, sign, weight = observations.entries(held)
                    moments = scoring.score_moments(first, rows, columns, crew.count)
                    calibration = fit_calibration(*moments, sign, weight, scale_free=True)
            found = search(observations=observations, workers=crew)
        chosen: dict[str, Any] = {
            "temperature_": found.temperature,
            "prior_choices_": found.prior_choices,
        }
        if calibration is not None:
            chosen["calibration_"] = calibration
        predictor = self._predictor(found.fit.posterior, found.temperature, calibration)
        if not found.fit.converged:
            advice.append(
                f"stopped after {found.fit.n_iter} rounds before it settled to tol={self.tol:g}; "
                "raise max_iter or tol"
            )
        return Found(predictor, descent_attributes(found.fit) | chosen, advice)

    def _predictor(
        self, posterior: Posterior, temperature: float, calibration: Calibration | None
    ) -> GaussianPredictor:
        return GaussianPredictor(posterior, calibration or DrawnShare(), GIBBS, temperature)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, content = descent_state(self)
        found: dict[str, Any] = {"temperature": self.temperature_, "prior_choices": self.prior_choices_}
        if hasattr(self, "calibration_"):
            found["calibration"] = asdict(self.calibration_)
        return tensors, content | found

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        posterior, attributes = restored_descent(tensors, content, (len(self.rows_), len(self.columns_)))
        temperature = checked.number(content, "temperature", positive=True)
        choices = prior_choices(self._recipe(), self.effects == "auto")
        if "prior_choices" in content:
            choices = checked.whole(content, "prior_choices", 1)
        attributes |= {"temperature_": temperature, "prior_choices_": choices}
        calibration = None
        if "calibration" in content:
            calibration = Calibration.from_settings(checked.section(content, "calibration"))
            attributes["calibration_"] = calibration
        self._take(Found(self._predictor(posterior, temperature, calibration), attributes))
