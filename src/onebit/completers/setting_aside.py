"""What a fit sets aside before anything else: answers for a certificate, and whole rows for another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.completers.holding_out import hold_out
from onebit.completers.new_rows import count_rows, hold_rows_out, take_rows_in
from onebit.completers.predictions import Answers
from onebit.completers.updating import keep_in_step
from onebit.data.holding import Division, commoner, divided_by
from onebit.data.ids import IdIndex
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
    everybody : IdIndex
        All rows.
    marks : ndarray of bool, optional
        Which answers the user has chosen to hold out, in row order.
    """

    observations: Observations
    division: Division | None
    rows: Observations | None
    everybody: IdIndex
    marks: Marks | None

    @property
    def n(self) -> int:
        """The number of all answers."""
        return self.observations.n + (0 if self.rows is None else self.rows.n)

    @property
    def fitted(self) -> Observations:
        """What may be fitted."""
        return self.observations if self.division is None else self.division.fitted

    @property
    def holds_out(self) -> bool:
        """Whether anything is held out."""
        return self.division is not None or self.rows is not None

    def answers(self) -> Answers:
        """Return all answers, with what of them was held out."""
        if self.division is None:
            return Answers(self.observations)
        held = len(self.division.held.sign)
        return Answers(self.observations, held, self.division.cut, self.marks)

    def uncounted(self) -> Division | None:
        """Return what will be counted, without the fitted answers, which may lie on a GPU."""
        return None if self.division is None else replace(self.division, fitted=self.observations)

    def count_rows_of(self, model: Any, random_state: Any) -> None:
        """Count what a fitted model makes of the rows that were held out, and let it know them."""
        if self.rows is None:
            return
        model.held_rows_ = count_rows(model, self.rows, commoner(self.fitted), random_state)
        take_rows_in(model, self.rows, self.everybody)
        keep_in_step(model)


def set_aside(
    observations: Observations, marks: Marks | None, share: Any, rows: Any, random_state: Any
) -> Aside:
    """Set a share of the rows aside and a share of the others' answers; or answers that are marked."""
    everybody, rows_out = observations.rows, None
    if rows is not None and marks is not None:
        raise ValueError(
            "certify_rows goes with a share of the answers, certify=0.1, and not with a hold-out of your "
            "own: answers that you hold out would be given by the rows that are"
        )
    if rows is not None:
        observations, rows_out = hold_rows_out(observations, rows, random_state)
    if marks is not None:
        division: Division | None = divided_by(observations, marks)
    else:
        division = None if share is None else hold_out(observations, share, random_state)
    return Aside(observations, division, rows_out, everybody, marks)
