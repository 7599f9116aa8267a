"""What a request may say: JSON, checked field by field before it reaches a model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

LONGEST_ID = 1000
_LARGEST = 2**63 - 1


class Refused(Exception):
    """A request that cannot be answered: an HTTP status, and a sentence that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def _no_constant(name: str) -> Any:
    raise Refused(400, f"{name} is no JSON")


def parsed(body: bytes) -> dict[str, Any]:
    """Return a body as a JSON object."""
    if not body:
        return {}
    try:
        found = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is no JSON that could be read") from None
    if not isinstance(found, dict):
        raise Refused(400, f"the body must be a JSON object, not {_kind(found)}")
    return found


def _kind(value: Any) -> str:
    names: dict[Any, str] = {list: "a list", dict: "an object", str: "text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


def fields(content: Mapping[str, Any], **rules: Callable[[Any, str], Any]) -> dict[str, Any]:
    """Return the fields of a request, each checked; what nobody knows is refused, not ignored."""
    unknown = [name for name in content if name not in rules]
    if unknown:
        known = ", ".join(rules)
        raise Refused(422, f"there is no field {unknown[0][:80]!r}; there are {known}")
    return {name: rule(content.get(name), name) for name, rule in rules.items()}


def identifier(value: Any, name: str) -> Any:
    """Check an id: text, a whole number or a finite one."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Refused(422, f"{name}: an id is text or a number, not {_kind(value)}")
    if isinstance(value, str):
        if not value.strip() or "\0" in value:  # in a table that would be no id
            raise Refused(422, f"{name}: an id is not empty, and holds no null character")
        if len(value) > LONGEST_ID:
            raise Refused(422, f"{name}: an id has at most {LONGEST_ID} characters, not {len(value)}")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:  # half of a pair of surrogates
            raise Refused(422, f"{name}: an id that is no Unicode text") from None
    elif abs(value) > _LARGEST or not math.isfinite(value):
        raise Refused(422, f"{name}: an id is a number of at most 63 bits")
    return value


def whole(least: int, most: int, default: int) -> Callable[[Any, str], int]:
    """Return a check for whole numbers."""

    def rule(value: Any, name: str) -> int:
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Refused(422, f"{name} must be whole, from {least} to {most}, not {shown(value)}")
        return value

    return rule


def share(default: float) -> Callable[[Any, str], float]:
    """Return a check for numbers between 0 and 1."""

    def rule(value: Any, name: str) -> float:
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < 1.0:
            raise Refused(422, f"{name} must be between 0 and 1, not {shown(value)}")
        return float(value)

    return rule


def text(most: int) -> Callable[[Any, str], str | None]:
    """Return a check for text."""

    def rule(value: Any, name: str) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not len(value) <= most:
            raise Refused(422, f"{name} must be text of at most {most} characters")
        return str(identifier(value, name)) if value else None

    return rule


def ids(most: int) -> Callable[[Any, str], list[Any] | None]:
    """Return a check for lists of ids."""

    def rule(value: Any, name: str) -> list[Any] | None:
        if value is None:
            return None
        return [identifier(one, name) for one in _list(value, name, most)]

    return rule


def optional_id(value: Any, name: str) -> Any:
    """Check an id that may be left out."""
    return None if value is None else identifier(value, name)


def pairs(most: int) -> Callable[[Any, str], list[tuple[Any, Any]]]:
    """Return a check for lists of pairs of ids."""

    def rule(value: Any, name: str) -> list[tuple[Any, Any]]:
        found = []
        for one in _list(value, name, most):
            if not isinstance(one, list) or len(one) != 2:
                raise Refused(422, f"{name} must be a list of pairs, such as [[row, column]]")
            found.append((identifier(one[0], name), identifier(one[1], name)))
        return found

    return rule


def answers(most: int, words: tuple[str, str] | None) -> Callable[[Any, str], list[tuple[Any, int]]]:
    """Return a check for the answers of one row: ``[[column, answer], ...]`` or ``{column: answer}``."""

    def rule(value: Any, name: str) -> list[tuple[Any, int]]:
        if value is None:
            return []
        if isinstance(value, dict):
            value = [[column, answer] for column, answer in value.items()]
        found = []
        for one in _list(value, name, most):
            if not isinstance(one, list) or len(one) != 2:
                raise Refused(422, f"{name} must be a list of [column, answer], or an object")
            found.append((identifier(one[0], name), _sign(one[1], name, words)))
        return found

    return rule


def _sign(value: Any, name: str, words: tuple[str, str] | None) -> int:
    if words is not None and value in words:
        return 1 if value == words[1] else -1
    if isinstance(value, (bool, int)) and value in (-1, 0, 1):
        return 1 if value == 1 else -1
    said = "" if words is None else f", {words[1]!r} or {words[0]!r}"
    raise Refused(422, f"{name}: an answer is true or false, 1 or 0{said}; not {shown(value)}")


def _list(value: Any, name: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise Refused(422, f"{name} must be a list, not {_kind(value)}")
    if len(value) > most:
        raise Refused(413, f"{name} has {len(value):,} entries; at most {most:,} go into one request")
    return value


def shown(value: Any) -> str:
    """Return a value as an error shows it: short, and nothing but itself."""
    try:
        written = json.dumps(value, ensure_ascii=True, default=str)
    except RecursionError:  # what can just be read may be nested too deeply to be written
        return "what is nested so deeply"
    return written if len(written) <= 60 else f"{written[:60]}..."
