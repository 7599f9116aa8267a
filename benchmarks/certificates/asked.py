"""Certificates of what people ask about: groups, lists, scores and gains; and the blanks that are unlike.

In the worlds of ``asked`` entries come once each and evenly. In those of ``selected`` people answer what
they are sure of: an entry is answered with a probability that is known here, and the blanks are harder.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.certificates import worlds
from benchmarks.certificates.held_out import RANK, Fitted
from benchmarks.certificates.lines import DELTAS, NOTHING, Line, Lines
from benchmarks.certificates.worlds import ONCE, Known, rate
from onebit import LogisticCompleter
from onebit.certificates import scores
from onebit.certificates.blanks import odds_of_blank
from onebit.certificates.bounds import binomial_upper_bound
from onebit.certificates.shifts import shifted

Array = NDArray[np.float64]

# In every list so many; of which at most this share may be answered with no.
LISTED, LIST_ERROR = 5, 0.5
HELD_OUT = 0.3
# The least and the most of a world's entries that are answered, and how worlds are spread over them.
LEAST, MOST, GOLDEN = 0.4, 0.8, 0.6180339887
GROUPS = 8

GROUP = f"{GROUPS} groups of rows, all at once"
LISTS = f"what is kept of the lists of the best {LISTED} of each row"
WHOLE_LISTS = f"the whole lists of the best {LISTED} of each row"
LOG_LOSS, BRIER = "log-loss (betting)", "Brier score (betting)"
GAIN = "gain over the commoner answer (betting)"
CALIBRATION = f"calibration bands, all {scores.BINS} at once"
SHEET = "the sheet: every line of it at once"
EACH_GROUP = f"{GROUPS} groups of rows, each at the whole delta"
PICKED = "lists, the least share that was observed above one of 20 thresholds"
OBSERVED_LOSS = "log-loss, what was observed"
OBSERVED_GAIN = "gain over the commoner answer, what was observed"
UNSHIFTED = "the bound on answered entries, read as if it spoke of the blanks"
SHIFTED = "shifted by the odds that hold in this world"
GIVEN = "weighted by given propensities"
BOTH = "weighted by given propensities, and shifted by 1.2"
ONE_POINT = "weighted by estimated propensities, one point allowed"
TOO_LITTLE = "weighted by the inverse of the propensity, normalised by itself, no bound"

KINDS = tuple(product(("A2", "B2"), (True, False)))


def asked(number: int) -> list[Line]:
    """Issue certificates of groups, lists, scores and gains in a noisy world."""
    name, effects = KINDS[number % len(KINDS)]
    # Of many sizes: what depends on the number of held-out answers must show.
    world = worlds.papers(name, number, ONCE, LEAST + (MOST - LEAST) * (GOLDEN * number % 1.0))
    lines = Lines()
    tried = Fitted(world, effects, number)
    model, found, weight = tried.model, tried.found, tried.weight
    row_of = world.every[:, 0]
    groups = {row: f"g{row % GROUPS}" for row in range(world.shape[0])}
    chance = found.probability
    truth = _truths(world, tried, chance)
    for delta in DELTAS:
        certificate = model.certify(delta, row_groups=groups)
        risks = [tried.risk(row_of % GROUPS == k) for k in range(GROUPS)]
        pairs = [(one.bound, risk) for one, risk in zip(certificate.certificates, risks, strict=True)]
        lines.add_all(GROUP, delta, pairs)
        whole = [
            binomial_upper_bound(int(one.terms["errors"]), int(one.terms["held-out answers"]), delta)
            for one in certificate.certificates
        ]
        lines.add_all(EACH_GROUP, delta, list(zip(whole, risks, strict=True)), broken=True)
        _lists(lines, delta, world, tried)
        held = model.held_out_
        assert held is not None
        for line, mean, true in (
            (LOG_LOSS, scores.log_loss_bound(held, delta), truth["log-loss"]),
            (BRIER, scores.brier_bound(held, delta), truth["brier"]),
        ):
            lines.add(line, delta, mean.bound, true)
        gain = scores.gain_bound(held, held.sign != held.commoner, delta)
        commoner = truth["yes"] if held.commoner < 0 else 1.0 - truth["yes"]
        true_gain = commoner - tried.risk()
        lines.add(GAIN, delta, -gain.bound, -true_gain)
        lines.add(OBSERVED_GAIN, delta, -gain.observed, -true_gain, broken=True)
        observed = scores.log_loss_bound(held, delta).observed
        lines.add(OBSERVED_LOSS, delta, observed, truth["log-loss"], broken=True)
        bands = scores.calibration_bands(held, delta)
        place = np.minimum((chance * scores.BINS).astype(int), scores.BINS - 1)
        outside = []
        for k, band in enumerate(bands):
            inside = weight * (place == k)
            if inside.sum() > 0:
                true = float((inside * world.yes).sum() / inside.sum())
                outside.append((min(band.high - true, true - band.low), 0.0))
        lines.add_all(CALIBRATION, delta, outside or [NOTHING])
        _sheet(lines, delta, tried, truth, true_gain)
    return lines.found


def _truths(world: Known, tried: Fitted, chance: Array) -> dict[str, float]:
    """Return what is true of the probabilities on the entries that certificates speak of."""
    weight = tried.weight / tried.weight.sum()
    sure = np.clip(chance, scores.FLOOR, 1 - scores.FLOOR)
    log_loss = -(world.yes * np.log(sure) + (1 - world.yes) * np.log(1 - sure))
    brier = world.yes * (1 - chance) ** 2 + (1 - world.yes) * chance**2
    return {
        "log-loss": float((weight * log_loss).sum()),
        "brier": float((weight * brier).sum()),
        "yes": float((weight * world.yes).sum()),
    }


def _lists(lines: Lines, delta: float, world: Known, tried: Fitted) -> None:
    """Certify lists, and quote the best of many thresholds without paying for the choice."""
    found = tried.model.certify_lists(LISTED, LIST_ERROR, delta)
    chance = np.where(tried.weight > 0, tried.found.probability, -1.0).reshape(world.shape)
    best = np.zeros(world.shape, dtype=bool)
    np.put_along_axis(best, np.argsort(-chance, axis=1, kind="stable")[:, :LISTED], True, axis=1)
    listed = best.ravel() & (tried.weight > 0)
    no = 1.0 - world.yes
    lines.add(WHOLE_LISTS, delta, found.whole.bound, rate(no, tried.weight * listed))
    kept = listed & (chance.ravel() >= found.threshold)
    bound = NOTHING if found.certificate is None else (LIST_ERROR, rate(no, tried.weight * kept))
    lines.add(LISTS, delta, *bound)
    held = tried.model.held_out_
    assert held is not None
    rows, columns = (
        index.labels.to_numpy()[codes]
        for index, codes in ((tried.model.rows_, held.rows), (tried.model.columns_, held.columns))
    )
    entries = rows * world.shape[1] + columns
    inside = listed[entries]
    values, wrong = chance.ravel()[entries][inside], held.sign[inside] < 0
    tries = []
    for cut in np.quantile(chance.ravel()[listed], np.linspace(0, 0.95, 20)):
        among = wrong[values >= cut]
        part = listed & (chance.ravel() >= cut)
        if len(among):
            tries.append((float(among.mean()), rate(no, tried.weight * part)))
    lines.add(PICKED, delta, *min(tries), broken=True)


def _sheet(lines: Lines, delta: float, tried: Fitted, truth: dict[str, float], gain: float) -> None:
    """Hold every line of a sheet against the truth."""
    no, yes = tried.by_answer()
    claims = tried.model.sheet(delta, shift=1.0).claims
    risks = [
        tried.risk(),
        tried.risk(no),
        tried.risk(yes),
        tried.risk(),
        truth["log-loss"],
        truth["brier"],
    ]
    pairs = [(one.bound, risk) for one, risk in zip(claims[:6], risks, strict=True)]
    pairs.append((-claims[6].bound, -gain))
    lines.add_all(SHEET, delta, pairs)


def selected_world(number: int) -> tuple[Known, Array]:
    """Draw a world in which people answer what they are sure of, once each; and how likely each is."""
    rng = np.random.default_rng(number)
    shape = worlds.LARGER
    effects = rng.normal(0, 0.7, (shape[0], 1)) + rng.normal(0, 0.7, shape[1])
    spread = 1.2 * rng.standard_normal((shape[0], 2)) @ rng.standard_normal((2, shape[1])) + effects
    yes = expit(spread)
    sure = np.abs(spread) / (1.0 + np.abs(spread))
    easy = expit(rng.normal(0, 0.5, (shape[0], 1)) + rng.normal(0, 0.5, shape[1]) - 0.5)
    chance = np.clip(0.05 + 0.9 * easy * sure, 0.05, 0.9).ravel()
    answer = rng.random(shape).ravel() < yes.ravel()
    seen = np.flatnonzero(rng.random(len(chance)) < chance)
    pairs = np.stack(np.divmod(seen, shape[1]), axis=1)
    answers = np.where(answer[seen], 1, -1).astype(np.int8)
    size = len(chance)
    return Known(pairs, answers, np.full(size, 1 / size), answer.astype(float), True, shape), chance


def selected(number: int) -> list[Line]:
    """Certify the blanks where people answer what they are sure of."""
    world, chance = selected_world(number)
    lines = Lines()
    model = LogisticCompleter(RANK, pattern=None, random_state=number, n_jobs=1)
    model.fit(world.pairs, world.answers, certify=HELD_OUT)
    codes = model.rows_.labels.to_numpy(), model.columns_.labels.to_numpy()
    if len(codes[0]) < world.shape[0] or len(codes[1]) < world.shape[1]:
        return lines.found  # a row or column that nobody answered is in no table
    wrong = world.wrong(world.predictions(model).decision)
    outside = world.outside(model) > 0
    q = odds_of_blank(chance[outside], HELD_OUT)[0]
    never = np.ones(len(wrong), dtype=bool)
    never[world.pairs[:, 0] * world.shape[1] + world.pairs[:, 1]] = False
    answered, blank = rate(wrong[outside], q), float(wrong[never].mean())
    shift = max(1.0, (1 - answered) / max(answered, 1e-9) * blank / max(1 - blank, 1e-9))
    matrix = chance.reshape(world.shape)[np.ix_(*codes)]
    held = model.held_out_
    assert held is not None
    for delta in DELTAS:
        bound = model.certify(delta).bound
        lines.add(UNSHIFTED, delta, bound, blank, broken=True)
        lines.add(SHIFTED, delta, shifted(bound, shift), blank)
        given = model.certify(delta, target="blanks", propensities=matrix)
        lines.add(GIVEN, delta, given.bound, blank)
        lines.add(BOTH, delta, shifted(given.bound, 1.2), blank)
        estimated = model.certify(delta, target="blanks", random_state=number)
        lines.add(ONE_POINT, delta, estimated.bound + 0.01, blank)
        own = 1.0 / matrix[held.rows, held.columns]
        lines.add(TOO_LITTLE, delta, float((own * held.wrong).sum() / own.sum()), blank, broken=True)
    return lines.found
