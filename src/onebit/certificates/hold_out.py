"""Certificates that are paid for with held-out answers.

``fit(..., certify=0.1)`` reserves a tenth of the answers before anything is fitted or tuned, and their
errors are counted once.

*All predictions.* Given the fitted predictor, each held-out answer is wrong independently with the
predictor's risk ``R``, so the count of errors is binomial, and the largest ``R`` under which so few
errors still have probability ``delta`` bounds it (Clopper and Pearson, 1934).

*Groups.* Which group a prediction belongs to is known from the prediction. Given how many held-out pairs
fall into a group, they are independent draws from it, so the same bound holds inside. Each group gets its
share of ``delta``, and all hold at once.

*The surest share.* Let ``t`` be the k-th largest confidence among the held-out pairs. Given ``t``, the
pairs above it are independent draws from those with confidence above ``t``, so the same bound holds for
the risk among these. Over a grid of shares that is fixed in advance, each gets ``delta`` divided by the
number of shares, and all hold at once.

*Distinct entries.* Where no entry is answered twice, the held-out entries are drawn without replacement
from those outside the fitted part, and the count of errors is hypergeometric. For ``delta`` of at most
``MOST_DELTA`` the binomial bound is then on the safe side as long as at most 85 % of these predictions
are wrong (enumerated); where nearly all are, it may fail with 1.11 times ``delta``.

*What may be kept.* Marks are for entries that are still open: those whose own answer was not fitted, of
rows and columns that have fitted answers. So only held-out answers to such entries are counted for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onebit.certificates.betting import shuffled
from onebit.certificates.bounds import (
    binomial_upper_bound,
    check_delta,
    rest_upper_bound,
)
from onebit.certificates.statements import (
    ASSUMPTIONS,
    BLANKS,
    CHOSEN_BY_USER,
    COMMONER,
    COUNTED_ONCE,
    DRAWN_EVENLY,
    FITTED_TOO,
    HELD_OUT,
    IID,
    KNOWN_IDS,
    OUTSIDE,
    OWN_ASSUMPTIONS,
    OWN_HELD_OUT,
    REPEATED,
    STRANGERS,
    TIES,
    UNIFORM,
    Certificate,
    GroupCertificate,
    Kept,
    KeptAnswer,
    SelectiveCertificate,
)
from onebit.certificates.whence import AFTER, NOT_TOLD, WHERE, limits
from onebit.data.numbers import is_number

Array = NDArray[np.float64]
Codes = NDArray[np.int32]
Marks = NDArray[np.bool_]

# The whole has a certificate of its own, at the whole delta.
SHARES = tuple(np.round(np.arange(0.1, 0.95, 0.1), 1).tolist())
# Of the predictions of one answer, all may be kept too.
KEPT_SHARES = (*SHARES, 1.0)
# At 0.4 the binomial bound can fail for entries drawn without replacement.
MOST_DELTA = 0.2
# With fewer blanks than so many times the held-out answers, the blanks alone may do clearly worse.
FEW_BLANKS = 5
# One of each for every held-out answer.
ARRAYS = ("confidence", "yes", "wrong", "sign", "rows", "columns", "fitted_too", "open")
# Groups by predicted answer, "no" first.
SAID = ('said "no"', 'said "yes"')


def check_hold_out_delta(delta: float) -> None:
    """Refuse a ``delta`` at which a held-out certificate is not known to hold."""
    check_delta(delta)
    if delta > MOST_DELTA:
        raise ValueError(
            f"delta must be at most {MOST_DELTA} for a held-out certificate, got {delta!r}: beyond it "
            "the bound may fail for entries that are answered once each"
        )


def check_max_error(max_error: float) -> None:
    """Refuse what is no share that may be wrong."""
    if not is_number(max_error) or not 0 < max_error < 1:
        raise ValueError(f"max_error must lie between 0 and 1, got {max_error!r}")


def counted_terms(errors: int, trials: int, delta: float) -> dict[str, float]:
    """Return the terms of a certificate that counts errors."""
    return {
        "held-out answers": float(trials),
        "errors": float(errors),
        "observed error": errors / trials if trials else 1.0,
        "delta": delta,
    }


@dataclass(frozen=True)
class HeldOut:
    """What became of the held-out answers, one of each in every array, the surest prediction first.

    Attributes
    ----------
    confidence : ndarray of float
        The probability that the model gave to its own prediction.
    yes : ndarray of bool
        Whether it predicted "yes".
    wrong : ndarray of bool
        Whether it was wrong; a score of exactly zero counts as wrong.
    sign : ndarray of int8
        The answer, -1 or 1.
    rows, columns : ndarray of int32
        The codes of the entry.
    fitted_too : ndarray of bool
        Whether the same entry has a fitted answer as well.
    open : ndarray of bool
        Whether it has none, and its row and its column have fitted answers elsewhere.
    commoner : int
        The commoner of the fitted answers, -1 or 1.
    blanks : int or None
        The entries of the table without any answer; None where the user chose what to hold out, and after
        an update.
    whence : str
        Held out of a fit ("fit"), of one of whose rows some were held out whole ("fitted rows"), by the
        user's own choice ("own"), or of an update ("update"); or what is left of each after a later
        update: see ``WHERE``.
    chosen : str
        What the user chose to hold out, in words, where they are known: "answers after 2024-05-31 in
        'date'".
    disagreement : float or None
        Of a model that was refitted on all answers: the share of the table's entries on which it and the
        model that was counted predict differently, which adds to the risk.
    """

    confidence: Array
    yes: Marks
    wrong: Marks
    sign: NDArray[np.int8]
    rows: Codes
    columns: Codes
    fitted_too: Marks
    open: Marks
    commoner: int = 1
    blanks: int | None = None
    disagreement: float | None = None
    whence: str = "fit"
    chosen: str = ""

    @property
    def where(self) -> str:
        """The clause that says of which entries its numbers speak."""
        plain = WHERE[self.whence]
        return plain.replace(CHOSEN_BY_USER, self.chosen) if self.chosen else plain

    @property
    def strangers(self) -> int:
        """The number of held-out answers of rows, or columns, without a fitted answer."""
        return int((~self.open & ~self.fitted_too).sum())

    @property
    def _where(self) -> str:
        """What ``where`` says, inside a sentence: there it may have to end with a comma."""
        return self.where + ("," if "," in self.where else "")

    @property
    def limits(self) -> str:
        """To which blanks its statements are limited: of rows that were fitted, untouched by updates."""
        return limits(self.whence)

    def in_random_order(self) -> NDArray[np.int64]:
        """Return an order for betting, in which nothing tells what comes first."""
        return shuffled(self.rows, self.columns, self.sign)

    def blanks_bound(self, delta: float) -> float | None:
        """Bound the error rate of the table's blanks, if its answered entries were drawn evenly.

        None where it is not known how many blanks there are, or none is.
        """
        if not self.blanks:
            return None
        wrong = self.wrong[self.one_of_each()]
        return rest_upper_bound(int(wrong.sum()), len(wrong), self.blanks, delta)

    def one_of_each(self) -> NDArray[np.int64]:
        """Return the place of one answer of each entry that was not fitted, at random.

        Repeats of an entry are listed "no" first.
        """
        entries = self.rows * np.int64(self.columns.max(initial=0) + 1) + self.columns
        entries = np.where(self.rows < 0, -1 - np.arange(len(entries)), entries)  # nobody said which
        order = self.in_random_order()
        order = order[~self.fitted_too[order]]
        found: NDArray[np.int64] = order[np.unique(entries[order], return_index=True)[1]]
        return found

    @property
    def own(self) -> bool:
        """Whether the user said what to hold out."""
        return self.whence.startswith("own")

    @property
    def at_random(self) -> bool:
        """Whether it was held out of the fit at random, and nothing was updated since."""
        return self.whence in ("fit", "fitted rows")

    @property
    def updated_since(self) -> bool:
        """Whether there was an update since it was held out."""
        return self.whence in AFTER.values()

    @property
    def of_update(self) -> bool:
        """Whether it was held out of an update, not of the fit."""
        return self.whence in ("update", "since")

    def elsewhere(self, touched: Marks) -> HeldOut | None:
        """Return what is left of it once predictions of some of its entries have changed.

        None where nothing is, or where it was counted of another model than the one that changed.
        """
        if touched.all() or self.disagreement is not None:
            return None
        parts = {name: getattr(self, name)[~touched] for name in ARRAYS}
        return replace(self, **parts, blanks=None, whence=AFTER.get(self.whence, self.whence))

    @classmethod
    def count(
        cls,
        confidence: Array,
        decision: Array,
        sign: NDArray[np.int8],
        rows: Codes | None = None,
        columns: Codes | None = None,
        fitted_too: Marks | None = None,
        open: Marks | None = None,
        *,
        commoner: int = 1,
        blanks: int | None = None,
        order: NDArray[np.int64] | None = None,
    ) -> HeldOut:
        """Build from predictions in any order; the sign of a ``decision`` is the answer predicted.

        ``order`` lists them by falling confidence, where that is known.
        """
        if order is None:
            order = np.argsort(-confidence, kind="stable")
        nowhere = np.full(len(order), -1, dtype=np.int32)
        none = np.zeros(len(order), dtype=bool)
        return cls(
            confidence[order],
            (decision > 0)[order],
            (decision * sign <= 0)[order],
            np.asarray(sign, dtype=np.int8)[order],
            (nowhere if rows is None else rows)[order],
            (nowhere if columns is None else columns)[order],
            (none if fitted_too is None else fitted_too)[order],
            (~none if open is None else open)[order],
            commoner,
            blanks,
        )

    def certify(self, delta: float) -> Certificate:
        """Bound the error rate of all predictions."""
        check_hold_out_delta(delta)
        counted = self._certificate(slice(None), delta, f"the predictions {self._where}")
        if self.disagreement is None:
            return counted
        terms = {name: value for name, value in counted.terms.items() if name != BLANKS}
        return Certificate(
            min(counted.bound + self.disagreement, 1.0),
            delta,
            "hold-out, refit on all answers, disagreement added",
            f"the predictions of the model refitted on all answers, {DRAWN_EVENLY},",
            terms | {"share on which the two fits disagree": self.disagreement},
            (IID, OUTSIDE, UNIFORM, COUNTED_ONCE, KNOWN_IDS, TIES),
            of_this_model=True,
        )

    def certify_by_answer(self, delta: float, said: tuple[str, str] = SAID) -> GroupCertificate:
        """Bound the error rates of the predictions that say "no" and of those that say "yes", at once."""
        check_hold_out_delta(delta)
        self.check_as_counted("the groups")
        certificates = tuple(
            self._certificate(part, delta / 2, f"the predictions that {words} {self._where}")
            for words, part in self._by_answer(said)
        )
        return GroupCertificate("predicted", said, certificates, delta, self.where)

    def certify_groups(
        self, by: str, labels: NDArray[np.int64], names: list[str], delta: float
    ) -> GroupCertificate:
        """Bound the error rates of groups that depend on no held-out answer, all at once.

        ``labels`` are places in ``names``; -1 belongs to no group. A group with too few held-out answers
        has a bound of one.
        """
        check_hold_out_delta(delta)
        self.check_as_counted("the groups")
        certificates = tuple(
            self._certificate(
                np.flatnonzero(labels == k), delta / len(names), f"the predictions {name}, {self.where},"
            )
            for k, name in enumerate(names)
        )
        return GroupCertificate(by, tuple(names), certificates, delta, self.where)

    def certify_selective(self, delta: float) -> SelectiveCertificate:
        """Bound the error rates of the surest shares, all at once."""
        check_hold_out_delta(delta)
        self.check_as_counted("the surest shares")
        every = np.arange(len(self.wrong))
        found = list(self._surest(every, SHARES, delta, "the predictions"))
        shares, thresholds, certificates = zip(*found, strict=True)
        return SelectiveCertificate(shares, thresholds, certificates, delta, self.where)

    def keep(self, max_error: float, delta: float, words: tuple[str, str] = SAID) -> Kept:
        """Find, for each predicted answer, the largest share whose certified error is small enough."""
        check_max_error(max_error)
        check_hold_out_delta(delta)
        self.check_as_counted("what may be kept")
        parts: list[KeptAnswer] = []
        kept = 0
        for said, answer in self._by_answer(words):
            part = answer[self.open[answer]]
            best = KeptAnswer(said, max_error, 0.0, float("inf"), None)
            whose = f"the predictions that {said}"
            for share, threshold, certificate in self._surest(part, KEPT_SHARES, delta / 2, whose):
                if certificate.bound <= max_error:
                    best = KeptAnswer(said, max_error, share, threshold, certificate)
            parts.append(best)
            kept += int((self.confidence[part] > best.threshold).sum())
        no, yes = parts
        share = kept / max(int(self.open.sum()), 1)
        few = self.blanks is not None and self.blanks < FEW_BLANKS * len(self.wrong)
        repeated = bool(self.fitted_too.any())
        return Kept(max_error, no, yes, share, delta, few, self.where, repeated=repeated)

    def least_error(self, delta: float) -> float:
        """Return the least error at which ``keep`` would find something."""
        parts = [answer[self.open[answer]] for _, answer in self._by_answer()]
        return min(
            certificate.bound
            for part in parts
            for _, _, certificate in self._surest(part, KEPT_SHARES, delta / 2, "")
        )

    def check_as_counted(self, what: str) -> None:
        """Refuse what speaks of another predictor than the one that was counted."""
        if self.disagreement is not None:
            raise ValueError(
                "a refitted model predicts with another confidence than the one that was counted; take "
                f"{what} from the model before refit()"
            )

    def _by_answer(self, words: tuple[str, str] = SAID) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield the places of the predictions that say "no", then of those that say "yes"."""
        yield words[0], np.flatnonzero(~self.yes)
        yield words[1], np.flatnonzero(self.yes)

    def _surest(
        self, places: NDArray[np.int64], shares: tuple[float, ...], delta: float, whose: str
    ) -> Iterator[tuple[float, float, Certificate]]:
        """Yield share, threshold and certificate for each share of a grid; ``places`` by confidence.

        All of them hold at once with probability ``1 - delta``.
        """
        confidence = self.confidence[places]
        for share in shares:
            place = round(share * len(places))
            # The whole has no threshold; otherwise the first pair left out sets it.
            threshold = 0.0 if place >= len(places) else float(confidence[place])
            above = places[confidence > threshold]
            found = len(above) / len(places) if len(places) else 0.0
            who = f"the surest {found:.0%} of {whose} {self._where}"
            yield found, threshold, self._certificate(above, delta / len(shares), who)

    def _certificate(self, places: slice | NDArray[np.int64], delta: float, who: str) -> Certificate:
        wrong = self.wrong[places]
        errors, trials = int(wrong.sum()), len(wrong)
        terms = counted_terms(errors, trials, delta)
        repeated = int(self.fitted_too[places].sum())
        if repeated:
            terms[FITTED_TOO] = float(repeated)
        bound = binomial_upper_bound(errors, trials, delta)
        if isinstance(places, slice) and self.own and self.strangers:
            terms[STRANGERS] = float(self.strangers)
        if isinstance(places, slice) and trials:
            terms[COMMONER] = float((self.sign != self.commoner).mean())
        of_blanks = self.blanks_bound(delta) if isinstance(places, slice) else None
        if of_blanks is not None:
            terms[BLANKS] = of_blanks
        method = OWN_HELD_OUT if self.own else HELD_OUT
        assumptions: tuple[str, ...] = OWN_ASSUMPTIONS if self.own else ASSUMPTIONS
        if self.updated_since:
            assumptions = (*assumptions, NOT_TOLD)
        if self.fitted_too.any():
            assumptions = (*assumptions, REPEATED)
        return Certificate(bound, delta, method, who, terms, assumptions, of_this_model=True)
