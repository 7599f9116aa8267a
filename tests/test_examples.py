"""The pages that a person in each field follows: their code runs as it stands there."""

import re
import warnings
from pathlib import Path

import pytest
from sklearn.exceptions import ConvergenceWarning

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("evaluate-a-model", "score-a-test", "survey", "from-mirt", "serve-a-model")


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for block in blocks:
            exec(compile(block, f"{page}.md", "exec"), names)
    assert "nan" not in capsys.readouterr().out.lower()
    if page == "evaluate-a-model":
        assert abs(names["interview"].share - names["new_model"].mean()) < 0.06
        assert names["found"].low <= names["new_model"].mean() <= names["found"].high
    if page == "score-a-test":
        assert Path("curves.png").stat().st_size > 5_000
        inside = abs(names["persons"]["ability"] - names["ability"]) < 2 * names["persons"]["ability_se"]
        assert inside.mean() > 0.85
    if page == "survey":
        truth = names["agrees"][:360].mean(axis=0)
        shares = names["shares"]
        assert ((shares["share_low"] <= truth) & (shares["share_high"] >= truth)).mean() > 0.7
