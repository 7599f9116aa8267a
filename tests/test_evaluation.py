"""Later answers, predicted from earlier ones."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from onebit import LogisticCompleter, Observations, simulate
from onebit.cli import app
from onebit.completers.evaluation import ALL, KNOWN, STRANGE, evaluate_later


@pytest.fixture(scope="module")
def divided():
    """Earlier and later answers over the same ids; rows 36 to 39 come later."""
    world = simulate.world("B3", rank=1, shape=(40, 25), density=0.6, seed=0)
    everything = Observations.from_pairs(world.pairs, world.answers)
    rows = everything.by_row.owners()
    late = (rows >= 36) | (np.random.default_rng(0).random(everything.n) < 0.2)
    return everything.take(~late), everything.take(late)


def test_known_rows_and_strangers_are_measured_apart_and_together(divided):
    seen, later = divided
    found = evaluate_later(LogisticCompleter(1, random_state=0), seen, later)
    model = LogisticCompleter(1, random_state=0).fit(seen)
    rows, columns = later.by_row.owners(), later.by_row.index
    predicted = model.predictions(rows, columns)
    right = (predicted.decision > 0) == (later.by_row.sign > 0)
    known = rows < 36
    for group, marks in ((KNOWN, known), (STRANGE, ~known), (ALL, np.ones_like(known))):
        line = found.loc["LogisticCompleter", group]
        assert line["answers"] == marks.sum()
        assert line["accuracy"] == pytest.approx(right[marks].mean())
    said = np.where(later.by_row.sign > 0, predicted.probability, 1 - predicted.probability)
    assert found.loc["LogisticCompleter", KNOWN]["log_loss"] == pytest.approx(-np.log(said[known]).mean())
    assert set(found.index.get_level_values("method")) == {
        "LogisticCompleter", "effects only", "commoner answer"
    }  # fmt: skip


def test_standard_errors_are_those_of_drawing_rows(divided):
    """As many times the same row tell no more than once."""
    seen, later = divided
    one = later.take(np.unique(later.by_row.owners(), return_index=True)[1])
    line = evaluate_later(LogisticCompleter(1), seen, one).loc["commoner answer", ALL]
    spread = np.sqrt(line["accuracy"] * (1 - line["accuracy"]) / (line["answers"] - 1))
    assert line["accuracy_se"] == pytest.approx(spread)
    row = later.take(later.by_row.owners() == later.by_row.owners()[0])
    alone = evaluate_later(LogisticCompleter(1), seen, row).loc["commoner answer", KNOWN]
    assert np.isnan(alone["accuracy_se"])  # from one row nothing is known of others


def test_answers_to_pairs_that_were_answered_before_are_left_out(divided):
    seen, later = divided
    both = evaluate_later(LogisticCompleter(1), seen, _joined(seen, later))
    pd.testing.assert_frame_equal(both, evaluate_later(LogisticCompleter(1), seen, later))
    with pytest.raises(ValueError, match="no later answer"):
        evaluate_later(LogisticCompleter(1), seen, seen.take(np.arange(5)))


def _joined(first, second):
    parts = [
        np.concatenate([getattr(part.by_row, name) for part in (first, second)])
        for name in ("index", "sign")
    ]
    owners = np.concatenate([part.by_row.owners() for part in (first, second)])
    return Observations.from_codes(first.rows, first.columns, owners, *parts)


def test_the_shell_divides_by_a_column(tmp_path):
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((30, 20)) < 0.7)
    table = pd.DataFrame({"user": pairs[:, 0], "item": pairs[:, 1]})
    table["liked"] = (pairs[:, 0] + pairs[:, 1]) % 3 > 0
    table["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 100, len(table)), "D")
    table.to_csv(tmp_path / "likes.csv", index=False)
    command = ["evaluate", str(tmp_path / "likes.csv"), "-m", "logistic", "--after", "day", "2024-03-20"]
    told = json.loads(CliRunner().invoke(app, [*command, "--json", "-q"]).stdout)
    later = int((table["day"] > "2024-03-20").sum())
    assert told["fitted"] == len(table) - later
    assert told["methods"]["LogisticCompleter"][KNOWN]["answers"] == later
    assert told["of"] == "answers after 2024-03-20 in column 'day'"
    shown = CliRunner().invoke(app, command).stdout
    assert KNOWN in shown
    assert f"fitted to {len(table) - later:,} answers" in shown
