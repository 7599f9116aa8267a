"""The order in which ids are listed: a file's, whatever the order of their codes."""

import numpy as np
import pandas as pd
import pytest

import onebit
from onebit import Observations, storage
from onebit.ids import IdIndex
from onebit.outputs import best_blanks, whole_matrix
from onebit.report.layout import effects_of


def listed_world(rng, rows=12, columns=7):
    """Observations whose ids are listed in another order than that of their codes."""
    size = {"row": rows, "column": columns}
    indexes = [
        IdIndex(
            pd.Index([f"{side}{k:02d}" for k in range(size[side])]), side, rng.permutation(size[side])
        )
        for side in ("row", "column")
    ]
    row, column = (codes.astype(np.int32) for codes in np.nonzero(rng.random((rows, columns)) < 0.8))
    sign = rng.choice(np.array([-1, 1], dtype=np.int8), len(row))
    return Observations.from_codes(*indexes, row, column, sign)


def test_ids_are_listed_in_the_order_of_their_codes_unless_another_is_given():
    plain = IdIndex(["a", "b", "c"], "row")
    assert plain.listed.tolist() == [0, 1, 2]
    assert plain.sorted
    assert IdIndex(["a", "b"], "row", [0, 1]).sorted
    other = IdIndex(["a", "b", "c"], "row", [2, 0, 1])
    assert other.listed_labels.tolist() == ["c", "a", "b"]
    assert other.encode(["c", "a"]).tolist() == [2, 0]  # codes are what they were


def test_new_ids_are_listed_last_and_a_part_keeps_its_order():
    index = IdIndex(["a", "b", "c"], "row", [2, 0, 1]).extended(pd.Index(["0", "z"]))
    assert index.listed_labels.tolist() == ["c", "a", "b", "0", "z"]
    assert index.first(2).listed_labels.tolist() == ["a", "b"]
    assert index.first(3).listed_labels.tolist() == ["c", "a", "b"]


@pytest.mark.parametrize(
    "order", [[0, 1], [0, 0, 1], [0, 1, 3], [0.0, 1.0, 2.0], [[0, 1, 2]], [-1, 0, 1]]
)
def test_an_order_that_is_no_permutation_is_refused(order):
    with pytest.raises(ValueError, match="order of 3 column ids"):
        IdIndex(["a", "b", "c"], "column", order)


def test_every_output_lists_ids_in_the_given_order(rng):
    seen = listed_world(rng)
    model = onebit.LogisticCompleter(2, random_state=0).fit(seen)
    rows, columns = seen.rows.listed_labels, seen.columns.listed_labels
    filled = model.complete("probability")
    assert filled.index.equals(rows)
    assert filled.columns.equals(columns)
    pairs = [(row, column) for row in rows for column in columns]
    expected = model.predict_proba(pairs)[:, 1].reshape(filled.shape)
    np.testing.assert_allclose(filled, expected)
    assert model.row_effects_.index.equals(rows)
    assert model.column_effects_.index.equals(columns)
    by_code = model.posterior_.main_effects(0)
    np.testing.assert_array_equal(model.row_effects_.loc[seen.rows.labels], by_code)
    np.testing.assert_array_equal(effects_of(model)[0], by_code)
    (wide,) = whole_matrix(model, model.rows_.listed, "probability", wide=True)
    assert wide.column_names[1:] == columns.tolist()
    assert wide.column(0).to_pylist() == rows.tolist()
    np.testing.assert_allclose(wide.to_pandas().iloc[:, 1:], expected, atol=1e-6)
    (long,) = whole_matrix(model, model.rows_.listed, "probability", wide=False)
    assert list(zip(long["row"].to_pylist(), long["column"].to_pylist(), strict=True)) == pairs
    np.testing.assert_allclose(long["probability"], expected.ravel(), atol=1e-6)
    (best,) = best_blanks(model, 1, model.rows_.listed, None, answered=True)
    assert best["row"].to_pylist() == rows.tolist()


def test_sampled_effects_are_listed_in_the_given_order(rng):
    seen = listed_world(rng)
    model = onebit.LogisticCompleter(1, inference="sampling", n_samples=20, random_state=0).fit(seen)
    by_code = model.draws_.main_effects(1)
    assert model.column_effects_.index.equals(seen.columns.listed_labels)
    np.testing.assert_array_equal(model.column_effects_.loc[seen.columns.labels], by_code)


def test_a_fit_does_not_depend_on_the_order_in_which_ids_are_listed(rng):
    seen = listed_world(rng)
    plain = Observations.from_codes(
        IdIndex(seen.rows.labels, "row"), IdIndex(seen.columns.labels, "column"), *seen.loose
    )
    one, other = (onebit.LogisticCompleter(2, random_state=0).fit(data) for data in (seen, plain))
    np.testing.assert_array_equal(one.posterior_.rows.mean, other.posterior_.rows.mean)


def test_a_model_file_keeps_the_order_also_after_folding_in(rng, tmp_path):
    seen = listed_world(rng)
    model = onebit.LogisticCompleter(1, random_state=0).fit(seen, certify=0)
    model.fold_in([("a new one", "column03"), ("a new one", "column01")], [1, -1])
    model.save(tmp_path / "m.onebit")
    again = onebit.load(tmp_path / "m.onebit")
    pd.testing.assert_frame_equal(again.complete("score"), model.complete("score"))
    assert again.rows_.listed_labels[-1] == "a new one"
    kept = again.kept_answers().everything
    assert kept.rows.listed_labels.equals(seen.rows.listed_labels)
    pairs = list(zip(seen.rows.labels, seen.columns.labels, strict=False))
    sorted_one = onebit.LogisticCompleter(1).fit(pairs, [1, -1, 1, -1, 1, 1, -1])
    sorted_one.save(tmp_path / "sorted.onebit")
    assert not [name for name in storage.read(tmp_path / "sorted.onebit", "model")[0] if "order" in name]


@pytest.mark.parametrize("order", [[0, 0, 1], [0, 1], [0, 1, 7]])
def test_a_model_file_with_a_wrong_order_is_refused(tmp_path, order):
    model = onebit.LogisticCompleter(0).fit([("a", 1), ("b", 1), ("c", 2)], [1, 0, 1])
    model.save(tmp_path / "m.onebit")
    tensors, content = storage.read(tmp_path / "m.onebit", "model")
    tensors = dict(tensors) | {"order.rows": np.array(order, dtype=np.int32)}
    storage.write(tmp_path / "bad.onebit", "model", tensors, content)
    with pytest.raises(storage.FileError, match=r"not a whole model.*order of 3 row ids"):
        onebit.load(tmp_path / "bad.onebit")
