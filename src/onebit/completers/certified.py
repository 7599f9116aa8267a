"""How a fitted completer certifies itself, and says which of its predictions may be kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from onebit.certificates import procedures
from onebit.certificates.hold_out import SAID, HeldOut
from onebit.certificates.ladder import OWN, Ladder, share_delta
from onebit.certificates.statements import (
    Certificate,
    GroupCertificate,
    Kept,
    SelectiveCertificate,
)
from onebit.completers.drawing import PATTERNED, Drawing
from onebit.completers.predictions import Answers, Codes, Predictions, table_blocks
from onebit.completers.updates import Updates
from onebit.data.holding import Division, Held
from onebit.data.observations import Observations
from onebit.engine import scoring
from onebit.engine.workers import Machine

NOT_CERTIFIABLE = (
    "this model was fitted on all its answers, and the answers that a model was fitted to or tuned on "
    "cannot certify it; fit with certify=0.1 to hold a tenth of them out"
)
UPDATED = (
    "this model has been updated, and no held-out answer is left of rows and columns that no update has "
    "touched; hold some of the new answers out with partial_fit(..., certify=0.1) or `onebit update "
    "--certify 0.1`"
)
# Entries that refit() compares two fits on, one by one.
LARGEST_TABLE = 500_000_000
# Certificates of a predictor drawn from the posterior, as ``certify`` names them.
OF_THE_POSTERIOR = ("theorem-1-printed", "theorem-1", "catoni", "pac-bayes-kl")


class Certified(Drawing):
    """The part of every completer that issues certificates; not used by itself."""

    _counted_answers: HeldOut | None
    _uncounted: Division | None
    _fitted_entries: NDArray[np.int64] | None
    _folded: list[tuple[Codes, Codes, NDArray[np.int8]]]
    updates_: Updates

    if TYPE_CHECKING:

        def fit(self, X: Any, *, callback: Any = None) -> Self: ...  # noqa: D102
        def predictions(self, rows: Codes, columns: Codes) -> Predictions: ...  # noqa: D102
        def _codes(self, pairs: Any) -> tuple[Codes, Codes]: ...
        def _decisions(self, rows: Codes, columns: Codes) -> NDArray[np.float64]: ...
        @property
        def _machine(self) -> Machine: ...

    @property
    def held_out_(self) -> HeldOut | None:
        """What became of the held-out answers; None where there are none.

        Counted when it is first asked for: what is predicted of fitted ids does not change any more.
        """
        if self._uncounted is not None:
            self._counted_answers, self._uncounted = self._counted(self._uncounted), None
        return self._counted_answers

    @held_out_.setter
    def held_out_(self, counted: HeldOut | None) -> None:
        self._counted_answers, self._uncounted = counted, None

    def _counted(self, division: Division) -> HeldOut:
        """Count what became of the held-out answers."""
        assert self._answers is not None
        everything = self._answers.everything
        rows, columns = everything.shape
        blanks = rows * columns - everything.n if division.distinct else None
        return self._count(division.held, division.commoner, blanks)

    def _counted_update(self, places: tuple[Codes, Codes], division: Division) -> HeldOut:
        """Count what became of held-out answers of an update, whose ids have codes of their own."""
        held = division.held
        rows, columns = places[0][held.rows], places[1][held.columns]
        fitted_too, open = held.fitted_too, held.open
        if self._answers is not None:
            open = self._still_open(rows, columns, updated=True)
            known = np.isin(rows * np.int64(len(self.columns_)) + columns, self._known_entries())
            fitted_too = fitted_too | known
        held = Held(rows, columns, held.sign, fitted_too, open)
        return replace(self._count(held, division.commoner, None), whence="update")

    def _count(self, held: Held, commoner: int, blanks: int | None) -> HeldOut:
        found = self.predictions(held.rows, held.columns)
        return HeldOut.count(
            found.confidence,
            found.decision,
            held.sign,
            held.rows,
            held.columns,
            held.fitted_too,
            held.open,
            commoner=commoner,
            blanks=blanks,
            order=scoring.descending(found.confidence, self._machine.device),
        )

    def _held_out_answers(self) -> HeldOut:
        check_is_fitted(self)
        if self.held_out_ is None:
            raise ValueError(UPDATED if self.updates_.times else NOT_CERTIFIABLE)
        return self.held_out_

    def certify(
        self,
        delta: float = 0.05,
        method: str | Sequence[str] = "best",
        random_state: int = 0,
        *,
        by: str | None = None,
        tell: Callable[[int, int, str], None] | None = None,
    ) -> Certificate | GroupCertificate | Ladder:
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
            raise ValueError(UPDATED if self.updates_.times else NOT_CERTIFIABLE)
        if by is not None:
            return self._certify_by(by, delta, method)
        rungs = self._rungs(random_state)
        if method == "best":
            method = OWN
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
                why = f"; {PATTERNED}" if name in OF_THE_POSTERIOR and self._patterned else ""
                raise ValueError(
                    f"{type(self).__name__} as it was fitted has no certificate {name!r}; "
                    f"it has {', '.join(rungs)} and all{why}"
                )
        if isinstance(method, str) and method != "all":
            found = rungs[method](delta)
            return found if method == OWN else replace(found, of_this_model=False)
        return share_delta({name: rungs[name] for name in wanted}, delta, tell)

    @property
    def _said(self) -> tuple[str, str]:
        """The two predicted answers in words: the user's own, where answers are words."""
        if self.classes_.dtype.kind != "U":
            return SAID
        no, yes = (f'said "{word}"' for word in self.classes_)
        return no, yes

    def _certify_by(self, by: str, delta: float, method: str | Sequence[str]) -> GroupCertificate:
        if by != "answer":
            raise ValueError(f'by must be "answer" (the predicted answer) or None, got {by!r}')
        if method not in ("best", OWN):
            raise ValueError(f"only held-out answers certify groups; leave method={method!r} out")
        return self._held_out_answers().certify_by_answer(delta, self._said)

    def certificate_methods(self) -> tuple[str, ...]:
        """Return the names of the certificates that this model can have, as ``certify`` takes them."""
        check_is_fitted(self)
        answers = self._certifiable_answers
        few = answers is not None and answers.everything.n < procedures.LEAST_TO_DIVIDE
        return tuple(name for name in self._rungs(0) if not (few and name in procedures.DIVIDING))

    def _rungs(self, seed: int) -> dict[str, Callable[[float], Certificate]]:
        """Return the certificates that this model can have, each as a function of delta."""
        rungs: dict[str, Callable[[float], Certificate]] = {}
        answers = self._certifiable_answers
        posterior = self.predictor_.gaussian
        if self._tuned:
            posterior = None
        if answers is not None and posterior is not None and posterior.shape == answers.everything.shape:
            if not posterior.patterned:
                for method in OF_THE_POSTERIOR:
                    rungs[method] = partial(self.certificate, method, seed=seed)
            rungs["learnt-prior"] = lambda delta: procedures.learnt_prior_certificate(
                lambda part: self._again(part).predictor_.posterior,
                answers.everything, delta, np.random.default_rng(seed), self._machine,
            )  # fmt: skip
        if answers is not None:
            if not self._made_for_it:  # there it is "pac-bayes-kl"
                rungs["optimised"] = lambda delta: self._certify_optimised(seed, delta)
            rungs["draw"] = lambda delta: self._draw_optimised(seed).certify(delta)
            rungs["progressive"] = lambda delta: procedures.progressive_certificate(
                self._decider, answers.everything, delta, np.random.default_rng(seed)
            )
        if self.held_out_ is not None:
            rungs[OWN] = self.held_out_.certify
            small = len(self.rows_) * len(self.columns_) <= LARGEST_TABLE
            if answers is not None and self.held_out_.disagreement is None and small:
                rungs["refit"] = lambda delta: self.refit()._held_out_answers().certify(delta)
        return rungs

    def _again(self, part: Observations) -> Self:
        """Return a model like this one, fitted to some answers."""
        return clone(self).fit(part)

    def _decider(self, part: Observations) -> procedures.Decides:
        return self._again(part)._decisions

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
        known = np.unique(self._answers.fitted.entry_numbers())
        every = (np.arange(rows, dtype=np.int32), np.arange(columns, dtype=np.int32))
        for _, pair in table_blocks(*every):
            signs = [np.sign(model._decisions(*pair)) for model in (self, second)]
            wrong = (signs[0] != signs[1]) | (signs[1] == 0)
            differ += int(wrong.sum())
            new = ~np.isin(pair[0] * np.int64(columns) + pair[1], known)
            outside += (int(new.sum()), int((wrong & new).sum()))
        # Of entries drawn with repeats the first share counts, of distinct ones the second.
        share = max(differ / (rows * columns), outside[1] / max(outside[0], 1))
        second._answers = Answers(everything)
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
