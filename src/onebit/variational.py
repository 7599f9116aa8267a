"""What the variational completers share: a scikit-learn classifier around the engine."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from onebit import checked, directions
from onebit.certificates import Certificate
from onebit.engine.coordinate import Callback, Fit, Progress, Schedule, Workers, minimise
from onebit.engine.foldin import fold_in
from onebit.engine.start import Start
from onebit.engine.top import top_columns
from onebit.engine.workers import workers
from onebit.estimator import PairClassifier, logger
from onebit.hierarchy import Hierarchy
from onebit.ids import IdIndex, pair_columns
from onebit.ladder import (
    RANDOMISED,
    DrawnPredictor,
    draw_certificate,
    learnt_prior_certificate,
    posterior_certificate,
)
from onebit.losses import Loss
from onebit.observations import Observations, View
from onebit.parameters import Check, Device, Instance, OneOf, Positive, Whole
from onebit.posterior import Posterior
from onebit.predictions import Codes
from onebit.priors import Gamma, InverseGamma, VariancePrior
from onebit.storage import Tensors

Array = NDArray[np.float64]

# Relative size of the noise added to the spectral start of the second and later starts.
JITTER = 0.5
# Streams of random numbers that share a seed with a fit, but nothing else.
_OF_DRAWS, _OF_CERTIFICATES = 1, 2
SIDES = ("row", "column")


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


@dataclass(frozen=True)
class FoldedIn:
    """What the last ``fold_in`` did: new rows and columns, answers used, and answers skipped.

    Attributes
    ----------
    rows, columns : int
        New rows and columns.
    used : int
        The answers that were used.
    both_new, both_known : int
        The answers that were skipped: with two new ids, and with two known ones.
    """

    rows: int
    columns: int
    used: int
    both_new: int
    both_known: int

    def skipped(self) -> str:
        """Return what was skipped, and why, in words; nothing where nothing was."""
        parts = []
        if self.both_new:
            parts.append(f"{self.both_new:,} answers skipped, since both their ids are new")
        if self.both_known:
            parts.append(
                f"{self.both_known:,} skipped, since both their ids are known (a refit takes them up)"
            )
        return "; ".join(parts)


def _taken(values: Any, places: NDArray[np.bool_]) -> Any:
    """Return some of a column of ids, of the same type."""
    if isinstance(values, (list, tuple)):
        return [value for value, wanted in zip(values, places, strict=True) if wanted]
    return values[places]


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
        "sparse": OneOf((None, "rows", "columns")),
        "n_init": Whole(1),
        "max_iter": Whole(1),
        "tol": Positive(),
        "device": Device(),
        "verbose": Whole(0),
    }

    posterior_: Posterior
    folded_in_: FoldedIn

    def __init__(
        self,
        rank: int = 10,
        *,
        prior: str | VariancePrior = "inverse-gamma",
        prior_scale: float = 0.03,
        temperature: float = 1.0,
        covariance: str = "full",
        effects: bool | str = True,
        sparse: str | None = None,
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
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def _fit(
        self, observations: Observations, rng: np.random.Generator, callback: Callback | None
    ) -> list[str]:
        with self._workers(observations) as pool:
            fit, found = self._run(observations, rng, pool, self._reporting(callback))
        found |= self._go_on(observations, fit.posterior, rng, callback)
        self._store(fit, found)
        advice = []
        if self.rank_ == 0 and self.rank > 0 and fit.posterior.hierarchy.intercept_side is None:
            advice.append(
                "every column vanished and all scores are zero; raise temperature or lower prior_scale"
            )
        if not fit.converged:
            advice.append(
                f"stopped after {fit.n_iter} rounds before it settled to tol={self.tol:g}; "
                "raise max_iter or tol"
            )
        return advice

    def _workers(self, observations: Observations) -> AbstractContextManager[Workers]:
        """Return those who do the work of a fit to these observations."""
        return workers(self._fit_device(), self.n_jobs, observations.n)

    def _go_on(
        self,
        observations: Observations,
        posterior: Posterior,
        rng: np.random.Generator,
        callback: Callback | None,
    ) -> dict[str, Any]:
        """Go on from the variational posterior; return what else was found, as attributes to set."""
        return {}

    def _reporting(
        self, callback: Callback | None, line: str = "round %d: objective %.6f"
    ) -> Callback | None:
        if not self.verbose:
            return callback

        def report(progress: Progress) -> None:
            logger.info(line, progress.round, progress.objective)
            if callback is not None:
                callback(progress)

        return report

    def _hierarchy(self, observations: Observations) -> Hierarchy:
        shape = observations.shape
        effects = self._resolved_effects()
        if self.sparse is not None and not self._is_full():
            raise ValueError(f'sparse={self.sparse!r} needs covariance="full"')
        return Hierarchy(
            shape,
            min(self.rank, *shape),
            bool(effects) and effects != "columns",
            bool(effects) and effects != "rows",
            variance_prior(self.prior, self._prior_scale(), sum(shape)),
            InverseGamma(1.0, 1.0),
            sparse=None if self.sparse is None else ("rows", "columns").index(self.sparse),
            factor_means=True,
        )

    def _prior_scale(self) -> float:
        return self.prior_scale

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
        pool: Workers,
        callback: Callback | None,
        start: Posterior | None = None,
    ) -> tuple[Fit, dict[str, Any]]:
        """Descend from each of the ``n_init`` starts and return what reached the lowest objective.

        Nothing is stored on the estimator.
        """
        hierarchy = self._hierarchy(observations)
        runs = []
        for k in range(self.n_init):
            begin = start if k == 0 else None
            runs.append(
                self._descend(
                    observations,
                    hierarchy,
                    begin
                    or pool.start(observations, hierarchy, rng, JITTER if k else 0.0, self._is_full()),
                    pool,
                    callback,
                )
            )
        return min(runs, key=lambda run: run[0].objective)

    def _descend(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        start: Start | Posterior,
        pool: Workers,
        callback: Callback | None,
    ) -> tuple[Fit, dict[str, Any]]:
        """Descend from one start; return the fit and what else was found, as attributes to set."""
        if hierarchy.sparse is not None and isinstance(start, Start):
            # Which axes to be sparse along shows only once the factors are there.
            dense = replace(hierarchy, sparse=None)
            start = self._minimise(observations, dense, start, pool, callback).posterior
        return self._minimise(observations, hierarchy, start, pool, callback), {}

    def _minimise(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        start: Start | Posterior,
        pool: Workers,
        callback: Callback | None,
        loss: Loss | None = None,
        temperature: float | None = None,
    ) -> Fit:
        """Run the engine with this completer's settings, or with another loss and temperature."""
        return minimise(
            observations,
            hierarchy,
            loss or self._loss,
            start,
            full=self._is_full(),
            temperature=self.temperature if temperature is None else temperature,
            schedule=self._schedule(),
            pool=pool,
            callback=callback,
        )

    def _store(self, fit: Fit, found: dict[str, Any]) -> None:
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
        fit = Fit(
            Posterior.from_state(tensors, checked.section(content, "posterior")),
            checked.number(content, "objective"),
            checked.checked_array(tensors, "objective_path", np.float64, (None,)),
            checked.whole(content, "n_iter"),
            checked.flag(content, "converged"),
        )
        if fit.posterior.shape != (len(self.rows_), len(self.columns_)):
            raise checked.FileError(
                f"it was fitted to {fit.posterior.shape} rows and columns and has ids of "
                f"{(len(self.rows_), len(self.columns_))}"
            )
        self._store(fit, {})

    def _score_moments(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> tuple[Array, Array]:
        return self.posterior_.score_moments(rows, columns, self.n_jobs, self.device)

    def _keeps_checkpoints(self) -> bool:
        return True

    def _scores(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> Array:
        return self.posterior_.scores(rows, columns, self.n_jobs, self.device)

    def top_columns(
        self, rows: NDArray[np.int32], count: int, seen: View | None = None
    ) -> NDArray[np.int32]:
        """Return the codes of the columns with the highest scores; see ``PairClassifier``."""
        check_is_fitted(self)
        return top_columns(self.posterior_, rows, count, seen, self.n_jobs, self.device)

    def _effects(self, side: int) -> pd.Series:
        """Return the mean effects of a side, in the order of the codes."""
        check_is_fitted(self)
        hierarchy = self.posterior_.hierarchy
        if not hierarchy.has_effect(side):
            raise AttributeError(f"this model has no {SIDES[side]} effects: effects={self.effects!r}")
        labels = (self.rows_, self.columns_)[side].labels
        return pd.Series(self.posterior_.main_effects(side), index=labels, name="effect")

    @property
    def row_effects_(self) -> pd.Series:
        """The mean effect of each row: how much readier it is to say "yes" (a student's ability)."""
        return self._effects(0).iloc[self.rows_.listed]

    @property
    def column_effects_(self) -> pd.Series:
        """The mean effect of each column: how much more "yes" it gets (an exercise's easiness)."""
        return self._effects(1).iloc[self.columns_.listed]

    @property
    def prior_choices(self) -> int:
        """The number of priors that the fit chose from with its answers."""
        return getattr(self, "prior_choices_", 1)

    def _rungs(self, seed: int) -> dict[str, Callable[[float], Certificate]]:
        rungs: dict[str, Callable[[float], Certificate]] = {}
        answers = self._certifiable_answers
        if answers is not None and self.posterior_.shape == answers.fitted.shape:
            for method in ("theorem-1-printed", "theorem-1", "catoni", "pac-bayes-kl"):
                rungs[method] = partial(self.certificate, method, seed=seed)
            rungs["learnt-prior"] = lambda delta: learnt_prior_certificate(
                self, answers.everything, delta, np.random.default_rng(seed)
            )
        return rungs | super()._rungs(seed)

    def certificate(
        self,
        method: str,
        delta: float,
        seed: int = 0,
        title: str | None = None,
        predictor: str = RANDOMISED,
    ) -> Certificate:
        """Certify the randomised predictor of this posterior; see ``onebit.ladder``."""
        answers = self._certifiable_answers
        if answers is None:
            raise ValueError("the answers are not there any more; fit with certify=0 to keep them")
        rng = np.random.default_rng([_OF_CERTIFICATES, seed])
        return posterior_certificate(
            method,
            self.posterior_,
            answers.fitted,
            delta,
            rng,
            self.prior_choices,
            title,
            predictor,
            avb=getattr(self, "avb_", None),
        )

    def draw(self, seed: int = 0, whose: str = "") -> DrawnPredictor:
        """Draw one predictor from the posterior, with a certificate of its own.

        It needs no average over draws and no factor two. The same seed is the same draw, with the same
        certificate; draws are numbered by their seeds, and the one with seed ``s`` pays
        ``log((s + 1)(s + 2))`` for the choice among them, so that small seeds cost least.

        Parameters
        ----------
        seed : int, default 0
            The number of the draw, from zero.
        whose : str
            Added to what the certificate says of the posterior.

        Examples
        --------
        >>> from onebit import GibbsCompleter, simulate
        >>> world = simulate.world("A1", rank=1, shape=(100, 100), density=0.5, seed=0)
        >>> model = GibbsCompleter(random_state=0).fit(world.pairs, world.answers, certify=0)
        >>> drawn = model.draw(0)
        >>> drawn.certify(delta=0.05).bound < 0.3
        True
        """
        check_is_fitted(self)
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f"the seed of a draw is a whole number from 0, got {seed!r}")
        answers = self._certifiable_answers
        if answers is None:
            raise ValueError(
                "a draw is certified with the answers that its posterior was fitted to; "
                "fit with certify=0 (or a share to hold out) to keep them"
            )
        if self.sparse is not None:
            raise ValueError("the prior density of a sparse model is not known; draw from a dense one")
        # A stream of its own: the fit may have been given the same seed.
        drawn = self.posterior_.sample(np.random.default_rng([_OF_DRAWS, int(seed)]))
        direction_log_ratio = (
            directions.draw_log_ratio(self.posterior_, drawn.rows, drawn.columns)
            if directions.apply_to(self.posterior_)
            else None
        )
        certify = partial(
            draw_certificate,
            drawn,
            answers.fitted,
            seed=int(seed),
            prior_choices=self.prior_choices,
            whose=whose,
            direction_log_ratio=direction_log_ratio,
        )
        return DrawnPredictor(drawn, self.rows_, self.columns_, self.classes_, certify)

    def predict_uncertainty(self, X: Any) -> Array:
        """Return the posterior standard deviation of each pair's score.

        With draws, that of the exact posterior. Of a variational posterior it is an approximation, and
        too small: it leaves out how rows and columns depend on each other.
        """
        return np.sqrt(self._score_moments(*self._codes(X))[1])

    def fold_in(self, X: Any, y: Any) -> VariationalCompleter:
        """Add new rows and new columns from their answers, leaving everything fitted as it is.

        Answers of new rows on known columns make new rows, answers of known rows on new columns make new
        columns. The others cannot be used: where both ids are new nothing ties them to the model, and
        known ids get further answers by a refit. They are skipped and counted in ``folded_in_``, with a
        warning.

        Parameters
        ----------
        X : two-column table
            Pairs of ids.
        y : array_like of shape (n,)
            Their answers.

        Returns
        -------
        self
            The same model, which now knows the new ids.

        Examples
        --------
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B1", rank=1, shape=(30, 20), density=0.5, seed=0)
        >>> model = LogisticCompleter(2).fit(world.pairs, world.answers)
        >>> model.fold_in([(99, 0), (99, 1)], [1, 0]).folded_in_.used
        2
        """
        check_is_fitted(self)
        row_values, column_values = pair_columns(X)
        codes = self.rows_.encode(row_values), self.columns_.encode(column_values)
        if len(codes[0]) == 0:
            raise ValueError("fold_in needs at least one answer")
        sign = self._signs(y, len(codes[0]))
        new = [code < 0 for code in codes]
        taken = [new[0] & ~new[1], ~new[0] & new[1]]
        skipped_new, skipped_known = int((new[0] & new[1]).sum()), int((~new[0] & ~new[1]).sum())
        if not (taken[0].any() or taken[1].any()):
            raise ValueError(
                "fold_in takes answers of new rows on known columns, or of known rows on new columns; "
                f"here {skipped_new} answers have two new ids and {skipped_known} two known ones. Known "
                "ids get further answers by a refit"
            )
        added = [0, 0]
        for side, values in ((0, row_values), (1, column_values)):
            if taken[side].any():
                own = _taken(values, taken[side])
                added[side] = self._fold_in_side(
                    side, own, codes[1 - side][taken[side]], sign[taken[side]]
                )
        self.folded_in_ = FoldedIn(
            added[0], added[1], int(sum(part.sum() for part in taken)), skipped_new, skipped_known
        )
        skipped = self.folded_in_.skipped()
        if skipped:
            warnings.warn(f"fold_in: {skipped}", stacklevel=2)
        return self

    def _fold_in_side(self, side: int, values: Any, others: Codes, sign: NDArray[np.int8]) -> int:
        """Add the new ids of one side from their answers on known ids of the other; return how many."""
        known = (self.columns_, self.rows_)[side]
        index, own = IdIndex.from_values(values, SIDES[side])
        answers = Observations.from_codes(index, known, own, others, sign).by_row
        temperature = getattr(self, "temperature_", self.temperature)  # the one that a fit chose, if any
        self._fold_in_draws(side, answers, temperature)
        added = fold_in(self.posterior_, side, answers, self._loss, temperature)
        sides = list(self.posterior_.sides)
        first = len(sides[side].mean)
        sides[side] = sides[side].extended(added.mean, added.covariance)
        shape = (len(sides[0].mean), len(sides[1].mean))
        self.posterior_ = replace(
            self.posterior_,
            rows=sides[0],
            columns=sides[1],
            hierarchy=replace(self.posterior_.hierarchy, shape=shape),
        )
        entries = (own + np.int32(first), others)
        self._folded = [*self._folded, (*(entries if side == 0 else entries[::-1]), sign)]
        if side == 0:
            self.rows_ = self.rows_.extended(index.labels)
        else:
            self.columns_ = self.columns_.extended(index.labels)
        return len(index)

    def _fold_in_draws(self, side: int, answers: View, temperature: float) -> None:
        """Add new rows or columns to what a model has beside its Gaussian posterior."""
