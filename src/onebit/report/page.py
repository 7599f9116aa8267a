"""The report's page: facts and figures put into the template."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from onebit import __version__
from onebit.certificates import Certificate, SelectiveCertificate, above, at_most, confidence
from onebit.estimator import PairClassifier
from onebit.files import written_whole
from onebit.ladder import Ladder
from onebit.report import figures
from onebit.report.layout import effects_of, factors_of, plane, principal
from onebit.summary import settings_of

# More points than this make the map slow, and a blot; those with the most answers are shown.
MOST_POINTS = 1500
_EXTREMES = 8
_SURPRISES = 20


def write_report(model: PairClassifier, path: str | os.PathLike[str], title: str | None = None) -> int:
    """Write the report of a fitted model to an HTML file; return its size in bytes.

    Parameters
    ----------
    model : completer
        Best fitted with ``fit(..., certify=share)``: certificates and data need it.
    path : path
        Written whole or not at all.
    title : str, optional
        The heading; else the name of the file that the answers came from.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from onebit import LogisticCompleter, simulate
    >>> from onebit.report import write_report
    >>> world = simulate.world("B1", rank=2, shape=(60, 50), density=0.5, seed=0)
    >>> model = LogisticCompleter(4, random_state=0).fit(world.pairs, world.answers, certify=0.2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(model, pathlib.Path(folder) / "report.html") > 10_000
    True
    """
    content = render_report(model, title).encode("utf-8", "replace")
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")
    with written_whole(path) as temporary:
        temporary.write_bytes(content)
    return len(content)


def render_report(model: PairClassifier, title: str | None = None) -> str:
    """Return the report of a fitted model as HTML."""
    check_installed()
    import jinja2

    source = files("onebit.report").joinpath("template.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["percent"] = _percent
    environment.filters["at_most"] = lambda bound: at_most(bound, 1).replace("%", " %")
    environment.filters["above"] = above
    environment.filters["confidence"] = confidence
    environment.filters["count"] = lambda value: f"{value:,}"
    return environment.from_string(source).render(_facts(model, title))


def check_installed() -> None:
    """Refuse where what a report is drawn with is not installed."""
    for name in ("jinja2", "matplotlib"):
        if find_spec(name) is None:
            raise ImportError(f"a report needs {name}: pip install 'onebit[report]'")


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def script_json(value: Any) -> str:
    """Return JSON that can stand inside a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _facts(model: PairClassifier, title: str | None) -> dict[str, Any]:
    from markupsafe import Markup

    if model.record_ is None and model._answers is not None:
        from onebit.record import Record

        model.record_ = Record.of(model)
    record = model.record_
    source = dict.fromkeys(("file", "columns", "command", "seconds", "threshold", "bad_lines"))
    source |= {} if record is None else record.source
    part: Any = getattr(model, "completer_", model)
    size = (len(model.rows_), len(model.columns_))
    names = [model.rows_.labels.name, model.columns_.labels.name]
    row_name, column_name = (
        str(name) if isinstance(name, str) else side
        for name, side in zip(names, ("row", "column"), strict=True)
    )
    facts: dict[str, Any] = {
        "title": title or source.get("file") or "A completed yes/no matrix",
        "version": __version__,
        "rows": size[0],
        "columns": size[1],
        "row_name": row_name,
        "column_name": column_name,
        "answers": model.n_observations_,
        "density": model.n_observations_ / (size[0] * size[1]),
        "rank": int(getattr(model, "rank_", 0)),
        "class_name": type(model).__name__,
        "yes_word": "yes" if str(model.classes_[1]) in ("1", "True", "1.0") else str(model.classes_[1]),
        "record": record,
        "source": source,
        "settings": _readable(settings_of(model)),
        "fit": _fit_facts(part),
        "certificate": None,
        "headline": None,
        "ladder": [],
        "selective": None,
        "figures": {},
        "surprises": [],
        "extremes": _extremes(model),
        "map": Markup(script_json(_map(model, row_name, column_name))),
        "map_cut": max(size) > MOST_POINTS,
        "most_points": MOST_POINTS,
        "python": _python(model),
    }
    drawn: dict[str, str] = {}
    if record is not None:
        facts["yes"] = int(record.row_yes.sum()) / max(record.n_answers, 1)
        for side, counts, yes in (
            ("rows", record.row_counts, record.row_yes),
            ("columns", record.column_counts, record.column_yes),
        ):
            drawn[f"{side}_counts"] = figures.answer_counts(counts, side)
            drawn[f"{side}_yes"] = figures.yes_shares(counts, yes, side)
        facts["surprises"] = _surprises(model)
    path = getattr(part, "objective_path_", None)
    if path is not None and len(path):
        drawn["objective"] = figures.objective(np.asarray(path), int(part.n_iter_))
    search = getattr(model, "search_", None)
    if search is not None and len(search):
        drawn["search"] = figures.search_trials(search)
    values = principal(*factors_of(model))[0]
    if len(values):
        drawn["columns"] = figures.columns_kept(values, facts["rank"])
    _add_certificates(model, facts, drawn)
    facts["figures"] = {name: Markup(svg) for name, svg in drawn.items()}
    return facts


def _add_certificates(model: PairClassifier, facts: dict[str, Any], drawn: dict[str, str]) -> None:
    issued = () if model.record_ is None else model.record_.certificates
    single = [certificate for certificate in issued if isinstance(certificate, Certificate)]
    if not single and model.held_out_ is not None:
        single = [model.held_out_.certify(0.05)]
    ladders = [certificate for certificate in issued if isinstance(certificate, Ladder)]
    if single:
        facts["certificate"] = facts["headline"] = single[-1]
    if ladders:
        facts["ladder"] = sorted(ladders[-1].certificates, key=lambda rung: -rung.bound)
        facts["ladder_delta"] = ladders[-1].delta
        facts["headline"] = facts["headline"] or ladders[-1].best
    elif single:
        facts["ladder"], facts["ladder_delta"] = single[-1:], single[-1].delta
    held_out = model.held_out_
    if held_out is None:
        return
    drawn["calibration"] = figures.calibration(held_out.confidence, held_out.wrong)
    if held_out.disagreement is None:
        shares = [certificate for certificate in issued if isinstance(certificate, SelectiveCertificate)]
        selective = shares[-1] if shares else held_out.certify_selective(0.05)
        facts["selective"] = selective
        drawn["coverage"] = figures.risk_coverage(model, selective.delta)


def _fit_facts(part: Any) -> str:
    found = []
    if hasattr(part, "n_iter_"):
        settled = (
            "it settled" if getattr(part, "converged_", True) else "it was stopped before it settled"
        )
        found.append(f"After {part.n_iter_:,} rounds {settled}")
    if hasattr(part, "objective_"):
        found.append(f"at an objective of {part.objective_:.5f}")
    if hasattr(part, "gap_"):
        found.append(f"at most {part.gap_:.2g} above the least possible")
    return ", ".join(found)


def _readable(settings: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (name.replace("_", " "), _value(value)) for name, value in settings.items() if name != "verbose"
    ]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_value(part)}" for name, part in value.items())
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _python(model: PairClassifier) -> str:
    """Return the call that makes such a model."""
    from onebit.models import plain_parameters

    defaults = type(model)().get_params(deep=False)
    settings = {
        name: value for name, value in plain_parameters(model).items() if defaults.get(name) != value
    }
    call = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return f"{type(model).__name__}({call})"


def _surprises(model: PairClassifier) -> list[dict[str, Any]]:
    assert model.record_ is not None
    found = model.record_.surprises
    return [
        {
            "row": str(model.rows_.labels[row]),
            "column": str(model.columns_.labels[column]),
            "answer": str(model.classes_[int(sign > 0)]),
            "probability": float(probability),
            "held_out": bool(held),
        }
        for row, column, sign, probability, held in islice(
            zip(found.rows, found.columns, found.sign, found.probability, found.held_out, strict=True),
            _SURPRISES,
        )
    ]


def _extremes(model: PairClassifier) -> list[dict[str, Any]]:
    """Return the rows and the columns that say yes most and least readily."""
    tables = []
    for effect, index, side in zip(
        effects_of(model), (model.rows_, model.columns_), ("rows", "columns"), strict=True
    ):
        if effect is None:
            continue
        order = np.argsort(-effect, kind="stable")
        few = min(_EXTREMES, len(order) // 2)
        ends = [
            [(str(index.labels[k]), f"{effect[k]:+.2f}") for k in places]
            for places in (order[:few], order[::-1][:few])
        ]
        tables.append({"side": side, "most": ends[0], "least": ends[1]})
    return tables


def _map(model: PairClassifier, row_name: str, column_name: str) -> dict[str, Any]:
    """Return the points of the map, as the page's script takes them."""
    placed = plane(model)
    record = model.record_
    sides = []
    for points, index, name, seen, yes, effect in zip(
        (placed.rows, placed.columns),
        (model.rows_, model.columns_),
        (row_name, column_name),
        (None, None) if record is None else (record.row_counts, record.column_counts),
        (None, None) if record is None else (record.row_yes, record.column_yes),
        effects_of(model),
        strict=True,
    ):
        counts = np.zeros(len(points), dtype=np.int64)
        said = np.zeros(len(points), dtype=np.int64)
        if seen is not None and yes is not None:
            counts[: len(seen)], said[: len(yes)] = seen, yes
        order = np.argsort(-counts, kind="stable")[:MOST_POINTS]
        sides.append(
            {
                "name": name,
                "ids": [str(index.labels[k]) for k in order],
                "x": [round(float(value), 4) for value in points[order, 0]],
                "y": [round(float(value), 4) for value in points[order, 1]],
                "answers": counts[order].tolist(),
                "yes": said[order].tolist(),
                "effect": None if effect is None else [round(float(effect[k]), 3) for k in order],
            }
        )
    return {"x": placed.x, "y": placed.y, "sides": sides}
