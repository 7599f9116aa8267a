"""What users know of rows and columns: tables in, priors, effects and cold starts out."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

import onebit
from onebit import AutoCompleter, GibbsCompleter, HingeCompleter, LogisticCompleter, NuclearNormCompleter
from onebit.data.features import learnt
from onebit.data.given_features import FeatureError, given
from onebit.data.joining import with_features
from onebit.data.observations import Observations

CITIES = {"A": 0.0, "B": 0.5, "C": -0.5}


def world(seed, rows=300, columns=60, each=12, signal=1.0):
    """Rows whose effects depend on age, membership and city, and factors that nothing explains."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame(
        {
            "person": [f"p{i:04d}" for i in range(rows)],
            "age": rng.normal(40.0, 10.0, rows),
            "member": rng.random(rows) < 0.4,
            "city": rng.choice(list(CITIES), rows),
        }
    )
    told = 0.06 * (people["age"] - 40.0) + 0.8 * people["member"] + people["city"].map(CITIES)
    effect = signal * told.to_numpy() + 0.5 * rng.normal(size=rows)
    own = np.repeat(np.arange(rows), each)
    other = rng.integers(0, columns, len(own))
    easy, left, right = rng.normal(size=columns), rng.normal(size=rows), 0.7 * rng.normal(size=columns)
    score = effect[own] + easy[other] + left[own] * right[other]
    answers = (rng.random(len(own)) < 1.0 / (1.0 + np.exp(-score))).astype(int)
    pairs = pd.DataFrame({"person": people["person"].to_numpy()[own], "item": other})
    return people, pairs, answers, effect


def true_effects(people):
    share = people["city"].value_counts(normalize=True)
    average = sum(share[city] * value for city, value in CITIES.items())
    cities = {f"city = {city}": value - average for city, value in CITIES.items()}
    return {"age": 0.06 * people["age"].std(ddof=0), "member": 0.8} | cities


def test_features_become_standardised_numbers():
    frame = pd.DataFrame(
        {
            "age": [10.0, 20.0, None, 40.0],
            "yes": [True, False, True, True],
            "kind": ["a", "b", None, "a"],
        },
        index=["w", "x", "y", "z"],
    )
    seen = Observations.from_pairs([("w", 0), ("x", 0), ("y", 1), ("v", 1)], [1, 0, 1, 0])
    seen = with_features(seen, (frame, None))
    encoder = seen.features[0].encoder
    assert encoder.names == ("age", "age is missing", "yes", "kind = a", "kind = b", "kind is missing")
    assert list(seen.rows.labels) == ["v", "w", "x", "y", "z"]  # z has no answer, v no features
    told = seen.features[0].times(np.eye(6))
    ages = np.array([10.0, 20.0, 40.0])
    scaled = (ages - ages.mean()) / (2 * ages.std())
    np.testing.assert_allclose(told[:, 0], [0.0, scaled[0], scaled[1], 0.0, scaled[2]], atol=1e-12)
    np.testing.assert_allclose(told[1:, 1], [-0.25, -0.25, 0.75, -0.25])
    np.testing.assert_allclose(told[1:, 2], [0.25, -0.75, 0.25, 0.25])
    np.testing.assert_allclose(told[1:, 3], [1 / 3, -2 / 3, 0.0, 1 / 3])
    np.testing.assert_array_equal(told[0], 0.0)
    np.testing.assert_allclose(told.sum(axis=0), 0.0, atol=1e-12)
    vectors = np.random.default_rng(0).normal(size=(5, 2))
    np.testing.assert_allclose(seen.features[0].transposed_times(vectors), told.T @ vectors)


@pytest.mark.parametrize("kind", ["pandas", "index", "polars", "pyarrow"])
def test_every_kind_of_table_says_the_same(kind):
    people, pairs, answers, _ = world(0, rows=60)
    frame = {
        "pandas": people,
        "index": people.set_index("person"),
        "polars": pl.from_pandas(people),
        "pyarrow": pa.Table.from_pandas(people, preserve_index=False),
    }[kind]
    model = LogisticCompleter(1, max_iter=15, random_state=0).fit(pairs, answers, row_features=frame)
    known = LogisticCompleter(1, max_iter=15, random_state=0).fit(pairs, answers, row_features=people)
    np.testing.assert_allclose(model.predict_proba(pairs), known.predict_proba(pairs), atol=1e-12)


def test_a_sparse_matrix_is_never_made_dense():
    rng = np.random.default_rng(0)
    ids = np.arange(500)
    matrix = scipy.sparse.random_array((500, 2000), density=0.005, rng=rng, format="csr")
    matrix.data[:] = 1.0
    pairs, answers = rng.integers(0, 500, (3000, 2)), rng.integers(0, 2, 3000)
    seen = Observations.from_pairs(pairs, answers)
    seen = with_features(seen, ((ids, matrix), None))
    told = seen.features[0]
    assert scipy.sparse.issparse(told.matrix)
    dense = told.times(np.eye(2000))
    np.testing.assert_allclose(dense.mean(axis=0), 0.0, atol=1e-12)
    model = LogisticCompleter(2, max_iter=10).fit(pairs, answers, row_features=(ids, matrix))
    assert len(model.feature_effects_) == 2000
    assert np.isfinite(model.feature_effects_["sd"]).all()


def test_intervals_of_sampled_effects_cover_the_truth_and_nothing_is_pruned_to_nothing():
    """Twenty worlds with effects and twenty without."""
    covered, silent = [], []
    for seed in range(20):
        people, pairs, answers, _ = world(seed)
        chain = {"n_samples": 90, "n_chains": 1}
        model = LogisticCompleter(3, inference="sampling", **chain, random_state=seed)
        found = model.fit(pairs, answers, row_features=people).feature_effects_.set_index("feature")
        truth = pd.Series(true_effects(people))
        covered.append((found["low"] <= truth).to_numpy() & (truth <= found["high"]).to_numpy())
        people, pairs, answers, _ = world(100 + seed, signal=0.0)
        model = LogisticCompleter(3, random_state=seed).fit(pairs, answers, row_features=people)
        regression, slopes = model.posterior_.hierarchy.regressions[0], model.posterior_.hyper.slopes[0]
        silent.append(slopes.strength[list(regression.groups).index("features"), -1])
    assert 0.82 < np.mean(covered) < 0.98
    assert np.median(silent) < 0.02


def test_a_variational_model_gives_effects_without_intervals():
    people, pairs, answers, _ = world(1)
    found = LogisticCompleter(2).fit(pairs, answers, row_features=people).feature_effects_
    assert list(found.columns) == ["side", "feature", "effect", "sd"]
    assert found.set_index("feature")["effect"]["member"] > 0.4


@pytest.mark.parametrize("kind", [LogisticCompleter, HingeCompleter, AutoCompleter])
def test_ids_without_answers_are_known_by_their_features(kind, tmp_path):
    people, pairs, answers, effect = world(2)
    cold = people["person"].isin(people["person"][-60:])
    warm = ~pairs["person"].isin(people["person"][cold]).to_numpy()
    settings = {} if kind is AutoCompleter else {"rank": 2}
    model = kind(random_state=0, **settings).fit(pairs[warm], answers[warm], row_features=people)
    asked = pd.DataFrame({"person": people["person"][cold], "item": 0})
    said = model.decision_function(asked)
    assert np.corrcoef(said, effect[cold])[0, 1] > 0.6
    model.save(tmp_path / "m.onebit")
    again = onebit.load(tmp_path / "m.onebit")
    np.testing.assert_array_equal(again.decision_function(asked), said)
    pd.testing.assert_frame_equal(again.feature_effects_, model.feature_effects_)


@pytest.mark.parametrize("inference", ["variational", "sampling"])
def test_new_ids_fold_in_with_features_and_with_answers(inference):
    people, pairs, answers, effect = world(3)
    cold = people["person"].isin(people["person"][-60:]).to_numpy()
    warm = ~pairs["person"].isin(people["person"][cold]).to_numpy()
    model = LogisticCompleter(2, inference=inference, n_samples=80, n_chains=1, random_state=0)
    model.fit(pairs[warm], answers[warm], row_features=people[~cold])
    model.fold_in(row_features=people[cold])
    assert model.folded_in_.rows == 60
    asked = pd.DataFrame({"person": people["person"][cold], "item": 0})
    alone = model.decision_function(asked)
    assert np.corrcoef(alone, effect[cold])[0, 1] > 0.6
    other = LogisticCompleter(2, inference=inference, n_samples=80, random_state=0)
    other.fit(pairs[warm], answers[warm], row_features=people[~cold])
    other.fold_in(pairs[~warm], answers[~warm], row_features=people[cold])
    both = other.decision_function(asked)
    assert np.corrcoef(both, effect[cold])[0, 1] > np.corrcoef(alone, effect[cold])[0, 1]


def test_features_of_columns_and_of_rows_go_together():
    people, pairs, answers, _ = world(4, rows=120)
    items = pd.DataFrame(
        {"item": np.arange(60), "length": np.arange(60) % 7, "new": np.arange(60) % 2 == 0}
    )
    model = LogisticCompleter(2, random_state=0).fit(
        pairs, answers, row_features=people, column_features=items
    )
    assert set(model.feature_effects_["side"]) == {"row", "column"}
    regression = model.posterior_.hierarchy.regressions[0]
    assert list(regression.groups) == ["features", "pattern"]


def test_a_stopped_fit_with_features_goes_on_and_other_features_are_refused(tmp_path):
    people, pairs, answers, _ = world(5, rows=100)
    settings = {"rank": 2, "random_state": 0, "tol": 1e-9, "max_iter": 40}

    def stopping(progress):
        if progress.round == 20:
            raise KeyboardInterrupt

    whole = LogisticCompleter(**settings).fit(pairs, answers, row_features=people)
    with pytest.raises(KeyboardInterrupt):
        LogisticCompleter(**settings).fit(
            pairs, answers, row_features=people, checkpoint=tmp_path / "c", callback=stopping
        )
    other = people.assign(age=people["age"] ** 2)
    with pytest.raises(ValueError, match="row features"):
        LogisticCompleter(**settings).fit(pairs, answers, row_features=other, checkpoint=tmp_path / "c")
    resumed = LogisticCompleter(**settings).fit(
        pairs, answers, row_features=people, checkpoint=tmp_path / "c"
    )
    np.testing.assert_array_equal(resumed.predict_proba(pairs), whole.predict_proba(pairs))


def bad(**change):
    frame = pd.DataFrame({"id": ["a", "b", "c", "d"], "x": [1.0, 2.0, 3.0, 5.0]})
    return frame.assign(**change)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (bad(id=["a", "b", "b", "d"]), "the id 'b' stands twice among the row features"),
        (bad(id=["a", None, "c", "d"]), "an id of the row features is missing"),
        (bad(x=[1.0, 1.0, 1.0, 1.0]), "'x' is the same for everyone"),
        (bad(x=["k", "k", "k", "k"]), "'x' is the same for everyone"),
        (bad(x=[1.0, np.inf, 2.0, 3.0]), "'x' of 'b' is infinite"),
        (bad(x=[None] * 4), "'x' has no value at all"),
        (bad(x=[datetime.date(2020, 1, k) for k in (1, 2, 3, 4)]), "holds date values"),
        (bad(x=[1.0, "k", 2.0, 3.0]), "holds"),
        (bad(id=["u", "v", "w", "x"]), "are they of the other side"),
        (bad()[["id"]], "at least one more holds what is known"),
        (bad()[:0], "empty table"),
        ((["a", "b"], np.ones((3, 2))), "2 ids of row features for a matrix with 3 lines"),
        ((["a", "b"], np.array([[1.0], [np.nan]])), "missing or infinite"),
    ],
)
def test_bad_features_are_refused_in_one_clear_sentence(frame, words):
    with pytest.raises(FeatureError, match=words):
        LogisticCompleter(1).fit([("a", 0), ("b", 1), ("c", 0)], [1, 0, 1], row_features=frame)


def test_text_is_no_category():
    frame = pd.DataFrame({"id": range(200), "title": [f"The {k}th film" for k in range(200)]})
    with pytest.raises(FeatureError, match="200 different values in 200 lines"):
        learnt(given(frame, "row"))


def test_what_takes_no_features_says_so():
    for kind in (GibbsCompleter, NuclearNormCompleter):
        with pytest.raises(ValueError, match="takes no features"):
            kind().fit([("a", 0), ("b", 1), ("c", 0)], [1, 0, 1], row_features=bad())
    model = LogisticCompleter(1).fit([("a", 0), ("b", 1), ("c", 0)], [1, 0, 1])
    with pytest.raises(FeatureError, match="fitted without row features"):
        model.fold_in(row_features=bad())
    with pytest.raises(AttributeError, match="without features"):
        model.feature_effects_  # noqa: B018
    with pytest.raises(TypeError, match="a table keyed by id"):
        LogisticCompleter(1).fit([("a", 0), ("b", 1)], [1, 0], row_features=[1, 2])


def test_features_for_fold_in_must_be_those_of_the_fit():
    people, pairs, answers, _ = world(6, rows=60)
    model = LogisticCompleter(1, max_iter=10).fit(pairs, answers, row_features=people)
    new = people[:1].assign(person="new")
    with pytest.raises(FeatureError, match="lack the column 'age'"):
        model.fold_in(row_features=new.drop(columns="age"))
    with pytest.raises(FeatureError, match="'Z', which the model has not seen"):
        model.fold_in(row_features=new.assign(city="Z"))
    model.fold_in(row_features=new.assign(city=None, age=np.nan))
    assert np.isfinite(model.decision_function([("new", 0)])).all()


def test_features_of_the_other_side_are_refused_by_their_name():
    people, pairs, answers, _ = world(7, rows=60)
    with pytest.raises(FeatureError, match="keyed by 'person', which is the name of the other side"):
        LogisticCompleter(1).fit(pairs, answers, column_features=people)


@pytest.mark.parametrize(
    "joined",
    [
        lambda x: 1_700_000_000 + x,
        lambda x: 1_700_000_000_000 + 10 * x,
        lambda x: 1_700_000_000_000_000_000 + 1_000_000 * x,
        lambda x: 1e14 + x,
        lambda x: 1e16 + 2.0 * x,
    ],
    ids=["seconds", "milliseconds", "nanoseconds", "far", "farther"],
)
def test_effects_of_numbers_do_not_depend_on_where_they_are_counted_from(joined, tmp_path):
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 60, 900), rng.integers(0, 15, 900)
    answers = rng.random(900) < 1.0 / (1.0 + np.exp(-(rows - 30.0) / 12.0))
    index = pd.Index(np.arange(60), name="id")

    def fitted(values):
        told = pd.DataFrame({"joined": values}, index=index)
        model = LogisticCompleter(2, random_state=0)
        return model.fit(np.stack([rows, columns], 1), answers, row_features=told)

    plain, far = fitted(np.arange(60)), fitted(joined(np.arange(60)))
    np.testing.assert_allclose(
        far.feature_effects_[["effect", "sd"]], plain.feature_effects_[["effect", "sd"]], rtol=1e-4
    )
    far.save(tmp_path / "m.onebit")
    new = pd.DataFrame({"joined": joined(np.array([5, 55]))}, index=pd.Index([100, 101], name="id"))
    early, late = (
        onebit.load(tmp_path / "m.onebit")
        .fold_in(row_features=new)
        .predict_proba([(100, 0), (101, 0)])[:, 1]
    )
    assert late - early > 0.3


def test_columns_of_a_matrix_that_hardly_differ_beside_their_size_are_refused():
    people, pairs, answers, _ = world(8, rows=60)
    for offset in (1e9, 1e14):
        matrix = np.column_stack([offset + np.arange(60.0), np.arange(60) % 7 == 0])
        with pytest.raises(
            FeatureError, match=r"'feature 0' is 1e\+.* differs by 17.* take a constant off"
        ):
            LogisticCompleter(1).fit(pairs, answers, row_features=(people["person"], matrix))
    same = np.column_stack([np.full(60, 1e14), np.arange(60.0)])
    LogisticCompleter(1).fit(pairs, answers, row_features=(people["person"], same))


def test_a_matrix_may_hold_an_entry_in_parts():
    start = np.array([0, 2, 4, 5, 6, 6])
    twice = scipy.sparse.csr_array((np.ones(6), np.array([0, 0, 0, 0, 1, 0]), start), shape=(5, 2))
    assert twice.nnz == 6
    parts, whole = (given((np.arange(5), matrix), "row") for matrix in (twice, twice.toarray()))
    np.testing.assert_allclose(learnt(parts).scale, learnt(whole).scale)


def test_rounding_far_from_zero_is_no_feature():
    people, pairs, answers, _ = world(8, rows=60)
    same = people[["person"]].assign(rate=np.where(np.arange(60) % 2, 0.3, 0.1 + 0.2))
    with pytest.raises(FeatureError, match="'rate' is the same for everyone"):
        LogisticCompleter(1).fit(pairs, answers, row_features=same)


def test_numbers_that_no_double_holds_are_features_of_another_kind():
    people, pairs, answers, _ = world(8, rows=60)
    told = people[["person"]].assign(much=pd.Series([10**400, *range(59)], dtype=object))
    with pytest.raises(FeatureError, match="'much' holds something else than numbers"):
        LogisticCompleter(1).fit(pairs, answers, row_features=told)


def test_a_loaded_model_knows_its_features_when_it_is_fitted_again(tmp_path):
    people, pairs, answers, _ = world(8, rows=60)
    model = LogisticCompleter(1, random_state=0).fit(pairs, answers, certify=0.1, row_features=people)
    model.save(tmp_path / "m.onebit")
    again = onebit.load(tmp_path / "m.onebit")
    ours, theirs = model.refit(), again.refit()
    pd.testing.assert_frame_equal(ours.feature_effects_, theirs.feature_effects_)
    np.testing.assert_array_equal(ours.predict_proba(pairs), theirs.predict_proba(pairs))


@pytest.mark.parametrize("inference", ["variational", "sampling"])
def test_the_report_shows_the_strongest_effects(inference, monkeypatch):
    from onebit.report import told
    from onebit.report.page import render_report

    people, pairs, answers, _ = world(9, rows=60)
    model = LogisticCompleter(1, inference=inference, n_samples=30, random_state=0)
    page = render_report(model.fit(pairs, answers, certify=0.1, row_features=people))
    assert "What the features tell" in page
    assert "city = B" in page
    assert ("90 % interval" in page) == (inference == "sampling")
    assert "strongest of" not in page
    monkeypatch.setattr(told, "MOST", 2)
    assert "These are the 2 strongest of 5;" in render_report(model)
    bare = LogisticCompleter(1, random_state=0).fit(pairs, answers, certify=0.1)
    assert "What the features tell" not in render_report(bare)


def test_an_index_with_a_name_holds_ids_and_one_that_numbers_lines_does_not():
    frame = pd.DataFrame({"x": [1.0, 2.0, 4.0, 3.0], "y": [1.0, 1.0, 2.0, 2.0]})
    assert list(given(frame.set_axis(pd.RangeIndex(1, 5, name="id"), axis=0), "row").ids) == [1, 2, 3, 4]
    assert list(given(frame.set_axis(list("abcd"), axis=0), "row").ids) == list("abcd")
    assert list(given(frame, "row").ids) == [1.0, 2.0, 4.0, 3.0]
    assert list(given(frame[frame["x"] > 1], "row").ids) == [2.0, 4.0, 3.0]
    with pytest.raises(FeatureError, match="the id 2 stands twice"):
        given(frame.set_axis(pd.Index([1, 2, 2, 3], name="id"), axis=0), "row")


@pytest.mark.parametrize("inference", ["variational", "sampling"])
def test_of_an_id_without_answers_the_pattern_is_unknown_not_empty(inference):
    """Columns that many answer are liked: a new column is not therefore disliked."""
    rng = np.random.default_rng(0)
    popularity = rng.normal(size=80)
    pairs = np.array(
        [(i, j) for i in range(120) for j in range(80) if rng.random() < 0.05 + 0.3 * (popularity[j] > 0)]
    )
    answers = (rng.random(len(pairs)) < 1 / (1 + np.exp(-2.5 * popularity[pairs[:, 1]]))).astype(int)
    items = pd.DataFrame({"kind": rng.random(100) < 0.5}, index=pd.Index(np.arange(100), name="item"))
    model = LogisticCompleter(2, inference=inference, n_samples=100, random_state=0)
    model.fit(pairs, answers, column_features=items)
    new = model.predict_proba([(i, j) for i in range(40) for j in range(80, 100)])[:, 1]
    assert abs(new.mean() - answers.mean()) < 0.1
    # And as uncertain as columns are beside each other.
    unknown = model.predict_uncertainty([(0, 85)])[0]
    assert unknown > 0.8 * np.std(model.column_effects_.iloc[:80])


def fitted_with(frame):
    rng = np.random.default_rng(0)
    pairs = pd.DataFrame({"person": rng.choice(frame.index, 400), "item": rng.integers(0, 20, 400)})
    return LogisticCompleter(1, max_iter=5, random_state=0).fit(
        pairs, rng.integers(0, 2, 400), row_features=frame
    )


def people_of(**columns):
    return pd.DataFrame(columns, index=pd.Index([f"p{k}" for k in range(40)], name="person"))


def test_that_a_value_is_missing_may_be_all_that_a_column_tells():
    half = np.arange(40) % 2 == 0
    model = fitted_with(people_of(tier=np.where(half, "gold", None), paid=np.where(half, 1.0, np.nan)))
    assert "tier is missing" in set(model.feature_effects_["feature"])
    new = pd.DataFrame({"tier": [np.nan], "paid": [np.nan]}, index=pd.Index(["new"], name="person"))
    assert np.isfinite(model.fold_in(row_features=new).decision_function([("new", 0)])).all()


def test_new_values_must_be_of_the_fitted_kind():
    model = fitted_with(people_of(member=np.arange(40) % 2 == 0, level=list("12x2") * 10))
    new = pd.DataFrame({"member": [7], "level": [1]}, index=pd.Index(["new"], name="person"))
    with pytest.raises(FeatureError, match="was a yes or no"):
        model.fold_in(row_features=new)
    model.fold_in(
        row_features=new.assign(member=1)
    )  # a level that was read as a number is the same level
    with pytest.raises(FeatureError, match="leave it blank"):
        model.fold_in(row_features=new.assign(member=1, level=9).rename(index={"new": "newer"}))


def test_a_matrix_that_tells_nothing_is_taken_and_tells_nothing(tmp_path):
    rng = np.random.default_rng(0)
    pairs, answers = rng.integers(0, 30, (400, 2)), rng.integers(0, 2, 400)
    for pattern in (None, "both"):
        model = LogisticCompleter(1, max_iter=5, pattern=pattern, random_state=0)
        model.fit(pairs, answers, row_features=(np.arange(30), np.ones((30, 2))))
        with pytest.raises(AttributeError, match="without"):
            model.feature_effects_  # noqa: B018
        model.save(tmp_path / "m.onebit")
        again = onebit.load(tmp_path / "m.onebit")
        np.testing.assert_array_equal(again.predict_proba(pairs), model.predict_proba(pairs))


def test_numbers_of_any_kind_are_numbers_and_beyond_reason_are_refused():
    from decimal import Decimal

    plain = fitted_with(people_of(x=np.arange(40.0)))
    assert fitted_with(people_of(x=[Decimal(k) for k in range(40)])).objective_ == plain.objective_
    assert fitted_with(people_of(x=np.arange(40.0))["x"].to_frame()).objective_ == plain.objective_
    with pytest.raises(FeatureError, match="choose a larger unit"):
        fitted_with(people_of(x=np.arange(40.0) * 1e200))
    with pytest.raises(FeatureError, match="several levels"):
        given(people_of(x=np.arange(40.0)).set_index(["x"], append=True).assign(y=1.0), "row")
