"""AutoCompleter: chooses loss, temperature, prior scale and rank by itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from onebit.completers.archive import plain_parameters, restored_parameters
from onebit.completers.base import Found, PairClassifier, know, logger
from onebit.completers.bayes import bayes_state, found_of, restored_found
from onebit.completers.efforts import EFFORTS, Budget, architecture
from onebit.completers.gibbs import GibbsCompleter
from onebit.completers.hinge import HingeCompleter
from onebit.completers.logistic import LogisticCompleter
from onebit.completers.parameters import Check, Device, Either, OneOf, Positive, Some, Whole, plain
from onebit.completers.predictions import Codes
from onebit.completers.search import LOSSES, Search, described
from onebit.data import checked
from onebit.data.ids import IdIndex
from onebit.data.observations import Observations
from onebit.data.storage import Tensors
from onebit.engine.cpu.threads import thread_count
from onebit.engine.crew import Callback
from onebit.engine.fitting import Fitted, fit
from onebit.engine.recipe import Recipe
from onebit.engine.sampling.plan import MOST_CHAINS, MOST_DRAWS
from onebit.engine.workers import Machine, workers
from onebit.model.losses import GIBBS, HINGE
from onebit.model.posterior import Posterior

Chosen: TypeAlias = LogisticCompleter | HingeCompleter | GibbsCompleter
_NAMES = tuple(loss.name for loss in LOSSES)


class AutoCompleter(PairClassifier):
    """A completer without knobs.

    Chooses the loss, the temperature, the prior's scale, the largest rank, effects or none, whether one
    side is sparse and whether the pattern of the answers (which entries have one) tells something, by the
    log-loss of answers held out of the training data, walking from good defaults and starting most trials
    where the best one ended, then refits on all answers. A search costs about as much as ten plain fits,
    more on data so small that it does not matter. The losses are the logistic one, the hinge loss and the
    Gibbs loss (see GibbsCompleter), the latter two with probabilities from curves that are fitted on
    held-out answers. Last, where there is time for it and answers have no weights, it samples the exact
    posterior of the logistic loss, and keeps that if it wins on the same held-out answers.

    Scores of the hinge and the Gibbs loss are no log-odds: a model that chose one of these has no
    summaries of rows and columns and no interviews; ``losses=("logistic",)`` keeps them.

    Parameters
    ----------
    losses : sequence of {"logistic", "hinge", "gibbs"}, default all three
        The losses to choose from, "logistic" among them. With that one alone scores are log-odds, for
        what is read from them: summaries of rows and columns, interviews and, if the model was sampled,
        intervals of probabilities. Abilities and difficulties on the scale of item response theory are
        those of a Rasch or a two-parameter model; see LogisticCompleter.
    pattern : {"auto", None}
        "auto" tries the pattern of the answers and keeps it where it lowers the held-out log-loss. None
        leaves it out: for predictions of entries that people would not choose to answer.
    effort : {"quick", "default", "thorough"}
        How long it may sample, by a fixed reckoning that does not look at a clock: 20, 200 or 2,000
        seconds of one core (of the GPU, where it runs there) for the trials and the last fit together,
        and at most 200, 3,000 or 5,000 draws of each chain: of four chains, or of two where four would be
        shorter than that and than two thousand sweeps (of one where there is no time for two). What a
        core does in a second is reckoned for arm64 and x86-64 apart, so that machines of the two may find
        different models under one seed. Sampling is tried at the rank that the search has found (10, 20
        or 40) and, as long as it gains, comes close to the best and there is time, at the next ones;
        where a higher rank would leave all chains fewer than 6,000 draws that would have more, it has to
        gain two percent of the log-loss. Chains stop once they have settled: every R-hat at most 1.05,
        every effective sample size at least 100 and the Monte Carlo error of the log-loss at most 0.0005;
        otherwise a warning says what they may still move by.
    sampling_seconds : float or None
        Another number of seconds. Zero never samples.
    n_samples, n_chains, n_burn_in : int or None
        Draws of each chain, chains and sweeps before the first draw of the last fit, in place of what
        the effort allows.
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
    completer_ : LogisticCompleter, HingeCompleter or GibbsCompleter
        The chosen model, fitted on all answers. Its parameters say the choice; a clone of it that is
        fitted by itself starts elsewhere, and PAC-Bayes certificates of that do not pay for this search.
    best_params_ : dict
        The choice.
    search_ : pandas.DataFrame
        Every trial: its settings, held-out log-loss and accuracy, rounds, and whether it was chosen. A
        step along temperature, prior scale or rank, to the hinge loss or to a sparse side is taken where
        it lowers the log-loss by more than the standard error of the difference (for higher ranks of
        sampling see ``effort``), one to the Gibbs loss where by 0.005 at least, so that the lowest line
        need not be the choice; effects are left out, and the pattern and sampling are taken, by any gain.
        The choice was made by these numbers: that of the chosen line is a little too good; ``evaluate``
        on other answers has one that is not.
    posterior_, rank_, objective_
        As for the chosen completer.

    Examples
    --------
    >>> from onebit import AutoCompleter, simulate
    >>> world = simulate.world("A2", rank=2, shape=(80, 80), density=0.4, seed=0)
    >>> model = AutoCompleter(random_state=0).fit(world.pairs, world.answers)
    >>> sorted(model.best_params_)
    ['effects', 'inference', 'loss', 'pattern', 'prior_scale', 'rank', 'sparse', 'temperature']
    """

    completer_: Chosen
    best_params_: dict[str, Any]
    search_: pd.DataFrame
    rank_: int
    objective_: float

    _tuned: ClassVar[bool] = True
    _takes_features: ClassVar[bool] = True
    _checks: ClassVar[dict[str, Check]] = {
        "losses": Some(_NAMES, _NAMES[0]),
        "pattern": OneOf(("auto", None)),
        "device": Device(),
        "verbose": Whole(0),
        "effort": OneOf(tuple(EFFORTS)),
        "sampling_seconds": Either(Positive(), OneOf((0, 0.0, None))),
        "n_samples": Either(Whole(1, MOST_DRAWS), OneOf((None,))),
        "n_chains": Either(Whole(1, MOST_CHAINS), OneOf((None,))),
        "n_burn_in": Either(Whole(0), OneOf((None,))),
    }

    def __init__(
        self,
        *,
        losses: Sequence[str] = ("logistic", "hinge", "gibbs"),
        pattern: str | None = "auto",
        effort: str = "default",
        sampling_seconds: float | None = None,
        n_samples: int | None = None,
        n_chains: int | None = None,
        n_burn_in: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = -1,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.losses = losses
        self.pattern = pattern
        self.effort = effort
        self.sampling_seconds = sampling_seconds
        self.n_samples = n_samples
        self.n_chains = n_chains
        self.n_burn_in = n_burn_in
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def _find(
        self,
        observations: Observations,
        machine: Machine,
        rng: np.random.Generator,
        callback: Callback | None,
        start: Posterior | None,
        pairs: tuple[Codes, Codes] | None,
    ) -> Found:
        # The callback is told of every trial (with its held-out log-loss) and of every final round.
        if start is not None:
            raise ValueError("AutoCompleter searches from starts of its own; leave start out")
        settings: dict[str, Any] = {
            "random_state": int(rng.integers(2**31 - 1)),
            "n_jobs": self.n_jobs,
            "device": self.device,
        }
        with workers(machine, observations.n) as crew:
            budget = self._budget(crew.on_gpu)
            search = Search(
                observations,
                rng,
                crew,
                callback,
                self.pattern is not None,
                budget,
                tuple(loss for loss in LOSSES if loss.name in self.losses),
            )
            best = search.run() if search.usable else None
            if best is not None and budget.seconds:
                logger.info("%s", self.effort_words())
                best = search.sampled(best)
            recipe = search.final(best)
            begin = best.posteriors[0] if best else None
            fitted = fit(recipe, observations, crew, rng, begin, callback=callback, pairs=pairs)
        if best is not None and best.calibration is not None:
            fitted = replace(fitted, calibration=best.calibration)
        found = found_of(recipe, fitted, self._longer())
        if self.n_samples is not None and recipe.sampling is None:
            why = "since a variational model was as good on the answers held out of the search"
            if observations.weighted:
                why = "since the answers have weights"
            if self.sampling_seconds == 0:
                why = "since sampling_seconds is 0"
            unused = f"n_samples={self.n_samples} was not used: nothing was sampled, {why}"
            found = replace(found, advice=[*found.advice, unused])
        completer, table = completer_of(recipe, **settings), search.table(best)
        know(completer, _as_found_by(completer, found, table), observations)
        chosen = {"completer_": completer, "best_params_": described(recipe), "search_": table}
        return replace(found, attributes=found.attributes | chosen)

    @property
    def _reckoned_for(self) -> str:
        """The architecture that an effort is reckoned for: how long chains are depends on it."""
        return architecture()

    def _longer(self) -> str:
        """Return what gives more draws."""
        if self.n_samples is not None:
            return "Raise n_samples (--samples)"
        if self.sampling_seconds is not None or self.effort == "thorough":
            return "Raise sampling_seconds (--sampling-seconds)"
        more = "default" if self.effort == "quick" else "thorough"
        return f'Set effort="{more}" (--effort {more})'

    def effort_words(self) -> str:
        """Say how long sampling may take here, before it starts.

        Examples
        --------
        >>> from onebit import AutoCompleter
        >>> AutoCompleter(effort="quick", n_jobs=1).effort_words()
        'sampling takes about 20 s at most on 1 core, by a reckoning'
        """
        budget = self._budget(self.device not in ("cpu", "auto"))
        if not budget.seconds:
            return "nothing is sampled"
        if self.n_samples is not None:
            return f"{self.n_samples:,} draws of each chain, however long they take, if sampling pays"
        return budget.sentence(budget.seconds, thread_count(self.n_jobs))

    def _budget(self, on_gpu: bool) -> Budget:
        seconds, most = EFFORTS[self.effort]
        if self.sampling_seconds is not None:
            seconds = float(self.sampling_seconds)
        wanted = map(plain, (self.n_samples, self.n_chains, self.n_burn_in))
        return Budget(seconds, most, on_gpu, *wanted)

    def _on_cluster(
        self, sample: Callable[[], Observations], n: int, callback: Callback | None
    ) -> tuple[Recipe, Callable[[Fitted], Found]]:
        # The search runs here, on a sample; what it finds is fitted there, on all answers.
        part = sample()
        logger.info("searching on %s answers of the cluster's", f"{part.n:,}")
        # A GPU of this machine is used if there is one; the workers have theirs.
        here = "cpu" if self.device == "cpu" else "auto"
        there = [name for name in self.losses if name != GIBBS.name]  # which clusters do not fit
        model = clone(self).set_params(sampling_seconds=0.0, device=here, losses=there)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(part, callback=callback)
        completer = model.completer_
        assert not isinstance(completer, GibbsCompleter)
        completer.set_params(sparse=None)
        recipe = recipe_for(completer)

        def found(fitted: Fitted) -> Found:
            made = found_of(recipe, fitted)
            said = f"searched on {part.n:,} answers, fitted on all of the cluster's"
            chosen = {
                "completer_": completer,
                "best_params_": described(recipe),
                "search_": model.search_,
            }
            advice = [*made.advice, said] if part.n < n else made.advice
            return replace(made, attributes=made.attributes | chosen, advice=advice)

        return recipe, found

    def _know_from_cluster(
        self, found: Found, rows: IdIndex, columns: IdIndex, classes: Any, n: int
    ) -> None:
        super()._know_from_cluster(found, rows, columns, classes, n)
        know(self.completer_, replace(found, attributes={}), self)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, content = bayes_state(self)
        return tensors, {
            "completer": content,
            "completer_class": type(self.completer_).__name__,
            "completer_params": plain_parameters(self.completer_),
            "best_params": self.best_params_,
            "search": self.search_.to_dict(orient="list"),
        }

    def _restore(self, tensors: Tensors, content: dict[str, Any]) -> None:
        _check_search(content)
        kinds = {kind.__name__: kind for kind in (GibbsCompleter, HingeCompleter, LogisticCompleter)}
        kind = kinds[content["completer_class"]]
        completer = kind(**restored_parameters(content["completer_params"]))
        shape = (len(self.rows_), len(self.columns_))
        found = restored_found(recipe_for(completer), tensors, content["completer"], shape)
        table = pd.DataFrame(content["search"])
        know(completer, _as_found_by(completer, found, table), self)
        chosen = {"completer_": completer, "best_params_": content["best_params"], "search_": table}
        self._take(replace(found, attributes=found.attributes | chosen))


def _as_found_by(completer: Chosen, found: Found, search: pd.DataFrame) -> Found:
    """Return what a completer of its own would have found, besides what this one has."""
    if not isinstance(completer, GibbsCompleter):
        return found
    own = {"temperature_": completer.temperature, "prior_choices_": len(search)}
    return replace(found, attributes=found.attributes | own)


def _check_search(fitted: dict[str, Any]) -> None:
    """Refuse a record of a search that is no table."""
    checked.section(fitted, "best_params")
    table = checked.section(fitted, "search")
    lengths = {len(checked.listed(table, name)) for name in table}
    if len(lengths) > 1 or any(
        value is None or isinstance(value, (dict, list)) for column in table.values() for value in column
    ):
        raise checked.FileError("the record of the search is no table")


def recipe_for(completer: Chosen) -> Recipe:
    """Return the recipe that a completer of this module follows."""
    return completer._recipe()


def completer_of(recipe: Recipe, **settings: Any) -> Chosen:
    """Return an unfitted completer whose parameters say this recipe."""
    common: dict[str, Any] = {
        "rank": recipe.rank,
        "temperature": recipe.temperature,
        "prior": recipe.prior,
        "prior_scale": recipe.prior_scale,
        "effects": recipe.row_effects,
        "max_iter": recipe.schedule.max_iter,
        "tol": recipe.schedule.tol,
    } | settings
    if recipe.loss is GIBBS:
        return GibbsCompleter(calibrate=True, **common)
    common |= {"sparse": recipe.sparse, "pattern": recipe.pattern}
    if recipe.loss is HINGE:
        return HingeCompleter(calibrate=recipe.calibrate, **common)
    plan = recipe.sampling
    if plan is not None:
        common |= {
            "inference": "sampling",
            "n_samples": plan.n_samples,
            "n_burn_in": plan.n_burn_in,
            "n_chains": plan.n_chains,
            "n_thin": plan.n_thin,
            "settle": plan.settle,
        }
    return LogisticCompleter(**common)
