"""The examples beside the library, where what they need is installed."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from onebit import LogisticCompleter, simulate

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def saved(tmp_path):
    world = simulate.world("B1", rank=1, shape=(30, 20), density=0.6, seed=0)
    model = LogisticCompleter(1, random_state=0).fit(world.pairs, world.answers)
    model.save(tmp_path / "likes.onebit")
    return model, tmp_path / "likes.onebit"


def test_fastapi_mounts_a_model(saved, monkeypatch):
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    model, path = saved
    monkeypatch.setenv("ONEBIT_MODEL", str(path))
    spec = importlib.util.spec_from_file_location("fastapi_mount", EXAMPLES / "fastapi_mount.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    client = TestClient(example.app, base_url="http://likes.example.org")
    found = client.post("/onebit/api/predict", json={"pairs": [[3, 4]]}).json()["predictions"][0]
    assert found["probability"] == pytest.approx(model.predict_proba([(3, 4)])[0, 1], abs=1e-4)
    assert "Next question" in client.get("/onebit/").text


# MLflow's own.
@pytest.mark.filterwarnings("ignore")
def test_mlflow_loads_a_model_without_pickle(saved, tmp_path):
    mlflow = pytest.importorskip("mlflow.pyfunc", reason="mlflow is not installed")
    model, path = saved
    mlflow.save_model(
        str(tmp_path / "served"), python_model=str(EXAMPLES / "mlflow_model.py"),
        artifacts={"model": str(path)}, pip_requirements=["onebit"],
    )  # fmt: skip
    assert not list((tmp_path / "served").rglob("*.pkl"))
    pairs = pd.DataFrame({"row": [3, 5], "column": [4, 6]})
    found = mlflow.load_model(str(tmp_path / "served")).predict(pairs)
    assert np.allclose(found, model.predict_proba(pairs)[:, 1])
