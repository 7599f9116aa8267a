"""One sheet of all that held-out answers, and held-out rows, say of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.certificates import scores
from onebit.certificates.bounds import binomial_upper_bound
from onebit.certificates.claims import Claim, Sheet
from onebit.certificates.hold_out import HeldOut, check_hold_out_delta
from onebit.certificates.new_rows import HeldRows
from onebit.certificates.shifts import breaking_shift, shifted
from onebit.certificates.statements import CHOSEN, HELD_OUT, OWN_HELD_OUT
from onebit.completers.claiming import plain_fit
from onebit.engine import scoring

# Bounds on held-out answers that share the delta of a sheet.
CLAIMS = 7
LIKE = "that they come about like the held-out answers"


def sheet(model: Any, delta: float, shift: float = 2.0) -> Sheet:
    """Return everything that can be claimed of a model, all at once."""
    rows: HeldRows | None = model.held_rows_
    if rows is not None and model.held_out_ is None:
        return sheet_of(None, model._said, delta, shift, None, rows)
    held: HeldOut = model._held_out_answers()
    held.check_as_counted("the sheet")
    return sheet_of(held, model._said, delta, shift, _effects_wrong(model, held), rows)


def sheet_of(
    held: HeldOut | None,
    said: tuple[str, str],
    delta: float,
    shift: float,
    effects_wrong: NDArray[np.bool_] | None = None,
    rows: HeldRows | None = None,
) -> Sheet:
    """Return what held-out answers and held-out rows say, each line at its share of delta."""
    check_hold_out_delta(delta)
    of_rows = 0 if rows is None else len(rows.given)
    each = delta / ((0 if held is None else CLAIMS) + of_rows)
    claims = [] if held is None else _of_answers(held, said, each, shift, effects_wrong)
    if rows is not None:
        claims += _of_rows(rows, each * of_rows)
    return Sheet(tuple(claims), delta)


def _of_answers(
    held: HeldOut,
    said: tuple[str, str],
    each: float,
    shift: float,
    effects_wrong: NDArray[np.bool_] | None,
) -> list[Claim]:
    plain = held.where
    claims = []

    def rate(of: str, part: Any) -> float:
        wrong = held.wrong[part]
        errors, trials = int(wrong.sum()), len(wrong)
        bound = binomial_upper_bound(errors, trials, each)
        observed = errors / trials if trials else float("nan")
        claims.append(Claim("wrong", of, LIKE, bound, observed, answers=trials))
        return bound

    whole = rate(f"all predictions, {plain}", slice(None))
    for k, word in enumerate(said):
        rate(f"the predictions that {word}, {plain}", held.yes == bool(k))
    others, chosen = CHOSEN[OWN_HELD_OUT if held.own else HELD_OUT]
    base = max(whole, held.blanks_bound(each) or 0.0)
    assumes = (
        f"that being {chosen} multiplies the odds of a right prediction by at most {shift:g}; from "
        f"{breaking_shift(base):.2g} on half of them could be wrong"
    )
    claims.append(
        Claim("wrong", f"the predictions of {others}{held.limits}", assumes, shifted(base, shift),
              float("nan"), answers=len(held.wrong))
    )  # fmt: skip
    log_loss, brier = scores.log_loss_bound(held, each), scores.brier_bound(held, each)
    for name, mean, unit in (("log-loss", log_loss, "nats"), ("Brier score", brier, "score")):
        more = ", of probabilities held between 1 and 99 %" if name == "log-loss" else ""
        claims.append(
            Claim(name, f"all probabilities, {plain}{more}", LIKE, mean.bound, mean.observed, unit,
                  answers=mean.answers)
        )  # fmt: skip
    usual = said[int(held.commoner > 0)].removeprefix("said ")
    simpler = {f"always {usual}": held.sign != held.commoner}
    if effects_wrong is not None:
        simpler["row and column effects alone"] = effects_wrong
    for name, wrong in simpler.items():
        gain = scores.gain_bound(held, wrong, each)
        claims.append(
            Claim(f"better than {name} by", f"all predictions, {plain}", LIKE, gain.bound, gain.observed,
                  "points", True, gain.answers, scores.mcnemar(held, wrong))
        )  # fmt: skip
    # What a shift makes of the first bound costs nothing; all others share delta.
    assert len(claims) - 1 <= CLAIMS
    return claims


def _of_rows(rows: HeldRows, delta: float) -> list[Claim]:
    assumes = "that new rows are like the held-out ones, and give answers drawn at random from their own"
    return [
        Claim(
            "wrong",
            f"the predictions of a new row's other answers once it has given {line.given}, on average "
            "over rows with more",
            assumes,
            line.bound,
            line.observed,
            answers=line.rows,
            counted="held-out rows",
        )
        for line in rows.certify(delta).lines
    ]


def _effects_wrong(model: Any, held: HeldOut) -> NDArray[np.bool_] | None:
    """Return which held-out answers a model of effects alone, fitted to the same answers, gets wrong."""
    if not model.answers_kept or held.of_update or held.updated_since or held.disagreement is not None:
        return None
    fitted = plain_fit(model.kept_answers().fitted.told((None, None)), 0, 0)
    return scoring.scores(fitted, held.rows, held.columns, -1) * held.sign <= 0
