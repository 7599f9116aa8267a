"""What the features tell, as the report shows it."""

from __future__ import annotations

from typing import Any

from onebit.report.words import Sides, number

# The strongest so many features.
MOST = 16


def strongest_features(model: Any, sides: Sides) -> tuple[list[dict[str, str]], int]:
    """Return the features with the strongest effects, the strongest first, and how many there are.

    None without features.
    """
    if all(encoder is None for encoder in model._encoders):
        return [], 0
    try:
        table = model.feature_effects_
    except AttributeError:  # features of a side without effects
        return [], 0
    order = table["effect"].abs().sort_values(ascending=False).index[:MOST]
    lines = []
    for _, line in table.loc[order].iterrows():
        if "low" in table:
            spread = f"{number(line['low'], '+.2f')} to {number(line['high'], '+.2f')}"
        else:
            spread = number(line["sd"], ".2f")
        name = sides.row if line["side"] == "row" else sides.column
        lines.append(
            {
                "side": name,
                "feature": str(line["feature"]),
                "effect": number(line["effect"], "+.2f"),
                "spread": spread,
            }
        )
    return lines, len(table)
