"""What every completer shares: ids in, signs, probabilities and frames out."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import numpy as np
import pandas as pd
import psutil
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from onebit.ids import IdIndex, pair_columns
from onebit.observations import Observations, signs
from onebit.storage import Tensors

logger = logging.getLogger("onebit")

Array = NDArray[np.float64]


class PairClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of (row, column) pairs, fitted on a table of pairs and their answers.

    Subclasses fit themselves to ``Observations`` and give the first two moments of a score; ids,
    answers and tables are handled here.
    """

    rows_: IdIndex
    columns_: IdIndex
    classes_: NDArray[Any]
    n_observations_: int

    def _score_moments(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> tuple[Array, Array]:
        """Return mean and variance of the scores of pairs of codes; -1 is an unknown id."""
        raise NotImplementedError

    def _probability(self, mean: Array, variance: Array) -> Array:
        """Return the probability of a "yes" for scores with these moments."""
        raise NotImplementedError

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        """Return what was fitted, as arrays and JSON; ids and answers are saved with it."""
        raise NotImplementedError

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        """Take up what ``_state`` returned."""
        raise NotImplementedError

    def _adopt(self, other: PairClassifier) -> None:
        """Take over the ids and answers of another fitted classifier."""
        self.rows_, self.columns_, self.classes_ = other.rows_, other.columns_, other.classes_
        self.n_features_in_, self.n_observations_ = 2, other.n_observations_

    def _remember(self, observations: Observations) -> None:
        self.rows_ = observations.rows
        self.columns_ = observations.columns
        self.classes_ = observations.classes
        self.n_features_in_ = 2
        self.n_observations_ = observations.n

    def _generator(self) -> np.random.Generator:
        state = check_random_state(getattr(self, "random_state", None))
        return np.random.default_rng(state.randint(np.iinfo(np.int32).max))

    def _codes(self, pairs: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        check_is_fitted(self)
        row_values, column_values = pair_columns(pairs)
        return self.rows_.encode(row_values), self.columns_.encode(column_values)

    def decision_function(self, X: Any) -> Array:
        """Return the mean score of each pair: positive means "yes".

        Parameters
        ----------
        X : two-column table
            Pairs of ids. Ids that were not fitted count with what is known of the other one.
        """
        return self._score_moments(*self._codes(X))[0]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more likely answer of each pair, written as in the training answers."""
        yes = self.decision_function(X) > 0
        return self.classes_[yes.astype(int)]

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities of "no" and "yes", one line a pair."""
        yes = self._probability(*self._score_moments(*self._codes(X)))
        return np.column_stack([1.0 - yes, yes])

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of correct answers; a score of exactly zero counts as wrong."""
        sign, _ = signs(y)
        scores = self.decision_function(X)
        if len(scores) != len(sign):
            raise ValueError(f"{len(scores)} pairs but {len(sign)} answers; each pair needs one answer")
        right = scores * sign > 0
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
        return float(np.average(right.astype(float), weights=weight))

    def complete(self, output: str = "answer") -> pd.DataFrame:
        """Return the filled matrix, labelled by the ids.

        Parameters
        ----------
        output : {"answer", "probability", "score"}
            What to fill in: the predicted answer, the probability of "yes", or the mean score.
            Every entry is the model's, also where an answer was seen.
        """
        check_is_fitted(self)
        if output not in ("answer", "probability", "score"):
            raise ValueError(f'output must be "answer", "probability" or "score", got {output!r}')
        rows, columns = len(self.rows_), len(self.columns_)
        itemsize = self.classes_.dtype.itemsize if output == "answer" else 8
        needed = float(rows) * columns * itemsize
        available = psutil.virtual_memory().available
        if needed > 0.8 * available:
            raise MemoryError(
                f"the filled matrix of {rows} x {columns} needs {needed / 2**30:.1f} GiB and "
                f"{available / 2**30:.1f} GiB are free; predict the pairs that you need instead"
            )
        filled = np.empty((rows, columns), dtype=self.classes_.dtype if output == "answer" else float)
        every = np.arange(columns, dtype=np.int32)
        block = max(1, 2_000_000 // max(columns, 1))
        for begin in range(0, rows, block):
            codes = np.arange(begin, min(begin + block, rows), dtype=np.int32)
            mean, variance = self._score_moments(np.repeat(codes, columns), np.tile(every, len(codes)))
            if output == "answer":
                values = self.classes_[(mean > 0).astype(int)]
            else:
                values = mean if output == "score" else self._probability(mean, variance)
            filled[begin : begin + len(codes)] = values.reshape(len(codes), columns)
        return pd.DataFrame(filled, index=self.rows_.labels, columns=self.columns_.labels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file, from which ``onebit.load`` restores it.

        Arrays and JSON, with a format version and a checksum; no pickle.
        """
        from onebit.models import save  # it knows every completer, and they all know this module

        check_is_fitted(self)
        save(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = False
        return tags


def observations_of(X: Any, y: Any, sample_weight: ArrayLike | None) -> Observations:
    """Turn what ``fit`` was given into observations: pairs and answers, or a whole matrix."""
    if y is not None:
        if isinstance(X, Observations):
            raise ValueError("Observations hold their answers already; call fit(observations)")
        return Observations.from_pairs(X, y, sample_weight)
    if sample_weight is not None:
        raise ValueError("sample_weight goes with pairs and answers: fit(pairs, answers, sample_weight)")
    return X if isinstance(X, Observations) else Observations.from_matrix(X)


def log_to_stderr() -> None:
    """Show the library's log on standard error, unless the application handles it already."""
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
    if logger.level == logging.NOTSET or logger.level > logging.INFO:
        logger.setLevel(logging.INFO)
