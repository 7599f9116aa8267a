"""The figure: error against the share of flipped answers."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from onebit.study.methods import METHODS, ORACLE
from onebit.study.plan import NOISE_RANK

# Okabe and Ito's palette, which colour-blind readers can tell apart; the paper's methods are dashed.
_STYLES = {
    "Logit-G": ("#56B4E9", "--", "v"),
    "Logit-IG": ("#0072B2", "--", "^"),
    "HL-G": ("#E69F00", "--", "s"),
    "HL-IG": ("#D55E00", "--", "D"),
    "freq. Logit": ("#8c8c8c", "--", "x"),
    "engine hinge": ("#CC79A7", "-", "o"),
    "engine logistic": ("#009E73", "-", "o"),
    "engine Gibbs": ("#b8a000", "-", "o"),
    "AutoCompleter": ("#000000", "-", "o"),
    ORACLE: ("#8c8c8c", ":", ""),
}


def draw_noise(noise: pd.DataFrame, png: Path, svg: Path) -> None:
    """Draw the figure from columns ``method``, ``flip`` and ``error``, and write it in both formats."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "onebit", "font.size": 12}):
        figure = Figure(figsize=(10.0, 5.2), layout="constrained")
        axis = figure.subplots()
        for method in (*METHODS, ORACLE):
            chosen = noise[noise["method"] == method]
            if chosen.empty:
                continue
            groups = 100 * chosen.groupby("flip")["error"].agg(["mean", "sem"]).fillna(0.0)
            colour, line, marker = _STYLES[method]
            width = 2.6 if method == "AutoCompleter" else 1.6
            label = "oracle (knows the noise)" if method == ORACLE else method
            axis.plot(
                100 * groups.index, groups["mean"], line, color=colour, marker=marker, markersize=4,
                linewidth=width, label=label,
            )  # fmt: skip
            low, high = groups["mean"] - 2 * groups["sem"], groups["mean"] + 2 * groups["sem"]
            axis.fill_between(100 * groups.index, low.clip(lower=0), high, color=colour, alpha=0.15, lw=0)
        axis.set_xlabel("answers flipped, %")
        axis.set_ylabel("entries whose sign is wrong, %")
        axis.set_title(f"World A2, rank {NOISE_RANK}: what noise does", loc="left")
        axis.set_xlim(0, 100 * noise["flip"].max())
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside right upper", frameon=False)
        figure.savefig(png, format="png", dpi=160)
        figure.savefig(svg, format="svg", metadata={"Date": None})
