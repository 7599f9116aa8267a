"""``device=`` without a GPU: clear errors, and everything else goes on."""

import sys

import numpy as np
import pytest

from onebit import AutoCompleter, LogisticCompleter
from onebit.engine.gpu import device as gpus


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)


class Cuda:
    """A stand-in for ``torch.cuda``."""

    def __init__(self, count):
        self.count = count

    def is_available(self):
        return self.count > 0

    def device_count(self):
        return self.count

    def current_device(self):
        return 0


class Torch:
    """A stand-in for torch."""

    __version__ = "9.9"

    def __init__(self, build, count):
        self.version = type("version", (), {"cuda": build})
        self.cuda = Cuda(count)

    def device(self, name, index=None):
        number = int(name.partition(":")[2]) if ":" in name else index
        return type("device", (), {"index": number, "type": name.partition(":")[0]})


def install(monkeypatch, build, count):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setitem(sys.modules, "torch", Torch(build, count))
    monkeypatch.setitem(sys.modules, "triton", object())


def test_without_torch_the_error_says_what_to_install(nothing_installed, small_world):
    with pytest.raises(gpus.DeviceError, match=r'device="cuda" needs torch: pip install "onebit\[gpu\]"'):
        LogisticCompleter(device="cuda").fit(small_world.pairs, small_world.answers)


def test_a_build_without_cuda_is_named(monkeypatch):
    install(monkeypatch, None, 0)
    with pytest.raises(gpus.DeviceError, match=r"torch 9\.9 is built without CUDA"):
        gpus.find("cuda")


def test_no_gpu_that_answers_is_said(monkeypatch):
    install(monkeypatch, "13.0", 0)
    with pytest.raises(gpus.DeviceError, match="no NVIDIA GPU answers here"):
        gpus.find("cuda")


def test_a_torch_that_does_not_load_is_said(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)

    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                raise OSError("libcublas.so.13: no such file\nmore")

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(gpus.DeviceError, match=r"cannot be loaded \(libcublas\.so\.13: no such file\)"):
        gpus.find("cuda")
    assert gpus.chosen("auto", gpus.SMALLEST_FIT) is None


def test_a_number_beyond_the_gpus_is_said(monkeypatch):
    install(monkeypatch, "13.0", 2)
    with pytest.raises(gpus.DeviceError, match="there are 2 GPUs here, numbered from 0"):
        gpus.find("cuda:2")


@pytest.mark.parametrize("kind", [LogisticCompleter, AutoCompleter])
@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda:01", "cuda:300", None, 0, "CUDA"])
def test_other_names_are_refused_at_the_door(kind, device, small_world):
    with pytest.raises(ValueError, match='device must be "cpu", "auto", "cuda"'):
        kind(device=device).fit(small_world.pairs, small_world.answers)


def test_auto_is_the_cpu_where_there_is_no_gpu(nothing_installed, monkeypatch, small_world):
    monkeypatch.setattr(gpus, "SMALLEST_FIT", 0)
    expected, found = (
        LogisticCompleter(3, random_state=0, max_iter=5, device=device).fit(
            small_world.pairs, small_world.answers
        )
        for device in ("cpu", "auto")
    )
    np.testing.assert_array_equal(found.posterior_.rows.mean, expected.posterior_.rows.mean)


def test_auto_leaves_small_data_to_the_cpu(monkeypatch):
    monkeypatch.setattr(gpus, "find", lambda device: "a GPU")
    assert gpus.chosen("auto", gpus.SMALLEST_FIT - 1) is None
    assert gpus.chosen("auto", gpus.SMALLEST_FIT) == "a GPU"
    assert gpus.chosen("cuda", 1) == "a GPU"


def test_a_model_predicts_on_the_cpu_where_its_gpu_is_gone(nothing_installed, monkeypatch, small_world):
    model = LogisticCompleter(3, max_iter=5).fit(small_world.pairs, small_world.answers)
    expected = model.predict_proba(small_world.all_pairs)
    monkeypatch.setattr(gpus, "SMALLEST_PREDICTION", 0)
    model.device = "cuda"
    np.testing.assert_array_equal(model.predict_proba(small_world.all_pairs), expected)


def test_the_command_line_says_it_in_one_line(nothing_installed, tmp_path):
    from typer.testing import CliRunner

    from onebit.cli import app

    file = tmp_path / "votes.csv"
    file.write_text("who,what,vote\na,x,1\nb,x,0\na,y,1\n")
    for device, code, text in (("cuda", 1, "pip install"), ("gpu", 2, "--device must be")):
        result = CliRunner().invoke(
            app, ["fit", str(file), "-o", str(tmp_path / "m"), "--device", device]
        )
        assert result.exit_code == code
        assert text in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1


def test_a_fit_for_which_the_gpu_was_too_small_is_that_of_the_cpu(small_world, monkeypatch):
    find = LogisticCompleter._find

    def found(self, observations, machine, rng, *others):
        if machine.device == "auto":
            monkeypatch.setattr(gpus, "chosen", lambda device, n: None if device == "cpu" else "a GPU")
            rng.random(5)  # so far it had come
            raise gpus.TooLittleMemory("too small")
        return find(self, observations, machine, rng, *others)

    monkeypatch.setattr(LogisticCompleter, "_find", found)
    there, here = (
        LogisticCompleter(2, device=device, random_state=0).fit(small_world.pairs, small_world.answers)
        for device in ("auto", "cpu")
    )
    np.testing.assert_array_equal(there.posterior_.rows.mean, here.posterior_.rows.mean)
    assert there.answers_kept  # on a GPU they stay where they are
    assert there.device == "auto"
