"""What a certificate is: a bound on an error rate, and everything needed to judge it.

A certificate is a number, the event it bounds, of which predictor and which entries it speaks, the
confidence, the assumptions, and the terms it is made of. No model is assumed. Those that count held-out
answers are made in ``hold_out``, those that spend no data in ``ladder``, beside this module.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.certificates.shifts import breaking_shift

Array = NDArray[np.float64]

# The clause that says of which entries a number speaks, wherever one is read.
LIKE_THE_ANSWERED = "on entries like the answered ones"
# What limits it where whole rows were held out of a fit: their answers were neither fitted nor counted.
OF_FITTED_ROWS = "of the rows that were fitted"
LIKE_THE_FITTED = f"{LIKE_THE_ANSWERED}, {OF_FITTED_ROWS}"
# The same where the user has said which answers to hold out.
CHOSEN_BY_USER = "which the user chose"
LIKE_THE_HELD_OUT = f"on entries like the held-out ones, {CHOSEN_BY_USER}"
# The same for a number that holds for the whole table, and only if entries are drawn evenly from it.
DRAWN_EVENLY = "on entries drawn evenly from the whole table"

IID = (
    "the answers were drawn independently, or are distinct entries drawn evenly at random; where people "
    "choose what they answer, it speaks of entries chosen in the same way and at the same time, and "
    "blanks or later answers may be harder"
)
# Of distinct entries, what a bound speaks of depends on what was fitted.
OUTSIDE = "of distinct entries, it speaks of all outside the fitted part, the held-out ones included"
WHOLE = "of distinct entries, it speaks of the whole table, the answered ones included"
COUNTED_ONCE = (
    "the held-out answers were chosen at random and used for nothing but this count: no setting was "
    "tuned on them, and no answer was removed or changed after looking at them"
)
UNIFORM = "entries are drawn evenly from the whole table, whose every entry both fits were asked about"
TIES = "a score of exactly zero counts as wrong"
KNOWN_IDS = "which rows and columns there are was known beforehand"
ASSUMPTIONS = (IID, OUTSIDE, COUNTED_ONCE, KNOWN_IDS, TIES)
# Where entries were answered more than once.
EVENLY_OFTEN = "how often one was answered says nothing of how hard it is"
REPEATED = (
    f"of entries without an answer, {EVENLY_OFTEN}: they are judged by held-out entries without a fitted "
    "answer, few of which were answered often"
)
# Where the user has said which answers to hold out.
OWN_DRAWS = (
    "the held-out answers are independent draws of what this speaks of: of later answers, if later ones "
    "were held out, as long as what comes is like them; of the whole table, if it was asked at random"
)
OWN_COUNTED_ONCE = (
    "they were chosen without a look at how they are predicted, and used for nothing but this count: no "
    "setting was tuned on them, and no answer was removed or changed after looking at them"
)
OWN_IDS = (
    "rows and columns that only the held-out answers have were in the table, without an answer, when the "
    "model was fitted"
)
OWN_ASSUMPTIONS = (OWN_DRAWS, OWN_COUNTED_ONCE, OWN_IDS, TIES)

HELD_OUT = "hold-out, Clopper-Pearson"
OWN_HELD_OUT = "hold-out of the user's choice, Clopper-Pearson"
# What a shift is a shift of, by method.
CHOSEN = {HELD_OUT: ("blanks", "answered"), OWN_HELD_OUT: ("other entries", "held out")}
# Names of terms that others read.
COMMONER = "error of always the commoner answer"
BLANKS = "of the blanks alone, at most"
STRANGERS = "held-out answers of rows or columns without a fitted answer"
FITTED_TOO = "held-out answers to entries that were fitted too"


def at_most(bound: float) -> str:
    """Write a bound in percent, rounded up: what is printed has been proved too.

    One decimal, and two below one percent, wherever a bound is printed.

    Examples
    --------
    >>> from onebit.certificates.statements import at_most, confidence
    >>> at_most(0.2951), at_most(0.25), at_most(0.00363), confidence(0.05), confidence(1e-6)
    ('29.6%', '25.0%', '0.37%', '0.95', '0.999999')
    """
    digits = 1 if bound > 0.01 else 2
    scale = 10.0 ** (digits + 2)
    return f"{math.ceil(bound * scale - 1e-9) / scale:.{digits}%}"


def above(threshold: float) -> str:
    """Write a threshold of confidence, rounded up."""
    return f"{math.ceil(threshold * 1e3 - 1e-9) / 1e3:.3f}"


def confidence(delta: float) -> str:
    """Write ``1 - delta``, rounded down and never as a certainty."""
    digits = max(4, math.ceil(-math.log10(delta)))
    return f"{math.floor((1.0 - delta) * 10.0**digits + 1e-6) / 10.0**digits:.{digits}g}"


@dataclass(frozen=True)
class Certificate:
    """A bound on an error rate, and everything needed to judge it.

    Attributes
    ----------
    bound : float
        With probability ``1 - delta`` the error rate is at most this.
    delta : float
        The probability with which the bound may fail.
    method : str
        How the bound was obtained.
    predictor : str
        Whose errors are bounded, and on which entries.
    assumptions : tuple of str
        What must hold.
    terms : dict
        The numbers it is made of.
    of_this_model : bool
        Whether it speaks of the model that issued it. Others speak of a predictor that has to be asked
        for: one drawn from the posterior, one of several fits, a refit.
    """

    bound: float
    delta: float
    method: str
    predictor: str
    terms: Mapping[str, float]
    assumptions: tuple[str, ...] = field(default=ASSUMPTIONS)
    of_this_model: bool = False

    @property
    def trivial(self) -> bool:
        """Whether the bound is no lower than what always the commoner answer, or a coin, reaches."""
        return self.bound >= min(0.5, self.terms.get(COMMONER, 0.5))

    @property
    def shifts_from(self) -> float:
        """What is said of blanks without a shift: where they are few, what an even draw says of these."""
        return max(self.bound, self.terms.get(BLANKS, 0.0))

    @property
    def whose(self) -> str:
        """Whose errors, and on which entries, where it does not stand inside a sentence."""
        return self.predictor.rstrip(",")

    def of_fitted_rows(self) -> Certificate:
        """Return what it is where whole rows were held out besides: of the others."""
        return replace(self, predictor=self.predictor.replace(LIKE_THE_ANSWERED, LIKE_THE_FITTED))

    def sentence(self) -> str:
        """Return the statement in one sentence."""
        return (
            f"With probability {confidence(self.delta)}, at most {at_most(self.bound)} of "
            f"{self.predictor} are wrong."
        )

    def observed(self) -> str | None:
        """Return what was counted, and what always the commoner answer would have done there."""
        if "observed error" not in self.terms:
            return None
        errors, trials = int(self.terms["errors"]), int(self.terms["held-out answers"])
        text = f"{errors:,} of {trials:,} held-out answers were predicted wrong"
        if trials:
            text += f" ({self.terms['observed error']:.1%})"
        if COMMONER in self.terms:
            text += f"; always the commoner answer: {self.terms[COMMONER]:.1%}"
        if STRANGERS in self.terms:
            text += f"; {self.terms[STRANGERS]:,.0f} are of rows or columns without a fitted answer"
        if FITTED_TOO in self.terms:
            text += f"; {self.terms[FITTED_TOO]:,.0f} are of entries that were fitted too"
        return text

    def told(self) -> str:
        """Return the statement, what was counted, and whether it says anything, in one paragraph."""
        return f"{self.sentence()} {self.counted()}"

    def counted(self) -> str:
        """Return what was counted, and whether the bound says anything, in whole sentences."""
        nothing = " That is no lower than what always the commoner answer reaches: it says nothing."
        return f"{self.observed()}.{nothing if self.trivial else ''}"

    def __str__(self) -> str:
        observed = self.observed()
        lines = [self.sentence()]
        if observed is not None:
            lines.append(f"  observed: {observed}")
        fitted = f" {OF_FITTED_ROWS}" if OF_FITTED_ROWS in self.predictor else ""
        if BLANKS in self.terms and at_most(self.terms[BLANKS]) != at_most(self.bound):
            often = f", and {EVENLY_OFTEN}" if REPEATED in self.assumptions else ""
            lines.append(
                f"  of the blanks{fitted or ' of this table'} alone: at most "
                f"{at_most(self.terms[BLANKS])}, if answered entries were drawn evenly at random{often}"
            )
        lines += [
            f"  method: {self.method}",
            "  terms: "
            + ", ".join(f"{name} {value:g}" for name, value in self.terms.items() if name != BLANKS),
            *(f"  assumes: {text}" for text in self.assumptions),
        ]
        if self.method in CHOSEN and not self.trivial:
            others, chosen = CHOSEN[self.method]
            lines.append(
                f"  of the {others}{fitted}: half could be wrong if entries that were {chosen} have "
                f"{breaking_shift(self.shifts_from):.3g} times their odds of a right prediction, or more "
                "(certify with a shift, for other odds)"
            )
        if self.trivial:
            lines.append(
                "  too few answers, or too many errors: this is no lower than what always the commoner "
                "answer reaches"
            )
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the certificate as JSON."""
        return json.dumps(asdict(self) | {"terms": dict(self.terms)})

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Restore a certificate from its JSON."""
        content = json.loads(text)
        return cls(**(content | {"assumptions": tuple(content["assumptions"])}))


@dataclass(frozen=True)
class SelectiveCertificate:
    """Certificates of the surest 10 %, 20 %, ... 90 % of the predictions, which all hold at once.

    ``shares`` are those that were found above each threshold, which differ from the tenths asked for
    where confidences are tied. ``where`` says of which entries they speak.
    """

    shares: tuple[float, ...]
    thresholds: tuple[float, ...]
    certificates: tuple[Certificate, ...]
    delta: float
    where: str = LIKE_THE_ANSWERED

    def table(self) -> pd.DataFrame:
        """Return one line a share: threshold of confidence, held-out answers, errors, bound."""
        return pd.DataFrame(
            {
                "share": self.shares,
                "confidence_above": self.thresholds,
                "held_out": [int(c.terms["held-out answers"]) for c in self.certificates],
                "errors": [int(c.terms["errors"]) for c in self.certificates],
                "error_at_most": [c.bound for c in self.certificates],
            }
        )

    def __str__(self) -> str:
        lines = [
            f"  surest {share:4.0%} (confidence above {above(threshold)}): "
            f"at most {at_most(c.bound)} wrong"
            for share, threshold, c in zip(self.shares, self.thresholds, self.certificates, strict=True)
            if share
        ]
        if len(lines) < len(self.shares):
            lines.append("  no smaller share: the surest are all as sure as each other")
        return "\n".join([at_once(self.delta, self.where), *lines])


@dataclass(frozen=True)
class GroupCertificate:
    """Certificates of groups of predictions, which all hold at once.

    Attributes
    ----------
    by : str
        What the predictions are grouped by.
    groups : tuple of str
        The groups' names.
    certificates : tuple of Certificate
        One for each group. A group without held-out answers has the bound 1.
    delta : float
        The probability with which any of them may fail.
    where : str
        The clause that says of which entries they speak.
    """

    by: str
    groups: tuple[str, ...]
    certificates: tuple[Certificate, ...]
    delta: float
    where: str = LIKE_THE_ANSWERED

    def __getitem__(self, group: str) -> Certificate:
        return self.certificates[self.groups.index(group)]

    def table(self) -> pd.DataFrame:
        """Return one line a group: held-out answers, errors, bound."""
        return pd.DataFrame(
            {
                self.by: self.groups,
                "held_out": [int(c.terms["held-out answers"]) for c in self.certificates],
                "errors": [int(c.terms["errors"]) for c in self.certificates],
                "error_at_most": [c.bound for c in self.certificates],
            }
        )

    def __str__(self) -> str:
        lines = []
        for group, c in zip(self.groups, self.certificates, strict=True):
            errors, trials = int(c.terms["errors"]), int(c.terms["held-out answers"])
            said = "nothing can be said" if c.bound >= 1 else f"at most {at_most(c.bound)} wrong"
            lines.append(f"  of those {group}: {said} ({errors:,} of {trials:,} held-out ones were)")
        return "\n".join([at_once(self.delta, self.where), *lines])


def at_once(delta: float, where: str = LIKE_THE_ANSWERED) -> str:
    """Return the heading of several statements that hold together."""
    return f"With probability {confidence(delta)}, {where}, all of these at once:"


@dataclass(frozen=True)
class KeptAnswer:
    """Of the predictions of one answer, those that may be kept: with a confidence above ``threshold``.

    ``share`` is their share among the predictions of that answer; it is zero, ``threshold`` infinite and
    ``certificate`` None where no share of the grid can be kept at the error asked for.
    """

    answer: str
    max_error: float
    share: float
    threshold: float
    certificate: Certificate | None

    def __str__(self) -> str:
        if self.certificate is None:
            return f"of those {self.answer}, none"
        every = self.threshold <= 0
        which = "all" if every else f"those with a confidence above {above(self.threshold)}"
        some = "" if every else f" ({self.share:.0%} of them)"
        return f"of those {self.answer}, {which}{some}: at most {at_most(self.max_error)} are wrong"


@dataclass(frozen=True)
class Kept:
    """The predictions that may be kept so that at most ``max_error`` of them are wrong.

    They are found for each predicted answer by itself: where "yes" is rare, an error rate of all
    predictions says nothing of the ones that say "yes". Both statements hold at once.

    Attributes
    ----------
    max_error : float
        The error asked for.
    no, yes : KeptAnswer
        What may be kept of the predictions that say "no" and "yes".
    share : float
        The share that may be kept of the predictions of open entries like the answered ones.
    delta : float
        The probability with which either statement may fail.
    few_blanks : bool
        Whether so few entries are blank that of these alone more may be wrong.
    where : str
        The clause that says of which entries it speaks.
    repeated : bool
        Whether entries were answered more than once, few of which are counted.
    """

    max_error: float
    no: KeptAnswer
    yes: KeptAnswer
    share: float
    delta: float
    few_blanks: bool = False
    where: str = LIKE_THE_ANSWERED
    repeated: bool = False

    @property
    def parts(self) -> tuple[KeptAnswer, KeptAnswer]:
        """Both, "no" first."""
        return self.no, self.yes

    @property
    def bound(self) -> float | None:
        """With probability ``1 - delta``, at most this share of what is kept is wrong; None: nothing."""
        bounds = [part.certificate.bound for part in self.parts if part.certificate is not None]
        return max(bounds, default=None)

    def includes(self, yes: NDArray[np.bool_], confidence: Array) -> NDArray[np.bool_]:
        """Say which predictions, of these answers with this confidence, are among the kept ones."""
        return confidence > np.where(yes, self.yes.threshold, self.no.threshold)

    def __str__(self) -> str:
        if self.bound is None:
            return (
                f"No share of the predictions can be kept at an error of {self.max_error:.1%} "
                f"with probability {confidence(self.delta)}, {self.where}: allow more errors, or "
                "hold out more answers."
            )
        return (
            f"With probability {confidence(self.delta)}, {self.where}, keep (some "
            f"{self.share:.0%} of all):\n"
            + "\n".join(f"  {part}" for part in self.parts)
            + f"\n  {self.caution}"
        )

    @property
    def caution(self) -> str:
        """What the statement does not say."""
        few = " Few entries are blank here: of these alone more may be wrong." if self.few_blanks else ""
        if self.repeated:
            few += " Where hard entries were answered more often than others, blanks are harder, too."
        return (
            "Where people chose what to answer, blanks may be harder; a selection from these, such as "
            f"the best of each row, may do worse.{few}"
        )
