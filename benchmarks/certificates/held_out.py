"""Certificates that count held-out answers, issued in small worlds and compared with the truth."""

from __future__ import annotations

from itertools import product

import numpy as np

from benchmarks.certificates import worlds
from benchmarks.certificates.lines import DELTAS, NOTHING, Line, Lines
from benchmarks.certificates.worlds import AGAIN, ONCE, SKEWED, Known, Marks, rate
from onebit import LogisticCompleter
from onebit.certificates.bounds import binomial_upper_bound, rest_upper_bound
from onebit.certificates.hold_out import SHARES
from onebit.certificates.statements import BLANKS, Kept, SelectiveCertificate
from onebit.completers.predictions import Predictions

# Few held-out answers: a bound that forgets something is then wrong by more.
HELD_OUT = 0.15
# Many, where entries that no fitted answer is about are rare.
HALF = 0.5
RANK = 3
# What may be wrong of the predictions that are kept, so that some often can be.
MAX_ERROR, MAX_ERROR_RARE = 0.45, 0.1
LISTED = 5

HOLD_OUT = "hold-out, all predictions"
BY_ANSWER = "by predicted answer, both at once"
SELECTIVE = f"surest shares, all {len(SHARES)} at once"
KEPT = "kept predictions, both answers at once"
REFIT = "refit on all answers, disagreement added"
BLANKS_ALONE = "the blanks alone"
UNSPLIT = "surest shares, each at the whole delta"
ONE_FOR_ALL = "by predicted answer, the bound on all predictions"
LIST = f"kept predictions, quoted for the best {LISTED} of each row"
FIRST_ANSWER = 'the blanks alone, by the first answer of each entry as they are listed, "no" first'
OUTSIDE_FOR_BLANKS = "the blanks alone, the bound on all entries outside the fit"
LIKE_ANSWERED = "on entries like the answered ones"
AMONG_BLANKS = "the same bound, read as if it spoke of the blanks"

NOISY = tuple(product(("A2", "B2"), (ONCE, AGAIN, SKEWED), (True, False)))
RARE = tuple(product((ONCE, AGAIN), (True, False)))
FULL = tuple(product(("A2", "B2"), (True, False)))


def noisy(number: int) -> list[Line]:
    """Issue the certificates of a fit and of its refit in a noisy world."""
    name, how, effects = NOISY[number % len(NOISY)]
    lines = Lines()
    tried = Fitted(worlds.papers(name, number, how), effects, number)
    second = None if how == SKEWED else tried.model.refit()  # a refit's speaks of entries drawn evenly
    for delta in DELTAS:
        tried.usual(lines, delta, MAX_ERROR)
        shares = tried.model.certify_selective(delta)
        lines.add_all(SELECTIVE, delta, tried.surest(shares))
        lines.add_all(UNSPLIT, delta, tried.surest(shares, whole=delta), broken=True)
        if second is not None:
            wrong = tried.world.wrong(tried.world.predictions(second).decision)
            lines.add(REFIT, delta, second.certify(delta).bound, rate(wrong, tried.weight))
    return lines.found


def rare(number: int) -> list[Line]:
    """Issue certificates where few answers are "yes"."""
    how, effects = RARE[number % len(RARE)]
    lines = Lines()
    tried = Fitted(worlds.rare(number, how), effects, number)
    for delta in DELTAS:
        kept = tried.usual(lines, delta, MAX_ERROR_RARE)
        bound = tried.model.certify(delta).bound
        groups = [(bound, tried.risk(part)) for part in tried.by_answer()]
        lines.add_all(ONE_FOR_ALL, delta, groups, broken=True)
        if kept.bound is None:
            lines.add(LIST, delta, *NOTHING, broken=True)
        else:
            lines.add(LIST, delta, kept.bound, tried.risk(tried.listed(kept)), broken=True)
    return lines.found


def nearly_full(number: int) -> list[Line]:
    """Certify the blanks of a table that has few."""
    name, effects = FULL[number % len(FULL)]
    world = worlds.papers(name, number, ONCE, worlds.NEARLY_ALL, worlds.MANY_FLIPPED)
    lines = Lines()
    tried = Fitted(world, effects, number)
    for delta in DELTAS:
        certificate = tried.model.certify(delta)
        error = rate(tried.wrong, world.blank().astype(float))
        lines.add(HOLD_OUT, delta, certificate.bound, tried.risk())
        lines.add(BLANKS_ALONE, delta, certificate.terms[BLANKS], error)
        lines.add(OUTSIDE_FOR_BLANKS, delta, certificate.bound, error, broken=True)
    return lines.found


def repeated(number: int) -> list[Line]:
    """Certify the blanks of a table whose other entries were answered again and again, both ways."""
    lines = Lines()
    tried = Fitted(worlds.coins(number), number % 2 == 0, number, HALF)
    error = rate(tried.wrong, tried.world.blank().astype(float))
    held = tried.model.held_out_
    new = np.flatnonzero(~held.fitted_too)
    new = new[np.argsort(held.sign[new], kind="stable")]
    entries = held.rows[new] * worlds.SHAPE[1] + held.columns[new]
    wrong = held.wrong[new[np.unique(entries, return_index=True)[1]]]
    for delta in DELTAS:
        lines.add(BLANKS_ALONE, delta, tried.model.certify(delta).terms[BLANKS], error)
        listed = rest_upper_bound(int(wrong.sum()), len(wrong), held.blanks, delta)
        lines.add(FIRST_ANSWER, delta, listed, error, broken=True)
    return lines.found


def chosen(number: int) -> list[Line]:
    """Certify where people answer what they are sure of, and look at the blanks."""
    world = worlds.chosen(number)
    lines = Lines()
    tried = Fitted(world, number % 2 == 0, number)
    for delta in DELTAS:
        bound = tried.model.certify(delta).bound
        lines.add(LIKE_ANSWERED, delta, bound, tried.risk())
        lines.add(AMONG_BLANKS, delta, bound, rate(tried.wrong, world.blank().astype(float)), broken=True)
    return lines.found


class Fitted:
    """A model fitted to what is seen of a world, and how wrong each of its predictions is."""

    def __init__(self, world: Known, effects: bool, seed: int, held_out: float = HELD_OUT) -> None:
        self.world = world
        self.model = LogisticCompleter(RANK, pattern=None, effects=effects, random_state=seed, n_jobs=1)
        self.model.fit(world.pairs, world.answers, certify=held_out)
        self.found: Predictions = world.predictions(self.model)
        self.wrong = world.wrong(self.found.decision)
        self.weight = world.outside(self.model)

    def risk(self, which: Marks | bool = True) -> float:
        """Return the true error rate among some entries of those that certificates speak of."""
        return rate(self.wrong, self.weight * which)

    def by_answer(self) -> tuple[Marks, Marks]:
        """Say which predictions are "no" and which "yes"."""
        return ~self.found.yes, self.found.yes

    def usual(self, lines: Lines, delta: float, max_error: float) -> Kept:
        """Issue the certificate of all predictions, those by answer, and those of what may be kept."""
        lines.add(HOLD_OUT, delta, self.model.certify(delta).bound, self.risk())
        groups = self.model.certify(delta, by="answer")
        lines.add_all(
            BY_ANSWER,
            delta,
            [
                (certificate.bound, self.risk(part))
                for certificate, part in zip(groups.certificates, self.by_answer(), strict=True)
            ],
        )
        kept = self.model.keep(max_error, delta)
        included = kept.includes(self.found.yes, self.found.confidence)
        bounds = [
            (part.certificate.bound, self.risk(included & said))
            for part, said in zip(kept.parts, self.by_answer(), strict=True)
            if part.certificate is not None
        ]
        lines.add_all(KEPT, delta, bounds or [NOTHING])
        return kept

    def surest(
        self, shares: SelectiveCertificate, whole: float | None = None
    ) -> list[tuple[float, float]]:
        """Return bounds and truths of the surest shares; ``whole`` gives every one that delta."""
        found = []
        for threshold, certificate in zip(shares.thresholds, shares.certificates, strict=True):
            bound = certificate.bound
            if whole is not None:
                terms = certificate.terms
                bound = binomial_upper_bound(int(terms["errors"]), int(terms["held-out answers"]), whole)
            found.append((bound, self.risk(self.found.confidence > threshold)))
        return found

    def listed(self, kept: Kept) -> Marks:
        """Say which entries are kept, and among the likeliest "yes" of their row outside the fit."""
        score = np.where(self.weight > 0, self.found.decision, -np.inf).reshape(self.world.shape)
        best = np.zeros(score.shape, dtype=bool)
        np.put_along_axis(best, np.argsort(-score, axis=1)[:, :LISTED], True, axis=1)
        return best.ravel() & kept.includes(self.found.yes, self.found.confidence)
