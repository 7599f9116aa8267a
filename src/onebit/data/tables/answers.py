"""How people write yes and no.

A file keeps to one pair of words (yes and no, or 1 and 0, ...), so that a column with three values is
noticed and not guessed at.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.data.tables.problems import NOT_UTF8, shown

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

# Distinct numbers that are listed when a threshold divides them.
_MOST_VALUES = 12
# Kinds of answer that a message lists.
_LISTED = 5
# More numbers than these among words are no answers.
_FEW_NUMBERS = 4


def is_blank(text: str) -> bool:
    """Say whether a field means that there is no answer."""
    return text.strip().lower() in _BLANKS


@lru_cache(maxsize=1024)
def looks_like_answer(text: str) -> bool:
    """Say whether a field could be an answer or a blank."""
    word = _plain_number(text.strip().lower())
    return word in _BLANKS or any(word in no + yes for no, yes in _PAIRS)


def sign_of_word(text: str) -> int | None:
    """Return +1 for a word that means yes, -1 for one that means no, None for any other.

    Examples
    --------
    >>> from onebit.data.tables.answers import sign_of_word
    >>> [sign_of_word(word) for word in ("Yes", "0", "solved", "perhaps")]
    [1, -1, 1, None]
    """
    word = _plain_number(text.strip().lower())
    for no, yes in _PAIRS:
        if word in no + yes:
            return 1 if word in yes else -1
    return None


def _plain_number(word: str) -> str:
    """Write 1.0, +1 and 01 as 1."""
    number = _number(word)
    return str(int(number)) if number in (-1.0, 0.0, 1.0) else word


def _as_number(text: str) -> str:
    """Say how to write what would be a number but for a percent sign or a decimal comma; or nothing."""
    bare = text.strip()
    if bare.endswith("%") and _number(bare.rstrip("% ").replace(",", ".")) is not None:
        return "take the % signs out"
    if bare.count(",") == 1 and _number(bare.replace(",", ".")) is not None:
        return f"write {bare.replace(',', '.')}, with a decimal point"
    return ""


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def kinds_of(found: Mapping[str, int]) -> dict[str, int]:
    """Return the kinds of answer among some fields, and how often each was found."""
    kinds: dict[str, int] = {}
    for text, count in found.items():
        if count and not is_blank(text):
            kinds[text.strip()] = kinds.get(text.strip(), 0) + count
    return kinds


def counted(kinds: Mapping[str, int]) -> str:
    """List the commonest few kinds of answer with their counts."""
    common = sorted(kinds, key=lambda kind: -kinds[kind])[:_LISTED]
    said = [f"{shown(kind)} ({kinds[kind]:,})" for kind in common]
    if len(kinds) > _LISTED:
        said.append(f"{len(kinds) - _LISTED:,} more")
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"


def option(name: str, value: str) -> str:
    """Write an option as it is typed in a shell."""
    return f"{name}={shlex.quote(value)}" if value.startswith("-") else f"{name} {shlex.quote(value)}"


def looks_like_ratings(kinds: Iterable[str]) -> bool:
    """Say whether some kinds of answer could be ratings: from 0 to 10, by halves."""
    numbers = [_number(kind) for kind in kinds]
    return all(
        number is not None and 0 <= number <= 10 and (2 * number).is_integer() for number in numbers
    )


def _middle(kinds: Iterable[str]) -> str:
    """Return a threshold between some numbers, as an example: 3.5 of stars from 1 to 5."""
    numbers = [number for number in map(_number, kinds) if number is not None and math.isfinite(number)]
    if not numbers or min(numbers) <= 3.5 < max(numbers) <= 5:
        return "3.5"
    if min(numbers) == max(numbers):
        return "NUMBER"
    return f"{(min(numbers) + max(numbers)) / 2:g}"


def _rank_of_word(text: str) -> int:
    """Order words by what they usually mean: no first, then what is not known, then yes."""
    word = _plain_number(text.lower())
    meant = [sign for pair in _PAIRS for sign, words in zip((-1, 1), pair, strict=True) if word in words]
    return meant[0] if meant else 0


class Vocabulary:
    """Turns what is written in a file into signs; it settles on one pair of words as it reads.

    Parameters
    ----------
    threshold : float, optional
        The fields are numbers, and those above it are "yes".
    yes, no : sequence of str, optional
        The words themselves, where they are none of the usual ones.
    blank : sequence of str, optional
        Words (or numbers) that mean that there is no answer: pass, don't know, 99.

    Examples
    --------
    >>> from onebit.data.tables.answers import Vocabulary
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
        blank: Sequence[str] | None = None,
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
        both = set(blank or ()) & (set(yes or ()) | set(no or ()))
        if both:
            raise ValueError(f"{sorted(both)[0]!r} cannot be an answer and a blank")
        self._blank = {word.strip().lower() for word in blank or ()}
        self._above: dict[bool, dict[str, None]] = {False: {}, True: {}}
        self.threshold = threshold
        self._words = None if not yes or not no else (tuple(no), tuple(yes))
        self._candidates = [self._words] if self._words else list(_PAIRS)
        self._written: dict[int, str] = {}

    def settings(self) -> dict[str, Any]:
        """Return what was asked for, as JSON."""
        words = None if self._words is None else [list(part) for part in self._words]
        return {"threshold": self.threshold, "words": words, "blank": sorted(self._blank)}

    def signs(self, texts: Sequence[str]) -> NDArray[np.int8]:
        """Return 1, -1, ``BLANK`` or ``BAD`` for each of some distinct fields."""
        return np.array([self._sign(text) for text in texts], dtype=np.int8)

    def _sign(self, text: str) -> int:
        if self._words and text.strip() in self._words[0] + self._words[1]:  # a blank may be a word here
            return 1 if text.strip() in self._words[1] else -1
        if is_blank(text) or text.strip().lower() in self._blank:
            return BLANK
        word = text.strip()
        if self.threshold is not None:
            number = _number(word)
            if number is None or math.isnan(number):
                return BAD
            above = number > self.threshold
            if len(self._above[above]) <= _MOST_VALUES:
                self._above[above][word] = None
            return 1 if above else -1
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

    def one_sided(self) -> tuple[str, str] | None:
        """Return both numbers where a threshold is beside two which are answers by themselves."""
        no, yes = ({_plain_number(text) for text in self._above[above]} for above in (False, True))
        both = no | yes
        if (no and yes) or both not in ({"0", "1"}, {"-1", "1"}):
            return None
        return min(both), "1"

    def divided(self) -> str:
        """Say which numbers a threshold has made yes and no, where they are few."""
        if self.threshold is None or any(len(part) > _MOST_VALUES for part in self._above.values()):
            return ""
        no, yes = (
            ", ".join(sorted(part, key=lambda text: _number(text) or 0.0)) or "none"
            for part in (self._above[False], self._above[True])
        )
        return f"above {self.threshold:g} and so yes: {yes}; no: {no} (--blank leaves a number out)"

    def settle(self, texts: Sequence[str], codes: NDArray[np.int32]) -> None:
        """Keep to the pair of words that the most columns of a wide table keep to.

        Else a column in front that holds no answers (m and f, of persons) could be taken for the pair.

        Parameters
        ----------
        texts : sequence of str
            Distinct fields.
        codes : array of shape (lines, columns)
            Which of them stands where.
        """
        if self.threshold is not None or self._words or self._written:
            return
        words = [_plain_number(text.strip().lower()) for text in texts]
        blank = np.array([is_blank(text) for text in texts])
        votes = []
        for no, yes in self._candidates:
            fits = np.array([word in no + yes for word in words])
            votes.append(int((fits | blank)[codes].all(axis=0).sum()) if fits.any() else 0)
        if max(votes):
            self._candidates = [
                pair for pair, vote in zip(self._candidates, votes, strict=True) if vote == max(votes)
            ]

    def reason(self, text: str, found: Mapping[str, int]) -> str:
        """Say what is wrong with a bad field, among fields that were ``found`` so often."""
        if self.threshold is not None:
            return f"the answer {text!r} is not a number"
        if self._words:
            no, yes = (" or ".join(map(repr, words)) for words in self._words)
            return f"the answer {text!r} is neither {yes} nor {no}"
        if NOT_UTF8 in text:
            return f"the answer {shown(text)} is not UTF-8"
        kinds = kinds_of(found)
        if len(kinds) == 2:
            return f"the answers {counted(kinds)} are no usual pair"
        if len(kinds) > 2:
            return f"there are more than two kinds of answer: {counted(kinds)}"
        return f"the answer {text!r} is no yes or no"

    def hint(self, found: Mapping[str, int], text: str = "") -> str:
        """Say what to do about a bad field ``text``, among fields that were ``found`` so often."""
        if self.threshold is not None:
            return _as_number(text)
        if self._words and not text.strip():
            return ""
        if self._words:
            return f"{self.taken_for(text)}, mend it, or leave bad lines out with --skip-bad"
        kinds = list(kinds_of(found))
        others = "say --blank WORD for each that is no answer"
        numbers = {_number(kind) for kind in kinds}
        if kinds and all(kind.strip().endswith("%") and _as_number(kind) for kind in kinds):
            middle = _middle([kind.strip().rstrip("% ") for kind in kinds])
            return (
                f"if these are ratings in percent, {_as_number(kinds[0])}, and say --threshold {middle}"
            )
        if any(NOT_UTF8 in kind for kind in kinds):
            return "save the file as UTF-8, or leave lines with such answers out with --skip-bad"
        if numbers == {-1.0, 0.0, 1.0}:
            return f"name the two that count, for example --yes 1 --no=-1, and {others}"
        advice = []
        if len(kinds) == 2:
            no, yes = sorted(kinds, key=_rank_of_word)
            known = _rank_of_word(no) != _rank_of_word(yes)
            words = f"{option('--yes', yes)} {option('--no', no)}" if known else "--yes WORD --no WORD"
            advice.append(f"say which means yes: {words}")
        if None not in numbers:
            advice.append(
                f"if these are ratings, say above which one is a yes: --threshold {_middle(kinds)}"
            )
        if None in numbers and len(numbers) > _FEW_NUMBERS:
            others = "leave columns out that hold no answers, with --drop NAME for each"
        if len(kinds) != 2:
            advice.append(f"name the words with --yes and --no, and {others}")
        return "; or ".join(advice)

    def taken_for(self, text: str) -> str:
        """Say what a word may be taken for: a named one, if only their case differs, or a blank."""
        bare = text.strip()
        for name, words in zip(("--no", "--yes"), self._words or (), strict=False):
            if bare.casefold() in [word.strip().casefold() for word in words]:
                return f"name it, too, with {option(name, bare)}"
        return f"take it for a blank with {option('--blank', bare)}"

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
