"""What is known of rows and columns, on a GPU: the CPU's directions, passes and models."""

import numpy as np
import pytest
from gpu_worlds import random_answers

from onebit import LogisticCompleter, Observations
from onebit.engine.descent import Schedule, minimise
from onebit.engine.gpu import tall
from onebit.engine.gpu.transfer import to_device, to_host
from onebit.engine.recipe import Recipe
from onebit.model.losses import HINGE, LOGISTIC


def known_by(seen, *workers, features=(None, None), recipe=None):
    recipe = recipe or Recipe(rank=3, pattern="both")
    seen = seen.told(features)
    hierarchy = recipe.hierarchy(seen.shape)
    sides = recipe.pattern_sides(hierarchy)
    return [each.known(seen, hierarchy, True, sides) for each in workers]


def test_the_directions_are_the_cpus(cpu, gpu):
    seen = random_answers((14, 10), 0.4, 1)
    pairs = np.stack([seen.by_row.owners(), seen.by_row.index], axis=1)
    again = np.concatenate([pairs, pairs[::3]])  # entries answered twice count once
    seen = Observations.from_pairs(again, np.resize([1, 0, 0], len(again)))
    ours, theirs = known_by(seen, cpu, gpu)
    for side in (0, 1):
        np.testing.assert_allclose(
            ours.regressions[side].squares, theirs.regressions[side].squares, rtol=1e-4
        )
        left, right = ours.values[side], to_host(theirs.values[side])
        # Up to the signs of the directions, and turns of those that tell the same.
        np.testing.assert_allclose(left @ left.T, right @ right.T, atol=1e-3)
        placed = theirs.placings[side].coordinates((seen.by_row, seen.by_column)[side])
        np.testing.assert_allclose(placed, right, atol=1e-3)


@pytest.mark.parametrize("full", [True, False], ids=["full", "diagonal"])
@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=lambda loss: loss.name)
def test_a_descent_with_the_pattern_is_the_cpus(full, loss, cpu, gpu):
    from dataclasses import replace

    seen = random_answers((10, 8), 0.5, 2)
    recipe = Recipe(rank=2, pattern="both", loss=loss)
    known = known_by(seen, cpu, gpu, recipe=recipe)
    # The same directions, each where the work is done.
    there = replace(known[0], values=tuple(gpu_values(gpu, values) for values in known[0].values))
    hierarchy = replace(recipe.hierarchy(seen.shape), regressions=known[0].regressions)
    rng = np.random.default_rng(0)
    start = cpu.start(seen, hierarchy, rng)
    begin = minimise(
        seen, hierarchy, loss, start, full=full, temperature=1.0, schedule=Schedule(4, 1e-9),
        workers=cpu, known=known[0],
    ).posterior  # fmt: skip
    fits = [
        minimise(
            seen, hierarchy, loss, begin, full=full, temperature=1.0, schedule=Schedule(3, 1e-9),
            workers=workers, known=told,
        )
        for workers, told in ((cpu, known[0]), (gpu, there))
    ]  # fmt: skip
    np.testing.assert_allclose(fits[1].path, fits[0].path, rtol=1e-5)
    np.testing.assert_allclose(
        fits[1].posterior.hyper.slopes[0].mean, fits[0].posterior.hyper.slopes[0].mean, atol=2e-3
    )


def gpu_values(gpu, values):
    from onebit.engine.gpu.transfer import to_device

    return to_device(values, gpu.device)


def test_a_completer_with_pattern_and_features_fits_on_the_device(rng):
    seen = random_answers((16, 10), 0.5, 3)
    pairs = np.stack([seen.by_row.owners(), seen.by_row.index], axis=1)
    answers = (seen.by_row.sign > 0).astype(int)
    import pandas as pd

    people = pd.DataFrame(
        {"id": np.arange(20), "age": rng.normal(size=20), "member": rng.random(20) < 0.5}
    )
    models = [
        LogisticCompleter(2, random_state=0, device=where, max_iter=5).fit(
            pairs, answers, row_features=people
        )
        for where in ("cpu", "cuda")
    ]
    asked = [(i, j) for i in (0, 3, 19) for j in (0, 5)]
    np.testing.assert_allclose(models[0].predict_proba(asked), models[1].predict_proba(asked), atol=0.02)
    np.testing.assert_allclose(
        models[0].feature_effects_["effect"], models[1].feature_effects_["effect"], atol=0.02
    )


@pytest.mark.parametrize("rows", [5, 1024, 3000])
def test_tall_products_are_numpys_whether_strips_of_them_come_out_even_or_not(rows, device):
    rng = np.random.default_rng(rows)
    left, right = rng.normal(size=(rows, 3)).astype(np.float32), rng.normal(size=(rows, 2))
    found = tall.inner(to_device(left, device), to_device(right, device))
    np.testing.assert_allclose(to_host(found), left.astype(float).T @ right, rtol=1e-12, atol=1e-10)
    nothing = tall.inner(to_device(left[:, :0], device), to_device(right, device))
    assert nothing.shape == (0, 2)
