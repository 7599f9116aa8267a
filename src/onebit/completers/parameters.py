"""Checks of constructor parameters: one clear error that names the parameter and its value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np


def plain(value: Any) -> Any:
    """Return a number as one of Python's own, and anything else as it is.

    Sums of narrow integers wrap around, and kernels are compiled for every kind of number that they meet.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit.completers.parameters import plain
    >>> plain(np.uint8(200)) + 100, plain(np.float16(0.5)), plain("auto")
    (300, 0.5, 'auto')
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    if isinstance(value, Integral):
        return int(value)
    try:
        return float(value)
    except OverflowError:  # a fraction beyond all floats
        return np.inf


class Check(Protocol):
    """A rule that a parameter's value must meet."""

    def explain(self) -> str:
        """Say what is allowed, to follow "must be"."""
        ...

    def allows(self, value: Any) -> bool:
        """Say whether ``value`` is allowed."""
        ...


@dataclass(frozen=True)
class Whole:
    """An integer of at least ``least``, and at most ``most`` where that is given."""

    least: int
    most: int | None = None

    def explain(self) -> str:
        """Say what is allowed."""
        said = f"an integer of at least {self.least}"
        return said if self.most is None else f"{said} and at most {self.most:,}"

    def allows(self, value: Any) -> bool:
        """Say whether ``value`` is allowed."""
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        return bool(whole and int(value) >= self.least and (self.most is None or int(value) <= self.most))


@dataclass(frozen=True)
class Positive:
    """A finite number above zero, and at most ``most``."""

    most: float = np.inf

    def explain(self) -> str:
        """Say what is allowed."""
        return "a positive finite number" + ("" if self.most == np.inf else f" of at most {self.most:g}")

    def allows(self, value: Any) -> bool:
        """Say whether ``value`` is allowed."""
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        number = plain(value)
        return bool(np.isfinite(number) and 0 < number <= self.most)


@dataclass(frozen=True)
class OneOf:
    """One of a few values."""

    values: tuple[Any, ...]

    def explain(self) -> str:
        """Say what is allowed."""
        return ("one of " if len(self.values) > 1 else "") + ", ".join(map(repr, self.values))

    def allows(self, value: Any) -> bool:
        """Say whether ``value`` is allowed."""
        if isinstance(value, np.generic):
            value = value.item()
        return any(type(value) is type(allowed) and value == allowed for allowed in self.values)


@dataclass(frozen=True)
class Some:
    """A tuple or list of some of a few values, ``always`` among them."""

    values: tuple[Any, ...]
    always: Any

    def explain(self) -> str:
        """Say what is allowed."""
        return (
            f"a tuple or list of some of {', '.join(map(repr, self.values))}, {self.always!r} among them"
        )

    def allows(self, value: Any) -> bool:
        """Say whether ``value`` is allowed."""
        named = isinstance(value, (tuple, list)) and all(OneOf(self.values).allows(one) for one in value)
        return named and self.always in value


@dataclass(frozen=True)
class Device:
    """The name of a place to compute."""

    def explain(self) -> str:
        """Say what is allowed."""
        return '"cpu", "auto", "cuda" or, among several GPUs, such as "cuda:1"'

    def allows(self, value: Any) -> bool:
        """Say whether ``value`` is allowed."""
        named = r"cpu|auto|cuda(:(0|[1-9][0-9]?))?"
        return isinstance(value, str) and re.fullmatch(named, value) is not None


@dataclass(frozen=True)
class Instance:
    """An object of some type, or what ``other`` allows."""

    kinds: tuple[type, ...]
    other: Check

    def explain(self) -> str:
        """Say what is allowed."""
        return f"{self.other.explain()} or an instance of " + ", ".join(
            kind.__name__ for kind in self.kinds
        )

    def allows(self, value: Any) -> bool:
        """Say whether ``value`` is allowed."""
        return isinstance(value, self.kinds) or self.other.allows(value)


@dataclass(frozen=True)
class Either:
    """What one of two rules allows."""

    first: Check
    second: Check

    def explain(self) -> str:
        """Say what is allowed."""
        return f"{self.first.explain()} or {self.second.explain()}"

    def allows(self, value: Any) -> bool:
        """Say whether ``value`` is allowed."""
        return self.first.allows(value) or self.second.allows(value)


def check_parameters(estimator: Any, checks: Mapping[str, Check]) -> None:
    """Raise ValueError for the first parameter of ``estimator`` that breaks its rule."""
    for name, check in checks.items():
        value = getattr(estimator, name)
        if not check.allows(value):
            raise ValueError(
                f"{type(estimator).__name__}: {name} must be {check.explain()}, got {value!r}"
            )
