"""What is known besides the answers: their pattern, and features, beside other libraries.

    make bench-known                     # everything, about 25 minutes on two cores
    python -m benchmarks.known --data FOLDER --splits 10 --auto-splits 3 --cold-splits 5

FOLDER holds MovieLens 100k (``ml-100k/u.data``, ``u.item``, ``u.user``). The first part measures what the
pattern of the answers (who rated what) is worth on random splits; the second predicts films, and then
users, without a single answer, from features alone. Every figure is a mean over splits with its standard
error. Libraries that are not installed are left out and named. ``--output`` writes the page;
``make bench-known`` writes ``docs/known.md``.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit, ndtr
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks.accuracy import summary
from onebit import AutoCompleter, LogisticCompleter
from onebit.data.datasets import load_movielens_100k
from onebit.study.page import markdown

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

PEERS = {"myfm": "myFM", "smurff": "SMURFF", "cmfrec": "cmfrec", "lightfm": "LightFM"}
RANK = 10
# Of SMURFF and myFM, which start at random. Ours starts from the variational fit: 20 sweeps, 200 draws.
SWEEPS, BURN_IN = 220, 44
HELD_OUT = 5000
WARM_SPLITS = 3
COLD_SHARE = 0.2
THREADS = os.cpu_count() or 1
GENRES = [
    "unknown", "action", "adventure", "animation", "children", "comedy", "crime", "documentary", "drama",
    "fantasy", "noir", "horror", "musical", "mystery", "romance", "science fiction", "thriller", "war",
    "western",
]  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Pairs of ids, their answers in {-1, 1}, and features of both sides, in frames keyed by all ids."""

    pairs: NDArray[np.int64]
    signs: NDArray[np.int8]
    features: tuple[pd.DataFrame, pd.DataFrame]

    @cached_property
    def codes(self) -> Codes:
        """The pairs as places in the frames."""
        sides = zip(self.features, self.pairs.T, strict=True)
        return np.column_stack([frame.index.get_indexer(pd.Index(ids)) for frame, ids in sides])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.features[0]), len(self.features[1])


@dataclass(frozen=True)
class Split:
    """Places of answers to learn from and of answers to predict."""

    table: Table
    train: Codes
    test: Codes
    seed: int

    def matrix(self) -> scipy.sparse.coo_matrix:
        """Return the training answers as a sparse matrix of -1 and 1."""
        signs, places = self.table.signs[self.train].astype(float), self.table.codes[self.train].T
        return scipy.sparse.coo_matrix((signs, tuple(places)), self.table.shape)

    def warm(self, side: int) -> NDArray[np.bool_]:
        """Return which members of a side have training answers."""
        return np.bincount(self.table.codes[self.train, side], minlength=self.table.shape[side]) > 0


class Fit(NamedTuple):
    """Probabilities of a "yes" for the test answers, and the seconds of the fit."""

    chance: Array
    seconds: float


# The functions of the peers have the names of their packages.
Method = Callable[[Split], Fit]
Methods = Mapping[str, Method]


def onebit(split: Split, kind: type = LogisticCompleter, features: bool = False, **settings: Any) -> Fit:
    table, model = split.table, kind(random_state=split.seed, **settings)
    known = dict(zip(("row_features", "column_features"), table.features, strict=True))
    begin = time.perf_counter()
    model.fit(table.pairs[split.train], table.signs[split.train], **(known if features else {}))
    seconds = time.perf_counter() - begin
    return Fit(model.predict_proba(table.pairs[split.test])[:, 1], seconds)


def base_rate(split: Split) -> Fit:
    """Predict the share of likes among the training answers, whatever the pair."""
    return Fit(np.full(len(split.test), (split.table.signs[split.train] > 0).mean()), 0.0)


def smurff(split: Split, features: bool = False) -> Fit:
    """Sample a probit model of rank 10; with features it is Macau."""
    import smurff as package

    table = split.table
    session = package.TrainSession(
        priors=["macau" if features else "normal"] * 2,
        num_latent=RANK,
        num_threads=THREADS,
        burnin=BURN_IN,
        nsamples=SWEEPS - BURN_IN,
        seed=split.seed + 1,
        verbose=0,
    )
    session.setTrain(split.matrix(), package.ProbitNoise(0.0))
    # It wants the test cells before it samples; their values are not used.
    cells = table.codes[split.test]
    session.setTest(scipy.sparse.coo_matrix((np.ones(len(cells)), tuple(cells.T)), table.shape))
    for side in (0, 1) if features else ():
        session.addSideInfo(side, numbers(table.features[side]), direct=True)
    begin = time.perf_counter()
    session.init()
    while session.step() is not None:
        pass
    seconds = time.perf_counter() - begin
    found = {cell.coords: cell for cell in session.getTestPredictions()}
    answers = [found[row, column] for row, column in cells.tolist()]
    mean = np.array([cell.pred_avg for cell in answers])
    # ``var`` is a sum of squares over the samples.
    spread = np.array([cell.var for cell in answers]) / max(answers[0].nsamples - 1, 1)
    return Fit(ndtr(mean / np.sqrt(1.0 + spread)), seconds)


def myfm(split: Split, told: str = "", rank: int = RANK, sweeps: int = SWEEPS) -> Fit:
    """Sample a factorisation machine (probit) on ids, with the pattern or the features beside them.

    A fifth of the sweeps is its burn-in.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")  # no progress bars
    import myfm as package

    table = split.table
    blocks = [[scipy.sparse.identity(size, format="csr")] for size in table.shape]
    if told == "pattern":
        there = abs(split.matrix()).tocsr()
        for block, part in zip(blocks, (there, there.T.tocsr()), strict=True):
            count = np.maximum(np.asarray(part.sum(axis=1)).ravel(), 1.0)
            block.append(scipy.sparse.diags(1.0 / np.sqrt(count)) @ part)
    elif told == "features":
        for block, frame in zip(blocks, table.features, strict=True):
            block.append(scipy.sparse.csr_matrix(numbers(frame)))
    sides = [scipy.sparse.csr_matrix(scipy.sparse.hstack(block)) for block in blocks]

    def relations(places: Codes) -> list[Any]:
        codes = table.codes[places].T
        return [package.RelationBlock(*part) for part in zip(codes.tolist(), sides, strict=True)]

    model, test = package.MyFMClassifier(rank=rank, random_seed=split.seed), relations(split.test)
    begin = time.perf_counter()
    model.fit(
        None,
        table.signs[split.train] > 0,
        X_rel=relations(split.train),
        n_iter=sweeps,
        n_kept_samples=sweeps - sweeps // 5,
        group_shapes=[part.shape[1] for block in blocks for part in block],
    )
    seconds = time.perf_counter() - begin
    return Fit(np.asarray(model.predict_proba(None, test), float), seconds)


def cmfrec(split: Split) -> Fit:
    """Factorise a matrix of 0 and 1 together with the features, by least squares."""
    import cmfrec as package

    matrix = split.matrix()
    matrix.data = (matrix.data + 1.0) / 2.0
    # The best of a grid (k, lambda_, weights of the features, biases) on one more split of each kind.
    model = package.CMF(k=5, lambda_=4.0, nthreads=THREADS, random_state=split.seed + 1)
    begin = time.perf_counter()
    model.fit(matrix, *map(numbers, split.table.features))
    seconds = time.perf_counter() - begin
    # Members without answers have factors too, from their features.
    return Fit(np.clip(model.predict(*split.table.codes[split.test].T), 0.01, 0.99), seconds)


def lightfm(split: Split) -> Fit:
    """Fit factors and biases that are sums over id and features, by stochastic gradients."""
    import lightfm as package

    # The id of a member without answers would add its random start.
    ids = [scipy.sparse.diags(split.warm(side).astype(float)) for side in (0, 1)]
    told = zip(ids, map(numbers, split.table.features), strict=True)
    sides = [scipy.sparse.csr_matrix(scipy.sparse.hstack(part)) for part in told]
    known = dict(zip(("user_features", "item_features"), sides, strict=True))
    model = package.LightFM(no_components=RANK, loss="logistic", random_state=split.seed)
    begin = time.perf_counter()
    model.fit(split.matrix(), epochs=30, num_threads=THREADS, **known)
    seconds = time.perf_counter() - begin
    users, films = split.table.codes[split.test].T.astype(np.int32).copy()
    return Fit(expit(model.predict(users, films, **known)), seconds)


def numbers(frame: pd.DataFrame) -> Array:
    """Return features for libraries that take a matrix, in the form that onebit gives them itself.

    Everything is centred, numbers are divided by twice their standard deviation, a word is a column a
    level, and a missing number is average.
    """
    values = pd.get_dummies(frame, dtype=float).astype(float)
    counted = frame.select_dtypes("number").columns
    values[counted] /= 2.0 * values[counted].std()
    return (values - values.mean()).fillna(0.0).to_numpy()


DEFAULT, PLAIN = "LogisticCompleter()", "LogisticCompleter(pattern=None)"
SAMPLED = 'LogisticCompleter(inference="sampling")'
AUTO = "AutoCompleter()"
EFFECTS = "effects of the other side alone"
WITHOUT = "without features"
PATTERN: Methods = {
    PLAIN: partial(onebit, pattern=None),
    DEFAULT: onebit,
    SAMPLED: partial(onebit, rank=RANK, inference="sampling"),
    AUTO: partial(onebit, kind=AutoCompleter),
    "SMURFF": smurff,
    "myFM": myfm,
    "myFM, pattern on both sides": partial(myfm, told="pattern"),
}
COLD: Methods = {
    "base rate": base_rate,
    EFFECTS: partial(onebit, rank=0, pattern=None),
    DEFAULT: partial(onebit, features=True),
    PLAIN: partial(onebit, features=True, pattern=None),
    SAMPLED: partial(onebit, features=True, inference="sampling"),
    f"{SAMPLED[:-1]}, pattern=None)": partial(onebit, features=True, inference="sampling", pattern=None),
    "SMURFF (Macau)": partial(smurff, features=True),
    "myFM": partial(myfm, told="features"),
    "cmfrec": cmfrec,
    "LightFM": lightfm,
}
WARM: Methods = {WITHOUT: onebit, "with features": partial(onebit, features=True)}

TEXT = """Made by `make bench-known` in one run on {cores} cores ({machine}). MovieLens 100k; a like is
four or five stars. Means over splits with standard errors; differences in log-loss are paired.
{peers}

onebit's settings are its defaults. SMURFF and myFM sample probit models of rank {rank}: {sweeps} sweeps,
the first {burn_in} let go. Seconds are those of the fit and rough, since other work may have run beside
it; onebit and SMURFF use all cores, myFM one."""
PATTERN_TEXT = """## What the pattern of the answers is worth

Which films somebody rated is known before the first rating is read. onebit's default lets the prior
means of both sides depend on it; myFM is given, with an id, its line of the pattern (ones divided by the
root of their number). Only training answers enter. {held_out:,} answers are held out at random;
differences are to `LogisticCompleter()`."""
COLD_TEXT = """## Cold start

A fifth of the films, then of the users, has no answer in training ({splits} splits each). Predicted are
all their answers, as far as the other side is known. All but the first two methods have features:
{films} of films, {users} of users. AUC is over all predicted answers together;
differences are to the effects of the other side. cmfrec's values are clipped to 0.01 and 0.99, and its
settings are the best of a grid on one more split."""
WARM_TEXT = """## Features where there are answers

`LogisticCompleter()` on {splits} of the random splits."""


def read(folder: Path) -> Table:
    """Read MovieLens 100k with what is known of its users and films."""
    data = load_movielens_100k(folder)
    options: dict[str, Any] = {"sep": "|", "encoding": "latin-1", "index_col": "id"}
    about = ["id", "age", "sex", "occupation", "zip"]
    users = pd.read_csv(folder / "ml-100k" / "u.user", names=about, **options)
    about = ["id", "title", "released", "video", "address", *GENRES]
    films = pd.read_csv(folder / "ml-100k" / "u.item", names=about, **options)
    year = pd.to_datetime(films["released"], format="%d-%b-%Y").dt.year
    frames = users[["age", "sex", "occupation"]], films[GENRES].astype(bool).assign(year=year)
    return Table(data.pairs, data.answers, frames)


def random_split(table: Table, seed: int) -> Split:
    order = np.random.default_rng(seed).permutation(len(table.signs))
    return Split(table, order[HELD_OUT:], order[:HELD_OUT], seed)


def cold_split(table: Table, side: int, seed: int) -> Split:
    """Leave some users (side 0) or films without answers, and predict theirs where the other is known."""
    size = table.shape[side]
    cold = np.random.default_rng(seed).permutation(size)[: int(COLD_SHARE * size)]
    chosen = np.isin(table.codes[:, side], cold)
    split = Split(table, np.flatnonzero(~chosen), np.flatnonzero(chosen), seed)
    return replace(split, test=split.test[split.warm(1 - side)[table.codes[split.test, 1 - side]]])


def package_of(method: Method) -> str:
    return getattr(method, "func", method).__name__


def installed(package: str) -> bool:
    return package not in PEERS or find_spec(package) is not None


def measured(methods: Methods, splits: Iterable[Split], fewer: Mapping[str, int] | None = None):
    """Return what each installed method scored on each split; ``fewer`` limits the splits of some."""
    found = []
    there = {name: method for name, method in methods.items() if installed(package_of(method))}
    for number, split in enumerate(splits):
        likes = split.table.signs[split.test] > 0
        for name, method in there.items():
            if fewer and number >= fewer.get(name, number + 1):
                continue
            chance, seconds = method(split)
            chance = np.clip(chance, 1e-6, 1.0 - 1e-6)
            loss, area = log_loss(likes, chance), roc_auc_score(likes, chance)
            found.append((name, split.seed, loss, np.mean((chance > 0.5) == likes), area, seconds))
            print(f"{split.seed} {name}: {loss:.4f}, AUC {area:.4f}, {seconds:.1f} s", flush=True)
    return pd.DataFrame(found, columns=["name", "split", "loss", "accuracy", "auc", "seconds"])


def page_table(found: pd.DataFrame, reference: str, *columns: str) -> str:
    """Return a table: a line a method, with the difference in log-loss to one of them."""
    against = found[found["name"] == reference].set_index("split")["loss"]
    lines = []
    for name, part in found.groupby("name", sort=False):
        less = part["loss"].to_numpy() - against.loc[part["split"]].to_numpy()
        cells = {
            "splits": str(len(part)),
            "log-loss": summary(part["loss"], digits=4),
            "difference": "" if name == reference else summary(less, digits=4),
            "accuracy %": summary(part["accuracy"], 100),
            "AUC": summary(part["auc"], digits=4),
            "seconds": summary(part["seconds"], digits=1),
        }
        lines.append([name, *(cells[column] for column in columns)])
    return markdown(["method", *columns], lines)


def compile_all(table: Table, auto: bool) -> None:
    """Fit onebit's methods to a few answers: loading compiled code is no part of fitting."""
    order = np.random.default_rng(0).permutation(len(table.signs))
    for name, method in [*PATTERN.items(), *COLD.items()]:
        if package_of(method) == "onebit" and (auto or name != AUTO):
            method(Split(table, order[-2000:], order[:10], 0))


def peers_text() -> str:
    there = [f"{title} {version(name)}" for name, title in PEERS.items() if installed(name)]
    absent = [title for name, title in PEERS.items() if not installed(name)]
    texts = {"Compared with:": there, "Not installed here and left out:": absent}
    return " ".join(f"{text} {', '.join(names)}." for text, names in texts.items() if names)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with ml-100k")
    parser.add_argument("--splits", type=int, default=10, help="random splits of the first part")
    parser.add_argument("--auto-splits", type=int, default=10, help="of them, for AutoCompleter; 0: none")
    parser.add_argument("--cold-splits", type=int, default=5, help="splits of the second part, each side")
    parser.add_argument("--output", type=Path, default=None, help="write the page here as well")
    options = parser.parse_args(argv)
    if min(options.splits, options.cold_splits) < 2 or options.auto_splits == 1:
        parser.error("a standard error needs two splits")
    warnings.simplefilter("ignore")  # fits that are cut short say so; myfm imports a deprecated module

    table = read(options.data)
    compile_all(table, options.auto_splits > 0)
    random = [random_split(table, seed) for seed in range(options.splits)]
    users, films = (list(frame.columns) for frame in table.features)
    genres = [name for name in films if name in GENRES]
    facts = {
        "cores": THREADS, "machine": platform.machine(), "peers": peers_text(), "rank": RANK,
        "sweeps": SWEEPS, "burn_in": BURN_IN, "held_out": HELD_OUT, "splits": options.cold_splits,
        "films": " and ".join([f"{len(genres)} genres", *(name for name in films if name not in GENRES)]),
        "users": ", ".join(users[:-1]) + " and " + users[-1],
    }  # fmt: skip
    page = [text.format(**facts) for text in ("# What is known besides the answers", TEXT, PATTERN_TEXT)]
    found = measured(PATTERN, random, {AUTO: options.auto_splits})
    columns = ["log-loss", "difference", "accuracy %", "seconds"]
    page += [page_table(found, DEFAULT, "splits", *columns), COLD_TEXT.format(**facts)]
    for side, title in ((1, "### New films"), (0, "### New users")):
        found = measured(COLD, (cold_split(table, side, seed) for seed in range(options.cold_splits)))
        page += [title, page_table(found, EFFECTS, "AUC", "log-loss", "difference")]
    found = measured(WARM, random[:WARM_SPLITS])
    page += [WARM_TEXT.format(splits=found["split"].nunique()), page_table(found, WITHOUT, *columns)]
    text = "\n\n".join(page) + "\n"
    print("\n" + text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
