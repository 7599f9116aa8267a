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


class Failing:
    """A peer that breaks off."""

    def fit(self, pairs, yes):
        raise ValueError("no such luck")


def test_a_peer_that_breaks_off_ends_nobody_elses_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    everyone = updates.contestants()
    some = {"River BiasedMF": (Failing, 1), "left alone": everyone["left alone"]}
    monkeypatch.setattr(updates, "contestants", lambda: some)
    monkeypatch.setattr(updates, "SHUFFLES", 1)
    output = tmp_path / "updates.md"
    updates.main(["--batches", "2", "--results", str(tmp_path / "r.json"), "--output", str(output)])
    assert "| left alone |" in output.read_text()
    assert "Not measured: River BiasedMF (it ended with: no such luck)." in output.read_text()


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
