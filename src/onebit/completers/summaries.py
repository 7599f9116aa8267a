"""Rows and columns with error bars: shares, effects, ranks, and who has the higher share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from onebit.completers.error_bars import error_draws
from onebit.completers.filling import known_observations, known_shares
from onebit.completers.linking import linked
from onebit.completers.questions import check_share
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS
from onebit.engine.cpu.threads import threads
from onebit.model.draws import Draws
from onebit.model.irt import Scale
from onebit.model.shares import Shares, shares_of

Array = NDArray[np.float64]
SCALES = ("logit", "irt")
# Below this product of standard deviations, answers are the same for all but for rounding.
_ALL_ALIKE = 1e-12


class Comparison(NamedTuple):
    """Who has the higher share of "yes".

    Attributes
    ----------
    probability : float
        The posterior probability that the first has the higher share; ties count half.
    difference, low, high : float
        The expected difference of the shares, first less second, and its credible interval.
    """

    probability: float
    difference: float
    low: float
    high: float


def codes_of(model: Any, side: int, ids: Any, name: str) -> NDArray[np.int32]:
    """Return the codes of some rows (or columns), all of which must be known; of all, without ids."""
    index = (model.rows_, model.columns_)[side]
    if ids is None:
        return index.listed
    asked = [ids] if isinstance(ids, str) or np.ndim(ids) == 0 else list(ids)
    if not asked:
        raise ValueError(f"{name} names no {MEMBERS[side]}")
    codes = index.encode(asked)
    if (codes < 0).any():
        raise ValueError(
            f"the model does not know the {MEMBERS[side]} {asked[int(np.argmax(codes < 0))]!r}; new ones "
            "can be folded in with their answers"
        )
    return codes


def drawn_shares(
    model: Any,
    side: int,
    codes: NDArray[np.int32],
    wanted: NDArray[np.int32],
    draws: Draws,
    known: Observations,
    population: bool = False,
) -> Shares:
    """Return shares over the wanted members of the other side, known answers as they are."""
    view = known.by_column if side else known.by_row
    with threads(model._machine.n_jobs) as pool:
        return shares_of(draws, side, codes, wanted, known_shares(view, codes), pool.even, population)


def summary(
    model: Any,
    side: int,
    ids: Any,
    others: Any,
    level: float,
    scale: str,
    population: bool = False,
    callback: Any = None,
    like: Any = None,
    anchors: Any = None,
) -> pd.DataFrame:
    """Return one line a row (or column); see ``PairClassifier.row_summary``."""
    check_share(level, "level")
    if scale not in SCALES:
        raise ValueError(f'scale is "logit" or "irt", got {scale!r}')
    if like is not None and scale != "irt":
        raise ValueError('like takes over the scale of item response theory: it goes with scale="irt"')
    if anchors is not None and like is None:
        raise ValueError("anchors are the columns that link to the scale of like, which is missing")
    names = ("rows", "columns")
    codes = codes_of(model, side, ids, names[side])
    wanted = np.unique(codes_of(model, 1 - side, others, names[1 - side]))
    known = known_observations(model)
    draws, words = error_draws(model, callback, scale)
    placed = shown = Scale.of(draws) if scale == "irt" else None
    if placed is not None and like is not None:
        shown, said = linked(placed, model, like, codes_of(model, 1, anchors, "anchors"), callback)
        words = f"{said} {words}"
    shares = drawn_shares(model, side, codes, wanted, draws, known, population)
    tails = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
    low, high = np.quantile(shares.drawn, tails, axis=1)
    compared, best = shares.drawn, "share"
    if placed is not None and side == 0:  # a test ranks by ability
        compared, best = placed.ability[codes], "ability"
    # Of those that are level, none is ahead: the interval holds all places that they take.
    rank_low = np.quantile(rankdata(-compared, axis=0, method="min"), tails[0], axis=1)
    rank_high = np.quantile(rankdata(-compared, axis=0, method="max"), tails[1], axis=1)
    named = None if others is None else wanted
    count, yes = _answered(known, side, len((model.rows_, model.columns_)[side]), named)
    with np.errstate(invalid="ignore"):
        answered = yes / count
    parts: dict[str, Any] = {
        "answers": count[codes],
        "answered_share": answered[codes],
        "share": shares.expected,
        "share_low": np.minimum(low, shares.expected),
        "share_high": np.maximum(high, shares.expected),
    }
    if not population:
        parts |= _whatever_blanks_are(known, side, codes, wanted)
    if placed is not None and shown is not None:
        parts |= _on_scale(placed, shown, side, codes, known)
    elif draws.hierarchy.has_effect(side):
        effects = draws.effect_draws(side)[codes]
        parts |= {"effect": effects.mean(axis=1), "effect_se": effects.std(axis=1, ddof=1)}
    else:
        parts |= {"effect": np.nan, "effect_se": np.nan}
    parts |= {"rank_low": rank_low, "rank_high": rank_high}
    # How much each answer of a weighted or forgetting model counted is not among what is known.
    counted_alike = not known.weighted and not model.updates_.lossy
    groups = _alike(draws, known, side, whole=others is None) if counted_alike else None
    if groups is not None:
        parts = _levelled(parts, groups[codes])
    rank = rankdata(-parts[best], method="min").astype(int)
    parts |= {
        "rank": rank,
        "rank_low": np.minimum(np.floor(parts.pop("rank_low")).astype(int), rank),
        "rank_high": np.maximum(np.ceil(parts.pop("rank_high")).astype(int), rank),
    }
    index = (model.rows_, model.columns_)[side].labels[codes]
    frame = pd.DataFrame(parts, index=index)
    facing = MEMBERS[1 - side] + "s"
    over = f"all {len(wanted):,} {facing}" if others is None else f"{len(wanted):,} named {facing}"
    if population:
        over = f"everybody that {over} were drawn from at random"
    frame.attrs["note"] = (
        f"share: of yes over {over}, known answers as they are, blanks as the model expects them; "
        f"{100 * level:.4g} % credible intervals, if the model holds and blanks come about like the "
        f"answered entries. {words}"
    )
    frame.attrs["draws"] = words
    if placed is not None:
        frame.attrs["reliability"] = placed.reliability
    return frame


def _whatever_blanks_are(
    known: Observations, side: int, codes: NDArray[np.int32], wanted: NDArray[np.int32]
) -> dict[str, Array]:
    """Return the shares if all blanks were "no", and if all were "yes"."""
    view = known.by_column if side else known.by_row
    place, index, yes = known_shares(view, codes)
    inside = np.isin(index, wanted)
    place, yes = place[inside], yes[inside]
    least = np.bincount(place, yes, len(codes))
    blank = len(wanted) - np.bincount(place, minlength=len(codes))
    return {"share_least": least / len(wanted), "share_most": (least + blank) / len(wanted)}


def _alike(draws: Draws, known: Observations, side: int, whole: bool) -> NDArray[np.int64] | None:
    """Return a number for each row (or column), the same for those who cannot be told apart.

    They have the same answers to the same questions, so that their posteriors are the same, but for which
    of the answers were held out of the fit; without factors it is enough that as many are yes, where
    shares are over the ``whole`` other side. None where more is known of them than their answers.
    """
    if (draws.row_slopes, draws.column_slopes)[side].size:
        return None
    view = known.by_column if side else known.by_row
    total = draws.hierarchy.rank == 0 and whole and not known.again().any()
    keys: dict[tuple[bytes, Any], int] = {}
    found = np.empty(len(draws.sides[side]), np.int64)
    for i in range(len(found)):
        own = slice(view.start[i], view.start[i + 1])
        yes = view.sign[own] > 0
        key = view.index[own].tobytes(), int(yes.sum()) if total else yes.tobytes()
        found[i] = keys.setdefault(key, len(keys))
    return found


# What depends on answers in another way than the posterior does.
_OWN = ("answers", "answered_share", "share_least", "share_most", "infit", "outfit", "rest_correlation")


def _levelled(parts: dict[str, Any], groups: NDArray[np.int64]) -> dict[str, Any]:
    """Give those who cannot be told apart the same numbers: means over all of their draws."""
    place, count = np.unique(groups, return_inverse=True, return_counts=True)[1:]

    def mean(values: Array) -> Array:
        return np.asarray((np.bincount(place, values) / count)[place])

    levelled = {}
    for name, values in parts.items():
        if name in _OWN or np.ndim(values) == 0:
            levelled[name] = values
        else:
            squared = name.endswith("_se")
            levelled[name] = np.sqrt(mean(values**2)) if squared else mean(values)
    return levelled


def _answered(
    known: Observations, side: int, size: int, wanted: NDArray[np.int32] | None = None
) -> tuple[NDArray[np.int64], Array]:
    """Return how many answers each has, to the wanted ones if some are, and how many are "yes"."""
    view = known.by_column if side else known.by_row
    inside = slice(None) if wanted is None else np.isin(view.index, wanted)
    owners, yes = view.owners()[inside], view.sign[inside] > 0
    count = np.bincount(owners, minlength=size).astype(np.int64)
    return count, np.asarray(np.bincount(owners, yes.astype(float), size), float)


def _on_scale(
    placed: Scale, shown: Scale, side: int, codes: NDArray[np.int32], known: Observations
) -> dict[str, Array]:
    """Return what psychometricians publish of rows, or of columns, in the units that are ``shown``."""
    view = known.by_row
    fits = placed.fit_statistics(view.owners(), view.index, (view.sign > 0).astype(float))[side]
    if side == 0:
        found = {"ability": shown.abilities[0], "ability_se": shown.abilities[1]}
    else:
        counts, yes = _answered(known, 1, len(placed.slope))
        # Answers that are all the same say nothing of how an item tells rows apart, unless all do alike.
        unlike = ((yes > 0) & (yes < counts)) | placed.common_slope
        found = {
            "difficulty": shown.difficulties[0],
            "difficulty_se": shown.difficulties[1],
            "discrimination": np.where(unlike, shown.discriminations[0], np.nan),
            "discrimination_se": np.where(unlike, shown.discriminations[1], np.nan),
        }
    found |= {"infit": fits[0], "outfit": fits[1]}
    if side == 1:
        found["rest_correlation"] = rest_correlations(known)
    return {name: values[codes] for name, values in found.items()}


def rest_correlations(known: Observations) -> Array:
    """Return how answers to each column go with the share of "yes" of the same rows' other answers.

    Pearson's correlation, whatever the model; NaN where either is the same for all. A row's further
    answers to the same column are none of the others.
    """
    view, size = known.by_row, known.shape[1]
    rows, columns, yes = view.owners(), view.index, (view.sign > 0).astype(float)
    counts, totals = _answered(known, 0, view.size)
    entry = np.unique(known.entry_numbers(), return_inverse=True)[1]
    repeats, own = np.bincount(entry)[entry], np.bincount(entry, yes)[entry]
    left = counts[rows] - repeats
    others = left > 0
    rest = (totals[rows] - own)[others] / left[others]
    columns, yes = columns[others], yes[others]

    def mean(values: Array) -> Array:
        return np.bincount(columns, values, size) / np.bincount(columns, minlength=size)

    with np.errstate(invalid="ignore", divide="ignore"):
        yes, rest = yes - mean(yes)[columns], rest - mean(rest)[columns]
        spread = np.sqrt(mean(yes**2) * mean(rest**2))
        return np.asarray(np.where(spread > _ALL_ALIKE, mean(yes * rest) / spread, np.nan))


def compare(model: Any, first: Any, second: Any, columns: Any, level: float) -> Comparison:
    """Return who of two rows has the higher share; see ``PairClassifier.compare``."""
    check_share(level, "level")
    codes = np.concatenate([codes_of(model, 0, [one], "rows") for one in (first, second)])
    wanted = np.unique(codes_of(model, 1, columns, "columns"))
    draws, _ = error_draws(model)
    shares = drawn_shares(model, 0, codes, wanted, draws, known_observations(model))
    gap = shares.drawn[0] - shares.drawn[1]
    low, high = np.quantile(gap, [0.5 - 0.5 * level, 0.5 + 0.5 * level])
    expected = float(shares.expected[0] - shares.expected[1])
    # A gap of nothing but rounding is a tie.
    ties = np.abs(gap) < 1e-12
    ahead = float(((gap > 0.0) & ~ties).sum() + 0.5 * ties.sum())
    # So many draws do not tell a probability of one from one a little below it.
    known = np.ptp(gap) < 1e-12
    probability = ahead / len(gap) if known else (ahead + 0.5) / (len(gap) + 1.0)
    return Comparison(probability, expected, min(float(low), expected), max(float(high), expected))


def item_scale(model: Any) -> Scale:
    """Return a model's scale of item response theory, by the codes of its ids."""
    return Scale.of(error_draws(model, scale="irt")[0])
