"""The search over recipes, on fixed splits of the training answers."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.completers.efforts import TRIAL, WORTH_SHORTER, Budget
from onebit.completers.trials import Trial, cross_fitted
from onebit.data.hashing import repeats
from onebit.data.observations import Observations
from onebit.engine import scoring
from onebit.engine.crew import Callback, Progress, Workers
from onebit.engine.descent import Schedule
from onebit.engine.fitting import fit, known_of
from onebit.engine.known import Known
from onebit.engine.recipe import SIDES, Recipe
from onebit.engine.sampling.plan import Plan
from onebit.engine.sampling.rehearsal import SAMPLERS
from onebit.model.calibration import CERTAINTY, expected_sigmoid, fit_calibration
from onebit.model.losses import GIBBS, HINGE, LOGISTIC, Loss
from onebit.model.posterior import Posterior

logger = logging.getLogger("onebit")

Array = NDArray[np.float64]

TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
PRIOR_SCALES = (0.003, 0.01, 0.03, 0.1)
RANKS = (10, 20, 40)

# A trial starts from the best posterior so far and stops early: it is there to be ranked.
_COLD_ROUNDS, _WARM_ROUNDS = 50, 20
_TRIAL_TOL = 1e-4
_FINAL_ROUNDS = 500
# Not so where the Gibbs loss is to be judged: its curve is fitted on a trial, and its scores drift for
# long before they settle.
_SETTLED_ROUNDS, _SETTLED_TOL = 200, 1e-5
# Held-out share, and the number of answers from which one split is enough.
_SHARE = 0.1
_ENOUGH = 30_000
# The hinge loss keeps its default temperature only where that beats this one: where the answers say
# little, the higher one overfits and the held-out answers are too few to show it.
_COOLER = 0.7
# The hinge and the Gibbs loss are tuned further, and sampling is tried at higher ranks, only where they
# come this close to the best log-loss.
_CLOSE = 0.01
# Where the walk of the Gibbs loss begins. An answer costs one at most, less than with the other losses:
# the same weight against the prior needs a higher temperature.
_GIBBS_TEMPERATURE = 2.0
# Its curve needs some hundred held-out answers.
_FEWEST_OF_GIBBS = 500
# What gains less is not worth a loss without a convex start, and answers that contradict nothing make
# every loss nearly sure.
_WORTH = 0.005

# The first one is always tried.
LOSSES = (LOGISTIC, HINGE, GIBBS)
NO_SAMPLING = Budget(0.0, 0)
# Where the walk begins.
FIRST = Recipe(rank=RANKS[0], prior_scale=0.03)


def described(recipe: Recipe) -> dict[str, Any]:
    """Return what a search chooses of a recipe, in the words of the completers' parameters."""
    return {
        "loss": recipe.loss.name,
        "temperature": recipe.temperature,
        "prior_scale": recipe.prior_scale,
        "rank": recipe.rank,
        "effects": recipe.row_effects,
        "sparse": recipe.sparse,
        "pattern": recipe.pattern,
        "inference": "variational" if recipe.sampling is None else "sampling",
    }


def with_effects(recipe: Recipe, effects: bool) -> Recipe:
    """Return a recipe with effects on both sides, or on none."""
    return replace(recipe, row_effects=effects, column_effects=effects)


def sampled_recipe(recipe: Recipe, plan: Plan = TRIAL) -> Recipe:
    """Return the exact posterior of the logistic loss with this rank and these effects."""
    plain = Recipe(rank=recipe.rank, sampling=plan, pattern=recipe.pattern)
    return with_effects(plain, recipe.row_effects)


class Search:
    """The walk over recipes."""

    def __init__(
        self,
        observations: Observations,
        rng: np.random.Generator,
        crew: Workers,
        callback: Callback | None,
        pattern: bool = True,
        budget: Budget = NO_SAMPLING,
        losses: tuple[Loss, ...] = LOSSES,
    ) -> None:
        crew.sort(observations)
        self.pattern = pattern
        self.hinge = HINGE in losses
        # Nothing that is known of rows and columns goes with the Gibbs loss.
        bare = observations.features == (None, None)
        self.gibbs = GIBBS in losses and bare and observations.n >= _FEWEST_OF_GIBBS
        self.budget = budget
        self.spent = 0.0  # seconds of sampling, by the reckoning
        if budget.seconds > 0.0 and not crew.on_gpu:
            SAMPLERS.begin(crew.count)
        self._known: dict[tuple[int, tuple[bool, bool]], Known] = {}
        self.rng = rng
        self.crew = crew
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
            held = observations.by_entry(held)
            self.splits.append((observations.take(~held), observations.entries(held)))
        entries = [held for _, held in self.splits]
        self.sign = np.concatenate([held.sign for held in entries])
        # Two halves of whole entries, whose answers stand side by side.
        width = np.int64(observations.shape[1])
        first = [repeats(held.rows * width + held.columns) == 0 for held in entries]
        self.half = np.cumsum(np.concatenate(first)) % 2 == 1
        self.weight = np.concatenate(
            [np.ones(len(held.sign)) if held.weight is None else held.weight for held in entries]
        ).astype(float)
        # With fewer, or with few entries answered again and again, there is nothing to choose by: the
        # defaults stand.
        some = all(seen.n and len(held.sign) for seen, held in self.splits)
        self.usable = some and n_splits * size >= 20

    def run(self) -> Trial:
        """Walk along temperature, prior scale and rank; with the hinge loss; sparse; the Gibbs loss."""
        best = self.trial(FIRST, None)
        plain = self.trial(with_effects(FIRST, False), None)
        if plain.log_loss < best.log_loss:  # the simpler model need not win by a margin
            best = plain
        best = self.patterned(best)
        best = self.climb(best, "temperature", TEMPERATURES)
        best = self.climb(best, "prior_scale", PRIOR_SCALES)
        best = self.climb(best, "rank", RANKS)
        found = [best, self.hinged(best)] if self.hinge else [best]
        least = min(trial.log_loss for trial in found)
        found = [self.sparser(trial) if trial.log_loss < least + _CLOSE else trial for trial in found]
        best = self.defended(found[-1] if found[-1].beats(found[0]) else found[0])
        return self.robust(best) if self.gibbs else best

    def hinged(self, best: Trial) -> Trial:
        """Return the best of the hinge loss, with the rank and the effects of the logistic one."""
        other = replace(FIRST, loss=HINGE, rank=best.recipe.rank, pattern=best.recipe.pattern)
        hinge = self.trial(with_effects(other, best.recipe.row_effects), None)
        cooler = self.trial(replace(hinge.recipe, temperature=_COOLER), hinge)
        if hinge.beats(cooler):
            hinge = self.climb(hinge, "temperature", TEMPERATURES, (1,))
        else:
            hinge = self.climb(cooler, "temperature", TEMPERATURES, (-1,))
        if hinge.log_loss < best.log_loss + _CLOSE:
            hinge = self.climb(hinge, "prior_scale", PRIOR_SCALES)
        return hinge

    def robust(self, best: Trial) -> Trial:
        """Try the Gibbs loss, which a few answers that are wrong for sure hardly move.

        It has no convex start: it goes on from where the best of the others is that has what it can take
        up, dense and without the pattern.
        """
        plain = [
            trial for trial in self.trials if trial.recipe.sparse is None and trial.recipe.pattern is None
        ]
        start = min(plain, key=lambda trial: trial.log_loss)
        recipe = replace(start.recipe, loss=GIBBS, temperature=_GIBBS_TEMPERATURE)
        gibbs = self.trial(recipe, start)
        if gibbs.log_loss < best.log_loss + _CLOSE:
            gibbs = first = self.trial(recipe, gibbs, settle=True)
            gibbs = self.climb(gibbs, "temperature", TEMPERATURES)
            gibbs = self.climb(gibbs, "prior_scale", PRIOR_SCALES)
            if gibbs is not first:
                gibbs = self.trial(gibbs.recipe, gibbs, settle=True)
        return gibbs if gibbs.beats(best) and gibbs.log_loss < best.log_loss - _WORTH else best

    def defended(self, best: Trial) -> Trial:
        """Return the choice, or the plain LogisticCompleter where that did better."""
        if not best.recipe.row_effects:  # then the pattern was tried without effects alone
            self.patterned(self.trials[0])
        plain = [
            trial for trial in self.trials if trial.recipe in (FIRST, replace(FIRST, pattern="both"))
        ]
        return min([best, *plain], key=lambda trial: trial.log_loss)

    def patterned(self, best: Trial) -> Trial:
        """Try the pattern of the answers; a fit prunes what it does not tell, so no margin is asked."""
        recipe = replace(best.recipe, pattern="both")
        if not self.pattern or not any(
            any(self.known(k, recipe).widths) for k in range(len(self.splits))
        ):
            return best
        trial = self.trial(recipe, None)
        return trial if trial.log_loss < best.log_loss else best

    def known(self, split: int, recipe: Recipe) -> Known:
        """Return what is known of rows and columns on one split; it is found once."""
        kept = self.splits[split][0]
        key = split, recipe.pattern_sides(recipe.hierarchy(kept.shape))
        if key not in self._known:
            self._known[key] = known_of(recipe, kept, self.crew)
        return self._known[key]

    def sparser(self, best: Trial) -> Trial:
        """Try either side sparse, with the temperature chosen again."""
        if best.posteriors[0].effective_rank < 2:
            return best
        trials = [self.trial(replace(best.recipe, sparse=side), best) for side in SIDES]
        trial = min(trials, key=lambda trial: trial.log_loss)
        trial = self.climb(trial, "temperature", TEMPERATURES)
        return trial if trial.beats(best) else best

    def sampled(self, best: Trial) -> Trial:
        """Try the exact posterior of the logistic loss, at higher ranks as long as they are worth it."""
        if self.weighted:
            return best
        winner: Trial | None = None
        alike = best
        if best.recipe.loss is GIBBS:  # which says nothing of the pattern
            alike = min(
                (trial for trial in self.trials if trial.recipe.loss is LOGISTIC),
                key=lambda trial: trial.log_loss,
            )
        for rank in [rank for rank in RANKS if rank >= min(alike.recipe.rank, max(RANKS))]:
            kept = self.splits[0][0]
            plan, cost = self.budget.trial(kept.shape, kept.n, rank, len(self.splits))
            recipe = sampled_recipe(replace(alike.recipe, rank=rank), plan)
            last = self.budget.least(self.shape, self.n, rank)
            if self.spent + cost + last > self.budget.seconds:
                break
            near = alike.recipe.loss is recipe.loss and alike.recipe.sparse is None
            near = near and alike.recipe.rank == rank
            trial = self.trial(recipe, alike if near else None)
            self.spent += cost
            if winner is not None and not self._worth_its_rank(trial, winner):
                break
            winner = trial
            if rank >= min(self.shape) or winner.log_loss > best.log_loss + _CLOSE:
                break
        # What is exact need not win by a margin.
        return winner if winner is not None and winner.log_loss < best.log_loss else best

    def _worth_its_rank(self, higher: Trial, winner: Trial) -> bool:
        """Say whether a higher rank gains enough: more where its chains would be too short for that."""
        ranks = winner.recipe.rank, higher.recipe.rank
        too_short = self.budget.too_short(self.shape, self.n, *ranks, self.spent)
        least = WORTH_SHORTER if too_short else 0.0
        return higher.beats(winner) and higher.log_loss < (1.0 - least) * winner.log_loss

    def final(self, best: Trial | None) -> Recipe:
        """Return the recipe of the last fit; chains may go on until they have settled."""
        if best is None:
            return replace(FIRST, schedule=Schedule(_FINAL_ROUNDS))
        recipe = replace(best.recipe, schedule=Schedule(_FINAL_ROUNDS))
        if recipe.sampling is None:
            return recipe
        plan = self.budget.plan(self.shape, self.n, recipe.rank, self.spent)
        return replace(recipe, sampling=plan)

    def table(self, best: Trial | None) -> pd.DataFrame:
        """Return every trial: recipe, held-out log-loss and accuracy, rounds, whether it is the best."""
        return pd.DataFrame(
            [
                described(trial.recipe)
                | {name: getattr(trial.recipe, name) or "no" for name in ("sparse", "pattern")}
                | {"log_loss": trial.log_loss, "accuracy": trial.accuracy, "rounds": trial.rounds}
                | {"chosen": trial is best}
                for trial in self.trials
            ]
        )

    def climb(
        self, best: Trial, name: str, grid: tuple[float, ...], directions: tuple[int, ...] = (1, -1)
    ) -> Trial:
        """Move along one coordinate of the recipe while the held-out log-loss falls."""
        begin = grid.index(getattr(best.recipe, name))
        for direction in directions:
            position, moved = begin + direction, False
            while 0 <= position < len(grid):
                if name == "rank" and not self._rank_binds(best):
                    break
                recipe = replace(best.recipe, **{name: grid[position]})  # type: ignore[arg-type]
                starts: list[Trial | None] = [None] if name == "rank" else [best]
                if self.small and direction > 0 and name != "rank" and recipe.loss is not GIBBS:
                    starts.append(None)  # a column that has vanished may be wanted again
                trial = min((self.trial(recipe, start) for start in starts), key=lambda t: t.log_loss)
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
        return trial.posteriors[0].effective_rank >= 0.8 * trial.recipe.rank

    def trial(self, recipe: Recipe, warm: Trial | None, settle: bool = False) -> Trial:
        """Score one recipe, starting from the posteriors of ``warm`` if given."""
        rounds, tol = (_WARM_ROUNDS if warm else _COLD_ROUNDS), _TRIAL_TOL
        if settle:
            rounds, tol = _SETTLED_ROUNDS, _SETTLED_TOL
        short = replace(recipe, schedule=Schedule(rounds, tol))
        if recipe.sampling is not None:
            short = replace(short, sampling=replace(recipe.sampling, keep_bytes=0))
        posteriors, moments, done = [], [], 0
        for k, (kept, held) in enumerate(self.splits):
            start = warm.posteriors[k] if warm else None
            pairs = (held.rows, held.columns)
            known = self.known(k, recipe)
            found = fit(short, kept, self.crew, self.rng, start, pairs=pairs, known=known)
            posterior = found.descent.posterior
            if found.sampled is not None:
                averages = found.sampled.averages
                moments.append((averages.mean, averages.variance, averages.chance))
            else:
                mean, variance = scoring.score_moments(posterior, *pairs, self.crew.count)
                moments.append((mean, variance, np.empty(0)))
            posteriors.append(posterior)
            done += found.descent.n_iter
        mean, variance, chance = (np.concatenate([part[k] for part in moments]) for k in range(3))
        trial = self._judged(recipe, mean, variance, chance, done, tuple(posteriors))
        self.trials.append(trial)
        logger.info("trial %d: %s, held-out log-loss %.4f, accuracy %.4f",
                    len(self.trials), described(recipe), trial.log_loss, trial.accuracy)  # fmt: skip
        if self.callback is not None:
            self.callback(Progress(len(self.trials), 0, trial.log_loss))
        return trial

    def _judged(
        self,
        recipe: Recipe,
        mean: Array,
        variance: Array,
        chance: Array,
        rounds: int,
        posteriors: tuple[Posterior, ...],
    ) -> Trial:
        """Hold predictions against the held-out answers."""
        sign, weight = self.sign, self.weight
        calibration, decided = None, mean
        if recipe.loss is not LOGISTIC:
            scale_free = recipe.loss is GIBBS
            calibration = fit_calibration(mean, variance, sign, weight, scale_free=scale_free)
            probability = cross_fitted(mean, variance, sign, weight, scale_free, self.half)
        elif recipe.sampling is not None:
            probability = np.clip(chance, CERTAINTY, 1.0 - CERTAINTY)
            decided = probability - 0.5
        else:
            probability = expected_sigmoid(mean, variance)
        losses = -np.log(np.where(sign > 0, probability, 1.0 - probability))
        accuracy = float(np.average(sign * decided > 0, weights=weight))
        return Trial(recipe, losses, weight, accuracy, rounds, posteriors, calibration)
