"""Which predictions of a fitted completer may be kept: single ones, the surest, parts of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from onebit.certificates.hold_out import HeldOut, check_max_error
from onebit.certificates.statements import Kept, SelectiveCertificate
from onebit.completers.lists import ListCertificate, list_certificate
from onebit.completers.predictions import Answers, Codes, Predictions
from onebit.completers.questions import check_count
from onebit.completers.updates import Updates
from onebit.data.ids import IdIndex


class Keeping:
    """The part of every completer that says which predictions may be kept; not used by itself."""

    rows_: IdIndex
    columns_: IdIndex
    updates_: Updates
    _answers: Answers | None
    _fitted_entries: NDArray[np.int64] | None
    _folded: list[tuple[Codes, Codes, NDArray[np.int8]]]

    if TYPE_CHECKING:

        def predictions(self, rows: Codes, columns: Codes) -> Predictions: ...  # noqa: D102
        def _codes(self, pairs: Any) -> tuple[Codes, Codes]: ...
        def _held_out_answers(self) -> HeldOut: ...
        @property
        def _said(self) -> tuple[str, str]: ...

    def certify_lists(self, n: int = 10, max_error: float = 0.2, delta: float = 0.05) -> ListCertificate:
        """Find what can be kept of the lists of the best ``n`` of each row, at most ``max_error`` wrong.

        A list claims "yes" of all that it holds. What is kept are its surest entries; with probability
        ``1 - delta`` at most ``max_error`` of these would be answered with "no", if what is listed comes
        about like the held-out answers that fall into the lists (learn then test, fixed sequences of
        thresholds). The statement is about all lists together, not about each; ``whole``, of the lists as
        they are, has the whole ``delta`` to itself.
        """
        check_is_fitted(self)
        check_max_error(max_error)
        check_count(n, "columns of each row")
        return list_certificate(self, int(n), float(max_error), delta)

    def certify_selective(self, delta: float = 0.05) -> SelectiveCertificate:
        """Bound the error rates of the surest 10 %, 20 %, ... 90 % of the predictions, all at once."""
        return self._held_out_answers().certify_selective(delta)

    def keep(self, max_error: float, delta: float = 0.05) -> Kept:
        """Find which predictions can be kept so that at most ``max_error`` of them are wrong.

        With probability ``1 - delta``, on entries like the answered ones, at most ``max_error`` of the
        kept predictions that say "yes" are wrong, and at most ``max_error`` of those that say "no".
        ``certified(pairs, max_error)`` says which of given pairs they are.
        """
        return self._held_out_answers().keep(max_error, delta, self._said)

    def _known_entries(self) -> NDArray[np.int64]:
        """Return the numbers of the entries whose answers were fitted, folded in or taken up later."""
        if self._fitted_entries is None:
            assert self._answers is not None
            view, width = self._answers.fitted.by_row, np.int64(len(self.columns_))
            parts = [view.owners() * width + view.index]
            parts += [rows * width + columns for rows, columns, _ in self._folded]
            self._fitted_entries = np.unique(np.concatenate(parts))
        return self._fitted_entries

    def _still_open(self, rows: Codes, columns: Codes, *, updated: bool) -> NDArray[np.bool_]:
        """Say of which pairs of codes the row and the column have fitted answers, and the entry none.

        ``updated``: answers that came after the fit count too.
        """
        assert self._answers is not None
        fitted = self._answers.fitted
        found = np.ones(len(rows), dtype=bool)
        for side, codes in enumerate((rows, columns)):
            view = (fitted.by_row, fitted.by_column)[side]
            has = np.zeros(len((self.rows_, self.columns_)[side]), dtype=bool)
            has[: view.size] = view.counts > 0
            if updated:
                for part in self._folded:
                    has[part[side]] = True
            found &= (codes >= 0) & has[np.maximum(codes, 0)]
        entries = rows * np.int64(len(self.columns_)) + columns
        return found & ~np.isin(entries, self._known_entries())

    def marked(self, kept: Kept, rows: Codes, columns: Codes, found: Predictions) -> NDArray[np.bool_]:
        """Say which predictions of pairs of codes are among those that ``keep`` found.

        Only open entries can be: of rows and columns with fitted answers, whose own answer was not
        fitted, since the held-out answers that were counted are of such entries. Rows and columns that
        an update has touched since have other predictions than those that were counted.
        """
        if self._answers is None:
            raise ValueError(
                "which entries were fitted is not known any more, so none can be marked: the model was "
                "saved without its answers, or fitted on a cluster"
            )
        still_open = self._still_open(rows, columns, updated=self._held_out_answers().of_update)
        touched = self.updates_.touched(rows, columns)
        return kept.includes(found.yes, found.confidence) & still_open & ~touched

    def certified(self, X: Any, max_error: float = 0.1, delta: float = 0.05) -> NDArray[np.bool_]:
        """Say which predictions belong to those of which at most ``max_error`` are wrong.

        The statement is that of ``keep``: with probability ``1 - delta``, on entries like the answered
        ones, at most ``max_error`` of the marked predictions that say "yes" are wrong, and at most
        ``max_error`` of those that say "no". It speaks of all such entries together. A selection that
        favours some of them, such as the highest probabilities of each row, may do worse.

        Parameters
        ----------
        X : two-column table
            Pairs of ids. Rows and columns without a fitted answer, and entries whose answer was fitted,
            are never marked.
        max_error : float, default 0.1
            The share that may be wrong.
        delta : float, default 0.05
            The probability with which the statement may fail.

        Returns
        -------
        ndarray of bool

        Examples
        --------
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B1", rank=2, shape=(80, 60), density=0.5, seed=0)
        >>> model = LogisticCompleter(random_state=0).fit(world.pairs, world.answers, certify=0.2)
        >>> bool(model.certified(world.all_pairs, max_error=0.1).any())
        True
        >>> bool(model.certified([(0, "no such column")])[0])
        Traceback (most recent call last):
        TypeError: column ids here are strings ...
        """
        rows, columns = self._codes(X)
        kept = self.keep(max_error, delta)
        return self.marked(kept, rows, columns, self.predictions(rows, columns))
