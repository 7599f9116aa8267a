"""What every completer shares: ids in, answers, probabilities and frames out."""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import sys
import warnings
from abc import ABCMeta, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from onebit.certificates.new_rows import HeldRows
from onebit.completers.archive import fit_identity, save
from onebit.completers.certified import Certified
from onebit.completers.holding_out import held_identity
from onebit.completers.intake import answers_of
from onebit.completers.interviewing import Interviewing
from onebit.completers.keeping import Keeping
from onebit.completers.parameters import Check, check_parameters
from onebit.completers.predicting import Predicting
from onebit.completers.predictions import Codes
from onebit.completers.predictors import Predictor
from onebit.completers.record import Record
from onebit.completers.setting_aside import set_aside
from onebit.completers.updates import Updates
from onebit.completers.updating import Updating
from onebit.data.ids import IdIndex, pair_columns
from onebit.data.joining import encoders_of, with_features
from onebit.data.observations import Observations
from onebit.data.storage import Tensors
from onebit.engine.checkpoint import Checkpoint
from onebit.engine.checkpoint import checkpoint as checkpointed
from onebit.engine.cpu.compilation import announced
from onebit.engine.crew import Callback, Progress
from onebit.engine.gpu import device as gpus
from onebit.engine.sampling.sampler import Averages, SweepProgress
from onebit.engine.seeds import generator
from onebit.engine.workers import Machine
from onebit.model.posterior import Posterior

logger = logging.getLogger("onebit")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """What a fit found.

    Attributes
    ----------
    predictor : Predictor
        What answers for the model from now on.
    attributes : dict
        Public attributes to set, with their trailing underscores.
    advice : list of str
        What to warn of.
    averages : Averages or None
        Of the pairs that were asked for beforehand, over every draw.
    """

    predictor: Predictor
    attributes: dict[str, Any]
    advice: list[str] = field(default_factory=list)
    averages: Averages | None = None


class PairClassifier(
    Predicting,
    Updating,
    Interviewing,
    Certified,
    Keeping,
    ClassifierMixin,
    BaseEstimator,
    metaclass=ABCMeta,
):
    """A classifier of (row, column) pairs, fitted on a table of pairs and their answers.

    Subclasses find a predictor for ``Observations``; ids, answers and tables are handled here.
    """

    _checks: ClassVar[dict[str, Check]]
    # Whether what is known of rows and columns can enter the prior.
    _takes_features: ClassVar[bool] = False

    n_observations_: int
    requested_: pd.DataFrame

    @announced()
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        row_features: Any = None,
        column_features: Any = None,
        certify: Any = None,
        certify_rows: float | None = None,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        start: PairClassifier | None = None,
        predict_for: Any = None,
    ) -> Self:
        """Fit to pairs and their answers.

        Parameters
        ----------
        X : two-column table, or a matrix
            Row ids and column ids (array, pandas, polars, pyarrow, list of pairs). Without ``y``: a
            matrix with NaN for blanks, a scipy.sparse matrix or ``Observations``. A Dask dataframe (row
            ids, column ids and, without ``y``, answers) is fitted on its cluster: see ``onebit.dask``.
        y : array_like of shape (n,), optional
            Answers as {-1, 1}, {0, 1} or booleans.
        sample_weight : array_like of shape (n,), optional
            Weights of the answers.
        row_features, column_features : table or (ids, matrix), optional
            What is known of rows and of columns besides answers: numbers, booleans, categories, in a
            pandas frame keyed by its index (if that has a name or does not hold whole numbers; else by
            its first column), a polars or pyarrow table keyed by its first column, or a pair of ids and a
            matrix, also a sparse one.
            Prior means depend on them as far as the answers bear it out. Ids without answers are known
            from then on by their features; ids without features are taken to be average. A missing value
            counts as average, and that it is missing is a feature of its own. See ``feature_effects_``.
        certify : float, mask, (pairs, answers) or Observations, optional
            Share of the answers to hold out, before anything else, for ``certify``. Which ones depends
            on their ids and ``random_state``, not on their order. Zero holds none out and leaves the
            certificates that need none. Or a hold-out of one's own, of whose kind the certificates then
            speak: a mask, True for each answer to hold out (those after a date), or further answers (a
            survey at random, another table).
        certify_rows : float, optional
            Share of the rows to hold out whole, for ``certify(target="new rows")``. Once counted, they
            are folded in with all their answers.
        callback : callable, optional
            Called with a ``Progress`` record after every round.
        checkpoint : path, optional
            A folder in which a long fit keeps where it is. Killed and started again with the same data
            and settings it goes on from there to the same result; a finished fit removes it. Needs a
            number as ``random_state``.
        start : completer, optional
            A fitted model of the same rank and effects to begin from, in place of a spectral start: a
            warm start, for more answers or other settings. Ids that it does not know begin at their
            prior. A model that has seen the answers to be held out cannot start a certified fit.
        predict_for : two-column table, optional
            Pairs whose predictions are wanted, in ``requested_``. Sampling averages them over every
            draw, kept or not.
        """
        check_parameters(self, self._checks)
        machine = self._machine
        if type(X).__module__.split(".")[0] in ("dask", "dask_expr"):
            others = {
                "row_features": row_features,
                "column_features": column_features,
                "certify_rows": certify_rows,
                "start": start,
                "predict_for": predict_for,
            }
            for name, given in others.items():
                if given is not None:
                    raise ValueError(f"{name} is not known on a cluster; leave it out")
            return self._fit_frame(X, y, sample_weight, certify, callback, checkpoint)
        observations, marks = answers_of(X, y, sample_weight, certify, machine.device)
        if row_features is not None or column_features is not None:
            observations = with_features(observations, (row_features, column_features))
        if observations.features != (None, None) and not self._takes_features:
            raise ValueError(
                f"{type(self).__name__} takes no features; use AutoCompleter, LogisticCompleter or "
                "HingeCompleter (--model auto, logistic or hinge)"
            )
        if getattr(self, "verbose", 0):
            log_to_stderr()
        wanted = None if predict_for is None else pair_columns(predict_for)
        if certify_rows is not None and not self._posterior_is_found:
            raise ValueError(f"{type(self).__name__} cannot fold rows in; leave certify_rows out")
        seed = getattr(self, "random_state", None)
        aside = set_aside(observations, marks, certify, certify_rows, seed)
        observations, fitted = aside.observations, aside.fitted
        if start is not None and aside.holds_out:
            raise ValueError(
                "a start has seen answers that would be held out, so the certificate would not hold; fit "
                "with certify or certify_rows, or from a start, not both"
            )
        begin = None if start is None else self._begin(start, fitted)
        with self._checkpoint(checkpoint, observations, held_identity(certify, marks), begin) as kept:
            where = machine._replace(checkpoint=kept)
            found, device = self._found(fitted, where, self._reporting(callback), begin, wanted)
        self._know(observations.rows, observations.columns, observations.classes, aside.n)
        self._encoders = encoders_of(observations)
        self._take(found)
        if certify is not None or gpus.chosen(device, observations.n) is None:
            # On a GPU the answers stay where they are unless a certificate needs them.
            self._answers = aside.answers()
            self._certifiable = certify is not None and marks is None
            if aside.division is not None:
                self._uncounted = aside.uncounted()
            # A model that lives on must not keep a GPU's memory.
            observations.come_home()
        aside.count_rows_of(self, seed)
        if wanted is not None:
            self.requested_ = self._requested(wanted, found.averages, len(observations.rows))
        for text in found.advice:
            warnings.warn(f"{type(self).__name__}: {text}", ConvergenceWarning, stacklevel=3)
        return self

    def _fit_frame(
        self, X: Any, y: Any, sample_weight: Any, certify: Any, callback: Any, checkpoint: Any
    ) -> Self:
        """Fit to a Dask dataframe, on the cluster that it belongs to."""
        from onebit.completers import clustered

        wanted = clustered.Wanted(certify, callback, checkpoint)
        clustered.fit_frame(self, X, y, sample_weight, wanted)
        return self

    def _know_from_cluster(
        self, found: Found, rows: IdIndex, columns: IdIndex, classes: NDArray[Any], n: int
    ) -> None:
        """Keep what a fit on a cluster found; the answers stay there."""
        self._know(rows, columns, classes, n)
        self._take(found)

    @property
    def _machine(self) -> Machine:
        """Where a fit runs, and large predictions."""
        return Machine(getattr(self, "n_jobs", None), getattr(self, "device", "cpu"))

    def _found(
        self,
        observations: Observations,
        machine: Machine,
        callback: Callback | None,
        start: Posterior | None,
        wanted: tuple[Any, Any] | None,
    ) -> tuple[Found, str]:
        """Fit, where "auto" chose a GPU that is too small on the CPU after all; say on what device."""
        pairs = None
        if wanted is not None:
            rows = observations.rows.encode(wanted[0])
            columns = observations.columns.encode(wanted[1])
            known = (rows >= 0) & (columns >= 0)
            pairs = rows[known], columns[known]
        rng = generator(getattr(self, "random_state", None))
        before = copy.deepcopy(rng)
        try:
            return self._find(observations, machine, rng, callback, start, pairs), machine.device
        except gpus.TooLittleMemory:
            if machine.device != "auto":
                raise
            other = machine._replace(device="cpu")
            return self._find(observations, other, before, callback, start, pairs), other.device

    @abstractmethod
    def _find(
        self,
        observations: Observations,
        machine: Machine,
        rng: np.random.Generator,
        callback: Callback | None,
        start: Posterior | None,
        pairs: tuple[Codes, Codes] | None,
    ) -> Found:
        """Return what a fit to observations finds; nothing is stored on the estimator."""

    def _begin(self, start: PairClassifier, observations: Observations) -> Posterior:
        """Return the posterior of another model, for the ids of these observations."""
        check_is_fitted(start)
        if not hasattr(start, "posterior_"):
            raise ValueError(f"{type(start).__name__} has no posterior to begin from; leave start out")
        return start.posterior_.aligned(
            (
                start.rows_.encode(observations.rows.values),
                start.columns_.encode(observations.columns.values),
            )
        )

    def _reporting(self, callback: Callback | None) -> Callback | None:
        if not getattr(self, "verbose", 0):
            return callback

        def report(progress: Progress) -> None:
            sweeps = isinstance(progress, SweepProgress)
            line = "sweep %d: loss %.6f" if sweeps else "round %d: objective %.6f"
            logger.info(line, progress.round, progress.objective)
            if callback is not None:
                callback(progress)

        return report

    def _keeps_checkpoints(self) -> bool:
        """Say whether a fit goes by descents of the engine, which a checkpoint can keep."""
        return True

    def _checkpoint(
        self,
        folder: str | os.PathLike[str] | None,
        observations: Observations,
        held: Any,
        start: Posterior | None,
    ) -> AbstractContextManager[Checkpoint | None]:
        if folder is None:
            return nullcontext()
        if not self._keeps_checkpoints():
            raise ValueError(f"{type(self).__name__} keeps no checkpoints; leave checkpoint out")
        identity = fit_identity(self, held) | {"answers": observations.fingerprint()}
        for name, told in zip(("row features", "column features"), observations.features, strict=True):
            if told is not None:
                identity[name] = told.fingerprint()
        if start is not None:
            parts = [part.tobytes() for side in start.sides for part in (side.mean, side.covariance)]
            identity["start"] = hashlib.sha256(b"".join(parts)).hexdigest()
        return checkpointed(Path(folder), identity)

    def _know(self, rows: IdIndex, columns: IdIndex, classes: NDArray[Any], n_observations: int) -> None:
        """Set what every fitted classifier knows of its data."""
        self.rows_, self.columns_, self.classes_ = rows, columns, classes
        self.n_features_in_, self.n_observations_ = 2, n_observations
        self.held_out_ = None
        self.held_rows_: HeldRows | None = None
        self.record_: Record | None = None
        self._answers = None
        self._encoders = (None, None)
        self._certifiable = False
        self._folded: list[tuple[Codes, Codes, NDArray[np.int8]]] = []
        self._fitted_entries = None
        self._optima = {}
        self.updates_ = Updates((len(rows), len(columns)))

    def _take(self, found: Found) -> None:
        """Keep what a fit found, in place of what an earlier one did."""
        for name in self.__dict__.get("_taken", ()):
            self.__dict__.pop(name, None)
        self.__dict__.pop("requested_", None)
        self.predictor_ = found.predictor
        for name, value in found.attributes.items():
            setattr(self, name, value)
        self._taken = tuple(found.attributes)

    def describe(self, source: Any = None) -> Record:
        """Return a record of the answers, for a report: counts, fingerprint, surprising answers."""
        return Record.of(self.kept_answers(), self.predictions, source)

    @abstractmethod
    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        """Return what was fitted, as arrays and JSON; ids and answers are saved with it."""

    @abstractmethod
    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        """Take up what ``_state`` returned."""

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
        check_is_fitted(self)
        save(self, path, answers=answers)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = False
        return tags


def know(model: PairClassifier, found: Found, data: Observations | PairClassifier) -> None:
    """Make a completer know what was found for it elsewhere, and the ids and answers it is about."""
    if isinstance(data, Observations):
        model._know(data.rows, data.columns, data.classes, data.n)
        model._encoders = encoders_of(data)
    else:
        model._know(data.rows_, data.columns_, data.classes_, data.n_observations_)
        model._encoders = data._encoders
    model._take(found)


def log_to_stderr() -> None:
    """Show the library's log on standard error, unless the application handles it already."""
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
    if logger.level == logging.NOTSET or logger.level > logging.INFO:
        logger.setLevel(logging.INFO)
