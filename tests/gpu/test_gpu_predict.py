"""Predictions on a GPU, and models that were fitted on one."""

import numpy as np
import pytest
from gpu_worlds import random_answers

import onebit
from onebit import HingeCompleter, LogisticCompleter
from onebit.engine import checkpoint
from onebit.engine.gpu import device as gpus
from onebit.engine.gpu import predict
from onebit.engine.gpu.side import DeviceSide
from onebit.engine.scoring import score_moments, scores
from onebit.engine.top import top_columns


@pytest.fixture(autouse=True)
def everything_goes_to_the_device(monkeypatch):
    monkeypatch.setattr(gpus, "SMALLEST_PREDICTION", 0)


@pytest.fixture(params=["full", "diagonal", "no effects", "column effects", "no factors"])
def model(request):
    settings = {
        "full": {},
        "diagonal": {"covariance": "diagonal"},
        "no effects": {"effects": False},
        "column effects": {"effects": "columns"},
        "no factors": {"rank": 0},
    }[request.param]
    return LogisticCompleter(**({"rank": 3} | settings), max_iter=5).fit(random_answers((30, 300), 0.3))


def test_score_moments_are_the_cpus(model, rng):
    posterior = model.posterior_
    rows, columns = (rng.integers(-1, size, 90).astype(np.int32) for size in posterior.shape)
    expected, found = (score_moments(posterior, rows, columns, None, d) for d in ("cpu", "cuda"))
    np.testing.assert_allclose(found[0], expected[0], atol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-12)
    np.testing.assert_allclose(scores(posterior, rows, columns, None, "cuda"), expected[0], atol=1e-12)


@pytest.mark.parametrize("count", [1, 7, 290])
def test_the_best_columns_are_the_cpus(model, count):
    seen = random_answers((30, 300), 0.3).by_row
    rows = np.array([29, 0, 5], dtype=np.int32)
    for left_out in (None, seen):
        expected, found = (
            top_columns(model.posterior_, rows, count, left_out, None, d) for d in ("cpu", "cuda")
        )
        np.testing.assert_array_equal(found, expected)


def test_small_blocks_tiles_and_new_rows_change_nothing(monkeypatch):
    """Several blocks of pairs, of rows and of tiles, and a row that was folded in."""
    for name, value in (("PAIRS", 7), ("COLUMNS", 16), ("TILES", 2), ("ROWS", 16), ("BLOCK_BYTES", 1)):
        monkeypatch.setattr(predict, name, value)
    seen = random_answers((40, 100), 0.3)
    model = LogisticCompleter(3, max_iter=5).fit(seen)
    model.fold_in([(99, 1), (99, 5), (99, 7)], [1, 0, 1])
    posterior, rows = model.posterior_, np.arange(40, -1, -1, dtype=np.int32)
    expected, found = (top_columns(posterior, rows, 5, seen.by_row, None, d) for d in ("cpu", "cuda"))
    np.testing.assert_array_equal(found, expected)
    codes = rows[:20], np.arange(20, dtype=np.int32)
    expected, found = (score_moments(posterior, *codes, None, d) for d in ("cpu", "cuda"))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_equal_scores_keep_the_order_of_the_columns():
    flat = LogisticCompleter(0, max_iter=2, effects="rows").fit(random_answers((4, 300), 0.5))
    found = top_columns(flat.posterior_, np.array([2], np.int32), 5, None, None, "cuda")
    np.testing.assert_array_equal(found, [[0, 1, 2, 3, 4]])


def test_one_model_stays_on_the_device_as_long_as_it_lives(model, device):
    posterior = model.posterior_
    there = predict.on_device(posterior, device)
    assert predict.on_device(posterior, device) is there
    del posterior
    model.fit(random_answers((4, 5), 0.5))
    assert predict._LAST is None


def test_a_model_fitted_on_a_gpu_is_saved_loaded_and_certified(tmp_path, small):
    seen = random_answers(small, 0.7, 6)
    model = LogisticCompleter(2, random_state=0, max_iter=2, device="cuda").fit(seen, certify=0.3)
    model.save(tmp_path / "model.onebit")
    again = onebit.load(tmp_path / "model.onebit")
    assert again.device == "cuda"
    pairs = [(0, 1), (2, 3), (99, 0)]
    np.testing.assert_array_equal(again.predict_proba(pairs), model.predict_proba(pairs))
    assert again.certify().bound == model.certify().bound
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpus, "find", no_gpu)
        np.testing.assert_allclose(again.predict_proba(pairs), model.predict_proba(pairs), atol=1e-9)


def no_gpu(device):
    raise gpus.DeviceError("none here")


def test_a_gpu_that_vanishes_leaves_its_checkpoint_for_the_cpu(tmp_path, small, monkeypatch):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    seen, folder = random_answers(small, 0.7, 7), tmp_path / "kept"
    expected = LogisticCompleter(2, random_state=0, max_iter=4).fit(seen)
    real, left = DeviceSide.pass_over, [5]

    def failing(*arguments, **settings):
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("CUDA error: the launch failed\nmore of it")
        return real(*arguments, **settings)

    monkeypatch.setattr(DeviceSide, "pass_over", failing)
    model = LogisticCompleter(2, random_state=0, max_iter=4, device="cuda")
    with pytest.raises(gpus.DeviceError, match=r"stopped working \(CUDA error: the launch failed\)"):
        model.fit(seen, checkpoint=folder)
    assert any(folder.iterdir())
    done = []
    finished = LogisticCompleter(2, random_state=0, max_iter=4).fit(
        seen, checkpoint=folder, callback=done.append
    )
    assert done[0].round == 3
    assert finished.objective_ == pytest.approx(expected.objective_, rel=1e-6)


def test_a_killed_fit_goes_on_to_the_same_bit_for_bit(tmp_path, small, monkeypatch):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    seen = random_answers(small, 0.7, 8)
    settings = {"random_state": 0, "max_iter": 4, "device": "cuda"}
    expected = LogisticCompleter(2, **settings).fit(seen)

    def killed(progress):
        if progress.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LogisticCompleter(2, **settings).fit(seen, checkpoint=tmp_path / "kept", callback=killed)
    found = LogisticCompleter(2, **settings).fit(seen, checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(found.objective_path_, expected.objective_path_)
    np.testing.assert_array_equal(found.posterior_.rows.mean, expected.posterior_.rows.mean)


def test_the_papers_method_stays_on_the_cpu():
    with pytest.raises(ValueError, match="runs on the CPU only"):
        HingeCompleter(method="paper", device="cuda").fit(random_answers((5, 5), 0.8))
