"""Completers that can go on from the variational posterior to the exact one, by sampling."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtri
from sklearn.utils.validation import check_is_fitted

from onebit.calibration import CERTAINTY
from onebit.certificates import Certificate
from onebit.diagnostics import DIAGNOSTICS, Mixing
from onebit.engine.chain import Target
from onebit.engine.coordinate import Callback, Fit, Workers
from onebit.engine.sampled_foldin import draw_new
from onebit.engine.sampling import Averages, Plan, Sampled, sample
from onebit.estimator import PairClassifier
from onebit.hierarchy import Hierarchy
from onebit.ids import pair_columns
from onebit.ladder import RANDOMISED, DrawnPredictor
from onebit.losses import LOGISTIC
from onebit.observations import Observations, View
from onebit.parameters import Check, Either, OneOf, Positive, Whole
from onebit.posterior import Posterior
from onebit.priors import VariancePrior
from onebit.sampled import Draws
from onebit.storage import Tensors
from onebit.threads import threads
from onebit.variational import VariationalCompleter, variance_prior

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

# The inverse-Gamma prior's scale by default. The variational posterior lets go of a column at once, and
# this is the variance that it keeps; in the exact posterior a column without support spreads as far as
# the prior invites it to, and a smaller scale invites it less.
VARIATIONAL_SCALE, SAMPLING_SCALE = 0.03, 0.0003
NOT_GAUSSIAN = (
    "this certificate needs the divergence of a Gaussian posterior from the prior, and draws have none; "
    'fit with certify=0.1 for a held-out one, or with inference="variational"'
)


NO_INTERVAL = (
    "this model is a variational approximation, which is too narrow for credible intervals of a stated "
    'level; fit with inference="sampling" (AutoCompleter samples within sampling_seconds), or take '
    "intervals that are too narrow with approximate=True"
)
# Rungs that speak of a Gaussian posterior.
GAUSSIAN_ONLY = ("theorem-1-printed", "theorem-1", "catoni", "pac-bayes-kl", "learnt-prior")
_SAMPLED = ("draws_", "diagnostics_", "n_sweeps_", "settled_")


class ExactCompleter(VariationalCompleter):
    """Base of the completers whose posterior can be sampled; not used by itself."""

    _checks: ClassVar[dict[str, Check]] = VariationalCompleter._checks | {
        "inference": OneOf(("variational", "sampling")),
        "n_samples": Whole(1),
        "n_burn_in": Whole(0),
        "n_chains": Whole(1),
        "n_thin": Whole(1),
        "settle": Either(Positive(), OneOf((None,))),
        "keep_mb": Positive(),
        "prior_scale": Either(Positive(), OneOf(("auto",))),
    }

    # Draws of each chain before ``settle`` may stop it.
    _least_samples = 0
    # Only while a fit lasts: the pairs asked for, and what the sampler returned.
    _wanted: tuple[Any, Any] | None = None
    _sampled: Sampled | None = None

    draws_: Draws
    diagnostics_: pd.DataFrame
    requested_: pd.DataFrame
    n_sweeps_: int
    settled_: bool

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
        super().__init__(
            rank,
            prior=prior,
            temperature=temperature,
            covariance=covariance,
            effects=effects,
            sparse=sparse,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            n_jobs=n_jobs,
            device=device,
            verbose=verbose,
        )
        self.prior_scale = prior_scale  # type: ignore[assignment]
        self.inference = inference
        self.n_samples = n_samples
        self.n_burn_in = n_burn_in
        self.n_chains = n_chains
        self.n_thin = n_thin
        self.settle = settle
        self.keep_mb = keep_mb

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        certify: float | None = None,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        predict_for: Any = None,
    ) -> Self:
        """Fit to pairs and their answers.

        Parameters
        ----------
        X, y, sample_weight, certify, callback, checkpoint
            As for every completer: pairs of ids and their answers (or a whole matrix), weights, the share
            to hold out for a certificate, what to call after each round or sweep, and a folder in which
            a long fit keeps where it is.
        predict_for : two-column table, optional
            Pairs whose predictions are wanted. Sampling averages them over every draw, kept or not; they
            are in ``requested_``.
        """
        self._wanted = None if predict_for is None else pair_columns(predict_for)
        try:
            super().fit(X, y, sample_weight, certify=certify, callback=callback, checkpoint=checkpoint)
            self.__dict__.pop("requested_", None)
            if self._wanted is not None:
                averages = None if self._sampled is None else self._sampled.averages
                self.requested_ = self._requested(self._wanted, averages)
        finally:
            self._wanted = self._sampled = None
        return self

    def _prior_scale(self) -> float:
        return VARIATIONAL_SCALE if isinstance(self.prior_scale, str) else self.prior_scale

    def _sampled_hierarchy(self, hierarchy: Hierarchy) -> Hierarchy:
        """Return the prior that is sampled: that of the variational fit, but for an automatic scale."""
        if self.prior != "inverse-gamma" or not isinstance(self.prior_scale, str):
            return hierarchy
        prior = variance_prior(self.prior, SAMPLING_SCALE, sum(hierarchy.shape))
        return replace(hierarchy, factor_prior=prior)

    @property
    def is_sampled(self) -> bool:
        """Whether predictions come from draws of the exact posterior."""
        return "draws_" in self.__dict__

    def _plan(self) -> Plan:
        return Plan(
            self.n_samples,
            self.n_burn_in,
            self.n_chains,
            self.n_thin,
            self.settle,
            int(self.keep_mb * 2**20),
            self._least_samples,
        )

    def _sample(
        self,
        observations: Observations,
        posterior: Posterior,
        plan: Plan,
        seed: int,
        callback: Callback | None,
        pairs: tuple[Codes, Codes] | None = None,
    ) -> Sampled:
        """Sample from where a variational posterior is, on the CPU wherever that was found."""
        with threads(self.n_jobs) as pool:
            return sample(
                observations,
                replace(posterior, hierarchy=self._sampled_hierarchy(posterior.hierarchy)),
                self._loss,
                self.temperature,
                plan,
                seed,
                pool,
                pairs,
                self._reporting(callback, "sweep %d: loss %.6f"),
            )

    def held_out_averages(
        self,
        kept: Observations,
        posterior: Posterior,
        pairs: tuple[Codes, Codes],
        rng: np.random.Generator,
        callback: Callback | None,
    ) -> Averages:
        """Sample without some answers; return the averages of their pairs. No draw is kept."""
        plan = replace(self._plan(), n_chains=1, keep_bytes=0)
        seed = int(rng.integers(2**31 - 1))
        return self._sample(kept, posterior, plan, seed, callback, pairs).averages

    def _run(
        self,
        observations: Observations,
        rng: np.random.Generator,
        pool: Workers,
        callback: Callback | None,
        start: Posterior | None = None,
    ) -> tuple[Fit, dict[str, Any]]:
        if self.inference == "sampling":
            # What cannot be sampled is said before the work begins.
            hierarchy = self._sampled_hierarchy(self._hierarchy(observations))
            Target.of(observations, hierarchy, self._loss, self.temperature)
        return super()._run(observations, rng, pool, callback, start)

    def _go_on(
        self,
        observations: Observations,
        posterior: Posterior,
        rng: np.random.Generator,
        callback: Callback | None,
    ) -> dict[str, Any]:
        if self.inference != "sampling":
            return {}
        pairs = None
        if self._wanted is not None:
            rows = observations.rows.encode(self._wanted[0])
            columns = observations.columns.encode(self._wanted[1])
            known = (rows >= 0) & (columns >= 0)
            pairs = rows[known], columns[known]
        seed = int(rng.integers(2**31 - 1))
        sampled = self._sample(observations, posterior, self._plan(), seed, callback, pairs)
        return {
            "draws_": sampled.draws,
            "diagnostics_": sampled.diagnostics.table(),
            "n_sweeps_": sampled.n_sweeps,
            "settled_": sampled.settled,
            "_sampled": sampled,
        }

    def _fit(
        self, observations: Observations, rng: np.random.Generator, callback: Callback | None
    ) -> list[str]:
        advice = super()._fit(observations, rng, callback)
        return self.mixing_advice("Raise n_samples or n_burn_in") if self.is_sampled else advice

    def mixing_advice(self, remedy: str) -> list[str]:
        """Return what to warn of where chains have not mixed; ``remedy`` is what gives more draws."""
        return Mixing.of(self.diagnostics_).advice(remedy) if self.is_sampled else []

    def _store(self, fit: Fit, found: dict[str, Any]) -> None:
        for name in _SAMPLED:  # of an earlier fit
            self.__dict__.pop(name, None)
        super()._store(fit, found)
        if self.is_sampled:
            self.rank_ = self.draws_.effective_rank

    def _requested(self, wanted: tuple[Any, Any], averages: Averages | None) -> pd.DataFrame:
        """Return the predictions of the pairs asked for; of unknown ids, those of the kept draws."""
        rows, columns = self.rows_.encode(wanted[0]), self.columns_.encode(wanted[1])
        found = self.predictions(rows, columns)
        score, uncertainty, probability = found.score, found.uncertainty, found.probability
        if averages is not None:
            known = (rows >= 0) & (columns >= 0)
            score[known], uncertainty[known] = averages.mean, np.sqrt(averages.variance)
            probability[known] = self._sampled_probability(
                averages.mean, averages.variance, averages.chance
            )
        return pd.DataFrame(
            {
                "row": np.asarray(wanted[0]),
                "column": np.asarray(wanted[1]),
                "score": score,
                "uncertainty": uncertainty,
                "probability": probability,
            }
        )

    def _sampled_probability(self, mean: Array, variance: Array, chance: Array) -> Array:
        """Return the probability of a "yes" from averages over draws: the mean of the sigmoids."""
        return np.clip(chance, CERTAINTY, 1.0 - CERTAINTY)

    def _predicted(self, rows: Codes, columns: Codes) -> tuple[Array, Array, Array]:
        if not self.is_sampled:
            return super()._predicted(rows, columns)
        mean, variance, chance = self.draws_.averages(rows, columns, self.n_jobs)
        return mean, variance, self._sampled_probability(mean, variance, chance)

    def _score_moments(self, rows: Codes, columns: Codes) -> tuple[Array, Array]:
        if not self.is_sampled:
            return super()._score_moments(rows, columns)
        return self.draws_.averages(rows, columns, self.n_jobs, chances=False)[:2]

    def _scores(self, rows: Codes, columns: Codes) -> Array:
        if not self.is_sampled:
            return super()._scores(rows, columns)
        return self._score_moments(rows, columns)[0]

    def _decisions(self, rows: Codes, columns: Codes) -> Array:
        if not self.is_sampled or self._loss is not LOGISTIC:
            return super()._decisions(rows, columns)
        return self._decided(*self._predicted(rows, columns)[::2])

    def _decided(self, mean: Array, probability: Array) -> Array:
        # Averaged over draws, the probability can be above one half where the mean score is below zero.
        return logit(probability) if self.is_sampled and self._loss is LOGISTIC else mean

    def predict_interval(
        self, X: Any, level: float = 0.9, output: str = "score", *, approximate: bool = False
    ) -> Array:
        """Return the ends of a credible interval for each pair, of shape (n, 2).

        They are quantiles of draws from the exact posterior, so the model must be sampled
        (``inference="sampling"``). A variational posterior is too narrow for such intervals: in worlds
        drawn from the model itself its 90 % intervals held the true score of some three quarters of the
        entries, and on MovieLens 100k some two thirds of the exact posterior.

        Parameters
        ----------
        X : two-column table
            Pairs of ids.
        level : float
            The posterior probability of the interval, whose two tails have the same.
        output : {"score", "probability"}
            An interval for the score, or for the probability of "yes" that the score means (not for the
            hinge loss, whose scores are no log-odds).
        approximate : bool, default False
            Of a model that is not sampled, return the interval of a normal distribution with mean and
            variance of the variational posterior, which holds less than ``level``.

        Examples
        --------
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B3", rank=1, shape=(40, 30), density=0.5, seed=0)
        >>> model = LogisticCompleter(2, inference="sampling", n_samples=60, random_state=0)
        >>> low, high = model.fit(world.pairs, world.answers).predict_interval([(0, 0)])[0]
        >>> bool(low < high)
        True
        """
        rows, columns = self._codes(X)
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}")
        if output not in ("score", "probability"):
            raise ValueError(f'output must be "score" or "probability", got {output!r}')
        if output == "probability" and self._loss is not LOGISTIC:
            raise ValueError(f'scores of {type(self).__name__} are no log-odds; use output="score"')
        if not (self.is_sampled or approximate):
            raise ValueError(NO_INTERVAL)
        if self.is_sampled:
            ends = self.draws_.intervals(rows, columns, level)
        else:
            mean, variance = self._score_moments(rows, columns)
            half = ndtri(0.5 + 0.5 * level) * np.sqrt(variance)
            ends = np.column_stack([mean - half, mean + half])
        return expit(ends) if output == "probability" else ends

    def top_columns(self, rows: Codes, count: int, seen: View | None = None) -> Codes:
        """Return the codes of the columns with the highest scores; see ``PairClassifier``."""
        if self.__dict__.get("draws_") is not None:
            return PairClassifier.top_columns(self, rows, count, seen)
        return super().top_columns(rows, count, seen)

    def _effects(self, side: int) -> pd.Series:
        effects = super()._effects(side)
        if self.is_sampled:
            effects = pd.Series(self.draws_.main_effects(side), index=effects.index, name=effects.name)
        return effects

    def _fold_in_draws(self, side: int, answers: View, temperature: float) -> None:
        if self.is_sampled:
            added = draw_new(self.draws_, side, answers, self._loss, temperature)
            self.draws_ = self.draws_.extended(side, added)

    def _rungs(self, seed: int) -> dict[str, Callable[[float], Certificate]]:
        rungs = super()._rungs(seed)
        if self.is_sampled:
            for name in GAUSSIAN_ONLY:
                rungs.pop(name, None)
        return rungs

    def certificate(
        self,
        method: str,
        delta: float,
        seed: int = 0,
        title: str | None = None,
        predictor: str = RANDOMISED,
    ) -> Certificate:
        """Certify the randomised predictor of a variational posterior; see ``onebit.ladder``."""
        if self.is_sampled:
            raise ValueError(NOT_GAUSSIAN)
        return super().certificate(method, delta, seed, title, predictor)

    def draw(self, seed: int = 0, whose: str = "") -> DrawnPredictor:
        """Draw one predictor from a variational posterior, with a certificate of its own.

        A sampled model has none: its draws are in ``draws_``.
        """
        check_is_fitted(self)
        if self.is_sampled:
            raise ValueError(NOT_GAUSSIAN)
        return super().draw(seed, whose)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, content = super()._state()
        if self.is_sampled:
            more, content["draws"] = self.draws_.state()
            tensors = tensors | more
            content["n_sweeps"], content["settled"] = self.n_sweeps_, self.settled_
            content["diagnostics"] = list(self.diagnostics_.index)
            tensors["diagnostics"] = self.diagnostics_.to_numpy()
        return tensors, content

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        super()._restore(tensors, content)
        if "draws" not in content:
            return
        self.draws_ = Draws.from_state(tensors, content["draws"])
        if self.draws_.shape != (len(self.rows_), len(self.columns_)):
            raise ValueError(f"draws of {self.draws_.shape} rows and columns")
        self.n_sweeps_, self.settled_ = int(content["n_sweeps"]), bool(content["settled"])
        self.diagnostics_ = pd.DataFrame(
            tensors["diagnostics"],
            index=pd.Index(content["diagnostics"], name="functional"),
            columns=list(DIAGNOSTICS),
        )
        self.rank_ = self.draws_.effective_rank
