"""What a bound on the answered entries says of the blanks, if being answered favours right predictions.

Held-out answers are answered entries. Where people answer what they know or like, predictions of blanks
may be worse. How much worse is an assumption, written as a number ``G``, the shift:

* *odds*: the odds that a prediction is right are among answered entries at most ``G`` times those among
  blanks, both taken over all such entries. With the risk ``R`` of answered entries, that of the blanks is
  at most ``G R / (1 + (G - 1) R)``;
* *density ratio*: no kind of entry is more than ``G`` times as frequent among the blanks as among the
  answered entries, nor less than ``1 / G`` times: at most ``min(G R, 1 - (1 - R) / G)``.

Both grow with ``R``, so that an upper bound on ``R`` may stand for it. The first says nothing any more,
half of the predictions wrong, from ``G = (1 - R) / R`` on.
"""

from __future__ import annotations

from onebit.data.numbers import is_number

KINDS = ("odds", "density")


def check_shift(shift: float) -> None:
    """Refuse what is no shift."""
    if not is_number(shift) or not 1.0 <= shift < float("inf"):
        raise ValueError(f"shift is a ratio of odds, at least 1; got {shift!r}")


def shifted(bound: float, shift: float, kind: str = "odds") -> float:
    """Return what a bound on the answered entries says of blanks under a shift.

    Examples
    --------
    >>> from onebit.certificates.shifts import shifted
    >>> round(shifted(0.1, 2.0), 4), round(shifted(0.1, 2.0, "density"), 4)
    (0.1818, 0.2)
    """
    check_shift(shift)
    if kind not in KINDS:
        raise ValueError(f'kind is "odds" or "density", got {kind!r}')
    if kind == "odds":
        return shift * bound / (1.0 + (shift - 1.0) * bound)
    return min(shift * bound, 1.0 - (1.0 - bound) / shift)


def breaking_shift(bound: float) -> float:
    """Return the shift from which on a bound says nothing of the blanks; infinite for a bound of zero."""
    return (1.0 - bound) / bound if bound > 0.0 else float("inf")
