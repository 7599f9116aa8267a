"""What a file holds is checked before anything else sees it."""

import json
import resource
import subprocess
import sys

import numpy as np
import pytest

import onebit
from onebit import HingeCompleter, LogisticCompleter, simulate
from onebit.data import checked, storage
from onebit.engine import checkpoint
from onebit.model.gaussians import packed_size
from onebit.model.posterior import Posterior


@pytest.fixture(scope="module")
def world():
    return simulate.world("B2", rank=1, shape=(20, 15), density=0.6, seed=1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, world):
    """A model with held-out answers, one that was sampled, and a posterior alone."""
    folder = tmp_path_factory.mktemp("saved")
    model = LogisticCompleter(2, max_iter=8, random_state=0).fit(world.pairs, world.answers, certify=0.2)
    model.save(folder / "model.onebit")
    model.posterior_.save(folder / "posterior.onebit")
    chain = HingeCompleter(2, max_iter=8, inference="sampling", n_samples=10, random_state=0)
    chain.fit(world.pairs, world.answers).save(folder / "sampled.onebit")
    return folder


def changed(saved, tmp_path, change, name="model", text=None):
    kind = "posterior" if name == "posterior" else "model"
    tensors, content = storage.read(saved / f"{name}.onebit", kind)
    tensors = {part: array.copy() for part, array in tensors.items()}
    change(tensors, content)
    path = tmp_path / "changed.onebit"
    if text is None:
        storage.write(path, kind, tensors, content)
    else:
        storage.write_text(path, kind, tensors, text(json.dumps(content)))
    return path


def first(name, value):
    return lambda t, c: t[name].reshape(-1).__setitem__(0, value)


def posterior(**settings):
    return lambda t, c: c["fitted"]["posterior"].update(settings)


WRONG = {
    "a negative variance": (first("rows.covariance", -1.0), r"coordinate 0 of line 0 the variance"),
    "no covariance": (first("rows.covariance", 1e-9), "no covariance"),
    "an infinite mean": (first("columns.mean", np.inf), r"columns\.mean\[0, 0\] is inf"),
    "an absurd mean": (first("columns.mean", 1e200), r"is 1e\+200, which it cannot be"),
    "a negative prior variance": (first("factors.mean", -1.0), r"factors\.mean\[0\] is -1\.0"),
    "means in single precision": (
        lambda t, c: t.update({"rows.mean": t["rows.mean"].astype(np.float32)}), "holds float32, not",
    ),
    "an intercept without variance": (posterior(intercept=[0.0, 0.0]), "not a positive number"),
    "a rank in words": (
        lambda t, c: c["fitted"]["posterior"]["hierarchy"].update(rank="two"), "rank is 'two'",
    ),
    "a prior of nothing": (
        lambda t, c: c["fitted"]["posterior"]["hierarchy"]["factor_prior"].update(shape=0), "shape is 0",
    ),
    "a setting that nobody knows": (
        lambda t, c: c["fitted"]["posterior"]["hierarchy"].update(trojan=1), "unknown part 'trojan'",
    ),
    "an id twice": (lambda t, c: t["ids.rows"].__setitem__(1, t["ids.rows"][0]), "the id 0 twice"),
    "a count below zero": (first("record.row_counts", -1), r"record\.row_counts\[0\] is -1"),
    "a surprise out of range": (first("record.surprises.rows", 999), r"surprises\.rows\[0\] is 999"),
    "a likelihood of two": (first("record.surprises.probability", 2.0), "is 2.0"),
    "a confidence of two": (first("held_out.confidence", 2.0), r"held_out\.confidence\[0\] is 2\.0"),
    "a delta of two": (
        lambda t, c: c["record"].update(certificates=[{"kind": "ladder", "delta": 2}]), "delta is 2",
    ),
    "fewer answers than none": (lambda t, c: c.update(n_observations=-1), "n_observations is -1"),
    "an absurd type": (lambda t, c: c["answers"].update(type="U100000000"), "answers of the type"),
    "equal answers": (lambda t, c: c["answers"].update(values=[1, 1]), "cannot be told apart"),
    "no threads": (lambda t, c: c["parameters"].update(n_jobs="O"), "n_jobs must be"),
    "an objective in words": (lambda t, c: c["fitted"].update(objective="low"), "objective is 'low'"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_model_says_what_is_wrong_with_it(saved, tmp_path, what):
    change, words = WRONG[what]
    with pytest.raises(storage.FileError, match=words) as found:
        onebit.load(changed(saved, tmp_path, change))
    assert "changed.onebit" in str(found.value)
    assert "\n" not in str(found.value)


SAMPLED = {
    "a variance of zero": (first("draws.factors", 0.0), r"draws\.factors\[0, 0\] is 0\.0"),
    "a draw beyond single precision": (first("draws.rows", 1e30), r"draws\.rows\[0, 0, 0\]"),
    "effects of another length": (
        lambda t, c: t.update({"draws.effects": t["draws.effects"][:-1]}), "draws.effects has the shape",
    ),
    "a slope below zero": (lambda t, c: c["fitted"]["calibration"].update(slope=-1.0), "slope is -1.0"),
    "diagnostics of nothing": (lambda t, c: t.pop("diagnostics"), "diagnostics has the shape"),
}  # fmt: skip


@pytest.mark.parametrize("what", SAMPLED)
def test_a_sampled_model_says_what_is_wrong_with_it(saved, tmp_path, what):
    change, words = SAMPLED[what]
    with pytest.raises(storage.FileError, match=words):
        onebit.load(changed(saved, tmp_path, change, "sampled"))


def test_a_posterior_alone_is_checked_too(saved, tmp_path):
    path = changed(saved, tmp_path, lambda t, c: t.update({"rows.mean": t["rows.mean"][1:]}), "posterior")
    with pytest.raises(storage.FileError, match=r"changed\.onebit: rows\.mean has the shape \(19, 3\)"):
        Posterior.load(path)


@pytest.mark.parametrize(
    "text",
    [
        lambda text: "[" * 100_000,
        lambda text: text[:-1] + ', "deep": ' + "[" * 100_000 + "]" * 100_000 + "}",
        lambda text: text[:-1] + ', "more": NaN}',
        lambda text: text[:-1] + ', "more": 1e999}',
        lambda text: text[:-1] + ', "more": ' + "9" * 5000 + "}",
        lambda text: "[]",
        lambda text: "",
    ],
    ids=["open lists", "deep", "NaN", "beyond doubles", "a long number", "a list", "nothing"],
)
def test_json_that_nobody_writes_is_refused(saved, tmp_path, text):
    with pytest.raises(storage.FileError, match=r"changed\.onebit"):
        onebit.load(changed(saved, tmp_path, lambda t, c: None, text=text))


@pytest.mark.parametrize(
    "ids", ["[" * 100_000, '["a", "a"]', "[null]", "[[]]", '[["tuple"]]', "{}", "[NaN]"]
)
def test_ids_that_nobody_has_are_refused(saved, tmp_path, ids):
    def change(tensors, content):
        tensors["ids.rows"] = np.frombuffer(ids.encode(), np.uint8)
        content["rows"] = {"kind": "objects", "name": None}

    with pytest.raises(storage.FileError, match=r"changed\.onebit"):
        onebit.load(changed(saved, tmp_path, change))


BOUNDED = """
import resource, sys
import onebit
from onebit.data import storage
onebit.load(sys.argv[1])
page = resource.getpagesize()
size = int(open("/proc/self/statm").read().split()[0]) * page
resource.setrlimit(resource.RLIMIT_AS, (size + 2**28, size + 2**28))
try:
    onebit.load(sys.argv[2])
except storage.FileError as error:
    print("refused")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="bounds the memory as Linux does")
def test_an_absurd_type_takes_no_memory(saved, tmp_path):
    assert resource.getpagesize()
    path = changed(saved, tmp_path, lambda t, c: c["answers"].update(type="<U100000000"))
    command = [sys.executable, "-c", BOUNDED, str(saved / "model.onebit"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "refused\n", done.stderr


def test_covariances_pass_up_to_rounding_and_no_further(rng):
    root = rng.standard_normal((500, 4, 2))
    singular = np.einsum("mik,mjk->mij", root, root)
    lower = np.tril_indices(4)
    packed = singular[:, lower[0], lower[1]]
    assert packed.shape[1] == packed_size(4)
    checked.checked_covariances(packed.astype(np.float32).astype(float), 4, "c")
    packed[499, 1] = 2.0 * np.sqrt(packed[499, 0] * packed[499, 2])
    with pytest.raises(checked.FileError, match="no covariance"):
        checked.checked_covariances(packed, 4, "c")


class Killed(BaseException):
    pass


def stopped(world, folder, model):
    def stop(progress):
        if progress.round == (5 if model.inference == "variational" else 9):
            raise Killed

    with pytest.raises(Killed):
        model.fit(world.pairs, world.answers, callback=stop, checkpoint=folder)


CHECKPOINTS = {
    "fewer means": lambda t, c: t.update({"rows.mean": t["rows.mean"][:-1]}),
    "another shape": lambda t, c: c["hierarchy"].update(shape=[3, 3]),
    "another prior": lambda t, c: c["hierarchy"]["factor_prior"].update(shape=9.0),
    "diagonal covariances": lambda t, c: c.update(full=False),
    "a short path": lambda t, c: t.update({"path": t["path"][:-1]}),
    "determinants of nobody": lambda t, c: t.update({"log_determinant.1": np.zeros(1)}),
    "more rounds than asked for": lambda t, c: c.update(n_iter=10**6),
    "a step of nothing": lambda t, c: c.update(step=0.0),
    "neither done nor not": lambda t, c: c.update(done="perhaps"),
}
CHAINS = {
    "fewer rows": lambda t, c: t.update({"chain.0.0": t["chain.0.0"][:-1]}),
    "a table without its ones": lambda t, c: t["chain.0.0"].__setitem__((0, 2), 5.0),
    "a negative variance": lambda t, c: t["chain.0.hyper"].__setitem__(0, -1.0),
    "sums of other lines": lambda t, c: t["chain.0.moments.0.gram"].__setitem__((0, 0), -1.0),
    "lines without sums": lambda t, c: t.pop("chain.0.moments.1.total"),
    "a draw that is none": lambda t, c: t["kept.rows"].__setitem__((0, 0, 0), np.nan),
    "fewer draws": lambda t, c: t.update({"kept.intercept": t["kept.intercept"][:-1]}),
    "another count": lambda t, c: c.update(draws=1),
    "sweeps beyond the end": lambda t, c: c.update(sweep=10**6),
    "short sums": lambda t, c: t.update({"values": t["values"][:, :-1]}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", [*CHECKPOINTS, *CHAINS])
def test_a_checkpoint_says_that_it_cannot_be_gone_on_from(world, tmp_path, monkeypatch, what):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    folder = tmp_path / "kept"
    settings = {"random_state": 0}
    if what in CHAINS:
        settings |= {"max_iter": 2, "inference": "sampling", "n_samples": 10, "n_burn_in": 2}
    stopped(world, folder, LogisticCompleter(2, **settings))
    path = sorted(folder.glob("descent-*"))[-1]
    tensors, content = storage.read(path, "descent")
    tensors = {name: array.copy() for name, array in tensors.items()}
    (CHAINS | CHECKPOINTS)[what](tensors, content)
    storage.write(path, "descent", tensors, content)
    with pytest.raises(storage.FileError, match=rf"{path.name}: .*delete the folder to start anew"):
        LogisticCompleter(2, **settings).fit(world.pairs, world.answers, checkpoint=folder)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "{", "NaN"])
def test_an_identity_that_is_none_is_refused(world, tmp_path, text):
    (tmp_path / "checkpoint.json").write_text(text)
    with pytest.raises(storage.FileError, match="is damaged; delete the folder"):
        LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers, checkpoint=tmp_path)
