"""The variational completers: scikit-learn classifiers around the engine."""

from __future__ import annotations

import warnings
from dataclasses import asdict, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from onebit.calibration import (
    Calibration,
    expected_sigmoid,
    fit_calibration,
    natural_calibration,
)
from onebit.engine.coordinate import Callback, Fit, Progress, Schedule, minimise
from onebit.engine.foldin import fold_in
from onebit.engine.paper import ApproximateBound, minimise_avb
from onebit.engine.start import spectral_start
from onebit.estimator import PairClassifier, logger
from onebit.hierarchy import Hierarchy
from onebit.ids import IdIndex, pair_columns
from onebit.losses import HINGE, LOGISTIC, Loss
from onebit.observations import Observations, signs
from onebit.parameters import Check, Instance, OneOf, Positive, Whole
from onebit.posterior import Posterior
from onebit.priors import Gamma, InverseGamma, VariancePrior
from onebit.storage import Tensors
from onebit.threads import Threads, threads

Array = NDArray[np.float64]

# Relative size of the noise added to the spectral start of the second and later starts.
JITTER = 0.5
# Hinge scores are calibrated on this share of the answers, held out of a first fit.
CALIBRATION_SHARE = 0.1
SMALLEST_CALIBRATION = 30


def variance_prior(prior: str | VariancePrior, scale: float, count: int) -> VariancePrior:
    """Return the prior on variances that ``count`` Gaussians share.

    A prior with constant parameters vanishes beside the ``count`` coordinates that bear on each variance,
    so its weight grows with them. The inverse-Gamma prior adds ``scale`` to every variance,
    ``E[gamma] = scale + energy / count`` nearly: the variance that a column keeps without support. The
    Gamma prior draws variances towards ``10 scale``, with a tenth of the coordinates' weight; it bounds
    large variances where the other lifts small ones.
    """
    if prior == "inverse-gamma":
        return InverseGamma(1.0, 0.5 * scale * count)
    if prior == "gamma":
        shape = 1.0 + 0.05 * count
        return Gamma(shape, shape / (10.0 * scale))
    assert not isinstance(prior, str)
    return prior


class VariationalCompleter(PairClassifier):
    """Base of the completers whose result is a Gaussian posterior; not used by itself."""

    _loss: ClassVar[Loss]
    _checks: ClassVar[dict[str, Check]] = {
        "rank": Whole(0),
        "prior": Instance((InverseGamma, Gamma), OneOf(("inverse-gamma", "gamma"))),
        "prior_scale": Positive(),
        "temperature": Positive(),
        "covariance": OneOf(("full", "diagonal")),
        "effects": OneOf((True, False, "rows", "columns")),
        "n_init": Whole(1),
        "max_iter": Whole(1),
        "tol": Positive(),
        "verbose": Whole(0),
    }

    posterior_: Posterior

    def __init__(
        self,
        rank: int = 10,
        *,
        prior: str | VariancePrior = "inverse-gamma",
        prior_scale: float = 0.03,
        temperature: float = 1.0,
        covariance: str = "full",
        effects: bool | str = True,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-5,
        random_state: Any = None,
        n_jobs: int | None = -1,
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.prior = prior
        self.prior_scale = prior_scale
        self.temperature = temperature
        self.covariance = covariance
        self.effects = effects
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _fit(
        self, observations: Observations, rng: np.random.Generator, callback: Callback | None
    ) -> None:
        with threads(self.n_jobs) as pool:
            fit, found = self._run(observations, rng, pool, self._reporting(callback))
        self._store(fit, found)
        if not fit.converged:
            warnings.warn(
                f"{type(self).__name__} stopped after {fit.n_iter} rounds before it settled to "
                f"tol={self.tol:g}; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _reporting(self, callback: Callback | None) -> Callback | None:
        if not self.verbose:
            return callback

        def report(progress: Progress) -> None:
            logger.info("round %d: objective %.6f", progress.round, progress.objective)
            if callback is not None:
                callback(progress)

        return report

    def _hierarchy(self, observations: Observations) -> Hierarchy:
        shape = observations.shape
        effects = self._resolved_effects()
        return Hierarchy(
            shape,
            min(self.rank, *shape),
            bool(effects) and effects != "columns",
            bool(effects) and effects != "rows",
            variance_prior(self.prior, self.prior_scale, sum(shape)),
            InverseGamma(1.0, 1.0),
        )

    def _resolved_effects(self) -> bool | str:
        return self.effects

    def _is_full(self) -> bool:
        return self.covariance == "full"

    def _schedule(self) -> Schedule:
        return Schedule(self.max_iter, self.tol)

    def _run(
        self,
        observations: Observations,
        rng: np.random.Generator,
        pool: Threads,
        callback: Callback | None,
        start: Posterior | None = None,
    ) -> tuple[Fit, dict[str, Any]]:
        """Descend from each of the ``n_init`` starts and return the fit with the lowest objective.

        Nothing is stored on the estimator: what else was found comes back as attributes to set.
        """
        hierarchy = self._hierarchy(observations)
        fits = []
        for k in range(self.n_init):
            begin = start if k == 0 else None
            fits.append(
                minimise(
                    observations,
                    hierarchy,
                    self._loss,
                    begin or spectral_start(observations, hierarchy, rng, JITTER if k else 0.0),
                    full=self._is_full(),
                    temperature=self.temperature,
                    schedule=self._schedule(),
                    pool=pool,
                    callback=callback,
                )
            )
        return min(fits, key=lambda fit: fit.objective), {}

    def _store(self, fit: Fit, found: dict[str, Any]) -> None:
        for name in ("calibration_", "avb_"):
            self.__dict__.pop(name, None)
        for name, value in found.items():
            setattr(self, name, value)
        self.posterior_ = fit.posterior
        self.objective_ = fit.objective
        self.objective_path_ = fit.path
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        self.rank_ = fit.posterior.effective_rank

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, content = self.posterior_.state()
        return tensors | {"objective_path": self.objective_path_}, {
            "posterior": content,
            "objective": self.objective_,
            "n_iter": self.n_iter_,
            "converged": self.converged_,
        }

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        self._store(
            Fit(
                Posterior.from_state(tensors, content["posterior"]),
                content["objective"],
                tensors["objective_path"],
                content["n_iter"],
                content["converged"],
            ),
            {},
        )

    def _score_moments(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> tuple[Array, Array]:
        return self.posterior_.score_moments(rows, columns, self.n_jobs)

    def predict_uncertainty(self, X: Any) -> Array:
        """Return the posterior standard deviation of each pair's score."""
        return np.sqrt(self._score_moments(*self._codes(X))[1])

    def fold_in(self, X: Any, y: Any) -> VariationalCompleter:
        """Add new rows (or new columns) from their answers, leaving everything fitted as it is.

        Parameters
        ----------
        X : two-column table
            Pairs of new row ids and known column ids, or of known row ids and new column ids.
        y : array_like of shape (n,)
            Their answers.

        Returns
        -------
        self
            The same model, which now knows the new ids.
        """
        check_is_fitted(self)
        row_values, column_values = pair_columns(X)
        codes = [self.rows_.encode(row_values), self.columns_.encode(column_values)]
        if len(codes[0]) == 0:
            raise ValueError("fold_in needs at least one answer")
        new = [bool((code < 0).all()) for code in codes]
        if new[0] == new[1] or any((codes[1 - side] < 0).any() for side in (0, 1) if new[side]):
            raise ValueError(
                "fold_in takes answers of new rows on known columns, or of known rows on new columns; "
                f"here {(codes[0] < 0).mean():.0%} of the row ids and {(codes[1] < 0).mean():.0%} of "
                "the column ids are new. Known ids get further answers by a refit"
            )
        sign, _ = signs(y)
        if len(sign) != len(codes[0]):
            raise ValueError(f"{len(codes[0])} pairs but {len(sign)} answers; each pair needs one answer")
        side = 0 if new[0] else 1
        index, own = IdIndex.from_values((row_values, column_values)[side], ("row", "column")[side])
        known = (self.columns_, self.rows_)[side]
        answers = Observations.from_codes(index, known, own, codes[1 - side], sign).by_row
        added = fold_in(self.posterior_, side, answers, self._loss, self.temperature)
        sides = list(self.posterior_.sides)
        sides[side] = sides[side].extended(added.mean, added.covariance)
        shape = (len(sides[0].mean), len(sides[1].mean))
        self.posterior_ = replace(
            self.posterior_,
            rows=sides[0],
            columns=sides[1],
            hierarchy=replace(self.posterior_.hierarchy, shape=shape),
        )
        if side == 0:
            self.rows_ = self.rows_.extended(index.labels)
        else:
            self.columns_ = self.columns_.extended(index.labels)
        return self


class LogisticCompleter(VariationalCompleter):
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
    prior_scale : float, default 0.03
        The variance that a column keeps without support from the data; unused when ``prior`` is an
        instance.
    temperature : float, default 1
        ``lambda / n``. One is the likelihood; tests, votes and model evaluations often gain from 1.5.
    covariance : {"full", "diagonal"}
        The posterior of a row: a full covariance, or independent coordinates (lighter).
    effects : bool, "rows" or "columns", default True
        Row and column effects. ``False`` is the paper's model.
    n_init : int, default 1
        Number of starts; the first is spectral, others perturb it. The lowest objective is kept.
    max_iter, tol : int, float
        At most so many rounds, until a round lowers the objective by less than ``tol`` (relative).
    random_state : int, RandomState or None
        Seed of the starts. The result does not depend on ``n_jobs``.
    n_jobs : int or None, default -1
        Threads; -1 uses all cores.
    verbose : int
        Above zero, every round is logged.

    Attributes
    ----------
    posterior_ : Posterior
        Means, covariances, KL to the prior.
    rank_ : int
        The rank found.
    objective_, objective_path_ : float, ndarray
        The objective reached (mean bound on the loss plus KL / lambda), and its course.
    n_iter_, converged_ : int, bool
        Rounds taken, and whether ``tol`` was met.
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


class HingeCompleter(VariationalCompleter):
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
        How the posterior is found.
    calibrate : bool, default True
        Whether to fit the curve of ``predict_proba``.
    effects, covariance : as for LogisticCompleter, or "auto"
        "auto" is True and "full" for the engine, False and "diagonal" for the paper's method.
    rank, prior, prior_scale, temperature, n_init, max_iter, tol, random_state, n_jobs, verbose
        As for LogisticCompleter.

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
    _checks = VariationalCompleter._checks | {
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
        prior_scale: float = 0.03,
        temperature: float = 1.0,
        covariance: str = "auto",
        effects: bool | str = "auto",
        calibrate: bool = True,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-5,
        random_state: Any = None,
        n_jobs: int | None = -1,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            rank,
            prior=prior,
            prior_scale=prior_scale,
            temperature=temperature,
            covariance=covariance,
            effects=effects,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            n_jobs=n_jobs,
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

    def _run(
        self,
        observations: Observations,
        rng: np.random.Generator,
        pool: Threads,
        callback: Callback | None,
        start: Posterior | None = None,
    ) -> tuple[Fit, dict[str, Any]]:
        calibration = natural_calibration(self.temperature)
        held = rng.random(observations.n) < CALIBRATION_SHARE
        if self.calibrate and held.sum() >= SMALLEST_CALIBRATION and not held.all():
            first, _ = self._descend(observations.take(~held), rng, pool, callback, None)
            view = observations.by_row
            mean, variance = first.posterior.score_moments(
                view.owners()[held], view.index[held], pool.count
            )
            weight = view.weight[held].astype(float) if len(view.weight) else None
            calibration = fit_calibration(mean, variance, view.sign[held], weight)
            start = first.posterior
        fit, found = self._descend(observations, rng, pool, callback, start)
        return fit, found | {"calibration_": calibration}

    def _descend(
        self,
        observations: Observations,
        rng: np.random.Generator,
        pool: Threads,
        callback: Callback | None,
        start: Posterior | None,
    ) -> tuple[Fit, dict[str, Any]]:
        if self._is_full() or self.method == "engine":
            return super()._run(observations, rng, pool, callback, start)
        hierarchy = self._hierarchy(observations)
        runs = [
            minimise_avb(
                observations,
                hierarchy,
                spectral_start(observations, hierarchy, rng, JITTER if k else 0.0),
                temperature=self.temperature,
                schedule=self._schedule(),
                pool=pool,
                callback=callback,
            )
            for k in range(self.n_init)
        ]
        fit, avb = min(runs, key=lambda run: run[0].objective)
        return fit, {"avb_": avb}

    def _probability(self, mean: Array, variance: Array) -> Array:
        return self.calibration_.probability(mean, variance)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, content = super()._state()
        content["calibration"] = asdict(self.calibration_)
        if self.method == "paper":
            content["avb"] = asdict(self.avb_)
        return tensors, content

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        super()._restore(tensors, content)
        self.calibration_ = Calibration(**content["calibration"])
        if "avb" in content:
            self.avb_ = ApproximateBound(**content["avb"])
