"""The risk-coverage picture: its curves are the certificate's, the counts' and the truth's."""

import numpy as np
import pytest

from onebit import LogisticCompleter, plots, simulate


@pytest.fixture(scope="module")
def fitted():
    world = simulate.world("B2", rank=2, shape=(80, 60), density=0.5, seed=0)
    return world, LogisticCompleter(random_state=0).fit(world.pairs, world.answers, certify=0.2)


def test_the_curves_are_what_they_say(fitted):
    world, model = fitted
    axes = plots.risk_coverage(model, delta=0.1, world=world)
    certified, observed, true = (line.get_ydata() for line in axes.get_lines())
    bounds = [certificate.bound for certificate in model.certify_selective(0.1).certificates]
    np.testing.assert_allclose(certified, 100 * np.array(bounds))
    assert observed[-1] == pytest.approx(100 * model.held_out_.wrong.mean())
    scores = model.complete("score").to_numpy()
    assert true[-1] == pytest.approx(100 * (world.sampling * world.chance_of_error(scores)).sum())
    assert "0.9" in axes.get_legend().get_texts()[0].get_text()


def test_without_a_world_there_is_no_truth_and_without_answers_no_picture(fitted):
    world, model = fitted
    assert len(plots.risk_coverage(model).get_lines()) == 2
    plain = LogisticCompleter(2).fit(world.pairs, world.answers)
    with pytest.raises(ValueError, match="hold a tenth"):
        plots.risk_coverage(plain)
