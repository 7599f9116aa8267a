"""The report's plots, as SVG in the page's own colours: they suit the dark and the light scheme."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.certificates.scores import Band
from onebit.completers.base import PairClassifier
from onebit.report import plots
from onebit.report.words import cut

Array = NDArray[np.float64]

# Drawn in these colours, shown in those of the page (see the template's style).
INK, BLUE, ORANGE, GREY, GREEN = "#1b1e23", plots.BLUE, "#d55e00", plots.GREY, plots.GREEN
_PAGE = {
    INK: "var(--ink)",
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    GREY: "var(--grey)",
    GREEN: "var(--good)",
}

_SIDES = {"rows": BLUE, "columns": ORANGE}
# A share of fewer answers than this says little.
ENOUGH = 5
# Characters of a word for yes that fit beside an axis.
_WORD = 16
# Curves of suspect items that are named.
_SUSPECTS = 4


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib as mpl

    settings: Any = {
        "svg.fonttype": "none", "font.size": 11.0, "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": GREY, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False,
        "axes.spines.right": False, "axes.grid": True, "grid.color": GREY, "grid.alpha": 0.22,
        "grid.linewidth": 0.7, "legend.frameon": False, "figure.facecolor": "none",
        "axes.facecolor": "none", "savefig.facecolor": "none", "axes.titlesize": 11.0,
        "axes.titlelocation": "left", "text.parse_math": False,
    }  # fmt: skip
    with mpl.rc_context(settings):
        yield


def _figure(height: float = 2.8) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, height), layout="constrained")
    return figure, figure.subplots()


def as_svg(figure: Any, name: str, what: str) -> str:
    """Return a figure as an SVG element for the page; ``name`` keeps its inner ids apart from others'."""
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # The page's policy allows no style but its own: what is said of joins and caps there is for all.
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' style="([^"]*)"', lambda found: _attributes(found[1]), svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    # Groups are called figure_1, axes_1, ... in every figure.
    svg = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    for drawn, shown in _PAGE.items():
        svg = re.sub(re.escape(drawn), shown, svg, flags=re.IGNORECASE)
    return svg.replace("<svg", f'<svg role="img" aria-label="{what}"', 1).strip()


def _attributes(style: str) -> str:
    """Return a style as attributes, which a policy without inline styles lets through."""
    found = {}
    for part in style.split(";"):
        name, _, value = part.partition(":")
        name, value = name.strip(), value.strip()
        if name == "font":  # older versions of matplotlib write the shorthand
            size = re.search(r"[\d.]+px", value)
            name, value = ("font-size", size[0]) if size else ("", "")
        if name and name != "font-family":
            found[name] = value
    return "".join(f' {name}="{value}"' for name, value in found.items())


def _steps(axes: Any, values: Array, edges: Array, colour: str) -> None:
    counts, _ = np.histogram(values, edges)
    axes.stairs(counts, edges, fill=True, color=colour, alpha=0.75)
    axes.set_ylim(bottom=0)


def answer_counts(counts: NDArray[np.int64], side: str) -> str:
    """Draw how many answers the rows (or the columns) have."""
    with _style():
        figure, axes = _figure(2.5)
        least, most = int(counts.min()), int(counts.max())
        edges: NDArray[np.floating]
        if most > 20 * max(least, 1):  # evenly spaced in logarithms
            edges = np.unique(np.round(np.geomspace(max(least, 1), most + 1, 28)).astype(int)) - 0.5
            axes.set_xscale("log", subs=[])
            axes.xaxis.get_major_locator().set_params(subs=(1.0, 2.0, 5.0))
        else:
            step = max(1, -(-(most + 1 - least) // 28))
            edges = np.arange(least, most + 1 + step, step) - 0.5
        _steps(axes, np.maximum(counts, edges[0]).astype(float), edges.astype(float), _SIDES[side])
        axes.set_xlabel("answers")
        axes.set_ylabel("how many")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value == int(value) else "")
        axes.yaxis.get_major_locator().set_params(integer=True)
        return as_svg(figure, f"counts-{side}", f"histogram of the answers of the {side}")


def yes_shares(counts: NDArray[np.int64], yes: NDArray[np.int64], side: str) -> str:
    """Draw the shares of yes of the rows (or the columns) that have at least ``ENOUGH`` answers."""
    with _style():
        figure, axes = _figure(2.5)
        enough = counts >= ENOUGH
        _steps(axes, 100 * yes[enough] / counts[enough], np.linspace(0, 100, 21), _SIDES[side])
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of its answers")
        axes.set_ylabel("how many")
        axes.yaxis.get_major_locator().set_params(integer=True)
        return as_svg(figure, f"yes-{side}", f"histogram of the shares of one answer, over the {side}")


_LOSS_MARKS = (("logistic", BLUE, "o"), ("hinge", ORANGE, "s"), ("gibbs", GREEN, "^"))


def search_trials(search: Any) -> str:
    """Draw the held-out log-loss of every trial of a search."""
    with _style():
        figure, axes = _figure()
        for loss, colour, mark in _LOSS_MARKS:
            which = np.flatnonzero(search["loss"].to_numpy() == loss)
            if not len(which):
                continue
            losses = search["log_loss"].to_numpy()[which]
            axes.plot(which + 1, losses, mark, color=colour, markersize=5, label=loss)
        axes.axhline(float(search["log_loss"].min()), color=GREY, linewidth=1, linestyle=":")
        if "chosen" in search and search["chosen"].any():
            which = np.flatnonzero(search["chosen"].to_numpy(dtype=bool))
            losses = search["log_loss"].to_numpy()[which]
            axes.plot(which + 1, losses, "o", color=GREY, markersize=11, fillstyle="none", label="chosen")
        axes.set_xlabel("trial of the search")
        axes.set_ylabel("held-out log-loss")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, borderaxespad=0.1)
        return as_svg(figure, "search", "held-out log-loss of every trial of the search")


def objective(path: Array, rounds: int) -> str:
    """Draw the course of the objective over the rounds."""
    with _style():
        figure, axes = _figure()
        course = rounds * np.arange(1, len(path) + 1) / len(path)
        axes.plot(course, path, color=BLUE, linewidth=2, marker="o", markersize=3)
        axes.set_xlabel("round of the descent")
        axes.set_ylabel("objective")
        axes.xaxis.get_major_locator().set_params(integer=True)
        return as_svg(figure, "objective", "the objective over the rounds of the descent")


def factor_shares(values: Array) -> Array:
    """Return each factor's share of the mean square of what all factors add to the scores."""
    squares = values**2
    return squares / max(float(squares.sum()), np.finfo(float).tiny)


def factors_kept(values: Array, rank: int) -> str:
    """Draw the shares of the factors; those beyond the rank, which vanished, are grey."""
    with _style():
        figure, axes = _figure()
        number, height = np.arange(1, len(values) + 1), 100 * factor_shares(values)
        axes.bar(number[:rank], height[:rank], color=BLUE)
        axes.bar(number[rank:], height[rank:], color=GREY, alpha=0.5)
        axes.set_xlabel("factor")
        axes.set_ylabel("share of what factors add, %")
        if len(values) <= 12:
            axes.set_xticks(number)
        axes.grid(axis="x", visible=False)
        return as_svg(figure, "factors", f"shares of the factors; {rank} are used")


def risk_coverage(model: PairClassifier, delta: float) -> str:
    """Draw the certified and the observed error of the surest predictions."""
    with _style():
        figure, axes = _figure(3.3)
        plots.risk_coverage(model, delta, ax=axes)
        top = axes.get_ylim()[1]
        axes.set_ylim(0, 1.35 * top)  # room for the legend
        return as_svg(figure, "coverage", "certified and observed error of the surest predictions")


def item_curves(model: PairClassifier, suspects: list[Any], yes: str) -> str:
    """Draw the characteristic curves of the items of a test, the first of some suspect ones by name."""
    with _style():
        figure, axes = _figure(3.3)
        plots.item_curves(model, ax=axes)
        if suspects and len(model.columns_) > plots.NAMED:
            plots.item_curves(model, suspects[:_SUSPECTS], ax=axes)
        axes.set_ylabel(f"probability of {cut(yes, _WORD)}")
        return as_svg(figure, "curves", "probability of yes of each item against the ability")


def information(model: PairClassifier) -> str:
    """Draw the information of a test and of its items."""
    with _style():
        figure, axes = _figure(3.3)
        plots.information(model, ax=axes)
        return as_svg(figure, "information", "information of the test against the ability")


def calibration(bands: Sequence[Band], sure: str, yes: str) -> str:
    """Draw how often the answer is yes against its probability, with intervals that hold all at once.

    ``sure`` is the probability with which they do, ``yes`` the word for the answer.
    """
    with _style():
        figure, axes = _figure(3.3)
        there = [band for band in bands if band.answers]
        stated, share, low, high = (
            100 * np.array([getattr(band, name) for band in there])
            for name in ("predicted", "observed", "low", "high")
        )
        axes.plot([0, 100], [0, 100], color=GREY, linestyle=":", linewidth=1.4, label="perfect")
        axes.errorbar(
            stated, share, yerr=[share - low, high - share], fmt="o", color=BLUE, capsize=3,
            label=f"held-out answers, {sure}",
        )  # fmt: skip
        axes.set_xlim(-2, 102)
        axes.set_ylim(-2, 102)
        axes.set_xlabel(f"probability of {cut(yes, _WORD)}, %")
        axes.set_ylabel(f"how often it is {cut(yes, _WORD)}, %")
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.1)
        return as_svg(figure, "calibration", "how often the answer is yes against its probability")
