"""What every completer shares: ids in, signs, probabilities and frames out."""

from __future__ import annotations

import copy
import logging
import os
import sys
import warnings
from abc import ABCMeta, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from onebit import __version__
from onebit.certifying import Certifying
from onebit.engine.checkpoint import checkpoint as checkpointed
from onebit.engine.compilation import announced
from onebit.engine.coordinate import Callback
from onebit.filling import filled_matrix, recommendations
from onebit.gpu import device as gpus
from onebit.ids import IdIndex, pair_columns
from onebit.observations import Observations, View, signs_of_pairs
from onebit.parameters import Check, check_parameters
from onebit.predictions import Answers, Codes, Predictions
from onebit.storage import Tensors

if TYPE_CHECKING:
    from onebit.record import Record

logger = logging.getLogger("onebit")

Array = NDArray[np.float64]


class PairClassifier(Certifying, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """A classifier of (row, column) pairs, fitted on a table of pairs and their answers.

    Subclasses fit themselves to ``Observations`` and give the first two moments of a score; ids,
    answers and tables are handled here.
    """

    _checks: ClassVar[dict[str, Check]]

    record_: Record | None
    classes_: NDArray[Any]
    n_observations_: int

    @announced()
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        certify: float | None = None,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit to pairs and their answers.

        Parameters
        ----------
        X : two-column table, or a matrix
            Row ids and column ids (array, pandas, polars, pyarrow, list of pairs). Without ``y``: a
            matrix with NaN for blanks, a scipy.sparse matrix or ``Observations``.
        y : array_like of shape (n,), optional
            Answers as {-1, 1}, {0, 1} or booleans.
        sample_weight : array_like of shape (n,), optional
            Weights of the answers.
        certify : float, optional
            Share of the answers to hold out, before anything else, for ``certify``. Zero holds none out
            and leaves the certificates that need none. The answers stay in memory for them.
        callback : callable, optional
            Called with a ``Progress`` record after every round.
        checkpoint : path, optional
            A folder in which a long fit keeps where it is. Killed and started again with the same data
            and settings it goes on from there to the same result; a finished fit removes it. Needs a
            number as ``random_state``.
        """
        check_parameters(self, self._checks)
        observations = observations_of(X, y, sample_weight, self._fit_device())
        if getattr(self, "verbose", 0):
            log_to_stderr()
        rng = self._generator()
        held = None if certify is None else _held_out(observations, certify, rng)
        fitted = observations if held is None or not held.any() else observations.take(~held)
        with self._checkpoint(checkpoint, observations, certify):
            advice = self._fit_where_it_fits(fitted, rng, callback)
        self._remember(observations)
        if held is not None or self._fit_device() == "cpu":
            # On a GPU the answers stay where they are unless a certificate needs them here.
            none = np.zeros(observations.n, dtype=bool)
            self._answers = Answers(observations, none if held is None else held, fitted)
            self._certifiable = held is not None
            if held is not None and held.any():
                self.held_out_ = self._counted(self._answers)
        for text in advice:
            warnings.warn(f"{type(self).__name__}: {text}", ConvergenceWarning, stacklevel=2)
        return self

    def _fit_device(self) -> str:
        """Return where a fit runs."""
        return getattr(self, "device", "cpu")

    def _fit_where_it_fits(
        self, observations: Observations, rng: np.random.Generator, callback: Callback | None
    ) -> list[str]:
        """Fit; where "auto" chose a GPU that is too small, on the CPU after all."""
        if self._fit_device() != "auto":
            return self._fit(observations, rng, callback)
        before = copy.deepcopy(rng)
        try:
            return self._fit(observations, rng, callback)
        except gpus.TooLittleMemory:
            other = copy.copy(self)
            other.device = "cpu"
            advice = other._fit(observations, before, callback)
            self.__dict__.update(other.__dict__ | {"device": self.device})
            return advice

    def _keeps_checkpoints(self) -> bool:
        """Say whether a fit goes by descents of the engine, which a checkpoint can keep."""
        return False

    def _checkpoint(
        self, folder: str | os.PathLike[str] | None, observations: Observations, certify: float | None
    ) -> AbstractContextManager[None]:
        if folder is None:
            return nullcontext()
        if not self._keeps_checkpoints():
            raise ValueError(f"{type(self).__name__} keeps no checkpoints; leave checkpoint out")
        if not isinstance(getattr(self, "random_state", None), (int, np.integer)):
            raise ValueError("a fit that can go on needs a number as random_state; set random_state=0")
        from onebit.models import plain_parameters
        from onebit.record import fingerprint

        settings = plain_parameters(self)
        for name in ("n_jobs", "device", "verbose"):  # these change the result by rounding at most
            settings.pop(name, None)
        identity = {
            "version": __version__,
            "model": type(self).__name__,
            "settings": settings,
            "held-out share": certify,
            "answers": fingerprint(observations),
        }
        return checkpointed(Path(folder), identity)

    @abstractmethod
    def _fit(
        self, observations: Observations, rng: np.random.Generator, callback: Callback | None
    ) -> list[str]:
        """Fit to observations; return what to warn of.

        Nothing is stored on the estimator before all is found.
        """

    @abstractmethod
    def _score_moments(self, rows: Codes, columns: Codes) -> tuple[Array, Array]:
        """Return mean and variance of the scores of pairs of codes; -1 is an unknown id."""

    def _scores(self, rows: Codes, columns: Codes) -> Array:
        """Return the means alone."""
        return self._score_moments(rows, columns)[0]

    def _decisions(self, rows: Codes, columns: Codes) -> Array:
        """Return numbers whose signs are the predicted answers."""
        return self._scores(rows, columns)

    def _decided(self, mean: Array, probability: Array) -> Array:
        """Return the same from moments and probabilities that are there already."""
        return mean

    @abstractmethod
    def _probability(self, mean: Array, variance: Array) -> Array:
        """Return the probability of a "yes" for scores with these moments."""

    def _predicted(self, rows: Codes, columns: Codes) -> tuple[Array, Array, Array]:
        """Return mean and variance of the scores of pairs of codes, and the probability of a "yes"."""
        mean, variance = self._score_moments(rows, columns)
        return mean, variance, self._probability(mean, variance)

    @abstractmethod
    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        """Return what was fitted, as arrays and JSON; ids and answers are saved with it."""

    @abstractmethod
    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        """Take up what ``_state`` returned."""

    def _know(self, rows: IdIndex, columns: IdIndex, classes: NDArray[Any], n_observations: int) -> None:
        """Set what every fitted classifier knows of its data."""
        self.rows_, self.columns_, self.classes_ = rows, columns, classes
        self.n_features_in_, self.n_observations_ = 2, n_observations
        self._fitted_shape = (len(rows), len(columns))
        self.held_out_ = None
        self.record_ = None
        self._answers = None
        self._certifiable = False
        self._folded: list[tuple[Codes, Codes, NDArray[np.int8]]] = []
        self._fitted_entries = None
        self._gibbs = {}

    def _remember(self, observations: Observations) -> None:
        self._know(observations.rows, observations.columns, observations.classes, observations.n)

    def _generator(self) -> np.random.Generator:
        state = getattr(self, "random_state", None)
        if isinstance(state, np.random.Generator):
            return np.random.default_rng(state.integers(np.iinfo(np.int32).max))
        return np.random.default_rng(check_random_state(state).randint(np.iinfo(np.int32).max))

    def _signs(self, answers: Any, n_pairs: int) -> NDArray[np.int8]:
        """Turn answers, written as those of the fit were or as numbers, into signs."""
        values = np.asarray(answers)
        if self.classes_.dtype.kind != "U" or values.dtype.kind not in "UO":
            return signs_of_pairs(answers, n_pairs)[0]
        bad = ~np.isin(values.astype(str), self.classes_)
        if bad.any():
            raise ValueError(
                f"answer {values[bad][0]!r} at position {int(np.argmax(bad))} is neither "
                f"{str(self.classes_[0])!r} nor {str(self.classes_[1])!r}"
            )
        return signs_of_pairs(values.astype(str) == self.classes_[1], n_pairs)[0]

    def was_fitted(self, rows: Codes, columns: Codes) -> NDArray[np.bool_]:
        """Say of which pairs of codes both ids were fitted: neither unknown nor folded in since."""
        inside = (rows >= 0) & (rows < self._fitted_shape[0])
        return inside & (columns >= 0) & (columns < self._fitted_shape[1])

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
        mean, variance, probability = self._predicted(rows, columns)
        return Predictions(mean, np.sqrt(variance), probability, self._decided(mean, probability))

    def top_columns(self, rows: Codes, count: int, seen: View | None = None) -> Codes:
        """Return the codes of the ``count`` columns with the highest scores of some rows, highest first.

        Entries of ``seen`` are left out; -1 fills up where there are fewer.
        """
        check_is_fitted(self)
        best = np.full((len(rows), count), -1, dtype=np.int32)
        every = np.arange(len(self.columns_), dtype=np.int32)
        for line, row in enumerate(rows):
            scores = self._scores(np.full(len(every), row, dtype=np.int32), every)
            allowed = every
            if seen is not None and row < seen.size:
                allowed = np.delete(every, seen.index[seen.start[row] : seen.start[row + 1]])
            order = allowed[np.argsort(-scores[allowed], kind="stable")][:count]
            best[line, : len(order)] = order
        return best

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
                "saved without them, or fitted on a GPU (there, fit with certify=0.1, or certify=0 to "
                "hold none out)"
            )
        return self._answers

    def confidence(self, X: Any) -> Array:
        """Return the probability of the predicted answer of each pair."""
        return self.predictions(*self._codes(X)).confidence

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
        yes = self._predicted(*self._codes(X))[2]
        return np.column_stack([1.0 - yes, yes])

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
            What the matrix holds. "probability": of "yes", where a known answer is 0 or 1, so that
            averages over rows and columns are expected shares of "yes". "answer": the known or the
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

    def recommend(self, rows: Any = None, n: int = 10, *, answered: bool = False) -> pd.DataFrame:
        """Return the ``n`` columns that each row most likely says "yes" to, best first, by their ids.

        Parameters
        ----------
        rows : id, sequence of ids or None
            The rows; None for all.
        n : int, default 10
            How many columns for each row.
        answered : bool, default False
            Whether columns that the row has answered count too.

        Returns
        -------
        pandas.DataFrame
            Row id, rank from 1, column id, probability of "yes". A list of the best is a selection: no
            certificate of all predictions speaks of it.

        Examples
        --------
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B1", rank=1, shape=(30, 20), density=0.5, seed=0)
        >>> model = LogisticCompleter(2).fit(world.pairs, world.answers)
        >>> model.recommend([3, 5], n=2)["rank"].tolist()
        [1, 2, 1, 2]
        """
        check_is_fitted(self)
        return recommendations(self, rows, n, answered)

    def save(self, path: str | os.PathLike[str], *, answers: bool = True) -> None:
        """Write the fitted model to one file, from which ``onebit.load`` restores it.

        Arrays and JSON, with a format version and a checksum; no pickle.

        Parameters
        ----------
        path : path
            The file, which is written whole or not at all.
        answers : bool
            Also write the answers (six bytes each), so that the loaded model knows which entries are
            blank and, if it was fitted with ``certify``, can issue further certificates.
        """
        from onebit.models import save  # it knows every completer, and they all know this module

        check_is_fitted(self)
        save(self, path, answers=answers)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = False
        return tags


def observations_of(X: Any, y: Any, sample_weight: ArrayLike | None, device: str = "cpu") -> Observations:
    """Turn what ``fit`` was given into observations: pairs and answers, or a whole matrix.

    A GPU codes what it can by itself.
    """
    if y is not None:
        if isinstance(X, Observations):
            raise ValueError("Observations hold their answers already; call fit(observations)")
        observations = _taken_in(X, y, device) if sample_weight is None else None
        if observations is not None:
            return observations
        return Observations.from_pairs(X, y, sample_weight)
    if sample_weight is not None:
        raise ValueError("sample_weight goes with pairs and answers: fit(pairs, answers, sample_weight)")
    if isinstance(X, Observations):
        return X
    try:
        return Observations.from_matrix(X)
    except ValueError as error:
        raise ValueError(
            f"without answers, X is taken for a whole matrix with blanks: {error}; "
            "if X holds pairs, call fit(pairs, answers)"
        ) from None


def _taken_in(X: Any, y: Any, device: str) -> Observations | None:
    """Let a GPU code pairs and answers, where there is one and it can."""
    if device == "cpu" or not isinstance(y, (np.ndarray, pd.Series)) or y.ndim != 1:
        return None
    found = gpus.chosen(device, len(y))
    if found is None:
        return None
    from onebit.gpu.intake import taken_in

    try:
        with gpus.at_work(found):
            return taken_in(X, y, found)
    except gpus.TooLittleMemory:
        return None


def _held_out(observations: Observations, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose the answers that a certificate will count."""
    if isinstance(share, bool) or not 0 <= share < 1:
        raise ValueError(f"certify is the share of answers to hold out, from 0 to below 1; got {share!r}")
    if len(observations.by_row.weight):
        raise ValueError("a certificate counts answers; it cannot be had with sample_weight")
    size = round(share * observations.n)
    if share and not 0 < size < observations.n:
        raise ValueError(
            f"certify={share} of {observations.n} answers holds out {size}; need more answers"
        )
    held = np.zeros(observations.n, dtype=bool)
    held[rng.choice(observations.n, size=size, replace=False)] = True
    return held


def log_to_stderr() -> None:
    """Show the library's log on standard error, unless the application handles it already."""
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
    if logger.level == logging.NOTSET or logger.level > logging.INFO:
        logger.setLevel(logging.INFO)
