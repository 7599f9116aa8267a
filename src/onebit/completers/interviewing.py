"""What a fitted completer says of whole rows and columns, and which questions it would ask."""

from __future__ import annotations

from typing import Any, ClassVar

import pandas as pd
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from onebit.completers.interviews import Interview
from onebit.completers.questions import check_count, chosen_columns
from onebit.completers.row_means import row_means
from onebit.completers.summaries import Comparison, compare, summary


def _has_posterior(model: Any) -> bool:
    """Say whether a kind of completer finds a posterior."""
    return model._posterior_is_found


class Interviewing:
    """The part of every completer that speaks of rows and columns; not used by itself."""

    _posterior_is_found: ClassVar[bool]

    @available_if(_has_posterior)
    def row_summary(
        self,
        rows: Any = None,
        *,
        columns: Any = None,
        level: float = 0.9,
        scale: str = "logit",
        population: bool = False,
        like: Any = None,
        anchors: Any = None,
        callback: Any = None,
    ) -> pd.DataFrame:
        """Return each row's share of "yes", effect and rank, with error bars.

        The share is that over *all* columns: known answers count as they are, blanks as the model
        expects them, if they come about like the answered entries. Intervals and standard errors are
        those of the exact posterior: of the model's own draws, or, of a variational model (whose
        posterior is too narrow), of a short sampling run that this call makes and keeps.

        Parameters
        ----------
        rows : ids, optional
            Which rows; ranks are among these. All, in the order of the table, without it.
        columns : ids, optional
            The columns over which shares are taken, if not all.
        level : float, default 0.9
            The posterior probability of the intervals.
        scale : {"logit", "irt"}
            "irt": abilities with mean zero and variance one in place of effects, with infit and outfit;
            for models of rank 0 (Rasch) and of rank 1 with column effects alone (2PL).
        population : bool, default False
            Whether shares are to be those over a larger population, from which the columns were drawn at
            random: intervals are wider by what that leaves to chance.
        like : fitted model, optional
            With ``scale="irt"``: abilities in the units of that model's rows (an earlier year's), by way
            of the columns that both know. Where the models share answers standard errors are somewhat
            too large; a model that was updated is refused.
        anchors : ids, optional
            The columns to link by, if not all common ones.
        callback : callable, optional
            Told of every sweep, where a sampling run is needed.

        Returns
        -------
        pandas.DataFrame
            Answers, ``answered_share`` (of "yes" among them), ``share`` with ``share_low`` and
            ``share_high``, ``share_least`` and ``share_most`` (if all blanks were "no", or "yes": these
            assume nothing; not of a population), ``effect`` (log-odds on a typical column; NaN where
            rows have none) with ``effect_se``, ``rank`` (1 is the highest share; with ``scale="irt"`` the
            highest ability) with ``rank_low`` and ``rank_high``. ``attrs["note"]`` says what the
            intervals assume.

        Examples
        --------
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B3", rank=1, shape=(40, 30), density=0.5, seed=0)
        >>> model = LogisticCompleter(2, inference="sampling", n_samples=25, random_state=0)
        >>> table = model.fit(world.pairs, world.answers).row_summary()
        >>> table.columns.tolist()[:5]
        ['answers', 'answered_share', 'share', 'share_low', 'share_high']
        """
        check_is_fitted(self)
        return summary(self, 0, rows, columns, level, scale, population, callback, like, anchors)

    @available_if(_has_posterior)
    def column_summary(
        self,
        columns: Any = None,
        *,
        rows: Any = None,
        level: float = 0.9,
        scale: str = "logit",
        population: bool = False,
        like: Any = None,
        anchors: Any = None,
        callback: Any = None,
    ) -> pd.DataFrame:
        """Return each column's share of "yes" over all rows, effect and rank, with error bars.

        See ``row_summary``, with rows and columns exchanged: ``population=True`` is for rows that are a
        random sample of those one wants to know about. With ``scale="irt"``: difficulty and
        discrimination of items with standard errors, infit and outfit, and ``rest_correlation``: of an
        item's answers with the share of "yes" among the same rows' other answers, whatever the model. The
        difficulty of an item whose discrimination is within two standard errors of zero is not
        determined: NaN. ``like`` and ``anchors`` put items on the scale of another model's rows.
        """
        check_is_fitted(self)
        return summary(self, 1, columns, rows, level, scale, population, callback, like, anchors)

    @available_if(_has_posterior)
    def compare(self, a: Any, b: Any, *, columns: Any = None, level: float = 0.9) -> Comparison:
        """Return the posterior probability that row ``a`` has a higher share of "yes" than row ``b``.

        If the model holds and blanks come about like the answered entries, as in ``row_summary``.

        Parameters
        ----------
        a, b : ids
            Two rows.
        columns : ids, optional
            The columns over which shares are taken, if not all.
        level : float, default 0.9
            The posterior probability of the interval of the difference.

        Examples
        --------
        >>> from onebit import LogisticCompleter
        >>> pairs = [(row, column) for row in "ab" for column in range(9)]
        >>> answers = [1] * 8 + [0] + [0] * 8 + [1]
        >>> LogisticCompleter(0).fit(pairs, answers).compare("a", "b").probability  # all is known
        1.0
        """
        check_is_fitted(self)
        return compare(self, a, b, columns, level)

    @available_if(_has_posterior)
    def row_mean(
        self,
        pairs: Any,
        answers: Any,
        *,
        probabilities: Any = None,
        columns: Any = None,
        level: float = 0.9,
        random_state: Any = 0,
    ) -> pd.DataFrame:
        """Return new rows' shares of "yes" over all columns, with intervals that assume no model.

        The answers must be those to questions *drawn at random*, without replacement, from all columns
        (or those named): uniformly, or one after the other with known probabilities, as
        ``next_questions`` and ``interview`` draw them with ``explore`` above zero. Predictions, made
        without the answer that they are held against, narrow the interval where they are good; it covers
        the share whatever they are worth, to the accuracy of a normal approximation: see
        ``docs/asking.md``. ``row_summary`` has the other kind, a credible interval, which is narrower
        and needs no random choice but believes the model.

        Parameters
        ----------
        pairs : two-column table
            Ids of the rows, which must not be among the fitted ones, and of the columns that were asked,
            in the order of the questions.
        answers : array_like
            The answers.
        probabilities : array_like, optional
            With which each question was chosen among those that were left. Without them the choice is
            taken to be uniform.
        columns : ids, optional
            The columns from which questions were drawn and over which the share is taken, if not all.
        level : float, default 0.9
            The confidence.
        random_state : int
            Divides uniformly drawn answers into folds.

        Returns
        -------
        pandas.DataFrame
            For each row: answers, share, ``share_low``, ``share_high``, standard error (NaN without a
            normal approximation), ``worth`` (the number of uniformly drawn answers that would say as much
            without a model; NaN of kind "too few") and ``kind``: "predictions", "exact" (from the answers
            alone; with few answers or few that were not foreseen) or "too few" (only what the answers
            leave possible). Which kind it is depends on the answers: the coverage is that of all kinds
            together.
            ``attrs["interval"]`` says more.

        Examples
        --------
        >>> import numpy as np
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B3", rank=1, shape=(60, 200), density=0.5, seed=0)
        >>> model = LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers)
        >>> asked = np.random.default_rng(0).choice(200, 40, replace=False)
        >>> found = model.row_mean([("new", column) for column in asked], asked % 2)
        >>> bool((found["share_low"] < 0.5).all() and (found["share_high"] > 0.5).all())
        True
        """
        check_is_fitted(self)
        return row_means(self, pairs, answers, probabilities, columns, level, random_state)

    @available_if(_has_posterior)
    def interview(self, answers: Any = None, **settings: Any) -> Interview:
        """Return an interview of one row: question, answer, next question.

        Parameters
        ----------
        answers : row id or answers, optional
            What is known before: the id of a fitted row, or the answers of a new one as ``{column:
            answer}``, a series or pairs of column and answer. Nothing, for a row without answers.
        **settings
            ``goal``, ``among``, ``explore`` (here 0: always the best question), ``level``,
            ``random_state`` as in ``next_questions``, and when to stop: ``n`` questions, or a credible
            interval of the share at most ``width`` wide. Where some twenty rows were fitted, questions at
            random (``explore=1``) may tell more than the best ones, which few rows make out badly.
        """
        check_is_fitted(self)
        return Interview(self, answers, **settings)

    @available_if(_has_posterior)
    def next_questions(
        self,
        row_or_answers: Any = None,
        n: int = 1,
        *,
        goal: Any = "mean",
        among: Any = None,
        explore: float = 0.1,
        random_state: Any = None,
    ) -> pd.DataFrame:
        """Return the columns whose answers would tell most of a row.

        They are those that most lower the expected posterior variance of the goal. The row is taken to be
        one of a normal population like the fitted rows, or further out where its answers say so.

        Parameters
        ----------
        row_or_answers : row id or answers, optional
            The id of a fitted row, or the answers of a new one so far: ``{column: answer}``, a series or
            pairs of column and answer. Columns that the model does not know are skipped and counted in a
            warning; an answer given twice counts twice.
        n : int, default 1
            How many questions, chosen together.
        goal : {"mean", "row"}, columns or pairs
            What is to be learnt: the share of "yes" over all columns; the row's factors, as far as its
            answers depend on them; or the answers to the columns named.
        among : columns, optional
            Those that can be asked, if not all.
        explore : float, default 0.1
            Zero: always the best questions. Above zero they are drawn at random: a share ``explore``
            uniformly, the rest by what they tell (of the goal "mean": by the standard deviation of the
            answers), so that ``row_mean`` can use the answers.
        random_state : int, RandomState or None
            Seed of that draw.

        Returns
        -------
        pandas.DataFrame
            For each question: ``column``, ``yes`` (the probability of "yes" that is expected), ``gain``
            (the share of the goal's variance that the answer is expected to take away) and ``chance``
            (the probability with which it was chosen among those left, for ``row_mean``).

        Examples
        --------
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B3", rank=1, shape=(60, 40), density=0.8, seed=0)
        >>> model = LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers)
        >>> model.next_questions({3: 1, 5: 0}, n=2, explore=0).shape
        (2, 4)
        """
        check_is_fitted(self)
        check_count(n, "questions")
        interview = Interview(
            self, row_or_answers, goal=goal, among=among, explore=explore, random_state=random_state
        )
        return pd.DataFrame(
            [vars(question) for question in interview.questions(n)],
            columns=["column", "yes", "gain", "chance"],
        )

    @available_if(_has_posterior)
    def choose_columns(self, n: int, *, goal: Any = "mean", among: Any = None) -> list[Any]:
        """Return one set of ``n`` columns to ask every future row, the most telling first.

        Each in turn lowers the goal's expected variance most, on average over rows from all parts of the
        population. An interview, which looks at the answers so far, needs fewer questions; a fixed set
        can be printed.

        Examples
        --------
        >>> from onebit import LogisticCompleter, simulate
        >>> world = simulate.world("B3", rank=1, shape=(60, 40), density=0.8, seed=0)
        >>> model = LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers)
        >>> len(model.choose_columns(5))
        5
        """
        check_is_fitted(self)
        return chosen_columns(self, n, goal, among)
