"""The figures that the paper prints, as shares.

Cottet and Alquier, "1-bit Matrix Completion: PAC-Bayesian Analysis of a Variational Approximation",
Tables 2, 3 and 4. The simulated ones are single runs.
"""

from __future__ import annotations

PAPER_METHODS = ("Logit-G", "Logit-IG", "HL-G", "HL-IG", "freq. Logit")

# rank -> world -> share of entries whose sign is wrong, in the order of PAPER_METHODS
SIMULATED = {
    3: {
        "A1": (0.0, 0.0, 0.0, 0.0, 0.0),
        "A2": (0.005, 0.009, 0.001, 0.0, 0.005),
        "A3": (0.160, 0.159, 0.085, 0.085, 0.173),
        "B1": (0.041, 0.040, 0.053, 0.058, 0.051),
        "B2": (0.101, 0.101, 0.108, 0.106, 0.107),
        "B3": (0.160, 0.160, 0.221, 0.213, 0.198),
    },
    5: {
        "A1": (0.0001, 0.0001, 0.0, 0.0, 0.0001),
        "A2": (0.044, 0.031, 0.0054, 0.0055, 0.031),
        "A3": (0.325, 0.331, 0.270, 0.267, 0.301),
        "B1": (0.078, 0.078, 0.094, 0.104, 0.090),
        "B2": (0.173, 0.173, 0.179, 0.181, 0.183),
        "B3": (0.215, 0.214, 0.244, 0.229, 0.221),
    },
}

# share of test answers predicted right, in the order of PAPER_METHODS
MOVIELENS = (0.68, 0.68, 0.71, 0.72, 0.73)


def printed_error(rank: int, world: str, method: str) -> float | None:
    """Return the printed error of a method in one of the paper's worlds, if it is there."""
    if method not in PAPER_METHODS or rank not in SIMULATED:
        return None
    return SIMULATED[rank][world][PAPER_METHODS.index(method)]


def printed_movielens(method: str) -> float | None:
    """Return the printed rate of right predictions on MovieLens 100k, if the method is there."""
    return MOVIELENS[PAPER_METHODS.index(method)] if method in PAPER_METHODS else None
