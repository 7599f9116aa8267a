"""GibbsCompleter: the posterior whose PAC-Bayes certificate is best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from onebit import checked, directions
from onebit.bounds import pac_bayes_kl
from onebit.calibration import CERTAINTY
from onebit.certificates import Certificate
from onebit.engine.coordinate import Callback, Fit, Workers
from onebit.hierarchy import Hierarchy
from onebit.losses import GIBBS, HINGE
from onebit.observations import Observations
from onebit.parameters import Check, Instance, OneOf, Positive
from onebit.posterior import Posterior
from onebit.priors import VariancePrior
from onebit.storage import Tensors
from onebit.variational import VariationalCompleter

Array = NDArray[np.float64]

# Of the hinge posterior that the fit starts from; the optimum does not depend on it.
_START_TEMPERATURE = 0.7
# Searched from the middle outwards, as long as the bound falls.
_MIDDLE = 1.0
_LOWER = (0.7, 0.5, 0.35, 0.25, 0.15)
_HIGHER = (1.5, 2.0, 3.0, 4.0, 6.0)
# The delta at which candidates are compared; the certificate takes its own.
_DELTA = 0.05
# Draws that choose a posterior are not the ones that certify it.
_OF_SEARCH = (3, 0)


class GibbsCompleter(VariationalCompleter):
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
        As for LogisticCompleter; ``prior_scale`` is smaller here, since columns are not pruned by it.

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
    _checks: ClassVar[dict[str, Check]] = VariationalCompleter._checks | {
        "temperature": Instance((str,), Positive()),
        "effects": OneOf(("auto", True, False)),
        "sparse": OneOf((None,)),
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
        super().__init__(
            rank,
            prior=prior,
            prior_scale=prior_scale,
            temperature=1.0,
            covariance=covariance,
            effects=effects,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            n_jobs=n_jobs,
            device=device,
            verbose=verbose,
        )
        self.temperature = temperature  # type: ignore[assignment]

    def _choices(self) -> int:
        """Return the number of priors that a fit chooses from: ranks, with and without effects."""
        return (self.rank + 1) * (2 if self.effects == "auto" else 1)

    def _optimised(self, seed: int) -> GibbsCompleter:
        return self

    def _rungs(self, seed: int) -> dict[str, Callable[[float], Certificate]]:
        rungs = super()._rungs(seed)
        rungs.pop("optimised", None)  # it is "pac-bayes-kl" here
        return rungs

    def _resolved_effects(self) -> bool:
        return self.effects is not False

    def _run(
        self,
        observations: Observations,
        rng: np.random.Generator,
        pool: Workers,
        callback: Callback | None,
        start: Posterior | None = None,
    ) -> tuple[Fit, dict[str, Any]]:
        if self.temperature != "auto" and isinstance(self.temperature, str):
            raise ValueError(f'temperature must be a positive number or "auto", got {self.temperature!r}')
        largest = self._hierarchy(observations)
        found = self._hinge_fit(observations, largest, rng, pool, callback).effective_rank
        tried = [
            result
            for hierarchy in self._candidates(largest, found)
            for result in self._search(
                observations,
                hierarchy,
                self._hinge_fit(observations, hierarchy, rng, pool, callback),
                pool,
                callback,
            )
        ]
        _, fit, temperature = min(tried, key=lambda result: result[0])
        return fit, {"temperature_": temperature, "prior_choices_": self._choices()}

    def _search(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        start: Posterior,
        pool: Workers,
        callback: Callback | None,
    ) -> Iterator[tuple[float, Fit, float]]:
        """Fit at one temperature after the other, as long as the bound falls; yield bounds and fits."""

        def attempt(temperature: float, *begins: Posterior) -> tuple[float, Fit, float]:
            fits = [
                self._minimise(observations, hierarchy, begin, pool, callback, temperature=temperature)
                for begin in begins
            ]
            bounds = [self._bound(fit, observations.n, temperature) for fit in fits]
            best = int(np.argmin(bounds))
            return bounds[best], fits[best], temperature

        if self.temperature != "auto":
            yield attempt(float(self.temperature), start)
            return
        middle = attempt(_MIDDLE, start)
        yield middle
        for grid in (_HIGHER, _LOWER):
            last = middle
            for temperature in grid:
                # What a high temperature has learnt is not all forgotten at a lower one.
                begins = (last[1].posterior,) if grid is _HIGHER else (last[1].posterior, start)
                tried = attempt(temperature, *begins)
                yield tried
                if tried[0] >= last[0]:
                    break
                last = tried

    def _candidates(self, largest: Hierarchy, found: int) -> list[Hierarchy]:
        """Return the priors to compare: the rank found and none, with and without effects."""
        effects = (True, False) if self.effects == "auto" else (bool(self.effects),)
        structures = {(rank, with_effects) for rank in (0, found) for with_effects in effects}
        return [
            replace(largest, rank=rank, row_effects=with_effects, column_effects=with_effects)
            for rank, with_effects in sorted(structures)
            if rank or with_effects or len(structures) == 1
        ]

    def _hinge_fit(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        rng: np.random.Generator,
        pool: Workers,
        callback: Callback | None,
    ) -> Posterior:
        """Return where the Gibbs loss starts from, which has no convex start of its own."""
        start = pool.start(observations, hierarchy, rng, full=self._is_full())
        fit = self._minimise(observations, hierarchy, start, pool, callback, HINGE, _START_TEMPERATURE)
        return fit.posterior

    def _bound(self, fit: Fit, n: int, temperature: float) -> float:
        divergence = fit.posterior.kl
        risk = min(max(fit.objective - divergence / (temperature * n), 0.0), 1.0)
        if directions.apply_to(fit.posterior):
            estimate = directions.divergence(
                fit.posterior, n, 0.5, np.random.default_rng(_OF_SEARCH)
            ).estimate
            divergence = min(divergence, estimate)
        return pac_bayes_kl(risk, divergence + math.log(self._choices()), n, _DELTA)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, content = super()._state()
        found = {"temperature": self.temperature_, "prior_choices": self.prior_choices_}
        return tensors, content | found

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        super()._restore(tensors, content)
        self.temperature_ = checked.number(content, "temperature", positive=True)
        self.prior_choices_ = self._choices()
        if "prior_choices" in content:
            self.prior_choices_ = checked.whole(content, "prior_choices", 1)

    def _probability(self, mean: Array, variance: Array) -> Array:
        margin = np.divide(mean, np.sqrt(variance), out=np.zeros_like(mean), where=variance > 0)
        return np.clip(ndtr(margin), CERTAINTY, 1.0 - CERTAINTY)
