"""How a fitted completer takes up more: new ids by ``fold_in``, new answers by ``partial_fit``."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from onebit.certificates.hold_out import HeldOut
from onebit.certificates.new_rows import HeldRows
from onebit.completers.folding import FoldedIn, fold_in
from onebit.completers.holding_out import hold_out
from onebit.completers.intake import observations_of
from onebit.completers.predictions import Answers, Codes
from onebit.completers.predictors import Predictor
from onebit.completers.record import Record
from onebit.completers.updates import Updates
from onebit.data.holding import Division
from onebit.data.ids import IdIndex, pair_columns
from onebit.data.numbers import is_number
from onebit.data.observations import Observations
from onebit.data.signs import check_same_way, signs_of_pairs
from onebit.engine.update import Batch
from onebit.engine.workers import Machine

# Answers that came after the fit are kept in at most so many parts.
MOST_PARTS = 64


def _has_posterior(model: Any) -> bool:
    """Say whether a kind of completer finds a posterior."""
    return model._posterior_is_found


class Updating:
    """The part of every completer that takes up more; not used by itself."""

    _posterior_is_found: ClassVar[bool] = True

    rows_: IdIndex
    columns_: IdIndex
    classes_: NDArray[Any]
    predictor_: Predictor
    folded_in_: FoldedIn
    updates_: Updates
    record_: Record | None
    _answers: Answers | None
    _certifiable: bool
    _folded: list[tuple[Codes, Codes, NDArray[np.int8]]]
    _fitted_entries: NDArray[np.int64] | None

    held_rows_: HeldRows | None

    if TYPE_CHECKING:
        held_out_: HeldOut | None

        @property
        def _machine(self) -> Machine: ...
        def _counted_update(self, places: tuple[Codes, Codes], division: Division) -> HeldOut: ...

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

    @available_if(_has_posterior)
    def fold_in(
        self, X: Any = None, y: Any = None, *, row_features: Any = None, column_features: Any = None
    ) -> Self:
        """Add new rows and new columns, leaving everything fitted as it is.

        Answers of new rows on known columns make new rows, answers of known rows on new columns make new
        columns. The others cannot be used: where both ids are new nothing ties them to the model, and
        known ids get further answers by ``partial_fit``. They are skipped and counted in ``folded_in_``,
        with a warning. A model that was fitted with features takes those of new ids too, with answers or
        alone.

        Parameters
        ----------
        X : two-column table, optional
            Pairs of ids.
        y : array_like of shape (n,), optional
            Their answers.
        row_features, column_features : table or (ids, matrix), optional
            Features of new ids, as ``fit`` takes them; lines of known ids are left aside.

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
        self.folded_in_ = fold_in(self, X, y, (row_features, column_features))
        keep_in_step(self)
        skipped = self.folded_in_.skipped()
        if skipped:
            warnings.warn(f"fold_in: {skipped}", stacklevel=2)
        return self

    @available_if(_has_posterior)
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        forget: float = 1.0,
        certify: float | None = None,
    ) -> Self:
        """Take up new answers of known and new rows and columns; the old answers are not needed.

        The posterior is the prior of the new answers: rows and columns that have some move, in a few
        rounds over these answers, and the others stay as they are, as does what was learnt of all of
        them (variances, strength of the pattern). New ids begin at their prior, as in ``fold_in`` (whose
        features they take, if they are folded in first). Kept draws are moved one by one. The order of
        the answers in a batch does not matter, and how they are cut into batches matters little.

        An answer is one more: whoever sends one again counts it twice.

        Parameters
        ----------
        X, y, sample_weight
            New answers, as ``fit`` takes them: pairs and answers, a matrix with blanks, or
            ``Observations``.
        forget : float, default 1
            How firmly a row or column with new answers is held to where it stood: its precision counts
            for this share, above 0 and at most 1, and that of its prior for the rest. Below one where
            people or things change.
        certify : float, optional
            Share of the new answers to hold out, for a certificate of the model as it is then: of
            entries like those that these answer for the first time. Without, what the fit's certificate
            says is left of rows and columns that no update has touched, and ``certify`` says so.

        Returns
        -------
        self
            The same model; ``updates_`` says what it has taken up. If anything goes wrong it is left as
            it was.

        Examples
        --------
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B1", rank=1, shape=(40, 30), density=0.5, seed=0)
        >>> model = LogisticCompleter(2).fit(world.pairs[:500], world.answers[:500])
        >>> model.partial_fit(world.pairs[500:], world.answers[500:]).updates_.times
        1
        >>> model.partial_fit([("new", 0)], [1])
        Traceback (most recent call last):
        TypeError: row ids here are strings ...
        """
        check_is_fitted(self)
        if not is_number(forget) or not 0 < forget <= 1:
            raise ValueError(f"forget is the share that is kept, above 0 and at most 1; got {forget!r}")
        new = _new_answers(self, X, y, sample_weight)
        if new.n == 0:
            raise ValueError("partial_fit needs at least one answer")
        division = None
        if certify is not None:
            division = hold_out(new, certify, getattr(self, "random_state", None))
        grown = _grown(self, new, new if division is None else division.fitted)
        predictor = self.predictor_.updated(_batch(self, grown, float(forget)), self._machine)
        # What was held out is counted before its predictions change, and all is done on a copy, which
        # takes over at the very end.
        before, model = self.held_out_, copy.copy(self)
        times = self.updates_.after(
            grown.rows, grown.columns, grown.shape, new.fingerprint(), division is not None
        )
        lossy = forget < 1.0 or new.weighted
        model.updates_ = replace(times, lossy=True) if lossy else times
        model.predictor_ = predictor
        model.rows_, model.columns_ = grown.indexes
        model._folded = _joined([*self._folded, (grown.rows, grown.columns, grown.sign)])
        model._certifiable, model._fitted_entries, model.held_rows_ = False, None, None
        if self.record_ is not None:  # what was certified was another predictor
            model.record_ = replace(self.record_, certificates=())
        if division is not None:
            model.held_out_ = model._counted_update(grown.places, division)
        elif before is not None:
            model.held_out_ = before.elsewhere(times.touched(before.rows, before.columns))
        self.__dict__.update(model.__dict__)
        keep_in_step(self)
        return self


def known_already(model: Any, new: Observations) -> NDArray[np.bool_]:
    """Say of each new answer, in row order, whether the model has the same one to the same pair.

    Of a model that has not kept the answers of its fit, those of its updates alone are known.
    """
    width = np.int64(len(model.columns_))
    parts = list(model._folded)
    if model._answers is not None:
        view = model._answers.everything.by_row
        parts.append((view.owners(), view.index, view.sign))
    known = [2 * (rows * width + columns) + (sign > 0) for rows, columns, sign in parts]
    view = new.by_row
    rows, columns = model.rows_.encode(new.rows.values), model.columns_.encode(new.columns.values)
    mine = rows[view.owners()], columns[view.index]
    answers = 2 * (mine[0] * width + mine[1]) + (view.sign > 0)
    both = (mine[0] >= 0) & (mine[1] >= 0)
    return both & np.isin(answers, np.concatenate(known)) if known else np.zeros(new.n, dtype=bool)


def keep_in_step(model: Any) -> None:
    """Let the completer that a search has chosen know what the model knows now."""
    chosen = model.__dict__.get("completer_")
    if chosen is not None:
        for name in ("predictor_", "rows_", "columns_", "updates_", "_folded"):
            setattr(chosen, name, getattr(model, name))


class _Grown(NamedTuple):
    """A model's ids with those of new answers, and the answers in their codes.

    ``places`` are the codes of the rows and columns of the new answers' own indexes.
    """

    indexes: tuple[IdIndex, IdIndex]
    places: tuple[Codes, Codes]
    rows: Codes
    columns: Codes
    sign: NDArray[np.int8]
    weight: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self.indexes[0]), len(self.indexes[1])


def _joined(parts: list[tuple[Codes, Codes, NDArray[np.int8]]]) -> list[Any]:
    """Return answers in one part once they have come in many."""
    if len(parts) < MOST_PARTS:
        return parts
    return [tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))]


def _new_answers(model: Any, X: Any, y: Any, sample_weight: Any) -> Observations:
    """Return new answers as observations; those in words as the fit's were written."""
    if y is not None and not isinstance(X, Observations):
        y = model._signs(y, len(pair_columns(X)[0]))
    new = observations_of(X, y, sample_weight)
    check_same_way(model.classes_, new.classes, "the new answers")
    return new


def _grown(model: Any, everything: Observations, taken: Observations) -> _Grown:
    """Return a model's ids with those of all new answers, and the answers that are taken up."""
    rows, of_rows = model.rows_.joined(everything.rows)
    columns, of_columns = model.columns_.joined(everything.columns)
    view = taken.by_row
    return _Grown(
        (rows, columns),
        (of_rows, of_columns),
        of_rows[view.owners()],
        of_columns[view.index],
        view.sign,
        view.weight,
    )


def _batch(model: Any, grown: _Grown, forget: float) -> Batch:
    """Return new answers as the engine takes them."""
    rows, columns = (
        np.concatenate([np.empty(0, np.int32), *(part[side] for part in model._folded)])
        for side in (0, 1)
    )
    return Batch(
        grown.rows, grown.columns, grown.sign, grown.weight, grown.shape, forget, (rows, columns),
        model.updates_.since, model.updates_.times,
    )  # fmt: skip
