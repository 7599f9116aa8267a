"""Draws for error bars: those of a sampled model, or of a short sampling run from where another one is.

A variational posterior is too narrow for intervals, and a temperature above one narrows any posterior;
error bars are therefore those of the exact posterior at temperature one.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from onebit.completers.filling import known_observations
from onebit.completers.questions import check_log_odds, kept_for
from onebit.model.diagnostics import Mixing
from onebit.model.draws import Draws
from onebit.model.irt import OF_ITEM_RESPONSES

# Of the run for a model that is not sampled: a hundred draws of each chain, or more until they settle.
CHAINS, BURN_IN, SAMPLES = 4, 50, 200
# Beyond this share of the fit's answers, updates have narrowed what all rows or columns share too far.
LARGE_UPDATES = 0.5
_AT_ITS_END = "ends of intervals by two to three times that"


def error_draws(model: Any, callback: Any = None, scale: str = "logit") -> tuple[Draws, str]:
    """Return draws of the exact posterior, and a sentence that says what they are."""
    if scale == "irt":
        check_log_odds(model, "the scale of item response theory", OF_ITEM_RESPONSES)
    else:
        check_log_odds(model, "a summary with standard errors")
    own = getattr(model, "completer_", model)
    if model.is_sampled and own.temperature == 1.0:
        return model.draws_, _words(f"the model's {model.draws_.count} draws", model)
    return kept_for(model, "_error_draws", lambda: _sampled_draws(model, own, callback))


def _sampled_draws(model: Any, own: Any, callback: Any) -> tuple[Draws, str]:
    """Sample the exact posterior from where a model is."""
    if model._folded and any(encoder is not None for encoder in model._encoders):
        raise ValueError(
            "this model has features and is not sampled, and answers were added to it since, of whose "
            "ids it does not keep the features for a sampling run; fit again with all answers, or with "
            'inference="sampling" (--inference sampling)'
        )
    if model.updates_.lossy:
        raise ValueError(
            "this model was updated with weights, or with forget below one, which the answers that it "
            "keeps do not say, and it is not sampled: error bars would be of other answers; fit again, "
            'with inference="sampling" if it is to be updated like this'
        )
    # A scale that suits a variational fit lets columns that it would have pruned add noise to draws.
    kept = own.is_sampled or own.prior != "inverse-gamma"
    scale = own.prior_scale if kept else "auto"
    sampled = clone(own).set_params(
        inference="sampling", temperature=1.0, n_samples=SAMPLES, n_burn_in=BURN_IN, prior_scale=scale,
        n_chains=CHAINS, n_thin=1, settle="auto", sparse=None, n_init=1, verbose=0,
    )  # fmt: skip
    if not isinstance(sampled.random_state, (int, np.integer)):
        sampled.random_state = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = model if own.sparse is None else None
        updated = model.updates_.times > 0
        known = known_observations(model) if updated else model.kept_answers().everything
        sampled.fit(known, start=start, callback=callback)
    # As into the model itself: where new rows stand in the pattern is told by the fitted ones.
    for rows, columns, sign in [] if updated else model._folded:
        pairs = pd.DataFrame({0: model.rows_.labels[rows], 1: model.columns_.labels[columns]})
        sampled.fold_in(pairs, sign)
    words = _words(f"a sampling run of {sampled.draws_.count} draws for this summary", sampled)
    return sampled.draws_, words


def caveats(words: str) -> str:
    """Return what is said of draws beyond how far estimates move, as in ``error_draws``."""
    return words.partition(_AT_ITS_END)[2].strip("., ;")


def _words(what: str, sampled: Any) -> str:
    """Say what draws are, and whether their chains had mixed."""
    mixing = Mixing.of(sampled.diagnostics_)
    # What mixes slowest moves most; draws that say nothing of mixing are taken for independent ones.
    each = min(sampled.draws_.count, max(np.nan_to_num(mixing.ess, nan=np.inf), 1.0)) ** -0.5
    said = (
        f"Error bars are those of {what}: from run to run, estimates move by about {each:.2f} of "
        f"their standard errors, {_AT_ITS_END}"
    )
    if mixing.verdict in ("mixed", "roughly mixed"):
        said += "."
    elif mixing.verdict == "unknown":
        said += "; there are too few draws to say how well the chains have mixed."
    else:
        said += (
            f", and by more here, since the chains have not mixed ({mixing.figures}); a "
            "model fitted by sampling, with more draws, has firmer ones."
        )
    if sampled.updates_.answers > LARGE_UPDATES * (sampled.n_observations_ or np.inf):
        said += (
            " Answers that came by updates are many beside those of the fit: what all rows, or all "
            "columns, share is less sure than it says."
        )
    return said
