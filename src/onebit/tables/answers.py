"""How people write yes and no.

A file keeps to one pair of words (yes and no, or 1 and 0, ...), so that a column with three values is
noticed and not guessed at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# (no, yes), in lower case. The first pair that holds a word is the word's.
_PAIRS = (
    (("0",), ("1",)),
    (("-1",), ("1",)),
    (("no",), ("yes",)),
    (("n",), ("y",)),
    (("false",), ("true",)),
    (("f",), ("t",)),
    (("dislike",), ("like",)),
    (("disliked",), ("liked",)),
    (("dislikes",), ("likes",)),
    (("wrong",), ("right",)),
    (("incorrect",), ("correct",)),
    (("fail",), ("pass",)),
    (("failed",), ("passed",)),
    (("unsolved",), ("solved",)),
    (("nay",), ("yea", "aye")),
    (("against",), ("for",)),
    (("down",), ("up",)),
    (("negative",), ("positive",)),
    (("disagree",), ("agree",)),
    (("lost",), ("won",)),
    (("loss",), ("win",)),
    (("inactive",), ("active",)),
)
_BLANKS = frozenset(("", "na", "n/a", "nan", "null", "none", "<na>"))

BLANK, BAD = 0, 2


def is_blank(text: str) -> bool:
    """Say whether a field means that there is no answer."""
    return text.strip().lower() in _BLANKS


def looks_like_answer(text: str) -> bool:
    """Say whether a field could be an answer or a blank."""
    word = _plain_number(text.strip().lower())
    return word in _BLANKS or any(word in no + yes for no, yes in _PAIRS)


def _plain_number(word: str) -> str:
    """Write 1.0, +1 and 01 as 1."""
    number = _number(word)
    return str(int(number)) if number in (-1.0, 0.0, 1.0) else word


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


class Vocabulary:
    """Turns what is written in a file into signs; it settles on one pair of words as it reads.

    Parameters
    ----------
    threshold : float, optional
        The fields are numbers, and those above it are "yes".
    yes, no : sequence of str, optional
        The words themselves, where they are none of the usual ones.

    Examples
    --------
    >>> from onebit.tables.answers import Vocabulary
    >>> words = Vocabulary()
    >>> words.signs(["Yes", "no", "", "maybe"]).tolist()  # 0: blank, 2: bad
    [1, -1, 0, 2]
    >>> words.classes.tolist()
    ['no', 'Yes']
    """

    def __init__(
        self,
        threshold: float | None = None,
        yes: Sequence[str] | None = None,
        no: Sequence[str] | None = None,
    ) -> None:
        if threshold is not None and not math.isfinite(threshold):
            raise ValueError(f"the threshold must be a number, got {threshold!r}")
        if threshold is not None and (yes or no):
            raise ValueError("give a threshold or the words for yes and no, not both")
        if bool(yes) != bool(no):
            raise ValueError("give the words for yes and for no, not only one of them")
        both = set(yes or ()) & set(no or ())
        if both:
            raise ValueError(f"{sorted(both)[0]!r} cannot mean both yes and no")
        self.threshold = threshold
        self._words = None if not yes or not no else (tuple(no), tuple(yes))
        self._candidates = [self._words] if self._words else list(_PAIRS)
        self._written: dict[int, str] = {}

    def signs(self, texts: Sequence[str]) -> NDArray[np.int8]:
        """Return 1, -1, ``BLANK`` or ``BAD`` for each of some distinct fields."""
        return np.array([self._sign(text) for text in texts], dtype=np.int8)

    def _sign(self, text: str) -> int:
        if self._words and text.strip() in self._words[0] + self._words[1]:  # a blank may be a word here
            return 1 if text.strip() in self._words[1] else -1
        if is_blank(text):
            return BLANK
        word = text.strip()
        if self.threshold is not None:
            number = _number(word)
            if number is None or math.isnan(number):
                return BAD
            return 1 if number > self.threshold else -1
        if self._words:
            return BAD
        word = _plain_number(word.lower())
        fitting = [pair for pair in self._candidates if word in pair[0] + pair[1]]
        if not fitting:
            return BAD
        self._candidates = fitting
        sign = 1 if word in fitting[0][1] else -1
        self._written.setdefault(sign, text.strip())
        return sign

    def reason(self, text: str) -> str:
        """Say what is wrong with a field that was found bad."""
        if self.threshold is not None:
            return f"the answer {text!r} is not a number"
        if self._words:
            no, yes = (" or ".join(map(repr, words)) for words in self._words)
            return f"the answer {text!r} is neither {yes} nor {no}"
        if self._written:
            before = " and ".join(repr(self._written[sign]) for sign in sorted(self._written))
            return f"the answer {text!r} does not go with {before}, which came before"
        return f"the answer {text!r} is no yes or no"

    def hint(self, text: str) -> str:
        """Say what to do about it."""
        if self.threshold is None and not self._words and _number(text) is not None:
            return "if these are ratings, say above which one is a yes: --threshold 3.5"
        if self.threshold is None and not self._words:
            return "name the words with --yes and --no, or leave such lines out with --skip-bad"
        return ""

    @property
    def classes(self) -> NDArray[Any]:
        """The two answers, "no" first, as the file writes them."""
        if self._words:
            return np.array([self._words[0][0], self._words[1][0]])
        no, yes = self._candidates[0]
        if self.threshold is not None or no == ("0",):
            return np.array([0, 1])
        if no == ("-1",):
            return np.array([-1, 1])
        if no == ("false",):
            return np.array([False, True])
        return np.array([self._written.get(-1, no[0]), self._written.get(1, yes[0])])
