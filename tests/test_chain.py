"""The chain against its target: joint distribution tests, brute force, calibration of its ranks."""

from dataclasses import replace

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy import stats
from scipy.linalg import eigvalsh

from onebit import HingeCompleter, simulate
from onebit.data.observations import Observations
from onebit.engine.cpu.threads import Threads
from onebit.engine.known import NOTHING, Known
from onebit.engine.sampling import chain as chain_module
from onebit.engine.sampling import moves, whole
from onebit.engine.sampling.chain import Chain
from onebit.engine.sampling.ellipses import draw_angles, loss_along
from onebit.engine.sampling.lines import Change, CpuLines
from onebit.engine.sampling.philox import chain_key
from onebit.engine.sampling.room import margins_room
from onebit.engine.sampling.target import NO_PLACES, HyperDraw, Target, filled_table
from onebit.model import regression
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import HINGE, LOGISTIC
from onebit.model.priors import Gamma, InverseGamma
from onebit.model.regression import STRENGTHS, Regression

POOL = Threads(1, None)
# What rows say of the scales of two columns that have to stay: curvature, then pull.
SURE_OF_SCALES = np.append(1e12 * np.eye(2), [1e12, 1e12])
PRIORS = {"inverse-gamma": InverseGamma(3.0, 1.5), "gamma": Gamma(2.0, 2.5)}


class World:
    """A tiny model whose answers can be drawn anew under a chain that samples them."""

    def __init__(self, shape, hierarchy, loss, temperature=1.0, weight=None, known=NOTHING):
        pairs = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 2)
        blank = Observations.from_pairs(pairs, np.resize([1, -1], len(pairs)), weight)
        hierarchy = replace(hierarchy, regressions=known.regressions)
        self.hierarchy, self.loss, self.temperature = hierarchy, loss, temperature
        self.known = known
        self.signs, views = [], []
        for view in (blank.by_row, blank.by_column):
            sign = view.sign.copy()
            shown = sign.view()
            shown.setflags(write=False)
            self.signs.append(sign)
            views.append(replace(view, sign=shown))
        self.rows, self.columns = views[0].owners(), views[0].index
        # Where the answers of the rows stand among those of the columns.
        self.order = np.lexsort((self.rows, self.columns))
        self.weight = views[0].weight.astype(float) if len(views[0].weight) else 1.0
        self.target = Target(hierarchy, loss, temperature, tuple(views), known)

    def prior_draw(self, rng):
        """Draw a state of a chain from the prior."""
        h = self.hierarchy
        factors = variance_draws(h.factor_prior, h.rank, rng)
        effects = np.where([h.row_effects, h.column_effects], variance_draws(h.effect_prior, 2, rng), 1.0)
        intercept = rng.normal() * np.sqrt(h.intercept_variance) if h.intercept_side is not None else 0.0
        tables, strengths = [], [NO_PLACES, NO_PLACES]
        for side, size in enumerate(h.shape):
            values = rng.normal(size=(size, h.rank)) * np.sqrt(factors)
            if h.factor_means and h.has_effect(1 - side):
                values += rng.normal(size=h.rank) * np.sqrt(factors)
            if h.has_effect(side):
                centre = intercept if side == h.intercept_side else 0.0
                values = np.column_stack(
                    [values, centre + rng.normal(size=size) * np.sqrt(effects[side])]
                )
            regression = h.regressions[side]
            if regression is not None:
                strengths[side] = rng.integers(
                    len(STRENGTHS), size=(len(regression.groups), h.n_free(side))
                )
                spread = np.append(factors, effects[side])[: h.n_free(side)]
                for number, name in enumerate(regression.groups):
                    lines = self.known.values[side][:, regression.places(name)]
                    scale = np.sqrt(spread * STRENGTHS[strengths[side][number]])
                    values += lines @ rng.normal(size=(lines.shape[1], h.n_free(side))) * scale
            tables.append(filled_table(values, h.rank, h.has_effect(side)))
        return tables, HyperDraw(factors, effects, float(intercept), tuple(strengths))

    def chain(self, rng, number=0):
        """Start a chain at a draw from the prior."""
        tables, hyper = self.prior_draw(rng)
        lines = CpuLines(self.target, tables, POOL)
        # One key for all. Under twenty keys from 41 on, z-scores of the hinge loss and the gamma prior
        # had a mean square of 1.25 and were 3.8 at most; of the worst two, with four times the draws, 2.
        return Chain(self.target, chain_key(12, number), lines, hyper)

    def pseudo_likelihood(self, scores, sign):
        return np.exp(-self.temperature * self.weight * self.loss.value(sign * scores))

    def draw_answers(self, chain, rng):
        """Draw the answers given the scores, each with its share of the pseudo-likelihood."""
        scores = chain.scores(self.rows, self.columns)
        yes, no = self.pseudo_likelihood(scores, 1), self.pseudo_likelihood(scores, -1)
        sign = np.where(rng.random(len(scores)) * (yes + no) < yes, 1, -1)
        self.signs[0][:] = sign
        self.signs[1][:] = sign[self.order]

    def log_normaliser(self, chain):
        """Return how much likelier the scores are in the joint density than in the prior."""
        scores = chain.scores(self.rows, self.columns)
        return np.log(self.pseudo_likelihood(scores, 1) + self.pseudo_likelihood(scores, -1)).sum()


def variance_draws(prior, size, rng):
    if prior.name == "gamma":
        return rng.gamma(prior.shape, 1 / prior.rate, size=size)
    return prior.scale / rng.gamma(prior.shape, size=size)


def hierarchy(prior, shape=(4, 3), rank=2, rows=True, columns=True):
    return Hierarchy(
        shape, rank, rows, columns, PRIORS[prior], InverseGamma(3.0, 1.0), 0.7, factor_means=True
    )


def functionals(chain):
    """Return bounded functionals of a state, which see every kind of variable."""
    rank = chain.target.hierarchy.rank
    left, right = (chain.factors(side) for side in (0, 1))
    x, hyper = chain.scores(np.array([0, 1]), np.array([0, 2])), chain.hyper
    return np.array(
        [
            *np.log(hyper.factors),
            *np.log(hyper.effects),
            hyper.intercept,
            *np.tanh(x),
            *np.minimum(x**2, 9.0),
            *np.minimum((left**2).mean(axis=0), 4.0)[:rank],
            *np.minimum((right**2).mean(axis=0), 4.0)[:rank],
            *np.minimum(left.mean(axis=0) ** 2, 4.0)[:rank],
            *np.minimum(right.mean(axis=0) ** 2, 4.0)[:rank],
            np.tanh(chain.effect(0)[0]),
            min(chain.effect(0)[0] ** 2, 9.0),
            np.tanh(chain.effect(1)[0]),
            min(chain.effect(1)[0] ** 2, 9.0),
            np.tanh((left[0] * right[0]).sum() * chain.effect(1)[0]),
        ]
        if not any(part.size for part in hyper.strengths)
        else [
            *np.log(hyper.factors),
            *np.log(hyper.effects),
            hyper.intercept,
            *np.tanh(x),
            *np.tanh(chain.free(0)[:2].ravel()),
            *np.tanh(chain.free(1)[:2].ravel()),
            *np.concatenate([np.log(STRENGTHS[part]).ravel() for part in hyper.strengths]),
        ]
    )


def z_scores(world, n_prior, n_chain, rng):
    """Compare prior simulation (weighted to the joint density) with successive-conditional draws."""
    first, weight = [], []
    for _ in range(n_prior):
        chain = world.chain(rng)
        first.append(functionals(chain))
        weight.append(world.log_normaliser(chain))
    first, weight = np.array(first), np.exp(np.array(weight) - max(weight))
    weight /= weight.sum()
    mean = weight @ first
    error = (weight**2) @ (first - mean) ** 2
    chain = world.chain(rng)
    second = []
    for _ in range(n_chain):
        world.draw_answers(chain, rng)
        chain.step()
        second.append(functionals(chain))
    second = np.array(second)[n_chain // 20 :]
    size = array_stats.ess(second[None], chain_axis=0, draw_axis=1, method="mean")
    error = np.sqrt(error + second.var(axis=0) / size)
    there = error > 1e-9  # effects that are not there are constant
    return (second.mean(axis=0) - mean)[there] / error[there]


@pytest.mark.parametrize("prior", ["inverse-gamma", "gamma"])
@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=lambda loss: loss.name)
def test_the_joint_distribution_is_the_same_simulated_forwards_and_by_the_chain(loss, prior):
    world = World((4, 3), hierarchy(prior), loss, temperature=1.0 if loss is LOGISTIC else 1.7)
    found = z_scores(world, 2000, 3000, np.random.default_rng(15))
    assert np.abs(found).max() < 4.0, found.round(1)


def shorten_the_grid(monkeypatch):
    """Leave three strengths to choose from."""
    grid = np.array([0.01, 0.3, 1.0])
    for module in (regression, chain_module):
        monkeypatch.setattr(module, "STRENGTHS", grid)
    monkeypatch.setitem(globals(), "STRENGTHS", grid)


def known_of_tiny(shape, rng):
    """Orthogonal columns with mean zero for both sides, of two groups and of one."""
    values, regressions = [], []
    for size, groups in zip(shape, ({"features": 1, "pattern": 2}, {"pattern": 1}), strict=True):
        width = sum(groups.values())
        lines = rng.normal(size=(size, width))
        lines = np.linalg.qr(np.column_stack([np.ones(size), lines]))[0][:, 1:]
        lines *= np.sqrt(rng.uniform(0.5, 2.0, width) * size)
        values.append(lines.astype(np.float32))
        regressions.append(
            Regression((values[-1].astype(float) ** 2).sum(axis=0), groups, np.zeros(width))
        )
    return Known(tuple(values), tuple(regressions))


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=lambda loss: loss.name)
def test_the_joint_distribution_is_the_same_with_what_is_known_of_rows_and_columns(loss, monkeypatch):
    shorten_the_grid(monkeypatch)
    known = known_of_tiny((5, 3), np.random.default_rng(2))
    world = World((5, 3), hierarchy("inverse-gamma", (5, 3)), loss, known=known)
    found = z_scores(world, 2500, 3000, np.random.default_rng(4))
    assert np.abs(found).max() < 4.0, found.round(1)


@pytest.mark.parametrize(("rows", "columns"), [(True, False), (False, True), (False, False)])
def test_the_joint_distribution_is_the_same_without_some_effects(rows, columns):
    world = World((4, 3), hierarchy("inverse-gamma", rows=rows, columns=columns), LOGISTIC)
    found = z_scores(world, 1500, 2000, np.random.default_rng(6))
    assert np.abs(found).max() < 4.0, found.round(1)


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=lambda loss: loss.name)
def test_weights_count_as_the_joint_distribution_says(loss):
    weight = np.resize([1.0, 3.0, 2.0], 12) if loss is LOGISTIC else np.resize([0.4, 2.5, 1.0], 12)
    world = World((4, 3), hierarchy("inverse-gamma"), loss, weight=weight)
    if loss is LOGISTIC:  # then the pseudo-likelihoods of yes and no do not add up to one
        assert world.target.copies[0].max() == 3
    found = z_scores(world, 2000, 4000, np.random.default_rng(7))
    assert np.abs(found).max() < 4.0, found.round(1)


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=lambda loss: loss.name)
def test_a_long_chain_agrees_with_brute_force(loss):
    """Posterior means by importance sampling from the prior, half a million draws of a 2 x 2 world."""
    priors = InverseGamma(3.0, 2.0), InverseGamma(3.0, 1.0)
    model = Hierarchy((2, 2), 1, True, True, *priors, 0.5, factor_means=True)
    world = World((2, 2), model, loss)
    sign = np.array([1, 1, -1, 1])
    world.signs[0][:], world.signs[1][:] = sign, sign[world.order]
    rng, n = np.random.default_rng(8), 500_000
    variance = variance_draws(model.factor_prior, n, rng)
    effect = variance_draws(model.effect_prior, (2, n), rng)
    mu = rng.normal(size=n) * np.sqrt(0.5)
    # Two rows and their mean, two columns and theirs.
    left, right = (rng.normal(size=(2, 2, n)) + rng.normal(size=(2, 1, n))) * np.sqrt(variance)
    a = mu + rng.normal(size=(2, n)) * np.sqrt(effect[0])
    b = rng.normal(size=(2, n)) * np.sqrt(effect[1])
    scores = np.array(
        [left[i] * right[j] + a[i] + b[j] for i, j in zip(world.rows, world.columns, strict=True)]
    )
    weight = np.exp(-loss.value(sign[:, None] * scores).sum(axis=0))
    weight /= weight.sum()
    known = np.array([weight @ np.tanh(x) for x in scores] + [weight @ np.log(variance), weight @ mu])
    chain, found = world.chain(rng), []
    for _ in range(2500):
        chain.step()
        values = np.tanh(chain.scores(world.rows, world.columns))
        found.append([*values, np.log(chain.hyper.factors[0]), chain.hyper.intercept])
    found = np.array(found)[200:]
    size = array_stats.ess(found[None], chain_axis=0, draw_axis=1, method="mean")
    assert np.all(np.abs(found.mean(axis=0) - known) < 4 * found.std(axis=0) / np.sqrt(size) + 0.005)


def test_the_truth_ranks_uniformly_among_the_draws():
    """Simulation-based calibration (Talts et al., 2018): prior, answers, chain, rank of the truth."""
    world = World((8, 6), hierarchy("inverse-gamma", (8, 6)), LOGISTIC)
    rng, ranks = np.random.default_rng(9), []
    replicates, draws, thin = 50, 19, 5
    for number in range(replicates):
        chain = world.chain(rng, number)
        truth = functionals(chain)
        world.draw_answers(chain, rng)  # the truth is a draw from its own posterior: no burn-in
        values = []
        for _ in range(draws):
            for _ in range(thin):
                chain.step()
            values.append(functionals(chain))
        ranks.append((np.array(values) < truth).sum(axis=0))
    ranks = np.array(ranks)
    assert len(np.unique(ranks)) > 15  # neither stuck at the truth nor away from it
    for values in ranks.T:
        counts = np.bincount(values // 4, minlength=5)
        assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=lambda loss: loss.name)
@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 3.0]])
def test_the_look_along_the_whole_is_the_likelihood_and_its_derivatives(loss, weight):
    told = None if weight is None else np.resize(weight, 12)
    world = World((4, 3), hierarchy("inverse-gamma"), loss, weight=told)
    chain = world.chain(np.random.default_rng(4))
    left, right = (chain.factors(side) for side in (0, 1))
    a, b = (chain.effect(side) for side in (0, 1))

    def value(steps):
        scale = np.exp(steps[:4])
        scores = (left[world.rows] * right[world.columns] * scale[:2]).sum(axis=1) + steps[4]
        scores += 0.3 + scale[2] * (a[world.rows] - 0.3) + scale[3] * b[world.columns]
        losses = loss.value(world.signs[0] * scores)
        return -(world.weight * losses).sum()

    steps = np.array([0.2, -0.1, 0.3, 0.1, -0.4])
    found = chain.lines.along(np.exp(steps[:4]), 0.3 + steps[4], (0.3, 0.0))
    assert found.value == pytest.approx(value(steps), rel=1e-5)
    slope = [(value(steps + e) - value(steps - e)) / 2e-4 for e in 1e-4 * np.eye(5)]
    np.testing.assert_allclose(found.slope, slope, rtol=2e-3, atol=2e-3)
    assert np.linalg.eigvalsh(found.curvature).min() > -1e-5


def test_of_many_answers_some_tell_how_the_whole_bends(monkeypatch):
    """The value and the slope are those of all answers; a step by the curvature of some is as good."""
    world = World((300, 60), hierarchy("inverse-gamma", (300, 60)), LOGISTIC)
    chain, rng = world.chain(np.random.default_rng(4)), np.random.default_rng(6)
    world.draw_answers(chain, rng)
    found = []
    for enough in (10**6, 4000):
        monkeypatch.setattr(whole, "_ENOUGH", enough)
        found.append(chain.lines.along(np.ones(4), chain.hyper.intercept, (chain.hyper.intercept, 0.0)))
    every, some = found
    assert some.value == every.value
    np.testing.assert_array_equal(some.slope, every.slope)
    assert not np.array_equal(some.curvature, every.curvature)
    ratios = eigvalsh(some.curvature, every.curvature)
    assert 0.6 < ratios.min() < ratios.max() < 1.6
    accepted = []
    for _ in range(60):
        chain.step()
        accepted.append(moves.move_whole(chain, rng))
    assert np.mean(accepted) > 0.6


def test_shears_leave_every_score_and_the_whole_moves_some():
    """Of the moves, those that no score notices change none; and that of the whole is accepted."""
    world = World((8, 6), hierarchy("inverse-gamma", (8, 6)), LOGISTIC)
    chain, rng = world.chain(np.random.default_rng(5)), np.random.default_rng(6)
    before = chain.scores(world.rows, world.columns), chain.factors(0)
    moves.move_unnoticed(chain, SURE_OF_SCALES, rng)
    np.testing.assert_allclose(chain.scores(world.rows, world.columns), before[0], atol=2e-5)
    assert np.abs(chain.factors(0) - before[1]).min() > 0
    taken = 0
    for _ in range(60):
        chain.step()
        before = chain.scores(world.rows, world.columns), chain.hyper.intercept
        accepted = moves.move_whole(chain, rng)
        moved = np.abs(chain.scores(world.rows, world.columns) - before[0]).min() > 0
        assert accepted == moved == (chain.hyper.intercept != before[1])
        taken += accepted
    assert taken > 15


def test_sums_that_a_chain_carries_on_are_those_of_its_lines():
    world = World((8, 6), hierarchy("inverse-gamma", (8, 6)), LOGISTIC)
    chain = world.chain(np.random.default_rng(5))
    for _ in range(6):
        chain.step()
        for carried, measured in zip(chain.moments, chain.lines.moments(), strict=True):
            np.testing.assert_allclose(carried.total, measured.total, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(carried.gram, measured.gram, rtol=1e-4, atol=1e-3)


def test_moments_follow_a_change_of_all_lines():
    world = World((8, 6), hierarchy("inverse-gamma", (8, 6)), LOGISTIC)
    chain, rng = world.chain(np.random.default_rng(5)), np.random.default_rng(6)
    for _ in range(2):
        chain.change(0, Change(rng.normal(size=(3, 3)), rng.normal(size=3)))
    told, measured = chain.moments[0], chain.lines.moments()[0]
    np.testing.assert_allclose(told.total, measured.total, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(told.gram, measured.gram, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=lambda loss: loss.name)
def test_angles_are_drawn_from_the_likelihood_along_their_ellipse(loss):
    """From one start, one step of elliptical slices: of a flat likelihood uniform, else as it says."""
    rng, n = np.random.default_rng(12), 4000
    along, across, fixed = rng.normal(size=(3, 5)).astype(np.float32)
    sign, out = np.array([1, -1, 1, 1, -1], np.int8), np.empty(n)
    nothing = np.empty(0, np.float32)
    room = margins_room()
    draw_angles(along[:0], across[:0], fixed[:0], sign[:0], nothing, loss.code, (3, 4), 1, room, out)
    assert stats.kstest(np.mod(out, 2 * np.pi) / (2 * np.pi), "uniform").pvalue > 1e-3
    for angle in (0.0, 0.7, -2.0):
        answers = 5, along, across, fixed, sign, nothing
        scores = np.cos(angle) * along + np.sin(angle) * across + fixed
        known = loss.value(sign * scores.astype(float)).sum()
        assert loss_along(angle, answers, loss.code, room) == pytest.approx(known, rel=1e-5)
        weighted = 5, along, across, fixed, sign, np.arange(1, 6, dtype=np.float32)
        known = (np.arange(1, 6) * loss.value(sign * scores.astype(float))).sum()
        assert loss_along(angle, weighted, loss.code, room) == pytest.approx(known, rel=1e-5)


@pytest.mark.parametrize(("shape", "told"), [((1, 5), False), ((5, 3), False), ((5, 3), True)])
@pytest.mark.parametrize("prior", ["inverse-gamma", "gamma"])
def test_what_no_score_notices_leaves_the_prior_as_it_is(shape, told, prior, monkeypatch):
    """Of independent draws from it, moved once where rows say nothing of the columns' scales.

    Variances, energies around means and slopes, the factors' means, effects and the intercept.
    """
    if told:
        shorten_the_grid(monkeypatch)
    rng = np.random.default_rng(8)
    known = known_of_tiny(shape, rng) if told else NOTHING
    world = World(shape, hierarchy(prior, shape), LOGISTIC, known=known)

    def seen(chain):
        variances, grams = chain.hyper.factors, [part.gram for part in chain.moments]
        energies = [chain._left_energy(side, chain._relief(side)) / variances for side in (0, 1)]
        means = [part.total[:2] ** 2 / variances for part in chain.moments]
        crossed = [gram[0, 1] / np.sqrt(gram[0, 0] * gram[1, 1]) for gram in grams]
        effects = [gram[2, 2] for gram in grams]
        whole = np.log([variances, *energies, *means]).mean(axis=1)
        return np.array([*whole, *crossed, *np.square(crossed), *np.log(effects), chain.hyper.intercept])

    before, after = [], []
    for number in range(1500):
        chain = world.chain(rng, number)
        before.append(seen(chain))
        moves.move_unnoticed(chain, np.zeros(6), rng)
        after.append(seen(chain))
    shift = np.array(after) - np.array(before)
    z = shift.mean(axis=0) / shift.std(axis=0) * np.sqrt(len(shift))
    assert np.abs(z).max() < 4.0, z.round(1)


@pytest.mark.parametrize("shape", [(4, 2000), (2000, 4)])
def test_a_variance_moves_freely_where_one_side_has_many_lines(shape):
    """Four lines of one side say little of it; two thousand of the other go with it."""
    world = World(shape, hierarchy("inverse-gamma", shape), LOGISTIC)
    chain, rng = world.chain(np.random.default_rng(5)), np.random.default_rng(6)
    many, first = int(shape[1] > shape[0]), np.arange(4)
    before, logs, sizes = chain.scores(first, first), [], []
    for _ in range(60):
        chain.sweep += 1
        moves.move_unnoticed(chain, SURE_OF_SCALES, rng)
        logs.append(np.log(chain.hyper.factors))
        energy = chain._left_energy(many, chain._relief(many))
        sizes.append(np.log(energy / chain.hyper.factors))
    np.testing.assert_allclose(chain.scores(first, first), before, atol=1e-3)
    assert np.std(logs[10:], axis=0).min() > 0.15  # 0.02 if only the four lines went with it
    assert np.std(sizes[10:], axis=0).max() < 0.05


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("temperature", [1e6, 1e9])
def test_an_extreme_temperature_ends_and_predicts(temperature):
    world = simulate.world("A2", rank=2, shape=(40, 30), density=0.5, seed=0)
    model = HingeCompleter(
        3, temperature=temperature, effects=False, inference="sampling", n_samples=20, n_burn_in=5,
        n_chains=1, random_state=0,
    )  # fmt: skip
    model.fit(world.pairs, world.answers)
    assert np.isfinite(model.decision_function(world.all_pairs)).all()
