"""The coordinate loop: what it minimises, that it descends, that it lands on an optimum."""

import itertools

import numpy as np
import pytest

from onebit import HingeCompleter, LogisticCompleter, Observations
from onebit.data.ids import IdIndex
from onebit.engine import descent
from onebit.engine.cpu import passes
from onebit.engine.cpu.passes import STEPS
from onebit.engine.cpu.side import SOLVED
from onebit.engine.cpu.threads import Threads
from onebit.engine.descent import AUTO_GAIN, HELD_ROUNDS, ROTATE_EVERY, Schedule, minimise
from onebit.engine.known import NOTHING
from onebit.engine.workers import Cpu, Machine, workers
from onebit.model.gaussians import Gaussians
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import GIBBS, HINGE, LOGISTIC
from onebit.model.posterior import Posterior
from onebit.model.priors import Gamma, InverseGamma

GRID = list(
    itertools.product(
        [LOGISTIC, HINGE],
        [True, False],
        [(True, True), (False, False), (True, False), (False, True)],
        [InverseGamma(1.0, 1.5), Gamma(3.0, 20.0)],
    )
)
IDS = [
    f"{loss.name}-{'full' if full else 'diagonal'}-effects{int(e[0])}{int(e[1])}-{prior.name}"
    for loss, full, e, prior in GRID
]


def setting(observations, effects, prior, rank=4):
    return Hierarchy(observations.shape, rank, *effects, prior, InverseGamma(1.0, 1.0), factor_means=True)


def run(observations, hierarchy, loss, full, temperature=1.3, n_jobs=1, **schedule):
    schedule = Schedule(**({"max_iter": 60, "tol": 1e-7} | schedule))
    with workers(Machine(n_jobs), observations.n) as pool:
        start = pool.start(observations, hierarchy, np.random.default_rng(0))
        return minimise(
            observations, hierarchy, loss, start,
            full=full, temperature=temperature, schedule=schedule, workers=pool,
        )  # fmt: skip


def objective(posterior, observations, loss, temperature):
    """The objective from its definition: mean bound on the loss plus KL / lambda."""
    view = observations.by_row
    mean, variance = posterior.score_moments(view.owners(), view.index)
    weight = view.weight if len(view.weight) else np.ones(observations.n)
    bound = loss.bound(view.sign, mean, mean**2 + variance)
    total = observations.total_weight
    return float((weight * bound).sum() / total + posterior.kl / (temperature * total))


@pytest.fixture(scope="module")
def seen(small_world):
    return Observations.from_pairs(small_world.pairs, small_world.answers)


@pytest.fixture(scope="module")
def weighted(small_world):
    weight = np.random.default_rng(0).integers(0, 4, size=len(small_world.answers))
    return Observations.from_pairs(small_world.pairs, small_world.answers, weight)


@pytest.mark.parametrize(("loss", "full", "effects", "prior"), GRID, ids=IDS)
def test_the_objective_never_rises_and_is_the_one_defined(seen, loss, full, effects, prior):
    hierarchy = setting(seen, effects, prior)
    fit = run(seen, hierarchy, loss, full)
    rises = np.diff(fit.path)
    assert rises.max() <= 1e-7 * abs(fit.path[-1])
    assert fit.path[0] - fit.path[-1] > 0.01
    assert fit.objective == pytest.approx(objective(fit.posterior, seen, loss, 1.3), rel=1e-6)


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=lambda loss: loss.name)
@pytest.mark.parametrize("full", [True, False], ids=["full", "diagonal"])
def test_weights_enter_the_objective_and_it_still_never_rises(weighted, loss, full):
    hierarchy = setting(weighted, (True, True), InverseGamma(1.0, 1.5))
    fit = run(weighted, hierarchy, loss, full)
    assert np.diff(fit.path).max() <= 1e-7 * abs(fit.path[-1])
    assert fit.objective == pytest.approx(objective(fit.posterior, weighted, loss, 1.3), rel=1e-6)


@pytest.mark.parametrize(("loss", "full", "effects", "prior"), GRID[::3], ids=IDS[::3])
def test_no_small_change_of_means_or_variances_lowers_the_objective(
    seen, rng, loss, full, effects, prior
):
    fit = run(seen, setting(seen, effects, prior), loss, full, max_iter=1000, tol=1e-11)
    best = objective(fit.posterior, seen, loss, 1.3)
    for _ in range(10):
        sides = []
        for side in fit.posterior.sides:
            mean = side.mean + 1e-3 * rng.standard_normal(side.mean.shape)
            scale = np.exp(1e-3 * rng.standard_normal((len(mean), 1)))
            sides.append(Gaussians(mean, side.covariance * scale, full))
        moved = Posterior(*sides, fit.posterior.hyper, fit.posterior.hierarchy)
        assert objective(moved, seen, loss, 1.3) > best - 1e-7


def test_integer_weights_are_repetitions(small_world):
    weight = np.random.default_rng(1).integers(1, 4, size=len(small_world.answers))
    weighted = Observations.from_pairs(small_world.pairs, small_world.answers, weight)
    repeated = Observations.from_pairs(
        np.repeat(small_world.pairs, weight, axis=0), np.repeat(small_world.answers, weight)
    )
    hierarchy = setting(weighted, (True, True), InverseGamma(1.0, 1.5))
    start = run(weighted, hierarchy, LOGISTIC, True, max_iter=5).posterior
    one, other = (
        minimise(
            data, hierarchy, LOGISTIC, start,
            full=True, temperature=1.3, schedule=Schedule(10, 1e-12), workers=Cpu(),
        )
        for data in (weighted, repeated)
    )  # fmt: skip
    np.testing.assert_allclose(one.path, other.path, rtol=1e-6)
    np.testing.assert_allclose(one.posterior.rows.mean, other.posterior.rows.mean, atol=1e-4)


def test_the_work_of_a_pass_is_that_of_answers_and_of_systems(rng, monkeypatch):
    """A cut by answers alone would leave the systems of half of the rows to one thread."""
    rows = np.concatenate([rng.integers(200, size=30_000), np.arange(200, 400)])
    pairs = np.stack([rows, rng.integers(50, size=len(rows))], axis=1)
    shared, ranges = [], Threads.ranges
    monkeypatch.setattr(Threads, "ranges", lambda *given: shared.append(given[2]) or ranges(*given))
    walked, update = [], passes.update_full
    monkeypatch.setattr(passes, "update_full", lambda *given: walked.append(given[:2]) or update(*given))
    answers = rng.choice([-1, 1], size=len(rows))
    LogisticCompleter(8, pattern=None, max_iter=1, n_jobs=2).fit(pairs, answers)
    ranges_of_rows = sorted(part for part in set(walked) if part[1] > 50)
    assert len(ranges_of_rows) > 2  # as large a table is shared out
    system = 9**2 // SOLVED
    (work,) = [work for work in shared if work[-1] == len(rows) + 400 * system]
    assert work[-1] - work[200] == 200 * (1 + system)
    assert (np.diff(work) >= system).all()


@pytest.mark.parametrize("completer", [LogisticCompleter, HingeCompleter])
def test_the_result_is_the_same_for_any_number_of_threads(completer, rng):
    # Large enough that the work is really split.
    rows, columns = rng.integers(800, size=60_000), rng.integers(300, size=60_000)
    pairs, answers = np.stack([rows, columns], axis=1), rng.choice([-1, 1], size=60_000)
    first, *others = (
        completer(4, n_jobs=n_jobs, max_iter=5, random_state=0).fit(pairs, answers)
        for n_jobs in (1, 2, 5)
    )
    for other in others:
        np.testing.assert_array_equal(first.posterior_.rows.mean, other.posterior_.rows.mean)
        np.testing.assert_array_equal(first.objective_path_, other.objective_path_)
        np.testing.assert_array_equal(first.predict_proba(pairs), other.predict_proba(pairs))


def test_a_seed_gives_the_same_fit_twice(small_world):
    fits = [
        HingeCompleter(4, n_init=3, random_state=7).fit(small_world.pairs, small_world.answers)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(fits[0].posterior_.rows.mean, fits[1].posterior_.rows.mean)


def test_more_starts_never_end_higher(small_world):
    objectives = [
        LogisticCompleter(6, n_init=n, random_state=7)
        .fit(small_world.pairs, small_world.answers)
        .objective_
        for n in (1, 4)
    ]
    assert objectives[1] <= objectives[0]


def test_a_warm_start_ends_where_the_cold_one_did(seen):
    hierarchy = setting(seen, (True, True), InverseGamma(1.0, 1.5))
    cold = run(seen, hierarchy, LOGISTIC, True, max_iter=2000, tol=1e-7)
    warm = minimise(
        seen, hierarchy, LOGISTIC, cold.posterior,
        full=True, temperature=1.3, schedule=Schedule(50, 1e-7), workers=Cpu(),
    )  # fmt: skip
    assert warm.n_iter <= cold.n_iter // 2
    assert warm.path[0] == pytest.approx(cold.objective, rel=1e-7)


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=["logistic", "hinge"])
def test_auto_stops_at_the_first_four_rounds_that_gain_little(seen, loss):
    hierarchy = setting(seen, (True, True), InverseGamma(1.0, 1.5))
    auto = run(seen, hierarchy, loss, True, tol="auto", max_iter=200)
    longer = run(seen, hierarchy, loss, True, tol=1e-9, max_iter=200)
    assert auto.converged
    assert auto.n_iter < longer.n_iter
    # The objective before the columns move, round by round: the same descent, stopped by its own rule.
    course = longer.path[1 : 2 * auto.n_iter : 2]
    np.testing.assert_array_equal(auto.path[1:-1:2], course)
    gains = (course[:-ROTATE_EVERY] - course[ROTATE_EVERY:]) / ROTATE_EVERY
    assert gains[-1] <= AUTO_GAIN
    assert (gains[HELD_ROUNDS:-1] > AUTO_GAIN).all()


@pytest.mark.parametrize("tol", [1e-4, "auto"])
def test_a_large_table_settles_where_little_is_still_to_be_gained(seen, monkeypatch, tol):
    hierarchy = setting(seen, (True, True), InverseGamma(1.0, 1.5))
    small = run(seen, hierarchy, LOGISTIC, True, tol=tol, max_iter=400)
    monkeypatch.setattr(descent, "LARGE_TABLE", seen.n + 1)
    assert run(seen, hierarchy, LOGISTIC, True, tol=tol, max_iter=400).n_iter == small.n_iter
    monkeypatch.setattr(descent, "LARGE_TABLE", seen.n)
    large = run(seen, hierarchy, LOGISTIC, True, tol=tol, max_iter=400)
    longest = run(seen, hierarchy, LOGISTIC, True, tol=1e-13, max_iter=large.n_iter + 60)
    assert large.converged
    assert large.n_iter < small.n_iter
    # The same descent, stopped after a half round by its own rule.
    steps = len(large.path) - 1
    assert steps in (2 * large.n_iter - 1, 2 * large.n_iter)
    course = longest.path[:steps]
    np.testing.assert_array_equal(large.path[:-1], course)
    gains = course[:-2] - course[2:]
    rates = gains[2:] / gains[:-2]
    slowest = np.max([rates[4:], rates[2:-2], rates[:-4]], axis=0)
    rest = np.where(slowest < 1.0, gains[6:] * slowest / (1.0 - slowest), np.inf)
    little = 5e-5 if tol == "auto" else 10 * tol * course[8:]
    # ``rest`` begins with the fifth round; variances are held for three.
    assert (rest <= little)[4:].tolist() == [False] * (len(rest) - 5) + [True]
    # What is left is of the order of what may be.
    assert large.objective - longest.objective < 2 * np.max(little)


@pytest.mark.parametrize(
    ("course", "rest"),
    [
        ([31, 15, 7, 3, 1], 2.0),  # gains of 16, 8, 4 and 2: as much again is to come
        ([32, 16, 12, 10, 9.9], 0.1),  # a quarter, a half, a twentieth: as if a half
        ([9, 8, 7, 6, 5], np.inf),
        ([31, 15, 7, 3, 4], np.inf),
        ([31, 15, 16, 8, 4], np.inf),
        ([15, 7, 3, 1], np.inf),
    ],
)
def test_what_is_still_to_be_gained_is_reckoned_by_the_slowest_of_the_last_rates(course, rest):
    for loss, expected in ((LOGISTIC, rest), (GIBBS, np.inf)):  # steps of the Gibbs loss may rise
        found = descent.Descent(None, None, loss, True, 1.0, Schedule(), NOTHING)
        found.held = found.told = 0
        found.path, found.n_iter = np.repeat(np.array(course, float), 2).tolist(), len(course)
        assert found._still_to_gain() == pytest.approx(expected)


def test_the_start_of_a_fit_is_not_the_saddle_at_zero(small_world):
    model = LogisticCompleter(3, effects=False).fit(small_world.pairs, small_world.answers)
    assert model.rank_ == 2


def test_the_full_family_reaches_at_least_as_low_as_the_diagonal_one(seen):
    hierarchy = setting(seen, (True, True), InverseGamma(1.0, 1.5))
    full, diagonal = (run(seen, hierarchy, LOGISTIC, f, max_iter=800, tol=1e-10) for f in (True, False))
    assert full.objective <= diagonal.objective + 1e-6


def test_effects_alone_recover_a_rasch_model():
    """Strong effects, many answers: the posterior means approach the true effects."""
    rng = np.random.default_rng(5)
    ability, easiness = rng.normal(0.5, 1.0, 150), rng.normal(0.0, 1.0, 120)
    score = ability[:, None] + easiness[None, :]
    answers = (rng.random(score.shape) < 1 / (1 + np.exp(-score))).astype(int)
    model = LogisticCompleter(0).fit(Observations.from_matrix(answers))
    estimate = model.complete("score").to_numpy()
    assert np.sqrt(np.mean((estimate - score) ** 2)) < 0.35
    assert np.corrcoef(model.posterior_.rows.mean[:, 0], ability)[0, 1] > 0.95


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 5, 9, 10, 13, 14, 15, 16, 20, 29, 30, 31, 40, 64])
@pytest.mark.parametrize("full", [True, False], ids=["full", "diagonal"])
def test_one_update_is_the_formula_for_every_rank(rank, full):
    """V_i = (T sum w E[R R'] + P)^-1 and M_i = V_i (T sum s y E[R] + ...), written out in numpy."""
    rng = np.random.default_rng(rank)
    rows, columns, temperature = 7, 11, 1.7
    pairs = np.argwhere(rng.random((rows, columns)) < 0.6)
    seen = Observations.from_codes(
        IdIndex(np.arange(rows), "row"), IdIndex(np.arange(columns), "column"),
        pairs[:, 0], pairs[:, 1], rng.choice([-1, 1], len(pairs)).astype(np.int8),
    )  # fmt: skip
    size = rank + 1
    if full:
        roots = rng.standard_normal((2, max(rows, columns), size, size)) / 3
        dense = np.einsum("smab,smcb->smac", roots, roots) + 0.1 * np.eye(size)
    else:
        dense = np.einsum("sma,ab->smab", rng.random((2, max(rows, columns), size)) + 0.1, np.eye(size))
    means = rng.standard_normal((2, max(rows, columns), size)) / np.sqrt(size)
    lower = np.tril_indices(size)

    def gaussians(side, m):
        covariance = (
            dense[side, :m][:, lower[0], lower[1]] if full else np.einsum("maa->ma", dense[side, :m])
        )
        return Gaussians(means[side, :m], covariance, full)

    left, right = gaussians(0, rows), gaussians(1, columns)
    hierarchy = setting(seen, (True, True), InverseGamma(1.0, 1.5), rank)
    side, facing = Cpu().sides(seen, (left, right), hierarchy, full)
    hyper = hierarchy.update((side.sums(), facing.sums()), None)
    prior = hierarchy.precision_and_linear(0, hyper, side.sums())
    precision, linear = (part[0] for part in prior)
    total = side.pass_over(facing.table, prior, temperature, LOGISTIC)
    expected_loss = 0.0
    for i in range(rows):
        a_matrix, b_vector = np.diag(precision), linear.copy()
        for k in range(seen.by_row.start[i], seen.by_row.start[i + 1]):
            j, y = seen.by_row.index[k], seen.by_row.sign[k]
            x = np.append(means[1, j, :rank], 1.0)  # what the row's coordinates face
            spread = np.zeros((size, size))
            spread[:rank, :rank] = dense[1, j, :rank, :rank]
            cross = np.append(dense[1, j, :rank, rank], 0.0)  # covariance with the column's effect
            offset = means[1, j, rank]
            mean = means[0, i] @ x + offset
            variance = (
                x @ dense[0, i] @ x
                + means[0, i] @ spread @ means[0, i]
                + np.trace(spread @ dense[0, i])
                + 2 * means[0, i] @ cross
                + dense[1, j, rank, rank]
            )
            slope, weight = LOGISTIC.majoriser(y, mean, mean**2 + variance)
            expected_loss += LOGISTIC.bound(y, mean, mean**2 + variance)
            a_matrix += temperature * weight * (np.outer(x, x) + spread)
            b_vector += temperature * (slope * y * x - weight * (offset * x + cross))
        best = np.linalg.solve(a_matrix, b_vector)
        if full or size <= STEPS:
            np.testing.assert_allclose(side.mean[i], best, rtol=2e-4, atol=2e-5)
        else:  # a few conjugate gradients go most of the way
            before, after = (m - best for m in (means[0, i], side.mean[i]))
            assert after @ a_matrix @ after < 0.05 * (before @ a_matrix @ before)
        covariance = np.linalg.inv(a_matrix)[lower] if full else 1 / np.diag(a_matrix)
        np.testing.assert_allclose(side.covariance[i], covariance, rtol=2e-4, atol=2e-5)
    assert total == pytest.approx(float(expected_loss), rel=1e-5)
