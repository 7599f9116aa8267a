"""Pictures of certificates, and of the items of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onebit.completers.base import PairClassifier
from onebit.completers.summaries import codes_of, item_scale

if TYPE_CHECKING:
    from onebit.data.simulate import World

BLUE, GREY, GREEN = "#0072B2", "#555555", "#009E73"


def risk_coverage(
    model: PairClassifier, delta: float = 0.05, world: World | None = None, ax: Any = None
) -> Any:
    """Draw the certified error of the surest predictions against their share.

    Parameters
    ----------
    model : completer
        Fitted with ``fit(..., certify=share)``.
    delta : float
        The probability with which any of the certified points may fail.
    world : World, optional
        In simulations, the world that the model was fitted to: the true curve is drawn too.
    ax : matplotlib axes, optional
        Where to draw; a new figure without it.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from onebit import LogisticCompleter, plots, simulate
    >>> world = simulate.world("B1", rank=2, shape=(80, 60), density=0.5, seed=0)
    >>> model = LogisticCompleter(random_state=0).fit(world.pairs, world.answers, certify=0.2)
    >>> axes = plots.risk_coverage(model, world=world)
    >>> axes.get_xlabel()
    'surest predictions kept, %'
    """
    certified = model.certify_selective(delta)
    held_out = model.held_out_
    assert held_out is not None  # certify_selective has seen to it
    ax = _axes(ax)
    shares = 100 * np.array(certified.shares)
    bounds = 100 * np.array([certificate.bound for certificate in certified.certificates])
    ax.plot(
        shares, bounds, "o-", color=BLUE, linewidth=2.2,
        label=f"certified: at most this, with probability {1 - delta:.4g}",
    )  # fmt: skip
    count = np.arange(1, len(held_out.wrong) + 1)
    # The first few answers say nothing of a rate.
    from_here = max(len(count) // 50, 1) - 1
    observed = 100 * held_out.wrong.cumsum() / count
    ax.plot(
        100 * count[from_here:] / count[-1], observed[from_here:], color=GREY, linewidth=1.2,
        label=f"observed on {len(count)} held-out answers",
    )  # fmt: skip
    if world is not None:
        share, risk = true_curve(model, world)
        ax.plot(
            100 * share, 100 * risk, "--", color=GREEN, linewidth=1.6, label="true, in this simulation"
        )
    ax.set_xlabel("surest predictions kept, %")
    ax.set_ylabel("wrong among them, %")
    ax.set_xlim(0, 102)
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper left")
    return ax


def _axes(ax: Any) -> Any:
    """Return the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(figsize=(7.0, 4.5), layout="constrained").subplots()


# Abilities that curves are drawn over: all but a few in a thousand.
ABILITIES = np.linspace(-3.0, 3.0, 41)
# Items that are named in a picture.
NAMED = 10


def item_curves(model: PairClassifier, columns: Any = None, ax: Any = None) -> Any:
    """Draw the characteristic curves of items: the probability of "yes" against the ability.

    Parameters
    ----------
    model : completer
        A Rasch or two-parameter model: ``LogisticCompleter(0)`` or ``LogisticCompleter(1,
        effects="columns")``.
    columns : ids, optional
        Which items. Without it all; up to ten are named.
    ax : matplotlib axes, optional
        Where to draw; a new figure without it.

    Examples
    --------
    >>> from onebit import LogisticCompleter, plots, simulate
    >>> world = simulate.world("B3", rank=1, shape=(60, 20), density=0.8, seed=0)
    >>> model = LogisticCompleter(0, inference="sampling", n_samples=25, random_state=0)
    >>> plots.item_curves(model.fit(world.pairs, world.answers)).get_xlabel()
    'ability (mean 0, variance 1)'
    """
    scale = item_scale(model)
    codes = codes_of(model, 1, columns, "columns")
    ax = _axes(ax)
    curves = scale.curves(ABILITIES)
    named = len(codes) <= NAMED
    for code in codes:
        style = {"label": str(model.columns_.labels[code])} if named else {"color": BLUE, "alpha": 0.35}
        ax.plot(ABILITIES, curves[code], linewidth=1.6 if named else 1.0, **style)
    ax.set_ylabel("probability of yes")
    ax.set_ylim(0, 1)
    return _over_abilities(ax, named)


def information(model: PairClassifier, columns: Any = None, ax: Any = None) -> Any:
    """Draw how much a test tells at each ability: its information, and that of its items.

    The standard error of an ability, from the answers alone, is one over the root of the information.

    Parameters
    ----------
    model : completer
        A Rasch or two-parameter model, as for ``item_curves``.
    columns : ids, optional
        Which items make up the test. Without it all.
    ax : matplotlib axes, optional
        Where to draw; a new figure without it.

    Examples
    --------
    >>> from onebit import LogisticCompleter, plots, simulate
    >>> world = simulate.world("B3", rank=1, shape=(60, 20), density=0.8, seed=0)
    >>> model = LogisticCompleter(0, inference="sampling", n_samples=25, random_state=0)
    >>> plots.information(model.fit(world.pairs, world.answers)).get_ylabel()
    'information'
    """
    scale = item_scale(model)
    codes = codes_of(model, 1, columns, "columns")
    ax = _axes(ax)
    each = scale.information(ABILITIES)[codes]
    ax.plot(ABILITIES, each.sum(axis=0), color=BLUE, linewidth=2.2, label=f"test of {len(codes)} items")
    for number, line in enumerate(each):
        ax.plot(
            ABILITIES, line, color=GREY, linewidth=0.8, alpha=0.5,
            label="its items" if number == 0 else None,
        )  # fmt: skip
    ax.set_ylabel("information")
    ax.set_ylim(bottom=0)
    return _over_abilities(ax, True)


def _over_abilities(ax: Any, legend: bool) -> Any:
    ax.set_xlabel("ability (mean 0, variance 1)")
    ax.set_xlim(ABILITIES[0], ABILITIES[-1])
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        ax.legend(frameon=False)
    return ax


def true_curve(model: PairClassifier, world: World) -> tuple[Any, Any]:
    """Return the share of fresh answers kept and their true error rate, surest first."""
    scores = model.decision_function(world.all_pairs)
    order = np.argsort(-model.confidence(world.all_pairs), kind="stable")
    weight = world.sampling.ravel()[order]
    chance = world.chance_of_error(scores.reshape(world.truth.shape)).ravel()[order]
    share = weight.cumsum()
    return share, (weight * chance).cumsum() / share
