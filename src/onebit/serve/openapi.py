"""The OpenAPI description of what a served model answers."""

from __future__ import annotations

from typing import Any

from onebit import __version__
from onebit.serve.guard import Settings

_ID = {"oneOf": [{"type": "string"}, {"type": "number"}]}
_IDS = {"type": "array", "items": _ID}
_SHARE = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_ANSWER = {
    "description": "true or false, 1 or 0, or one of the model's two words",
    "oneOf": [{"type": "boolean"}, {"type": "integer", "enum": [-1, 0, 1]}, {"type": "string"}],
}
_ANSWERS = {
    "description": "The answers of one row: [[column, answer], ...], or an object where ids are text. "
    "Those about columns that the model does not know are skipped and counted.",
    "oneOf": [
        {"type": "array", "items": {"type": "array", "prefixItems": [_ID, _ANSWER], "minItems": 2}},
        {"type": "object", "additionalProperties": _ANSWER},
    ],
}


def _whole(least: int, most: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}


# Each path: method, what it does, the fields of a request, and those that must be there.
_PATHS: dict[str, tuple[str, str, dict[str, Any], list[str]]] = {
    "/api/model": (
        "get",
        "The model: its size, its kind, the two answers, and its certificate with what it speaks of.",
        {},
        [],
    ),
    "/api/predict": (
        "post",
        "Predict pairs of ids. Of an id that the model does not know (known: false) only what is known "
        "of the other one counts.",
        {"pairs": {"type": "array", "items": {"type": "array", "items": _ID, "minItems": 2}}},
        ["pairs"],
    ),
    "/api/fold-in": (
        "post",
        "What is known of a new row from its answers, which are not kept: its share of yes with a "
        "credible interval, its place on the map, the columns the model is surest and least sure of, "
        "and those named. The row is taken to be one of a population like the known rows; low and high "
        "hold what is not known of the row, at the level asked for. With questions above zero the next "
        "questions come along, as from /api/next with the goal mean.",
        {
            "answers": _ANSWERS,
            "columns": _IDS,
            "n": _whole(0, 100, 5),
            "level": _SHARE,
            "questions": _whole(0, 20, 0),
        },
        [],
    ),
    "/api/recommend": (
        "post",
        "The columns that a known row, or a new one with these answers, most likely says yes to, of "
        "those it has not answered. A list of the best is a selection: no certificate of all predictions "
        "speaks of it.",
        {"row": _ID, "answers": _ANSWERS, "n": _whole(1, 100, 10)},
        [],
    ),
    "/api/next": (
        "post",
        "The questions whose answers would tell most of a new row: of its share of yes (goal mean), of "
        "all its answers (row), or of columns named.",
        {
            "answers": _ANSWERS,
            "n": _whole(1, 20, 1),
            "goal": {"oneOf": [{"type": "string", "enum": ["mean", "row"]}, _IDS]},
            "among": _IDS,
        },
        [],
    ),
    "/api/rows": (
        "post",
        "Known rows: the share of yes of those named, with a credible interval, or the ids that contain "
        "a text.",
        {
            "rows": _IDS,
            "level": _SHARE,
            "search": {"type": "string"},
            "n": _whole(0, 100, 20),
            "offset": _whole(0, 2**31, 0),
        },
        [],
    ),
    "/api/columns": (
        "get",
        "The ids of columns that contain a text.",
        {"search": {"type": "string"}, "n": _whole(0, 100, 20), "offset": _whole(0, 2**31, 0)},
        [],
    ),
    "/api/map": ("get", "The map of the known rows, and what the ends of its axes mean.", {}, []),
    "/api/answers": (
        "post",
        "Keep new answers of a row for the next update (only with --store). They are on the disk when "
        "this is answered. The same key with the same answers stores them once; with others it is "
        "refused.",
        {"key": {"type": "string", "maxLength": 200}, "row": _ID, "answers": _ANSWERS},
        ["key", "row", "answers"],
    ),
    "/api/health": ("get", "Whether the server is there.", {}, []),
    "/api/metrics": ("get", "Counts and times of requests, as Prometheus reads them.", {}, []),
}
PATHS = tuple(_PATHS)
_REFUSALS = {
    "400": "no JSON",
    "401": "a token is needed",
    "404": "not known here",
    "413": "too large",
    "415": "not sent as JSON",
    "422": "a field is wrong; the error says which, and why",
    "503": "too many requests at once, or this took too long",
}


def description(settings: Settings) -> dict[str, Any]:
    """Return the whole description."""
    refusals = {
        status: {
            "description": what,
            "content": {
                "application/json": {
                    "schema": {"type": "object", "properties": {"error": {"type": "string"}}}
                }
            },
        }
        for status, what in _REFUSALS.items()
    }
    paths: dict[str, Any] = {}
    for path, (method, what, fields, needed) in _PATHS.items():
        kind = "text/plain" if path == "/api/metrics" else "application/json"
        good = {"description": "the answer", "content": {kind: {"schema": {}}}}
        operation: dict[str, Any] = {"summary": what, "responses": {"200": good, **refusals}}
        if method == "get":
            operation["parameters"] = [
                {"name": name, "in": "query", "schema": schema} for name, schema in fields.items()
            ]
        else:
            schema = {
                "type": "object", "properties": fields, "required": needed,
                "additionalProperties": False,
            }  # fmt: skip
            operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
        paths[path] = {method: operation}
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "onebit",
            "version": __version__,
            "description": f"Fills the blanks of a yes/no table. Limits of one request: "
            f"{settings.max_body:,} bytes, {settings.max_pairs:,} pairs, {settings.max_answers:,} "
            f"answers, {settings.timeout:g} seconds; {settings.max_requests} requests at once.",
        },
        "paths": paths,
    }
    if settings.token is not None:
        found["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        found["security"] = [{"token": []}]
    return found
