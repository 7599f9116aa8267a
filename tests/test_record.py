"""What a model file carries beside the model, and files that were made to mislead."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onebit
from onebit import LogisticCompleter, NuclearNormCompleter, Observations, simulate
from onebit.certificates.ladder import Ladder
from onebit.completers.record import certificate_from_dict, certificate_to_dict
from onebit.data import storage


@pytest.fixture(scope="module")
def world():
    return simulate.world("B2", rank=2, shape=(40, 30), density=0.8, seed=5, repeats=True)


@pytest.fixture(scope="module")
def model(world):
    return LogisticCompleter(2, pattern=None, random_state=0, max_iter=30).fit(
        world.pairs, world.answers, certify=0.2
    )


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("record") / "model.onebit"
    model.save(path)
    return path


def test_the_record_counts_what_was_there(world, model):
    record = model.describe()
    frame = pd.DataFrame(world.pairs, columns=["row", "column"]).assign(yes=world.answers > 0)
    for side, counts, yes in (
        ("row", record.row_counts, record.row_yes),
        ("column", record.column_counts, record.column_yes),
    ):
        groups = frame.groupby(side)["yes"]
        np.testing.assert_array_equal(counts, groups.count())
        np.testing.assert_array_equal(yes, groups.sum())
    assert record.n_answers == len(world.answers)
    assert record.n_held_out == round(0.2 * len(world.answers))


def test_rows_without_answers_count_zero():
    matrix = np.array([[np.nan, 1.0], [np.nan, np.nan], [0.0, 1.0], [np.nan, np.nan]])
    model = LogisticCompleter(0).fit(matrix, certify=0)
    record = model.describe()
    assert record.row_counts.tolist() == [1, 0, 2, 0]
    assert record.row_yes.tolist() == [1, 0, 1, 0]
    assert record.column_yes.tolist() == [0, 2]


def test_the_most_surprising_answers_are_the_least_likely(model):
    found = model.describe().surprises
    answers = model.kept_answers()
    view = answers.fitted.by_row  # a held-out answer that was looked at could certify nothing
    yes = model.predictions(view.owners(), view.index).probability
    likelihood = np.where(view.sign > 0, yes, 1 - yes)
    np.testing.assert_allclose(found.probability, np.sort(likelihood)[:50])
    assert (np.diff(found.probability) >= 0).all()
    for k in range(5):
        probability = model.predictions(found.rows[k : k + 1], found.columns[k : k + 1]).probability[0]
        assert found.probability[k] == pytest.approx(
            probability if found.sign[k] > 0 else 1 - probability
        )


def test_the_fingerprint_knows_answers_and_ids_but_not_their_order(world, rng):
    order = rng.permutation(len(world.answers))
    seen = Observations.from_pairs(world.pairs, world.answers)
    shuffled = Observations.from_pairs(world.pairs[order], world.answers[order])
    assert seen.fingerprint() == shuffled.fingerprint()
    other = world.answers.copy()
    other[0] = -other[0]
    assert Observations.from_pairs(world.pairs, other).fingerprint() != seen.fingerprint()
    assert Observations.from_pairs(world.pairs + 1, world.answers).fingerprint() != seen.fingerprint()


def test_certificates_of_every_kind_come_back(model):
    for certificate in (
        model.certify(0.1),
        model.certify(0.1, by="answer"),
        model.certify_selective(0.05),
        model.certify(0.05, ("pac-bayes-kl", "hold-out")),
    ):
        again = certificate_from_dict(json.loads(json.dumps(certificate_to_dict(certificate))))
        assert again == certificate
        assert str(again) == str(certificate)


def test_a_loaded_model_certifies_as_the_fitted_one(model, saved):
    again = onebit.load(saved)
    for name in ("start", "index", "sign"):
        ours, theirs = (getattr(m.kept_answers().everything.by_row, name) for m in (model, again))
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(model.kept_answers().held, again.kept_answers().held)
    for method in ("pac-bayes-kl", "progressive", "hold-out"):
        assert again.certify(method=method) == model.certify(method=method)
    assert again.refit().certify() == model.refit().certify()
    assert again.record_.fingerprint == model.kept_answers().everything.fingerprint()


def test_a_ladder_of_some_rungs_shares_delta_among_these(model):
    ladder = model.certify(0.1, ("pac-bayes-kl", "catoni", "hold-out"))
    assert isinstance(ladder, Ladder)
    assert [rung.delta for rung in ladder.certificates] == [0.05, 0.05]
    assert ladder.certificates[1] == model.certify(0.05, "catoni")
    assert ladder.own == model.certify(0.1, "hold-out")  # it stands apart, at the whole delta
    with pytest.raises(ValueError, match="no certificate 'magic'"):
        model.certify(0.1, ("hold-out", "magic"))


def test_answers_can_be_kept_out_of_the_file(model, tmp_path):
    path = tmp_path / "m.onebit"
    model.save(path)
    assert len(onebit.load(path).record_.surprises.rows) > 0
    model.save(path, answers=False)
    again = onebit.load(path)
    assert again.record_.n_answers == model.n_observations_
    assert again.certify() == model.certify()
    assert len(again.record_.surprises.rows) == 0  # which are answers too
    with pytest.raises(ValueError, match="has not kept its answers"):
        again.kept_answers()


def test_folded_in_ids_have_no_answers(world, tmp_path):
    model = LogisticCompleter(1, pattern=None, random_state=0).fit(
        world.pairs, world.answers, certify=0.1
    )
    model.fold_in([(1000, 0), (1000, 1)], [1, 0])
    model.save(tmp_path / "m.onebit")
    again = onebit.load(tmp_path / "m.onebit")
    assert len(again.rows_) == 41
    assert again.kept_answers().everything.shape == (40, 30)
    assert again.certify() == model.certify()


def test_a_file_of_before_is_read(model, saved, tmp_path):
    tensors, content = storage.read(saved, "model")
    tensors = {n: t for n, t in tensors.items() if not n.startswith(("record.", "answers."))}
    del content["record"], content["answers_shape"]
    storage.write(tmp_path / "old.onebit", "model", tensors, content)
    again = onebit.load(tmp_path / "old.onebit")
    assert again.record_ is None
    assert again.certify() == model.certify()


def damaged(saved, tmp_path, change):
    tensors, content = storage.read(saved, "model")
    tensors = {name: array.copy() for name, array in tensors.items()}
    change(tensors, content)
    path = tmp_path / "damaged.onebit"
    storage.write(path, "model", tensors, content)
    return path


CHANGES = {
    "a column that is not there": lambda t, c: t["answers.index"].__setitem__(0, 999),
    "a negative column": lambda t, c: t["answers.index"].__setitem__(0, -1),
    "starts that fall": lambda t, c: t["answers.start"].__setitem__(3, 10_000),
    "a sign of seven": lambda t, c: t["answers.sign"].__setitem__(0, 7),
    "fewer signs": lambda t, c: t.update({"answers.sign": t["answers.sign"][:-1]}),
    "fewer rows": lambda t, c: t.update({"rows.mean": t["rows.mean"][:-1]}),
    "narrow covariances": lambda t, c: t.update({"rows.covariance": t["rows.covariance"][:, :1]}),
    "another rank": lambda t, c: c["fitted"]["posterior"]["hierarchy"].update({"rank": 9}),
    "no ids": lambda t, c: t.pop("ids.rows"),
    "no settings": lambda t, c: c.pop("parameters"),
    "unknown settings": lambda t, c: c["parameters"].update({"bogus": 1}),
    "an unknown class": lambda t, c: c.update({"class": "Trojan"}),
    "not finite": lambda t, c: t["rows.mean"].__setitem__((0, 0), np.nan),
    "half a certificate": lambda t, c: c["record"].update(certificates=[{"kind": "ladder"}]),
    "a class that is a list": lambda t, c: c.update({"class": []}),
    "held-out answers of two lengths": lambda t, c: t.update({"held_out.wrong": t["held_out.wrong"][1:]}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_file_with_a_right_checksum_and_wrong_content_is_refused(saved, tmp_path, what):
    path = damaged(saved, tmp_path, CHANGES[what])
    with pytest.raises(storage.FileError, match=r"damaged\.onebit"):
        onebit.load(path)


def test_factors_that_do_not_fit_are_refused(world, tmp_path):
    path = tmp_path / "m.onebit"
    NuclearNormCompleter(2, max_iter=5, tol=10.0).fit(world.pairs, world.answers).save(path)
    bad = damaged(path, tmp_path, lambda t, c: t.update({"left": t["left"][:-1]}))
    with pytest.raises(storage.FileError, match=r"left has the shape \(39, 9\), not \(40, any\)"):
        onebit.load(bad)


JSON = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(st.integers(0, 3), max_size=3),
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_content_makes_the_loader_fail_in_another_way(saved, tmp_path, data):
    """Replace any one value anywhere in the file's JSON, or drop or reshape an array."""

    def change(tensors, content):
        if data.draw(st.booleans()):
            name = data.draw(st.sampled_from(sorted(tensors)))
            array = tensors.pop(name)
            how = data.draw(st.sampled_from(["drop", "cut", "flat", "float", "huge"]))
            if how != "drop":
                tensors[name] = {
                    "cut": array[:-1],
                    "flat": array.reshape(-1),
                    "float": array.astype(np.float64),
                    "huge": np.full_like(array, 120),
                }[how]
            return
        part = content
        while True:
            key = data.draw(st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part))))
            if not isinstance(part[key], (dict, list)) or not part[key] or data.draw(st.booleans()):
                break
            part = part[key]
        part[key] = data.draw(JSON)

    path = damaged(saved, tmp_path, change)
    try:
        model = onebit.load(path)
    except storage.FileError:
        return
    model.n_jobs = 1  # another number of threads is the caller's affair
    rows = np.zeros(3, dtype=np.int32)
    assert model.predictions(rows, rows).probability.shape == (3,)
