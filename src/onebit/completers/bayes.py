"""The completers of the logistic and of the hinge loss: variational, and sampled."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from onebit.completers.base import Found, PairClassifier
from onebit.completers.parameters import Check, Device, Either, Instance, OneOf, Positive, Whole
from onebit.completers.predictions import Codes
from onebit.completers.predictors import DrawsPredictor, GaussianPredictor, Predictor
from onebit.data import checked
from onebit.data.observations import Observations
from onebit.data.storage import Tensors
from onebit.engine.algorithm_1 import ApproximateBound
from onebit.engine.descent import Callback, Fit, Schedule
from onebit.engine.fitting import Fitted, fit
from onebit.engine.recipe import Recipe
from onebit.engine.sampling.sampler import Plan
from onebit.engine.workers import Machine, workers
from onebit.model.calibration import Calibration, Sigmoid
from onebit.model.diagnostics import DIAGNOSTICS, Mixing
from onebit.model.draws import Draws
from onebit.model.losses import HINGE, LOGISTIC
from onebit.model.posterior import Posterior
from onebit.model.priors import Gamma, InverseGamma, VariancePrior

# What the parameters of both completers must meet.
CHECKS: dict[str, Check] = {
    "rank": Whole(0),
    "prior": Instance((InverseGamma, Gamma), OneOf(("inverse-gamma", "gamma"))),
    "prior_scale": Either(Positive(), OneOf(("auto",))),
    "temperature": Positive(),
    "covariance": OneOf(("full", "diagonal")),
    "effects": OneOf((True, False, "rows", "columns")),
    "sparse": OneOf((None, "rows", "columns")),
    "inference": OneOf(("variational", "sampling")),
    "n_samples": Whole(1),
    "n_burn_in": Whole(0),
    "n_chains": Whole(1),
    "n_thin": Whole(1),
    "settle": Either(Positive(), OneOf((None,))),
    "keep_mb": Positive(),
    "n_init": Whole(1),
    "max_iter": Whole(1),
    "tol": Positive(),
    "device": Device(),
    "verbose": Whole(0),
}


def recipe_of(model: Any, **more: Any) -> Recipe:
    """Return the recipe that a completer's parameters say, with some parts given."""
    effects = more.pop("effects", model.effects)
    parts: dict[str, Any] = {
        "loss": model._loss,
        "rank": model.rank,
        "prior": model.prior,
        "prior_scale": model.prior_scale,
        "temperature": model.temperature,
        "full": model.covariance == "full",
        "row_effects": bool(effects) and effects != "columns",
        "column_effects": bool(effects) and effects != "rows",
        "sparse": model.sparse,
        "schedule": Schedule(model.max_iter, model.tol),
        "n_init": model.n_init,
    }
    if model.inference == "sampling":
        keep = int(model.keep_mb * 2**20)
        plan = (model.n_samples, model.n_burn_in, model.n_chains, model.n_thin, model.settle, keep)
        parts["sampling"] = Plan(*plan)
    return Recipe(**parts | more)


def followed(
    recipe: Recipe,
    observations: Observations,
    machine: Machine,
    rng: np.random.Generator,
    callback: Callback | None,
    start: Posterior | None,
    pairs: tuple[Codes, Codes] | None,
) -> Found:
    """Follow a recipe where the machine says, and return what a completer keeps of it."""
    with workers(machine.device, machine.n_jobs, observations.n) as crew:
        fitted = fit(recipe, observations, crew, rng, start, callback=callback, pairs=pairs)
    return found_of(recipe, fitted)


def found_of(recipe: Recipe, fitted: Fitted, remedy: str = "Raise n_samples or n_burn_in") -> Found:
    """Return what a completer keeps of a fit; ``remedy`` is what gives more draws."""
    descent, sampled = fitted.descent, fitted.sampled
    predictor = predictor_of(recipe, descent.posterior, fitted.calibration)
    attributes: dict[str, Any] = descent_attributes(descent)
    if fitted.calibration is not None:
        attributes["calibration_"] = fitted.calibration
    if fitted.avb is not None:
        attributes["avb_"] = fitted.avb
    if sampled is None:
        return Found(predictor, attributes, _advice(recipe, descent))
    attributes |= {
        "diagnostics_": sampled.diagnostics.table(),
        "n_sweeps_": sampled.n_sweeps,
        "settled_": sampled.settled,
        "rank_": sampled.draws.effective_rank,
    }
    advice = Mixing.of(attributes["diagnostics_"]).advice(remedy)
    return Found(DrawsPredictor(sampled.draws, predictor), attributes, advice, sampled.averages)


def predictor_of(
    recipe: Recipe, posterior: Posterior, calibration: Calibration | None
) -> GaussianPredictor:
    """Return what predicts from a variational posterior."""
    curve = Sigmoid() if calibration is None else calibration
    return GaussianPredictor(posterior, curve, recipe.loss, recipe.temperature)


def descent_attributes(descent: Fit) -> dict[str, Any]:
    """Return the attributes that tell of a descent."""
    return {
        "objective_": descent.objective,
        "objective_path_": descent.path,
        "n_iter_": descent.n_iter,
        "converged_": descent.converged,
        "rank_": descent.posterior.effective_rank,
    }


def _advice(recipe: Recipe, descent: Fit) -> list[str]:
    advice = []
    lost = descent.posterior.effective_rank == 0 and recipe.rank > 0
    if lost and descent.posterior.hierarchy.intercept_side is None:
        advice.append(
            "every column vanished and all scores are zero; raise temperature or lower prior_scale"
        )
    if not descent.converged:
        advice.append(
            f"stopped after {descent.n_iter} rounds before it settled to tol={recipe.schedule.tol:g}; "
            "raise max_iter or tol"
        )
    return advice


def descent_state(model: Any) -> tuple[Tensors, dict[str, Any]]:
    """Return a variational posterior and its descent as arrays and JSON."""
    tensors, content = model.predictor_.posterior.state()
    return tensors | {"objective_path": model.objective_path_}, {
        "posterior": content,
        "objective": model.objective_,
        "n_iter": model.n_iter_,
        "converged": model.converged_,
    }


def restored_descent(
    tensors: Tensors, content: dict[str, Any], shape: tuple[int, int]
) -> tuple[Posterior, dict[str, Any]]:
    """Restore a posterior and the attributes of its descent, checked."""
    posterior = Posterior.from_state(tensors, checked.section(content, "posterior"))
    if posterior.shape != shape:
        raise checked.FileError(
            f"it was fitted to {posterior.shape} rows and columns and has ids of {shape}"
        )
    descent = Fit(
        posterior,
        checked.number(content, "objective"),
        checked.checked_array(tensors, "objective_path", np.float64, (None,)),
        checked.whole(content, "n_iter"),
        checked.flag(content, "converged"),
    )
    return posterior, descent_attributes(descent)


def bayes_state(model: Any) -> tuple[Tensors, dict[str, Any]]:
    """Return what a completer of this module was fitted to, as arrays and JSON."""
    tensors, content = descent_state(model)
    if hasattr(model, "calibration_"):
        content["calibration"] = asdict(model.calibration_)
    if hasattr(model, "avb_"):
        content["avb"] = asdict(model.avb_)
    if model.is_sampled:
        more, content["draws"] = model.draws_.state()
        tensors = tensors | more
        content["n_sweeps"], content["settled"] = model.n_sweeps_, model.settled_
        content["diagnostics"] = list(model.diagnostics_.index)
        tensors["diagnostics"] = model.diagnostics_.to_numpy()
    return tensors, content


def restored_found(recipe: Recipe, tensors: Tensors, content: dict[str, Any], shape: Any) -> Found:
    """Restore what ``bayes_state`` returned."""
    posterior, attributes = restored_descent(tensors, content, shape)
    calibration = None
    if recipe.loss is HINGE:
        calibration = Calibration.from_settings(checked.section(content, "calibration"))
        attributes["calibration_"] = calibration
    if "avb" in content:
        attributes["avb_"] = ApproximateBound.from_settings(checked.section(content, "avb"))
    predictor: Predictor = predictor_of(recipe, posterior, calibration)
    if "draws" in content:
        draws = Draws.from_state(tensors, checked.section(content, "draws"))
        if draws.shape != shape:
            raise ValueError(f"draws of {draws.shape} rows and columns")
        assert isinstance(predictor, GaussianPredictor)
        predictor = DrawsPredictor(draws, predictor)
        attributes |= {
            "n_sweeps_": checked.whole(content, "n_sweeps"),
            "settled_": checked.flag(content, "settled"),
            "diagnostics_": _restored_diagnostics(tensors, content),
            "rank_": draws.effective_rank,
        }
    return Found(predictor, attributes)


def _restored_diagnostics(tensors: Tensors, content: dict[str, Any]) -> pd.DataFrame:
    """Restore the diagnostics of chains, checked; what could not be said is NaN, or an infinite R-hat."""
    names = checked.listed(content, "diagnostics")
    for place in range(len(names)):
        checked.text(names, place)
    found = tensors.get("diagnostics", np.empty(0))
    known = {"diagnostics": np.where(np.isfinite(found), found, 0.0)}
    checked.checked_array(known, "diagnostics", np.float64, (len(names), len(DIAGNOSTICS)))
    return pd.DataFrame(found, index=pd.Index(names, name="functional"), columns=list(DIAGNOSTICS))


class LogisticCompleter(PairClassifier):
    """Variational Bayes with the logistic loss: the completer to start with.

    Minimises ``sum_l log(1 + exp(-y_l M_l)) + KL / temperature`` in expectation over a Gaussian
    posterior of ``M_ij = mu + a_i + b_j + L_i . R_j``, through Jaakkola's bound (Section 5 of the paper,
    with row and column effects added). The variance of every column of ``L`` and ``R`` is learnt, and
    columns that the data does not need vanish: ``rank`` is only an upper bound.

    Parameters
    ----------
    rank : int, default 10
        The largest rank considered (``K`` in the paper); capped at the matrix's own.
    prior : {"inverse-gamma", "gamma"}, InverseGamma or Gamma
        Prior on the variances of the columns.
    prior_scale : float or "auto", default "auto"
        The variance that a column keeps without support from the data; unused when ``prior`` is an
        instance. "auto" is 0.03 for the variational posterior and 0.0003 for the sampled one.
    temperature : float, default 1
        ``lambda / n``. One is the likelihood; tests, votes and model evaluations often gain from 1.5.
    covariance : {"full", "diagonal"}
        The posterior of a row: a full covariance, or independent coordinates (less memory).
    effects : bool, "rows" or "columns", default True
        Row and column effects. ``False`` is the paper's model.
    sparse : {None, "rows", "columns"}
        The side whose members take part in few factors each: items that measure one ability, songs of
        one genre ("simple structure"). A coordinate then has a variance of its own.
    inference : {"variational", "sampling"}
        "sampling" goes on from the variational posterior and draws from the exact one.
    n_samples, n_burn_in, n_chains, n_thin : int, default 200, 20, 1, 1
        Draws of each chain, sweeps before the first, chains, and sweeps from draw to draw.
    settle : float or None
        Stop sampling earlier, once the Monte Carlo error of every functional that is watched is below
        this share of its posterior standard deviation.
    keep_mb : float, default 256
        The most that the kept draws may take, in megabytes; beyond it they are thinned evenly.
    n_init : int, default 1
        Number of starts; the first is spectral, others perturb it. The lowest objective is kept.
    max_iter, tol : int, float
        At most so many rounds, until a round lowers the objective by less than ``tol`` (relative).
    random_state : int, RandomState or None
        Seed of the starts. The result does not depend on ``n_jobs``.
    n_jobs : int or None, default -1
        Threads; -1 uses all cores.
    device : {"cpu", "auto", "cuda", "cuda:1", ...}
        Where the fit and large predictions run. "cuda" is an NVIDIA GPU (``pip install onebit[gpu]``),
        "auto" one where there is one and the data is large enough to gain from it.
    verbose : int
        Above zero, every round is logged.

    Attributes
    ----------
    posterior_ : Posterior
        Means, covariances, KL to the prior.
    rank_ : int
        The number of columns that are left: a rank that suffices, at most ``rank``.
    objective_, objective_path_ : float, ndarray
        The objective reached (mean bound on the loss plus KL / lambda), and its course.
    n_iter_, converged_ : int, bool
        Rounds taken by the variational descent, and whether ``tol`` was met.
    draws_, diagnostics_, n_sweeps_, settled_ : Draws, DataFrame, int, bool
        Of a sampled model: the kept draws, R-hat and effective sample sizes, the sweeps of each chain,
        and whether ``settle`` stopped it.
    requested_ : DataFrame
        Predictions of the pairs given as ``fit(..., predict_for=pairs)``.
    folded_in_ : FoldedIn
        What the last ``fold_in`` added and skipped.
    row_effects_, column_effects_ : Series
        The effect of each row on a typical column, and of each column on a typical row, as log-odds.
    classes_ : ndarray
        The two answers as they were written, "no" first.

    Examples
    --------
    >>> from onebit import LogisticCompleter, simulate
    >>> world = simulate.world("A1", rank=2, shape=(60, 50), density=0.4, seed=0)
    >>> model = LogisticCompleter(rank=5).fit(world.pairs, world.answers)
    >>> model.rank_
    2
    >>> model.predict_proba([(0, 0)]).shape
    (1, 2)
    """

    _loss = LOGISTIC
    _checks: ClassVar[dict[str, Check]] = CHECKS

    def __init__(
        self,
        rank: int = 10,
        *,
        prior: str | VariancePrior = "inverse-gamma",
        prior_scale: float | str = "auto",
        temperature: float = 1.0,
        covariance: str = "full",
        effects: bool | str = True,
        sparse: str | None = None,
        inference: str = "variational",
        n_samples: int = 200,
        n_burn_in: int = 20,
        n_chains: int = 1,
        n_thin: int = 1,
        settle: float | None = None,
        keep_mb: float = 256,
        n_init: int = 1,
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
        self.sparse = sparse
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

    def _find(
        self,
        observations: Observations,
        machine: Machine,
        rng: np.random.Generator,
        callback: Callback | None,
        start: Posterior | None,
        pairs: tuple[Codes, Codes] | None,
    ) -> Found:
        return followed(self._recipe(), observations, machine, rng, callback, start, pairs)

    def _recipe(self) -> Recipe:
        return recipe_of(self)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        return bayes_state(self)

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        shape = (len(self.rows_), len(self.columns_))
        self._take(restored_found(self._recipe(), tensors, content, shape))


class HingeCompleter(PairClassifier):
    """Variational Bayes with the hinge loss: robust where answers are wrong or the truth is sharp.

    Two methods. ``"engine"`` bounds the expected hinge loss by Jensen's inequality and descends by
    closed-form updates. ``"paper"`` is the paper's Algorithm 1: its approximate variational bound (AVB),
    sub-gradient steps, independent coordinates and no effects.

    Probabilities: hinge scores are no log-odds. ``predict_proba`` applies a logistic curve in
    ``mean / sqrt(1 + variance)`` that is fitted on a tenth of the answers, held out of a first fit from
    which the engine's final one, on all answers, starts. ``calibrate=False`` saves that fit and uses the
    curve of the pseudo-likelihood, ``sigmoid(2 temperature x)``.

    Parameters
    ----------
    method : {"engine", "paper"}
        How the posterior is found. Sub-gradient steps of the paper's method may raise ``objective_path_``
        by per cents on the way; what they return is its lowest point.
    calibrate : bool, default True
        Whether to fit the curve of ``predict_proba``.
    effects, covariance : as for LogisticCompleter, or "auto"
        "auto" is True and "full" for the engine, False and "diagonal" for the paper's method.
    rank, prior, prior_scale, temperature, sparse, inference, n_samples, n_burn_in, n_chains, n_thin,
    settle, keep_mb, n_init, max_iter, tol, random_state, n_jobs, device, verbose
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
        inference: str = "variational",
        n_samples: int = 200,
        n_burn_in: int = 20,
        n_chains: int = 1,
        n_thin: int = 1,
        settle: float | None = None,
        keep_mb: float = 256,
        calibrate: bool = True,
        n_init: int = 1,
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
        self.sparse = sparse
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
        return None if self.calibrate else "they were not calibrated (calibrate=False)"

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

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        return bayes_state(self)

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        shape = (len(self.rows_), len(self.columns_))
        self._take(restored_found(self._recipe(), tensors, content, shape))


def recipe_for(completer: LogisticCompleter | HingeCompleter) -> Recipe:
    """Return the recipe that a completer of this module follows."""
    return completer._recipe()


def completer_of(recipe: Recipe, **settings: Any) -> LogisticCompleter | HingeCompleter:
    """Return an unfitted completer whose parameters say this recipe."""
    common: dict[str, Any] = {
        "rank": recipe.rank,
        "temperature": recipe.temperature,
        "prior": recipe.prior,
        "prior_scale": recipe.prior_scale,
        "effects": recipe.row_effects,
        "sparse": recipe.sparse,
        "max_iter": recipe.schedule.max_iter,
        "tol": recipe.schedule.tol,
    } | settings
    if recipe.loss is HINGE:
        return HingeCompleter(calibrate=recipe.calibrate, **common)
    plan = recipe.sampling
    if plan is not None:
        common |= {
            "inference": "sampling",
            "n_samples": plan.n_samples,
            "n_burn_in": plan.n_burn_in,
            "n_chains": plan.n_chains,
            "n_thin": plan.n_thin,
            "settle": plan.settle,
        }
    return LogisticCompleter(**common)
