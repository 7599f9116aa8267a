"""What every completer shares: ids in, signs, probabilities and frames out."""

from __future__ import annotations

import copy
import logging
import os
import sys
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
import psutil
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from onebit import __version__, ladder
from onebit.certificates import Certificate, HeldOut, Kept, SelectiveCertificate
from onebit.engine.checkpoint import checkpoint as checkpointed
from onebit.engine.compilation import announced
from onebit.engine.coordinate import Callback
from onebit.gpu import device as gpus
from onebit.ids import IdIndex, pair_columns
from onebit.observations import Observations, View, signs_of_pairs
from onebit.parameters import Check, check_parameters
from onebit.storage import Tensors

if TYPE_CHECKING:
    from onebit.record import Record

logger = logging.getLogger("onebit")

NOT_CERTIFIABLE = (
    "this model was fitted on all its answers, and the answers that a model was fitted to or tuned on "
    "cannot certify it; fit with certify=0.1 to hold a tenth of them out"
)
# Entries that refit() compares two fits on, one by one.
LARGEST_TABLE = 500_000_000

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """The answers of a fit that may be certified: all, which of them were held out, and the others."""

    everything: Observations
    held: NDArray[np.bool_]
    fitted: Observations


@dataclass(frozen=True)
class Predictions:
    """What is predicted of some pairs, one value a pair."""

    score: Array
    uncertainty: Array
    probability: Array

    @property
    def confidence(self) -> Array:
        """The probability of the predicted answer."""
        return np.maximum(self.probability, 1.0 - self.probability)


class PairClassifier(ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """A classifier of (row, column) pairs, fitted on a table of pairs and their answers.

    Subclasses fit themselves to ``Observations`` and give the first two moments of a score; ids,
    answers and tables are handled here.
    """

    _checks: ClassVar[dict[str, Check]]

    rows_: IdIndex
    columns_: IdIndex
    held_out_: HeldOut | None
    record_: Record | None
    _answers: Answers | None
    _draws: int
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
        if held is not None:
            self._answers = Answers(observations, held, fitted)
        if held is not None and held.any():
            rows, columns, sign, _ = observations.entries(held)
            found = self.predictions(rows, columns)
            mean, confidence = found.score, found.confidence
            view = observations.by_row
            entry = view.owners() * np.int64(observations.shape[1]) + view.index
            known = int(np.isin(entry[held], entry[~held]).sum())
            self.held_out_ = HeldOut.count(confidence, mean * sign <= 0, known)
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
            self.device = "cpu"
            try:
                return self._fit(observations, before, callback)
            finally:
                self.device = "auto"

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
    def _score_moments(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> tuple[Array, Array]:
        """Return mean and variance of the scores of pairs of codes; -1 is an unknown id."""

    def _scores(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> Array:
        """Return the means alone."""
        return self._score_moments(rows, columns)[0]

    @abstractmethod
    def _probability(self, mean: Array, variance: Array) -> Array:
        """Return the probability of a "yes" for scores with these moments."""

    def _predicted(
        self, rows: NDArray[np.int32], columns: NDArray[np.int32]
    ) -> tuple[Array, Array, Array]:
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
        self._draws = 0
        self._gibbs: dict[int, Any] = {}

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

    def was_fitted(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Say of which pairs of codes both ids were fitted: neither unknown nor folded in since."""
        inside = (rows >= 0) & (rows < self._fitted_shape[0])
        return inside & (columns >= 0) & (columns < self._fitted_shape[1])

    def _codes(self, pairs: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
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

    def predictions(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> Predictions:
        """Return everything predicted of pairs of codes (``rows_.encode(ids)``); -1 is an unknown id."""
        check_is_fitted(self)
        mean, variance, probability = self._predicted(rows, columns)
        return Predictions(mean, np.sqrt(variance), probability)

    def top_columns(
        self, rows: NDArray[np.int32], count: int, seen: View | None = None
    ) -> NDArray[np.int32]:
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

    def kept_answers(self) -> Answers:
        """Return the answers, where ``fit(..., certify=share)`` or a model file has kept them."""
        check_is_fitted(self)
        if self._answers is None:
            raise ValueError(
                "this model has not kept its answers; fit with certify=0.1, or certify=0 to hold none out"
            )
        return self._answers

    def confidence(self, X: Any) -> Array:
        """Return the probability of the predicted answer of each pair."""
        return self.predictions(*self._codes(X)).confidence

    def _held_out_answers(self) -> HeldOut:
        check_is_fitted(self)
        if self.held_out_ is None:
            raise ValueError(NOT_CERTIFIABLE)
        return self.held_out_

    def certify(
        self, delta: float = 0.05, method: str | Sequence[str] = "best", random_state: int = 0
    ) -> Certificate | ladder.Ladder:
        """Bound an error rate, with probability ``1 - delta``.

        Needs a model fitted with ``fit(..., certify=share)``.

        Parameters
        ----------
        delta : float
            The probability with which the bound may fail.
        method : str or sequence of str
            "best" is "hold-out", the tightest for the model that you keep, where answers were held out;
            else "pac-bayes-kl", which speaks of a predictor drawn from the posterior. "all" returns a
            ladder of every rung there is for this model, which hold all at once: "theorem-1-printed",
            "theorem-1", "catoni", "pac-bayes-kl" (a predictor drawn from the posterior), "learnt-prior"
            (its prior learnt on a part), "optimised" (of a GibbsCompleter), "draw" (one predictor drawn
            from that), "progressive", "hold-out" and "refit". Several names give the ladder of these.
        random_state : int
            Seed of the Monte Carlo estimates, and of the rungs that fit models of their own. Trying
            several and quoting the best is a search that no certificate pays for.

        Examples
        --------
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B1", rank=2, shape=(80, 60), density=0.5, seed=0)
        >>> model = LogisticCompleter(random_state=0).fit(world.pairs, world.answers, certify=0.2)
        >>> 0 < model.certify(delta=0.05).bound < 0.2
        True
        """
        check_is_fitted(self)
        if self.held_out_ is None and self._answers is None:
            raise ValueError(NOT_CERTIFIABLE)
        rungs = self._rungs(random_state)
        if method == "best":
            method = "pac-bayes-kl" if self.held_out_ is None else "hold-out"
            if method not in rungs:
                raise ValueError(
                    f"nothing was held out, and {type(self).__name__} has none that needs none; "
                    f"fit with certify=0.1, or name a method: {', '.join(rungs)}"
                )
        wanted = [method] if isinstance(method, str) else list(method)
        if method == "all":
            wanted = list(self.certificate_methods())
        for name in wanted:
            if name not in rungs:
                raise ValueError(
                    f"{type(self).__name__} as it was fitted has no certificate {name!r}; "
                    f"it has {', '.join(rungs)} and all"
                )
        if isinstance(method, str) and method != "all":
            return rungs[method](delta)
        return ladder.share_delta([rungs[name] for name in wanted], delta)

    def certificate_methods(self) -> tuple[str, ...]:
        """Return the names of the certificates that this model can have, as ``certify`` takes them."""
        check_is_fitted(self)
        few = self._answers is not None and self._answers.everything.n < ladder.LEAST_TO_DIVIDE
        return tuple(name for name in self._rungs(0) if not (few and name in ladder.DIVIDING))

    def _rungs(self, seed: int) -> dict[str, Callable[[float], Certificate]]:
        """Return the certificates that this model can have, each as a function of delta."""
        rungs: dict[str, Callable[[float], Certificate]] = {}
        if self._answers is not None:
            answers = self._answers
            whose = f" of a GibbsCompleter (random_state={seed})"
            rungs["optimised"] = lambda delta: self._optimised(seed).certificate(
                "pac-bayes-kl", delta, seed, "PAC-Bayes-kl, posterior optimised for it",
                f"the predictions of a predictor drawn anew for each entry from the posterior{whose}",
            )  # fmt: skip
            rungs["draw"] = lambda delta: self._optimised(seed).draw(seed, whose).certify(delta)
            rungs["progressive"] = lambda delta: ladder.progressive_certificate(
                self, answers.everything, delta, np.random.default_rng(seed)
            )
        if self.held_out_ is not None:
            rungs["hold-out"] = self.held_out_.certify
            small = len(self.rows_) * len(self.columns_) <= LARGEST_TABLE
            if self._answers is not None and self.held_out_.disagreement is None and small:
                rungs["refit"] = lambda delta: self.refit()._held_out_answers().certify(delta)
        return rungs

    def _optimised(self, seed: int) -> Any:
        """Return a completer whose posterior is made for its certificate; it counts its draws."""
        from onebit.randomised import GibbsCompleter

        assert self._answers is not None
        if seed not in self._gibbs:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model = GibbsCompleter(random_state=seed).fit(self._answers.fitted, certify=0)
            self._gibbs[seed] = model
        return self._gibbs[seed]

    def refit(self) -> Self:
        """Return a model like this one fitted on all answers, the held-out ones included.

        Its ``certify`` counts the errors of this one and adds the share of the table's entries on which
        the two predict differently, which needs entries that are drawn uniformly from the table.
        """
        held_out = self._held_out_answers()
        if self._answers is None or held_out.disagreement is not None:
            raise ValueError("refit() needs the model as it was fitted with fit(..., certify=share)")
        everything = self._answers.everything
        if everything.shape[0] * everything.shape[1] > LARGEST_TABLE:
            raise ValueError(
                f"refit() compares two fits on every entry, and the table has {everything.shape[0]} x "
                f"{everything.shape[1]}; keep the model as it is"
            )
        second = clone(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            second.fit(everything)
        differ = 0
        outside = np.zeros(2, dtype=np.int64)  # entries outside the first fit, and disagreements there
        rows, columns = everything.shape
        fitted = self._answers.fitted.by_row
        known = np.unique(fitted.owners() * np.int64(columns) + fitted.index)
        for _, pair in _blocks(rows, columns):
            signs = [np.sign(model._scores(*pair)) for model in (self, second)]
            wrong = (signs[0] != signs[1]) | (signs[1] == 0)
            differ += int(wrong.sum())
            new = ~np.isin(pair[0] * np.int64(columns) + pair[1], known)
            outside += (int(new.sum()), int((wrong & new).sum()))
        # Of entries drawn with repeats the first share counts, of distinct ones the second.
        share = max(differ / (rows * columns), outside[1] / max(outside[0], 1))
        second.held_out_ = replace(held_out, disagreement=float(share))
        return second

    def certify_selective(self, delta: float = 0.05) -> SelectiveCertificate:
        """Bound the error rates of the surest 10 %, 20 %, ... 100 % of the predictions, all at once."""
        return self._held_out_answers().certify_selective(delta)

    def keep(self, max_error: float, delta: float = 0.05) -> Kept:
        """Find which predictions can be kept so that at most ``max_error`` of them are wrong.

        Those are the pairs with ``model.confidence(pairs) > kept.threshold``; the statement holds with
        probability ``1 - delta``.
        """
        return self._held_out_answers().keep(max_error, delta)

    def decision_function(self, X: Any) -> Array:
        """Return the mean score of each pair: positive means "yes".

        Parameters
        ----------
        X : two-column table
            Pairs of ids. Ids that were not fitted count with what is known of the other one.
        """
        return self._scores(*self._codes(X))

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

    def complete(self, output: str = "answer") -> pd.DataFrame:
        """Return the filled matrix, labelled by the ids, in the order in which a file listed them.

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
        place, order = np.argsort(self.rows_.listed), self.columns_.listed
        for codes, pair in _blocks(rows, columns):
            if output == "probability":
                values = self._predicted(*pair)[2]
            else:
                values = self._scores(*pair)
                if output == "answer":
                    values = self.classes_[(values > 0).astype(int)]
            filled[place[codes]] = values.reshape(len(codes), columns)[:, order]
        return pd.DataFrame(filled, index=self.rows_.listed_labels, columns=self.columns_.listed_labels)

    def save(self, path: str | os.PathLike[str], *, answers: bool = True) -> None:
        """Write the fitted model to one file, from which ``onebit.load`` restores it.

        Arrays and JSON, with a format version and a checksum; no pickle.

        Parameters
        ----------
        path : path
            The file, which is written whole or not at all.
        answers : bool
            Of a model fitted with ``certify``, also write its answers (six bytes each), so that the
            loaded one can issue further certificates and knows which entries are blank.
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


Codes = NDArray[np.int32]


def _blocks(rows: int, columns: int) -> Iterator[tuple[Codes, tuple[Codes, Codes]]]:
    """Walk over a whole table: row codes, and the pairs of codes of all their entries, row by row."""
    every = np.arange(columns, dtype=np.int32)
    block = max(1, 2_000_000 // max(columns, 1))
    for begin in range(0, rows, block):
        codes = np.arange(begin, min(begin + block, rows), dtype=np.int32)
        yield codes, (np.repeat(codes, columns), np.tile(every, len(codes)))


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
