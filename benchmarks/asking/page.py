"""The page of the benchmark, and its figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.asking.scales import GAIN, WIDER
from onebit.study.page import markdown

NAMES = {
    "arc_challenge": "ARC Challenge", "musr": "MuSR", "gsm": "GSM", "med_qa": "MedQA",
    "mmlu-pro": "MMLU-Pro",
}  # fmt: skip
TEXT = """# What to ask next

Made by `make bench-ask` ({machine}). A quarter of the language models of each table are new; how many of
the items does each answer rightly? It answers some of them, and the rest is estimated. Contestants: the
plain mean; ridge regression of the share on the answers (penalty by leave-one-out); a two-parameter
logistic model, with items drawn at random or by maximum information; and `LogisticCompleter()` with items
drawn at random, with one fixed set for all (`choose_columns`), and asked one after the other
(`interview`). Errors are mean absolute errors in percentage points, with their standard errors
over new models. Of MMLU-Pro (26 models, 12,032 items) 20 models are fitted: questions that so few choose
for a model of rank 10 tell less than questions at random; draw them with `explore=1`.

{figure}
"""
INTERVALS = """## Intervals

Nominal 90 %. *Credible* intervals (`interview`) believe the model, and may be made from any answers; they
are widened until they hold for nine in ten fitted rows that are asked as many items (forty at least) as
if they were new.
*Confidence* intervals (`row_mean`) believe nothing but that items were drawn at random: uniformly, or by
the policy of `interview(explore=0.1)` with its probabilities. "Worth" is the effective sample size: how
many items, drawn uniformly, have a mean with the squared error that was found (without replacement, at
each new model's true share). Coverage with the standard error that 90 % would have."""
BETTER = """Rows unlike those that were seen: credible intervals believe the population of the fitted rows
and miss more often than they say. Confidence intervals do not believe it; with 20 new models of GSM and
MedQA a share has a standard error of 6.7, with 6 of MMLU-Pro one of 12, so that single lines stray."""
SPLITS = (("iid", "New models at random"), ("better", "New models better than all seen"))
SURVEY = """## A survey

New people answer 5, 10 or 20 statements that they have an opinion on, and half of their other answers are
predicted: log-loss (share wrong in %), {people} people, three splits. The questions are drawn at random,
are always the most uncertain one, or are chosen for the goal."""
SCALE = """## The scale of a test

Made-up tests, {seeds} of each size: `row_summary(scale="irt")` and `column_summary(scale="irt")` of
sampled models (four chains of 60 draws) beside marginal likelihood (EM over abilities from N(0, 1)).
"Apart" is the mean distance of the two estimates in our standard errors, with the largest of all;
"covers" is how often an interval of 1.645 standard errors, nominal 90 %, held the truth."""
CLASS = """### Small classes

The two-parameter model of made-up classes, {seeds} of each kind: how often 90 % intervals held the truth,
and the reliability that is said beside the squared correlation of estimates and true abilities, with the
prior of `-m 2pl` and with the default `prior_scale`, under which a factor that answers say little of
vanishes. Items discriminate as in the tests above, or half as much. Difficulties that answers do not
determine are blank, and not counted."""
YEARS = """### Two years on one scale

Two years of made-up tests, {seeds} of each kind, fitted apart: the second year's students are better by
{better} and spread {wider} times as much, and some of its items are the first year's. With `like=` its
abilities and items are put on the first year's scale: how far the mean ability is off on average (the
root mean square), and how often 90 % intervals held the truth there."""
SPEED = """## How long a question takes

From the fiftieth answer of a new row to the next question, 10,000 columns, K = 20: {milliseconds:.0f} ms
(median of 20, one thread)."""
ORDER = [
    "mean of random items", "ridge, random items", "2PL, random items", "2PL, maximum information",
    "ours, random items", "ours, fixed set", "ours, adaptive",
]  # fmt: skip
KINDS = [
    ("credible, random items", "ours, random items"), ("credible, fixed set", "ours, fixed set"),
    ("credible, adaptive", "ours, adaptive"), ("confidence, random items", "row_mean, random items"),
    ("confidence, policy", "row_mean, policy"),
]  # fmt: skip


def write_page(lines: list[dict[str, Any]], output: Path, machine: str, seconds: float) -> None:
    """Write the page, and the figure beside it."""
    frame = pd.DataFrame(lines)
    whole = [name for name in ("n", "size", "persons", "items") if name in frame]
    frame[whole] = frame[whole].astype("Int64")  # lines of other kinds have none
    shares = frame[frame["split"].isin([split for split, _ in SPLITS])]
    parts = []
    figure = ""
    if len(shares):
        shares = shares.assign(error=100 * (shares["share"] - shares["truth"]))
        name = draw(shares, output.with_suffix(".png"))
        figure = f"![Mean absolute error against the number of items asked]({name})"
        for split, title in (
            ("iid", "New models at random"),
            ("better", "New models better than all seen"),
        ):
            part = shares[shares["split"] == split]
            if len(part):
                parts += [f"## {title}", *errors(part)]
        parts.append(INTERVALS)
        for split, title in (
            ("iid", "New models at random"),
            ("better", "New models better than all seen"),
        ):
            part = shares[shares["split"] == split]
            if len(part):
                parts += [f"### {title}", *([BETTER] if split == "better" else []), *intervals(part)]
    people = frame[frame["split"] == "survey"]
    if len(people):
        count = people.groupby("seed")["person"].nunique().sum()
        parts += [SURVEY.format(people=count), survey_table(people)]
    tests = frame[frame["split"] == "scale"]
    if len(tests):
        parts += [SCALE.format(seeds=tests["seed"].nunique()), scale_table(tests)]
    classes = frame[frame["split"] == "class"]
    if len(classes):
        parts += [CLASS.format(seeds=classes["seed"].nunique()), class_table(classes)]
    years = frame[frame["split"] == "years"]
    if len(years):
        words = YEARS.format(seeds=years["seed"].nunique(), better=GAIN, wider=WIDER)
        parts += [words, year_table(years)]
    parts.append(SPEED.format(milliseconds=1000 * seconds))
    head = TEXT.format(machine=machine, figure=figure)
    output.write_text("\n\n".join([head.strip(), *parts]) + "\n", encoding="utf-8")


def spread(values: Any) -> str:
    values = np.asarray(values, float)
    return f"{values.mean():.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"


def errors(shares: pd.DataFrame) -> list[str]:
    """Return a table of errors for each number of items."""
    found = []
    for n, part in shares.groupby("n"):
        rows = []
        for method in ORDER:
            cells = [method]
            for table in NAMES:
                some = part[(part["table"] == table) & (part["method"] == method)]
                cells.append(spread(some["error"].abs()) if len(some) else "-")
            rows.append(cells)
        found += [f"{n} items:", markdown(["", *NAMES.values()], rows)]
    return found


def intervals(shares: pd.DataFrame) -> list[str]:
    """Return coverage, width and worth of every kind of interval, at each number of items."""
    rows = []
    for table, title in NAMES.items():
        for n in sorted(shares["n"].unique()):
            for kind, method in KINDS:
                part = shares[
                    (shares["table"] == table) & (shares["n"] == n) & (shares["method"] == method)
                ]
                if len(part) == 0:
                    continue
                inside = (part["low"] <= part["truth"] + 1e-12) & (part["high"] >= part["truth"] - 1e-12)
                share = inside.mean()
                error = (0.9 * 0.1 / len(inside)) ** 0.5
                wide = 100 * (part["high"] - part["low"]).mean()
                size = part["size"].iloc[0]
                uniform = (part["truth"] * (1 - part["truth"])).mean() * 1e4 * (size - n) / (size - 1)
                worth = uniform / (part["error"] ** 2).mean()
                rows.append(
                    [title, str(n), kind, f"{100 * share:.1f} ± {100 * error:.1f}", f"{wide:.1f}",
                     f"{worth:.0f}"]
                )  # fmt: skip
    head = ["table", "items", "interval", "covers, %", "width, points", "worth, items"]
    return [markdown(head, rows)]


def survey_table(people: pd.DataFrame) -> str:
    rows = []
    for method, part in people.groupby("method", sort=False):
        cells = [str(method)]
        for _, some in part.groupby("n"):
            cells.append(f"{some['loss'].mean():.4f} ({100 * some['wrong'].mean():.1f})")
        rows.append(cells)
    return markdown(["questions", *[f"{n} asked" for n in sorted(people["n"].unique())]], rows)


def scale_table(tests: pd.DataFrame) -> str:
    rows = []
    for (name, persons, items), part in tests.groupby(["model", "persons", "items"], sort=False):
        for what, some in part.groupby("what", sort=False):
            share, total = some["inside"].sum() / some["count"].sum(), some["count"].sum()
            error = (0.09 / total) ** 0.5
            rows.append(
                [str(name), f"{persons:,} x {items}", str(what),
                 f"{some['apart'].mean():.2f} (at most {some['furthest'].max():.2f})",
                 f"{100 * share:.1f} ± {100 * error:.1f}"]
            )  # fmt: skip
    return markdown(["model", "test", "", "apart, s.e.", "covers, %"], rows)


def class_table(classes: pd.DataFrame) -> str:
    """Return one line for each kind of class and prior."""
    rows = []
    kinds = ["persons", "items", "strength", "prior"]
    for (persons, items, strength, prior), part in classes.groupby(kinds, sort=False):
        held = [f"{persons} x {items}", "half" if strength < 1.0 else "whole", str(prior)]
        for what in ("ability", "difficulty", "discrimination"):
            inside, count = int(part[f"{what} inside"].sum()), int(part[f"{what} count"].sum())
            held.append(f"{inside:,} of {count:,}" if count else "none")
        said, true = part["said"].mean(), part["true"].mean()
        rows.append([*held, f"{said:.2f}", f"{true:.2f}"])
    titles = ["test", "discriminations", "prior", "abilities", "difficulties", "discriminations"]
    return markdown([*titles, "reliability said", "true"], rows)


def year_table(years: pd.DataFrame) -> str:
    """Return one line for each model and number of common items."""
    rows = []
    for (name, persons, items, common), part in years.groupby(
        ["model", "persons", "items", "common"], sort=False
    ):
        held = [
            str(name),
            f"{persons} x {items}",
            f"{common:.0f}",
            f"{(part['mean'] ** 2).mean() ** 0.5:.3f}",
        ]
        for what in ("ability", "difficulty", "discrimination"):
            inside, count = int(part[f"{what} inside"].sum()), int(part[f"{what} count"].sum())
            held.append(f"{inside:,} of {count:,} ({100 * inside / count:.0f} %)")
        rows.append(held)
    titles = ["model", "test", "common items", "mean off by", "abilities", "difficulties"]
    return markdown([*titles, "discriminations"], rows)


def draw(shares: pd.DataFrame, path: Path) -> str:
    """Draw the errors of new models at random against the number of items; return the file's name."""
    from matplotlib.figure import Figure

    shares = shares[shares["split"] == "iid"]
    tables = [name for name in NAMES if (shares["table"] == name).any()]
    figure = Figure(figsize=(3.1 * max(len(tables), 2), 3.4), layout="constrained")
    axes = figure.subplots(1, max(len(tables), 1), squeeze=False)[0]
    styles = {
        "mean of random items": ("#999999", ":"), "ridge, random items": ("#E69F00", "--"),
        "2PL, random items": ("#CC79A7", "--"), "2PL, maximum information": ("#CC79A7", "-"),
        "ours, random items": ("#0072B2", "--"), "ours, fixed set": ("#56B4E9", "-"),
        "ours, adaptive": ("#0072B2", "-"),
    }  # fmt: skip
    for ax, table in zip(axes, tables, strict=False):
        part = shares[shares["table"] == table]
        for method, (colour, dash) in styles.items():
            mean = part[part["method"] == method].groupby("n")["error"].apply(lambda e: e.abs().mean())
            ax.plot(mean.index, mean, dash, color=colour, linewidth=1.8, label=method)
        ax.set_title(NAMES[table])
        ax.set_xscale("log")
        ax.set_xticks(sorted(part["n"].unique()), [str(n) for n in sorted(part["n"].unique())])
        ax.minorticks_off()
        ax.set_xlabel("items asked")
        ax.set_ylim(0, 7)
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("mean absolute error, points")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=130)
    figure.savefig(path.with_suffix(".svg"))
    return path.name
