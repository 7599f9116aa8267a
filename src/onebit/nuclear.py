"""The frequentist baseline as a completer."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from onebit import checked
from onebit.calibration import CERTAINTY
from onebit.engine.coordinate import Callback
from onebit.engine.nuclear import minimise_nuclear, pair_products
from onebit.estimator import PairClassifier
from onebit.observations import Observations
from onebit.parameters import Check, Instance, OneOf, Positive, Whole
from onebit.storage import Tensors

Array = NDArray[np.float64]


class NuclearNormCompleter(PairClassifier):
    """Logistic likelihood under a nuclear-norm ball (Davenport, Plan, van den Berg, Wootters, 2014).

    minimise ``sum_l log(1 + exp(-y_l M_l))`` subject to ``|M|_* <= alpha sqrt(rank m1 m2)`` and, if
    ``bounded``, ``|M_ij| <= alpha``. A convex problem, solved to a certified duality gap; the paper's
    "freq. Logit" column. It has neither effects nor uncertainties. An unknown row is taken to be the
    average of the known ones.

    Parameters
    ----------
    rank : float, default 3
        Sets the radius of the ball.
    alpha : float, default 1
        Size of the entries that the ball is made for.
    radius : float, optional
        The radius itself, in place of ``alpha sqrt(rank m1 m2)``.
    bounded : bool, default False
        Also bound every entry by ``alpha`` (dense: for small matrices).
    max_iter, tol : int, float
        At most so many iterations, until the duality gap per answer is below ``tol``.
    random_state : int, RandomState or None
        Seed of the iterative singular value decompositions.

    Attributes
    ----------
    objective_, gap_ : float
        Mean log-loss of the training answers, and the most by which it exceeds the optimum.
    left_, right_ : ndarray
        The optimum, ``M = left_ right_'``.
    rank_ : int
        Its rank.

    Examples
    --------
    >>> from onebit import NuclearNormCompleter, simulate
    >>> world = simulate.world("A1", rank=1, shape=(40, 40), density=0.5, seed=0)
    >>> model = NuclearNormCompleter(rank=1).fit(world.pairs, world.answers)
    >>> model.gap_ <= model.tol
    True
    """

    _checks: ClassVar[dict[str, Check]] = {
        "rank": Positive(),
        "alpha": Positive(),
        "radius": Instance((type(None),), Positive()),
        "bounded": OneOf((True, False)),
        "max_iter": Whole(1),
        "tol": Positive(),
    }

    def __init__(
        self,
        rank: float = 3,
        *,
        alpha: float = 1.0,
        radius: float | None = None,
        bounded: bool = False,
        max_iter: int = 500,
        tol: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.rank = rank
        self.alpha = alpha
        self.radius = radius
        self.bounded = bounded
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _fit(
        self, observations: Observations, rng: np.random.Generator, callback: Callback | None
    ) -> list[str]:
        rows, columns = observations.shape
        radius = self.radius or self.alpha * float(np.sqrt(float(self.rank) * rows * columns))
        fit = minimise_nuclear(
            observations,
            radius,
            self.alpha if self.bounded else None,
            max_iter=self.max_iter,
            tol=self.tol,
            rng=rng,
            callback=callback,
        )
        self.left_, self.right_ = fit.left, fit.right
        self.radius_ = radius
        self.rank_ = int(np.linalg.matrix_rank(fit.left)) if fit.left.any() else 0
        self.objective_, self.gap_ = fit.objective, fit.gap
        self.n_iter_, self.converged_ = fit.n_iter, fit.converged
        if fit.converged:
            return []
        return [
            f"stopped after {fit.n_iter} iterations at a duality gap of {fit.gap:.2g} per answer "
            f"(tol={self.tol:g}); raise max_iter or tol"
        ]

    def _score_moments(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> tuple[Array, Array]:
        # The last line, which code -1 picks, is the average row (or column).
        left = np.vstack([self.left_, self.left_.mean(axis=0)])
        right = np.vstack([self.right_, self.right_.mean(axis=0)])
        mean = np.empty(len(rows))
        pair_products(rows % len(left), columns % len(right), left, right, mean)
        return mean, np.zeros_like(mean)

    def _probability(self, mean: Array, variance: Array) -> Array:
        return np.clip(expit(mean), CERTAINTY, 1.0 - CERTAINTY)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        names = ("radius_", "rank_", "objective_", "gap_", "n_iter_", "converged_")
        return {"left": self.left_, "right": self.right_}, {name: getattr(self, name) for name in names}

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        rows, columns = len(self.rows_), len(self.columns_)
        self.left_ = checked.checked_array(tensors, "left", np.float64, (rows, None))
        rank = self.left_.shape[1]
        self.right_ = checked.checked_array(tensors, "right", np.float64, (columns, rank))
        self.radius_ = checked.number(content, "radius_", positive=True)
        self.rank_ = checked.whole(content, "rank_", 0, rank)
        self.objective_, self.gap_ = (checked.number(content, name) for name in ("objective_", "gap_"))
        self.n_iter_ = checked.whole(content, "n_iter_")
        self.converged_ = checked.flag(content, "converged_")
