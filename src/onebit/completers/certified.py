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
from onebit.certificates.claims import Sheet
from onebit.certificates.hold_out import SAID, HeldOut
from onebit.certificates.ladder import OWN, Ladder, share_delta
from onebit.certificates.new_rows import HeldRows, NewRowsCertificate
from onebit.certificates.statements import (
    Certificate,
    GroupCertificate,
)
from onebit.completers.claiming import (
    blank_certificate,
    group_certificate,
    shift_certificate,
    surveyed_blanks,
)
from onebit.completers.drawing import PATTERNED, Drawing
from onebit.completers.predictions import Answers, Codes, Predictions, table_blocks
from onebit.completers.sheets import sheet
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
ROWS_ALONE = (
    'whole rows were held out of this model, and no answers: certify(target="new rows") speaks of rows '
    "that are yet to come; fit with certify=0.1 as well for the others"
)
# Entries that refit() compares two fits on, one by one.
LARGEST_TABLE = 500_000_000
# Certificates of a predictor drawn from the posterior, as ``certify`` names them.
OF_THE_POSTERIOR = ("theorem-1-printed", "theorem-1", "catoni", "pac-bayes-kl")


class Certified(Drawing):
    """The part of every completer that issues certificates; not used by itself."""

    _counted_answers: HeldOut | None
    _uncounted: Division | None
    held_rows_: HeldRows | None
    _fitted_entries: NDArray[np.int64] | None
    _folded: list[tuple[Codes, Codes, NDArray[np.int8]]]
    updates_: Updates

    if TYPE_CHECKING:

        def fit(self, X: Any, *, callback: Any = None) -> Self: ...  # noqa: D102
        def predictions(self, rows: Codes, columns: Codes) -> Predictions: ...  # noqa: D102
        def _codes(self, pairs: Any) -> tuple[Codes, Codes]: ...
        def _still_open(self, rows: Codes, columns: Codes, *, updated: bool) -> NDArray[np.bool_]: ...
        def _known_entries(self) -> NDArray[np.int64]: ...
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
        rows, columns = self._answers.everything.shape
        own = division.cut is None
        blanks = None if own else rows * columns - division.entries
        counted = self._count(division.held, division.commoner, blanks)
        whence = "own" if own else "fit" if self.held_rows_ is None else "fitted rows"
        return replace(counted, whence=whence)

    def _counted_update(self, places: tuple[Codes, Codes], division: Division) -> HeldOut:
        """Count what became of held-out answers of an update, whose ids have codes of their own."""
        held = division.held
        rows, columns = places[0][held.rows], places[1][held.columns]
        new = ~held.fitted_too
        # Without the old answers nobody knows which entries are open.
        open = np.zeros(len(rows), dtype=bool)
        if self._answers is not None:
            new &= ~np.isin(rows * np.int64(len(self.columns_)) + columns, self._known_entries())
            open = self._still_open(rows, columns, updated=True)
        if not new.any():
            raise ValueError(
                "every held-out answer is about an entry that was answered before, and such answers say "
                "nothing of the others; leave certify out, or give answers to new entries"
            )
        held = Held(rows[new], columns[new], held.sign[new], held.fitted_too[new], open[new])
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

    def name_hold_out(self, words: str) -> None:
        """Say in words what was held out of the user's choice, for every certificate to repeat.

        Such as "answers after May": certificates speak "on entries like the held-out ones, " of these.
        """
        held = self._held_out_answers()
        if not held.own:
            raise ValueError("what is held out at random has no other name; this goes with certify=mask")
        self.held_out_ = replace(held, chosen=str(words))

    def _held_out_answers(self) -> HeldOut:
        check_is_fitted(self)
        if self.held_out_ is None:
            raise ValueError(self._not_certifiable)
        return self.held_out_

    @property
    def _not_certifiable(self) -> str:
        """Why there is no certificate of the model's predictions."""
        if self.held_rows_ is not None:
            return ROWS_ALONE
        return UPDATED if self.updates_.times else NOT_CERTIFIABLE

    def _held_out_rows(self) -> HeldRows:
        if self.held_rows_ is None:
            raise ValueError(
                "no rows were held out of this model as it is; fit with certify_rows=0.1 (after an "
                "update its columns are not those that were counted)"
            )
        return self.held_rows_

    def certify(
        self,
        delta: float = 0.05,
        method: str | Sequence[str] = "best",
        random_state: int = 0,
        *,
        by: Any = None,
        shift: float | None = None,
        target: str | None = None,
        propensities: Any = None,
        row_groups: Any = None,
        column_groups: Any = None,
        given: int | None = None,
        tell: Callable[[int, int, str], None] | None = None,
    ) -> Certificate | GroupCertificate | NewRowsCertificate | Ladder:
        """Bound an error rate, with probability ``1 - delta``.

        Needs a model fitted with ``fit(..., certify=share)``, or ``certify_rows=share`` for new rows.

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
        by : {None, "answer", "row answers", "column answers"}
            "answer" bounds the error rates of the predictions that say "no" and of those that say "yes",
            both at once. Where one answer is rare, an error rate of all predictions says little of them.
            The other two take bands of how many fitted answers a row, or a column, has.
        row_groups, column_groups : mapping or Series, optional
            From ids to groups: one certificate a group, all at once. A group with too few held-out
            answers says so.
        shift : float, optional
            Bound the error rate of the *blanks*, if being answered multiplies the odds that a prediction
            is right by at most this much. A certificate prints the shift at which it says nothing.
        target : {None, "blanks", "new rows"}
            "blanks" weighs the held-out answers by the odds of being blank; of a hold-out of the user's
            own, such as a survey at random, it counts those to entries without a fitted one. "new rows"
            is about rows that are not in the table, by how many answers they give.
        given : int, optional
            For ``target="new rows"``: this number of answers alone, chosen before looking, at the whole
            ``delta``.
        propensities : DataFrame or matrix, optional
            For ``target="blanks"``: the probability with which each entry is answered. Without it they
            are estimated from who answered what, and that they are right is an assumption.
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
        if target == "new rows":
            others = (by, shift, propensities, row_groups, column_groups)
            if any(part is not None for part in others) or method != "best":
                raise ValueError('target="new rows" stands alone; leave by, shift, groups and method out')
            return self._held_out_rows().certify(delta, given)
        if given is not None:
            raise ValueError('given goes with target="new rows"')
        if self.held_out_ is None and not self._certifiable:
            raise ValueError(self._not_certifiable)
        grouped = [
            (side, part) for side, part in enumerate((row_groups, column_groups)) if part is not None
        ]
        asked = [name for name, value in (("by", by), ("target", target)) if value is not None]
        if len(asked) + len(grouped) > 1 or (shift is not None and (by is not None or grouped)):
            raise ValueError("by, row_groups, column_groups and target are asked for one at a time")
        if propensities is not None and target is None:
            raise ValueError('propensities go with target="blanks"')
        if asked or grouped or shift is not None:
            if method not in ("best", OWN):
                raise ValueError(f"only held-out answers certify this; leave method={method!r} out")
            if target is not None:
                if target != "blanks":
                    raise ValueError(f'target must be "blanks", "new rows" or None, got {target!r}')
                if self._held_out_answers().own and propensities is None:
                    return surveyed_blanks(self, delta, shift)
                return blank_certificate(self, propensities, delta, shift, random_state)
            if shift is not None:
                held = self._held_out_answers()
                return shift_certificate(held.certify(delta), shift, held.limits)
            if by == "answer":
                return self._held_out_answers().certify_by_answer(delta, self._said)
            return group_certificate(self, grouped[0] if grouped else by, delta)
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

    def sheet(self, delta: float = 0.05, shift: float = 2.0) -> Sheet:
        """Return everything that held-out answers say of this model, on one sheet, all at once.

        Error rates of all predictions and of those that say either answer, of the blanks under a
        ``shift``, log-loss and Brier score, how much better than the commoner answer and than row and
        column effects alone, and of new rows, if some were held out.
        """
        check_is_fitted(self)
        return sheet(self, delta, shift)

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
        if self.held_rows_ is not None:
            rungs = {name: _of_fitted_rows(rung) for name, rung in rungs.items()}
        if self.held_out_ is not None:
            rungs[OWN] = self.held_out_.certify
            small = len(self.rows_) * len(self.columns_) <= LARGEST_TABLE
            once = self.held_out_.disagreement is None and self.held_rows_ is None
            if answers is not None and once and small:
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
        if (
            self._certifiable_answers is None
            or held_out.disagreement is not None
            or self.held_rows_ is not None
        ):
            raise ValueError(
                "refit() needs the model as it was fitted with fit(..., certify=share), a share of the "
                "answers and no rows"
            )
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


def _of_fitted_rows(rung: Callable[[float], Certificate]) -> Callable[[float], Certificate]:
    """Return a rung of a model of one of whose rows some were held out whole."""
    return lambda delta: rung(delta).of_fitted_rows()
