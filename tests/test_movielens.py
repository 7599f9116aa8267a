"""Real data, where it is at hand."""

import numpy as np

from onebit import LogisticCompleter


def test_movielens_is_completed_as_well_as_we_say(movielens):
    pairs, answers = movielens
    order = np.random.default_rng(0).permutation(len(answers))
    test, train = order[:5000], order[5000:]
    model = LogisticCompleter(random_state=0).fit(pairs[train], answers[train])
    assert model.converged_
    assert model.score(pairs[test], answers[test]) > 0.72
    chance = model.predict_proba(pairs[test])[:, 1]
    log_loss = -np.log(np.where(answers[test] > 0, chance, 1 - chance)).mean()
    assert log_loss < 0.545
