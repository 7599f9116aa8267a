"""The variational completers: one for each loss."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit import checked
from onebit.calibration import (
    Calibration,
    expected_sigmoid,
    fit_calibration,
    natural_calibration,
)
from onebit.engine.coordinate import Callback, Fit, Workers
from onebit.engine.paper import ApproximateBound, minimise_avb
from onebit.engine.start import Start
from onebit.engine.workers import Cpu
from onebit.exact import ExactCompleter
from onebit.hierarchy import Hierarchy
from onebit.losses import HINGE, LOGISTIC
from onebit.observations import Observations
from onebit.parameters import OneOf
from onebit.posterior import Posterior
from onebit.priors import VariancePrior
from onebit.storage import Tensors

Array = NDArray[np.float64]

# Hinge scores are calibrated on this share of the answers, held out of a first fit.
CALIBRATION_SHARE = 0.1
SMALLEST_CALIBRATION = 30


class LogisticCompleter(ExactCompleter):
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

    def _probability(self, mean: Array, variance: Array) -> Array:
        return expected_sigmoid(mean, variance)


class HingeCompleter(ExactCompleter):
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
    _checks = ExactCompleter._checks | {
        "method": OneOf(("engine", "paper")),
        "calibrate": OneOf((True, False)),
        "effects": OneOf(("auto", True, False, "rows", "columns")),
        "covariance": OneOf(("auto", "full", "diagonal")),
    }

    avb_: ApproximateBound
    calibration_: Calibration

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
        super().__init__(
            rank,
            prior=prior,
            prior_scale=prior_scale,
            temperature=temperature,
            covariance=covariance,
            effects=effects,
            sparse=sparse,
            inference=inference,
            n_samples=n_samples,
            n_burn_in=n_burn_in,
            n_chains=n_chains,
            n_thin=n_thin,
            settle=settle,
            keep_mb=keep_mb,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            n_jobs=n_jobs,
            device=device,
            verbose=verbose,
        )
        self.method = method
        self.calibrate = calibrate

    def _resolved_effects(self) -> bool | str:
        if self.effects == "auto":
            return self.method == "engine"
        if self.method == "paper" and self.effects:
            raise ValueError('method="paper" has no row and column effects; set effects=False')
        return self.effects

    def _is_full(self) -> bool:
        if self.method == "paper" and self.covariance == "full":
            raise ValueError('method="paper" has independent coordinates; set covariance="diagonal"')
        return self.covariance == "full" or (self.covariance == "auto" and self.method == "engine")

    def _fit_device(self) -> str:
        if self.method == "engine":
            return self.device
        if self.device not in ("cpu", "auto"):
            raise ValueError(
                f'method="paper" runs on the CPU only; set device="cpu", not {self.device!r}'
            )
        return "cpu"

    def _run(
        self,
        observations: Observations,
        rng: np.random.Generator,
        pool: Workers,
        callback: Callback | None,
        start: Posterior | None = None,
    ) -> tuple[Fit, dict[str, Any]]:
        calibration = natural_calibration(self.temperature)
        held = rng.random(observations.n) < CALIBRATION_SHARE
        if self.calibrate and held.sum() >= SMALLEST_CALIBRATION and not held.all():
            first, _ = super()._run(observations.take(~held), rng, pool, callback)
            rows, columns, sign, weight = observations.entries(held)
            if self.inference == "sampling":
                averages = self.held_out_averages(
                    observations.take(~held), first.posterior, (rows, columns), rng, callback
                )
                mean, variance = averages.mean, averages.variance
            else:
                mean, variance = first.posterior.score_moments(rows, columns, pool.count)
            calibration = fit_calibration(mean, variance, sign, weight)
            start = first.posterior if self.method == "engine" else None
        fit, found = super()._run(observations, rng, pool, callback, start)
        return fit, found | {"calibration_": calibration}

    def _descend(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        start: Start | Posterior,
        pool: Workers,
        callback: Callback | None,
    ) -> tuple[Fit, dict[str, Any]]:
        if self._is_full() or self.method == "engine":
            return super()._descend(observations, hierarchy, start, pool, callback)
        assert isinstance(start, Start)  # only the engine starts from a posterior
        assert isinstance(pool, Cpu)
        fit, avb = minimise_avb(
            observations,
            hierarchy,
            start,
            temperature=self.temperature,
            schedule=self._schedule(),
            pool=pool.pool,
            callback=callback,
        )
        return fit, {"avb_": avb}

    def _keeps_checkpoints(self) -> bool:
        return self.method != "paper"

    def _sampled_probability(self, mean: Array, variance: Array, chance: Array) -> Array:
        return self.calibration_.probability(mean, variance)

    def _probability(self, mean: Array, variance: Array) -> Array:
        return self.calibration_.probability(mean, variance)

    def _store(self, fit: Fit, found: dict[str, Any]) -> None:
        self.__dict__.pop("avb_", None)  # of an earlier fit by the paper's method
        super()._store(fit, found)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, content = super()._state()
        content["calibration"] = asdict(self.calibration_)
        if self.method == "paper":
            content["avb"] = asdict(self.avb_)
        return tensors, content

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        super()._restore(tensors, content)
        self.calibration_ = Calibration.from_settings(checked.section(content, "calibration"))
        if "avb" in content:
            self.avb_ = ApproximateBound.from_settings(checked.section(content, "avb"))
