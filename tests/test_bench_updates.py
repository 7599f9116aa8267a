"""The benchmarks of updates and of a served model, in a tiny setting, so that neither breaks unseen."""

import json

import numpy as np
import pytest

from benchmarks import serving, updates


def test_the_page_of_updates_judges_every_contestant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results, output = tmp_path / "r.json", tmp_path / "updates.md"
    monkeypatch.setattr(updates, "SHUFFLES", 2)
    arguments = ["--batches", "3", "--results", str(results), "--output", str(output)]
    updates.main([*arguments, "--only", "left alone", "refit", "partial_fit"])
    updates.main([*arguments, "--only", "partial_fit, forget 0.99"])
    text = output.read_text()
    for name in ("left alone", "refit", "partial_fit", "partial_fit, forget 0.99"):
        assert f"| {name} |" in text
    found = json.loads(results.read_text())
    assert found["shuffles"] == 0.0
    loss = {name: np.mean(line["losses"]) for name, line in found["contestants"].items()}
    assert loss["partial_fit"] < loss["left alone"]
    assert loss["partial_fit"] == pytest.approx(loss["refit"], abs=0.02)


def test_the_page_of_a_server_tells_of_load_fuzz_and_kills(tmp_path):
    pytest.importorskip("uvicorn")
    output = tmp_path / "serving.md"
    serving.main(
        ["--columns", "80", "--rank", "2", "--rows", "40", "--rate", "10", "--seconds", "1", "--fuzzed",
         "1500", "--kills", "1", "--results", str(tmp_path / "r.json"), "--output", str(output)]
    )  # fmt: skip
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["load"]["statuses"] == {"200": 10}
    assert sum(found["fuzz"]["statuses"].values()) == 1500
    assert "500" not in found["fuzz"]["statuses"]
    assert found["fuzz"]["statuses"]["200"] > 100
    assert found["kill"]["lost"] == 0
    assert found["kill"]["acknowledged"] > 0
    for words in ("## Load", "## Fuzz", "## Kill"):
        assert words in output.read_text()
