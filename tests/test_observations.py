"""What goes in: ids of any kind, answers in any of the three spellings, and everything bad."""

import copy
import dataclasses
import datetime
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from onebit import Observations
from onebit.data.ids import IdIndex
from onebit.data.observations import signs

ROWS = ["u2", "u1", "u2", "u3"]
COLUMNS = [10, 30, 20, 10]
ANSWERS = [1, -1, 1, -1]

TABLES = {
    "list": list(zip(ROWS, COLUMNS, strict=True)),
    "object array": np.array(list(zip(ROWS, COLUMNS, strict=True)), dtype=object),
    "pandas": pd.DataFrame({"r": ROWS, "c": COLUMNS}),
    "pandas categories": pd.DataFrame({"r": pd.Categorical(ROWS), "c": pd.Categorical(COLUMNS)}),
    "polars": pl.DataFrame({"r": ROWS, "c": COLUMNS}),
    "pyarrow": pa.table({"r": ROWS, "c": COLUMNS}),
    "structured": np.array(list(zip(ROWS, COLUMNS, strict=True)), dtype=[("r", "U4"), ("c", "i8")]),
}


def triples(seen):
    """Return the observations as a sorted list of (row id, column id, sign), from the row view."""
    view = seen.by_row
    rows, columns = seen.rows.values[view.owners()], seen.columns.values[view.index]
    return sorted(zip(rows.tolist(), columns.tolist(), view.sign.tolist(), strict=True))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_every_kind_of_table_gives_the_same_observations(table):
    seen = Observations.from_pairs(table, ANSWERS)
    assert triples(seen) == sorted(zip(ROWS, COLUMNS, ANSWERS, strict=True))
    assert seen.rows.encode(["u3", "nobody"]).tolist() == [2, -1]
    assert seen.columns.encode([20, 99]).tolist() == [1, -1]


@pytest.mark.parametrize(
    "ids",
    [
        [3, 1, 2, 1],
        [2.5, 0.5, 1.5, 0.5],
        [datetime.date(2020, 1, day) for day in (3, 1, 2, 1)],
        np.array(["2020-01-03", "2020-01-01", "2020-01-02", "2020-01-01"], dtype="datetime64[D]"),
        ["c", "a", "b", "a"],
        [("x", 2), ("x", 0), ("x", 1), ("x", 0)],
        [True, False, True, False],
    ],
    ids=["int", "float", "date", "datetime64", "str", "tuple", "bool"],
)
def test_ids_of_any_kind_are_coded_in_sorted_order(ids):
    index, codes = IdIndex.from_values(ids, "row")
    assert codes.tolist() == index.encode(ids).tolist()
    assert codes[1] == codes[3] == 0
    assert codes[0] == len(index) - 1


def test_ids_of_mixed_kinds_are_legal():
    seen = Observations.from_pairs([("a", 1), (2, 1), ("b", 1)], [1, 0, 1])
    assert seen.shape == (3, 1)


def test_the_two_views_hold_the_same_observations_in_sorted_order(rng):
    rows, columns = rng.integers(30, size=500), rng.integers(20, size=500)
    answers = rng.choice([-1, 1], size=500)
    seen = Observations.from_pairs(np.stack([rows, columns], axis=1), answers)
    by_row = np.stack([seen.by_row.owners(), seen.by_row.index, seen.by_row.sign])
    by_column = np.stack([seen.by_column.index, seen.by_column.owners(), seen.by_column.sign])

    def canonical(a):
        return a[:, np.lexsort(a)]

    np.testing.assert_array_equal(canonical(by_row), canonical(by_column))
    assert (np.diff(seen.by_row.owners()) >= 0).all()
    assert seen.by_row.index.dtype == np.int32
    assert seen.by_row.sign.dtype == np.int8
    assert not seen.by_row.sign.flags.writeable


def test_repeated_and_contradicting_answers_are_kept():
    seen = Observations.from_pairs([(0, 0), (0, 0), (0, 0)], [1, -1, 1])
    assert seen.n == 3
    assert sorted(seen.by_row.sign.tolist()) == [-1, 1, 1]


@pytest.mark.parametrize(
    ("answers", "classes"),
    [
        ([0, 1], [0, 1]),
        ([-1, 1], [-1, 1]),
        ([False, True], [False, True]),
        (np.array([0.0, 1.0]), [0.0, 1.0]),
        (np.array([0, 1], dtype=object), [0.0, 1.0]),
        (pd.Series([False, True]), [False, True]),
        (pl.Series([0, 1]), [0, 1]),
        (pa.array([-1, 1]), [-1, 1]),
        (np.array([[0], [1]]), [0, 1]),
    ],
)
def test_answers_in_every_spelling(answers, classes):
    sign, found = signs(answers)
    assert sign.tolist() == [-1, 1]
    assert found.tolist() == classes


def test_a_matrix_with_blanks_and_its_sparse_twin_agree():
    nan = np.nan
    dense = np.array([[1, nan, 0], [nan, 1, 1]])
    row, column = np.nonzero(~np.isnan(dense))
    sparse = scipy.sparse.coo_array((dense[row, column], (row, column)), shape=dense.shape)
    frame = pd.DataFrame(dense, index=["a", "b"], columns=["x", "y", "z"])
    from_dense, from_sparse = Observations.from_matrix(dense), Observations.from_matrix(sparse)
    assert triples(from_dense) == triples(from_sparse) == [(0, 0, 1), (0, 2, -1), (1, 1, 1), (1, 2, 1)]
    assert triples(Observations.from_matrix(frame))[0] == ("a", "x", 1)
    assert Observations.from_matrix(sparse.tocsr()).n == 4


def test_rows_without_answers_keep_their_place_in_a_matrix():
    seen = Observations.from_matrix([[np.nan, np.nan], [1, 0]])
    assert seen.shape == (2, 2)
    assert seen.by_row.counts.tolist() == [0, 2]


def test_taking_some_observations_keeps_ids_and_weights():
    seen = Observations.from_pairs([(5, 1), (4, 1), (4, 2)], [1, 0, 1], sample_weight=[1.0, 2.0, 3.0])
    part = seen.take(np.array([0, 2]))
    assert part.shape == seen.shape
    assert part.by_row.weight.tolist() == [2.0, 1.0]
    assert part.total_weight == 3.0


BAD_ANSWERS = [
    ([1, np.nan], r"answer at position 1 is missing"),
    ([1, np.inf], r"answer inf at position 1"),
    ([1, 3, -1], r"answer 3 at position 1"),
    ([1, 0, -1], r"three values.*a 0 at position 1"),
    (["yes", "no"], r"numbers or booleans"),
    ([1, "maybe"], r"numbers or booleans|not a number"),
    ([[1, 0], [0, 1]], r"one-dimensional"),
    (np.array([1, None], dtype=object), r"at position 1 is missing|not a number"),
]


@pytest.mark.parametrize(("answers", "message"), BAD_ANSWERS)
def test_bad_answers_are_named_with_their_place(answers, message):
    with pytest.raises(ValueError, match=message):
        signs(answers)


def test_a_bad_value_in_a_matrix_is_named_with_its_row_and_column():
    with pytest.raises(ValueError, match=r"answer 2.0 at row 1, column 0"):
        Observations.from_matrix([[1.0, np.nan], [2.0, 0.0]])


@pytest.mark.parametrize(
    ("pairs", "answers", "error", "message"),
    [
        ([], [], ValueError, "no observations"),
        (np.zeros((0, 2)), [], ValueError, "no observations"),
        ([(1, 2, 3)], [1], ValueError, "pair 0 has 3 values"),
        (np.zeros((4, 3)), [1, 0, 1, 0], ValueError, r"two columns.*\(4, 3\)"),
        (np.zeros(4), [1, 0, 1, 0], ValueError, r"two columns.*\(4,\)"),
        (pd.DataFrame({"a": [1], "b": [2], "c": [3]}), [1], ValueError, r"a, b, c"),
        ([(1, 2)], [1, 0], ValueError, "1 pairs but 2 answers"),
        (7, [1], TypeError, "two-column table"),
        ([([1], 2)], [1], TypeError, r"row id \[1\] at position 0 cannot be hashed"),
        ([(1, {})], [1], TypeError, r"column id \{\} at position 0 cannot be hashed"),
        ([(None, 1), (2, 1)], [1, 0], ValueError, "row id at position 0 is missing"),
        ([(1, np.nan), (2, 1.0)], [1, 0], ValueError, "column id at position 0 is missing"),
        ([(np.inf, 1), (2.0, 1)], [1, 0], ValueError, "infinite"),
        ([("a", 1), ("\ud800", 1)], [1, 0], ValueError, r"row id '\\ud800' at position 1 is no text"),
    ],
)
def test_bad_pairs_give_one_clear_error(pairs, answers, error, message):
    with pytest.raises(error, match=message):
        Observations.from_pairs(pairs, answers)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, -2, 1], "-2.0 at position 1"),
        ([0, 0, 0], "zero everywhere"),
        ([1, np.nan, 1], "nan at position 1"),
        ([1, 1], r"shape \(2,\), expected \(3,\)"),
        ([1e-60, 0, 0], "zero everywhere"),
        ([1e60, 1, 1], "position 0"),
    ],
)
def test_bad_weights_are_named(weight, message):
    with pytest.raises(ValueError, match=message):
        Observations.from_pairs([(0, 0), (0, 1), (1, 0)], [1, 0, 1], weight)


@pytest.mark.parametrize(
    "matrix", [np.full((2, 2), np.nan), np.zeros((0, 3)), scipy.sparse.coo_array((2, 2))]
)
def test_a_matrix_of_blanks_is_refused(matrix):
    with pytest.raises(ValueError, match="no observations"):
        Observations.from_matrix(matrix)


def test_a_frame_whose_labels_repeat_is_refused():
    with pytest.raises(ValueError, match="'a' stands twice"):
        Observations.from_matrix(pd.DataFrame([[1, 0], [0, 1]], index=["a", "a"]))


def test_strings_asked_of_integers_are_an_error_not_unknown():
    index, _ = IdIndex.from_values([1, 2], "row")
    with pytest.raises(TypeError, match=r"row ids here are strings .* fitted on numbers"):
        index.encode(["1", "2"])


KNOWN_AND_ASKED = [
    ([1, 2], ["1", "2"], "strings .* fitted on numbers"),
    (["a", "b"], [b"a"], "byte strings .* fitted on strings"),
    ([1, 2], [True], "booleans .* fitted on numbers"),
    ([datetime.date(2020, 1, 1)], ["2020-01-01"], "strings .* fitted on dates"),
    (["2020-01-01"], [pd.Timestamp("2020-01-01")], "dates .* fitted on strings"),
    (
        [pd.Timestamp("2020-01-01")],
        [pd.Timestamp("2020-01-01", tz="UTC")],
        "dates with time zone|date with time zones",
    ),
]


@pytest.mark.parametrize(("known", "asked", "message"), KNOWN_AND_ASKED)
def test_ids_of_another_kind_are_an_error_not_unknown(known, asked, message):
    index, _ = IdIndex.from_values(known, "row")
    with pytest.raises(TypeError, match=message):
        index.encode(asked)


def test_dates_and_timestamps_are_the_same_ids():
    index, _ = IdIndex.from_values([datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)], "row")
    asked = pl.DataFrame({"r": [datetime.date(2020, 1, 2)], "c": [1]})
    for values in ([datetime.date(2020, 1, 2)], pd.to_datetime(["2020-01-02"]), asked["r"].to_list()):
        assert index.encode(values).tolist() == [1]


LARGE = [1800000000000000001, 1800000000000000002, 1800000000000000003]


def test_large_integers_never_match_their_neighbours():
    index, _ = IdIndex.from_values(LARGE, "row")
    assert index.encode(LARGE).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="float too large"):
        index.encode(np.array(LARGE, dtype=float))


@pytest.mark.parametrize(
    "table", [pl.DataFrame, pa.table, pd.DataFrame], ids=["polars", "pyarrow", "pandas"]
)
def test_a_missing_id_is_named_also_when_predicting(table):
    from onebit.data.ids import pair_columns

    index, _ = IdIndex.from_values(LARGE, "row")
    with pytest.raises(ValueError, match="row id at position 1 is missing"):
        index.encode(pair_columns(table({"r": [LARGE[1], None], "c": [0, 0]}))[0])


def test_categories_with_a_missing_id():
    with pytest.raises(ValueError, match="row id at position 1 is missing"):
        IdIndex.from_values(pd.Series([1, None, 2]).astype("Int64").astype("category"), "row")


def test_a_single_pair_must_stand_in_a_list():
    with pytest.raises(ValueError, match="wrap a single pair in a list"):
        Observations.from_pairs(("u1", "v1"), [1, 0])


def test_masked_and_missing_entries_of_a_matrix_are_blanks():
    masked = np.ma.array([[1, 0], [0, 1]], mask=[[0, 1], [0, 0]])
    assert Observations.from_matrix(masked).n == 3
    nullable = pd.DataFrame({"a": [1, None], "b": [0, 1]}, dtype="Int64")
    assert triples(Observations.from_matrix(nullable)) == [(0, "a", 1), (0, "b", -1), (1, "b", 1)]
    flags = pd.DataFrame({"a": [True, None], "b": [False, True]}, dtype="boolean")
    assert Observations.from_matrix(flags).n == 3
    for table in (pl.DataFrame({"a": [1, None]}), pa.table({"a": [1, None]})):
        assert triples(Observations.from_matrix(table)) == [(0, "a", 1)]
    with pytest.raises(ValueError, match="answer at position 1 is missing"):
        signs(np.ma.array([1, 0], mask=[0, 1]))


def test_answers_in_quotes_are_refused_and_objects_keep_their_kind():
    with pytest.raises(ValueError, match="answer '1' at position 0 is not a number"):
        signs(pd.Series(["1", "0"]))
    sign, classes = signs(np.array([True, False], dtype=object))
    assert sign.tolist() == [1, -1]
    assert classes.tolist() == [False, True]


def test_answers_without_weight_are_dropped_but_their_ids_stay():
    seen = Observations.from_pairs([(0, 0), (1, 1), (2, 0)], [1, 0, 1], [1.0, 0.0, 2.0])
    assert seen.n == 2
    assert seen.shape == (3, 2)


def test_weights_too_far_apart_are_refused():
    weight = np.ones(200_000)
    weight[7] = 1e6
    pairs = np.zeros((200_000, 2), dtype=int)
    with pytest.raises(ValueError, match=r"1e\+06 at position 7.*times the mean weight"):
        Observations.from_pairs(pairs, np.ones(200_000, dtype=int), weight)


def test_the_order_of_the_answers_does_not_matter(rng):
    rows, columns = rng.integers(6, size=200), rng.integers(5, size=200)
    pairs, answers, weight = np.stack([rows, columns], axis=1), rng.choice([-1, 1], 200), rng.random(200)
    order = rng.permutation(200)
    one = Observations.from_pairs(pairs, answers, weight)
    other = Observations.from_pairs(pairs[order], answers[order], weight[order])
    for view, twin in ((one.by_row, other.by_row), (one.by_column, other.by_column)):
        for name in ("start", "index", "sign", "weight"):
            np.testing.assert_array_equal(getattr(view, name), getattr(twin, name))


@pytest.mark.parametrize(
    "values",
    [
        np.array([-128, 127, 0, -128], dtype=np.int8),
        np.array([2**64 - 1, 2**64 - 3, 2**64 - 1], dtype=np.uint64),
        np.array([-(2**63), -(2**63) + 5], dtype=np.int64),
        np.array([5, 5, 2**40], dtype=np.int64),
        np.array([65535, 0, 7], dtype=np.uint16),
    ],
    ids=str,
)
def test_integers_are_coded_in_their_order_whatever_their_type(values):
    index, codes = IdIndex.from_values(values, "row")
    assert index.values.dtype == values.dtype
    np.testing.assert_array_equal(index.values, np.unique(values))
    np.testing.assert_array_equal(index.values[codes], values)
    np.testing.assert_array_equal(index.encode(values), codes)


def test_copies_share_what_is_sorted_on_first_use():
    seen = Observations.from_pairs([("a", 1), ("b", 2), ("a", 2)], [1, 0, 1])
    twin, other = copy.copy(seen), dataclasses.replace(seen, classes=np.array([0, 1]))
    again = pickle.loads(pickle.dumps(seen))
    assert seen.loose is not None
    view = seen.by_row
    assert seen.loose is None
    assert twin.by_row is view
    assert other.by_row is view
    np.testing.assert_array_equal(again.by_row.index, view.index)


def test_further_answers_of_an_entry_go_where_its_first_one_goes():
    pairs = [(1, 5), (0, 2), (1, 5), (2, 5), (0, 3), (1, 5), (0, 2)]
    seen = Observations.from_pairs(pairs, [1, 1, 0, 1, 0, 1, 1])
    # In row order: (0, 2) twice, (0, 3), (1, 5) three times, (2, 5).
    assert seen.again().tolist() == [False, True, False, False, True, True, False]
    assert seen.by_entry(np.arange(7)).tolist() == [0, 0, 2, 3, 3, 3, 6]
    once = Observations.from_pairs([(0, 1), (1, 1), (1, 0)], [1, 0, 1])
    assert once.by_entry(np.arange(3)).tolist() == [0, 1, 2]
