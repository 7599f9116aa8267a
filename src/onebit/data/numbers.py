"""What counts as a number where a user gives one."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_number(value: Any) -> bool:
    """Say whether something is a number; True and False are none.

    Examples
    --------
    >>> from onebit.data.numbers import is_number
    >>> is_number(0.1), is_number(True), is_number("0.1")
    (True, False, False)
    """
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
