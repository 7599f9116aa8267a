"""How a fitted completer certifies itself, and says which of its predictions may be kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from onebit import ladder
from onebit.certificates import (
    LIKE_THE_ANSWERED,
    Certificate,
    GroupCertificate,
    Kept,
    SelectiveCertificate,
)
from onebit.hold_out import HeldOut
from onebit.ids import IdIndex
from onebit.predictions import Answers, Codes, Predictions, entry_numbers, table_blocks

if TYPE_CHECKING:
    from onebit.estimator import PairClassifier

NOT_CERTIFIABLE = (
    "this model was fitted on all its answers, and the answers that a model was fitted to or tuned on "
    "cannot certify it; fit with certify=0.1 to hold a tenth of them out"
)
# Entries that refit() compares two fits on, one by one.
LARGEST_TABLE = 500_000_000


class Certifying:
    """The part of every completer that issues certificates; not used by itself."""

    rows_: IdIndex
    columns_: IdIndex
    held_out_: HeldOut | None
    _answers: Answers | None
    _certifiable: bool
    _fitted_shape: tuple[int, int]
    _fitted_entries: NDArray[np.int64] | None
    _gibbs: dict[int, Any]

    if TYPE_CHECKING:

        def fit(self, X: Any, *, callback: Any = None) -> Self: ...  # noqa: D102
        def predictions(self, rows: Codes, columns: Codes) -> Predictions: ...  # noqa: D102
        def was_fitted(self, rows: Codes, columns: Codes) -> NDArray[np.bool_]: ...  # noqa: D102
        def _codes(self, pairs: Any) -> tuple[Codes, Codes]: ...
        def _decisions(self, rows: Codes, columns: Codes) -> NDArray[np.float64]: ...

    def _counted(self, answers: Answers) -> HeldOut:
        """Count what became of the held-out answers."""
        seen = answers.everything
        rows, columns, sign, _ = seen.entries(answers.held)
        found = self.predictions(rows, columns)
        entry = entry_numbers(seen)
        also_fitted = int(np.isin(entry[answers.held], entry[~answers.held]).sum())
        distinct = len(np.unique(entry)) == seen.n
        return HeldOut.count(
            found.confidence,
            found.decision,
            sign,
            rows,
            columns,
            commoner=1 if 2 * (answers.fitted.by_row.sign > 0).sum() > answers.fitted.n else -1,
            also_fitted=also_fitted,
            blanks=seen.shape[0] * seen.shape[1] - seen.n if distinct else None,
        )

    @property
    def _certifiable_answers(self) -> Answers | None:
        """The answers, if ``fit(..., certify=share)`` was asked to keep them for certificates."""
        return self._answers if self._certifiable else None

    def _held_out_answers(self) -> HeldOut:
        check_is_fitted(self)
        if self.held_out_ is None:
            raise ValueError(NOT_CERTIFIABLE)
        return self.held_out_

    def certify(
        self,
        delta: float = 0.05,
        method: str | Sequence[str] = "best",
        random_state: int = 0,
        *,
        by: str | None = None,
        tell: Callable[[int, int, str], None] | None = None,
    ) -> Certificate | GroupCertificate | ladder.Ladder:
        """Bound an error rate, with probability ``1 - delta``.

        Needs a model fitted with ``fit(..., certify=share)``.

        Parameters
        ----------
        delta : float
            The probability with which the bound may fail.
        method : str or sequence of str
            "best" is the certificate of the model itself, "hold-out". The others speak of other
            predictors: "theorem-1-printed", "theorem-1", "catoni" and "pac-bayes-kl" of one drawn from
            the posterior for each entry, "learnt-prior" of the same with a prior learnt on a part,
            "optimised" of the same from a GibbsCompleter, "draw" of one predictor drawn once from that,
            "progressive" of one of five fits, "refit" of the model that ``refit`` returns. "all", or
            several names, give a ``Ladder``, which keeps the model's own apart from the others.
        random_state : int
            Seed of the Monte Carlo estimates, and of the rungs that fit models of their own. Trying
            several and quoting the best is a search that no certificate pays for.
        by : {None, "answer"}
            "answer" bounds the error rates of the predictions that say "no" and of those that say "yes",
            both at once. Where one answer is rare, an error rate of all predictions says little of them.
        tell : callable, optional
            Called with the number of rungs made, of all, and the name of the next one.

        Examples
        --------
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B1", rank=2, shape=(80, 60), density=0.5, seed=0)
        >>> model = LogisticCompleter(random_state=0).fit(world.pairs, world.answers, certify=0.2)
        >>> 0 < model.certify(delta=0.05).bound < 0.2
        True
        """
        check_is_fitted(self)
        if self.held_out_ is None and not self._certifiable:
            raise ValueError(NOT_CERTIFIABLE)
        if by is not None:
            return self._certify_by(by, delta, method)
        rungs = self._rungs(random_state)
        if method == "best":
            method = ladder.OWN
            if method not in rungs:
                raise ValueError(
                    "nothing was held out, so there is no certificate of the model itself; fit with "
                    "certify=0.1. Certificates of other predictors, by name (such as one drawn from the "
                    f"posterior): {', '.join(rungs)}"
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
            found = rungs[method](delta)
            return found if method == ladder.OWN else replace(found, of_this_model=False)
        return ladder.share_delta({name: rungs[name] for name in wanted}, delta, tell)

    def _certify_by(self, by: str, delta: float, method: str | Sequence[str]) -> GroupCertificate:
        if by != "answer":
            raise ValueError(f'by must be "answer" (the predicted answer) or None, got {by!r}')
        if method not in ("best", ladder.OWN):
            raise ValueError(f"only held-out answers certify groups; leave method={method!r} out")
        return self._held_out_answers().certify_by_answer(delta)

    def certificate_methods(self) -> tuple[str, ...]:
        """Return the names of the certificates that this model can have, as ``certify`` takes them."""
        check_is_fitted(self)
        answers = self._certifiable_answers
        few = answers is not None and answers.everything.n < ladder.LEAST_TO_DIVIDE
        return tuple(name for name in self._rungs(0) if not (few and name in ladder.DIVIDING))

    def _rungs(self, seed: int) -> dict[str, Callable[[float], Certificate]]:
        """Return the certificates that this model can have, each as a function of delta."""
        rungs: dict[str, Callable[[float], Certificate]] = {}
        answers = self._certifiable_answers
        if answers is not None:
            whose = f" of a GibbsCompleter (random_state={seed})"
            rungs["optimised"] = lambda delta: self._optimised(seed).certificate(
                "pac-bayes-kl", delta, seed, "PAC-Bayes-kl, posterior optimised for it",
                f"the predictions of a predictor drawn anew from the posterior{whose}, "
                f"{LIKE_THE_ANSWERED},",
            )  # fmt: skip
            rungs["draw"] = lambda delta: self._optimised(seed).draw(seed, whose).certify(delta)
            rungs["progressive"] = lambda delta: ladder.progressive_certificate(
                cast("PairClassifier", self), answers.everything, delta, np.random.default_rng(seed)
            )
        if self.held_out_ is not None:
            rungs["hold-out"] = self.held_out_.certify
            small = len(self.rows_) * len(self.columns_) <= LARGEST_TABLE
            if answers is not None and self.held_out_.disagreement is None and small:
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

    def refit(self, callback: Any = None) -> Self:
        """Return a model like this one fitted on all answers, the held-out ones included.

        Its ``certify`` counts the errors of this one and adds the share of the table's entries on which
        the two predict differently, so it speaks of entries drawn evenly from the whole table.

        Parameters
        ----------
        callback : callable, optional
            Told of the rounds of the fit, as in ``fit``.
        """
        held_out = self._held_out_answers()
        if self._certifiable_answers is None or held_out.disagreement is not None:
            raise ValueError("refit() needs the model as it was fitted with fit(..., certify=share)")
        assert self._answers is not None
        everything = self._answers.everything
        if everything.shape[0] * everything.shape[1] > LARGEST_TABLE:
            raise ValueError(
                f"refit() compares two fits on every entry, and the table has {everything.shape[0]} x "
                f"{everything.shape[1]}; keep the model as it is"
            )
        second = clone(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            second.fit(everything, callback=callback)
        differ = 0
        outside = np.zeros(2, dtype=np.int64)  # entries outside the first fit, and disagreements there
        rows, columns = everything.shape
        known = np.unique(entry_numbers(self._answers.fitted))
        every = (np.arange(rows, dtype=np.int32), np.arange(columns, dtype=np.int32))
        for _, pair in table_blocks(*every):
            signs = [np.sign(model._decisions(*pair)) for model in (self, second)]
            wrong = (signs[0] != signs[1]) | (signs[1] == 0)
            differ += int(wrong.sum())
            new = ~np.isin(pair[0] * np.int64(columns) + pair[1], known)
            outside += (int(new.sum()), int((wrong & new).sum()))
        # Of entries drawn with repeats the first share counts, of distinct ones the second.
        share = max(differ / (rows * columns), outside[1] / max(outside[0], 1))
        second.held_out_ = replace(held_out, disagreement=float(share))
        return second

    def certify_selective(self, delta: float = 0.05) -> SelectiveCertificate:
        """Bound the error rates of the surest 10 %, 20 %, ... 90 % of the predictions, all at once."""
        return self._held_out_answers().certify_selective(delta)

    def keep(self, max_error: float, delta: float = 0.05) -> Kept:
        """Find which predictions can be kept so that at most ``max_error`` of them are wrong.

        With probability ``1 - delta``, on entries like the answered ones, at most ``max_error`` of the
        kept predictions that say "yes" are wrong, and at most ``max_error`` of those that say "no".
        ``certified(pairs, max_error)`` says which of given pairs they are.
        """
        return self._held_out_answers().keep(max_error, delta)

    def _has_fitted_answer(self, rows: Codes, columns: Codes) -> NDArray[np.bool_]:
        """Say which entries have an answer that was fitted, where the answers were kept."""
        if self._answers is None:
            return np.zeros(len(rows), dtype=bool)
        if self._fitted_entries is None:
            self._fitted_entries = np.unique(entry_numbers(self._answers.fitted))
        return np.isin(rows * np.int64(self._fitted_shape[1]) + columns, self._fitted_entries)

    def marked(self, kept: Kept, rows: Codes, columns: Codes, found: Predictions) -> NDArray[np.bool_]:
        """Say which predictions of pairs of codes are among those that ``keep`` found.

        Ids that were not fitted are not, since no held-out answer speaks of them; nor are entries whose
        answer was fitted: the certificate speaks of the entries outside.
        """
        able = self.was_fitted(rows, columns) & ~self._has_fitted_answer(rows, columns)
        return kept.includes(found.yes, found.confidence) & able

    def certified(self, X: Any, max_error: float = 0.1, delta: float = 0.05) -> NDArray[np.bool_]:
        """Say which predictions belong to those of which at most ``max_error`` are wrong.

        The statement is that of ``keep``: with probability ``1 - delta``, on entries like the answered
        ones, at most ``max_error`` of the marked predictions that say "yes" are wrong, and at most
        ``max_error`` of those that say "no". It speaks of all such entries together. A selection that
        favours some of them, such as the highest probabilities of each row, may do worse.

        Parameters
        ----------
        X : two-column table
            Pairs of ids. Ids that were not fitted, and entries whose answer was fitted, are never marked.
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
