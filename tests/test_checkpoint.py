"""A fit that is killed goes on to the same result."""

import functools

import numpy as np
import pytest

from onebit import (
    AutoCompleter,
    GibbsCompleter,
    HingeCompleter,
    LogisticCompleter,
    NuclearNormCompleter,
    simulate,
)


class Killed(BaseException):
    """What no handler of the library catches."""


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setattr("onebit.engine.checkpoint.INTERVAL", 0.0)


@pytest.fixture(scope="module")
def world():
    return simulate.world("A2", rank=2, shape=(40, 30), density=0.5, seed=0)


def killed_after(rounds):
    left = [rounds]

    def callback(progress):
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    return callback


MAKERS = {
    "logistic": lambda: LogisticCompleter(3, random_state=0),
    "diagonal gamma": lambda: LogisticCompleter(3, covariance="diagonal", prior="gamma", random_state=0),
    "hinge sparse calibrated": lambda: HingeCompleter(3, random_state=0, sparse="columns"),
    "gibbs": lambda: GibbsCompleter(2, random_state=0, temperature=1.0),
}


@pytest.fixture(scope="module")
def undisturbed(world):
    """The fits to which nothing happens, and how often they told of their progress."""

    @functools.cache
    def fitted(make):
        told = []
        return make().fit(world.pairs, world.answers, certify=0.1, callback=told.append), len(told)

    return fitted


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
@pytest.mark.parametrize("rounds", [0, 1, 5, 8])
def test_a_killed_fit_goes_on_to_the_same_result(make, rounds, world, undisturbed, tmp_path):
    expected, whole = undisturbed(make)
    folder = tmp_path / "kept"
    model = make()
    with pytest.raises(Killed):
        model.fit(
            world.pairs, world.answers, certify=0.1, callback=killed_after(rounds), checkpoint=folder
        )
    assert any(folder.iterdir())
    done = []
    model.fit(world.pairs, world.answers, certify=0.1, callback=done.append, checkpoint=folder)
    assert not folder.exists()
    for side, again in zip(expected.posterior_.sides, model.posterior_.sides, strict=True):
        np.testing.assert_array_equal(side.mean, again.mean)
        np.testing.assert_array_equal(side.covariance, again.covariance)
    assert model.objective_path_.tolist() == expected.objective_path_.tolist()
    assert model.n_iter_ == expected.n_iter_
    if rounds == 8:  # and it has not begun anew
        assert len(done) < whole


def test_a_search_goes_on_too(tmp_path, monkeypatch):
    world = simulate.world("B1", rank=1, shape=(25, 20), density=0.6, seed=1)

    def completer():
        return AutoCompleter(losses=["logistic"], sampling_seconds=2, random_state=0)

    expected = completer().fit(world.pairs, world.answers)
    from onebit.engine.cpu import side

    descend, left = side.Side.pass_over, [200]

    def failing(*arguments, **settings):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return descend(*arguments, **settings)

    monkeypatch.setattr(side.Side, "pass_over", failing)
    with pytest.raises(Killed):
        completer().fit(world.pairs, world.answers, checkpoint=tmp_path / "kept")
    monkeypatch.setattr(side.Side, "pass_over", descend)
    assert len(list((tmp_path / "kept").glob("descent-*"))) > 1
    model = completer().fit(world.pairs, world.answers, checkpoint=tmp_path / "kept")
    assert model.best_params_ == expected.best_params_
    np.testing.assert_array_equal(
        model.decision_function(world.all_pairs), expected.decision_function(world.all_pairs)
    )


def test_a_checkpoint_of_another_fit_is_refused(world, tmp_path):
    folder = tmp_path / "kept"
    with pytest.raises(Killed):
        LogisticCompleter(3, random_state=0).fit(
            world.pairs, world.answers, callback=killed_after(2), checkpoint=folder
        )
    with pytest.raises(ValueError, match="of another fit \\(other settings\\)"):
        LogisticCompleter(4, random_state=0).fit(world.pairs, world.answers, checkpoint=folder)
    with pytest.raises(ValueError, match="other answers"):
        LogisticCompleter(3, random_state=0).fit(world.pairs[1:], world.answers[1:], checkpoint=folder)
    # Threads do not change a result.
    LogisticCompleter(3, random_state=0, n_jobs=2).fit(world.pairs, world.answers, checkpoint=folder)
    assert not folder.exists()


def test_what_cannot_go_on_says_so_at_the_door(world, tmp_path):
    with pytest.raises(ValueError, match="random_state=0"):
        LogisticCompleter(2).fit(world.pairs, world.answers, checkpoint=tmp_path / "kept")
    with pytest.raises(ValueError, match="NuclearNormCompleter keeps no checkpoints"):
        NuclearNormCompleter().fit(world.pairs, world.answers, checkpoint=tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "checkpoint.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers, checkpoint=tmp_path / "kept")


def test_a_folder_with_other_files_keeps_them(world, tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers, checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_other_weights_are_other_answers(world, tmp_path):
    with pytest.raises(Killed):
        LogisticCompleter(2, random_state=0).fit(
            world.pairs, world.answers, callback=killed_after(2), checkpoint=tmp_path / "kept"
        )
    weight = np.linspace(1.0, 2.0, len(world.answers))
    with pytest.raises(ValueError, match="other answers"):
        LogisticCompleter(2, random_state=0).fit(
            world.pairs, world.answers, weight, checkpoint=tmp_path / "kept"
        )
    with pytest.raises(ValueError, match="keeps no checkpoints"):
        HingeCompleter(2, method="paper", effects=False, random_state=0).fit(
            world.pairs, world.answers, checkpoint=tmp_path / "other"
        )
