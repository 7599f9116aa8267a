"""The page: a table for every family of worlds, what was broken on purpose, where it does not hold."""

from __future__ import annotations

import pandas as pd

from benchmarks.certificates import arriving, asked, drawn, held_out, real, tightness, worlds
from benchmarks.certificates.lines import SURPRISE, judged
from onebit.study.page import markdown

INTRODUCTION = f"""Made by `make bench-certificates`. In small worlds whose every error is known,
certificates are issued at delta = 0.05 and at delta = 0.2 and compared with the true error rate of what
they speak of. A certificate may fail in a share delta of the worlds. It is **caught** where so many
failures, or more, would have had a probability below {SURPRISE:g} (the p-value, exact binomial) if it
failed with probability delta. Statements that hold all at once fail together: where any of them does.
The slack is bound less truth, of the statement that is nearest to failing.

Half of the worlds of each kind are fitted with row and column effects, as `LogisticCompleter` does by
default, half without; factor means are in every fit. Entries are drawn *with repeats* (then the next
answer is a fresh one, noise included), with repeats and *skewed* (some rows and columns far more often),
or *once each* (then every entry of the table has its answer from the beginning, some are shown, and
errors are counted on those that the certificate speaks of)."""

TITLES = {
    "noisy": "The model's own certificates, noisy answers",
    "rare": "Rare answers",
    "nearly-full": "Few blanks",
    "repeated": "Few blanks, the other entries answered again and again",
    "drawn": "Certificates of other predictors",
}
# Below this a p-value says no more.
SMALLEST_P = 1e-9
HEADER = ["certificate", "delta", "worlds", "failures", "p-value", "mean slack", "verdict"]


def coverage(results: pd.DataFrame) -> list[str]:
    """Return the part of the page on how often certificates hold."""
    parts = ["# Coverage and tightness of the certificates", INTRODUCTION]
    broken = []
    for family, title in TITLES.items():
        lines = results[results["family"] == family]
        if lines.empty:
            continue
        table = judged(lines)
        parts += [f"## {title}", _about(family, lines), _table(table[~table["broken"]])]
        broken.append(table[table["broken"]].assign(family=title))
    parts += [
        "## Broken on purpose",
        "Each of these leaves out something that the true one pays for, in the same worlds. All must be "
        "caught: a harness that lets them pass would not notice a fault of the true ones.",
        _table(pd.concat(broken)),
        *_where_it_does_not_hold(results),
    ]
    return parts


def whole(results: pd.DataFrame, tight: pd.DataFrame, size: int) -> str:
    """Return the page."""
    return "\n\n".join([*coverage(results), *tightness.section(tight, size)]) + "\n"


ASKED = """# Coverage of what people ask

Made by `make bench-certificates` (its second half). As on [the page of coverage](coverage.md):
certificates are issued in worlds whose every error is known, at delta = 0.05 and at delta = 0.2, and
caught where they fail more often than delta allows. Gains are bounded from below; their slack is truth
less bound."""
EVENLY = """## Groups, lists, scores and gains

{rows} x {columns}, rank {rank}, {least:.0%} to {most:.0%} answered once each and evenly, 15 % of the
answers held out; worlds A2 and B2 with 20 % flipped, with and without effects. Of the lists at most
{error:.0%} may be answered with "no"; where nothing could be kept the world counts as held and has no
slack."""
SURE = """## People answer what they are sure of

{rows} x {columns}: the surer an answer, the likelier an entry is answered, with probabilities from 5 to
90 % that are known here; 30 % of the answers are held out. The truth is the error rate of the entries
that are blank. The shift is the one that holds in each world. Propensities are those of the world, or are
estimated from who answered what (half of the table predicts the other), and then one point is allowed."""
COMING = """## Rows that are yet to come

{people} to {more} people, {questions} questions, {answered:.0%} answered, {out:.0%} of the people held
out; half of all people answer by lot, the later they come the more of them, so that the answers of one
person are no independent draws, and ids tell who is easy. The truth is that of {fresh:,} people more."""
OWN_HOLD_OUT = """## A hold-out of one's own

*Later answers*: tastes drift; {early:,} answers are early, {late} late. *A survey*: people answer what
they are sure of ten times as often as the rest, and {asked} entries drawn evenly are asked besides."""
BROKEN = """## Broken on purpose

Each leaves out something that the true one pays for, or speaks of other entries. All must be caught."""


def asked_for(results: pd.DataFrame, came: pd.DataFrame) -> str:
    """Return the page on what people ask; ``came`` is what real data says."""
    small, large = worlds.SHAPE, worlds.LARGER
    about = {
        "asked": EVENLY.format(
            rows=small[0], columns=small[1], rank=worlds.RANK, error=asked.LIST_ERROR,
            least=asked.LEAST, most=asked.MOST,
        ),
        "selected": SURE.format(rows=large[0], columns=large[1]),
        "arriving": COMING.format(
            people=arriving.PEOPLE, more=arriving.PEOPLE + arriving.SPREAD,
            questions=arriving.QUESTIONS, answered=arriving.ANSWERED, out=arriving.ROWS_OUT,
            fresh=arriving.FRESH,
        ),
        "own": OWN_HOLD_OUT.format(early=arriving.EARLY, late=arriving.LATE, asked=arriving.SURVEYED),
    }  # fmt: skip
    parts, broken = [ASKED], []
    for family, text in about.items():
        table = judged(results[results["family"] == family])
        parts += [text, _table(table[~table["broken"]])]
        broken.append(table[table["broken"]])
    parts += [BROKEN, _table(pd.concat(broken)), *real.section(came)]
    return "\n\n".join(parts) + "\n"


def _about(family: str, lines: pd.DataFrame) -> str:
    rows, columns = worlds.LARGER if family == "rare" else worlds.SHAPE
    if family == "repeated":
        return (
            f"{rows} x {columns}, {worlds.TIMES * rows * columns:,} answers to entries that are drawn "
            f'with repeats, {worlds.HEADS:.0%} of them "yes" by lot, {held_out.HALF:.0%} of them held '
            "out. Some entries have held-out answers alone, of both kinds; they speak for the blanks, "
            "whose next answers are the truth."
        )
    text = f"{rows} x {columns}, rank {worlds.RANK}, "
    answered = round(rows * columns * (worlds.NEARLY_ALL if family == "nearly-full" else worlds.ANSWERED))
    text += f"{answered:,} answers"
    if family != "drawn":
        text += f", {held_out.HELD_OUT:.0%} of them held out"
    text += ". "
    if family == "noisy":
        text += (
            f"Worlds A2 and B2 with {worlds.FLIP:.0%} of the answers flipped, once each, with repeats "
            "and skewed. Kept are predictions at an error of at most "
            f"{held_out.MAX_ERROR:.0%}; {_kept_something(lines)}. The certificate of a refit needs "
            "entries drawn evenly, so the skewed worlds are left out there."
        )
    elif family == "rare":
        text += (
            'Some 6 % of the answers are "yes" (logistic, with effects), once each or with repeats. Kept '
            f"are predictions at an error of at most {held_out.MAX_ERROR_RARE:.0%}; "
            f"{_kept_something(lines)}."
        )
    elif family == "nearly-full":
        blanks = rows * columns - answered
        text += (
            f"Worlds A2 and B2 with {worlds.MANY_FLIPPED:.0%} flipped, once each. The {blanks} blanks "
            "are fewer than the entries that the certificate of all predictions speaks of, and have a "
            "bound of their own."
        )
    else:
        text += (
            f"Worlds B1, A2 and B2 ({worlds.FLIP:.0%} flipped), once each or with repeats; those with a "
            "row or a column that was never seen are left out. The one draw is of the `GibbsCompleter` "
            f"too, the overfitted posterior of a `HingeCompleter` of rank {drawn.GREEDY_RANK} at "
            f"temperature {drawn.GREEDY_TEMPERATURE:g}, the rest of a `LogisticCompleter`. Where entries "
            "come once, progressive validation and a learnt prior speak of what lies outside the part "
            "that was learnt from, the others of the whole table."
        )
    return text


def _kept_something(lines: pd.DataFrame) -> str:
    """Say how often there was something to keep."""
    shares = [
        f"{part['bound'].notna().mean():.0%} at delta = {delta:g}"
        for delta, part in lines[lines["line"] == held_out.KEPT].groupby("delta")
    ]
    return f"some could be in {' and '.join(shares)}; the other worlds count as held and have no slack"


def _table(table: pd.DataFrame) -> str:
    rows = [
        [
            line.line, f"{line.delta:g}", f"{line.worlds:,}", f"{line.failures:,}", _p(line.p),
            f"{line.slack:.3f}", "**caught**" if line.caught else "holds",
        ]
        for line in table.sort_values("delta", kind="stable").itertuples()
    ]  # fmt: skip
    return markdown(HEADER, rows)


def _p(value: float) -> str:
    if value < SMALLEST_P:
        return f"< {SMALLEST_P:g}"
    return f"{value:.3f}" if value >= SURPRISE else f"{value:.0e}"


def _where_it_does_not_hold(results: pd.DataFrame) -> list[str]:
    lines = results[results["family"] == "chosen"]
    if lines.empty:
        return []
    table = judged(lines)
    rows = [
        [
            line.line, f"{line.delta:g}", f"{line.worlds:,}", f"{line.bound:.3f}", f"{line.risk:.3f}",
            f"{line.failures:,}", _p(line.p), "does not hold" if line.caught else "holds",
        ]
        for line in table.sort_values("delta", kind="stable").itertuples()
    ]  # fmt: skip
    header = [
        "the certificate", "delta", "worlds", "mean bound", "mean error", "failures", "p-value", "verdict"
    ]  # fmt: skip
    return [
        "## Where it does not hold",
        "People answer what they are sure of: the surer an answer, the likelier an entry is answered. "
        "The certificate speaks of entries that come about in the same way, and holds for them. The "
        "blanks are what people were less sure of, and are wrong far more often; no certificate from "
        "such answers speaks of them.",
        markdown(header, rows),
        "Nor does a certificate of what may be kept hold for a selection from it, such as a list of the "
        "best of each row: see above, among what was broken on purpose.",
    ]
