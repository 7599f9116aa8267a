"""The pages that a person in each field follows: their code runs as it stands there."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import gallery
from benchmarks.pages import EXAMPLES

DOCS = Path(__file__).parents[1] / "docs"
PAGES = (*EXAMPLES, "from-mirt", "serve-a-model", "for-readers-of-the-paper")


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    names = gallery.run(text, f"{page}.md")
    if page in EXAMPLES:
        assert Path(f"{page}.png").stat().st_size > 5_000
        assert f"(gallery/{page}.png)" in text
        assert (DOCS / "gallery" / f"{page}.png").is_file()
        assert f"({page}.md)" in (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert "nan" not in capsys.readouterr().out.lower()
    if page == "evaluate-a-model":
        assert abs(names["interview"].share - names["new_model"].mean()) < 0.06
        assert names["found"].low <= names["new_model"].mean() <= names["found"].high
    if page == "score-a-test":
        inside = abs(names["persons"]["ability"] - names["ability"]) < 2 * names["persons"]["ability_se"]
        assert inside.mean() > 0.85
        assert abs(names["linked"]["ability"].mean() - names["better"].mean()) < 0.25
    if page == "recommend":
        off = abs(names["filled"] - names["chance"]).mean()
        assert off < 0.75 * abs(names["likes"].mean() - names["chance"]).mean()
    if page == "cold-start":
        errors = [
            np.sqrt(np.mean((names[kind].decision_function(names["asked"]) - names["truth"]) ** 2))
            for kind in ("told", "plain")
        ]
        assert errors[0] < 0.65 * errors[1]
    if page == "harder-blanks":
        assert names["certificate"].bound < names["wrong"].mean() < names["bounds"][3]
        assert names["bounds"] == sorted(names["bounds"])
    if page == "large-tables":
        assert abs(names["said"] - names["truth"]).mean() < 0.12
    if page == "survey":
        truth = names["agrees"][:360].mean(axis=0)
        shares = names["shares"]
        assert ((shares["share_low"] <= truth) & (shares["share_high"] >= truth)).mean() > 0.7
