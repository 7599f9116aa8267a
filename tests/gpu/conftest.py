"""The kernels run on a GPU where there is one, and under Triton's interpreter where there is none.

The interpreter takes some hundredths of a second for what a GPU does in a microsecond: the worlds are
tiny there.
"""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from triton.runtime import interpreter

from onebit.engine.gpu import device as gpus
from onebit.engine.gpu.workers import Gpu
from onebit.engine.workers import Cpu

_seen = set()


def _call(function, *arguments, **named):
    """Call what a kernel calls, without looking through all of Triton's language each time.

    A kernel's launch has patched what its own module knows of the language; Triton's library knows more.
    """
    if id(function.fn.__globals__) not in _seen:
        _seen.add(id(function.fn.__globals__))
        interpreter._patch_lang(function.fn)
    return function.rewrite()(*arguments, **named)


if not torch.cuda.is_available():
    interpreter.InterpretedFunction.__call__ = _call


@pytest.fixture(scope="session")
def device():
    return gpus.find("cuda")


@pytest.fixture
def gpu(device):
    return Gpu(device, 1)


@pytest.fixture
def cpu():
    return Cpu()


@pytest.fixture(scope="session")
def small():
    """A shape that both the interpreter and a GPU handle in a blink."""
    return (9, 7) if gpus.interpreted() else (300, 200)
