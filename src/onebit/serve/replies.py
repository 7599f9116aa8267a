"""What a served model answers: plain functions from checked requests to JSON.

A new row is asked about as in an interview (``onebit.completers.interviews``): its answers travel with
each request, and nothing is kept of it here.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from onebit import __version__
from onebit.certificates.statements import confidence
from onebit.completers.interviews import Interview
from onebit.completers.questions import kept_for, population_of
from onebit.model.row_map import RowMap
from onebit.serve.requests import Refused, shown

Answers = list[tuple[Any, int]]

# Points of the map: more make a blot.
MOST_POINTS = 1500
DELTA = 0.05
# Unknown columns that a reply names.
MOST_NAMED = 5
OF_SHARE, OF_NAMED = "about the share of yes", "about the answers that are to be learnt"
OF_COLUMNS = (
    "low and high: where the model believes the probability to lie, given these answers; a variational "
    "model, and one of few rows, is too sure of that"
)
OF_WHOM = (
    "a credible interval: it takes this row to be one of a population like the {rows:,} rows that the "
    "model knows, and its answers to be given as theirs were"
)


def plain(value: Any) -> Any:
    """Return an id as JSON can hold it: numbers and text as they are, anything else as text."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, (str, int, float)) and not isinstance(value, bool) else str(value)


def rounded(value: float) -> float:
    """Return a probability to four digits, which is more than it is worth."""
    return round(float(value), 4)


def words_of(model: Any) -> tuple[str, str] | None:
    """Return the two answers, where the model's were words."""
    if model.classes_.dtype.kind != "U":
        return None
    no, yes = model.classes_.tolist()
    return no, yes


def _known_as(index: Any) -> str:
    return "number" if index.labels.inferred_type in ("integer", "floating") else "text"


def can_ask(model: Any) -> str | None:
    """Return why the model cannot be asked about new rows; None where it can."""
    try:
        population_of(model, "asking (/api/next, /api/fold-in, /api/rows, the map)")
    except (ValueError, AttributeError) as error:
        return str(error)
    return None


def card(model: Any, name: str, version: str, stores: bool) -> dict[str, Any]:
    """Return what a model is: its size, its kind, its certificate and of whom that speaks."""
    certificate = None
    if model.held_out_ is not None:
        found = model.certify(DELTA)
        certificate = {
            "sentence": found.sentence(),
            "bound": found.bound,
            "probability": confidence(DELTA),
            "observed": found.observed(),
            "assumes": list(found.assumptions),
            "trivial": bool(found.trivial),
        }
    titles = [index.labels.name for index in (model.rows_, model.columns_)]
    return {
        "name": name,
        "version": version,
        "onebit": __version__,
        "kind": type(model).__name__,
        "sampled": model.is_sampled,
        "rows": len(model.rows_),
        "columns": len(model.columns_),
        "answers": model.n_observations_,
        "updates": {"times": model.updates_.times, "answers": model.updates_.answers},
        "row_name": str(titles[0]) if titles[0] else "row",
        "column_name": str(titles[1]) if titles[1] else "column",
        "row_ids": _known_as(model.rows_),
        "column_ids": _known_as(model.columns_),
        "yes": str(model.classes_[1]),
        "no": str(model.classes_[0]),
        "certificate": certificate,
        "cannot_ask": can_ask(model),
        "stores_answers": stores,
    }


def predict(model: Any, wanted: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Return what is predicted of pairs of ids."""
    if not wanted:
        return {"predictions": []}
    rows, columns = (
        encoded(index, [pair[side] for pair in wanted])
        for side, index in enumerate((model.rows_, model.columns_))
    )
    found = model.predictions(rows, columns)
    lines = [
        {
            "row": plain(row),
            "column": plain(column),
            "probability": rounded(found.probability[k]),
            "answer": plain(model.classes_[int(found.yes[k])]),
            "confidence": rounded(found.confidence[k]),
            "known": bool(rows[k] >= 0 and columns[k] >= 0),
        }
        for k, (row, column) in enumerate(wanted)
    ]
    return {"predictions": lines}


def encoded(index: Any, values: list[Any]) -> NDArray[np.int32]:
    """Return the codes of ids; those of another kind than the model's are refused."""
    misfit = index.misfit(values)
    if misfit is not None:
        words, value = misfit
        raise Refused(422, f"{index.side} ids of this model are {words}, not {shown(value)}")
    try:
        return index.encode(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused(422, str(error)) from None


def known_codes(index: Any, values: list[Any], status: int) -> NDArray[np.int32]:
    """Return the codes of ids that the model must know."""
    codes = encoded(index, values) if values else np.empty(0, np.int32)
    if (codes < 0).any():
        missing = values[int(np.argmax(codes < 0))]
        raise Refused(status, f"the model does not know the {index.side} {missing!r}")
    return codes


def interview(model: Any, answers: Answers, **settings: Any) -> tuple[Interview, dict[str, Any]]:
    """Return an interview with a row that has given some answers, and what was skipped of them."""
    why = can_ask(model)
    if why is not None:
        raise Refused(422, why)
    codes = encoded(model.columns_, [column for column, _ in answers]) if answers else np.empty(0)
    known = [answer for answer, code in zip(answers, codes, strict=True) if code >= 0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            begun = Interview(model, known, **settings)
    except (ValueError, TypeError) as error:
        raise Refused(422, str(error)) from None
    unknown = [column for (column, _), code in zip(answers, codes, strict=True) if code < 0]
    return begun, {"skipped": len(unknown), "unknown": unknown[:MOST_NAMED]}


def fold_in(
    model: Any, answers: Answers, columns: list[Any] | None, n: int, level: float, questions: int
) -> dict[str, Any]:
    """Return what is known of a new row from its answers, and nothing is kept of it.

    With ``questions`` come the next ones, which cost little more here than by themselves.
    """
    asked, skipped = interview(model, answers, level=level)
    chance = asked.probability()
    blank = np.ones(len(chance), dtype=bool)
    blank[model.columns_.encode(asked.columns) if asked.columns else []] = False

    def lines(codes: NDArray[np.integer]) -> list[dict[str, Any]]:
        return [
            {
                "column": plain(model.columns_.labels[code]),
                "probability": rounded(chance[code]),
                "low": rounded(low),
                "high": rounded(high),
            }
            for code, (low, high) in zip(codes, _intervals(asked, codes, level), strict=True)
        ]

    left = np.flatnonzero(blank)
    sure = np.abs(chance[left] - 0.5)
    order = left[np.argsort(-sure, kind="stable")]
    named = None
    if columns is not None:
        named = lines(known_codes(model.columns_, columns, 422))
    plane = map_of(model)
    point, covariance = plane.place(asked.standing)
    return {
        "share": {
            "mean": rounded(asked.share),
            "low": rounded(asked.low),
            "high": rounded(asked.high),
            "level": level,
            "speaks_of": OF_WHOM.format(rows=len(model.rows_)),
        },
        "place": {
            "at": [rounded(value) for value in point],
            "covariance": [[rounded(value) for value in part] for part in covariance],
        },
        "intervals": OF_COLUMNS,
        "surest": lines(order[:n]),
        "least_sure": lines(order[::-1][:n]),
        "predictions": named,
        "questions": _questions(asked, questions, OF_SHARE),
        "used": len(asked.columns),
        **skipped,
    }


def _intervals(asked: Interview, codes: NDArray[np.integer], level: float) -> NDArray[np.float64]:
    """Return intervals of the probabilities, of what is not known of the row and of the columns."""
    mean, variance = asked.score_moments(np.asarray(codes, dtype=np.int64))
    half = float(ndtri(0.5 + 0.5 * level)) * np.sqrt(variance)
    return expit(np.column_stack([mean - half, mean + half]))


def next_questions(
    model: Any, answers: Answers, n: int, goal: list[Any] | str, among: list[Any] | None
) -> dict[str, Any]:
    """Return the questions whose answers would tell most of a new row."""
    asked, skipped = interview(model, answers, goal=goal, among=among)
    about = {"mean": OF_SHARE, "row": "about all of the answers"}
    goal_words = about.get(goal, OF_NAMED) if isinstance(goal, str) else OF_NAMED
    questions = _questions(asked, n, goal_words)
    return {"questions": questions, "finished": asked.finished, **skipped}


def _questions(asked: Interview, n: int, about: str) -> list[dict[str, Any]]:
    """Return the next questions, if there are any left."""
    return [
        {
            "column": plain(question.column),
            "yes": rounded(question.yes),
            "gain": rounded(question.gain),
            "why": _why(question.yes, question.gain, about),
        }
        for question in (asked.questions(n) if n and asked.finished is None else [])
    ]


def _why(yes: float, gain: float, about: str) -> str:
    """Say why a question is asked."""
    if 0.35 <= yes <= 0.65:
        open_question = "Either answer is about as likely"
    else:
        open_question = f'"Yes" is expected with {yes:.0%}'
    return (
        f"{open_question}, and the answer is expected to take away {gain:.1%} of what is still uncertain "
        f"{about}."
    )


def recommend(model: Any, row: Any, answers: Answers | None, n: int) -> dict[str, Any]:
    """Return the columns that a row most likely says "yes" to, of those that it has not answered."""
    if answers is not None:
        asked, skipped = interview(model, answers)
        chance = asked.probability()
        if asked.columns:
            chance[model.columns_.encode(asked.columns)] = -1.0
        order = np.argsort(-chance, kind="stable")[:n]
        lines = [
            {"column": plain(model.columns_.labels[code]), "probability": rounded(chance[code])}
            for code in order
            if chance[code] >= 0
        ]
        return {"columns": lines, **skipped}
    if encoded(model.rows_, [row])[0] < 0:
        raise Refused(404, f"the model does not know the row {row!r}; send its answers instead")
    frame = model.recommend([row], n, answered=not model.answers_kept)
    lines = [
        {"column": plain(column), "probability": rounded(chance)}
        for column, chance in zip(frame.iloc[:, 2], frame["probability"], strict=True)
    ]
    return {"columns": lines, "answered_too": not model.answers_kept}


def rows(model: Any, wanted: list[Any], level: float) -> dict[str, Any]:
    """Return the shares of "yes" of rows that the model knows, with credible intervals."""
    if not model.answers_kept:
        raise Refused(422, "this model has not kept its answers; send a row's answers to /api/fold-in")
    why = can_ask(model)
    if why is not None:
        raise Refused(422, why)
    lines = []
    for code in known_codes(model.rows_, wanted, 404):
        asked = Interview(model, model.rows_.labels[code], level=level)
        point = map_of(model).points[code]
        lines.append(
            {
                "row": plain(model.rows_.labels[code]),
                "answers": len(asked.columns),
                "share": rounded(asked.share),
                "low": rounded(asked.low),
                "high": rounded(asked.high),
                "at": [rounded(value) for value in point],
            }
        )
    return {"rows": lines, "level": level, "speaks_of": OF_WHOM.format(rows=len(model.rows_))}


def search(model: Any, side: int, text: str | None, n: int, offset: int) -> dict[str, Any]:
    """Return ids that contain a text, in the order in which they are listed."""
    index = (model.rows_, model.columns_)[side]
    names = kept_for(model, f"_searched_{side}", lambda: [str(one) for one in index.listed_labels])
    wanted = (text or "").casefold()
    found = [place for place, name in enumerate(names) if wanted in name.casefold()]
    shown = [plain(index.listed_labels[place]) for place in found[offset : offset + n]]
    return {"ids": shown, "found": len(found)}


def map_of(model: Any) -> RowMap:
    """Return the map of a model's rows; made once."""
    return kept_for(model, "_row_map", lambda: RowMap.of(population_of(model, "the map")))


def map_points(model: Any) -> dict[str, Any]:
    """Return the map: some of the rows, and what the ends of its axes mean."""
    why = can_ask(model)
    if why is not None:
        raise Refused(422, why)
    plane = map_of(model)
    count = len(plane.points)
    some = np.linspace(0, count - 1, min(count, MOST_POINTS)).astype(int)

    def labels(codes: list[int]) -> list[Any]:
        return [plain(model.columns_.labels[code]) for code in codes]

    return {
        "ids": [plain(model.rows_.labels[code]) for code in some],
        "at": [[rounded(value) for value in point] for point in plane.points[some]],
        "axes": [
            dict(zip(("low", "high"), map(labels, plane.ends(axis, 3)), strict=True))
            for axis in range(plane.dimensions)
        ],
        "of": count,
    }
