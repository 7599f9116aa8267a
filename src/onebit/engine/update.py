"""New answers for a fitted model, without the old ones: its posterior is their prior.

A row's answers enter its posterior as natural parameters, which add up: what the old answers said is the
precision of the row's Gaussian and that precision times its mean. New answers are summed up on top of it,
rows and columns in turn, until neither moves. Only rows and columns that have new answers take part, and
what stands above them (variances, means, slopes) stays as it was fitted. New ones begin at their prior,
as in a fold-in.

With ``forget`` below one a row (or column) that has new answers is held less firmly than before: its
precision counts for that share, and the prior's for the rest. Where it stands stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.data.ids import IdIndex
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS
from onebit.data.sorting import View
from onebit.engine.cpu.apart import Natural
from onebit.engine.cpu.side import Side
from onebit.engine.cpu.threads import Threads
from onebit.model.gaussians import Gaussians, independent_gaussians, lower_triangle
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import Loss
from onebit.model.placing import Placing
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]
Codes = NDArray[np.int32]
Placings = tuple[Placing | None, Placing | None]

# Rounds over the new answers; some six suffice, since most rows have been placed by their old ones.
MAX_ROUNDS = 30
# Of a coordinate of the means, between two rounds.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Batch:
    """New answers, and what an update has to know besides.

    Attributes
    ----------
    rows, columns : ndarray of int32
        Codes of the answered entries; those of new ids follow the known ones.
    sign, weight : ndarray
        The answers, and their weights (empty: one each).
    shape : two int
        The numbers of rows and columns, new ones included.
    forget : float
        The share that counts of what was said before.
    earlier : two arrays of codes
        Answered entries that came after the fit, before this batch.
    late : two int
        From these codes on, all answers of a row (or column) are among the earlier ones.
    seed : int
        Of what is drawn.
    """

    rows: Codes
    columns: Codes
    sign: NDArray[np.int8]
    weight: NDArray[np.float32]
    shape: tuple[int, int]
    forget: float
    earlier: tuple[Codes, Codes]
    late: tuple[int, int]
    seed: int = 0

    @property
    def codes(self) -> tuple[Codes, Codes]:
        """The codes of rows and of columns."""
        return self.rows, self.columns


class Touched(NamedTuple):
    """The rows (or columns) that have new answers.

    ``view`` holds these answers, both sides counted from zero. ``known`` are the lines of the pattern of
    those that came after the fit, zero for the others, whose prior is in their posterior already;
    ``moved`` is how much further these lines are than before. None where no prior mean depends on them.
    """

    codes: Codes
    fresh: NDArray[np.bool_]
    view: View
    known: Array | None
    moved: Array | None


def extended_placings(posterior: Posterior, shape: tuple[int, int]) -> Placings:
    """Return how new lines are made once there are so many rows and columns."""
    rows, columns = posterior.placings
    return (
        None if rows is None else rows.extended(shape[1] - posterior.shape[1]),
        None if columns is None else columns.extended(shape[0] - posterior.shape[0]),
    )


def touched_by(posterior: Posterior, batch: Batch) -> tuple[Touched, Touched]:
    """Return which rows and which columns a batch touches."""
    codes, own = zip(*(np.unique(part, return_inverse=True) for part in batch.codes), strict=True)
    rows, columns = (
        IdIndex(pd.RangeIndex(len(part)), name) for part, name in zip(codes, MEMBERS, strict=True)
    )
    first, second = (part.astype(np.int32) for part in own)
    answers = Observations.from_codes(rows, columns, first, second, batch.sign, batch.weight)
    placings = extended_placings(posterior, batch.shape)
    sides = []
    for side, view in enumerate((answers.by_row, answers.by_column)):
        fresh = codes[side] >= posterior.shape[side]
        known = moved = None
        placing = placings[side]
        if placing is not None and posterior.hyper.slopes[side] is not None:
            known, moved = _lines(placing, batch, side, codes[side], fresh)
        sides.append(Touched(codes[side], fresh, view, known, moved))
    return sides[0], sides[1]


def _lines(
    placing: Placing, batch: Batch, side: int, codes: Codes, fresh: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """Return what is known of touched members that came after the fit, and how far that has moved.

    The pattern of those who were fitted stays as it was: they have been placed by their answers.
    """
    late = codes >= batch.late[side]
    width = placing.features.shape[1] + placing.loading.shape[1]
    if not late.any():
        return np.zeros((len(codes), width)), np.zeros((len(codes), width))
    members = codes[late]
    lines = [
        placing.coordinates(_answered(members, own, other))
        for own, other in (
            (batch.earlier[side], batch.earlier[1 - side]),
            tuple(np.concatenate([batch.earlier[part], batch.codes[part]]) for part in (side, 1 - side)),
        )
    ]
    known = np.zeros((len(codes), width))
    moved = np.zeros_like(known)
    known[late], moved[late] = lines[1], lines[1] - lines[0]
    moved[fresh] = 0.0
    return known, moved


def _answered(members: Codes, own: Codes, other: Codes) -> View:
    """Return what some members have answered, of entries one by one."""
    place = np.searchsorted(members, own)
    inside = place < len(members)
    inside[inside] = members[place[inside]] == own[inside]
    place, other = place[inside], other[inside]
    start = np.zeros(len(members) + 1, np.int64)
    np.cumsum(np.bincount(place, minlength=len(members)), out=start[1:])
    index = other[np.argsort(place, kind="stable")]
    return View(start, index, np.empty(0, np.int8), np.empty(0, np.float32))


def updated(
    posterior: Posterior,
    touched: tuple[Touched, Touched],
    batch: Batch,
    loss: Loss,
    temperature: float,
) -> Posterior:
    """Return a posterior that has taken up new answers."""
    pool = Threads(1, None)
    hierarchy = replace(posterior.hierarchy, shape=batch.shape)
    sides = [_begun(posterior, hierarchy, side, part, pool) for side, part in enumerate(touched)]
    before = [
        _said_before(posterior, part, touched[side], batch.forget, temperature)
        for side, part in enumerate(sides)
    ]
    nothing = [(np.zeros((1, part.mean.shape[1])),) * 2 for part in sides]
    for number in range(MAX_ROUNDS):
        change = 0.0
        for side, part in enumerate(sides):
            last = part.mean.copy()
            if side == hierarchy.sparse and number and touched[side].fresh.any():
                # There the prior of new members depends on where they are.
                again = _said_before(posterior, part, touched[side], 1.0, temperature)
                for kept, new in zip(before[side], again, strict=True):
                    kept[touched[side].fresh] = new[touched[side].fresh]
            said = part.accumulate(sides[1 - side].table, loss)
            part.solve(said + before[side], nothing[side], temperature)
            change = max(change, float(np.abs(part.mean - last).max(initial=0.0)))
        if change <= TOLERANCE:
            break
    rows, columns = (
        _put(posterior, side, touched[side].codes, part.gaussians(), batch.shape[side])
        for side, part in enumerate(sides)
    )
    placings = extended_placings(posterior, batch.shape)
    return replace(posterior, rows=rows, columns=columns, hierarchy=hierarchy, placings=placings)


def _begun(
    posterior: Posterior, hierarchy: Hierarchy, side: int, touched: Touched, pool: Threads
) -> Side:
    """Return touched members where they are, new ones at their prior."""
    own = posterior.sides[side]
    moments = posterior.hierarchy.prior_moments(side, posterior.hyper, touched.known)
    mean, variance = (
        np.broadcast_to(part, (len(touched.codes), part.shape[-1])).copy() for part in moments
    )
    prior = independent_gaussians(mean, variance, own.full)
    mean, covariance = prior.mean.copy(), prior.covariance.copy()
    known = ~touched.fresh
    codes = touched.codes[known]
    mean[known], covariance[known] = own.mean[codes], own.covariance[codes]
    lines = None if touched.known is None else touched.known.astype(np.float32)
    return Side(Gaussians(mean, covariance, own.full), hierarchy, side, touched.view, pool, lines)


def _said_before(
    posterior: Posterior, part: Side, touched: Touched, forget: float, temperature: float
) -> Natural:
    """Return the natural parameters of what was known of touched members before, prior included."""
    start = part.gaussians()
    own, pull = (np.broadcast_to(term, start.mean.shape) for term in part.prior(posterior.hyper))
    precision: Array = np.linalg.inv(start.dense_covariance()).astype(np.float64)
    places = np.arange(own.shape[1])
    if forget < 1.0:
        precision *= forget
        precision[:, places, places] += (1.0 - forget) * own
    linear = np.einsum("mab,mb->ma", precision, start.mean)
    slopes = posterior.hyper.slopes[part.side]
    if touched.moved is not None and slopes is not None:
        linear += own * (touched.moved @ slopes.mean)
    precision[touched.fresh] = 0.0
    precision[np.flatnonzero(touched.fresh)[:, None], places, places] = own[touched.fresh]
    linear[touched.fresh] = pull[touched.fresh]
    lower = lower_triangle(own.shape[1])
    packed = precision[:, lower[0], lower[1]]
    return Natural(packed / temperature, linear / temperature, np.zeros(len(linear)))


def _put(posterior: Posterior, side: int, codes: Codes, found: Gaussians, size: int) -> Gaussians:
    """Return a side of which some have been replaced, or appended; new ones without answers too."""
    old = posterior.sides[side]
    moments = posterior.hierarchy.prior_moments(side, posterior.hyper)
    prior = independent_gaussians(moments[0][None], moments[1][None], old.full)
    new = np.zeros(size - len(old.mean), np.int64)
    mean = np.concatenate([old.mean, prior.mean[new]])
    covariance = np.concatenate([old.covariance, prior.covariance[new]])
    mean[codes], covariance[codes] = found.mean, found.covariance
    return Gaussians.trusted(mean, covariance, old.full)
