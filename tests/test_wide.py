"""Wide tables: exactly their rows and columns, in the order of the file, and what is wrong with them."""

import gzip
import io
import json
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import onebit
from onebit.data.tables import Layout, TableError, cells, lines, read_answers, read_table, text, typed
from onebit.data.tables.answers import Vocabulary

TABLE = pd.DataFrame({"id": [7, 3, 20], "q10": [1, 0, None], "q2": [0, None, 1], "q1": [None] * 3})
FORMATS = ("w.csv", "w.tsv", "w.jsonl", "w.parquet", "w.feather")


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def stored(folder, name, frame):
    path = folder / name
    if name.endswith("parquet"):
        frame.to_parquet(path)
    elif name.endswith("feather"):
        frame.to_feather(path)
    elif name.endswith("jsonl"):
        records = frame.astype(object).where(frame.notna(), None).to_dict("records")
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    else:
        frame.to_csv(path, sep="\t" if name.endswith("tsv") else ",", index=False)
    return path


@pytest.mark.parametrize(
    "content",
    [
        "id,a,b\n1,1,0\n2,0,1\n",
        "id,a,b\n1,1,0\n2,0,1",
        "id,a,b\r\n1,1,0\r\n2,0,1\r\n",
        "id,a,b\n1,1,0\n2,0,1\n\n\n \n",
        "id,a,b\n\n1,1,0\n\n2,0,1\n,,\n",
        "\ufeffid,a,b\n1,1,0\n2,0,1\n",
        'id,a,b\n"1","1","0"\n2,0,"1"\n',
    ],
    ids=["plain", "no last line end", "CRLF", "blank lines last", "blank lines", "mark", "quotes"],
)
@pytest.mark.parametrize("packed", ["", ".gz", "-"])
def test_a_wide_text_file_has_exactly_its_rows(tmp_path, monkeypatch, content, packed):
    data = content.encode()
    path = write(tmp_path, f"w.csv{packed}", gzip.compress(data) if packed == ".gz" else data)
    if packed == "-":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        path = "-"
    seen = read_answers(path)
    assert seen.shape == (2, 2)
    assert seen.n == 4
    assert seen.rows.labels.tolist() == [1, 2]  # numbers, not text


@pytest.mark.parametrize("name", FORMATS)
def test_rows_and_columns_keep_the_order_of_the_file_and_blank_columns_their_place(tmp_path, name):
    seen = read_answers(stored(tmp_path, name, TABLE), wide=True)
    assert seen.columns.listed_labels.tolist() == ["q10", "q2", "q1"]
    assert seen.columns.labels.tolist() == ["q1", "q10", "q2"]  # codes are sorted
    assert seen.rows.listed_labels.tolist() == [7, 3, 20]
    assert seen.by_column.counts.tolist() == [0, 2, 2]


def test_a_long_table_is_listed_in_the_order_of_first_appearance(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_BLOCK", 64)
    content = "user,item,liked\nzoe,b,1\nann,c,0\nzoe,a,1\nbob,b,1\nann,a,0\nabe,c,1\n"
    seen = read_answers(write(tmp_path, "l.csv", content))
    assert seen.rows.listed_labels.tolist() == ["zoe", "ann", "bob", "abe"]
    assert seen.columns.listed_labels.tolist() == ["b", "c", "a"]


def test_positions_of_a_matrix_are_listed_in_their_own_order(tmp_path):
    matrix = "%%MatrixMarket matrix coordinate real general\n3 3 3\n3 1 1\n1 3 0\n2 2 1\n"
    seen = read_answers(write(tmp_path, "m.mtx", matrix))
    assert seen.rows.listed_labels.tolist() == [1, 2, 3]


def test_a_dense_matrix_keeps_its_blank_rows_and_columns(tmp_path):
    matrix = np.array([[np.nan, np.nan, np.nan], [1, np.nan, 0], [0, np.nan, 1]])
    np.savez(tmp_path / "m.npz", matrix)
    seen = read_answers(tmp_path / "m.npz")
    assert seen.shape == (3, 3)
    assert seen.by_column.counts.tolist() == [2, 0, 2]
    assert seen.rows.listed_labels.tolist() == [0, 1, 2]


def test_batches_of_a_wide_table_are_one_table(tmp_path, monkeypatch, rng):
    frame = pd.DataFrame(rng.choice([0, 1, np.nan], (97, 9)), columns=[f"c{k}" for k in range(9)])
    frame.insert(0, "id", [f"r{k}" for k in rng.permutation(97)])
    for name in FORMATS:
        whole = read_answers(stored(tmp_path, name, frame))
        with monkeypatch.context() as patch:
            for module in (cells, typed):
                patch.setattr(module, "CELLS", 20)
            patch.setattr(text, "_HELD", 100)
            parts = read_answers(tmp_path / name)
        for part in ("start", "index", "sign"):
            np.testing.assert_array_equal(getattr(parts.by_row, part), getattr(whole.by_row, part))
        assert parts.rows.listed_labels.tolist() == frame["id"].tolist()
        direct = onebit.Observations.from_matrix(frame.set_index("id").sort_index())
        np.testing.assert_array_equal(parts.by_row.sign, direct.by_row.sign)


@pytest.mark.parametrize("name", FORMATS)
def test_row_ids_that_repeat_are_counted_and_named(tmp_path, name):
    frame = pd.DataFrame({"id": ["x", "ann", "bob", "ann", "bob", "ann"], "a": [0, 1, 0, 1, 1, 1]})
    reading = read_table(stored(tmp_path, name, frame.assign(b=1)), Layout(wide=True))
    place = "rows 2 and 4" if name in ("w.parquet", "w.feather") else "lines 3 and 5"
    place = "lines 2 and 4" if name == "w.jsonl" else place
    (note,) = [note for note in reading.notes() if "more than once" in note]
    assert note == (
        f"{name}: 2 row ids stand more than once, the first is 'ann' ({place}); their answers are taken "
        "together"
    )
    assert reading.observations.n == 12
    assert reading.observations.shape == (3, 2)


def test_one_repeated_id_is_named_where_it_stands_though_lines_were_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "CELLS", 2)
    content = "id,a,b\nann,1,0\nbad,1\n\nbob,0,1\nann,0,1\n"
    reading = read_table(write(tmp_path, "w.csv", content), Layout(wide=True), skip_bad=True)
    assert reading.bad == 1
    assert "the row id 'ann' stands more than once (lines 2 and 6)" in reading.notes()[-1]
    content = "id,a,b\nann,1,0\nbob,0,1\n"
    assert read_table(write(tmp_path, "w.csv", content), Layout(wide=True)).repeats is None


@pytest.mark.parametrize(
    "content",
    ["q1,q2,q3\n1,0,1\n0,,1\n,1,0\n1,1,0\n", "q1,q2,q3\nyes,no,\nno,no,yes\nyes,yes,no\n",
     "sex,q2,q3\n" + "m,0,1\nf,1,0\n" * 10],
    ids=["numbers", "words", "two values"],
)  # fmt: skip
def test_a_first_column_of_answers_is_not_taken_for_ids(tmp_path, content):
    path = write(tmp_path, "w.csv", content)
    for wide in (None, True):
        with pytest.raises(
            TableError, match=r"first column of w\.csv, '.*again and again.*--no-ids.*--row"
        ):
            read_answers(path, wide=wide)
    name = content.split(",")[0]
    if "," not in content.splitlines()[3][:1]:  # no blank id
        assert read_answers(path, wide=True, row=name).shape == (2, 2)


def test_rows_without_ids_are_numbered(tmp_path):
    content = "q1,q2\n1,0\n,\n0,1\n1,1\n"
    for name in ("w.csv", "w.parquet", "w.jsonl"):
        path = tmp_path / name
        frame = pd.read_csv(io.StringIO(content))
        path = write(tmp_path, name, content) if name == "w.csv" else stored(tmp_path, name, frame)
        reading = read_table(path, Layout(ids=False))
        seen = reading.observations
        assert seen.rows.labels.tolist() == [1, 2, 3, 4]
        assert seen.rows.labels.name is None
        assert seen.by_row.counts.tolist() == [2, 0, 2, 2]
        assert str(reading.chosen) == "wide, rows numbered from 1, 2 columns"
    bare = write(tmp_path, "bare.csv", "1,0\n0,1\n")
    assert read_answers(bare, header=False, ids=False).columns.listed_labels.tolist() == [1, 2]
    with pytest.raises(ValueError, match="leave --row, --col and --answer out"):
        Layout(row="x", ids=False)


def test_names_that_stand_twice_or_not_at_all_are_one_clear_error(tmp_path):
    path = write(tmp_path, "w.csv", "id,x,y,x\na,1,0,1\n")
    with pytest.raises(TableError, match=r"two columns named 'x', the columns 2 and 4; .*--drop 4"):
        read_answers(path)
    assert read_answers(path, wide=True, drop=["4"]).columns.listed_labels.tolist() == ["x", "y"]
    with pytest.raises(TableError, match="two columns named 'x'; choose one by its number"):
        read_answers(path, wide=True, drop=["x"])
    with pytest.raises(TableError, match=r"column 4 of w\.csv has no name; .*--drop 4"):
        read_answers(write(tmp_path, "w.csv", "id,x,y,\na,1,0,\n"))
    twice = pa.Table.from_arrays(
        [pa.array(["a", "b"]), pa.array([1, 0]), pa.array([0, 1])], ["id", "x", "x"]
    )
    pa.parquet.write_table(twice, tmp_path / "w.parquet")
    with pytest.raises(TableError, match="two columns named 'x'"):
        read_answers(tmp_path / "w.parquet", wide=True)
    assert read_answers(tmp_path / "w.parquet", wide=True, drop=["3"]).n == 2


PEOPLE = "id,age,sex,q1,q2,q3\nann,34,m,1,0,1\nbob,51,f,0,,1\neve,18,f,1,1,0\n"


def test_columns_are_left_out_by_name_and_number(tmp_path):
    path = write(tmp_path, "w.csv", PEOPLE)
    reading = read_table(path, Layout(drop=("Age", "3")))
    assert reading.chosen.wide
    assert str(reading.chosen) == "wide, row ids in 'id', 3 columns"
    assert reading.observations.columns.listed_labels.tolist() == ["q1", "q2", "q3"]
    frame = pd.read_csv(path)
    for name in FORMATS[2:]:
        seen = read_answers(stored(tmp_path, name, frame), drop=["age", "sex"])
        assert seen.n == 8
    long = write(tmp_path, "l.csv", "user,item,liked,correct\na,x,1,no\nb,x,0,yes\n")
    assert read_table(long, Layout(drop=("correct",))).chosen.answer == 2
    for drop, match in (
        (["nose"], "no column 'nose'; its columns are 'id', 'age', 'sex', 'q1', 'q2', 'q3'"),
        (["1", "2", "3", "4", "5", "6"], "every column of w.csv is left out"),
        (["1", "2", "3", "4", "5"], "has one column, 'q3'"),
    ):
        with pytest.raises(TableError, match=match):
            read_answers(path, wide=True, drop=drop)
    with pytest.raises(TableError, match="cannot both hold the row ids and be left out"):
        read_answers(path, wide=True, row="id", drop=["id"])
    with pytest.raises(TableError, match="cannot both hold the answers and be left out"):
        read_answers(long, answer="liked", drop=["liked"])
    with pytest.raises(TypeError, match="drop is a list of columns"):
        read_answers(path, wide=True, drop="age")


def test_a_column_that_holds_no_answers_is_named_and_can_be_dropped(tmp_path):
    with pytest.raises(TableError) as caught:
        read_answers(write(tmp_path, "w.csv", PEOPLE), wide=True)
    message = str(caught.value)
    assert "the column 'age' holds '34' (1), '51' (1) and '18' (1), which are no answers" in message
    assert message.split(" (options")[0].endswith("--drop age --drop sex")
    assert "--threshold" not in message
    with pytest.raises(TableError, match=r"column 'sex' holds 'f' \(2\) and 'm' \(1\).*--drop sex \("):
        read_answers(write(tmp_path, "w.csv", PEOPLE), wide=True, drop=["age"])
    odd = "id,a,b,my group\n" + "".join(f"r{k},1,0,{k % 3}\n" for k in range(12))
    with pytest.raises(TableError, match=r"'my group' holds .*--drop 'my group'; or, if every column"):
        read_answers(write(tmp_path, "w.csv", odd), wide=True)


def test_the_pair_of_words_is_that_of_the_most_columns(tmp_path):
    path = write(tmp_path, "w.csv", "id,sex,q1,q2\nann,f,1,0\nbob,m,0,1\neve,f,1,1\n")
    with pytest.raises(TableError, match=r"column 'sex' holds 'f' \(2\) and 'm' \(1\).*--drop sex \("):
        read_answers(path, wide=True)


def test_one_bad_field_of_a_column_of_answers_is_not_blamed_on_the_column(tmp_path):
    body = "".join(f"r{k},1,{k % 2},0\n" for k in range(20)) + "bad,1,maybe,0\n"
    path = write(tmp_path, "w.csv", f"id,a,b,c\n{body}")
    with pytest.raises(
        TableError, match=r"line 22 .*in column 'b', which holds .*'maybe' is no.*--skip-bad"
    ):
        read_answers(path, wide=True)
    with pytest.raises(TableError, match="take it for a blank with --blank maybe, "):
        read_answers(path, wide=True)
    assert read_table(path, Layout(wide=True), skip_bad=True).bad == 1


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("weiß nicht", "take it for a blank with --blank 'weiß nicht'"),
        ("JA ", "name it, too, with --yes JA,"),
    ],
)
def test_a_third_word_beside_those_that_were_named_is_a_blank_or_one_of_them(tmp_path, word, advice):
    rows = [f"r{k},Ja,Nein,{word if k % 4 else 'Ja'}" for k in range(12)]
    path = write(
        tmp_path, "w.csv", "id,a,b,c\n" + "\n".join(rows).replace("Ja,Nein", f"{word},Nein") + "\n"
    )
    with pytest.raises(TableError, match=advice):
        read_answers(path, wide=True, yes=["Ja"], no=["Nein"])


def test_one_column_with_one_word_that_is_a_named_one_but_for_case_is_told_so(tmp_path):
    rows = [f"r{k},Ja,Nein,{'JA ' if k % 4 else 'Ja'}" for k in range(12)]
    path = write(tmp_path, "w.csv", "id,a,b,c\n" + "\n".join(rows) + "\n")
    with pytest.raises(TableError, match="name it, too, with --yes JA, or leave the column out"):
        read_answers(path, wide=True, yes=["Ja"], no=["Nein"])


def test_a_column_of_numbers_among_unusual_words_is_to_be_dropped(tmp_path):
    rows = [f"r{k},{20 + k},Jein,Nope,{'Jein' if k % 2 else 'Nope'}" for k in range(12)]
    path = write(tmp_path, "w.csv", "id,age,a,b,c\n" + "\n".join(rows) + "\n")
    with pytest.raises(TableError, match=r"--yes and --no, and leave columns out that .*--drop NAME"):
        read_answers(path, wide=True)


@pytest.mark.parametrize("wide", [True, False])
def test_many_bad_lines_are_counted_without_a_message_each(tmp_path, monkeypatch, wide):
    made = []
    reason = Vocabulary.reason
    monkeypatch.setattr(Vocabulary, "reason", lambda *given: made.append(0) or reason(*given))
    good = "".join(f"r{k},1,{k % 2}\n" for k in range(600))
    bad = "".join(f"b{k},?,?\n" if wide else f"b{k},x,?\n" for k in range(500))
    path = write(tmp_path, "w.csv", f"{'id,a,b' if wide else 'user,item,liked'}\n{good}{bad}")
    reading = read_table(path, Layout(wide=wide or None), skip_bad=True)
    assert reading.bad == 500
    assert len(reading.first_bad) == len(made) == 3


def test_a_wide_table_of_ratings_asks_for_a_threshold(tmp_path):
    body = "".join(f"r{k},{1 + k % 5},{1 + (k + 2) % 5},{5 - k % 5}\n" for k in range(10))
    path = write(tmp_path, "w.csv", f"id,a,b,c\n{body}")
    with pytest.raises(TableError, match=r"more than two kinds of answer: '\d' \(6\).*--threshold 3.5"):
        read_answers(path, wide=True)
    assert read_answers(path, wide=True, threshold=3.5).n == 30


def test_kinds_of_answer_are_listed_with_their_counts():
    words = Vocabulary()
    found = {"up": 5, "down": 3, "": 9, "left": 1, "right": 2, "in": 1, "out": 1}
    reason = words.reason("left", found)
    assert reason.startswith("there are more than two kinds of answer: 'up' (5), 'down' (3), 'right' (2)")
    assert reason.endswith("'left' (1), 'in' (1) and 1 more")
    assert "--yes and --no" in words.hint(found)
    assert words.reason("b", {"a": 2, "b": 1}) == "the answers 'a' (2) and 'b' (1) are no usual pair"
    assert "--yes 1 --no 2" in words.hint({"2": 4, "1": 4})


def test_a_line_that_is_too_long_is_refused_with_its_number_and_length(tmp_path, monkeypatch):
    for module in (lines, text, cells, typed):
        for name in ("LONGEST_LINE", "LONGEST_RECORD", "LONGEST_OBJECT"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, 1000)
    long = "x" * 3000
    entry = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 2 " + "1" * 3000 + "\n"
    match = r"line {} of .*{} is {} bytes long, and at most 1,000 are read; "
    for name, content, line, length in (
        ("wide.csv", f"id,a,b\nann,1,0\n{long},0,1\n", 3, "3,005"),
        ("names.csv", f"id,a,{long}\nann,1,0\n", 1, "3,006"),
        (
            "late.csv",
            "id,a,b\n" + "".join(f"r{k},1,0\n" for k in range(99)) + f"{long},0,1\n",
            101,
            "3,005",
        ),
        ("long.csv", f"user,item,liked\nann,x,1\n{long},x,1\n", 3, "3,005"),
        ("last.csv", "user,item,liked\n" + "a,x,1\n" * 99 + f"{long},x,1\nb,x,1\n", 101, "3,005"),
        ("o.jsonl", f'{{"user": "a", "item": "x", "liked": 1}}\n{{"user": "{long}"}}\n', 2, "3,013"),
        ("e.mtx", entry, 2, "3,005"),
    ):
        for packed in ("", ".gz"):
            data = content.encode()
            path = write(tmp_path, name + packed, gzip.compress(data) if packed else data)
            with pytest.raises(TableError, match=match.format(line, name + packed, length)):
                read_answers(path)


def test_the_length_of_an_endless_line_is_not_counted_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "LONGEST_LINE", 1000)
    monkeypatch.setattr(lines, "_COUNTED", 5000)
    with pytest.raises(TableError, match=r"line 1 of a.csv.gz is at least [0-9,]+ bytes long"):
        read_answers(write(tmp_path, "a.csv.gz", gzip.compress(b"1," * 5_000_000)))


@pytest.mark.parametrize("name", ["w.parquet", "w.feather", "w.npz"])
def test_a_packed_file_that_memory_cannot_hold_is_refused_while_it_unpacks(tmp_path, monkeypatch, name):
    path = tmp_path / name
    if name == "w.npz":
        np.savez(path, a=np.zeros((100, 100)))
    else:
        stored(tmp_path, name, pd.DataFrame(np.eye(100), columns=[f"c{k}" for k in range(100)]))
    packed = write(tmp_path, f"{name}.gz", gzip.compress(path.read_bytes()))
    memory = type("Memory", (), {"available": 10_000})
    monkeypatch.setattr(lines.psutil, "virtual_memory", lambda: memory)
    with pytest.raises(TableError, match=r"unpacks to more than .* which memory cannot hold; unpack it"):
        read_answers(packed, wide=True)


def test_a_quote_that_never_closes_in_a_wide_table_is_found(tmp_path):
    body = "id,a,b\n" + '"ann,1,0\n' + "bob,1,0\n" * 30_000
    with pytest.raises(TableError, match=r"line 2 of w.csv holds a field of more than .*never close it"):
        read_answers(write(tmp_path, "w.csv", body), wide=True)


def test_a_quote_that_never_closes_in_a_long_table_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_BLOCK", 1 << 20)
    body = "user,item,liked\nann,x,1\n" + '"bob,x,1\n' + "eve,x,1\n" * 400_000
    with pytest.raises(
        TableError, match=r"a record of l.csv after line \d+ goes on for .*never close it"
    ):
        read_answers(write(tmp_path, "l.csv", body))


def test_the_memory_for_a_wide_table_does_not_grow_with_kilobytes_a_column(tmp_path):
    import tracemalloc

    columns, rows = 20_000, 20
    head = ",".join(["id", *(f"c{k}" for k in range(columns))])
    body = "".join(
        f"r{k}," + ",".join("10"[(k + j) % 2] for j in range(columns)) + "\n" for k in range(rows)
    )
    path = write(tmp_path, "w.csv", f"{head}\n{body}")
    read_answers(path)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    seen = read_answers(path)
    taken = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
    tracemalloc.stop()
    assert seen.shape == (rows, columns)
    assert taken < 60 * path.stat().st_size


@pytest.mark.parametrize("model", ["logistic", "hinge", "gibbs", "nuclear"])
def test_a_model_with_blank_rows_and_columns_goes_all_the_way_without_nan(tmp_path, rng, model):
    frame = pd.DataFrame(rng.integers(0, 2, (30, 8)), columns=[f"c{k}" for k in range(8)]).astype(float)
    frame["blank"], frame.loc[4] = np.nan, np.nan
    frame.insert(0, "id", [f"r{k}" for k in range(30)])
    seen = read_answers(stored(tmp_path, "w.csv", frame))
    assert seen.shape == (30, 9)
    fitted = {
        "logistic": onebit.LogisticCompleter(2, random_state=0),
        "hinge": onebit.HingeCompleter(2, random_state=0),
        "gibbs": onebit.GibbsCompleter(2, random_state=0),
        "nuclear": onebit.NuclearNormCompleter(2, random_state=0),
    }[model].fit(seen, certify=0.1)
    fitted.save(tmp_path / "m.onebit")
    for one in (fitted, onebit.load(tmp_path / "m.onebit")):
        filled = one.complete("probability")
        assert filled.index.tolist() == frame["id"].tolist()
        assert filled.columns.tolist() == frame.columns[1:].tolist()
        assert np.isfinite(filled.to_numpy()).all()
        assert np.isfinite(one.complete("score").to_numpy()).all()
        assert 0 < one.certify().bound <= 1
