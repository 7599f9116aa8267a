"""Finding the GPU that ``device=`` names, and saying clearly why there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# The answers of the smallest fit that device="auto" takes to a GPU: below, a CPU is done before one has
# started. The scores of the smallest prediction that is worth bringing a model there.
SMALLEST_FIT = 200_000
SMALLEST_PREDICTION = 1_000_000

_HINT = 'leave device at "cpu", or say device="auto" to use a GPU only where there is one'


class DeviceError(RuntimeError):
    """No usable GPU, or one that stopped working; the message says what to do."""


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
    except ImportError as error:
        raise DeviceError(
            f'device="{device}" needs {error.name}: pip install "onebit[gpu]"; otherwise {_HINT}'
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
    found = torch.device(device)
    index = torch.cuda.current_device() if found.index is None else found.index
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
    if device == "cpu" or n_scores < SMALLEST_PREDICTION:
        return None
    try:
        return find("cuda" if device == "auto" else device)
    except DeviceError:
        return None


@contextmanager
def told_clearly() -> Iterator[None]:
    """Turn the errors that CUDA raises within the block into ones that say what to do."""
    try:
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
        return DeviceError(
            f"the GPU's memory is full ({_first_line(error)}); free it, lower rank, or take "
            'covariance="diagonal" or device="cpu"'
        )
    text = _first_line(error)
    if isinstance(error, RuntimeError) and ("CUDA" in text or "cuda" in text):
        return DeviceError(
            f"the GPU stopped working ({text}); what a checkpoint has kept is still there: run the same "
            'fit again, on a GPU that works or with device="cpu"'
        )
    return None


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
