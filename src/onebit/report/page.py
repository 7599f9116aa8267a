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
from numpy.typing import NDArray

from onebit import __version__
from onebit.certificates.ladder import Ladder
from onebit.certificates.scores import calibration_bands
from onebit.certificates.statements import (
    Certificate,
    GroupCertificate,
    SelectiveCertificate,
    above,
    at_most,
    confidence,
)
from onebit.completers.base import PairClassifier
from onebit.completers.logistic import LogisticCompleter
from onebit.completers.record import Record
from onebit.data.files import written_whole
from onebit.data.tables.answers import option
from onebit.model.diagnostics import sampling_words
from onebit.report import figures
from onebit.report.items import ENOUGH_ANSWERS, MISFIT, items_of
from onebit.report.layout import effects_of, factors_of, on_one_ruler, places, principal, scale_of
from onebit.report.persons import MOST_PLACED, persons_of
from onebit.report.policy import policy
from onebit.report.shares import LEVEL, can_be_told, shares_of_columns
from onebit.report.summary import answer_count, answered_share, settings_of
from onebit.report.told import strongest_features
from onebit.report.words import (
    Sides,
    cut,
    descent_words,
    number,
    objective_words,
    share,
    whole,
)

Array = NDArray[np.float64]

# Of the sheet of all that is certified.
SHEET_DELTA = 0.05
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
    content = render_report(model, title).encode("utf-8")
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
    from markupsafe import Markup

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["percent"] = share
    environment.filters["at_most"] = lambda bound: at_most(bound).replace("%", " %")
    environment.filters["above"] = above
    environment.filters["confidence"] = confidence
    environment.filters["count"] = lambda value: f"{value:,}"
    environment.filters["number"] = number
    environment.filters["cut"] = cut
    style, script = _part("style.css"), _part("script.js")
    page = environment.from_string(_part("template.html")).render(
        _facts(model, title)
        | {"style": Markup(style), "script": Markup(script), "policy": Markup(policy([style], [script]))}
    )
    return whole(page)


def _part(name: str) -> str:
    return files("onebit.report").joinpath(name).read_text(encoding="utf-8")


def check_installed() -> None:
    """Refuse where what a report is drawn with is not installed."""
    for name in ("jinja2", "matplotlib"):
        if find_spec(name) is None:
            raise ImportError(f"a report needs {name}: pip install 'onebit[report]'")


def script_json(value: Any) -> str:
    """Return JSON that can stand inside a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _facts(model: PairClassifier, title: str | None) -> dict[str, Any]:
    from markupsafe import Markup

    if model.record_ is None and model.answers_kept:
        model.record_ = model.describe()
    record = model.record_
    source: dict[str, Any] = dict.fromkeys(
        ("file", "columns", "command", "seconds", "threshold", "bad_lines", "time_column")
    )
    source |= {} if record is None else record.source
    size = (len(model.rows_), len(model.columns_))
    sides = Sides.of(model)
    scale = scale_of(model)
    placed = places(model) if scale is None else on_one_ruler(scale)
    told, told_of = strongest_features(model, sides)
    facts: dict[str, Any] = {
        "title": title or source.get("file") or "A completed yes/no table",
        "version": __version__,
        "rows": size[0],
        "columns": size[1],
        "row_name": sides.row,
        "column_name": sides.column,
        "answers": answer_count(model),
        "density": answered_share(model),
        "rank": int(getattr(model, "rank_", 0)),
        "class_name": type(model).__name__,
        "yes_word": sides.yes,
        "record": record,
        "updated": model.updates_.words(),
        "source": source,
        "settings": _readable(settings_of(model)),
        "descent": descent_words(model),
        "objective_meaning": objective_words(model),
        "sampling": " ".join(sampling_words(model)),
        "log_odds": _log_odds(model),
        "has_effects": any(effect is not None for effect in effects_of(model)),
        "certificate": None,
        "reliability": None if scale is None else scale.reliability,
        "ladder": [],
        "groups": None,
        "selective": None,
        "sheet": None,
        "new_rows": None,
        "other_times": None,
        "figures": {},
        "data": [],
        "surprises": [],
        "extremes": _extremes(model, sides),
        "told": told,
        "told_of": told_of,
        "told_sampled": model.predictor_.gaussian is None,
        "dimensions": placed[0].shape[1],
        "map": Markup(script_json(_map(model, sides, placed))),
        "map_cut": max(size) > MOST_POINTS,
        "most_points": MOST_POINTS,
        "python": _python(model),
    }
    drawn: dict[str, str] = {}
    if record is not None:
        facts["yes"] = int(record.row_yes.sum()) / max(record.n_answers, 1)
        facts["data"] = [
            part | {"figure": part["figure"] and Markup(part["figure"])} for part in _data(record, sides)
        ]
        facts["surprises"] = _surprises(model, sides)
    _add_fit(model, facts, drawn)
    _add_certificates(model, facts, drawn)
    _add_scale(model, facts, drawn)
    facts["shares"], facts["share_level"] = [], LEVEL
    if facts["log_odds"] and scale is None and can_be_told(model):
        facts["shares"], facts["share_draws"] = shares_of_columns(model)
    facts["figures"] = {name: Markup(svg) for name, svg in drawn.items()}
    return facts


def _data(record: Record, sides: Sides) -> list[dict[str, str]]:
    """Return, of each side, a picture or a sentence of its answers, and of its shares of yes."""
    both = (
        ("rows", sides.row, record.row_counts, record.row_yes),
        ("columns", sides.column, record.column_counts, record.column_yes),
    )
    answers, shares = [], []
    for side, name, counts, yes in both:
        known = counts[counts > 0]
        enough = int((counts >= figures.ENOUGH).sum())
        one = {"caption": f"Answers of each {name}", "figure": "", "words": ""}
        without = len(counts) - len(known)
        if without:
            one["words"] = f"{without:,} of {len(counts):,} have no answer."
        if len(known) and known.min() == known.max():
            many = f"{known[0]:,} answer{'s' if known[0] != 1 else ''}"
            said = f"Every {'other ' if without else ''}{name} has {many}."
            one["words"] = f"{one['words']} {said}".strip() if len(known) > 1 else f"One {name}, {many}."
        elif len(known):
            one["figure"] = figures.answer_counts(known, side)
        answers.append(one)
        two = {"caption": f"Share of {sides.yes} of each {name}", "figure": "", "words": ""}
        if enough:
            two["figure"] = figures.yes_shares(counts, yes, side)
            if enough < len(known):
                two["words"] = (
                    f"Counts {enough:,} of {len(known):,}: those with at least {figures.ENOUGH} answers."
                )
        else:
            two["words"] = f"No {name} has {figures.ENOUGH} answers, too few for a share."
        shares.append(two)
    return answers + shares


def _log_odds(model: PairClassifier) -> bool:
    part: Any = getattr(model, "completer_", model)
    return isinstance(part, LogisticCompleter)


def _add_fit(model: PairClassifier, facts: dict[str, Any], drawn: dict[str, str]) -> None:
    part: Any = getattr(model, "completer_", model)
    path = getattr(part, "objective_path_", None)
    if path is not None and len(path) > 1:
        drawn["objective"] = figures.objective(np.asarray(path), int(part.n_iter_))
    search = getattr(model, "search_", None)
    if search is not None and len(search):
        drawn["search"] = figures.search_trials(search)
    values = principal(*factors_of(model))[0]
    facts["allowed"] = len(values)
    facts["strength"] = float(np.sqrt((values[: facts["rank"]] ** 2).sum()))
    if len(values) > 1 and facts["rank"]:
        drawn["factors"] = figures.factors_kept(values, facts["rank"])


def _add_certificates(model: PairClassifier, facts: dict[str, Any], drawn: dict[str, str]) -> None:
    issued = () if model.record_ is None else model.record_.certificates
    single = [c for c in issued if isinstance(c, Certificate) and c.of_this_model]
    if not single and model.held_out_ is not None:
        single = [model.held_out_.certify(0.05)]
    ladders = [certificate for certificate in issued if isinstance(certificate, Ladder)]
    if single:
        facts["certificate"] = single[-1]
    if ladders:
        facts["ladder"] = sorted(ladders[-1].certificates, key=lambda rung: -rung.bound)
        facts["ladder_delta"] = ladders[-1].delta
    groups = [certificate for certificate in issued if isinstance(certificate, GroupCertificate)]
    held_out = model.held_out_
    if model.held_rows_ is not None:
        facts["new_rows"] = model.held_rows_.certify(SHEET_DELTA)
        facts["rows_held_out"] = len(model.held_rows_.judged)
    as_counted = held_out is not None and held_out.disagreement is None
    if as_counted or model.held_rows_ is not None:
        facts["sheet"] = model.sheet(SHEET_DELTA)
    if held_out is None:
        return
    if held_out.at_random:
        facts["other_times"] = facts["source"]["time_column"]
        facts["hold_later"] = option("--certify-after", facts["other_times"] or "")
    if as_counted:
        bands = calibration_bands(held_out, SHEET_DELTA)
        drawn["calibration"] = figures.calibration(bands, confidence(SHEET_DELTA), facts["yes_word"])
        facts["calibrated_where"] = held_out.where
        shares = [certificate for certificate in issued if isinstance(certificate, SelectiveCertificate)]
        selective = shares[-1] if shares else held_out.certify_selective(0.05)
        facts["selective"] = selective
        facts["groups"] = groups[-1] if groups else model.certify(0.05, by="answer")
        drawn["coverage"] = figures.risk_coverage(model, selective.delta)


def _add_scale(model: PairClassifier, facts: dict[str, Any], drawn: dict[str, str]) -> None:
    """Add curves, items and persons, where a sampled model is one of item response theory."""
    facts["items"] = []
    if facts["reliability"] is None:
        return
    facts["items"] = items_of(model, facts["yes_word"])
    facts["misfit"], facts["enough_answers"] = MISFIT, ENOUGH_ANSWERS
    facts["few_answers"] = any(0 < item.answers < ENOUGH_ANSWERS for item in facts["items"])
    facts["persons"], facts["most_placed"] = persons_of(model), MOST_PLACED
    suspects = [item.id for item in facts["items"] if item.suspect]
    drawn["curves"] = figures.item_curves(model, suspects, facts["yes_word"])
    drawn["information"] = figures.information(model)


def _readable(settings: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (name.replace("_", " "), _value(value)) for name, value in settings.items() if name != "verbose"
    ]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_value(part)}" for name, part in value.items())
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return number(value)
    return number(value, "d") if isinstance(value, int) else str(value)


def _python(model: PairClassifier) -> str:
    """Return the call that makes such a model."""
    from onebit.completers.archive import plain_parameters

    defaults = type(model)().get_params(deep=False)
    settings = {
        name: value for name, value in plain_parameters(model).items() if defaults.get(name) != value
    }
    if "prior" in settings:  # which says itself how it is made
        settings["prior"] = model.get_params()["prior"]
    call = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return f"{type(model).__name__}({call})"


def _surprises(model: PairClassifier, sides: Sides) -> list[dict[str, Any]]:
    assert model.record_ is not None
    found = model.record_.surprises
    return [
        {
            "row": str(model.rows_.labels[row]),
            "column": str(model.columns_.labels[column]),
            "answer": sides.yes if sign > 0 else sides.no,
            "probability": float(probability),
        }
        for row, column, sign, probability in islice(
            zip(found.rows, found.columns, found.sign, found.probability, strict=True), _SURPRISES
        )
    ]


def _extremes(model: PairClassifier, sides: Sides) -> list[dict[str, Any]]:
    """Return the rows and the columns of the highest and of the lowest effects."""
    tables = []
    for effect, index, name in zip(
        effects_of(model), (model.rows_, model.columns_), (sides.row, sides.column), strict=True
    ):
        if effect is None or len(effect) < 2:
            continue
        effect = effect - effect.mean()  # beside the average one, which is what a reader compares with
        order = np.argsort(-effect, kind="stable")
        few = min(_EXTREMES, len(order) // 2)
        for end, chosen in (("highest", order[:few]), ("lowest", order[::-1][:few])):
            lines = [(str(index.labels[k]), number(effect[k], "+.2f")) for k in chosen]
            tables.append({"side": name, "end": end, "lines": lines})
    return tables


def _map(model: PairClassifier, sides: Sides, placed: tuple[Array, Array]) -> dict[str, Any]:
    """Return the points of the map, as the page's script takes them."""
    record = model.record_
    found = []
    for points, index, name, seen, yes, effect in zip(
        placed,
        (model.rows_, model.columns_),
        (sides.row, sides.column),
        (None, None) if record is None else (record.row_counts, record.column_counts),
        (None, None) if record is None else (record.row_yes, record.column_yes),
        effects_of(model),
        strict=True,
    ):
        counts = np.zeros(len(points), dtype=np.int64)
        said = np.zeros(len(points), dtype=np.int64)
        if seen is not None and yes is not None:
            counts[: len(seen)], said[: len(yes)] = seen, yes
        shown = MOST_POINTS if points.shape[1] else 0
        order = np.argsort(-counts, kind="stable")[:shown]
        found.append(
            {
                "name": name,
                "ids": [str(index.labels[k]) for k in order],
                "at": [[round(float(value), 4) for value in axis] for axis in points[order].T],
                "answers": counts[order].tolist(),
                "yes": said[order].tolist(),
                "effect": None if effect is None else [round(float(effect[k]), 3) for k in order],
            }
        )
    return {"yes": sides.yes, "sides": found}
