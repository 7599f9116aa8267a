"""Compile the kernels that most tests need, beside the linters: else every process of the tests does.

``make test`` runs it. Tests pass without it.
"""

from __future__ import annotations

from onebit import HingeCompleter, LogisticCompleter, simulate
from onebit.engine.sampling.rehearsal import compile_samplers

if __name__ == "__main__":
    compile_samplers()
    world = simulate.world("B1", rank=1, shape=(20, 15), density=0.7, seed=0)
    for model in (LogisticCompleter(2), LogisticCompleter(2, covariance="diagonal"), HingeCompleter(2)):
        model.fit(world.pairs, world.answers).predict_proba(world.pairs)
