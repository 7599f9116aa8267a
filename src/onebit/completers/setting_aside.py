"""What a fit sets aside before anything else: answers for a certificate, and whole rows for another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.completers.intake import hold_out
from onebit.completers.new_rows import count_rows, hold_rows_out, take_rows_in
from onebit.completers.predictions import Answers
from onebit.completers.updating import keep_in_step
from onebit.data.holding import Division, commoner, divided_by
from onebit.data.observations import Observations

Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class Aside:
    """Answers of a fit, and what is set aside of them.

    Attributes
    ----------
    observations : Observations
        All answers but those of the rows that are held out.
    division : Division or None
        These, cut into what is fitted and what is held out.
    rows : Observations or None
        The answers of the rows that are held out.
    marks : ndarray of bool, optional
        Which answers the user has chosen to hold out, in row order.
    """

    observations: Observations
    division: Division | None
    rows: Observations | None
    marks: Marks | None

    @property
    def fitted(self) -> Observations:
        """What may be fitted."""
        return self.observations if self.division is None else self.division.fitted

    @property
    def nothing(self) -> bool:
        """Whether nothing is."""
        return self.division is None and self.rows is None

    def answers(self) -> Answers:
        """Return all answers, with what of them was held out."""
        if self.division is None:
            return Answers(self.observations)
        held = len(self.division.held.sign)
        return Answers(self.observations, held, self.division.cut, self.marks)

    def uncounted(self) -> Division | None:
        """Return what will be counted, without the fitted answers, which may lie on a GPU."""
        return None if self.division is None else replace(self.division, fitted=self.observations)

    def rows_counted(self, model: Any, random_state: Any) -> None:
        """Count what a fitted model makes of the rows that were held out, and let it know them."""
        if self.rows is None:
            return
        model.held_rows_ = count_rows(model, self.rows, commoner(self.fitted), random_state)
        take_rows_in(model, self.rows)
        keep_in_step(model)


def set_aside(
    observations: Observations, marks: Marks | None, share: Any, rows: Any, random_state: Any
) -> Aside:
    """Set a share of the rows aside and, of the others' answers, marked ones or a share."""
    rows_out = None
    if rows is not None:
        observations, rows_out, marks = hold_rows_out(observations, rows, random_state, marks)
    if marks is not None:
        division: Division | None = divided_by(observations, marks)
    else:
        division = None if share is None else hold_out(observations, share, random_state)
    return Aside(observations, division, rows_out, marks)
