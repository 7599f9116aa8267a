"""Fits on a Dask cluster: the same as on one machine, and the same for any number of workers."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

pytest.importorskip("distributed")

import onebit.dask

import onebit
from cluster_tables import answers, written
from onebit import AutoCompleter, GibbsCompleter, HingeCompleter, LogisticCompleter
from onebit.cli import app
from onebit.data.observations import Observations
from onebit.data.tables.answers import Vocabulary
from onebit.data.tables.problems import TableError
from onebit.engine import fitting
from onebit.engine.cluster.client import Cluster, ClusterError
from onebit.engine.cluster.fitting import fit_on
from onebit.engine.cluster.intake import Source, block_count, taken_in
from onebit.engine.cluster.journal import Journal
from onebit.engine.cluster.outcome import Outcome
from onebit.engine.cluster.reading import distinct_ids, parquet_files, parquet_pieces
from onebit.engine.descent import Schedule
from onebit.engine.recipe import Recipe
from onebit.engine.workers import Cpu
from onebit.model.losses import HINGE, LOGISTIC

# Short: every round waits for messages. The pattern has tests of its own.
SETTINGS = {"rank": 3, "max_iter": 4, "tol": 1e-12, "random_state": 0, "pattern": None}
PATTERNED = SETTINGS | {"pattern": "both"}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def client(forks):
    with onebit.dask.local_client(2) as made:
        yield made


@pytest.fixture(scope="module")
def table():
    return answers()


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    return written(table, tmp_path_factory.mktemp("answers") / "files")


@pytest.fixture(scope="module")
def model(client, folder):
    """The model that most tests compare with."""
    return onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS))


def bits(model):
    """Return everything that a fit found, to the last bit."""
    posterior = model.posterior_
    arrays = [
        model.objective_path_,
        *(a for side in posterior.sides for a in (side.mean, side.covariance)),
    ]
    return [array.tobytes() for array in arrays]


@pytest.mark.parametrize(
    ("workers", "files", "order", "group"), [(1, 1, -1, 700), (4, 5, 1, None)], ids=["one", "four"]
)
def test_bits_depend_neither_on_workers_nor_on_the_order_of_the_answers(
    model, table, tmp_path, workers, files, order, group
):
    other = written(table, tmp_path / "files", files, order, group)
    with onebit.dask.local_client(workers) as client:
        again = onebit.dask.fit(client, other, LogisticCompleter(**SETTINGS))
    assert bits(again) == bits(model)


@pytest.mark.parametrize("pattern", [None, "both"])
@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=["logistic", "hinge"])
def test_every_half_round_is_that_of_one_machine(client, table, folder, tmp_path, loss, pattern):
    recipe = Recipe(loss=loss, rank=3, schedule=Schedule(5, 1e-12), pattern=pattern)
    seen = Observations.from_pairs(table[["user", "item"]], table["liked"])
    known = fitting.known_of(recipe, seen, Cpu())
    here = fitting.descend(recipe, seen, Cpu(), np.random.default_rng(5), None, None, known)[0]
    cluster = Cluster(client, tmp_path)
    source = Source("files", parquet_pieces(parquet_files(folder)), tuple(table.columns), Vocabulary())
    blocks = taken_in(cluster, source).blocks
    there = fit_on(recipe, blocks, np.random.default_rng(5), Journal(blocks, "fit"))
    np.testing.assert_allclose(there.path, here.path, rtol=1e-6)
    outcome = Outcome(there, blocks)
    posterior = outcome.posterior(outcome.labels()[1])
    pairs = np.indices(seen.shape, dtype=np.int32).reshape(2, -1)
    np.testing.assert_allclose(posterior.scores(*pairs), here.posterior.scores(*pairs), atol=1e-4)


def test_a_certificate_counts_the_same_answers_as_on_one_machine(client, table, folder, tmp_path):
    there = onebit.dask.fit(client, folder, LogisticCompleter(**PATTERNED), certify=0.2)
    here = LogisticCompleter(**PATTERNED).fit(table[["user", "item"]], table["liked"], certify=0.2)
    assert there.certify(0.05).bound == here.certify(0.05).bound
    names = ["rows", "columns", "sign", "wrong", "fitted_too", "open"]
    mine, theirs = (
        pd.DataFrame({name: getattr(part.held_out_, name) for name in names})
        .sort_values(names)
        .reset_index(drop=True)
        for part in (there, here)
    )
    pd.testing.assert_frame_equal(mine, theirs)
    there.save(tmp_path / "model.onebit")
    loaded = onebit.load(tmp_path / "model.onebit")
    assert loaded.certify(0.05).bound == there.certify(0.05).bound
    np.testing.assert_array_equal(loaded.predict_proba(table[["user", "item"]]),
                                  there.predict_proba(table[["user", "item"]]))  # fmt: skip


@pytest.mark.parametrize("effects", [True, False, "rows"])
def test_weights_and_effects_are_those_of_one_machine(client, table, tmp_path, effects):
    weight = np.random.default_rng(1).choice([0.0, 0.5, 2.0], len(table))
    folder = written(table.assign(w=weight), tmp_path / "files")
    settings = SETTINGS | {"effects": effects}
    there = onebit.dask.fit(
        client,
        folder,
        LogisticCompleter(**settings),
        row="user",
        column="item",
        answer="liked",
        weight="w",
    )
    here = LogisticCompleter(**settings).fit(table[["user", "item"]], table["liked"], weight)
    pairs = table[["user", "item"]]
    np.testing.assert_allclose(there.predict_proba(pairs), here.predict_proba(pairs), atol=1e-4)


def test_the_larger_side_is_divided_whichever_it_is(client, table, tmp_path):
    turned = written(table[["item", "user", "liked"]], tmp_path / "files")
    named = {"row": "item", "column": "user"}
    model = LogisticCompleter(3, random_state=0, tol=1e-4)
    there = onebit.dask.fit(client, turned, clone(model), certify=0.1, **named)
    here = model.fit(table[["item", "user"]], table["liked"], certify=0.1)
    assert there.posterior_.shape == here.posterior_.shape == (40, 150)
    assert (np.diff(there.objective_path_) < 1e-6).all()
    # The start is another one, and so is the last digit of where it leads.
    assert there.objective_ == pytest.approx(here.objective_, rel=2e-3)
    pairs = table[["item", "user"]]
    np.testing.assert_allclose(there.predict_proba(pairs), here.predict_proba(pairs), atol=0.1)


def test_frames_are_fitted_like_files(client, table, model):
    from dask import dataframe

    frame = dataframe.from_pandas(table, npartitions=4)
    assert bits(LogisticCompleter(**SETTINGS).fit(frame)) == bits(model)
    apart = LogisticCompleter(**SETTINGS).fit(frame[["user", "item"]], frame["liked"])
    assert bits(apart) == bits(model)
    # Lines belong together, whatever indexes say: those of files begin anew in each partition.
    anew = frame.map_partitions(lambda part: part.reset_index(drop=True))
    apart = LogisticCompleter(**SETTINGS).fit(anew[["user", "item"]], anew["liked"])
    assert bits(apart) == bits(model)
    for other in (table["liked"], table["liked"].to_numpy(), frame["liked"].repartition(npartitions=2)):
        with pytest.raises(ValueError, match=r"y must be a Dask series with the partitions of X \(4\)"):
            LogisticCompleter(**SETTINGS).fit(frame[["user", "item"]], other)


def test_hinge_probabilities_are_calibrated(client, folder, table):
    there = onebit.dask.fit(client, folder, HingeCompleter(**SETTINGS | {"max_iter": 8}))
    assert (
        there.calibration_
        != HingeCompleter(3, calibrate=False).fit(table[["user", "item"]], table["liked"]).calibration_
    )
    probability = there.predict_proba(table[["user", "item"]])[:, 1]
    assert probability.mean() == pytest.approx(table["liked"].mean(), abs=0.03)


def test_curves_are_fitted_to_weighted_answers(client, table, tmp_path):
    weight = np.where(table["liked"], 4.0, 1.0)
    folder = written(table.assign(w=weight), tmp_path / "files")
    named = {"row": "user", "column": "item", "answer": "liked", "weight": "w"}
    there = onebit.dask.fit(client, folder, HingeCompleter(**SETTINGS | {"max_iter": 8}), **named)
    probability = there.predict_proba(table[["user", "item"]])[:, 1]
    expected = np.average(table["liked"], weights=weight)
    assert np.average(probability, weights=weight) == pytest.approx(expected, abs=0.03)


def test_repeats_are_told_from_blanks_as_on_one_machine(client, table, tmp_path):
    twice = pd.concat([table, table[:40]], ignore_index=True)
    there = onebit.dask.fit(
        client, written(twice, tmp_path / "files"), LogisticCompleter(**SETTINGS), certify=0.2
    )
    here = LogisticCompleter(**SETTINGS).fit(twice[["user", "item"]], twice["liked"], certify=0.2)
    assert there.held_out_.blanks == here.held_out_.blanks


def test_auto_searches_on_a_sample_and_says_so(client, folder, monkeypatch):
    from onebit.completers import cluster_work

    monkeypatch.setattr(cluster_work, "SAMPLE_ANSWERS", 3000)
    with pytest.warns(UserWarning, match=r"searched on [12],\d{3} answers, fitted on all"):
        found = onebit.dask.fit(client, folder, AutoCompleter(random_state=0, pattern=None))
    assert len(found.search_) > 3
    assert found.completer_.posterior_ is found.posterior_


REFUSED = {
    "sampling": (LogisticCompleter(inference="sampling"), "draws of all rows"),
    "diagonal": (LogisticCompleter(covariance="diagonal"), "those of full covariances"),
    "sparse": (LogisticCompleter(sparse="rows"), "all rows in one place"),
    "starts": (LogisticCompleter(n_init=2), "n_init=2"),
    "paper": (HingeCompleter(method="paper", covariance="diagonal", effects=False), "Algorithm 1"),
    "gibbs": (GibbsCompleter(), "GibbsCompleter does not run on a cluster"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_run_on_a_cluster_is_refused_with_the_reason(client, folder, what):
    model, why = REFUSED[what]
    with pytest.raises(ValueError, match=why):
        onebit.dask.fit(client, folder, model)


BAD = {
    "ids of floats": ({"user": lambda t: t["user"] / 2}, "row ids are of type double; make them whole"),
    "a missing id": ({"item": lambda t: t["item"].where(t.index != 7)}, "a column id is missing"),
    "three answers": (
        {"liked": lambda t: np.arange(len(t)) % 3},
        "more than two kinds of answer.*--threshold",
    ),
    "only blanks": ({"liked": None}, "only blanks"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_tables_are_one_clear_error(client, table, tmp_path, what):
    changes, message = BAD[what]
    folder = written(table.assign(**changes), tmp_path / "files")
    with pytest.raises((TableError, ValueError), match=message):
        onebit.dask.fit(
            client, folder, LogisticCompleter(**SETTINGS), row="user", column="item", answer="liked"
        )


ARGUMENTS = {
    "blocks": ({"blocks": 0}, ValueError, "blocks must be a whole number from 1 to 8192.*got 0"),
    "patience": ({"patience": -1}, ValueError, "patience must be a positive number.*got -1"),
    "share": ({"certify": 2}, ValueError, "from 0 to below 1; got 2"),
    "weights": ({"certify": 0.1, "weight": "user"}, ValueError, "cannot be had with sample_weight"),
    "no such weights": ({"weight": "w"}, TableError, "no column 'w' for weights"),
    "twice": ({"row": "user", "column": "user"}, ValueError, "'user' cannot hold two things"),
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_arguments_are_checked_before_anything_is_read(client, folder, what):
    given, error, message = ARGUMENTS[what]
    with pytest.raises(error, match=message):
        onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS), **given)


def test_things_that_are_no_source_and_no_completer_are_refused(client, folder, table):
    for source in (table, None, []):
        with pytest.raises(TypeError, match="source must be a path"):
            onebit.dask.fit(client, source, LogisticCompleter())
    with pytest.raises(TypeError, match=r"such as LogisticCompleter\(\)"):
        onebit.dask.fit(client, folder, LogisticCompleter)
    from dask import dataframe

    local = LogisticCompleter(2).fit(table[["user", "item"]], table["liked"])
    frame = dataframe.from_pandas(table[["user", "item"]], npartitions=1)
    with pytest.raises(TypeError, match="map_partitions"):
        local.predict_proba(frame)


def test_ids_of_two_kinds_in_two_files_are_an_error(client, table, tmp_path):
    folder = written(table, tmp_path / "files", 2)
    table.assign(user=table["user"].astype(str)).to_parquet(folder / "part-1.parquet")
    with pytest.raises(TableError, match="row ids are numbers in one part and text in another"):
        onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS))


def test_words_thresholds_and_blanks_are_read_as_from_one_file(client, table, tmp_path, model):
    stars = np.where(table["liked"], 5, 2)
    rated = written(table.assign(liked=stars), tmp_path / "stars")
    found = onebit.dask.fit(client, rated, LogisticCompleter(**SETTINGS), threshold=3.5)
    assert bits(found) == bits(model)
    words = table.assign(liked=np.where(table["liked"], "oui", "non"))
    more = pd.concat([words, words.iloc[:50].assign(liked="?")])
    spoken = written(more, tmp_path / "words")
    found = onebit.dask.fit(
        client, spoken, LogisticCompleter(**SETTINGS), yes=["oui"], no=["non"], blank=["?"]
    )
    assert bits(found) == bits(model)
    assert found.classes_.tolist() == ["non", "oui"]


def test_a_model_in_parts_predicts_like_the_whole(client, folder, table, tmp_path):
    from dask import dataframe

    whole = onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS), certify=0.1)
    parted = onebit.dask.fit_parts(
        client, folder, LogisticCompleter(**SETTINGS), tmp_path / "parts", certify=0.1
    )
    pairs = table[["user", "item"]].iloc[:500]
    wanted = whole.predict_proba(pairs)[:, 1]
    np.testing.assert_array_equal(parted.predict_proba(pairs)[:, 1], wanted)
    as_tuples = list(pairs.itertuples(index=False, name=None))
    np.testing.assert_array_equal(parted.predict_proba(as_tuples)[:, 1], wanted)
    as_floats = pairs.astype({"user": float, "item": "category"})
    np.testing.assert_array_equal(parted.predict_proba(as_floats)[:, 1], wanted)
    lazy = parted.predict_proba(dataframe.from_pandas(pairs, npartitions=3))
    np.testing.assert_array_equal(lazy.compute().to_numpy(), wanted)
    assert parted.certify(0.1).bound == whole.certify(0.1).bound
    best = parted.recommend(2).compute()
    seen = LogisticCompleter(**SETTINGS).fit(table[["user", "item"]], table["liked"], certify=0.1)
    mine = best.sort_values(["user", "rank"]).reset_index(drop=True)
    theirs = seen.recommend(n=2).sort_values(["user", "rank"]).reset_index(drop=True)
    assert (mine["user"].to_numpy() == theirs["user"].to_numpy()).all()
    np.testing.assert_allclose(mine["probability"], theirs["probability"], atol=1e-4)
    with pytest.raises(FileExistsError, match="not empty"):
        onebit.dask.fit_parts(client, folder, LogisticCompleter(), tmp_path / "parts")


def test_rows_without_fitted_answers_and_ids_unknown_are_expected_as_on_one_machine(
    client, table, tmp_path
):
    # Weights of zero leave a row and a column without answers; the pattern says where to expect them.
    silent = (table["user"] == 3 * 7) | (table["item"] == "item 5")
    weight = np.where(silent, 0.0, 1.0)
    folder = written(table.assign(w=weight), tmp_path / "files")
    named = {"row": "user", "column": "item", "answer": "liked", "weight": "w"}
    there = onebit.dask.fit(client, folder, LogisticCompleter(**PATTERNED), **named)
    here = LogisticCompleter(**PATTERNED).fit(table[["user", "item"]], table["liked"], weight)
    pairs = [(21, "item 1"), (21, "item 5"), (0, "item 5"), (1, "item 1"), (0, "nothing"), (1, "nothing")]
    wanted = here.predict_proba(pairs)
    np.testing.assert_allclose(there.predict_proba(pairs), wanted, atol=1e-4)
    assert abs(wanted[0, 1] - wanted[3, 1]) > 1e-6  # a row that is known is not any row
    new = [(9999, f"item {k}") for k in range(10)]
    folded = [m.fold_in(new, [1, 0] * 5).predict_proba(new) for m in (there, here)]
    np.testing.assert_allclose(folded[0], folded[1], atol=1e-4)
    columns = [(3 * k, "new") for k in range(10)]
    folded = [m.fold_in(columns, [1, 0] * 5).predict_proba(columns) for m in (there, here)]
    np.testing.assert_allclose(folded[0], folded[1], atol=1e-4)


def test_nothing_of_others_is_removed(client, table, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    folder = written(table, kept / "parts")
    (kept / "thesis.txt").write_text("mine")
    onebit.dask.fit_parts(client, folder, LogisticCompleter(**SETTINGS), kept / "model", checkpoint=kept)
    assert sorted(path.name for path in kept.iterdir()) == ["model", "parts", "thesis.txt"]
    assert len(list(folder.iterdir())) == 3
    (kept / "onebit-cluster-work").mkdir()
    with pytest.raises(FileExistsError, match="not of a fit that was stopped"):
        onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS), checkpoint=kept)
    with pytest.raises(ValueError, match="checkpoint is empty"):
        onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS), checkpoint="")


def test_a_part_that_is_another_one_is_refused(client, folder, tmp_path):
    parted = onebit.dask.fit_parts(client, folder, LogisticCompleter(**SETTINGS), tmp_path / "parts")
    assert repr(parted) == "PartedModel(150 rows, 40 columns, 8 parts)"
    other = (tmp_path / "parts" / "part-00003.onebit").read_bytes()
    (tmp_path / "parts" / "part-00004.onebit").write_bytes(other)
    with pytest.raises(ValueError, match=r"part-00004\.onebit is not part 4 of this model"):
        parted.part(4)
    (tmp_path / "parts" / "part-00005.onebit").unlink()
    with pytest.raises(FileNotFoundError, match="part 5 of 8 is not in"):
        parted.part(5)


def test_the_command_line_fits_on_a_cluster(client, folder, tmp_path, model):
    out = tmp_path / "model.onebit"
    arguments = ["fit", str(folder / "*.parquet"), "-o", str(out), "-m", "logistic", "--rank", "1"]
    arguments += ["--pattern", "none"]
    said = CliRunner().invoke(app, [*arguments, "--dask", client.scheduler.address, "--certify", "0.1"])
    assert said.exit_code == 0, said.output
    assert "With probability 0.95, at most" in said.output
    assert onebit.load(out).posterior_.shape == model.posterior_.shape
    refused = CliRunner().invoke(app, [*arguments, "--dask", client.scheduler.address, "--refit"])
    assert refused.exit_code == 2
    assert "--refit does not go with --dask" in refused.output


@pytest.mark.parametrize("count", [10, 4000, 100_000])
def test_sketches_tell_about_how_many_ids_there_are(count):
    from onebit.data.hashing import id_hashes

    parts = np.array_split(np.arange(count), 3)
    sketches = [np.unique(id_hashes(pd.Index(np.r_[part, :5]), 7))[:4096] for part in parts]
    assert distinct_ids(sketches) == pytest.approx(count, rel=0.05)


@pytest.mark.parametrize(("answers", "blocks"), [(1, 8), (2e7, 8), (2e8, 64), (1e12, 8192)])
def test_blocks_follow_from_the_answers_alone(answers, blocks):
    assert block_count(int(answers)) == blocks


def test_a_device_is_that_of_the_workers(client, model, folder):
    # Where a worker has a GPU of its own it works there; here none has.
    again = onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS, device="auto"))
    assert bits(again) == bits(model)
    with pytest.raises(ClusterError, match=r"tcp://.*device=\"cuda\""):
        onebit.dask.fit(client, folder, LogisticCompleter(**SETTINGS, device="cuda"))
