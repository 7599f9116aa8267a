"""One predictor, drawn once from a posterior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.certificates.statements import Certificate
from onebit.data.ids import IdIndex, pair_columns
from onebit.model.posterior import Draw

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DrawnPredictor:
    """One predictor, drawn once from a posterior: it predicts, and certifies itself."""

    predictor: Draw
    rows: IdIndex
    columns: IdIndex
    classes: NDArray[Any]
    certificate_of: Callable[..., Certificate]

    def decision_function(self, X: Any) -> Array:
        """Return the score of each pair; ids must be among the fitted ones."""
        row_values, column_values = pair_columns(X)
        return self.predictor.scores(
            self._known(self.rows, row_values), self._known(self.columns, column_values)
        )

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted answers, written as in the training answers."""
        return self.classes[(self.decision_function(X) > 0).astype(int)]

    def certify(self, delta: float = 0.05) -> Certificate:
        """Bound the error rate of this predictor, with probability ``1 - delta``."""
        return self.certificate_of(delta=delta)

    @staticmethod
    def _known(index: IdIndex, values: Any) -> NDArray[np.int32]:
        codes = index.encode(values)
        if (codes < 0).any():
            place = int(np.flatnonzero(codes < 0)[0])
            value = np.asarray(values)[place]
            raise ValueError(
                f"the {index.side} id {value!r} was not fitted: a drawn predictor cannot know it"
            )
        return codes
