"""Of which entries held-out answers speak, by where they come from and what has happened since."""

from __future__ import annotations

from onebit.certificates.statements import (
    LIKE_THE_ANSWERED,
    LIKE_THE_FITTED,
    LIKE_THE_HELD_OUT,
    OF_FITTED_ROWS,
)

UNTOUCHED = "of rows and columns that no later update has touched"
WHERE = {
    "fit": LIKE_THE_ANSWERED,
    "elsewhere": f"{LIKE_THE_ANSWERED}, {UNTOUCHED}",
    "fitted rows": LIKE_THE_FITTED,
    "fitted rows, elsewhere": f"{LIKE_THE_FITTED}, and {UNTOUCHED}",
    "update": "on entries like those that the last update answered for the first time",
    "since": f"on entries like those that an earlier update answered for the first time, {UNTOUCHED}",
    "own": LIKE_THE_HELD_OUT,
    "own, elsewhere": f"{LIKE_THE_HELD_OUT}, {UNTOUCHED}",
}
# What is left of each after a later update.
AFTER = {
    "fit": "elsewhere",
    "fitted rows": "fitted rows, elsewhere",
    "update": "since",
    "own": "own, elsewhere",
}
NOT_TOLD = (
    "which rows and columns later updates touched did not depend on whether their held-out answers were "
    "predicted rightly"
)


def limits(whence: str) -> str:
    """Return to which blanks statements are limited: of rows that were fitted, untouched by updates."""
    rows = f" {OF_FITTED_ROWS}" if whence.startswith("fitted rows") else ""
    return f"{rows}, {UNTOUCHED}" if whence in AFTER.values() else rows
