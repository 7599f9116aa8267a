"""A bound for the blanks, from held-out answers weighted by how much likelier such entries are blank.

Let each entry outside the fitted part be held out with probability ``q`` and blank otherwise. The risk on
the blanks, ``sum (1 - q) loss / sum (1 - q)`` over these entries, is the mean over held-out ones of
``w loss`` with ``w = (1 - q) / q``, times ``sum q / sum (1 - q)``. The sums run over all entries, so they
are known once ``q`` is; what is left is the mean of ``w loss``, which is bounded by betting. Weights
above a ``cap`` are cut off, and what was cut off counts as wrong; how much of all blanks it is, is known.

That is the risk to be expected of blanks. Which entries are blank in this table is a draw of its own: a
fifth of ``delta`` pays for their share of errors being above it, by no more than that of as many
independent draws.

If an entry is answered with probability ``p``, independently, and a share ``h`` of the answers is held
out, an entry outside the fitted part is held out with ``q = p h / (1 - p (1 - h))``, so that
``w = (1 - p) / (p h)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onebit.certificates.betting import betting_upper_bound

Array = NDArray[np.float64]

# The share of delta that pays for which entries are blank.
REALISED = 0.2
# Caps that are tried: shares of all blanks, by which weights above the cap may fall short.
_CUT_OFF = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True)
class Weighted:
    """A bound for the blanks.

    Attributes
    ----------
    bound, observed : float
        The bound on the share of wrong predictions, and the weighted share that was counted.
    cut_off : float
        The share of the blanks that counts as wrong since their weights were cut off.
    worth : float
        How many held-out answers of equal weight would be as much.
    """

    bound: float
    observed: float
    cut_off: float
    worth: float


def odds_of_blank(answered: Array, share: float) -> tuple[Array, Array]:
    """Return ``q`` and ``w`` of entries outside the fitted part, answered with these probabilities."""
    chance = np.asarray(answered, dtype=float)
    return chance * share / (1.0 - chance * (1.0 - share)), (1.0 - chance) / (chance * share)


def weighted_bound(
    wrong: NDArray[np.bool_],
    answered: Array,
    everywhere: Array,
    share: float,
    delta: float,
    estimated: bool = False,
    blanks: int | None = None,
) -> Weighted:
    """Bound the error rate of the blanks.

    Parameters
    ----------
    wrong : ndarray of bool
        Which of the held-out answers were predicted wrong, in random order.
    answered : ndarray
        The probabilities with which their entries are answered.
    everywhere : ndarray
        The same of all entries outside the fitted part, the held-out ones included.
    share : float
        The share of the answers that was held out.
    delta : float
        The probability with which the bound may fail.
    estimated : bool
        Whether the probabilities are estimates. The bound is then a larger one.
    blanks : int, optional
        How many blanks there are: the bound is then of these, not of what is to be expected of blanks.
    """
    own_delta = delta if blanks is None else (1.0 - REALISED) * delta
    chance, weight = odds_of_blank(everywhere, share)
    blank = (1.0 - chance).sum()
    scale = chance.sum() / blank
    own = odds_of_blank(answered, share)[1]
    cap, cut_off = _cap(chance, weight, blank, len(wrong))
    kept = np.minimum(own, cap)
    bound = cap * scale * betting_upper_bound(kept * wrong / cap, own_delta) + cut_off
    if estimated:
        # Weights of right probabilities average to one but for what was cut off; where those of held-out
        # answers are smaller, the blanks are likelier to be like entries that are seldom answered.
        bound /= min(1.0, float(kept.mean() * scale) + cut_off)
    bound = min(float(bound), 1.0)
    if blanks:
        from scipy.stats import binom  # slow to import

        bound = float(binom.isf(REALISED * delta, blanks, bound)) / blanks
    whole = float(own.sum())
    return Weighted(
        bound,
        float((own * wrong).sum() / whole) if whole else 0.0,
        float(cut_off),
        float(whole**2 / (own**2).sum()) if whole else 0.0,
    )


def _cap(chance: Array, weight: Array, blank: float, trials: int) -> tuple[float, float]:
    """Return where weights are cut off, and the share of the blanks that is cut off with them.

    Chosen from the weights alone, so that nothing has to be paid for it: a higher cap makes the bound
    wider by some three times the largest weight over the number of trials.
    """
    order = np.argsort(weight)
    weight, chance = weight[order], chance[order]
    # Of weights above the k-th: sum of chance (weight - cap), from the right.
    mass = np.concatenate([np.cumsum((chance * weight)[::-1])[::-1][1:], [0.0]])
    count = np.concatenate([np.cumsum(chance[::-1])[::-1][1:], [0.0]])
    cut = (mass - weight * count) / blank
    scale = chance.sum() / blank
    best, found = np.inf, (float(weight[-1]), 0.0)
    for wanted in _CUT_OFF:
        k = int(np.searchsorted(-cut, -wanted))
        k = min(k, len(cut) - 1)
        cost = cut[k] + 3.0 * weight[k] * scale / max(trials, 1)
        if cost < best and weight[k] > 0.0:
            best, found = cost, (float(weight[k]), float(max(cut[k], 0.0)))
    return found
