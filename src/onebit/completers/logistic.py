"""LogisticCompleter: the completer to start with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from onebit.completers.base import Found, PairClassifier
from onebit.completers.bayes import CHECKS, bayes_state, followed, found_of, recipe_of, restored_found
from onebit.completers.parameters import Check
from onebit.completers.predictions import Codes
from onebit.data.observations import Observations
from onebit.data.storage import Tensors
from onebit.engine.crew import Callback
from onebit.engine.fitting import Fitted
from onebit.engine.recipe import Recipe
from onebit.engine.workers import Machine
from onebit.model.losses import LOGISTIC
from onebit.model.posterior import Posterior
from onebit.model.priors import VariancePrior


class LogisticCompleter(PairClassifier):
    """Variational Bayes with the logistic loss: the completer to start with.

    Minimises ``sum_l log(1 + exp(-y_l M_l)) + KL / temperature`` in expectation over a Gaussian
    posterior of ``M_ij = mu + a_i + b_j + L_i . R_j``, through Jaakkola's bound (Section 5 of the paper,
    with row and column effects added). The variance of every column of ``L`` and ``R`` is learnt, and
    columns that the data does not need vanish: ``rank`` is only an upper bound.

    Parameters
    ----------
    rank : int, default 10
        The largest rank considered (``K`` in the paper); capped at the matrix's own.
    prior : {"inverse-gamma", "gamma"}, InverseGamma or Gamma
        Prior on the variances of the columns.
    prior_scale : float or "auto", default "auto"
        The variance that a column keeps without support from the data; unused when ``prior`` is an
        instance. "auto" is 0.03 for the variational posterior and 0.0003 for the sampled one.
    temperature : float, default 1
        ``lambda / n``. One is the likelihood; votes, opinion polls and evaluations of models often gain
        from 1.4 to 2 (variational ones: sampling wants whole numbers).
    covariance : {"full", "diagonal"}
        The posterior of a row: a full covariance, or independent coordinates (less memory).
    effects : bool, "rows" or "columns", default True
        Row and column effects. ``False`` is the paper's model.
    sparse : {None, "rows", "columns"}
        The side whose members take part in few factors each: items that measure one ability, songs of
        one genre ("simple structure"). A coordinate then has a variance of its own.
    pattern : {"auto", "both", "rows", "columns", None}
        The sides whose prior means depend on *which* entries were answered: what somebody chose to rate
        tells of them before the first rating is read. How much it tells is learnt, and a pattern that
        tells nothing is let go. "auto" is "both" where there are effects, and None in the paper's model
        (``effects=False``). The pattern says less, or the wrong thing, of entries that people would not
        choose; a sparse side has none.
    inference : {"variational", "sampling"}
        "sampling" goes on from the variational posterior and draws from the exact one.
    n_samples, n_burn_in, n_chains, n_thin : int, default 100, 20, 4, 1
        Draws of each chain, sweeps before the first, chains, and sweeps from draw to draw.
    settle : float, "auto" or None
        Stop sampling earlier. "auto": once every R-hat is at most 1.05, every effective sample size at
        least 100 and the Monte Carlo error of the log-loss at most 0.0005. A number: once the Monte Carlo
        error of every functional that is watched is below this share of its posterior standard deviation.
        Chains then go in stretches, each twice as long as the one before (the last takes what is left),
        of which the last one counts.
    keep_mb : float, default 256
        The most that the kept draws may take, in megabytes; beyond it they are thinned evenly.
    n_init : int, default 1
        Number of starts; the first is spectral, others perturb it. The lowest objective is kept. On a CPU
        the first start of a large table (half a million answers and more, many a row and a column) goes
        through five rounds over an eighth or a quarter of its rows, whatever ``max_iter`` is; ``n_iter_``
        does not count them.
    max_iter, tol : int, float or "auto"
        At most so many rounds, until a round lowers the objective by less than ``tol`` (relative). "auto"
        stops where predictions have settled, by a rule that was measured on eight real tables: after a
        fifth to a half of the rounds (HingeCompleter: three tenths to three quarters), with a log-loss at
        most 0.0005 (0.0025) above the default's. Small tables may gain nothing. Fits of half a million
        answers and more also end where, by the slowest of the last three rates at which gains fell, all
        further rounds together would lower the objective by less than ten times ``tol`` ("auto": by less
        than 0.00005), also in the middle of a round; those of GibbsCompleter and of the paper's method do
        not.
    random_state : int, RandomState or None
        Seed of the starts. The result does not depend on ``n_jobs``.
    n_jobs : int or None, default -1
        Threads; -1 uses all cores.
    device : {"cpu", "auto", "cuda", "cuda:1", ...}
        Where the fit and large predictions run. "cuda" is an NVIDIA GPU (``pip install onebit[gpu]``),
        "auto" one where there is one and the data is large enough to gain from it.
    verbose : int
        Above zero, every round is logged.

    Attributes
    ----------
    posterior_ : Posterior
        Means, covariances, KL to the prior.
    rank_ : int
        The number of columns that are left: a rank that suffices, at most ``rank``.
    objective_, objective_path_ : float, ndarray
        The objective reached (mean bound on the loss plus KL / lambda), and its course.
    n_iter_, converged_ : int, bool
        Rounds taken by the variational descent, and whether ``tol`` was met.
    draws_, diagnostics_, n_sweeps_, settled_ : Draws, DataFrame, int, bool
        Of a sampled model: the kept draws, R-hat and effective sample sizes, the sweeps of each chain,
        and whether ``settle`` stopped it.
    requested_ : DataFrame
        Predictions of the pairs given as ``fit(..., predict_for=pairs)``.
    folded_in_ : FoldedIn
        What the last ``fold_in`` added and skipped.
    row_effects_, column_effects_ : Series
        The effect of each row on a typical column, and of each column on a typical row, as log-odds.
    feature_effects_ : DataFrame
        Of a model fitted with features: what each adds to the effect of a row or column.
    classes_ : ndarray
        The two answers as they were written, "no" first.

    Examples
    --------
    >>> from onebit import LogisticCompleter, simulate
    >>> world = simulate.world("A1", rank=2, shape=(60, 50), density=0.4, seed=0)
    >>> model = LogisticCompleter(rank=5).fit(world.pairs, world.answers)
    >>> model.rank_
    2
    >>> model.predict_proba([(0, 0)]).shape
    (1, 2)
    """

    _loss = LOGISTIC
    _takes_features: ClassVar[bool] = True
    _checks: ClassVar[dict[str, Check]] = CHECKS

    def __init__(
        self,
        rank: int = 10,
        *,
        prior: str | VariancePrior = "inverse-gamma",
        prior_scale: float | str = "auto",
        temperature: float = 1.0,
        covariance: str = "full",
        effects: bool | str = True,
        sparse: str | None = None,
        pattern: str | None = "auto",
        inference: str = "variational",
        n_samples: int = 100,
        n_burn_in: int = 20,
        n_chains: int = 4,
        n_thin: int = 1,
        settle: float | str | None = None,
        keep_mb: float = 256,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float | str = 1e-5,
        random_state: Any = None,
        n_jobs: int | None = -1,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.prior = prior
        self.prior_scale = prior_scale
        self.temperature = temperature
        self.covariance = covariance
        self.effects = effects
        self.sparse = sparse
        self.pattern = pattern
        self.inference = inference
        self.n_samples = n_samples
        self.n_burn_in = n_burn_in
        self.n_chains = n_chains
        self.n_thin = n_thin
        self.settle = settle
        self.keep_mb = keep_mb
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def _find(
        self,
        observations: Observations,
        machine: Machine,
        rng: np.random.Generator,
        callback: Callback | None,
        start: Posterior | None,
        pairs: tuple[Codes, Codes] | None,
    ) -> Found:
        return followed(self._recipe(), observations, machine, rng, callback, start, pairs)

    def _recipe(self) -> Recipe:
        return recipe_of(self)

    def _on_cluster(
        self, sample: Callable[[], Observations], n: int, callback: Callback | None
    ) -> tuple[Recipe, Callable[[Fitted], Found]]:
        recipe = self._recipe()
        return recipe, partial(found_of, recipe)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        return bayes_state(self)

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        shape = (len(self.rows_), len(self.columns_))
        self._take(restored_found(self._recipe(), tensors, content, shape))
