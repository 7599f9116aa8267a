"""The scale of item response theory beside marginal likelihood, and what its standard errors cover."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from onebit import LogisticCompleter
from onebit.cli.models import IRT

Array = NDArray[np.float64]
SIZES = ((200, 20), (200, 60), (2000, 20), (2000, 60))
SEEDS = 5
# Classes too small for marginal likelihood, whose slopes run away: persons, items and how much items
# discriminate, as a multiple of what they do in the others.
CLASSES = ((20, 10, 1.0), (30, 20, 1.0), (60, 20, 1.0), (20, 10, 0.5), (60, 20, 0.5), (200, 20, 0.5))
CLASS_SEEDS = 48
# Two years of a test: students of each, items of each, and how many of them both have. The second year's
# abilities have this mean and standard deviation, on the scale of the first.
YEARS = ((300, 25, 5), (300, 25, 15))
YEAR_SEEDS = 24
YEAR_CHAINS = {"n_samples": 200, "n_burn_in": 60}
GAIN, WIDER = 0.8, 1.25


def simulated(
    persons: int, items: int, seed: int, discriminating: bool = True, strength: float = 1.0
) -> tuple[Array, Array, Array, Array]:
    """Return abilities, slopes and intercepts of items, and the answers of a made-up test."""
    rng = np.random.default_rng(seed)
    ability = rng.standard_normal(persons)
    slope = rng.lognormal(0.1, 0.3, items) if discriminating else np.full(items, 1.2)
    slope *= strength
    intercept = rng.normal(0.2, 1.0, items)
    answers = rng.random((persons, items)) < expit(np.outer(ability, slope) + intercept)
    return ability, slope, intercept, answers.astype(float)


def marginal_likelihood(
    answers: Array, rounds: int = 300, common: bool = False
) -> tuple[Array, Array, Array]:
    """Fit the two-parameter model by EM over a grid of abilities from N(0, 1) (Bock and Aitkin, 1981)."""
    grid = np.linspace(-4.5, 4.5, 61)
    prior = np.exp(-0.5 * grid**2)
    prior /= prior.sum()
    items = answers.shape[1]
    slope, intercept = np.ones(items), np.zeros(items)
    for _ in range(rounds):
        chance = expit(np.outer(grid, slope) + intercept)
        log = answers @ np.log(chance).T + (1 - answers) @ np.log1p(-chance).T + np.log(prior)
        weight = np.exp(log - log.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        count, right = weight.sum(axis=0), weight.T @ answers
        before = slope.copy(), intercept.copy()
        for _ in range(3):  # Newton's steps of a logistic regression on the grid
            chance = expit(np.outer(grid, slope) + intercept)
            residual = right - count[:, None] * chance
            variance = count[:, None] * chance * (1 - chance)
            a, b = (grid[:, None] ** 2 * variance).sum(0), (grid[:, None] * variance).sum(0)
            c = variance.sum(0)
            first, second = (grid[:, None] * residual).sum(0), residual.sum(0)
            if common:
                slope = slope + first.sum() / (a - b**2 / c).sum()
                chance = expit(np.outer(grid, slope) + intercept)
                second = (right - count[:, None] * chance).sum(0)
                intercept = intercept + second / (count[:, None] * chance * (1 - chance)).sum(0)
            else:
                determinant = a * c - b**2
                slope = slope + (c * first - b * second) / determinant
                intercept = intercept + (a * second - b * first) / determinant
        if max(np.abs(slope - before[0]).max(), np.abs(intercept - before[1]).max()) < 1e-5:
            break
    chance = expit(np.outer(grid, slope) + intercept)
    log = answers @ np.log(chance).T + (1 - answers) @ np.log1p(-chance).T + np.log(prior)
    weight = np.exp(log - log.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    return slope, intercept, weight @ grid


def fitted(answers: Array, rank: int, **settings: Any) -> LogisticCompleter:
    """Sample Rasch's model (rank 0) or the two-parameter one, with the command line's priors."""
    rows, columns = np.indices(answers.shape)
    pairs = np.column_stack([rows.ravel(), columns.ravel()])
    chains = {"inference": "sampling", "n_samples": 60, "n_burn_in": 40, "random_state": 0}
    model = LogisticCompleter(**IRT["2pl" if rank else "rasch"] | chains | settings)
    return model.fit(pairs, answers.ravel().astype(int))


def scales(persons: int, items: int, seed: int) -> list[dict[str, Any]]:
    """Fit one made-up test by both models; hold them against marginal likelihood and the truth."""
    warnings.simplefilter("ignore")
    lines = []
    for rank, name in ((0, "Rasch"), (1, "2PL")):
        ability, slope, intercept, answers = simulated(persons, items, seed, discriminating=rank == 1)
        model = fitted(answers, rank, n_jobs=1)
        rows, columns = model.row_summary(scale="irt"), model.column_summary(scale="irt")
        a, d, theta = marginal_likelihood(answers, common=rank == 0)
        # The scale has mean zero and variance one over the rows.
        centre, size = ability.mean(), ability.std()
        truth = {
            "ability": (rows, (ability - centre) / size, theta),
            "difficulty": (columns, (-intercept / slope - centre) / size, -d / a),
            "discrimination": (columns, slope * size, a),
        }
        for what, (table, true, reference) in truth.items():
            some = slice(None) if rank or what != "discrimination" else slice(1)  # one for all items
            found, error = table[what].to_numpy()[some], table[f"{what}_se"].to_numpy()[some]
            lines.append(
                {
                    "split": "scale", "model": name, "persons": persons, "items": items, "seed": seed,
                    "what": what,
                    "apart": float((np.abs(found - reference[some]) / error).mean()),
                    "furthest": float((np.abs(found - reference[some]) / error).max()),
                    "inside": int((np.abs(found - true[some]) < 1.645 * error).sum()),
                    "count": len(found),
                }
            )  # fmt: skip
    return lines


def small_class(persons: int, items: int, strength: float, seed: int) -> list[dict[str, Any]]:
    """Fit the two-parameter model to one made-up class, with its own prior and with the default one."""
    warnings.simplefilter("ignore")
    ability, slope, intercept, answers = simulated(persons, items, seed, strength=strength)
    centre, size = ability.mean(), ability.std()
    lines = []
    for prior, settings in (("-m 2pl", {}), ("default", {"prior_scale": "auto"})):
        model = fitted(answers, 1, n_samples=150, n_jobs=1, **settings)
        rows, columns = model.row_summary(scale="irt"), model.column_summary(scale="irt")
        place = (ability - centre) / size
        line = {
            "split": "class", "prior": prior, "persons": persons, "items": items, "strength": strength,
            "seed": seed, "said": rows.attrs["reliability"],
            "true": float(np.corrcoef(rows["ability"], place)[0, 1] ** 2),
        }  # fmt: skip
        for what, table, true in (
            ("ability", rows, place),
            ("difficulty", columns, (-intercept / slope - centre) / size),
            ("discrimination", columns, slope * size),
        ):
            found = table[what].to_numpy()
            there = np.isfinite(found)  # difficulties that answers do not determine are blank
            near = np.abs(found - true)[there] < 1.645 * table[f"{what}_se"].to_numpy()[there]
            line |= {f"{what} inside": int(near.sum()), f"{what} count": len(near)}
        lines.append(line)
    return lines


def two_years(persons: int, items: int, common: int, seed: int) -> list[dict[str, Any]]:
    """Fit two years of a made-up test apart, and put the second on the first one's scale."""
    warnings.simplefilter("ignore")
    lines = []
    for rank, name in ((0, "Rasch"), (1, "2PL")):
        ability, slope, intercept, answers = simulated(persons, items, seed, discriminating=rank == 1)
        ability, centre, size = (ability - ability.mean()) / ability.std(), ability.mean(), ability.std()
        rng = np.random.default_rng([seed, 1])
        fresh = simulated(2, items - common, seed + 10_000, discriminating=rank == 1)
        later_slope = np.append(slope[:common], fresh[1])
        later_intercept = np.append(intercept[:common], fresh[2])
        # In the units of the first year's students.
        later_slope, later_intercept = later_slope * size, later_intercept + later_slope * centre
        later = GAIN + WIDER * rng.standard_normal(persons)
        chance = expit(np.outer(later, later_slope) + later_intercept)
        second = pd.DataFrame(rng.random(chance.shape) < chance).astype(int)
        second.columns = [*range(common), *range(items, 2 * items - common)]
        kind = IRT["2pl" if rank else "rasch"] | YEAR_CHAINS
        settings = kind | {"inference": "sampling", "random_state": 0, "n_jobs": 1}
        before = fitted(answers, rank, n_jobs=1, **YEAR_CHAINS)
        after = LogisticCompleter(**settings).fit(second)
        rows = after.row_summary(scale="irt", like=before)
        columns = after.column_summary(scale="irt", like=before)
        line = {
            "split": "years", "model": name, "persons": persons, "items": items, "common": common,
            "seed": seed, "mean": float(rows["ability"].mean() - later.mean()),
        }  # fmt: skip
        for what, table, true in (
            ("ability", rows, later),
            ("difficulty", columns, -later_intercept / later_slope),
            ("discrimination", columns, later_slope),
        ):
            found = table[what].to_numpy()
            there = np.isfinite(found)
            near = np.abs(found - true)[there] < 1.645 * table[f"{what}_se"].to_numpy()[there]
            line |= {f"{what} inside": int(near.sum()), f"{what} count": len(near)}
        lines.append(line)
    return lines
