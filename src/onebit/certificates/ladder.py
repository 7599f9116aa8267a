"""The ladder of certificates: from bounds that spend no data to those that spend some.

Every rung is a statement about one predictor: the model itself, one that is drawn anew for every
prediction (randomised), one that is drawn once, or one of several fits. A ``Ladder`` keeps them apart:
the rung about the model itself holds by itself at the whole ``delta``; those about other predictors share
a ``delta`` of their own, so that all of these hold at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from onebit.certificates.bounds import check_delta
from onebit.certificates.statements import Certificate, at_most, confidence

# The rung that speaks of the model itself.
OWN = "hold-out"


@dataclass(frozen=True)
class Ladder:
    """Certificates from one set of answers: of the model itself, and of other predictors.

    Attributes
    ----------
    own : Certificate or None
        The one that speaks of the model itself. It holds with probability ``1 - delta``.
    certificates : tuple of Certificate
        Those that speak of other predictors. They all hold at once with probability ``1 - delta``.
    delta : float
        The probability with which ``own``, and with which any of the others, may fail.
    """

    certificates: tuple[Certificate, ...]
    delta: float
    own: Certificate | None = None

    @property
    def rungs(self) -> tuple[Certificate, ...]:
        """All of them, the model's own first."""
        return self.certificates if self.own is None else (self.own, *self.certificates)

    def table(self) -> pd.DataFrame:
        """Return one line a rung: method, bound, predictor, whether of this model, answers held out."""
        return pd.DataFrame(
            {
                "method": [c.method for c in self.rungs],
                "at_most": [c.bound for c in self.rungs],
                "predictor": [c.whose for c in self.rungs],
                "of_this_model": [c.of_this_model for c in self.rungs],
                "held_out": [int(c.terms.get("held-out answers", 0)) for c in self.rungs],
            }
        )

    @property
    def best(self) -> Certificate:
        """The certificate of the model itself; a lower bound of another predictor is not its own."""
        if self.own is None:
            raise ValueError(
                "none of these certificates speaks of the model itself: fit with certify=0.1, and ask "
                'for "hold-out"'
            )
        return self.own

    def __str__(self) -> str:
        lines = []
        if self.own is not None:
            lines += [self.own.sentence(), f"  method: {self.own.method}"]
        if self.certificates:
            width = max(len(certificate.method) for certificate in self.certificates)
            lines.append(
                f"Of other predictors than this model, with probability {confidence(self.delta)}, all of "
                "these at once:"
            )
            lines += [
                f"  {c.method:<{width}}  {said:<19} of {c.whose}"
                for c in self.certificates
                for said in ("nothing" if c.bound >= 1 else f"at most {at_most(c.bound)} wrong",)
            ]
        return "\n".join(lines)


def share_delta(
    makers: Mapping[str, Callable[[float], Certificate]],
    delta: float,
    tell: Callable[[int, int, str], None] | None = None,
) -> Ladder:
    """Make the rungs: the model's own at ``delta``, each of the others at its share of another ``delta``.

    ``tell`` is called with the number of rungs made, of all, and the name of the next.
    """
    check_delta(delta)
    others = max(len(makers) - (OWN in makers), 1)
    own, made = None, []
    for number, (name, make) in enumerate(makers.items()):
        if tell is not None:
            tell(number, len(makers), name)
        if name == OWN:
            own = make(delta)
        else:
            made.append(replace(make(delta / others), of_this_model=False))
    return Ladder(tuple(made), delta, own)
