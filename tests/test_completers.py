"""One suite that every completer passes: scikit-learn's ways, ids, answers, and bad input."""

import functools
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.calibration import calibration_curve
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

import onebit
from onebit import (
    AutoCompleter,
    GibbsCompleter,
    HingeCompleter,
    LogisticCompleter,
    NuclearNormCompleter,
    Observations,
)
from onebit.completers import filling
from onebit.model.priors import InverseGamma

MAKERS = {
    "logistic": lambda: LogisticCompleter(3, random_state=0),
    "logistic diagonal gamma": lambda: LogisticCompleter(
        3, covariance="diagonal", prior="gamma", random_state=0
    ),
    "hinge": lambda: HingeCompleter(3, random_state=0),
    "hinge sparse": lambda: HingeCompleter(3, sparse="columns", random_state=0),
    "gibbs": lambda: GibbsCompleter(3, temperature=2.0, random_state=0),
    "hinge paper": lambda: HingeCompleter(3, method="paper", max_iter=40, random_state=0),
    "nuclear norm": lambda: NuclearNormCompleter(2, random_state=0),
    "sampled": lambda: LogisticCompleter(
        2, inference="sampling", n_samples=50, n_burn_in=30, n_chains=2, settle=None, random_state=0
    ),
    "auto": lambda: AutoCompleter(losses=("logistic", "hinge"), sampling_seconds=0, random_state=0),
}
ALL = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
BAYES = pytest.mark.parametrize(
    "make", [make for name, make in MAKERS.items() if name != "nuclear norm"],
    ids=[name for name in MAKERS if name != "nuclear norm"],
)  # fmt: skip


@pytest.fixture(scope="module")
def named(small_world):
    """The small world with string row ids, integer column ids and {0, 1} answers."""
    frame = pd.DataFrame(
        {"row": [f"r{i:02d}" for i in small_world.pairs[:, 0]], "column": small_world.pairs[:, 1]}
    )
    return frame, (small_world.answers > 0).astype(int)


@pytest.fixture(scope="module")
def fitted(named):
    """What each maker makes, fitted to the small world once; nobody may change it."""
    return functools.cache(lambda make: make().fit(*named))


@ALL
def test_a_completer_beats_guessing_and_writes_answers_as_it_read_them(make, named):
    frame, answers = named
    model = make().fit(frame[:1200], answers[:1200])
    predicted = model.predict(frame[1200:])
    assert set(np.unique(predicted)) <= {0, 1}
    assert model.classes_.tolist() == [0, 1]
    accuracy = (predicted == answers[1200:]).mean()
    assert accuracy > 0.7
    assert model.score(frame[1200:], answers[1200:]) == pytest.approx(accuracy)
    scores = model.decision_function(frame[1200:])
    np.testing.assert_array_equal(predicted, (scores > 0).astype(int))


@ALL
def test_probabilities_are_probabilities_and_go_with_the_predictions(make, named, fitted):
    frame, answers = named
    model = fitted(make)
    probability = model.predict_proba(frame)
    assert probability.shape == (len(frame), 2)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert ((probability > 0) & (probability < 1)).all()
    calibration_curve(answers, probability[:, 1])


@ALL
def test_every_kind_of_table_gives_the_same_model(make, named, fitted):
    frame, answers = named
    expected = fitted(make).predict_proba(frame[:20])
    tables = [
        frame.to_numpy(dtype=object),
        list(frame.itertuples(index=False, name=None)),
        pl.DataFrame({name: frame[name].tolist() for name in frame}),
        pa.table({name: frame[name].tolist() for name in frame}),
    ]
    for table in tables[:2] if isinstance(make(), AutoCompleter) else tables:
        model = make().fit(table, answers)
        np.testing.assert_array_equal(model.predict_proba(frame[:20]), expected)


@ALL
def test_a_matrix_can_be_fitted_directly(make, small_world):
    dense = np.full(small_world.truth.shape, np.nan)
    dense[tuple(small_world.pairs.T)] = small_world.answers
    seen = Observations.from_pairs(small_world.pairs, small_world.answers)
    sparse = scipy.sparse.coo_array((small_world.answers, tuple(small_world.pairs.T)), shape=dense.shape)
    first, *others = (make().fit(data).complete("score").to_numpy() for data in (dense, seen, sparse))
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-6)


@ALL
def test_scikit_learns_tools_work_as_they_are(make, named):
    frame, answers = named
    copy = clone(make())
    assert copy.get_params() == make().get_params()
    scores = cross_val_score(copy, frame, answers, cv=3)
    assert scores.mean() > 0.65
    probability = cross_val_predict(
        copy, frame.to_numpy(dtype=object), answers, cv=2, method="predict_proba"
    )
    assert probability.shape == (len(frame), 2)


def test_grid_search_chooses_a_temperature(named):
    frame, answers = named
    search = GridSearchCV(HingeCompleter(3), {"temperature": [0.01, 1.0]}, cv=3, scoring="neg_log_loss")
    search.fit(frame, answers)
    assert search.best_params_ == {"temperature": 1.0}


@ALL
def test_unknown_ids_fall_back_to_what_is_known(make, named, fitted):
    frame, _ = named
    model = fitted(make)
    unknown = pd.DataFrame({"row": ["nobody", "nobody", "r01"], "column": [3, 999, 999]})
    scores, probability = model.decision_function(unknown), model.predict_proba(unknown)
    assert np.isfinite(scores).all()
    assert np.isfinite(probability).all()
    if hasattr(model, "predict_uncertainty"):
        known = model.predict_uncertainty(frame)
        assert (model.predict_uncertainty(unknown) > np.median(known)).all()


def test_an_unknown_row_gets_the_effect_of_a_known_column():
    # Column "easy" is answered yes by nearly all, "hard" by nearly none.
    pairs = [(f"r{i}", column) for i in range(60) for column in ("easy", "hard")]
    answers = [int(column == "easy") if i % 10 else 1 - int(column == "easy")
               for i in range(60) for column in ("easy", "hard")]  # fmt: skip
    model = LogisticCompleter(1).fit(pairs, answers)
    easy, hard = model.predict_proba([("new", "easy"), ("new", "hard")])[:, 1]
    assert easy > 0.7
    assert hard < 0.3


@ALL
def test_ids_of_another_kind_are_an_error(make, fitted):
    model = fitted(make)
    with pytest.raises(TypeError, match="column ids here are strings"):
        model.predict(pd.DataFrame({"row": ["r01"], "column": ["3"]}))


@ALL
def test_saving_and_loading_changes_nothing(make, named, tmp_path):
    frame, answers = named
    model = make().fit(frame, answers.astype(bool))
    model.save(tmp_path / "model.onebit")
    again = onebit.load(tmp_path / "model.onebit")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert again.rank_ == model.rank_
    assert again.objective_ == model.objective_
    query = pd.concat([frame[:50], pd.DataFrame({"row": ["nobody"], "column": [2]})])
    np.testing.assert_array_equal(again.predict(query), model.predict(query))
    np.testing.assert_array_equal(again.predict_proba(query), model.predict_proba(query))
    pd.testing.assert_frame_equal(again.complete(), model.complete(), check_index_type=False)


@ALL
def test_the_filled_matrix_is_labelled(make, fitted):
    model = fitted(make)
    filled = model.complete("answer", everywhere=True)
    assert filled.shape == (50, 40)
    assert filled.loc["r07", 12] == model.predict([("r07", 12)])[0]
    chance = model.complete(everywhere=True)
    assert chance.loc["r07", 12] == pytest.approx(model.predict_proba([("r07", 12)])[0, 1])
    with pytest.raises(ValueError, match="output must be"):
        model.complete("everything")


@ALL
def test_the_filled_matrix_keeps_known_answers_and_predicts_the_blanks(make, named):
    """Also in files, for answers in words, and where an entry was answered twice, once each way."""
    frame, answers = named
    frame = pd.concat([frame, frame[:1]])
    answers = np.append(answers, 1 - answers[0])
    model = make().fit(frame, answers)
    share = pd.Series(answers > 0).groupby([frame["row"].to_numpy(), frame["column"].to_numpy()]).mean()
    known = share.unstack().reindex(index=model.rows_.labels, columns=model.columns_.labels)
    seen = known.notna().to_numpy()
    filled, plain = model.complete(), model.complete(everywhere=True)
    np.testing.assert_array_equal(filled.to_numpy()[seen], known.to_numpy()[seen])
    np.testing.assert_array_equal(filled.to_numpy()[~seen], plain.to_numpy()[~seen])
    assert (plain.to_numpy()[seen] != known.to_numpy()[seen]).all()
    # So that averages are shares: the known ones and the expected of the others.
    expected = (known.fillna(0).sum(axis=1) + plain.where(~seen, 0).sum(axis=1)) / known.shape[1]
    np.testing.assert_allclose(filled.mean(axis=1), expected)
    said = model.complete("answer").to_numpy()
    clear = seen & (known != 0.5).to_numpy()
    np.testing.assert_array_equal(said[clear] == model.classes_[1], known.to_numpy()[clear] > 0.5)
    own = model.complete("answer", everywhere=True).to_numpy()
    np.testing.assert_array_equal(said[~clear], own[~clear])


def test_a_folded_in_row_keeps_its_answers_in_the_filled_matrix_and_out_of_its_list(named, tmp_path):
    model = LogisticCompleter(2, random_state=0).fit(*named)
    model.fold_in([("new", 3), ("new", 4), ("new", 5)], [1, 0, 1])
    model.save(tmp_path / "m.onebit")
    for fitted in (model, onebit.load(tmp_path / "m.onebit")):
        assert fitted.complete().loc["new", [3, 4, 5]].tolist() == [1.0, 0.0, 1.0]
        listed = fitted.recommend("new", n=40)
        assert len(listed) == 37
        assert not set(listed["column"]) & {3, 4, 5}


def test_a_model_without_its_answers_fills_in_its_own_values_only(named, tmp_path):
    model = LogisticCompleter(2).fit(*named)
    model.save(tmp_path / "m.onebit", answers=False)
    again = onebit.load(tmp_path / "m.onebit")
    assert not again.answers_kept
    with pytest.raises(ValueError, match="has not kept its answers"):
        again.complete()
    assert again.complete(everywhere=True).equals(model.complete(everywhere=True))
    assert np.array_equal(again.complete("score"), model.complete("score"))


@ALL
def test_recommendations_take_and_return_ids(make, named, fitted):
    frame, _ = named
    model = fitted(make)
    listed = model.recommend(["r07", "r03"], n=4)
    assert listed.columns.tolist() == ["row", "rank", "column", "probability"]
    assert listed["row"].tolist() == ["r07"] * 4 + ["r03"] * 4
    for row, lines in listed.groupby("row"):
        answered = set(frame.loc[frame["row"] == row, "column"])
        blank = [column for column in model.columns_.labels if column not in answered]
        best = model.complete(everywhere=True).loc[row, blank].nlargest(4)
        np.testing.assert_allclose(lines["probability"], best)
        assert not set(lines["column"]) & answered
    assert len(model.recommend("r07", n=3)) == 3
    assert len(model.recommend(n=1)) == 50
    with pytest.raises(ValueError, match="the row 'nobody' is not known; fold_in"):
        model.recommend(["r07", "nobody"])
    with pytest.raises(ValueError, match="at least one; got 0"):
        model.recommend(n=0)


@ALL
def test_lists_of_columns_are_the_likeliest_blanks_of_each(make, named, fitted, monkeypatch):
    """However many columns are looked at together."""
    frame, _ = named
    model = fitted(make)
    everywhere, wanted = model.complete(everywhere=True), [3, 0]
    whole = None
    for block in (1, 10**6):
        monkeypatch.setattr(filling, "BLOCK", block)
        listed = model.recommend(columns=wanted, n=4, by="column")
        assert listed.columns.tolist() == ["column", "rank", "row", "probability"]
        assert listed["column"].tolist() == [3] * 4 + [0] * 4
        assert listed["rank"].tolist() == [1, 2, 3, 4] * 2
        for column, lines in listed.groupby("column"):
            answered = set(frame.loc[frame["column"] == column, "row"])
            blank = [row for row in model.rows_.labels if row not in answered]
            best = everywhere.loc[blank, column].nlargest(4)
            np.testing.assert_allclose(lines["probability"], best)
            assert not set(lines["row"]) & answered
        if whole is not None:
            pd.testing.assert_frame_equal(listed, whole)
        whole = listed
    most = model.recommend(columns=3, n=1000, by="column", answered=True)
    assert sorted(most["row"]) == sorted(model.rows_.labels)
    assert set(model.recommend(n=1, by="column")["column"]) == set(frame["column"])
    blanks = len(model.rows_) - frame.loc[frame["column"] == 3, "row"].nunique()
    assert len(model.recommend(columns=3, n=1000, by="column")) == blanks


def test_lists_of_columns_know_folded_in_answers_and_any_order_of_rows(tmp_path):
    rng = np.random.default_rng(0)
    pairs = [(row, column) for row in ("r10", "r9", "r1", "r2") for column in ("c2", "c10", "c1")]
    pairs = [pairs[k] for k in rng.permutation(12)[:9]]
    lines = [
        f"{row},{column},{answer}" for (row, column), answer in zip(pairs, [0, 1, 1] * 3, strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["row,column,answer", *lines]))
    model = LogisticCompleter(1, random_state=0).fit(onebit.read_answers(tmp_path / "t.csv"))
    assert not np.array_equal(model.rows_.listed, np.arange(len(model.rows_)))
    model.fold_in([("new", "c1"), ("new", "c2")], [1, 0])
    everywhere = model.complete(everywhere=True)
    known = {*pairs, ("new", "c1"), ("new", "c2")}
    listed = model.recommend(n=9, by="column")
    for column in ("c1", "c2", "c10"):
        lines = listed[listed["column"] == column]
        blank = [row for row in everywhere.index if (row, column) not in known]
        assert sorted(lines["row"]) == sorted(blank)
        np.testing.assert_allclose(lines["probability"], everywhere.loc[lines["row"], column])
        assert lines["probability"].is_monotonic_decreasing


def test_whose_lists_are_wanted_is_said_clearly(named):
    model = LogisticCompleter(1).fit(*named)
    with pytest.raises(
        ValueError, match='by is "row" \\(a list for each row\\) or "column", got \'col\''
    ):
        model.recommend(by="col")
    with pytest.raises(ValueError, match='lists are made for rows, and columns were named: by="column"'):
        model.recommend(columns=[3])
    with pytest.raises(ValueError, match='lists are made for columns, and rows were named: by="row"'):
        model.recommend(["r07"], by="column")
    with pytest.raises(ValueError, match="the column 999 is not known; fold_in adds a column"):
        model.recommend(columns=999, by="column")
    with pytest.raises(ValueError, match="number of rows for each column, at least one; got 0"):
        model.recommend(n=0, by="column")


def test_a_filled_matrix_larger_than_memory_is_refused(named, monkeypatch):
    model = LogisticCompleter(1).fit(*named)
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("M", (), {"available": 100})())
    with pytest.raises(MemoryError, match=r"50 x 40 needs .* GiB .* predict the pairs"):
        model.complete()


@BAYES
def test_folding_in_a_row_predicts_it_nearly_as_a_refit_does(make, named):
    frame, answers = named
    new = frame["row"] == "r05"
    half = new & (np.cumsum(new) <= new.sum() // 2)
    rest = new & ~half
    model = make().fit(frame[~new], answers[~new])
    before = model.decision_function(frame[~new][:50])
    assert model.fold_in(frame[half], answers[half]) is model
    np.testing.assert_array_equal(model.decision_function(frame[~new][:50]), before)
    refit = make().fit(frame[~rest], answers[~rest])
    folded, fitted = model.predict_proba(frame[rest])[:, 1], refit.predict_proba(frame[rest])[:, 1]
    assert np.abs(folded - fitted).mean() < 0.12
    assert model.complete().shape == (50, 40)


def test_folding_in_a_column(named):
    frame, answers = named
    new = (frame["column"] == 7).to_numpy()
    model = LogisticCompleter(3).fit(frame[~new], answers[~new])
    model.fold_in(frame[new], answers[new])
    assert model.score(frame[new], answers[new]) > 0.7
    assert np.isfinite(model.posterior_.kl)


def test_fold_in_needs_new_ids_on_one_side_only(named):
    frame, answers = named
    model = LogisticCompleter(3).fit(frame, answers)
    with pytest.raises(ValueError, match="fold_in takes answers of new rows on known columns"):
        model.fold_in(frame[:3], answers[:3])
    with pytest.raises(ValueError, match="1 answers have two new ids and 0 two known ones"):
        model.fold_in([("new", 1000)], [1])
    with pytest.raises(ValueError, match="2 pairs but 1 answers"):
        model.fold_in([("new", 1), ("new", 2)], [1])


def test_fold_in_takes_what_it_can_and_counts_the_rest(named):
    """One batch with a new row, a new column, two new ids and two known ones."""
    frame, answers = named
    model, alone = (LogisticCompleter(3, random_state=0).fit(frame, answers) for _ in range(2))
    pairs = [("new", 3), ("new", 7), ("r01", 99), ("r02", 99), ("new", 99), ("r01", 3)]
    with pytest.warns(UserWarning, match="1 answers skipped, since both their ids are new"):
        model.fold_in(pairs, [1, 0, 1, 1, 0, 1])
    done = model.folded_in_
    assert (done.rows, done.columns, done.used, done.both_new, done.both_known) == (1, 1, 4, 1, 1)
    alone.fold_in(pairs[:2], [1, 0])
    query = [("new", int(column)) for column in alone.columns_.labels]
    np.testing.assert_array_equal(model.predict_proba(query), alone.predict_proba(query))
    assert np.isfinite(model.predict_proba([("r05", 99), ("new", 99)])).all()


@ALL
def test_ties_count_as_wrong(make, named, fitted, monkeypatch):
    frame, answers = named
    model = fitted(make)
    zeros = np.zeros(len(frame))
    monkeypatch.setattr(type(model), "_decisions", lambda self, rows, columns: zeros)
    assert model.score(frame, answers) == 0.0


# ---- small and odd data ------------------------------------------------------------------------

ODD = {
    "one observation": ([(0, 0)], [1]),
    "one row": ([(0, j) for j in range(8)], [0, 1] * 4),
    "one column": ([(i, 0) for i in range(8)], [0, 1] * 4),
    "all yes": ([(i, j) for i in range(6) for j in range(5)], [1] * 30),
    "all no": ([(i, j) for i in range(6) for j in range(5)], [0] * 30),
    "all minus one": ([(i, j) for i in range(6) for j in range(5)], [-1] * 30),
    "one entry, contradicting": ([(0, 0)] * 10, [0, 1] * 5),
    "two by two": ([(0, 0), (0, 1), (1, 0), (1, 1)], [1, 0, 0, 1]),
}


@ALL
@pytest.mark.parametrize(("pairs", "answers"), ODD.values(), ids=ODD.keys())
def test_small_and_odd_data_give_finite_answers(make, pairs, answers):
    model = make().fit(pairs, answers)
    query = [*pairs, (99, 0), (0, 99), (99, 99)]
    assert np.isfinite(model.decision_function(query)).all()
    probability = model.predict_proba(query)
    assert ((probability > 0) & (probability < 1)).all()
    if len(set(answers)) == 1 and len(answers) > 1:
        assert set(model.predict(pairs)) == set(answers)


@ALL
def test_scores_stay_finite_on_separable_data(make):
    """All answers follow one sharp rule: likelihoods run off to infinity, posteriors must not."""
    pairs = [(i, j) for i in range(40) for j in range(30)]
    answers = [1 if (i < 20) == (j < 15) else -1 for i, j in pairs]
    model = make().fit(np.repeat(pairs, 5, axis=0), np.repeat(answers, 5))
    scores = model.decision_function(pairs)
    assert np.isfinite(scores).all()
    assert np.abs(scores).max() < 100
    assert model.score(pairs, answers) > 0.99


def test_a_rank_above_the_matrix_is_capped(small_world):
    model = LogisticCompleter(500).fit(small_world.pairs, small_world.answers)
    assert model.posterior_.hierarchy.rank == 40


@pytest.mark.parametrize(
    ("maker", "parameters", "message"),
    [
        (LogisticCompleter, {"rank": -1}, "rank must be an integer of at least 0, got -1"),
        (LogisticCompleter, {"rank": 2.5}, "rank must be an integer"),
        (LogisticCompleter, {"prior": "horseshoe"}, "prior must be one of 'inverse-gamma', 'gamma'"),
        (
            LogisticCompleter,
            {"prior_scale": 0},
            "prior_scale must be a positive finite number or 'auto', got 0",
        ),
        (
            LogisticCompleter,
            {"temperature": np.nan},
            "temperature must be a positive finite number, got nan",
        ),
        (LogisticCompleter, {"covariance": "half"}, "covariance must be one of 'full', 'diagonal'"),
        (
            LogisticCompleter,
            {"effects": "all"},
            "effects must be one of True, False, 'rows', 'columns'",
        ),
        (LogisticCompleter, {"n_init": 0}, "n_init must be an integer of at least 1, got 0"),
        (LogisticCompleter, {"max_iter": 0}, "max_iter"),
        (LogisticCompleter, {"tol": -1.0}, "tol"),
        (LogisticCompleter, {"tol": "none"}, "tol must be a positive finite number or 'auto'"),
        (
            GibbsCompleter,
            {"temperature": "warm"},
            "temperature must be a positive finite number or 'auto', got 'warm'",
        ),
        (GibbsCompleter, {"tol": "auto"}, "tol must be a positive finite number, got 'auto'"),
        (LogisticCompleter, {"n_jobs": 0}, "n_jobs must be a non-zero integer"),
        (HingeCompleter, {"method": "magic"}, "method must be one of 'engine', 'paper'"),
        (NuclearNormCompleter, {"alpha": 0.0}, "alpha must be a positive finite number"),
        (NuclearNormCompleter, {"radius": -2.0}, "radius"),
        (AutoCompleter, {"n_jobs": "many"}, "n_jobs"),
    ],
)
def test_a_bad_parameter_is_named_with_its_value(maker, parameters, message, named):
    with pytest.raises(ValueError, match=message):
        maker(**parameters).fit(*named)


@ALL
def test_bad_input_gives_one_clear_error(make, named, fitted):
    frame, answers = named
    with pytest.raises(ValueError, match="answer 7 at position 3"):
        make().fit(frame[:5], [0, 1, 0, 7, 1])
    with pytest.raises(ValueError, match="no observations"):
        make().fit(frame[:0], [])
    with pytest.raises(ValueError, match="pairs but 3 answers"):
        make().fit(frame, [0, 1, 0])
    with pytest.raises(ValueError, match="zero everywhere"):
        make().fit(frame, answers, sample_weight=np.zeros(len(frame)))
    with pytest.raises(NotFittedError):
        make().predict(frame)
    with pytest.raises(ValueError, match="two columns"):
        fitted(make).predict(np.zeros((3, 3)))


@ALL
def test_weights_of_zero_are_like_absence(make, named):
    frame, answers = named
    rubbish = frame.copy()
    weight = np.concatenate([np.ones(len(frame)), np.zeros(len(frame))])
    doubled = pd.concat([frame, rubbish])
    model = make().fit(doubled, np.concatenate([answers, 1 - answers]), sample_weight=weight)
    assert model.score(frame, answers) > 0.8


def test_a_fit_that_stops_early_says_what_to_do(named):
    with pytest.warns(ConvergenceWarning, match="after 2 rounds.*raise max_iter or tol"):
        LogisticCompleter(3, max_iter=2).fit(*named)


def test_a_callback_sees_every_round_and_can_stop_the_fit(named):
    seen = []
    model = LogisticCompleter(3).fit(*named, callback=seen.append)
    assert [progress.round for progress in seen] == list(range(1, model.n_iter_ + 1))

    def stop(progress):
        raise KeyboardInterrupt

    untouched = LogisticCompleter(3)
    with pytest.raises(KeyboardInterrupt):
        untouched.fit(*named, callback=stop)
    assert not hasattr(untouched, "posterior_")


def test_verbose_logs_and_nothing_is_printed(named, caplog, capsys):
    with caplog.at_level("INFO", logger="onebit"):
        LogisticCompleter(2, max_iter=3, verbose=1).fit(*named)
    assert "round 1: objective" in caplog.text
    assert capsys.readouterr().out == ""


def test_priors_can_be_given_whole(named, tmp_path):
    model = LogisticCompleter(3, prior=InverseGamma(2.0, 0.5)).fit(*named)
    assert model.posterior_.hierarchy.factor_prior == InverseGamma(2.0, 0.5)
    model.save(tmp_path / "model.onebit")
    assert onebit.load(tmp_path / "model.onebit").prior == InverseGamma(2.0, 0.5)


def test_a_warning_points_at_the_line_that_fits(small_world):
    with pytest.warns(ConvergenceWarning, match="stopped after 2 rounds") as caught:
        LogisticCompleter(2, max_iter=2).fit(small_world.pairs, small_world.answers)
    assert [warning.filename for warning in caught] == [__file__]


@ALL
def test_no_warning_escapes(make, named):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make().fit(*named)
        model.predict_proba(named[0])


@pytest.mark.parametrize("make", [MAKERS["hinge"], MAKERS["hinge paper"], MAKERS["auto"]])
def test_answers_without_weight_change_nothing(make, named, fitted):
    frame, answers = named
    plain = fitted(make)
    weight = np.concatenate([np.ones(len(frame)), np.zeros(len(frame))])
    weighted = make().fit(pd.concat([frame, frame]), np.concatenate([answers, 1 - answers]), weight)
    np.testing.assert_allclose(weighted.predict_proba(frame), plain.predict_proba(frame), atol=1e-5)


def test_an_interrupted_fit_leaves_the_model_as_it_was(named):
    frame, answers = named
    model = HingeCompleter(3, random_state=0).fit(frame, answers)
    before = model.predict_proba(frame)

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(frame[:500], answers[:500], callback=stop)
    np.testing.assert_array_equal(model.predict_proba(frame), before)
    fresh = HingeCompleter(3)
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(frame, answers, callback=stop)
    with pytest.raises(NotFittedError):
        fresh.predict(frame)


def test_a_refit_by_another_method_forgets_the_first(named):
    model = HingeCompleter(3, method="paper", max_iter=20, calibrate=False).fit(*named)
    assert model.avb_.total > 0
    model.set_params(method="engine").fit(*named)
    assert not hasattr(model, "avb_")


@pytest.mark.parametrize("make", [MAKERS["hinge"], MAKERS["logistic"], MAKERS["auto"]])
def test_a_prediction_is_the_more_probable_answer(make, named, fitted):
    frame, model = named[0], fitted(make)
    np.testing.assert_array_equal(model.predict(frame), model.predict_proba(frame).argmax(axis=1))


def test_scores_need_one_answer_a_pair(named):
    model = LogisticCompleter(2).fit(*named)
    with pytest.raises(ValueError, match="2 pairs but 1 answers"):
        model.score(named[0][:2], [1])


def test_parameters_from_numpy_are_fine(named):
    grid = {"covariance": np.array(["full", "diagonal"]), "effects": np.array([True, False])}
    search = GridSearchCV(LogisticCompleter(2, max_iter=5), grid, cv=2).fit(*named)
    assert len(search.cv_results_["params"]) == 4


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32, np.uint64])
def test_narrow_numbers_are_the_same_as_pythons(named, kind, tmp_path):
    """In eight bits 60 + 2 * 100 is 4."""
    whole = {"n_samples": 100, "n_burn_in": 60, "n_thin": 2, "n_chains": 2, "max_iter": 5, "n_init": 1}
    settings = {"rank": 1, "inference": "sampling", "random_state": 0}
    plain = LogisticCompleter(**settings | whole, keep_mb=1.0, tol=2.0**-12).fit(*named)
    same = {name: kind(value) for name, value in whole.items()} | {"rank": kind(1)}
    numbers = {"temperature": np.float16(1.0), "keep_mb": Fraction(1), "tol": np.longdouble(2.0**-12)}
    model = LogisticCompleter(**settings | same | numbers).fit(*named)
    assert (model.n_sweeps_, model.n_draws_) == (plain.n_sweeps_, plain.n_draws_) == (260, 200)
    np.testing.assert_array_equal(model.predict_proba(named[0]), plain.predict_proba(named[0]))
    model.save(tmp_path / "m.onebit")
    assert onebit.load(tmp_path / "m.onebit").n_samples == 100
    for other in (HingeCompleter, GibbsCompleter, NuclearNormCompleter):
        other(rank=kind(1), max_iter=kind(5)).fit(*named)


def test_nothing_to_fold_in(named):
    with pytest.raises(ValueError, match="at least one answer"):
        LogisticCompleter(2).fit(*named).fold_in([], [])


def test_effects_are_labelled_and_point_the_right_way():
    rng = np.random.default_rng(0)
    ability, easiness = rng.normal(0, 1.5, 80), rng.normal(0, 1.5, 60)
    chance = 1 / (1 + np.exp(-(ability[:, None] + easiness[None, :])))
    table = pd.DataFrame(
        (rng.random(chance.shape) < chance).astype(int),
        index=[f"s{i:02d}" for i in range(80)],
        columns=[f"e{j:02d}" for j in range(60)],
    )
    model = LogisticCompleter(2).fit(table)
    assert np.corrcoef(model.row_effects_.loc[table.index], ability)[0, 1] > 0.9
    assert np.corrcoef(model.column_effects_.loc[table.columns], easiness)[0, 1] > 0.9
    with pytest.raises(AttributeError, match="no column effects: effects='rows'"):
        _ = LogisticCompleter(2, effects="rows").fit(table).column_effects_


@ALL
def test_pairs_that_are_all_unknown_give_a_warning(make, named):
    frame, answers = named
    model = make().fit(frame.astype(str), answers)
    with pytest.warns(UserWarning, match="are the two columns swapped"):
        swapped = model.predict_proba(frame.astype(str)[["column", "row"]])
    assert np.isfinite(swapped).all()


def test_the_filled_matrix_keeps_the_names_of_the_columns(named, tmp_path):
    model = LogisticCompleter(2).fit(*named)
    model.save(tmp_path / "model.onebit")
    for fitted in (model, onebit.load(tmp_path / "model.onebit")):
        filled = fitted.complete()
        assert (filled.index.name, filled.columns.name) == ("row", "column")


def test_forgetting_the_answers_says_so(named):
    with pytest.raises(ValueError, match=r"call fit\(pairs, answers\)"):
        LogisticCompleter(2).fit(named[0])


def test_words_as_answers_get_advice(named):
    words = np.where(named[1] > 0, "yes", "no")
    with pytest.raises(ValueError, match="answers == 'yes'"):
        LogisticCompleter(2).fit(named[0], words)


def test_a_numpy_generator_is_a_random_state(named):
    one, two = (
        HingeCompleter(2, random_state=np.random.default_rng(3)).fit(*named).predict_proba(named[0])
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)


def test_a_model_whose_columns_all_vanish_says_so(named):
    with pytest.warns(ConvergenceWarning, match="every column vanished"):
        HingeCompleter(2, method="paper", temperature=0.05).fit(*named)


def test_a_posterior_introduces_itself_in_one_line(named):
    text = repr(LogisticCompleter(2).fit(*named).posterior_)
    assert text.startswith("Posterior(50 rows, 40 columns, rank 2")


def test_a_warning_turned_into_an_error_leaves_a_usable_model(named):
    model = LogisticCompleter(2, max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises(ConvergenceWarning):
            model.fit(*named)
    assert np.isfinite(model.decision_function(named[0])).all()


def test_mean_scores_are_products_of_the_vectors_that_the_guide_names(small_world):
    model = LogisticCompleter(2, random_state=0).fit(small_world.pairs, small_world.answers)
    text = (Path(__file__).parent.parent / "docs" / "guide.md").read_text()
    part = text[text.index("## Vectors for other programs") :]
    block = part[part.index("```python") + len("```python") :]
    found = {"model": model}
    exec(block[: block.index("```")], found)
    expected = model.complete("score", everywhere=True).loc[model.rows_.labels, model.columns_.labels]
    assert found["scores"] == pytest.approx(expected.to_numpy())
