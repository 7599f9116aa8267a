"""What answers for a fitted model: a Gaussian posterior, kept draws, or plain factors.

Estimators hold one of these and ask it; none of them asks which it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from onebit.completers.predictions import Predictions
from onebit.data.sorting import View
from onebit.engine import scoring
from onebit.engine.cpu.threads import threads
from onebit.engine.fold_in import fold_in
from onebit.engine.nuclear import pair_products
from onebit.engine.sampling.fold_in import draw_new
from onebit.engine.sampling.update import updated_draws
from onebit.engine.top import top_columns
from onebit.engine.update import Batch, Touched, touched_by, updated
from onebit.engine.workers import Machine
from onebit.model.calibration import CERTAINTY
from onebit.model.draws import Draws
from onebit.model.feature_effects import slope_means
from onebit.model.losses import LOGISTIC, Loss
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

NO_INTERVAL = (
    "this model is a variational approximation, which is too narrow for credible intervals of a stated "
    'level; fit LogisticCompleter or HingeCompleter with inference="sampling" (AutoCompleter samples '
    "where that pays within its effort), or "
    "take intervals that are too narrow with approximate=True"
)
NO_POSTERIOR = "this model has no posterior: {}"


class Curve(Protocol):
    """What turns scores into probabilities."""

    def probability(self, mean: Array, variance: Array) -> Array:
        """Return the probability of "yes" for scores with these moments."""
        ...


class Predictor(Protocol):
    """The small interface of what answers for a model; codes of -1 are unknown ids."""

    @property
    def gaussian(self) -> Posterior | None:
        """The Gaussian posterior, where predictions come from it and not from draws."""
        ...

    @property
    def posterior(self) -> Posterior:
        """The variational posterior; of draws, where the chains started."""
        ...

    def moments(self, rows: Codes, columns: Codes, machine: Machine) -> tuple[Array, Array]:
        """Return mean and variance of scores."""
        ...

    def scores(self, rows: Codes, columns: Codes, machine: Machine) -> Array:
        """Return mean scores alone."""
        ...

    def decisions(self, rows: Codes, columns: Codes, machine: Machine) -> Array:
        """Return numbers whose signs are the predicted answers."""
        ...

    def predicted(self, rows: Codes, columns: Codes, machine: Machine) -> Predictions:
        """Return everything."""
        ...

    def intervals(
        self, rows: Codes, columns: Codes, level: float, machine: Machine, approximate: bool
    ) -> Array:
        """Return the ends of credible intervals of scores."""
        ...

    def top_columns(self, rows: Codes, count: int, seen: View | None, machine: Machine) -> Codes:
        """Return the columns with the highest scores of some rows, highest first; -1 fills up."""
        ...

    def main_effects(self, side: int) -> Array | None:
        """Return the effects of rows (side 0) or columns; None where there are none."""
        ...

    def feature_slopes(self, side: int) -> tuple[Array, Array]:
        """Return mean and covariance of the slopes of a side's effects on its features."""
        ...

    def folded_in(self, side: int, answers: View, features: Any = None) -> Predictor:
        """Return a predictor that knows new rows (side 0) or columns too.

        From their answers and, standardised, their features.
        """
        ...

    def updated(self, batch: Batch, machine: Machine) -> Predictor:
        """Return a predictor that has taken up new answers of known and new rows and columns."""
        ...


@dataclass(frozen=True)
class GaussianPredictor:
    """A Gaussian posterior and the curve of its probabilities."""

    posterior: Posterior
    curve: Curve
    loss: Loss
    temperature: float

    @property
    def gaussian(self) -> Posterior | None:
        """The posterior."""
        return self.posterior

    def moments(self, rows: Codes, columns: Codes, machine: Machine) -> tuple[Array, Array]:
        """Return mean and variance of scores."""
        return scoring.score_moments(self.posterior, rows, columns, machine.n_jobs, machine.device)

    def scores(self, rows: Codes, columns: Codes, machine: Machine) -> Array:
        """Return mean scores alone."""
        return scoring.scores(self.posterior, rows, columns, machine.n_jobs, machine.device)

    def decisions(self, rows: Codes, columns: Codes, machine: Machine) -> Array:
        """Return the mean scores: their curve passes one half at zero."""
        return self.scores(rows, columns, machine)

    def predicted(self, rows: Codes, columns: Codes, machine: Machine) -> Predictions:
        """Return everything."""
        mean, variance = self.moments(rows, columns, machine)
        probability = scoring.probabilities(self.curve, mean, variance, machine.device)
        return Predictions(mean, np.sqrt(variance), probability, mean)

    def intervals(
        self, rows: Codes, columns: Codes, level: float, machine: Machine, approximate: bool
    ) -> Array:
        """Return intervals of a normal distribution, which are too narrow, if that is wanted."""
        if not approximate:
            raise ValueError(NO_INTERVAL)
        mean, variance = self.moments(rows, columns, machine)
        half = ndtri(0.5 + 0.5 * level) * np.sqrt(variance)
        return np.column_stack([mean - half, mean + half])

    def top_columns(self, rows: Codes, count: int, seen: View | None, machine: Machine) -> Codes:
        """Return the columns with the highest scores."""
        return top_columns(self.posterior, rows, count, seen, machine.n_jobs, machine.device)

    def main_effects(self, side: int) -> Array | None:
        """Return the mean effects."""
        return self.posterior.main_effects(side) if self.posterior.hierarchy.has_effect(side) else None

    def feature_slopes(self, side: int) -> tuple[Array, Array]:
        """Return mean and covariance of the slopes; see ``model.feature_effects``."""
        spread = self.posterior.spreads[side]
        assert spread is not None
        return slope_means(self.posterior, side), spread

    def folded_in(self, side: int, answers: View, features: Any = None) -> GaussianPredictor:
        """Return a predictor with new rows or columns; everything fitted stays as it is."""
        added = fold_in(self.posterior, side, answers, self.loss, self.temperature, features)
        sides = list(self.posterior.sides)
        sides[side] = sides[side].extended(added.mean, added.covariance)
        shape = (len(sides[0].mean), len(sides[1].mean))
        hierarchy = replace(self.posterior.hierarchy, shape=shape)
        placings = list(self.posterior.placings)
        facing = placings[1 - side]
        if facing is not None:
            placings[1 - side] = facing.extended(answers.size)
        posterior = replace(
            self.posterior,
            rows=sides[0],
            columns=sides[1],
            hierarchy=hierarchy,
            placings=(placings[0], placings[1]),
        )
        return replace(self, posterior=posterior)

    def updated(self, batch: Batch, machine: Machine) -> GaussianPredictor:
        """Return a predictor whose posterior has taken up new answers."""
        return self.moved(touched_by(self.posterior, batch), batch)

    def moved(self, touched: tuple[Touched, Touched], batch: Batch) -> GaussianPredictor:
        """Return the same, where it is known whom a batch touches."""
        posterior = updated(self.posterior, touched, batch, self.loss, self.temperature)
        return replace(self, posterior=posterior)


@dataclass(frozen=True)
class DrawsPredictor:
    """Draws from the exact posterior, beside the variational one that they started from."""

    draws: Draws
    start: GaussianPredictor

    @property
    def gaussian(self) -> Posterior | None:
        """None: draws have no divergence from a prior."""
        return None

    @property
    def posterior(self) -> Posterior:
        """Where the chains started."""
        return self.start.posterior

    def moments(self, rows: Codes, columns: Codes, machine: Machine) -> tuple[Array, Array]:
        """Return mean and variance of scores over draws."""
        return scoring.averages(self.draws, rows, columns, machine.n_jobs, chances=False)[:2]

    def scores(self, rows: Codes, columns: Codes, machine: Machine) -> Array:
        """Return mean scores alone."""
        return self.moments(rows, columns, machine)[0]

    def decisions(self, rows: Codes, columns: Codes, machine: Machine) -> Array:
        """Return numbers whose signs are the predicted answers."""
        return self.predicted(rows, columns, machine).decision

    def predicted(self, rows: Codes, columns: Codes, machine: Machine) -> Predictions:
        """Return everything."""
        mean, variance, chance = scoring.averages(self.draws, rows, columns, machine.n_jobs)
        return self.concluded(mean, variance, chance)

    def concluded(self, mean: Array, variance: Array, chance: Array) -> Predictions:
        """Return what averages over draws say: of the score, its spread and its sigmoid."""
        if self.start.loss is not LOGISTIC:
            probability = self.start.curve.probability(mean, variance)
            return Predictions(mean, np.sqrt(variance), probability, mean)
        probability = np.clip(chance, CERTAINTY, 1.0 - CERTAINTY)
        # Averaged over draws, it can be above one half where the mean score is below zero.
        return Predictions(mean, np.sqrt(variance), probability, logit(probability))

    def intervals(
        self, rows: Codes, columns: Codes, level: float, machine: Machine, approximate: bool
    ) -> Array:
        """Return quantiles of the draws."""
        return self.draws.intervals(rows, columns, level)

    def top_columns(self, rows: Codes, count: int, seen: View | None, machine: Machine) -> Codes:
        """Return the columns with the highest scores."""
        return ranked_columns(self, len(self.draws.columns), rows, count, seen, machine)

    def main_effects(self, side: int) -> Array | None:
        """Return the mean effects over draws."""
        return self.draws.main_effects(side) if self.draws.hierarchy.has_effect(side) else None

    def feature_slopes(self, side: int) -> tuple[Array, Array]:
        """Return mean and covariance of the slopes over draws."""
        regression = self.posterior.hierarchy.regressions[side]
        assert regression is not None
        drawn = self.draws.effect_slopes(side)[:, regression.places("features")]
        return drawn.mean(axis=0), np.atleast_2d(np.cov(drawn, rowvar=False))

    def folded_in(self, side: int, answers: View, features: Any = None) -> DrawsPredictor:
        """Return a predictor with new rows or columns, drawn under every kept draw."""
        placing = self.posterior.placings[side]
        known = None if placing is None else placing.coordinates(answers, features)
        regression, spread = self.posterior.hierarchy.regressions[side], None
        if regression is not None:
            places = regression.places("pattern")
            square = self.draws.slopes[side][:, places].astype(float) ** 2
            spread = np.einsum("r,drk->dk", regression.squares[places] / regression.size, square)
        added = draw_new(
            self.draws, side, answers, self.start.loss, self.start.temperature, known, spread
        )
        start = self.start.folded_in(side, answers, features)
        return DrawsPredictor(self.draws.extended(side, added), start)

    def updated(self, batch: Batch, machine: Machine) -> DrawsPredictor:
        """Return a predictor whose draws have taken up new answers, and where they started too."""
        if self.start.loss is not LOGISTIC:
            raise ValueError(
                "draws of the hinge loss cannot take up new answers; fit again, or fit with "
                'inference="variational", whose posterior can'
            )
        touched = touched_by(self.posterior, batch)
        with threads(machine.n_jobs) as pool:
            draws = updated_draws(
                self.draws, self.posterior, touched, batch, self.start.temperature, pool
            )
        return DrawsPredictor(draws, self.start.moved(touched, batch))


@dataclass(frozen=True)
class FactorsPredictor:
    """Scores that are products of factors, with nothing said of their uncertainty.

    An unknown row is taken to be the average of the known ones, and so is an unknown column.
    """

    left: Array
    right: Array

    @property
    def gaussian(self) -> Posterior | None:
        """None."""
        return None

    @property
    def posterior(self) -> Posterior:
        """There is none."""
        raise AttributeError(NO_POSTERIOR.format("it is one best fit"))

    def moments(self, rows: Codes, columns: Codes, machine: Machine) -> tuple[Array, Array]:
        """Return the scores, and no variance."""
        # The last line, which code -1 picks, is the average row (or column).
        left = np.vstack([self.left, self.left.mean(axis=0)])
        right = np.vstack([self.right, self.right.mean(axis=0)])
        mean = np.empty(len(rows))
        pair_products(rows % len(left), columns % len(right), left, right, mean)
        return mean, np.zeros_like(mean)

    def scores(self, rows: Codes, columns: Codes, machine: Machine) -> Array:
        """Return the scores."""
        return self.moments(rows, columns, machine)[0]

    def decisions(self, rows: Codes, columns: Codes, machine: Machine) -> Array:
        """Return the scores."""
        return self.scores(rows, columns, machine)

    def predicted(self, rows: Codes, columns: Codes, machine: Machine) -> Predictions:
        """Return everything; uncertainties are zero."""
        mean, variance = self.moments(rows, columns, machine)
        return Predictions(mean, variance, np.clip(expit(mean), CERTAINTY, 1.0 - CERTAINTY), mean)

    def intervals(
        self, rows: Codes, columns: Codes, level: float, machine: Machine, approximate: bool
    ) -> Array:
        """Refuse: there is nothing that an interval could be made of."""
        raise ValueError(NO_POSTERIOR.format("it gives no intervals; use LogisticCompleter"))

    def top_columns(self, rows: Codes, count: int, seen: View | None, machine: Machine) -> Codes:
        """Return the columns with the highest scores."""
        return ranked_columns(self, len(self.right), rows, count, seen, machine)

    def main_effects(self, side: int) -> Array | None:
        """There are none."""
        return None

    def feature_slopes(self, side: int) -> tuple[Array, Array]:
        """There are none."""
        raise AttributeError(NO_POSTERIOR.format("it knows no features"))

    def folded_in(self, side: int, answers: View, features: Any = None) -> FactorsPredictor:
        """Refuse: how new rows relate to the others is not known without a posterior."""
        raise ValueError(NO_POSTERIOR.format("it cannot fold in new ids; use LogisticCompleter"))

    def updated(self, batch: Batch, machine: Machine) -> FactorsPredictor:
        """Refuse: how firmly factors stand is not known without a posterior."""
        raise ValueError(NO_POSTERIOR.format("it takes up no new answers; use LogisticCompleter"))


def ranked_columns(
    predictor: Predictor, columns: int, rows: Codes, count: int, seen: View | None, machine: Machine
) -> Codes:
    """Rank the columns of some rows by all their scores, row by row."""
    best = np.full((len(rows), count), -1, dtype=np.int32)
    every = np.arange(columns, dtype=np.int32)
    for line, row in enumerate(rows):
        scores = predictor.scores(np.full(columns, row, dtype=np.int32), every, machine)
        allowed = every
        if seen is not None and row < seen.size:
            allowed = np.delete(every, seen.index[seen.start[row] : seen.start[row + 1]])
        order = allowed[np.argsort(-scores[allowed], kind="stable")][:count]
        best[line, : len(order)] = order
    return best
