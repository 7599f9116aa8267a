"""Certificates of a posterior, and predictors drawn from it."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from onebit.certificates import directions
from onebit.certificates.optimised import OPTIMISED, optimise
from onebit.certificates.pac_bayes import RANDOMISED, draw_certificate, posterior_certificate
from onebit.certificates.statements import LIKE_THE_ANSWERED, Certificate
from onebit.completers.drawn import DrawnPredictor
from onebit.completers.predictions import Answers
from onebit.completers.predictors import Predictor
from onebit.data.ids import IdIndex
from onebit.engine.seeds import generator
from onebit.engine.workers import Machine, workers
from onebit.model.posterior import Posterior

NOT_GAUSSIAN = (
    "this certificate needs the divergence of a Gaussian posterior from the prior, and draws have none; "
    'fit with certify=0.1 for a held-out one, or with inference="variational"'
)
TUNED = (
    "this model has tuned its prior on its answers, so that no certificate of its posterior holds; fit "
    "with certify=0.1 for a held-out one"
)
PATTERNED = (
    "the prior means of this model depend on which entries were answered (pattern), so that no "
    "certificate of its posterior holds; fit with certify=0.1 for a held-out one, or with pattern=None"
)
# Streams of random numbers that share a seed with a fit, but nothing else.
_OF_DRAWS, _OF_CERTIFICATES = 1, 2


class Drawing:
    """The part of every completer that certifies its posterior; not used by itself."""

    # Whether settings of the prior were chosen by looking at the answers.
    _tuned: ClassVar[bool] = False
    # Whether the posterior was made for its certificate.
    _made_for_it: ClassVar[bool] = False

    rows_: IdIndex
    columns_: IdIndex
    classes_: NDArray[Any]
    predictor_: Predictor
    _answers: Answers | None
    _certifiable: bool
    _optima: dict[int, tuple[Posterior, int]]

    @property
    def _certifiable_answers(self) -> Answers | None:
        """The answers, if ``fit(..., certify=share)`` was asked to keep them for certificates."""
        return self._answers if self._certifiable else None

    @property
    def prior_choices(self) -> int:
        """The number of priors that the fit chose from with its answers."""
        return getattr(self, "prior_choices_", 1)

    def _optimum(self, seed: int) -> tuple[Posterior, int]:
        """Return a posterior that is made for its certificate, and the priors it was chosen from."""
        if self._made_for_it:
            return self.predictor_.posterior, self.prior_choices
        if seed not in self._optima:
            answers = self._certifiable_answers
            assert answers is not None
            with workers(Machine(-1), answers.fitted.n) as crew:
                found = optimise(OPTIMISED, answers.fitted, crew, generator(seed))
            self._optima[seed] = found.fit.posterior, found.prior_choices
        return self._optima[seed]

    def _certify_optimised(self, seed: int, delta: float) -> Certificate:
        posterior, choices = self._optimum(seed)
        answers = self._certifiable_answers
        assert answers is not None
        whose = f"the posterior of a GibbsCompleter (random_state={seed})"
        return posterior_certificate(
            "pac-bayes-kl",
            posterior,
            answers.fitted,
            delta,
            np.random.default_rng([_OF_CERTIFICATES, seed]),
            choices,
            "PAC-Bayes-kl, posterior optimised for it",
            f"the predictions of a predictor drawn anew from {whose}, {LIKE_THE_ANSWERED},",
        )

    def _draw_optimised(self, seed: int) -> DrawnPredictor:
        whose = "" if self._made_for_it else f" of a GibbsCompleter (random_state={seed})"
        return self._drawn(*self._optimum(seed), seed, whose)

    def certificate(
        self,
        method: str,
        delta: float,
        seed: int = 0,
        title: str | None = None,
        predictor: str = RANDOMISED,
    ) -> Certificate:
        """Certify a predictor drawn anew from this posterior; see ``onebit.certificates.pac_bayes``."""
        posterior, answers = self._certifiable_posterior()
        return posterior_certificate(
            method,
            posterior,
            answers.fitted,
            delta,
            np.random.default_rng([_OF_CERTIFICATES, seed]),
            self.prior_choices,
            title,
            predictor,
            avb=getattr(self, "avb_", None),
        )

    @property
    def _patterned(self) -> bool:
        posterior = self.predictor_.gaussian
        return posterior is not None and posterior.patterned

    def _certifiable_posterior(self) -> tuple[Posterior, Answers]:
        """Return the posterior and the answers that certify it, or say why there are none."""
        check_is_fitted(self)
        posterior = self.predictor_.gaussian
        if self._tuned:
            raise ValueError(TUNED)
        if posterior is None:
            raise ValueError(NOT_GAUSSIAN)
        if posterior.patterned:
            raise ValueError(PATTERNED)
        answers = self._certifiable_answers
        if answers is None:
            raise ValueError(
                "a posterior is certified with the answers that it was fitted to, which were not kept "
                "for that; fit with certify=0 (or a share to hold out)"
            )
        return posterior, answers

    def draw(self, seed: int = 0) -> DrawnPredictor:
        """Draw one predictor from the posterior, with a certificate of its own.

        It needs no average over draws and no factor two. The same seed is the same draw, with the same
        certificate; draws are numbered by their seeds, and the one with seed ``s`` pays
        ``log((s + 1)(s + 2))`` for the choice among them, so that small seeds cost least. A sampled model
        has none: its draws are in ``draws_``.

        Parameters
        ----------
        seed : int, default 0
            The number of the draw, from zero.

        Examples
        --------
        >>> from onebit import GibbsCompleter, simulate
        >>> world = simulate.world("A1", rank=1, shape=(100, 100), density=0.5, seed=0)
        >>> model = GibbsCompleter(random_state=0).fit(world.pairs, world.answers, certify=0)
        >>> drawn = model.draw(0)
        >>> drawn.certify(delta=0.05).bound < 0.3
        True
        """
        posterior, _ = self._certifiable_posterior()
        return self._drawn(posterior, self.prior_choices, seed, "")

    def _drawn(self, posterior: Posterior, choices: int, seed: int, whose: str) -> DrawnPredictor:
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f"the seed of a draw is a whole number from 0, got {seed!r}")
        if posterior.hierarchy.sparse is not None:
            raise ValueError("the prior density of a sparse model is not known; draw from a dense one")
        if any(part is not None for part in posterior.hierarchy.regressions):
            raise ValueError("the prior density of a model with features is not known; leave them out")
        answers = self._certifiable_answers
        assert answers is not None
        # A stream of its own: the fit may have been given the same seed.
        drawn = posterior.sample(np.random.default_rng([_OF_DRAWS, int(seed)]))
        log_ratio = None
        if directions.apply_to(posterior):
            log_ratio = directions.draw_log_ratio(posterior, drawn.rows, drawn.columns)
        certify = partial(
            draw_certificate,
            drawn,
            answers.fitted,
            seed=int(seed),
            prior_choices=choices,
            whose=whose,
            direction_log_ratio=log_ratio,
        )
        return DrawnPredictor(drawn, self.rows_, self.columns_, self.classes_, certify)
