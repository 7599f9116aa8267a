"""The figure: accuracy against time, a panel a matrix."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.summary import Line

# Okabe and Ito's palette, which colour-blind readers can tell apart.
_STYLES = {
    "onebit": ("#000000", "o"),
    "effects": ("#8c8c8c", "x"),
    "libmf": ("#D55E00", "s"),
    "smurff": ("#0072B2", "^"),
    "cmfrec": ("#009E73", "D"),
    "implicit": ("#CC79A7", "v"),
    "myfm": ("#56B4E9", "P"),
    "surprise": ("#b8a000", "<"),
    "torch": ("#E69F00", ">"),
}


def draw(panels: dict[str, tuple[list[Line], float | None]], threads: int, path: Path) -> None:
    """Draw the courses at one number of threads; ``panels`` maps titles to lines and the best possible.

    Writes ``path`` as SVG and as PNG.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "onebit", "font.size": 11}):
        figure = Figure(figsize=(5.0 * len(panels) + 1.0, 5.0), layout="constrained")
        handles = {}
        for axis, (title, (lines, best)) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            shown = [line for line in lines if threads in line.courses]
            for line in shown:
                colour, marker = _STYLES[line.name]
                points = line.courses[threads].points
                axis.plot(
                    *zip(*points, strict=True), color=colour, linewidth=1.4, marker=".", markersize=4
                )
                (handles[line.title],) = axis.plot(
                    *points[-1], linestyle="", color=colour, marker=marker, markersize=8, label=line.title
                )
            if best is not None:
                axis.axhline(best, color="#8c8c8c", linestyle=":", linewidth=1.2)
                axis.annotate("the truth", (0.01, best), xycoords=("axes fraction", "data"), va="bottom")
            top = max([line.courses[threads].accuracy for line in shown] + ([best] if best else []))
            floor = min(line.courses[threads].accuracy for line in shown)
            # The first rounds of some are near chance; what matters is the top of the panel.
            axis.set_ylim(max(floor - 0.01, top - 0.09), top + 0.006)
            axis.set_xscale("log")
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.set_xlabel(f"seconds of fitting, {threads} thread{'s' if threads > 1 else ''}")
            axis.set_title(title, loc="left", fontsize=11)
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
        figure.axes[0].set_ylabel("accuracy on the test answers")
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=5, frameon=False)
        figure.savefig(path.with_suffix(".png"), format="png", dpi=130)
        figure.savefig(path.with_suffix(".svg"), format="svg", metadata={"Date": None})
