"""Arrays between the host's memory and the GPU's, at the speed of the bus.

A plain copy from ordinary memory is several times slower than one from pinned memory, and pinning a large
array takes longer than copying it: here, large arrays pass through two small pinned buffers, so that one
is filled or emptied while the other is on its way; of very large ones, several threads take a piece each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

# Bytes of what is pinned as a whole, of one buffer (smaller arrays are copied at once), and of what is
# worth a thread of its own.
SMALL = 2**16
BUFFER = 2**24
PIECE = 2**29
THREADS = min(8, os.cpu_count() or 1)


class _Writable:
    """An array that calls itself writable: torch knows no others, and nobody writes to it."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        interface = dict(self.array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        return interface


def as_tensor(array: NDArray[Any]) -> torch.Tensor:
    """Return an array as a tensor that shares its memory; nobody writes to it."""
    array = np.ascontiguousarray(array)
    if any(stride < 0 for stride in array.strides):  # of a single line turned round, which counts
        array = array.copy()
    return torch.from_numpy(np.asarray(_Writable(array)))


def to_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """Return an array on the device."""
    source = as_tensor(array)
    if device.type == "cpu":
        return source.clone()
    if array.nbytes <= SMALL:  # nobody waits: what is pinned is kept until it has been copied
        return source.pin_memory().to(device, non_blocking=True)
    if array.nbytes <= BUFFER:
        return source.to(device)
    target = torch.empty(source.shape, dtype=source.dtype, device=device)
    _in_pieces(_upwards, source.view(-1), target.view(-1))
    return target


def placed(array: NDArray[Any] | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return an array, or what is a tensor already, on the device."""
    return array.to(device) if isinstance(array, torch.Tensor) else to_device(array, device)


def on_its_way(tensor: torch.Tensor) -> Callable[[], NDArray[Any]]:
    """Send a small tensor to the host; return what waits for it, and for nothing that is begun later."""
    if tensor.device.type == "cpu":
        array = tensor.numpy().copy()
        return lambda: array
    host = tensor.to("cpu", non_blocking=True)
    sent = torch.cuda.current_stream(tensor.device).record_event()

    def arrived() -> NDArray[Any]:
        sent.synchronize()
        return host.numpy()

    return arrived


def to_host(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor as an array of the host."""
    if tensor.device.type == "cpu":
        return tensor.numpy().copy()
    if tensor.nbytes <= BUFFER:
        return tensor.cpu().numpy()
    target = torch.empty(tensor.shape, dtype=tensor.dtype)
    _in_pieces(_downwards, target.view(-1), tensor.contiguous().view(-1))
    return target.numpy()


def _in_pieces(copy: Any, host: torch.Tensor, device: torch.Tensor) -> None:
    """Copy flat tensors, a piece for each thread."""
    torch.cuda.current_stream(device.device).synchronize()
    threads = min(THREADS, -(-host.nbytes // PIECE))
    if threads == 1:
        copy(host, device)
        return
    size = -(-len(host) // threads)
    pieces = [slice(begin, begin + size) for begin in range(0, len(host), size)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda piece: copy(host[piece], device[piece]), pieces))


def _buffers(host: torch.Tensor) -> tuple[list[torch.Tensor], list[slice]]:
    """Return two pinned buffers, and the parts of ``host`` that they take in turns."""
    size = BUFFER // host.element_size()
    buffers = [torch.empty(min(size, len(host)), dtype=host.dtype, pin_memory=True) for _ in range(2)]
    return buffers, [slice(begin, begin + size) for begin in range(0, len(host), size)]


def _upwards(host: torch.Tensor, device: torch.Tensor) -> None:
    buffers, parts = _buffers(host)
    gone: list[torch.cuda.Event | None] = [None, None]
    stream = torch.cuda.Stream(device.device)
    with torch.cuda.stream(stream):
        for turn, part in enumerate(parts):
            event = gone[turn % 2]
            if event is not None:
                event.synchronize()
            buffer = buffers[turn % 2][: len(host[part])]
            buffer.copy_(host[part])
            device[part].copy_(buffer, non_blocking=True)
            gone[turn % 2] = stream.record_event()
    stream.synchronize()


def _downwards(host: torch.Tensor, device: torch.Tensor) -> None:
    buffers, parts = _buffers(host)
    stream = torch.cuda.Stream(device.device)
    arrived: list[torch.cuda.Event] = []
    with torch.cuda.stream(stream):
        for turn in range(len(parts) + 1):
            if turn < len(parts):
                part = parts[turn]
                buffers[turn % 2][: len(host[part])].copy_(device[part], non_blocking=True)
                arrived.append(stream.record_event())
            if turn > 0:  # the one before has had a whole turn to arrive
                part = parts[turn - 1]
                arrived[turn - 1].synchronize()
                host[part].copy_(buffers[(turn - 1) % 2][: len(host[part])])
