"""A realistic world with a known truth: students and exercises.

Students have a general ability and one for each topic; exercises a topic, a difficulty and a chance to be
guessed; some are popular and some rare, some students are busy and some are not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]

_FIRST = (
    "Ada Ali Ana Aya Ben Bo Cem Chi Dana Eli Emma Eva Finn Gita Hana Hugo Ida Ines Ivan Jana Jin Jonas "
    "Kai Lara Leo Lin Luca Maja Mara Max Mia Nia Nils Noa Nora Omar Pia Quinn Rana Rosa Ravi Sam Sara "
    "Sofia Tao Theo Tim Uma Vera Yara Yuki Zoe"
)  # fmt: skip
TOPICS = ("fractions", "equations", "geometry", "graphs", "probability")


@dataclass(frozen=True)
class School:
    """Students, exercises, who solved what, and the truth.

    Attributes
    ----------
    students, exercises : ndarray of str
        Their names; an exercise's begins with its topic.
    chance : ndarray of shape (students, exercises)
        The probability that the student solves the exercise.
    sampling : ndarray of shape (students, exercises)
        The probability of each entry to be the next one answered.
    pairs : ndarray of shape (n, 2)
        Which entries were answered, as (student, exercise) numbers.
    solved : ndarray of bool
        Their answers.
    """

    students: NDArray[np.str_]
    exercises: NDArray[np.str_]
    chance: Array
    sampling: Array
    pairs: NDArray[np.int64]
    solved: NDArray[np.bool_]

    def frame(self) -> pd.DataFrame:
        """Return the answers as a table with readable names."""
        student, exercise = self.pairs.T
        return pd.DataFrame(
            {
                "student": self.students[student],
                "exercise": self.exercises[exercise],
                "solved": np.where(self.solved, "yes", "no"),
            }
        )

    def chance_of_error(self, scores: Array) -> Array:
        """Return, for each entry, how likely a fresh answer differs from the predicted sign."""
        return np.where(scores == 0, 1.0, np.where(scores > 0, 1.0 - self.chance, self.chance))

    def risk(self, scores: Array) -> float:
        """Return the error rate of predicted signs on fresh answers that come like the observed ones."""
        return float((self.sampling * self.chance_of_error(scores)).sum())


def school(students: int = 400, exercises: int = 150, answers: int = 14_000, seed: int = 0) -> School:
    """Draw a school.

    Parameters
    ----------
    students, exercises, answers : int
        How many; an entry may be answered several times, as exercises are tried again.
    seed : int
        The draw.

    Examples
    --------
    >>> from onebit.data.school import school
    >>> drawn = school(30, 20, 300, seed=1)
    >>> drawn.frame().columns.tolist(), len(drawn.frame())
    (['student', 'exercise', 'solved'], 300)
    """
    if min(students, exercises, answers) < 1:
        raise ValueError(
            f"a school needs students, exercises and answers; got {students}, {exercises}, {answers}"
        )
    rng = np.random.default_rng(seed)
    topic = rng.integers(len(TOPICS), size=exercises)
    general = rng.normal(0.4, 0.8, size=(students, 1))
    ability = general + rng.normal(0.0, 1.2, size=(students, len(TOPICS)))
    difficulty = rng.normal(0.0, 1.1, size=exercises)
    guess = rng.choice([0.02, 0.2], size=exercises, p=[0.6, 0.4])  # the second kind is multiple choice
    chance = guess + (1.0 - guess) * expit(1.5 * (ability[:, topic] - difficulty))
    busy = rng.lognormal(0.0, 0.7, size=students)
    popular = rng.permutation((np.arange(exercises) + 3.0) ** -0.8)
    sampling = np.outer(busy, popular)
    sampling /= sampling.sum()
    entry = rng.choice(sampling.size, size=answers, p=sampling.ravel())
    pairs = np.stack(np.divmod(entry, exercises), axis=1)
    solved = rng.random(answers) < chance.ravel()[entry]
    number = np.zeros(exercises, dtype=int)
    for k in range(len(TOPICS)):
        number[topic == k] = np.arange(1, (topic == k).sum() + 1)
    names = np.array([f"{TOPICS[t]} {n:02d}" for t, n in zip(topic, number, strict=True)])
    return School(_student_names(students), names, chance, sampling, pairs, solved)


def _student_names(count: int) -> NDArray[np.str_]:
    first = _FIRST.split()
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    names = [f"{first[k % len(first)]} {last[(k // len(first)) % 26]}." for k in range(count)]
    rounds = len(first) * 26
    return np.array([name if k < rounds else f"{name} {k // rounds + 1}" for k, name in enumerate(names)])
