"""The contestants: how each library is called, behind one small protocol.

``prepare`` brings the answers into the form that the library takes, off the clock; ``fit`` is on the
clock; ``predict`` gives a score for each test pair and, where the library has them, probabilities.
Libraries are imported in ``prepare``, so that a process loads only its own.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from benchmarks.peers.matrices import Entries

Settings = dict[str, Any]
Array = NDArray[np.float64]


class Prediction(NamedTuple):
    """Scores of the test pairs (positive is "yes"), and probabilities of a "yes" if there are any."""

    scores: Array
    probabilities: Array | None


def grid(**choices: list[Any]) -> list[Settings]:
    """Return every combination of the choices."""
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


class Contestant(ABC):
    """One fit of one library. ``settings["iterations"]`` is how long it runs, where that is a setting."""

    title: ClassVar[str]
    package: ClassVar[str]
    matrices: ClassVar[tuple[str, ...]] = ("ml-100k", "made-1m", "made-20m")
    threaded: ClassVar[bool] = True
    # Whether zero is no threshold: the one of the curve fitted to validation answers is taken then.
    needs_curve: ClassVar[bool] = False

    def __init__(self, shape: tuple[int, int], threads: int, settings: Settings) -> None:
        self.shape = shape
        self.threads = threads
        self.settings = settings

    @classmethod
    def candidates(cls, matrix: str) -> list[Settings]:
        """Return the settings to choose from on the validation split; one means nothing to choose."""
        return [{}]

    @abstractmethod
    def prepare(self, train: Entries, test: Entries) -> None:
        """Bring the answers into the library's form. The test's signs are not to be looked at."""

    @abstractmethod
    def fit(self) -> None:
        """Fit."""

    @abstractmethod
    def predict(self) -> Prediction:
        """Predict the test pairs."""

    def iterations(self) -> int:
        """Return how many iterations the fit took."""
        return self.settings["iterations"]


class Onebit(Contestant):
    """LogisticCompleter as it comes: rank 10, full covariances, effects, its own stopping rule."""

    title, package = "onebit", "onebit"
    rank = 10

    def prepare(self, train: Entries, test: Entries) -> None:
        from onebit import LogisticCompleter

        warnings.simplefilter("ignore")  # fits that are cut short say so
        limit = {"max_iter": self.settings["iterations"]} if "iterations" in self.settings else {}
        self.model = LogisticCompleter(self.rank, random_state=0, n_jobs=self.threads, **limit)
        self.pairs, self.signs = np.column_stack(train[:2]), train.signs
        self.test = np.column_stack(test[:2])
        # A tiny fit loads the compiled kernels (or compiles them), which is not a part of fitting.
        rng = np.random.default_rng(0)
        tiny = rng.integers(0, 40, (2_000, 2), dtype=np.int32)
        LogisticCompleter(self.rank, max_iter=5, n_jobs=self.threads).fit(tiny, rng.integers(0, 2, 2_000))

    def fit(self) -> None:
        self.model.fit(self.pairs, self.signs)

    def predict(self) -> Prediction:
        return Prediction(
            self.model.decision_function(self.test), self.model.predict_proba(self.test)[:, 1]
        )

    def iterations(self) -> int:
        return self.model.n_iter_


class EffectsOnly(Onebit):
    """Row and column effects alone: what factors have to improve on."""

    title, rank = "onebit, effects only", 0


class Libmf(Contestant):
    """LIBMF, by its Python wrapper; k, loss, regularisation and iterations chosen."""

    title, package = "LIBMF", "libmf"
    LOGISTIC, SQUARED_HINGE = 5, 6

    @classmethod
    def candidates(cls, matrix: str) -> list[Settings]:
        losses = [cls.LOGISTIC, cls.SQUARED_HINGE]
        if matrix == "made-20m":
            return [
                *grid(fun=[cls.LOGISTIC], k=[16], penalty=[0.03], iterations=[30]),
                *grid(fun=[cls.SQUARED_HINGE], k=[16], penalty=[0.05], iterations=[15]),
            ]
        if matrix == "made-1m":
            return grid(fun=losses, k=[16], penalty=[0.03, 0.05, 0.1], iterations=[20, 40])
        return grid(fun=losses, k=[8, 16], penalty=[0.03, 0.05, 0.1, 0.2], iterations=[10, 20, 40])

    def prepare(self, train: Entries, test: Entries) -> None:
        from libmf import mf

        self.model = mf.MF(
            fun=self.settings["fun"],
            k=self.settings["k"],
            nr_iters=self.settings["iterations"],
            lambda_p1=0.0,
            lambda_q1=0.0,
            lambda_p2=self.settings["penalty"],
            lambda_q2=self.settings["penalty"],
            eta=0.1,
            nr_threads=self.threads,
            quiet=True,
        )
        self.triples = np.column_stack(train).astype(np.float32)
        self.test = test

    def fit(self) -> None:
        self.model.fit(self.triples)

    def predict(self) -> Prediction:
        # The wrapper's own predict misreads its argument, so the factors are multiplied here.
        scores = inner(self.model.p_factors(), self.model.q_factors(), self.test)
        return Prediction(scores, expit(scores) if self.settings["fun"] == self.LOGISTIC else None)


class Smurff(Contestant):
    """SMURFF: Gibbs sampling of a probit model; the first fifth of the sweeps is burn-in."""

    title, package = "SMURFF", "smurff"
    matrices = ("ml-100k", "made-1m")

    @classmethod
    def candidates(cls, matrix: str) -> list[Settings]:
        if matrix == "made-1m":
            return grid(k=[12, 16], iterations=[60])  # effects need a dimension each
        return grid(k=[10, 16], iterations=[60, 120])

    def prepare(self, train: Entries, test: Entries) -> None:
        import smurff

        sweeps = self.settings["iterations"]
        self.session = smurff.TrainSession(
            priors=["normal", "normal"],
            num_latent=self.settings["k"],
            num_threads=self.threads,
            burnin=sweeps // 5,
            nsamples=sweeps - sweeps // 5,
            seed=1,
            verbose=0,
        )
        self.session.setTrain(sparse(train, self.shape, float).tocoo(), smurff.ProbitNoise(0.0))
        # It wants the test cells before it samples; their values are not used.
        blank = Entries(test.rows, test.columns, np.ones_like(test.signs))
        self.session.setTest(sparse(blank, self.shape, float).tocoo())
        self.test = test

    def fit(self) -> None:
        self.session.init()
        while self.session.step() is not None:
            pass

    def predict(self) -> Prediction:
        found = self.session.getTestPredictions()
        place = {cell.coords: number for number, cell in enumerate(found)}
        order = [
            place[pair] for pair in zip(self.test.rows.tolist(), self.test.columns.tolist(), strict=True)
        ]
        mean = np.array([cell.pred_avg for cell in found])[order]
        # ``var`` is a sum of squares over the samples.
        spread = np.array([cell.var for cell in found])[order] / max(found[0].nsamples - 1, 1)
        return Prediction(mean, ndtr(mean / np.sqrt(1.0 + spread)))


class Cmfrec(Contestant):
    """cmfrec: alternating least squares with row and column biases."""

    title, package = "cmfrec", "cmfrec"

    @classmethod
    def candidates(cls, matrix: str) -> list[Settings]:
        if matrix == "made-20m":
            return grid(k=[10], penalty=[10.0], iterations=[10])
        ranks = [10] if matrix == "made-1m" else [5, 10, 20]
        return grid(k=ranks, penalty=[2.5, 5.0, 10.0, 20.0], iterations=[10])

    def prepare(self, train: Entries, test: Entries) -> None:
        import cmfrec

        self.model = cmfrec.CMF(
            k=self.settings["k"],
            lambda_=self.settings["penalty"],
            niter=self.settings["iterations"],
            nthreads=self.threads,
            precompute_for_predictions=False,
            use_float=True,
            verbose=False,
        )
        self.matrix = sparse(train, self.shape, np.float32).tocoo()
        self.test = test

    def fit(self) -> None:
        self.model.fit(self.matrix)

    def predict(self) -> Prediction:
        return Prediction(np.asarray(self.model.predict(self.test.rows, self.test.columns), float), None)


class Implicit(Contestant):
    """implicit's ALS: likes as confidences, dislikes as negative ones."""

    title, package, needs_curve = "implicit ALS", "implicit", True

    @classmethod
    def candidates(cls, matrix: str) -> list[Settings]:
        if matrix == "made-20m":
            return grid(k=[16], penalty=[10.0], alpha=[100.0], iterations=[8])
        ranks = [16] if matrix == "made-1m" else [8, 16]
        return grid(k=ranks, penalty=[10.0, 50.0], alpha=[40.0, 100.0], iterations=[10])

    def prepare(self, train: Entries, test: Entries) -> None:
        from implicit.cpu.als import AlternatingLeastSquares

        self.model = AlternatingLeastSquares(
            factors=self.settings["k"],
            regularization=self.settings["penalty"],
            alpha=self.settings["alpha"],
            iterations=self.settings["iterations"],
            num_threads=self.threads,
            random_state=0,
        )
        self.matrix = sparse(train, self.shape, np.float32)
        self.test = test

    def fit(self) -> None:
        self.model.fit(self.matrix, show_progress=False)

    def predict(self) -> Prediction:
        return Prediction(inner(self.model.user_factors, self.model.item_factors, self.test), None)


class Myfm(Contestant):
    """myFM: a Bayesian factorisation machine (probit) on the two one-hot ids; one thread."""

    title, package, threaded = "myFM", "myfm", False
    matrices = ("ml-100k", "made-1m")

    @classmethod
    def candidates(cls, matrix: str) -> list[Settings]:
        if matrix == "made-1m":
            return grid(method=["variational"], k=[10], iterations=[15, 30])
        return grid(method=["variational", "gibbs"], k=[8], iterations=[50, 100])

    def prepare(self, train: Entries, test: Entries) -> None:
        warnings.simplefilter("ignore")  # it imports a deprecated module
        import myfm

        kinds = {"variational": myfm.VariationalFMClassifier, "gibbs": myfm.MyFMGibbsClassifier}
        self.model = kinds[self.settings["method"]](rank=self.settings["k"], random_seed=0)
        self.features, self.test = one_hot(train, self.shape), one_hot(test, self.shape)
        self.liked = train.signs > 0

    def fit(self) -> None:
        self.model.fit(
            self.features, self.liked, n_iter=self.settings["iterations"], group_shapes=list(self.shape)
        )

    def predict(self) -> Prediction:
        probabilities = np.asarray(self.model.predict_proba(self.test), float)
        return Prediction(probabilities - 0.5, probabilities)


class Surprise(Contestant):
    """scikit-surprise's SVD: stochastic gradients on squared errors, with biases; one thread."""

    title, package, threaded = "Surprise SVD", "scikit-surprise", False
    matrices = ("ml-100k", "made-1m")

    @classmethod
    def candidates(cls, matrix: str) -> list[Settings]:
        if matrix == "made-1m":
            return grid(k=[10], rate=[0.01], penalty=[0.03, 0.06], iterations=[30])
        return grid(k=[10, 30], rate=[0.01], penalty=[0.03, 0.06, 0.1], iterations=[20, 40])

    def prepare(self, train: Entries, test: Entries) -> None:
        import pandas as pd
        import surprise

        frame = pd.DataFrame(
            {"user": train.rows, "item": train.columns, "like": train.signs.astype(float)}
        )
        reader = surprise.Reader(rating_scale=(-1, 1))
        self.train = surprise.Dataset.load_from_df(frame, reader).build_full_trainset()
        self.model = surprise.SVD(
            n_factors=self.settings["k"],
            n_epochs=self.settings["iterations"],
            lr_all=self.settings["rate"],
            reg_all=self.settings["penalty"],
            random_state=0,
        )
        self.test = test

    def fit(self) -> None:
        self.model.fit(self.train)

    def predict(self) -> Prediction:
        pairs = zip(self.test.rows.tolist(), self.test.columns.tolist(), strict=True)
        scores = [self.model.predict(user, item, clip=False).est for user, item in pairs]
        return Prediction(np.array(scores), None)


class Torch(Contestant):
    """Logistic factors and biases in torch: batches, Adam, a penalty on what a batch uses."""

    title, package = "torch, Adam", "torch"

    @classmethod
    def candidates(cls, matrix: str) -> list[Settings]:
        if matrix == "made-20m":
            return grid(k=[10], rate=[0.03], penalty=[0.005, 0.01], batch=[131_072], iterations=[8])
        batch = [8_192] if matrix == "ml-100k" else [16_384]
        return grid(k=[10], rate=[0.01, 0.03], penalty=[0.01, 0.02, 0.03], batch=batch, iterations=[10])

    def prepare(self, train: Entries, test: Entries) -> None:
        import torch

        torch.set_num_threads(self.threads)
        # The first step of an optimiser imports a good part of torch, which is not a part of fitting.
        tiny = torch.nn.Parameter(torch.zeros(1))
        tiny.grad = torch.zeros(1)
        torch.optim.Adam([tiny]).step()
        torch.manual_seed(0)
        width = self.settings["k"] + 1
        self.factors = [torch.nn.Embedding(size, width) for size in self.shape]
        for table in self.factors:
            torch.nn.init.normal_(table.weight, std=0.1)
            table.weight.data[:, -1] = 0.0
        self.intercept = torch.nn.Parameter(torch.zeros(()))
        self.rows, self.columns = (torch.from_numpy(code) for code in train[:2])
        self.liked = torch.from_numpy((train.signs > 0).astype(np.float32))
        self.test = test

    def fit(self) -> None:
        import torch

        parameters = [self.factors[0].weight, self.factors[1].weight, self.intercept]
        optimiser = torch.optim.Adam(parameters, lr=self.settings["rate"])
        loss = torch.nn.functional.binary_cross_entropy_with_logits
        for _ in range(self.settings["iterations"]):
            for chosen in torch.randperm(len(self.liked)).split(self.settings["batch"]):
                left, right = self.factors[0](self.rows[chosen]), self.factors[1](self.columns[chosen])
                scores = (
                    (left[:, :-1] * right[:, :-1]).sum(1) + left[:, -1] + right[:, -1] + self.intercept
                )
                size = (left.square().sum() + right.square().sum()) / len(chosen)
                optimiser.zero_grad()
                (loss(scores, self.liked[chosen]) + self.settings["penalty"] * size).backward()
                optimiser.step()

    def predict(self) -> Prediction:
        left, right = (table.weight.detach().numpy() for table in self.factors)
        scores = inner(left[:, :-1], right[:, :-1], self.test) + float(self.intercept)
        scores += left[self.test.rows, -1] + right[self.test.columns, -1]
        return Prediction(scores, expit(scores))


def inner(left: NDArray[Any], right: NDArray[Any], test: Entries) -> Array:
    """Return the inner product of each test pair's factors; ids beyond the factors score zero."""
    scores = np.zeros(len(test.rows))
    known = np.flatnonzero((test.rows < len(left)) & (test.columns < len(right)))
    for part in np.array_split(known, len(known) // 100_000 + 1):
        scores[part] = np.einsum("nk,nk->n", left[test.rows[part]], right[test.columns[part]])
    return np.nan_to_num(scores)  # LIBMF gives NaN to ids that it was not shown


def sparse(entries: Entries, shape: tuple[int, int], dtype: Any) -> scipy.sparse.csr_matrix:
    """Return the answers as a sparse matrix of -1 and 1."""
    place = (entries.rows, entries.columns)
    return scipy.sparse.csr_matrix((entries.signs.astype(dtype), place), shape=shape)


def one_hot(entries: Entries, shape: tuple[int, int]) -> scipy.sparse.csr_matrix:
    """Return one line an answer, with a one for its row and a one for its column."""
    n = len(entries.rows)
    index = np.column_stack([entries.rows, entries.columns + shape[0]]).ravel()
    return scipy.sparse.csr_matrix(
        (np.ones(2 * n), index, np.arange(0, 2 * n + 1, 2)), shape=(n, sum(shape))
    )


CONTESTANTS: dict[str, type[Contestant]] = {
    "onebit": Onebit,
    "effects": EffectsOnly,
    "libmf": Libmf,
    "smurff": Smurff,
    "cmfrec": Cmfrec,
    "implicit": Implicit,
    "myfm": Myfm,
    "surprise": Surprise,
    "torch": Torch,
}
