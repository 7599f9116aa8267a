"""What a fitted completer answers: predictions, the filled matrix, lists, effects, new rows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from onebit.completers.feature_effects import feature_effects
from onebit.completers.filling import filled_matrix, recommendations
from onebit.completers.predictions import Answers, Codes, Predictions
from onebit.completers.predictors import Predictor
from onebit.completers.questions import check_share
from onebit.data.ids import IdIndex, pair_columns
from onebit.data.sides import MEMBERS
from onebit.data.sorting import View
from onebit.engine.sampling.sampler import Averages
from onebit.engine.workers import Machine
from onebit.model.draws import Draws
from onebit.model.losses import LOGISTIC, Loss
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]


def _has_posterior(model: Any) -> bool:
    """Say whether a kind of completer finds a posterior."""
    return model._posterior_is_found


class Predicting:
    """The part of every completer that predicts; not used by itself."""

    _loss: ClassVar[Loss] = LOGISTIC
    _posterior_is_found: ClassVar[bool] = True
    # Why probabilities, and averages of them, are not to be read as shares; None where they are.
    _uncalibrated: ClassVar[str | None] = None

    rows_: IdIndex
    columns_: IdIndex
    classes_: NDArray[Any]
    predictor_: Predictor
    _answers: Answers | None
    _folded: list[tuple[Codes, Codes, NDArray[np.int8]]]

    if TYPE_CHECKING:

        @property
        def _machine(self) -> Machine: ...
        def _signs(self, answers: Any, n_pairs: int) -> NDArray[np.int8]: ...

    @property
    def posterior_(self) -> Posterior:
        """The Gaussian posterior; of a sampled model, where its chains started."""
        check_is_fitted(self)
        return self.predictor_.posterior

    @property
    def draws_(self) -> Draws:
        """The kept draws of a sampled model."""
        check_is_fitted(self)
        if not self.is_sampled:
            raise AttributeError('this model was not sampled: it has no draws; see inference="sampling"')
        return self.predictor_.draws  # type: ignore[attr-defined]

    @property
    def is_sampled(self) -> bool:
        """Whether predictions come from draws of the exact posterior."""
        return hasattr(self.__dict__.get("predictor_"), "draws")

    def _codes(self, pairs: Any) -> tuple[Codes, Codes]:
        check_is_fitted(self)
        row_values, column_values = pair_columns(pairs)
        rows, columns = self.rows_.encode(row_values), self.columns_.encode(column_values)
        if len(rows) > 1 and rows.max() < 0 and columns.max() < 0:
            warnings.warn(
                f"none of these {len(rows)} pairs has a row id or a column id that was fitted: they all "
                "get the same prediction; are the two columns swapped?",
                stacklevel=3,
            )
        return rows, columns

    def predictions(self, rows: Codes, columns: Codes) -> Predictions:
        """Return everything predicted of pairs of codes (``rows_.encode(ids)``); -1 is an unknown id."""
        check_is_fitted(self)
        return self.predictor_.predicted(rows, columns, self._machine)

    def _scores(self, rows: Codes, columns: Codes) -> Array:
        return self.predictor_.scores(rows, columns, self._machine)

    def _decisions(self, rows: Codes, columns: Codes) -> Array:
        return self.predictor_.decisions(rows, columns, self._machine)

    def _top_columns(self, rows: Codes, count: int, seen: View | None = None) -> Codes:
        """Return the codes of the ``count`` columns with the highest scores of some rows, highest first.

        Entries of ``seen`` are left out; -1 fills up where there are fewer.
        """
        check_is_fitted(self)
        return self.predictor_.top_columns(rows, count, seen, self._machine)

    def confidence(self, X: Any) -> Array:
        """Return the probability of the predicted answer of each pair."""
        return self.predictions(*self._codes(X)).confidence

    @property
    def probability_note(self) -> str | None:
        """Why averages of this model's probabilities are no shares of "yes"; None where they may be."""
        return self._uncalibrated

    @property
    def answers_kept(self) -> bool:
        """Whether the model knows its answers, and so which entries are blank."""
        check_is_fitted(self)
        return self._answers is not None

    def kept_answers(self) -> Answers:
        """Return the answers of the fit, where the model or its file has kept them."""
        check_is_fitted(self)
        if self._answers is None:
            raise ValueError(
                "this model has not kept its answers, so which entries are blank is not known: it was "
                "saved without them, fitted on a GPU (there, fit with certify=0.1, or certify=0 to hold "
                "none out) or on a cluster (there, onebit.dask.fit_parts keeps them)"
            )
        return self._answers

    def decision_function(self, X: Any) -> Array:
        """Return a number for each pair whose sign is the predicted answer: positive means "yes".

        It is the mean score; of a sampled model with the logistic loss, the log-odds of the predicted
        probability, which average over the draws.

        Parameters
        ----------
        X : two-column table
            Pairs of ids. Ids that were not fitted count with what is known of the other one.
        """
        return self._decisions(*self._codes(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more likely answer of each pair, written as in the training answers."""
        yes = self.decision_function(X) > 0
        return self.classes_[yes.astype(int)]

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities of "no" and "yes", one line a pair."""
        yes = self.predictions(*self._codes(X)).probability
        return np.column_stack([1.0 - yes, yes])

    @available_if(_has_posterior)
    def predict_uncertainty(self, X: Any) -> Array:
        """Return the posterior standard deviation of each pair's score.

        With draws, that of the exact posterior. Of a variational posterior it is an approximation, and
        too small: it leaves out how rows and columns depend on each other.
        """
        return np.sqrt(self.predictor_.moments(*self._codes(X), self._machine)[1])

    @available_if(_has_posterior)
    def predict_interval(
        self, X: Any, level: float = 0.9, output: str = "score", *, approximate: bool = False
    ) -> Array:
        """Return the ends of a credible interval for each pair, of shape (n, 2).

        They are quantiles of draws from the exact posterior, so the model must be sampled
        (``inference="sampling"``). In worlds drawn from the prior, 90 % intervals of default chains held
        89 to 90 % of the true scores of blanks. A credible interval believes its prior: that of sampled
        models expects small factors, and in worlds of 60 x 40 with factors of standard deviation 0.7 on
        both sides its intervals held 77 %; with ``prior_scale=0.03`` they held 91 %. A variational
        posterior is too narrow for such intervals: its 90 % intervals held 65 to 75 % of the true scores
        without effects, and less than half with them.

        Parameters
        ----------
        X : two-column table
            Pairs of ids.
        level : float
            The posterior probability of the interval, whose two tails have the same.
        output : {"score", "probability"}
            An interval for the score, or for the probability of "yes" that the score means (not for the
            hinge and the Gibbs loss, whose scores are no log-odds).
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
        check_share(level, "level")
        if output not in ("score", "probability"):
            raise ValueError(f'output must be "score" or "probability", got {output!r}')
        loss = getattr(self.predictor_, "loss", self._loss)
        if output == "probability" and loss is not LOGISTIC:
            raise ValueError(
                f"scores of this {type(self).__name__} ({loss.name} loss) are no log-odds; fit "
                'LogisticCompleter(inference="sampling") for intervals of probabilities, or use '
                'output="score"'
            )
        ends = self.predictor_.intervals(rows, columns, level, self._machine, approximate)
        return expit(ends) if output == "probability" else ends

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of correct answers; a score of exactly zero counts as wrong."""
        scores = self.decision_function(X)
        sign = self._signs(y, len(scores))
        right = scores * sign > 0
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
        return float(np.average(right.astype(float), weights=weight))

    def complete(self, output: str = "probability", *, everywhere: bool = False) -> pd.DataFrame:
        """Return the filled matrix, labelled by the ids: known answers as they are, blanks predicted.

        Rows and columns stand in the order in which a file listed them; ids given in Python are sorted.

        Parameters
        ----------
        output : {"probability", "answer", "score"}
            What the matrix holds. "probability": of "yes", where a known answer is 0 or 1. Averages over
            rows and columns are then expected shares of "yes", if the blanks come about like the
            answered entries and probabilities are calibrated (not those of NuclearNormCompleter, nor of
            HingeCompleter and GibbsCompleter with ``calibrate=False``). "answer": the known or the
            predicted answer, written as yours were. "score": the model's mean score of every entry.
        everywhere : bool, default False
            Whether to put the model's own value also where an answer is known.

        Examples
        --------
        >>> from onebit import LogisticCompleter
        >>> model = LogisticCompleter(0).fit([("ann", "tea"), ("bob", "tea"), ("ann", "jam")], [1, 0, 1])
        >>> model.complete().loc["ann", "tea"], bool(0 < model.complete().loc["bob", "jam"] < 1)
        (np.float64(1.0), True)
        """
        check_is_fitted(self)
        return filled_matrix(self, output, everywhere)

    def recommend(
        self,
        rows: Any = None,
        n: int = 10,
        *,
        columns: Any = None,
        by: str = "row",
        answered: bool = False,
    ) -> pd.DataFrame:
        """Return the ``n`` columns that each row most likely says "yes" to, best first, by their ids.

        Parameters
        ----------
        rows : id, sequence of ids or None
            The rows; None for all.
        n : int, default 10
            How many columns for each row.
        columns : id, sequence of ids or None
            With ``by="column"``: the columns; None for all.
        by : {"row", "column"}
            Whose lists; "column": of each column, the ``n`` rows that most likely say "yes" to it.
        answered : bool, default False
            Whether entries that have an answer count too.

        Returns
        -------
        pandas.DataFrame
            Row id, rank from 1, column id, probability of "yes" (column id first, of columns). A list of
            the best is a selection: no certificate of all predictions speaks of it, but ``certify_lists``
            does, of lists of rows.

        Examples
        --------
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B1", rank=1, shape=(30, 20), density=0.5, seed=0)
        >>> model = LogisticCompleter(2).fit(world.pairs, world.answers)
        >>> model.recommend([3, 5], n=2)["rank"].tolist()
        [1, 2, 1, 2]
        """
        check_is_fitted(self)
        return recommendations(self, rows, n, answered, columns, by)

    @property
    def feature_effects_(self) -> pd.DataFrame:
        """What each feature adds to the effect of a row (or column), as log-odds of "yes".

        Of a number: one standard deviation more. Of a yes or no: yes against no. Of a level: against the
        average over the rows (or columns); given the other features. With the posterior standard
        deviation and, of a sampled model, a 90 % interval (the guide says where these are too narrow). A
        variational model draws effects towards zero and is too sure of them.
        """
        check_is_fitted(self)
        return feature_effects(self)

    def _effects(self, side: int) -> pd.Series:
        check_is_fitted(self)
        effects = self.predictor_.main_effects(side)
        if effects is None:
            raise AttributeError(
                f"this model has no {MEMBERS[side]} effects: effects={getattr(self, 'effects', None)!r}"
            )
        index = (self.rows_, self.columns_)[side]
        return pd.Series(effects, index=index.labels, name="effect").iloc[index.listed]

    @property
    def row_effects_(self) -> pd.Series:
        """The effect of each row on a typical column: more "yes" (a student's ability)."""
        return self._effects(0)

    @property
    def column_effects_(self) -> pd.Series:
        """The effect of each column on a typical row: more "yes" (an exercise's easiness)."""
        return self._effects(1)

    def _requested(
        self, wanted: tuple[Any, Any], averages: Averages | None, fitted_rows: int
    ) -> pd.DataFrame:
        """Return the predictions of the pairs asked for; of ids not fitted, those of the kept draws."""
        rows, columns = self.rows_.encode(wanted[0]), self.columns_.encode(wanted[1])
        found = self.predictions(rows, columns)
        if averages is not None:
            known = (rows >= 0) & (rows < fitted_rows) & (columns >= 0)
            parts = averages.mean, averages.variance, averages.chance
            drawn = self.predictor_.concluded(*parts)  # type: ignore[attr-defined]
            for part in ("score", "uncertainty", "probability"):
                getattr(found, part)[known] = getattr(drawn, part)
        return pd.DataFrame(
            {
                "row": np.asarray(wanted[0]),
                "column": np.asarray(wanted[1]),
                "score": found.score,
                "uncertainty": found.uncertainty,
                "probability": found.probability,
            }
        )
