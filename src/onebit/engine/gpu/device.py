"""Finding the GPU that ``device=`` names, and saying clearly why there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

# The answers of the smallest fit that device="auto" takes to a GPU: below, a CPU is done before one has
# started. The scores of the smallest prediction that is worth bringing a model there.
SMALLEST_FIT = 200_000
SMALLEST_PREDICTION = 20_000
_AUTO = 50  # times as many for device="auto"

_HINT = 'leave device at "cpu", or say device="auto" to use a GPU only where there is one'


class DeviceError(RuntimeError):
    """No usable GPU, or one that stopped working; the message says what to do."""


class TooLittleMemory(DeviceError):
    """What was asked for does not fit the GPU's memory."""


def interpreted() -> bool:
    """Say whether Triton's interpreter takes the GPU's place: for tests, and very slow."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def find(device: str) -> Any:
    """Return the torch device that ``device`` ("cuda", "cuda:1") names.

    Raises
    ------
    DeviceError
        Where torch or Triton are missing, torch is built without CUDA, or no such GPU answers.
    """
    try:
        import torch
        import triton  # noqa: F401
    except ModuleNotFoundError as error:
        raise DeviceError(
            f'device="{device}" needs {error.name}: pip install "onebit[gpu]"; otherwise {_HINT}'
        ) from None
    except (ImportError, OSError) as error:
        raise DeviceError(
            f'device="{device}": torch cannot be loaded ({_first_line(error)}); install it anew, or '
            f"{_HINT}"
        ) from None
    if interpreted():
        return torch.device("cpu")
    if torch.version.cuda is None:
        raise DeviceError(
            f'device="{device}": the installed torch {torch.__version__} is built without CUDA; install '
            f"a CUDA build of torch, or {_HINT}"
        )
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    except RuntimeError as error:
        raise DeviceError(f'device="{device}": {_first_line(error)}; {_HINT}') from None
    if count == 0:
        raise DeviceError(
            f'device="{device}": no NVIDIA GPU answers here (is its driver installed, is '
            f"CUDA_VISIBLE_DEVICES set?); {_HINT}"
        )
    number = device.partition(":")[2]
    index = int(number) if number else torch.cuda.current_device()
    if index >= count:
        raise DeviceError(f'device="{device}": there are {count} GPUs here, numbered from 0; {_HINT}')
    return torch.device("cuda", index)


def chosen(device: str, n_answers: int) -> Any | None:
    """Return the torch device for a fit of so many answers, None for the CPU."""
    if device == "cpu" or (device == "auto" and n_answers < SMALLEST_FIT):
        return None
    if device != "auto":
        return find(device)
    try:
        return find("cuda")
    except DeviceError:
        return None


def for_prediction(device: str, n_scores: int) -> Any | None:
    """Return the torch device for a prediction of so many scores, None for the CPU.

    A model that was fitted on a GPU predicts without one too.
    """
    if device == "cpu" or n_scores < SMALLEST_PREDICTION * (_AUTO if device == "auto" else 1):
        return None
    try:
        return find("cuda" if device == "auto" else device)
    except DeviceError:
        return None


@contextmanager
def at_work(device: Any) -> Iterator[None]:
    """Let the block work on a device, and turn the errors of CUDA into ones that say what to do."""
    import torch

    try:
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            yield
    except Exception as error:
        told = _failure(error)
        if told is None:
            raise
        raise told from error


def _failure(error: BaseException) -> DeviceError | None:
    """Return what to tell a user of an error that CUDA raised; None for other errors."""
    import torch

    if isinstance(error, torch.cuda.OutOfMemoryError):
        return TooLittleMemory(
            f"the GPU's memory is full ({_first_line(error)}); free it, lower rank, or take "
            'covariance="diagonal" or device="cpu"'
        )
    text = _first_line(error)
    if type(error).__module__.startswith("triton"):
        return DeviceError(
            f'the kernels do not compile for this GPU ({text}); say device="cpu", and please report it'
        )
    if isinstance(error, RuntimeError) and ("CUDA" in text or "cuda" in text):
        return DeviceError(
            f"the GPU stopped working ({text}); what a checkpoint has kept is still there: run the same "
            'fit again, on a GPU that works or with device="cpu"'
        )
    return None


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
