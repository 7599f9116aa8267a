"""Answers that keep coming: updates beside refits, and beside peers that learn on the way.

    make bench-updates                   # about fifteen minutes on two cores
    python -m benchmarks.updates --data FOLDER --output docs/updates.md

MovieLens 100k in time order (liked = four or five stars): the first 80 % are fitted, the rest comes in 50
batches. Each batch is predicted before it is learnt, so that every answer is judged once, by a model that
has seen all answers before it. Without the data, a made world stands in.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import onebit
from onebit import LogisticCompleter, simulate

Array = NDArray[np.float64]
BATCHES = 50
FITTED = 0.8
SHUFFLES = 10
# Refits of the sampled model take long: every so many batches.
SAMPLED_EVERY = 10
FORGET = 0.99


class Stream(Protocol):
    """A contestant: fitted once, then told batch after batch."""

    def fit(self, pairs: Array, yes: Array) -> None: ...
    def probability(self, pairs: Array) -> Array: ...
    def learn(self, pairs: Array, yes: Array) -> None: ...


class Ours:
    """A completer that is updated, refitted or left alone."""

    def __init__(self, how: str, forget: float = 1.0, size: int | None = None, **settings: Any) -> None:
        self.how, self.forget, self.size, self.settings = how, forget, size, settings
        self.touched = 0

    def fit(self, pairs: Array, yes: Array) -> None:
        self.seen = [(pairs, yes)]
        self.model = LogisticCompleter(random_state=0, **self.settings).fit(pairs, yes)

    def probability(self, pairs: Array) -> Array:
        return self.model.predict_proba(pairs)[:, 1]

    def learn(self, pairs: Array, yes: Array) -> None:
        self.seen.append((pairs, yes))
        if self.how == "refit":
            everything = [np.concatenate(parts) for parts in zip(*self.seen, strict=True)]
            self.model = LogisticCompleter(random_state=0, **self.settings).fit(*everything)
        elif self.how == "update":
            step = self.size or len(yes)
            for begin in range(0, len(yes), step):
                part = slice(begin, begin + step)
                self.model.partial_fit(pairs[part], yes[part], forget=self.forget)
            self.touched += sum(len(np.unique(pairs[:, side])) for side in (0, 1))


class River:
    """River's biased factorisation, by stochastic gradients, one answer after the other.

    Three passes over the first part; the better of three step sizes by its last tenth. It learns to guess
    0 or 1 by squared error, and its guesses are cut off at 2 and 98 % to be probabilities.
    """

    def fit(self, pairs: Array, yes: Array) -> None:
        cut = 9 * len(yes) // 10
        best = np.inf
        for rate in (0.005, 0.02, 0.05):
            model = self._new(rate)
            for _ in range(3):
                self._learn(model, pairs[:cut], yes[:cut])
            loss = log_losses(self._guesses(model, pairs[cut:]), yes[cut:]).mean()
            if loss < best:
                best, self.model = loss, model
        self._learn(self.model, pairs[cut:], yes[cut:])

    @staticmethod
    def _new(rate: float) -> Any:
        from river import optim, reco

        return reco.BiasedMF(
            n_factors=10, bias_optimizer=optim.SGD(rate), latent_optimizer=optim.SGD(rate), l2_bias=0.02,
            l2_latent=0.02, seed=0,
        )  # fmt: skip

    @staticmethod
    def _learn(model: Any, pairs: Array, yes: Array) -> None:
        for (row, column), answer in zip(pairs.tolist(), yes.tolist(), strict=True):
            model.learn_one(user=row, item=column, y=float(answer))

    @staticmethod
    def _guesses(model: Any, pairs: Array) -> Array:
        found = [model.predict_one(user=row, item=column) for row, column in pairs.tolist()]
        return np.clip(np.array(found, dtype=float), 0.02, 0.98)

    def probability(self, pairs: Array) -> Array:
        return self._guesses(self.model, pairs)

    def learn(self, pairs: Array, yes: Array) -> None:
        self._learn(self.model, pairs, yes)


class Implicit:
    """implicit's alternating least squares, with its partial fits of users and items.

    It learns from likes alone (with dislikes as negative weights its factors were NaN). Partial fits need
    the whole history of each user and item that they touch. Scores become probabilities by a logistic
    curve, fitted on a tenth of the first part that is held out for it.
    """

    def fit(self, pairs: Array, yes: Array) -> None:
        import implicit
        from sklearn.linear_model import LogisticRegression

        self.codes: list[dict[Any, int]] = [{}, {}]
        self.parts: list[tuple[Any, Any, Array]] = []
        cut = 9 * len(yes) // 10
        self._add(pairs[:cut], yes[:cut])
        self.model = implicit.als.AlternatingLeastSquares(factors=10, random_state=0, num_threads=2)
        self.model.fit(self._matrix(), show_progress=False)
        scores = self._scores(pairs[cut:])
        self.curve = LogisticRegression().fit(scores[:, None], yes[cut:])
        self.learn(pairs[cut:], yes[cut:])

    def _add(self, pairs: Array, yes: Array) -> None:
        rows, columns = (
            np.array([codes.setdefault(one, len(codes)) for one in pairs[:, side].tolist()])
            for side, codes in enumerate(self.codes)
        )
        self.parts.append((rows, columns, np.asarray(yes, dtype=float)))

    def _matrix(self) -> Any:
        import scipy.sparse

        rows, columns, yes = (np.concatenate(part) for part in zip(*self.parts, strict=True))
        shape = (len(self.codes[0]), len(self.codes[1]))
        liked = yes > 0
        return scipy.sparse.csr_matrix((yes[liked], (rows[liked], columns[liked])), shape=shape)

    def _scores(self, pairs: Array) -> Array:
        found = np.zeros(len(pairs))
        for k, (row, column) in enumerate(pairs.tolist()):
            codes = self.codes[0].get(row), self.codes[1].get(column)
            if None not in codes:
                found[k] = self.model.user_factors[codes[0]] @ self.model.item_factors[codes[1]]
        return found

    def probability(self, pairs: Array) -> Array:
        return np.asarray(self.curve.predict_proba(self._scores(pairs)[:, None])[:, 1])

    def learn(self, pairs: Array, yes: Array) -> None:
        self._add(pairs, yes)
        matrix = self._matrix()
        users, items = (np.unique(part) for part in self.parts[-1][:2])
        self.model.partial_fit_users(users, matrix[users])
        self.model.partial_fit_items(items, matrix.T.tocsr()[items])


def log_losses(probability: Array, yes: Array) -> Array:
    """Return the log-loss of each answer."""
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    return -np.log(np.where(yes > 0, p, 1 - p))


def calibration_error(probability: Array, yes: Array) -> float:
    """Return how far probabilities are from frequencies, in ten groups of equal size, on average."""
    order = np.argsort(probability)
    groups = np.array_split(order, 10)
    gaps = [abs(probability[group].mean() - yes[group].mean()) for group in groups]
    return float(np.mean(gaps))


def area(probability: Array, yes: Array) -> float:
    """Return the area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(yes, probability))


def ratings(folder: Path) -> pd.DataFrame:
    """Return the ratings of MovieLens 100k in time order; liked is four or five stars."""
    names = ["user", "film", "stars", "time"]
    frame = pd.read_csv(folder / "u.data", sep="\t", names=names)
    return frame.sort_values("time", kind="stable").assign(liked=lambda part: part["stars"] > 3.5)


def movielens(folder: Path) -> tuple[Array, Array]:
    """Return pairs and answers of the same."""
    frame = ratings(folder)
    return frame[["user", "film"]].to_numpy(), frame["liked"].to_numpy().astype(int)


def made_world() -> tuple[Array, Array]:
    """Return a made world, row after row, as people come."""
    world = simulate.world("B3", rank=2, shape=(120, 80), density=0.5, seed=0)
    order = np.argsort(world.pairs[:, 0] + np.random.default_rng(0).normal(0, 8, len(world.answers)))
    return world.pairs[order], (world.answers[order] > 0).astype(int)


def contestants() -> dict[str, tuple[Callable[[], Stream], int]]:
    """Return who takes part, and every how many batches each learns."""
    sampled = {"inference": "sampling"}
    return {
        "left alone": (lambda: Ours("alone"), 1),
        "refit": (lambda: Ours("refit"), 1),
        "partial_fit": (lambda: Ours("update"), 1),
        f"partial_fit, forget {FORGET}": (lambda: Ours("update", forget=FORGET), 1),
        "partial_fit, one answer at a time": (lambda: Ours("update", size=1), 1),
        "sampled, refit": (lambda: Ours("refit", **sampled), SAMPLED_EVERY),
        "sampled, partial_fit": (lambda: Ours("update", **sampled), 1),
        "River BiasedMF": (River, 1),
        "implicit ALS, partial fits": (Implicit, 1),
    }


def follow(made: Stream, pairs: Array, yes: Array, edges: Any, every: int) -> dict[str, Any]:
    """Let a contestant predict and learn batch after batch."""
    begin = time.perf_counter()
    made.fit(pairs[: edges[0]], yes[: edges[0]])
    fitting = time.perf_counter() - begin
    losses, chances, seconds, judged = [], [], [], []
    for number, (first, last) in enumerate(pairwise(edges)):
        batch = slice(first, last)
        if every == 1 or number % every == 1:
            chances.append(made.probability(pairs[batch]))
            losses.append(float(log_losses(chances[-1], yes[batch]).mean()))
            judged.append(number)
        begin = time.perf_counter()
        # One that learns seldom does so before the batches that it is judged on.
        if every == 1 or number % every == 0:
            made.learn(pairs[batch], yes[batch])
            seconds.append(time.perf_counter() - begin)
        elif isinstance(made, Ours):
            made.seen.append((pairs[batch], yes[batch]))
    said = np.concatenate(chances)
    truth = np.concatenate([yes[edges[number] : edges[number + 1]] for number in judged])
    return {
        "fitting": fitting,
        "losses": losses,
        "judged": judged,
        "seconds": float(np.mean(seconds)),
        "auc": area(said, truth),
        "calibration": calibration_error(said, truth),
        "touched": getattr(made, "touched", 0),
    }


def shuffles(pairs: Array, yes: Array, edges: Any, count: int) -> float:
    """Return how far the log-loss of a batch moves with the order of the answers of the one before."""
    fitted = LogisticCompleter(random_state=0).fit(pairs[: edges[0]], yes[: edges[0]])
    path = Path("build") / "bench-updates.onebit"
    path.parent.mkdir(exist_ok=True)
    fitted.save(path)
    found = []
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(np.arange(edges[0], edges[1]))
        model = onebit.load(path).partial_fit(pairs[order], yes[order])
        batch = slice(edges[1], edges[2])
        found.append(float(log_losses(model.predict_proba(pairs[batch])[:, 1], yes[batch]).mean()))
    path.unlink()
    return max(found) - min(found)


def measure(
    data: Path | None, batches: int, names: list[str] | None, tell: Any = print
) -> dict[str, Any]:
    """Run every contestant that is installed."""
    warnings.simplefilter("ignore")
    folder = None if data is None else data / "ml-100k"
    real = folder is not None and (folder / "u.data").is_file()
    pairs, yes = movielens(folder) if real and folder is not None else made_world()
    edges = np.linspace(FITTED * len(yes), len(yes), batches + 1).astype(int).tolist()
    lines: dict[str, Any] = {}
    missing = []
    for name, (make, every) in contestants().items():
        if names is not None and name not in names:
            continue
        try:
            made = make()
            if isinstance(made, Ours):  # compile what is timed then
                follow(make(), pairs[:500], yes[:500], [400, 450, 500], 1)
            lines[name] = follow(made, pairs, yes, edges, every)
        except ImportError as error:
            missing.append(f"{name} ({error.name} is not installed)")
            continue
        except ValueError as error:
            if isinstance(made, Ours):
                raise
            said = str(error).splitlines()[0]
            missing.append(f"{name} (it ended with: {said})")  # a peer ends nobody else's run
            continue
        print(f"{name}: {np.mean(lines[name]['losses']):.4f}, {lines[name]['seconds']:.3f} s a batch")
    return {
        "table": "MovieLens 100k" if real else "a made world",
        "answers": len(yes),
        "batches": batches,
        "contestants": lines,
        "missing": missing,
        "shuffles": shuffles(pairs, yes, edges, SHUFFLES),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "version": onebit.__version__,
    }


def _against(lines: dict[str, Any], name: str, reference: str) -> tuple[float, float] | None:
    """Return how much higher a log-loss is than another's, on the same batches, with standard error."""
    if reference not in lines or name not in lines:
        return None
    mine = dict(zip(lines[name]["judged"], lines[name]["losses"], strict=True))
    theirs = dict(zip(lines[reference]["judged"], lines[reference]["losses"], strict=True))
    both = sorted(set(mine) & set(theirs))
    gaps = np.array([mine[k] - theirs[k] for k in both])
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else 0.0


HEAD = """# Answers that keep coming: the figures

{table}, {answers:,} answers in time order: the first 80 % are fitted, the rest comes in {batches}
batches of {size}. Each batch is predicted before it is learnt. Made by `make bench-updates` (onebit
{version}, {machine}).

| | log-loss of the next batch | above the refit's | AUC | calibration error | s a batch | refit = 1 |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


NOTES = """Log-losses are means over batches; differences are paired, batch by batch, with their standard
error. "sampled, refit" learns after every {every}th batch and is judged on the next one alone, "sampled,
partial_fit" against it on those. The calibration error is the mean distance of probability and frequency
in ten groups of equal size. River and implicit predict no probabilities of their own:
`benchmarks/updates.py` says how they were given some, and their settings. implicit learns from likes
alone, and so who watches what, which tells little of who likes what they watch. "refit = 1": seconds a
batch beside those of a refit. Uncertainties are not compared here: updated draws are narrower than those
of a refit where updates bring many answers (`tests/test_updates.py` holds them against the truth).
"""
SPEED = """
`partial_fit` takes {each:.2f} ms a touched row or column (rank 10, one thread). {shuffles} orders of one
batch change the log-loss of the next by {moved:.2g}: a batch is sorted before it is taken up.
"""


def page(found: dict[str, Any]) -> str:
    """Return the page."""
    lines = found["contestants"]
    size = round(0.2 * found["answers"] / found["batches"])
    text = HEAD.format(size=size, **{name: found[name] for name in
        ("table", "answers", "batches", "version", "machine")})  # fmt: skip
    for name, line in lines.items():
        reference = "sampled, refit" if name.startswith("sampled") else "refit"
        gap = _against(lines, name, reference)
        shown = "" if gap is None or name == reference else f"{gap[0]:+.4f} ± {gap[1]:.4f}"
        dear = ""
        if reference in lines and name != reference and line["seconds"] > 1e-4:
            dear = f"1/{lines[reference]['seconds'] / line['seconds']:.0f}"
        loss = f"{np.mean(line['losses']):.4f}"
        if len(line["losses"]) < found["batches"]:
            loss += f" ({len(line['losses'])} batches)"
        text += (
            f"| {name} | {loss} | {shown} | {line['auc']:.3f} | "
            f"{line['calibration']:.3f} | {line['seconds']:.4f} | {dear} |\n"
        )
    text += "\n" + NOTES.format(every=SAMPLED_EVERY)
    updated = lines.get("partial_fit")
    if updated and updated["touched"]:
        each = 1e3 * updated["seconds"] * found["batches"] / updated["touched"]
        text += SPEED.format(each=each, shuffles=SHUFFLES, moved=found["shuffles"])
    if found["missing"]:
        text += "\nNot measured: " + "; ".join(found["missing"]) + ".\n"
    return text


def main(arguments: list[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--results", type=Path, help="keep what was measured here, and go on from it")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args(arguments)
    found = measure(asked.data, asked.batches, asked.only)
    if asked.results is not None:
        if asked.results.is_file():
            before = json.loads(asked.results.read_text())
            found["contestants"] = before["contestants"] | found["contestants"]
            found["missing"] = [
                one for one in found["missing"] if one.split(" (")[0] not in found["contestants"]
            ]
        order = [name for name in contestants() if name in found["contestants"]]
        found["contestants"] = {name: found["contestants"][name] for name in order}
        asked.results.write_text(json.dumps(found))
    text = page(found)
    if asked.output is not None:
        asked.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
