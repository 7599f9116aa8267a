"""Connections that send nothing, or half a request, are given up: they would keep others out."""

from __future__ import annotations

import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds that a request's head may take to arrive, and between two looks.
PATIENCE, EVERY = 10.0, 2.0


class HastyProtocol(H11Protocol):
    """uvicorn's protocol, with a deadline for the head of each request."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._since: float | None = time.monotonic()
        self._look = self.loop.call_later(EVERY, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Take in bytes; a request that has begun to be answered is no longer waited for."""
        if self._since is None and not self._answering():
            self._since = time.monotonic()
        super().data_received(data)
        if self._answering():
            self._since = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop looking."""
        self._look.cancel()
        super().connection_lost(exc)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _give_up(self) -> None:
        if self._since is not None and time.monotonic() - self._since > PATIENCE:
            self.transport.close()
            return
        self._look = self.loop.call_later(EVERY, self._give_up)
