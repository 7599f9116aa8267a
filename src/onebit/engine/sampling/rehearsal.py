"""The kernels of the samplers, used once so that they are compiled.

They take longer to compile than all others: two processes do it while the variational fits that come
first run. The pass that draws rows takes as long as everything else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onebit.data.observations import Observations
from onebit.engine.cpu.ahead import Rehearsal
from onebit.engine.cpu.threads import Threads
from onebit.engine.recipe import Recipe
from onebit.engine.sampling import passes, whole
from onebit.engine.sampling.chain import Chain
from onebit.engine.sampling.plan import Plan
from onebit.engine.sampling.sampler import sample
from onebit.engine.sampling.target import Target, prior_terms
from onebit.model.gaussians import independent_gaussians
from onebit.model.losses import LOGISTIC
from onebit.model.posterior import Posterior


def compile_rows() -> None:
    """Draw the rows of a table that is made up once, so that the pass that draws them is compiled."""
    answers, posterior = _made_up()
    target = Target.of(answers, posterior.hierarchy, LOGISTIC, 1.0)
    chain = Chain.begin(target, posterior, 0, 0)
    precision, linear = prior_terms(target.hierarchy, chain.hyper, 0, np.zeros(target.hierarchy.rank))
    chain.lines.draw(0, chain.key, 0, precision, linear, None)


def compile_moves() -> None:
    """Sample the same table with its rows left where they are, so that everything else is compiled."""
    drawn, passes.sample_rows = passes.sample_rows, _leave_rows
    try:
        compile_samplers()
    finally:
        passes.sample_rows = drawn


def compile_samplers() -> None:
    """Sample the same table, so that all kernels are compiled."""
    answers, posterior = _made_up()
    sample(answers, posterior, LOGISTIC, 1.0, Plan(2, 1), 0, Threads(1, None))


def _leave_rows(*arguments: Any) -> None:
    """Stand in for the pass over rows: they say nothing of the scales, and have no evidence."""
    for sums in arguments[-4:-1]:
        sums[...] = 0.0


def _made_up() -> tuple[Observations, Posterior]:
    """Return a small table, and a posterior to start from."""
    rng = np.random.default_rng(0)
    pairs = np.stack(np.divmod(np.arange(60), 10), axis=1)
    answers = Observations.from_pairs(pairs, np.where(rng.random(60) < 0.5, 1, -1))
    recipe = Recipe(rank=2)
    hierarchy = recipe.sampled_hierarchy(recipe.hierarchy(answers.shape))
    means = [rng.standard_normal((size, 3)) for size in answers.shape]
    rows, columns = (independent_gaussians(mean, np.full_like(mean, 0.1), True) for mean in means)
    hyper = hierarchy.update((rows.sums(hierarchy, 0), columns.sums(hierarchy, 1)), None)
    return answers, Posterior(rows, columns, hyper, hierarchy)


SAMPLERS = Rehearsal(__name__, ("compile_rows", "compile_moves"), passes.sample_rows, whole.along_blocks)
