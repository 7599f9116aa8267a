"""Certificates of what is yet to come: rows that are not in the table, later answers, a survey at random.

New rows: people differ in how well they can be predicted, so that the answers of one are no independent
draws. Later answers: tastes drift, so that a hold-out at random of the earlier ones is too kind. A
survey: people answer what they are sure of, and some entries drawn evenly are asked besides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.certificates.held_out import RANK
from benchmarks.certificates.lines import DELTAS, NOTHING, Line, Lines
from benchmarks.certificates.worlds import LARGER
from onebit import LogisticCompleter, Observations
from onebit.certificates.bounds import binomial_upper_bound
from onebit.certificates.new_rows import HeldRows
from onebit.completers.new_rows import count_rows

Array = NDArray[np.float64]

PEOPLE, SPREAD, QUESTIONS, FRESH = 120, 60, 60, 2000
ROWS_OUT, ANSWERED = 0.3, 0.6
# Of the people, how many answer as if by lot.
CARELESS = 0.5
SHAPE = 40, 30
SURVEYED, EARLY, LATE, HELD_OUT = 300, 1200, 300, 0.3
# Scores beyond this are what people are sure of.
SURE = 1.5
AFTER = 5

NEW_ROWS = "new rows, by all numbers of answers given, all at once"
ONE_NUMBER = f"new rows that give {AFTER} answers"
POOLED = f"new rows that give {AFTER} answers, every answer counted as a draw of its own"
OBSERVED_ROWS = f"new rows that give {AFTER} answers, what was observed"
LATER = "later answers, by a hold-out of later ones"
LATER_RANDOM = "later answers, by a hold-out of earlier ones at random"
SURVEY = "the whole table, by a survey of entries drawn evenly"
SURVEY_RANDOM = "the whole table, by a hold-out of the answers that people chose to give"


def people(rng: np.random.Generator, count: int, questions: tuple[Array, Array]) -> Observations:
    """Draw people and some of their answers: half of them are careless, the later the more."""
    level, taste = questions
    scores = 4.0 * rng.standard_normal((count, 1)) @ taste + rng.normal(0, 0.7, (count, 1)) + level
    careless = rng.random((count, 1)) < np.linspace(0.0, 2.0 * CARELESS, count)[:, None]
    yes = np.where(careless, 0.5, expit(scores))
    rows, columns = np.nonzero(rng.random(yes.shape) < ANSWERED)
    answers = np.where(rng.random(len(rows)) < yes[rows, columns], 1, -1)
    pairs = np.stack([rows, columns], axis=1)
    return Observations.from_pairs(pairs, answers)


def arriving(number: int) -> list[Line]:
    """Certify new rows, and hold the bounds against some thousands more of them."""
    rng = np.random.default_rng(number)
    questions = rng.normal(0, 0.7, QUESTIONS), rng.standard_normal((1, QUESTIONS))
    # Of many sizes, so that what depends on the number of held-out rows shows.
    seen = people(rng, PEOPLE + number % SPREAD, questions)
    fresh = people(rng, FRESH, questions)
    lines = Lines()
    model = LogisticCompleter(RANK, pattern=None, random_state=number, n_jobs=1)
    model.fit(seen, certify_rows=ROWS_OUT)
    held = model.held_rows_
    assert held is not None
    if len(model.columns_) < QUESTIONS:  # a question that nobody answered has no code
        return lines.found
    truth = count_rows(model, fresh, 1, number).observed()
    k = held.given.index(AFTER)
    alone = HeldRows((AFTER,), held.judged[:, [k]], held.wrong[:, [k]], held.commoner[:, [k]])
    for delta in DELTAS:
        found = held.certify(delta).lines
        pairs = [(line.bound, truth[line.given]) for line in found if line.given in truth]
        lines.add_all(NEW_ROWS, delta, pairs or [NOTHING])
        one = alone.certify(delta).lines[0]
        lines.add(ONE_NUMBER, delta, one.bound, truth[AFTER])
        pooled = binomial_upper_bound(int(alone.wrong.sum()), int(alone.judged.sum()), delta)
        lines.add(POOLED, delta, pooled, truth[AFTER], broken=True)
        lines.add(OBSERVED_ROWS, delta, one.observed, truth[AFTER], broken=True)
    return lines.found


def own(number: int) -> list[Line]:
    """Certify later answers and the whole table by hold-outs of one's own, and by the wrong ones."""
    lines = Lines()
    _later(number, lines)
    _survey(number, lines)
    return lines.found


def _later(number: int, lines: Lines) -> None:
    rng = np.random.default_rng(number)
    scores = rng.standard_normal((SHAPE[0], RANK)) @ rng.standard_normal((RANK, SHAPE[1]))
    drifted = scores + 0.8 * rng.standard_normal(SHAPE)
    yes = [expit(3.0 * part).ravel() for part in (scores, drifted)]
    size = SHAPE[0] * SHAPE[1]
    entries = [rng.choice(size, count) for count in (EARLY, LATE)]
    answers = [
        np.where(rng.random(len(k)) < chance[k], 1, -1) for k, chance in zip(entries, yes, strict=True)
    ]
    every = np.stack(np.divmod(np.arange(size), SHAPE[1]), axis=1)
    pairs = every[np.concatenate(entries)]
    late = np.arange(EARLY + LATE) >= EARLY
    together = np.concatenate(answers)
    how = {"pattern": None, "random_state": number, "n_jobs": 1}
    mine = LogisticCompleter(RANK, **how).fit(pairs, together, certify=late)
    random = LogisticCompleter(RANK, **how).fit(pairs[~late], together[~late], certify=0.2)
    for delta in DELTAS:
        lines.add(LATER, delta, mine.certify(delta).bound, _risk(mine, every, yes[1]))
        bound = random.certify(delta).bound
        lines.add(LATER_RANDOM, delta, bound, _risk(random, every, yes[1]), broken=True)


def _survey(number: int, lines: Lines) -> None:
    rng = np.random.default_rng(number)
    scores = 2.0 * rng.standard_normal((LARGER[0], RANK)) @ rng.standard_normal((RANK, LARGER[1]))
    yes = expit(scores).ravel()
    sure = np.abs(scores).ravel() > SURE
    chosen = np.flatnonzero(rng.random(len(yes)) < np.where(sure, 0.5, 0.05))
    asked = rng.choice(len(yes), SURVEYED)
    answers = [np.where(rng.random(len(k)) < yes[k], 1, -1) for k in (chosen, asked)]
    every = np.stack(np.divmod(np.arange(len(yes)), LARGER[1]), axis=1)
    how = {"pattern": None, "random_state": number, "n_jobs": 1}
    mine = LogisticCompleter(RANK, **how)
    mine.fit(every[chosen], answers[0], certify=(every[asked], answers[1]))
    random = LogisticCompleter(RANK, **how).fit(every[chosen], answers[0], certify=HELD_OUT)
    for delta in DELTAS:
        lines.add(SURVEY, delta, mine.certify(delta).bound, _risk(mine, every, yes))
        bound = random.certify(delta).bound
        lines.add(SURVEY_RANDOM, delta, bound, _risk(random, every, yes), broken=True)


def _risk(model: LogisticCompleter, every: NDArray[np.int64], yes: Array) -> float:
    """Return the error rate of a fresh answer to an entry drawn evenly from the whole table."""
    said = model.decision_function(every)
    return float(np.where(said > 0, 1 - yes, np.where(said < 0, yes, 1.0)).mean())
