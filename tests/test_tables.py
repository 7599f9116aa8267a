"""Tables of answers in files: every format, every layout, and everything that can be wrong with them."""

import gc
import gzip
import io
import json
import re
import sys
import weakref
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.io
import scipy.sparse
from hypothesis import example, given
from hypothesis import strategies as st

import onebit
from onebit import Observations
from onebit.data.tables import (
    Layout,
    TableError,
    encoding,
    read_answers,
    read_pairs,
    read_table,
    table_writer,
    text,
    typed,
)
from onebit.data.tables.answers import Vocabulary
from onebit.data.tables.encoding import TextLookup

ANSWERS = [("ann", "tea", True), ("bob", "jam", False), ("ann", "jam", True), ("eve, jr", 'a "b"', False)]
LIKES = 'user,item,liked\nann,tea,1\nbob,jam,0\nann,jam,1\n"eve, jr","a ""b""",0\n'


def frame():
    return pd.DataFrame(ANSWERS, columns=["user", "item", "liked"])


def triples(seen):
    """The answers as a sorted list, however they were read."""
    view = seen.by_row
    rows, columns = seen.rows.labels[view.owners()], seen.columns.labels[view.index]
    return sorted(zip(rows.tolist(), columns.tolist(), (view.sign > 0).tolist(), strict=True))


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def npz(**arrays):
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def as_bytes(name):
    out = io.BytesIO()
    if name.endswith("parquet"):
        frame().to_parquet(out)
    elif name.endswith("feather"):
        frame().to_feather(out)
    elif name.endswith("stream.arrow"):
        table = pa.Table.from_pandas(frame())
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    elif name.endswith("jsonl"):
        out.write("".join(json.dumps(record) + "\n" for record in frame().to_dict("records")).encode())
    elif name.endswith("tsv"):
        out.write(frame().to_csv(sep="\t", index=False).encode())
    elif name.endswith("npz"):
        columns = {name: frame()[name].to_numpy() for name in frame()}
        columns["user"], columns["item"] = columns["user"].astype(str), columns["item"].astype(str)
        return npz(**columns)
    else:
        out.write(LIKES.encode())
    return out.getvalue()


NAMES = ("a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.feather", "stream.arrow", "a.npz", "unknown")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("packed", ["", "gzip", "zstd"])
def test_every_format_gives_the_same_answers(tmp_path, name, packed):
    content = as_bytes(name)
    if packed:
        content = (
            pa.compress(content, codec=packed, asbytes=True)
            if packed == "zstd"
            else gzip.compress(content)
        )
        name += {"gzip": ".gz", "zstd": ".zst"}[packed]
    assert triples(read_answers(write(tmp_path, name, content))) == sorted(ANSWERS)


def test_standard_input_is_read_as_a_file_is(monkeypatch):
    for name in ("a.csv", "a.parquet", "a.jsonl", "a.npz"):
        stdin = io.TextIOWrapper(io.BytesIO(as_bytes(name)))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert triples(read_answers("-")) == sorted(ANSWERS)


def test_a_wide_table_is_the_matrix_it_shows(tmp_path):
    path = write(tmp_path, "wide.csv", "student,ex1,ex2,ex3\nann,1,,0\nbob,NA,1,1\n")
    wide = read_table(path)
    assert wide.chosen.wide
    assert wide.chosen.guessed
    assert wide.blank == 2
    expected = [("ann", "ex1", True), ("ann", "ex3", False), ("bob", "ex2", True), ("bob", "ex3", True)]
    assert triples(wide.observations) == expected
    by_name = write(tmp_path, "other.csv", "ex1,student,ex2\n1,ann,0\n")
    seen = read_answers(by_name, wide=True, row="student")
    assert triples(seen) == [("ann", "ex1", True), ("ann", "ex2", False)]
    typed = tmp_path / "wide.parquet"
    pd.DataFrame({"who": ["a", "b"], "x": [1.0, np.nan], "y": [0.0, 1.0]}).to_parquet(typed)
    assert triples(read_answers(typed)) == [("a", "x", True), ("a", "y", False), ("b", "y", True)]


def test_matrices_are_read_as_from_matrix_reads_them(tmp_path, rng):
    dense = np.where(rng.random((7, 5)) < 0.5, np.nan, rng.integers(0, 2, (7, 5)))
    dense[:, 0], dense[0] = 1.0, 0.0
    path = write(tmp_path, "dense.npz", npz(matrix=dense))
    assert triples(read_answers(path)) == triples(Observations.from_matrix(dense))
    sparse = scipy.sparse.coo_matrix(([1, -1, 1], ([0, 1, 4], [2, 0, 2])), shape=(5, 4))
    scipy.sparse.save_npz(tmp_path / "sparse.npz", sparse.tocsr())
    stored = [(0, 2, True), (1, 0, False), (4, 2, True)]
    assert triples(read_answers(tmp_path / "sparse.npz")) == stored
    scipy.io.mmwrite(tmp_path / "sparse.mtx", sparse)
    # The format counts from one, and an id is its text.
    one_based = [(row + 1, column + 1, yes) for row, column, yes in stored]
    assert triples(read_answers(tmp_path / "sparse.mtx")) == one_based
    scipy.io.mmwrite(tmp_path / "dense.mtx", np.array([[1, 0, 1], [0, 1, 1]]))
    whole = [(1, 1, True), (1, 2, False), (1, 3, True), (2, 1, False), (2, 2, True), (2, 3, True)]
    assert triples(read_answers(tmp_path / "dense.mtx")) == whole
    both = scipy.sparse.coo_matrix(np.array([[1, -1], [-1, 1]]))
    scipy.io.mmwrite(tmp_path / "symmetric.mtx", both, symmetry="symmetric")
    halves = [(1, 1, True), (1, 2, False), (2, 1, False), (2, 2, True)]
    assert triples(read_answers(tmp_path / "symmetric.mtx")) == halves


@pytest.mark.parametrize(
    ("no", "yes"),
    [
        ("no", "yes"), ("False", "TRUE"), ("dislike", "like"), ("0", "1"), ("-1", "+1"), ("0.0", "1.0"),
        ("wrong", "right"), ("incorrect", "correct"), ("Fail", "pass"), ("n", "Y"), ("nay", "aye"),
    ],
)  # fmt: skip
def test_the_usual_words_are_understood(tmp_path, no, yes):
    path = write(tmp_path, "a.csv", f"user,item,answer\na,x,{no}\nb,x,{yes}\n")
    assert triples(read_answers(path)) == [("a", "x", False), ("b", "x", True)]


def test_answers_are_given_back_as_they_were_written():
    for texts, classes in (
        (["yes", "NO"], ["NO", "yes"]),
        (["1", "0"], [0, 1]),
        (["-1"], [-1, 1]),
        (["1"], [0, 1]),
        (["true"], [False, True]),
        (["pass"], ["fail", "pass"]),
    ):
        words = Vocabulary()
        words.signs(texts)
        assert words.classes.tolist() == classes


def test_words_of_ones_own_and_thresholds():
    words = Vocabulary(yes=["gelöst"], no=["offen", "falsch"])
    assert words.signs(["gelöst", "offen", "falsch", "yes", ""]).tolist() == [1, -1, -1, 2, 0]
    assert words.classes.tolist() == ["offen", "gelöst"]
    ratings = Vocabulary(threshold=3.5)
    assert ratings.signs(["3.5", "4", "-2", "1e9", "nan", "good"]).tolist() == [-1, 1, -1, 1, 0, 2]
    for settings, match in (
        ({"threshold": float("nan")}, "must be a number"),
        ({"threshold": 1.0, "yes": ["a"], "no": ["b"]}, "not both"),
        ({"yes": ["a"]}, "not only one"),
        ({"yes": ["a"], "no": ["a"]}, "cannot mean both"),
    ):
        with pytest.raises(ValueError, match=match):
            Vocabulary(**settings)


BAD_FILES = {
    "empty": ("", "a.csv is empty"),
    "header only": ("user,item,liked\n", "a line of names and nothing else"),
    "blank lines only": ("user,item,liked\n\n\n", "a line of names and nothing else"),
    "three values": (
        "user,item,liked\na,x,yes\nb,x,no\nc,x,maybe\n",
        "line 4 of a.csv, 'c,x,maybe': there are more than two kinds of answer: 'yes' .1., 'no' .1. and "
        "'maybe' .1.; name the words with --yes and --no, and say --blank WORD for each that is no "
        "answer",
    ),
    "two pairs of words": (
        "user,item,liked\na,x,yes\nb,x,0\n",
        "line 3.*'yes' .1. and '0' .1. are no usual pair.*--yes yes --no 0",
    ),
    "minus one, zero, one": (
        "user,item,liked\na,x,1\nb,x,-1\nb,y,0\n",
        "line 4.*'1' .1., '-1' .1. and '0' .1.; .*--yes 1 --no=-1",
    ),
    "ratings": ("user,item,stars\na,x,1\nb,x,4\n", "line 3.*'4'.*--threshold 3.5"),
    "no such word": ("user,item,liked\na,x,dunno\n", "line 2.*'dunno' is no yes or no"),
    "short line": (
        "user,item,liked\na,x,1\n\nb,x\nc,x,1\n",
        "line 4 of a.csv, 'b,x': 2 fields where there should be 3",
    ),
    "a long line": ("user,item,liked\na,x,1\nb,x,0,7\n", "line 3.*4 fields where there should be 3"),
    "a missing id": ("user,item,liked\na,,1\n", "line 2 of a.csv, 'a,,1': the column id is missing"),
    "not UTF-8": (b"user,item,liked\na,x,1\nb\xe9,x,1\n", "line 3.*the row id is not UTF-8"),
    "a short line, not UTF-8": (b"user,item,liked\na,x,1\nb\xe9,x\n", "line 3.*2 fields where"),
    "an answer that is not UTF-8": (b"user,item,liked\na,x,1\nb,x,\xe9\n", "line 3.*is not UTF-8; save"),
    "names not UTF-8": (b"us\xe9r,item,liked\na,x,1\n", "first line of a.csv is not UTF-8"),
    "UTF-16": ("user,item,liked\na,x,1\n".encode("utf-16"), "written in UTF-16; save it as UTF-8"),
    "old Mac": ("user,item,liked\ra,x,1\r", "old Macs"),
    "a zero byte": (b"user,it\0em,liked\na,x,1\n", "a zero byte"),
    "an open quote": ('user,"item,liked\na,x,1\n', "opens a quote and never closes it"),
    "no names known": ("a,b,c,d\n1,2,3,4\n", "which column holds the row ids.*--wide.*'a', 'b', 'c'"),
    "data for names": ("196,242,3,881\n186,302,3,891\n", "looks like data.*--no-header"),
    "data for names, words": ("ann,tea,yes\nbob,tea,no\n", "looks like data.*--no-header"),
    "all blank": ("user,item,liked\na,x,\nb,x,NA\n", "no answers: every one of its 2 entries is blank"),
    "two answers columns": ("user,item,liked,correct\na,x,1,0\n", "which column holds the answers"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_bad_file_is_one_clear_error(tmp_path, what):
    content, match = BAD_FILES[what]
    with pytest.raises(TableError, match=match):
        read_answers(write(tmp_path, "a.csv", content))


BAD_BYTES = {
    "half.parquet": as_bytes("a.parquet")[:-30],
    "text.parquet": b"user,item,liked\n",
    "half.feather": as_bytes("a.feather")[:200],
    "half.csv.gz": gzip.compress(LIKES.encode())[:-12],
    "noise.npz": b"PK\x03\x04" + bytes(80),
    "half.npz": as_bytes("a.npz")[:-40],
    "objects.npz": npz(user=np.array([{}, 1], dtype=object)),
    "shapes.npz": npz(a=np.zeros(3), b=np.zeros(4)),
    "empty.npz": npz(),
    "noise.mtx": b"%%MatrixMarket matrix nonsense\n1 1 1\n",
    "short.mtx": b"%%MatrixMarket matrix coordinate real general\n3 3 5\n1 1 1.0\n",
    "outside.mtx": b"%%MatrixMarket matrix coordinate real general\n3 3 1\n7 1 1.0\n",
    "garbage.mtx": b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 2 1\xf5",
    "sizes.mtx": b"%%MatrixMarket matrix coordinate real general\nx y\n1 1 1\n",
    "many.mtx": b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1\n2 2 1\n",
    "skew.mtx": b"%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 1\n",
    "pattern.mtx": b"%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 1\n",
    "list.jsonl": b'[{"user": 1}]\n',
    "half.jsonl": b'{"user": "a", "item": "x", "liked": 1}\n{"user": \n',
    "nested.jsonl": b'{"user": "a", "item": "x", "liked": [1]}\n',
    "nan.jsonl": b'{"user": "a", "item": "x", "liked": 1}\n{"user": NaN, "item": "x", "liked": 0}\n',
    "twice.jsonl": b'{"user": "a", "item": "x", "liked": 1}\n'
    b'{"user": "b", "user": "c", "item": "x", "liked": 0}\n',
    "empty.jsonl": b"\n\n",
    "noise.bin": b"\x01\0\x02\0" * 20,
}


@pytest.mark.parametrize("name", BAD_BYTES)
def test_damaged_and_foreign_files_are_named(tmp_path, name):
    with pytest.raises(TableError, match=re.escape(name)):
        read_answers(write(tmp_path, name, BAD_BYTES[name]))


def test_a_bomb_is_refused_before_it_goes_off(tmp_path, monkeypatch):
    path = write(tmp_path, "bomb.npz", npz(a=np.zeros((10, 10))))
    memory = type("Memory", (), {"available": 100})
    monkeypatch.setattr(typed.psutil, "virtual_memory", lambda: memory)
    with pytest.raises(TableError, match=r"unpacks to .* which memory cannot hold"):
        read_answers(path)


def test_bad_lines_are_counted_when_asked_to(tmp_path):
    good = "".join(f"u{k},x,{k % 2}\n" for k in range(20))
    path = write(tmp_path, "a.csv", f"user,item,liked\n{good}b,x\n,x,1\nc,x,perhaps\nd,x,1\n")
    reading = read_table(path, skip_bad=True)
    assert reading.bad == 3
    assert reading.observations.n == 21
    assert [message.split(",")[0] for message in reading.first_bad] == [
        "line 22 of a.csv", "line 23 of a.csv", "line 24 of a.csv",
    ]  # fmt: skip
    assert "3 bad lines left out" in " ".join(reading.notes())
    with pytest.raises(TableError, match=r"20 of 21 lines of a.csv are bad.*wrong columns"):
        read_table(write(tmp_path, "a.csv", f"user,item,liked\na,x,yes\n{good}"), skip_bad=True)


def test_line_numbers_count_left_out_and_empty_lines(tmp_path):
    content = "user,item,liked\na,x,1\n\nb,x\n\nc,x,0,0\nd,x,0\ne,x,never\nf,x,0\ng,x,1\n"
    reading = read_table(write(tmp_path, "b.csv", content), skip_bad=True)
    assert reading.first_bad[-1].startswith("line 8 of b.csv, 'e,x,never'")
    bare = content.split("\n", 1)[1]
    reading = read_table(
        write(tmp_path, "b.csv", bare), Layout("1", "2", "3", header=False), skip_bad=True
    )
    assert reading.first_bad[-1].startswith("line 7 of b.csv, 'e,x,never'")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("between", [",", ";", "\t", "|"])
def test_line_ends_marks_and_delimiters(tmp_path, end, mark, between):
    lines = [["user", "item", "liked"], ["ann", "tea", "1"], ["bob", "jam", "0"]]
    content = mark + end.join(between.join(line) for line in lines)
    seen = read_answers(write(tmp_path, "a.csv", content))
    assert triples(seen) == [("ann", "tea", True), ("bob", "jam", False)]


def test_ids_with_line_ends_quotes_and_spaces_stay_as_they_are(tmp_path):
    path = write(tmp_path, "a.csv", 'user,item,liked\n" ann ","a\nb",1\n"x""y",jam,0\n')
    assert triples(read_answers(path)) == [(" ann ", "a\nb", True), ('x"y', "jam", False)]


def test_an_id_is_its_text(tmp_path):
    numbers = read_answers(write(tmp_path, "a.csv", "user,item,liked\n10,1,1\n9,1,0\n-3,2,1\n"))
    assert numbers.rows.labels.tolist() == [-3, 9, 10]  # numbers, in their order
    zeros = read_answers(write(tmp_path, "a.csv", "user,item,liked\n007,1,1\n7,1,0\n"))
    assert zeros.rows.labels.tolist() == ["007", "7"]
    mixed = write(tmp_path, "a.jsonl", '{"user":7,"item":1,"liked":1}\n{"user":"x","item":1,"liked":0}\n')
    assert read_answers(mixed).rows.labels.tolist() == ["7", "x"]
    typed = tmp_path / "a.parquet"
    pd.DataFrame({"user": ["7", "8"], "item": [1, 2], "liked": [1, 0]}).to_parquet(typed)
    seen = read_answers(typed)
    assert seen.rows.labels.tolist() == ["7", "8"]
    assert seen.columns.labels.tolist() == [1, 2]


def test_a_model_is_asked_by_text_whatever_its_ids_are():
    for labels in ([7, 8, 10], ["7", "8", "10"]):
        pairs = [(label, "x") for label in labels]
        model = onebit.LogisticCompleter(0).fit(pairs, [1, 0, 1])
        lookup = TextLookup(model.rows_)
        asked = pa.array(
            [b"10", b"7", b"007", b"+7", b"7.0", b"new", b"99999999999999999999"], pa.large_binary()
        )
        found = lookup.codes(asked)
        assert (found[2:] == -1).all()
        assert [str(label) for label in model.rows_.labels[found[:2]]] == ["10", "7"]
    two = onebit.LogisticCompleter(0).fit([(7, "x"), ("7", "x")], [1, 0])
    with pytest.raises(ValueError, match="both written '7'"):
        TextLookup(two.rows_)


def test_columns_by_name_number_and_guess(tmp_path):
    path = write(tmp_path, "a.csv", "when,Student_ID,score,exercise\n1,ann,1,x\n2,bob,0,x\n")
    reading = read_table(path)
    assert str(reading.chosen) == "rows 'Student_ID', columns 'exercise', answers 'score'"
    assert "taking rows 'Student_ID'" in reading.notes()[0]
    assert reading.observations.rows.labels.name == "Student_ID"
    chosen = read_table(path, Layout("2", "exercise", "SCORE")).chosen
    assert (chosen.row, chosen.column, chosen.answer, chosen.guessed) == (1, 3, 2, False)
    bare = write(tmp_path, "b.tsv", "196\t242\t3\t881\n186\t302\t5\t891\n")
    seen = read_answers(bare, row="1", column="2", answer="3", header=False, threshold=3.5)
    assert triples(seen) == [(186, 302, True), (196, 242, False)]
    assert seen.rows.labels.name is None
    for layout, match in (
        (Layout("nobody"), "no column 'nobody'; its columns are 'when', 'Student_ID'"),
        (Layout("exercise", "exercise", "score"), "cannot be two things"),
        (Layout(format="xls"), "unknown format 'xls'"),
        (Layout(delimiter="ab"), "one plain character"),
    ):
        with pytest.raises(ValueError, match=match):
            read_table(path, layout)
    with pytest.raises(ValueError, match="a wide table has no column"):
        Layout(wide=True, column="x")
    with pytest.raises(TableError, match="two columns named 'x'"):
        read_answers(write(tmp_path, "c.csv", "student,x,x\na,1,0\n"), wide=True)


def test_answers_taken_for_ids_are_noticed(tmp_path):
    path = write(tmp_path, "a.csv", "a,b,c\nann,1,up\nbob,0,9\n")
    with pytest.raises(TableError, match=r"second column of a\.csv holds answers: say --wide"):
        read_answers(path)


def test_many_batches_are_one_table(tmp_path, monkeypatch, rng):
    monkeypatch.setattr(encoding, "_JOIN_FROM", 50)
    monkeypatch.setattr(text, "_BLOCK", 4000)
    n = 5000
    table = pd.DataFrame(
        {
            "user": rng.integers(3000, size=n),
            "item": rng.integers(40, size=n),
            "liked": rng.integers(2, size=n),
        }
    )
    path = tmp_path / "a.csv"
    table.to_csv(path, index=False)
    seen = read_answers(path)
    direct = Observations.from_pairs(table[["user", "item"]], table["liked"])
    assert triples(seen) == triples(direct)
    for name in ("start", "index", "sign"):
        np.testing.assert_array_equal(getattr(seen.by_row, name), getattr(direct.by_row, name))


def test_joining_ids_is_not_quadratic(monkeypatch):
    joined = []
    original = encoding.GrowingIds._join

    def counting(self):
        joined.append(len(self._known) + sum(len(values) for values, _ in self._pending))
        original(self)

    monkeypatch.setattr(encoding.GrowingIds, "_join", counting)
    monkeypatch.setattr(encoding, "_JOIN_FROM", 100)
    ids = encoding.GrowingIds("row", None)
    n, batch = 40_000, 100
    for begin in range(0, n, batch):
        values = pa.array([b"%d" % k for k in range(begin, begin + batch)], pa.large_binary())
        ids.add(values, np.arange(batch, dtype=np.int32))
    index, codes = ids.finish()
    assert len(index) == n
    assert np.array_equal(index.labels[codes], np.arange(n))
    assert sum(joined) < 8 * n


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such file: .*nothing.csv"):
        read_answers(tmp_path / "nothing.csv")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read_answers(tmp_path)


def test_pairs_are_read_without_answers(tmp_path):
    path = write(tmp_path, "a.csv", "item,user,note\ntea,ann,1\njam,bob,2\ntea,ann,3\n")
    (batch,) = read_pairs(path)
    rows, columns = (
        values.take(pa.array(place)).to_pylist() for values, place in (batch.rows, batch.columns)
    )
    assert rows == [b"ann", b"bob", b"ann"]
    assert columns == [b"tea", b"jam", b"tea"]
    with pytest.raises(TableError, match=r"line 3 of a\.csv, ',jam': the row id is missing"):
        list(read_pairs(write(tmp_path, "a.csv", "user,item\nann,tea\n,jam\n")))
    with pytest.raises(TableError, match="a line of names and nothing else"):
        list(read_pairs(write(tmp_path, "a.csv", "user,item\n")))


@pytest.mark.parametrize(
    "name", ["t.csv", "t.tsv", "t.jsonl", "t.parquet", "t.arrow", "t.csv.gz", "t.csv.zst"]
)
def test_what_is_written_can_be_read(tmp_path, name):
    users, items, liked = (pa.array(list(column)) for column in zip(*ANSWERS, strict=True))
    table = pa.table({"user": users, "item": items, "liked": liked})
    with table_writer(tmp_path / name) as write_table:
        write_table(table.slice(0, 2))
        write_table(table.slice(2))
    assert triples(read_answers(tmp_path / name)) == sorted(ANSWERS)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_table_is_written_whole_or_not_at_all(tmp_path):
    path = write(tmp_path, "t.csv", "old")

    def interrupted():
        with table_writer(path) as write_table:
            write_table(pa.table({"a": [1]}))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with (
        pytest.raises(ValueError, match="a table is written as csv, tsv"),
        table_writer(tmp_path / "t.xls"),
    ):
        pass
    with (
        pytest.raises(FileNotFoundError, match="does not exist"),
        table_writer(tmp_path / "no" / "t.csv"),
    ):
        pass


IDS = st.text(min_size=1, max_size=8).filter(lambda text: "\0" not in text)


@given(
    rows=st.lists(st.tuples(IDS, IDS, st.booleans()), min_size=1, max_size=8),
    name=st.sampled_from(["f.csv", "f.jsonl", "f.parquet", "f.tsv"]),
)
@example(rows=[("\ufeff", "a", True)], name="f.csv")
@example(rows=[("a\r\nb", "\r", True), ("'", ";", False)], name="f.csv")
@example(rows=[("00", "0", True), ("0", "0", False)], name="f.csv")
def test_any_ids_survive_a_file(tmp_path_factory, rows, name):
    path = tmp_path_factory.getbasetemp() / name
    table = pa.table(
        {
            "user": pa.array([row for row, _, _ in rows], pa.string()),
            "item": pa.array([column for _, column, _ in rows], pa.string()),
            "liked": pa.array(["yes" if yes else "no" for _, _, yes in rows]),
        }
    )
    with table_writer(path) as write_table:
        write_table(table)
    seen = read_answers(path, row="user", column="item", answer="liked")
    found = [(str(row), str(column), yes) for row, column, yes in triples(seen)]
    assert sorted(found) == sorted(rows)


@given(
    content=st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.text(alphabet='ab01,;"\n\r\t{}[]:', max_size=120).map(
            lambda text: b"user,item,liked\n" + text.encode()
        ),
    ),
    name=st.sampled_from(["f.csv", "f.tsv", "f.jsonl", "f.parquet", "f.arrow", "f.npz", "f.mtx", "f"]),
    skip_bad=st.booleans(),
)
@example(
    content=b"%%MatrixMarket matrix coordinate real general\n1 1 999999999999\n",
    name="f.mtx",
    skip_bad=False,
)
@example(content=b'{"a": ' + b"[" * 5000, name="f.jsonl", skip_bad=True)
def test_no_bytes_make_a_reader_fail_in_another_way(tmp_path_factory, content, name, skip_bad):
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    try:
        seen = read_answers(path, skip_bad=skip_bad)
    except TableError:
        return
    assert seen.n > 0
    assert set(np.unique(seen.by_row.sign)) <= {-1, 1}


def test_a_wide_table_with_a_column_that_shows_late_is_refused(tmp_path):
    lines = [json.dumps({"who": f"r{k}", "a": k % 2, "b": 1}) for k in range(60)]
    lines.append(json.dumps({"who": "r60", "a": 1, "b": 0, "c": 1}))
    path = write(tmp_path, "late.jsonl", "\n".join(lines))
    with pytest.raises(TableError, match=r"line 61 .* has a column 'c'"):
        read_answers(path, wide=True)


def test_lists_and_objects_are_no_ids(tmp_path):
    lines = ['{"user": "a", "item": "x", "liked": 1}', '{"user": [1, 2], "item": "x", "liked": 0}']
    path = write(tmp_path, "nested.jsonl", "\n".join(lines))
    with pytest.raises(TableError, match=r"line 2.*a list or an object"):
        read_answers(path)


def test_not_a_number_is_a_missing_id(tmp_path):
    content = npz(
        row=np.array([1.0, np.nan, 2.0]), column=np.array([1, 2, 3]), answer=np.array([1, 0, 1])
    )
    with pytest.raises(TableError, match=r"missing|no row"):
        read_answers(write(tmp_path, "nan.npz", content))


def test_a_quote_that_never_closes_is_found_at_once(tmp_path):
    body = 'user,film,liked 5" disk\n' + "a,b,1\n" * 60_000
    with pytest.raises(TableError, match="opens a quote and never closes it"):
        read_answers(write(tmp_path, "quote.csv", body))


def test_an_archive_that_holds_no_arrays_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "sheet.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    with pytest.raises(TableError, match="is an archive, but not of numpy's arrays; save a spreadsheet"):
        read_table(path)


def test_a_third_word_beside_answers_may_be_a_blank(tmp_path):
    lines = [f"{k},yes,{('yes', 'no', 'maybe')[k % 3]},no,no" for k in range(30)]
    path = tmp_path / "survey.csv"
    path.write_text("\n".join(["id,q1,q2,q3,q4", *lines]))
    with pytest.raises(
        TableError, match="'maybe' is no answer; take it for a blank with --blank maybe, or"
    ):
        read_table(path, Layout(wide=True))


def test_one_number_alone_suggests_no_threshold():
    assert Vocabulary().hint({"5": 1}).count("--threshold NUMBER") == 1
    assert "--threshold 3.5" in Vocabulary().hint({"5": 1, "3": 1})


@pytest.mark.parametrize("encoded", [False, True])
def test_a_small_packed_file_does_not_hold_ids_of_megabytes(tmp_path, encoded):
    ids = pa.array(["a", "b" * (5 << 20)] * 3)
    table = pa.table({"row": ids.dictionary_encode() if encoded else ids, "col": [1, 2, 3, 1, 2, 3]})
    table = table.append_column("answer", pa.array([0, 1, 1, 0, 1, 0]))
    pa.parquet.write_table(table, tmp_path / "bomb.parquet")
    pa.feather.write_feather(table, tmp_path / "bomb.arrow")
    for name in ("bomb.parquet", "bomb.arrow"):
        with pytest.raises(TableError, match=r"holds a text of 5 MB after row 0; ids and answers"):
            read_answers(tmp_path / name)


def test_after_an_error_no_parser_still_holds_the_file(tmp_path, monkeypatch):
    """It reads ahead on a thread of its own, which would abort a program that ends just then."""
    made, plain = [], text._Text

    def noted(*arguments):
        found = plain(*arguments)
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(text, "_Text", noted)
    path = tmp_path / "bad.csv"
    path.write_text("row,col,y\n" + "a,b,1\n" * 500 + "a,c,maybe\n" + "b,b,0\n" * 500)
    with pytest.raises(ValueError, match="maybe") as caught:
        read_answers(path)
    assert [found() for found in made] == [None]
    assert caught.value is not None  # and with it all frames that it went through


def test_an_error_of_a_line_is_forgotten_with_whoever_caught_it(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("row,col,y\n" + "a,b,1\n" * 500 + "a,c\n")
    seen = []
    for _ in range(2):
        with pytest.raises(TableError, match="2 fields") as caught:
            read_answers(path)
        seen.append(weakref.ref(caught.value))
        del caught
    gc.collect()
    assert [error() for error in seen] == [None, None]


def test_a_damaged_header_of_an_array_is_one_clear_error(tmp_path):
    path, array = tmp_path / "a.npz", io.BytesIO()
    np.save(array, np.array([[1.0, -1.0], [-1.0, 1.0]]))
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("arr_0.npy", array.getvalue().replace(b"}", b" "))
    with pytest.raises(TableError, match="cannot be read as npz"):
        read_answers(path)


def test_an_entry_cut_before_its_value_is_refused(tmp_path):
    path = tmp_path / "a.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n3 3 3\n1 1 1\n2 1 -1\n3 2")
    with pytest.raises(
        TableError,
        match=r"one of entries 1 to 3 of .*a\.mtx has no value; a line holds one entry",
    ):
        read_answers(path)


def test_a_value_that_is_written_as_nan_is_a_blank_in_matrix_market_as_elsewhere(tmp_path):
    matrix = scipy.sparse.coo_matrix(([1.0, 0.0, np.nan], ([0, 1, 2], [0, 1, 1])), shape=(3, 2))
    scipy.io.mmwrite(tmp_path / "n.mtx", matrix)
    scipy.sparse.save_npz(tmp_path / "n.npz", matrix)
    assert read_answers(tmp_path / "n.mtx").n == read_answers(tmp_path / "n.npz").n == 2


@pytest.mark.parametrize(
    ("rating", "threshold", "advice"),
    [
        ("{}%", None, "if these are ratings in percent, take the % signs out, and say --threshold 50"),
        ("{}%", 50.0, "'20%' is not a number; take the % signs out"),
        ('"{},5"', 50.0, "'20,5' is not a number; write 20.5, with a decimal point"),
    ],
)
def test_ratings_that_are_no_numbers_by_their_signs_are_told_how_to_become_some(
    tmp_path, rating, threshold, advice
):
    lines = [f"r{k},c,{rating.format(20 + 10 * k)}" for k in range(7)]
    path = tmp_path / "p.csv"
    path.write_text("row,column,answer\n" + "\n".join(lines) + "\n")
    with pytest.raises(TableError, match=re.escape(advice)):
        read_answers(path, threshold=threshold)


def test_advice_about_options_says_what_they_are_in_python(tmp_path):
    with pytest.raises(TableError, match=r"--wide .*--no-ids ids=False, --no-header header=False\)$"):
        read_answers(write(tmp_path, "a.csv", "who,age,a,b,c\nann,30,1,0,1\nbob,40,0,0,1\n"))
    with pytest.raises(TableError, match=r"nothing else$"):
        read_answers(write(tmp_path, "b.csv", "user,item,answer\n"))
