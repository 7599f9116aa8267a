"""Bounds on how often predictions are wrong, paid for with held-out answers.

A certificate is a number, the event it bounds, the confidence, the assumptions, and the terms it is
made of. For the ones here ``fit(..., certify=0.1)`` reserves a tenth of the answers before anything is
fitted or tuned, and their errors are counted once. No model is assumed.

*All predictions.* Given the fitted predictor, each held-out answer is wrong independently with the
predictor's risk ``R``, so the count of errors is binomial, and the largest ``R`` under which so few
errors still have probability ``delta`` bounds it (Clopper and Pearson, 1934).

*The surest share.* Let ``t`` be the k-th largest confidence among the held-out pairs. Given ``t``, the
pairs above it are independent draws from those with confidence above ``t``, so the same bound holds for
the risk among these. Over a grid of shares that is fixed in advance, each gets ``delta`` divided by the
number of shares, and all hold at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.bounds import binomial_upper_bound, check_delta

Array = NDArray[np.float64]

SHARES = tuple(np.round(np.arange(0.1, 1.05, 0.1), 1).tolist())

IID = (
    "the answers were drawn independently, or are distinct entries drawn uniformly at random; where "
    "people choose what they answer, it speaks of entries that arrive the way the observed ones did"
)
# Of distinct entries, what a bound speaks of depends on what was fitted.
OUTSIDE = "of distinct entries, it speaks of all outside the fitted part, the held-out ones included"
WHOLE = "of distinct entries, it speaks of the whole table, the answered ones included"
COUNTED_ONCE = "the held-out answers were chosen at random and used for nothing but this count"
UNIFORM = "entries are drawn uniformly from the whole table, whose every entry both fits were asked about"
TIES = "a score of exactly zero counts as wrong"
KNOWN_IDS = "which rows and columns there are was known beforehand"
ASSUMPTIONS = (IID, OUTSIDE, COUNTED_ONCE, KNOWN_IDS, TIES)


def at_most(bound: float, digits: int = 2) -> str:
    """Write a bound in percent, rounded up: what is printed has been proved too.

    Examples
    --------
    >>> from onebit.certificates import at_most, confidence
    >>> at_most(0.0295131), at_most(0.25), confidence(0.05), confidence(1e-6)
    ('2.96%', '25.00%', '0.95', '0.999999')
    """
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
    """

    bound: float
    delta: float
    method: str
    predictor: str
    terms: Mapping[str, float]
    assumptions: tuple[str, ...] = field(default=ASSUMPTIONS)

    @property
    def trivial(self) -> bool:
        """Whether the bound says nothing that guessing would not reach."""
        return self.bound >= 0.5

    def __str__(self) -> str:
        lines = [
            f"With probability {confidence(self.delta)}, at most {at_most(self.bound)} of "
            f"{self.predictor} are wrong.",
            f"  method: {self.method}",
            "  terms: " + ", ".join(f"{name} {value:g}" for name, value in self.terms.items()),
            *(f"  assumes: {text}" for text in self.assumptions),
        ]
        if self.trivial:
            lines.append("  too few answers, or too many errors, to say more than guessing does")
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
    """Certificates of the surest shares of the predictions, which all hold at once."""

    shares: tuple[float, ...]
    thresholds: tuple[float, ...]
    certificates: tuple[Certificate, ...]
    delta: float

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
        head = f"With probability {confidence(self.delta)}, all of these at once:"
        lines = [
            f"  surest {share:4.0%} (confidence above {above(threshold)}): "
            f"at most {at_most(c.bound)} wrong"
            for share, threshold, c in zip(self.shares, self.thresholds, self.certificates, strict=True)
        ]
        return "\n".join([head, *lines])


@dataclass(frozen=True)
class Kept:
    """The predictions that may be kept: those with a confidence above ``threshold``.

    ``share`` is their share among pairs like the observed ones; it is zero, and ``certificate`` None,
    where no share of the grid can be kept at the error asked for.
    """

    max_error: float
    share: float
    threshold: float
    certificate: Certificate | None
    delta: float

    def __str__(self) -> str:
        if self.certificate is None:
            return (
                f"No share of the predictions can be kept at an error of {self.max_error:.1%} "
                f"with probability {confidence(self.delta)}: allow more errors, or hold out more answers."
            )
        return (
            f"Keep the predictions with a confidence above {above(self.threshold)}, some "
            f"{self.share:.0%}: with probability {confidence(self.delta)}, at most "
            f"{at_most(self.certificate.bound)} are wrong."
        )


@dataclass(frozen=True)
class HeldOut:
    """What became of the held-out answers: confidence of each prediction, surest first, and errors.

    ``disagreement`` is set for a model that was refitted on all answers: the share of the table's entries
    on which it and the model that was counted predict differently, which adds to the risk.
    """

    confidence: Array
    wrong: NDArray[np.bool_]
    also_fitted: int = 0
    disagreement: float | None = None

    @classmethod
    def count(cls, confidence: Array, wrong: NDArray[np.bool_], also_fitted: int = 0) -> HeldOut:
        """Build from predictions in any order; ``also_fitted`` of the entries have fitted answers too."""
        order = np.argsort(-confidence, kind="stable")
        return cls(confidence[order], wrong[order], also_fitted)

    def certify(self, delta: float) -> Certificate:
        """Bound the error rate of all predictions."""
        check_delta(delta)
        who = "the predictions on entries like the observed ones"
        counted = self._certificate(self.wrong, delta, who)
        if self.disagreement is None:
            return counted
        return Certificate(
            min(counted.bound + self.disagreement, 1.0),
            delta,
            "hold-out, refit on all answers, disagreement added",
            "the predictions of the model refitted on all answers",
            {**counted.terms, "share on which the two fits disagree": self.disagreement},
            (IID, OUTSIDE, UNIFORM, COUNTED_ONCE, TIES),
        )

    def certify_selective(self, delta: float) -> SelectiveCertificate:
        """Bound the error rates of the surest shares, all at once."""
        check_delta(delta)
        if self.disagreement is not None:
            raise ValueError(
                "a refitted model sorts predictions by another confidence than the one that was counted; "
                "take the surest shares from the model before refit()"
            )
        thresholds, certificates = [], []
        for share in SHARES:
            place = round(share * len(self.wrong))
            # The whole has no threshold; otherwise the first pair left out sets it.
            threshold = 0.0 if place >= len(self.wrong) else float(self.confidence[place])
            above = self.wrong[self.confidence > threshold]
            who = f"the surest {share:.0%} of the predictions on entries like the observed ones"
            thresholds.append(threshold)
            certificates.append(self._certificate(above, delta / len(SHARES), who))
        return SelectiveCertificate(SHARES, tuple(thresholds), tuple(certificates), delta)

    def keep(self, max_error: float, delta: float) -> Kept:
        """Find the largest share whose certified error is at most ``max_error``."""
        if not 0 < max_error < 1:
            raise ValueError(f"max_error must lie between 0 and 1, got {max_error!r}")
        ladder = self.certify_selective(delta)
        rungs = zip(ladder.shares, ladder.thresholds, ladder.certificates, strict=True)
        kept = Kept(max_error, 0.0, 1.0, None, delta)
        for share, threshold, certificate in rungs:
            if certificate.bound <= max_error:
                kept = Kept(max_error, share, threshold, certificate, delta)
        return kept

    def _certificate(self, wrong: NDArray[np.bool_], delta: float, who: str) -> Certificate:
        errors, trials = int(wrong.sum()), len(wrong)
        terms = {
            "held-out answers": float(trials),
            "errors": float(errors),
            "observed error": errors / trials if trials else 1.0,
            "delta": delta,
        }
        if self.also_fitted:
            terms["held-out answers to entries that were fitted too"] = float(self.also_fitted)
        bound = binomial_upper_bound(errors, trials, delta)
        return Certificate(bound, delta, "hold-out, Clopper-Pearson", who, terms)
