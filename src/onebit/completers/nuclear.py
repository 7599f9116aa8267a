"""The frequentist baseline as a completer."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from onebit.completers.base import Found, PairClassifier
from onebit.completers.parameters import Check, Instance, OneOf, Positive, Whole, plain
from onebit.completers.predictions import Codes
from onebit.completers.predictors import FactorsPredictor
from onebit.data import checked
from onebit.data.observations import Observations
from onebit.data.storage import Tensors
from onebit.engine.crew import Callback
from onebit.engine.nuclear import minimise_nuclear
from onebit.engine.workers import Machine
from onebit.model.posterior import Posterior

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

    _posterior_is_found: ClassVar[bool] = False
    _uncalibrated: ClassVar[str | None] = "the nuclear norm draws all scores towards zero"

    left_: Array
    right_: Array
    radius_: float
    rank_: int
    objective_: float
    gap_: float
    n_iter_: int
    converged_: bool

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

    def _find(
        self,
        observations: Observations,
        machine: Machine,
        rng: np.random.Generator,
        callback: Callback | None,
        start: Posterior | None,
        pairs: tuple[Codes, Codes] | None,
    ) -> Found:
        if start is not None:
            raise ValueError("a convex problem has one optimum, wherever one starts; leave start out")
        rows, columns = observations.shape
        radius = self.radius or self.alpha * float(np.sqrt(float(self.rank) * rows * columns))
        fit = minimise_nuclear(
            observations,
            radius,
            self.alpha if self.bounded else None,
            max_iter=plain(self.max_iter),
            tol=plain(self.tol),
            rng=rng,
            callback=callback,
        )
        attributes = {
            "radius_": radius,
            "rank_": int(np.linalg.matrix_rank(fit.left)) if fit.left.any() else 0,
            "objective_": fit.objective,
            "gap_": fit.gap,
            "n_iter_": fit.n_iter,
            "converged_": fit.converged,
        }
        advice = []
        if not fit.converged:
            advice.append(
                f"stopped after {fit.n_iter} iterations at a duality gap of {fit.gap:.2g} per answer "
                f"(tol={self.tol:g}); raise max_iter or tol"
            )
        return self._with_factors(fit.left, fit.right, attributes, advice)

    @staticmethod
    def _with_factors(left: Array, right: Array, attributes: dict[str, Any], advice: list[str]) -> Found:
        factors = {"left_": left, "right_": right}
        return Found(FactorsPredictor(left, right), factors | attributes, advice)

    def _keeps_checkpoints(self) -> bool:
        return False

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        names = ("radius_", "rank_", "objective_", "gap_", "n_iter_", "converged_")
        return {"left": self.left_, "right": self.right_}, {name: getattr(self, name) for name in names}

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        rows, columns = len(self.rows_), len(self.columns_)
        left = checked.checked_array(tensors, "left", np.float64, (rows, None))
        rank = left.shape[1]
        right = checked.checked_array(tensors, "right", np.float64, (columns, rank))
        attributes = {
            "radius_": checked.number(content, "radius_", positive=True),
            "rank_": checked.whole(content, "rank_", 0, rank),
            "objective_": checked.number(content, "objective_"),
            "gap_": checked.number(content, "gap_"),
            "n_iter_": checked.whole(content, "n_iter_"),
            "converged_": checked.flag(content, "converged_"),
        }
        self._take(self._with_factors(left, right, attributes, []))
