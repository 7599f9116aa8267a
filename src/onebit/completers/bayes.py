"""What the completers of the logistic and of the hinge loss share: recipes in, predictors out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from onebit.completers.base import Found
from onebit.completers.parameters import (
    Check,
    Device,
    Either,
    Instance,
    OneOf,
    Positive,
    Whole,
    plain,
)
from onebit.completers.predictions import Codes
from onebit.completers.predictors import DrawsPredictor, GaussianPredictor, Predictor
from onebit.data import checked
from onebit.data.observations import Observations
from onebit.data.storage import Tensors
from onebit.engine.algorithm_1 import ApproximateBound
from onebit.engine.crew import Callback
from onebit.engine.descent import Fit, Schedule
from onebit.engine.fitting import TOO_FEW_TO_CALIBRATE, Fitted, fit
from onebit.engine.recipe import Recipe
from onebit.engine.sampling.plan import MOST_CHAINS, MOST_DRAWS, Plan
from onebit.engine.workers import Machine, workers
from onebit.model.calibration import Calibration, Sigmoid, natural_calibration
from onebit.model.diagnostics import DIAGNOSTICS, FEWEST_DRAWS, Mixing
from onebit.model.draws import Draws
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import LOGISTIC
from onebit.model.posterior import Posterior
from onebit.model.priors import Gamma, InverseGamma

# What the parameters of both completers must meet.
CHECKS: dict[str, Check] = {
    "rank": Whole(0),
    "prior": Instance((InverseGamma, Gamma), OneOf(("inverse-gamma", "gamma"))),
    "prior_scale": Either(Positive(), OneOf(("auto",))),
    "temperature": Positive(),
    "covariance": OneOf(("full", "diagonal")),
    "effects": OneOf((True, False, "rows", "columns")),
    "sparse": OneOf((None, "rows", "columns")),
    "pattern": OneOf(("auto", "both", "rows", "columns", None)),
    "inference": OneOf(("variational", "sampling")),
    "n_samples": Whole(1, MOST_DRAWS),
    "n_burn_in": Whole(0),
    "n_chains": Whole(1, MOST_CHAINS),
    "n_thin": Whole(1),
    "settle": Either(Positive(most=1.0), OneOf((None, "auto"))),
    "keep_mb": Positive(),
    "n_init": Whole(1),
    "max_iter": Whole(1),
    "tol": Either(Positive(), OneOf(("auto",))),
    "device": Device(),
    "verbose": Whole(0),
}


def recipe_of(model: Any, **more: Any) -> Recipe:
    """Return the recipe that a completer's parameters say, with some parts given."""
    effects = more.pop("effects", model.effects)
    parts: dict[str, Any] = {
        "loss": model._loss,
        "rank": plain(model.rank),
        "prior": model.prior,
        "prior_scale": plain(model.prior_scale),
        "temperature": plain(model.temperature),
        "full": model.covariance == "full",
        "row_effects": bool(effects) and effects != "columns",
        "column_effects": bool(effects) and effects != "rows",
        "sparse": model.sparse,
        "pattern": ("both" if effects else None) if model.pattern == "auto" else model.pattern,
        "schedule": Schedule(plain(model.max_iter), plain(model.tol)),
        "n_init": plain(model.n_init),
    }
    if model.inference == "sampling":
        plan = ("n_samples", "n_burn_in", "n_chains", "n_thin", "settle")
        numbers = {name: plain(getattr(model, name)) for name in plan}
        parts["sampling"] = Plan(**numbers, keep_bytes=int(plain(model.keep_mb) * 2**20))
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
    if start is not None:
        _check_start(start.hierarchy, recipe.hierarchy(observations.shape))
    with workers(machine, observations.n) as crew:
        fitted = fit(recipe, observations, crew, rng, start, callback=callback, pairs=pairs)
    return found_of(recipe, fitted)


def _check_start(begun: Hierarchy, wanted: Hierarchy) -> None:
    """Refuse to begin where coordinates mean something else."""

    def said(prior: Hierarchy) -> str:
        sides = {(True, True): "rows and columns", (True, False): "rows", (False, True): "columns"}
        effects = sides.get((prior.row_effects, prior.column_effects), "no side")
        return f"rank {prior.rank} and effects of {effects}"

    if said(begun) != said(wanted):
        raise ValueError(
            f"the start has {said(begun)}, this fit {said(wanted)}; begin from a model of the same rank "
            "and effects, or leave start out"
        )


def found_of(recipe: Recipe, fitted: Fitted, remedy: str = "Raise n_samples") -> Found:
    """Return what a completer keeps of a fit; ``remedy`` is what gives more draws."""
    descent, sampled = fitted.descent, fitted.sampled
    predictor = predictor_of(recipe, descent.posterior, fitted.calibration)
    attributes: dict[str, Any] = descent_attributes(descent)
    if fitted.calibration is not None:
        attributes["calibration_"] = fitted.calibration
    if fitted.avb is not None:
        attributes["avb_"] = fitted.avb
    uncalibrated = []
    if recipe.calibrate and fitted.calibration == natural_calibration(recipe.temperature):
        uncalibrated = [
            f"its answers are {TOO_FEW_TO_CALIBRATE}: probabilities are those of the pseudo-likelihood, "
            "which are too sure of themselves; LogisticCompleter needs no curve"
        ]
    if sampled is None:
        return Found(predictor, attributes, _advice(recipe, descent) + uncalibrated)
    attributes |= {
        "diagnostics_": sampled.diagnostics.table(),
        "n_sweeps_": sampled.n_sweeps,
        "settled_": sampled.settled,
        "n_draws_": sampled.n_draws,
        "loss_error_": sampled.loss_error,
        "rank_": sampled.draws.effective_rank,
    }
    advice = Mixing.of(attributes["diagnostics_"]).advice(remedy) + uncalibrated
    if sampled.draws.count < min(FEWEST_DRAWS, sampled.n_draws):
        advice.append(
            f"only {sampled.draws.count} of {sampled.n_draws:,} draws are kept, and predictions are "
            "averages over these; raise keep_mb"
        )
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
            "every column vanished and all scores are zero: to this model the answers are noise; a "
            "higher temperature or a lower prior_scale would follow them further"
        )
    if not descent.converged:
        tol = recipe.schedule.tol
        remedy = "raise max_iter" if isinstance(tol, str) else "raise max_iter or tol"
        advice.append(f"stopped after {descent.n_iter} rounds before it settled to tol={tol!r}; {remedy}")
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
        content["n_draws"] = model.n_draws_
        content["loss_error"] = model.loss_error_ if np.isfinite(model.loss_error_) else None
        content["diagnostics"] = list(model.diagnostics_.index)
        tensors["diagnostics"] = model.diagnostics_.to_numpy()
    return tensors, content


def restored_found(recipe: Recipe, tensors: Tensors, content: dict[str, Any], shape: Any) -> Found:
    """Restore what ``bayes_state`` returned."""
    posterior, attributes = restored_descent(tensors, content, shape)
    calibration = None
    if recipe.loss is not LOGISTIC:
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
            # Earlier files do not say these.
            "n_draws_": checked.whole(content, "n_draws") if "n_draws" in content else draws.count,
            "loss_error_": _restored_error(content),
            "diagnostics_": _restored_diagnostics(tensors, content),
            "rank_": draws.effective_rank,
        }
    return Found(predictor, attributes)


def _restored_error(content: dict[str, Any]) -> float:
    """Restore the Monte Carlo error of the log-loss; NaN where it could not be told."""
    if content.get("loss_error") is None:
        return float("nan")
    error = checked.number(content, "loss_error")
    if error < 0:
        raise checked.FileError("loss_error is negative")
    return error


def _restored_diagnostics(tensors: Tensors, content: dict[str, Any]) -> pd.DataFrame:
    """Restore the diagnostics of chains, checked; what could not be said is NaN, or an infinite R-hat."""
    names = checked.listed(content, "diagnostics")
    for place in range(len(names)):
        checked.text(names, place)
    found = tensors.get("diagnostics", np.empty(0))
    known = {"diagnostics": np.where(np.isfinite(found), found, 0.0)}
    checked.checked_array(known, "diagnostics", np.float64, (len(names), len(DIAGNOSTICS)))
    return pd.DataFrame(found, index=pd.Index(names, name="functional"), columns=list(DIAGNOSTICS))
