"""AutoCompleter: chooses loss, temperature, prior scale and rank by itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from onebit.calibration import Calibration, fit_calibration
from onebit.completers import HingeCompleter, LogisticCompleter
from onebit.diagnostics import ROUGH_ESS
from onebit.engine.coordinate import Callback, Progress, Workers
from onebit.engine.workers import workers
from onebit.estimator import PairClassifier, logger
from onebit.exact import ExactCompleter
from onebit.models import plain_parameters, restored_parameters
from onebit.observations import Observations, View
from onebit.parameters import Check, Device, Either, OneOf, Positive, Whole
from onebit.posterior import Posterior
from onebit.storage import Tensors

Array = NDArray[np.float64]

TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
PRIOR_SCALES = (0.003, 0.01, 0.03, 0.1)
RANKS = (10, 20, 40)
SIDES = ("rows", "columns")

# A trial starts from the best posterior so far and stops early: it is there to be ranked.
_COLD_ROUNDS, _WARM_ROUNDS = 50, 20
_TRIAL_TOL = 1e-4
_FINAL_ROUNDS = 500
# Held-out share, and the number of answers from which one split is enough.
_SHARE = 0.1
_ENOUGH = 30_000
# The hinge loss keeps its default temperature only where that beats this one: where the answers say
# little, the higher one overfits and the held-out answers are too few to show it.
_COOLER = 0.7
# What a sweep is taken to cost, in seconds: for each answer and side at rank 10, and for each row and
# column. The search must not depend on how busy a machine is, so it does not look at a clock.
_SECONDS_AN_ANSWER, _SECONDS_A_LINE, _SECONDS_A_SWEEP = 1.3e-7, 5e-7, 1.5e-3
# Chains that have not mixed go on to at most so many times the usual number of draws.
_LONGEST = 4
# The hinge loss is tuned further only where its log-loss comes this close to the logistic one.
_CLOSE = 0.01


@dataclass(frozen=True)
class Choice:
    """One setting of what AutoCompleter chooses."""

    loss: str = "logistic"
    temperature: float = 1.0
    prior_scale: float | str = 0.03
    rank: int = RANKS[0]
    effects: bool = True
    sparse: str | None = None
    inference: str = "variational"

    def with_value(self, name: str, value: Any) -> Choice:
        """Return this choice with one of its parts changed."""
        return Choice(**(asdict(self) | {name: value}))

    def completer(self, **settings: Any) -> ExactCompleter:
        """Return an unfitted completer with these settings."""
        common = {
            "rank": self.rank,
            "temperature": self.temperature,
            "prior_scale": self.prior_scale,
            "effects": self.effects,
            "sparse": self.sparse,
        } | settings
        if self.loss == "hinge":
            return HingeCompleter(calibrate=False, **common)
        if self.inference == "sampling":
            common["inference"] = "sampling"
        return LogisticCompleter(**common)

    def sampled(self) -> Choice:
        """Return the exact posterior of the logistic loss with this rank and these effects."""
        return Choice(prior_scale="auto", rank=self.rank, effects=self.effects, inference="sampling")


@dataclass(frozen=True)
class Trial:
    """What a choice scored on the held-out answers."""

    choice: Choice
    losses: Array
    weights: Array
    accuracy: float
    rounds: int
    posteriors: tuple[Posterior, ...]
    calibration: Calibration | None

    @property
    def log_loss(self) -> float:
        """The mean log-loss of the held-out answers."""
        return float(np.average(self.losses, weights=self.weights))

    def beats(self, other: Trial) -> bool:
        """Say whether this trial's log-loss is lower by more than the difference's standard error.

        Without that margin a search over many settings follows the noise of its few held-out answers
        away from good defaults.
        """
        difference = other.losses - self.losses
        gain = np.average(difference, weights=self.weights)
        share = self.weights / self.weights.sum()
        error = np.sqrt((share**2 * (difference - gain) ** 2).sum())
        return bool(gain > error)


class AutoCompleter(PairClassifier):
    """A completer without knobs.

    Chooses the loss, the temperature, the prior's scale, the largest rank and whether one side is sparse
    by the log-loss of answers held out of the training data, walking from good defaults and starting most
    trials where the best one ended, then refits on all answers. A search costs about as much as ten plain
    fits, more on data so small that it does not matter. Last, where there is time for it, it samples the
    exact posterior of the logistic loss, and keeps that if it wins on the same held-out answers.

    Parameters
    ----------
    sampling_seconds : float, default 60
        The most that sampling, on the held-out splits and on all answers, may take by a fixed reckoning
        for one core (130 ns for each answer, side and sweep at rank 10); data for which it would take
        longer is not sampled. Where the chain has not mixed it goes on, to at most four times as many
        draws and within this time; if it still has not, a warning says so. Zero never samples.
    random_state : int, RandomState or None
        Seed of the splits and starts.
    n_jobs : int or None, default -1
        Threads; the result does not depend on them.
    device : {"cpu", "auto", "cuda", "cuda:1", ...}
        Where the fits run; see LogisticCompleter.
    verbose : int
        Above zero, every trial is logged.

    Attributes
    ----------
    completer_ : LogisticCompleter or HingeCompleter
        The chosen model, fitted on all answers.
    best_params_ : dict
        The choice.
    search_ : pandas.DataFrame
        Every trial: choice, held-out log-loss and accuracy, rounds.
    posterior_, rank_, objective_
        As for the chosen completer.

    Examples
    --------
    >>> from onebit import AutoCompleter, simulate
    >>> world = simulate.world("A2", rank=2, shape=(80, 80), density=0.4, seed=0)
    >>> model = AutoCompleter(random_state=0).fit(world.pairs, world.answers)
    >>> sorted(model.best_params_)
    ['effects', 'inference', 'loss', 'prior_scale', 'rank', 'sparse', 'temperature']
    """

    _checks: ClassVar[dict[str, Check]] = {
        "device": Device(),
        "verbose": Whole(0),
        "sampling_seconds": Either(Positive(), OneOf((0, 0.0))),
    }

    def __init__(
        self,
        *,
        sampling_seconds: float = 60.0,
        random_state: Any = None,
        n_jobs: int | None = -1,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.sampling_seconds = sampling_seconds
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def _fit(
        self, observations: Observations, rng: np.random.Generator, callback: Callback | None
    ) -> list[str]:
        # The callback is told of every trial (with its held-out log-loss) and of every final round.
        settings: dict[str, Any] = {
            "random_state": int(rng.integers(2**31 - 1)),
            "n_jobs": self.n_jobs,
            "device": self.device,
        }
        with workers(self.device, self.n_jobs, observations.n) as pool:
            search = _Search(observations, rng, pool, settings, callback)
            best = search.run() if search.usable else None
            if best is not None:
                best = search.sampled(best, self.sampling_seconds)
            choice = best.choice if best else Choice()
            completer = choice.completer(**settings, max_iter=_FINAL_ROUNDS)
            start = best.posteriors[0] if best else None
            fit, found = completer._run(observations, rng, pool, callback, start)
        # Draws are made on the CPU: a GPU has been let go by now.
        if choice.inference == "sampling":
            search.let_chains_mix(completer, self.sampling_seconds)
        found |= completer._go_on(observations, fit.posterior, rng, callback)
        if best and best.calibration:
            found["calibration_"] = best.calibration
        completer._remember(observations)
        completer._store(fit, found)
        self.completer_ = completer
        self.best_params_ = asdict(choice)
        self.search_ = pd.DataFrame(
            [
                asdict(trial.choice)
                | {"sparse": trial.choice.sparse or "no"}
                | {"log_loss": trial.log_loss, "accuracy": trial.accuracy, "rounds": trial.rounds}
                for trial in search.trials
            ]
        )
        completer._sampled = None
        advice = completer.mixing_advice("Raise sampling_seconds")
        if not fit.converged and not completer.is_sampled:
            advice.append(
                f"the chosen model stopped after {fit.n_iter} rounds before it settled; its predictions "
                "may still move a little"
            )
        return advice

    @property
    def posterior_(self) -> Posterior:
        """The posterior of the chosen completer."""
        check_is_fitted(self, "completer_")
        return self.completer_.posterior_

    @property
    def rank_(self) -> int:
        """The rank that the chosen completer found."""
        check_is_fitted(self, "completer_")
        return self.completer_.rank_

    @property
    def objective_(self) -> float:
        """The objective that the chosen completer reached."""
        check_is_fitted(self, "completer_")
        return self.completer_.objective_

    @property
    def row_effects_(self) -> pd.Series:
        """The mean effect of each row, on the scale of the chosen loss."""
        check_is_fitted(self, "completer_")
        return self.completer_.row_effects_

    @property
    def column_effects_(self) -> pd.Series:
        """The mean effect of each column, on the scale of the chosen loss."""
        check_is_fitted(self, "completer_")
        return self.completer_.column_effects_

    def predict_uncertainty(self, X: Any) -> Array:
        """Return the posterior standard deviation of each pair's score."""
        check_is_fitted(self, "completer_")
        return self.completer_.predict_uncertainty(X)

    def predict_interval(
        self, X: Any, level: float = 0.9, output: str = "score", *, approximate: bool = False
    ) -> Array:
        """Return credible intervals; see ``LogisticCompleter.predict_interval``."""
        check_is_fitted(self, "completer_")
        return self.completer_.predict_interval(X, level, output, approximate=approximate)

    def fold_in(self, X: Any, y: Any) -> AutoCompleter:
        """Add new rows or columns from their answers; see ``LogisticCompleter.fold_in``."""
        check_is_fitted(self, "completer_")
        self.completer_.fold_in(X, y)
        self.rows_, self.columns_ = self.completer_.rows_, self.completer_.columns_
        self._folded, self.folded_in_ = self.completer_._folded, self.completer_.folded_in_
        return self

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, content = self.completer_._state()
        search = self.search_.to_dict(orient="list")
        return tensors, {
            "completer": content,
            "completer_class": type(self.completer_).__name__,
            "completer_params": plain_parameters(self.completer_),
            "best_params": self.best_params_,
            "search": search,
        }

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        kinds = {kind.__name__: kind for kind in (HingeCompleter, LogisticCompleter)}
        kind = kinds[content["completer_class"]]
        self.completer_ = kind(**restored_parameters(content["completer_params"]))
        self.completer_._know(self.rows_, self.columns_, self.classes_, self.n_observations_)
        self.completer_._restore(tensors, content["completer"])
        self.best_params_ = content["best_params"]
        self.search_ = pd.DataFrame(content["search"])

    def _score_moments(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> tuple[Array, Array]:
        return self.completer_._score_moments(rows, columns)

    def _keeps_checkpoints(self) -> bool:
        return True

    def _scores(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> Array:
        return self.completer_._scores(rows, columns)

    def _decisions(self, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> Array:
        return self.completer_._decisions(rows, columns)

    def _decided(self, mean: Array, probability: Array) -> Array:
        return self.completer_._decided(mean, probability)

    def top_columns(
        self, rows: NDArray[np.int32], count: int, seen: View | None = None
    ) -> NDArray[np.int32]:
        """Return the codes of the columns with the highest scores; see ``PairClassifier``."""
        check_is_fitted(self)
        return self.completer_.top_columns(rows, count, seen)

    def _predicted(
        self, rows: NDArray[np.int32], columns: NDArray[np.int32]
    ) -> tuple[Array, Array, Array]:
        return self.completer_._predicted(rows, columns)

    def _probability(self, mean: Array, variance: Array) -> Array:
        return self.completer_._probability(mean, variance)


class _Search:
    """The walk over choices, on fixed splits of the training answers."""

    def __init__(
        self,
        observations: Observations,
        rng: np.random.Generator,
        pool: Workers,
        settings: dict[str, Any],
        callback: Callback | None,
    ) -> None:
        self.rng = rng
        self.pool = pool
        self.settings = settings
        self.callback = callback
        self.trials: list[Trial] = []
        self.shape, self.n = observations.shape, observations.n
        self.weighted = len(observations.by_row.weight) > 0
        self.small = observations.n < _ENOUGH
        n_splits = 3 if self.small else 1
        self.splits = []
        order = rng.permutation(observations.n)
        size = int(_SHARE * observations.n)
        for k in range(n_splits):
            held = np.zeros(observations.n, dtype=bool)
            held[order[k * size : (k + 1) * size]] = True
            self.splits.append((observations.take(~held), observations.entries(held)))
        entries = [held for _, held in self.splits]
        self.sign = np.concatenate([held.sign for held in entries])
        self.weight = np.concatenate(
            [np.ones(size) if held.weight is None else held.weight for held in entries]
        ).astype(float)
        # With fewer there is nothing to choose by: the defaults stand.
        self.usable = n_splits * size >= 20

    def run(self) -> Trial:
        """Walk along temperature, prior scale and rank; the same with the hinge loss; then sparse."""
        best = self.trial(Choice(), None)
        plain = self.trial(Choice(effects=False), None)
        if plain.log_loss < best.log_loss:  # the simpler model need not win by a margin
            best = plain
        best = self.climb(best, "temperature", TEMPERATURES)
        best = self.climb(best, "prior_scale", PRIOR_SCALES)
        best = self.climb(best, "rank", RANKS)
        hinge = self.trial(Choice("hinge", rank=best.choice.rank, effects=best.choice.effects), None)
        cooler = self.trial(hinge.choice.with_value("temperature", _COOLER), hinge)
        if hinge.beats(cooler):
            hinge = self.climb(hinge, "temperature", TEMPERATURES, (1,))
        else:
            hinge = self.climb(cooler, "temperature", TEMPERATURES, (-1,))
        if hinge.log_loss < best.log_loss + _CLOSE:
            hinge = self.climb(hinge, "prior_scale", PRIOR_SCALES)
        least = min(best.log_loss, hinge.log_loss)
        best, hinge = (
            self.sparser(trial) if trial.log_loss < least + _CLOSE else trial for trial in (best, hinge)
        )
        return hinge if hinge.beats(best) else best

    def sparser(self, best: Trial) -> Trial:
        """Try either side sparse, with the temperature chosen again."""
        if best.posteriors[0].effective_rank < 2:
            return best
        trials = [self.trial(best.choice.with_value("sparse", side), best) for side in SIDES]
        trial = min(trials, key=lambda trial: trial.log_loss)
        trial = self.climb(trial, "temperature", TEMPERATURES)
        return trial if trial.beats(best) else best

    def sampled(self, best: Trial, seconds: float) -> Trial:
        """Try the exact posterior of the logistic loss, where a fixed reckoning says there is time."""
        choice = best.choice.sampled()
        trials, final = self._reckoned(choice.completer(**self.settings))
        if trials + final > seconds or self.weighted:
            return best
        near = best.choice.loss == choice.loss and best.choice.sparse is None
        trial = self.trial(choice, best if near else None)
        return trial if trial.beats(best) else best

    def _reckoned(self, completer: ExactCompleter) -> tuple[float, float]:
        """Return the seconds that sampling is taken to need: on the splits, and on all answers."""
        sweeps = completer.n_burn_in + completer.n_samples * completer.n_thin
        wide = 0.5 + 0.5 * (completer.rank / 10.0) ** 2

        def seconds(shape: tuple[int, int], n: int) -> float:
            answers, lines = 2.0 * n * _SECONDS_AN_ANSWER, sum(shape) * _SECONDS_A_LINE
            return sweeps * (wide * (answers + lines) + _SECONDS_A_SWEEP)

        return sum(seconds(kept.shape, kept.n) for kept, _ in self.splits), seconds(self.shape, self.n)

    def let_chains_mix(self, completer: ExactCompleter, seconds: float) -> None:
        """Let the last chain go on until it has roughly mixed, as far as the time allows."""
        trials, final = self._reckoned(completer)
        longer = int(min(max((seconds - trials) // final, 1), _LONGEST))
        completer._least_samples = completer.n_samples
        completer.set_params(n_samples=longer * completer.n_samples, settle=ROUGH_ESS**-0.5)

    def climb(
        self, best: Trial, name: str, grid: tuple[float, ...], directions: tuple[int, ...] = (1, -1)
    ) -> Trial:
        """Move along one coordinate of the choice while the held-out log-loss falls."""
        begin = grid.index(getattr(best.choice, name))
        for direction in directions:
            position, moved = begin + direction, False
            while 0 <= position < len(grid):
                if name == "rank" and not self._rank_binds(best):
                    break
                choice = best.choice.with_value(name, grid[position])
                starts: list[Trial | None] = [None] if name == "rank" else [best]
                if self.small and direction > 0 and name != "rank":
                    starts.append(None)  # a column that has vanished may be wanted again
                trial = min((self.trial(choice, start) for start in starts), key=lambda t: t.log_loss)
                if not trial.beats(best):
                    break
                best, moved = trial, True
                position += direction
            if moved:
                break
        return best

    @staticmethod
    def _rank_binds(trial: Trial) -> bool:
        """Say whether the data wants nearly as many columns as it was offered."""
        return trial.posteriors[0].effective_rank >= 0.8 * trial.choice.rank

    def trial(self, choice: Choice, warm: Trial | None) -> Trial:
        """Score one choice, starting from the posteriors of ``warm`` if given."""
        completer = choice.completer(
            **self.settings,
            max_iter=_WARM_ROUNDS if warm else _COLD_ROUNDS,
            tol=_TRIAL_TOL,
        )
        posteriors, moments, rounds = [], [], 0
        for k, (kept, held) in enumerate(self.splits):
            start = warm.posteriors[k] if warm else None
            fit, _ = completer._run(kept, self.rng, self.pool, None, start)
            if choice.inference == "sampling":
                pairs = (held.rows, held.columns)
                averages = completer.held_out_averages(kept, fit.posterior, pairs, self.rng, None)
                moments.append((averages.mean, averages.variance, averages.chance))
            else:
                found = fit.posterior.score_moments(held.rows, held.columns, self.pool.count)
                moments.append((*found, np.empty(0)))
            posteriors.append(fit.posterior)
            rounds += fit.n_iter
        mean, variance = (np.concatenate([part[k] for part in moments]) for k in (0, 1))
        sign, weight = self.sign, self.weight
        calibration = None
        if isinstance(completer, HingeCompleter):
            calibration = fit_calibration(mean, variance, sign, weight)
            probability = _cross_fitted(mean, variance, sign, weight)
        elif choice.inference == "sampling":
            chance = np.concatenate([part[2] for part in moments])
            probability = completer._sampled_probability(mean, variance, chance)
        else:
            probability = completer._probability(mean, variance)
        losses = -np.log(np.where(sign > 0, probability, 1.0 - probability))
        decided = probability - 0.5 if choice.inference == "sampling" else mean
        accuracy = float(np.average(sign * decided > 0, weights=weight))
        trial = Trial(choice, losses, weight, accuracy, rounds, tuple(posteriors), calibration)
        self.trials.append(trial)
        logger.info("trial %d: %s, held-out log-loss %.4f, accuracy %.4f",
                    len(self.trials), choice, trial.log_loss, accuracy)  # fmt: skip
        if self.callback is not None:
            self.callback(Progress(len(self.trials), 0, trial.log_loss))
        return trial


def _cross_fitted(mean: Array, variance: Array, sign: NDArray[np.int8], weight: Array) -> Array:
    """Return hinge probabilities in which no answer helped to fit the curve that it is scored by."""
    probability = np.empty_like(mean)
    half = np.arange(len(mean)) % 2 == 0
    for part in (half, ~half):
        curve = fit_calibration(mean[~part], variance[~part], sign[~part], weight[~part])
        probability[part] = curve.probability(mean[part], variance[part])
    return probability
