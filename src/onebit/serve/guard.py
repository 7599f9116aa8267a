"""What stands in front of a served model: who may ask, how much at once, and what is said when it fails.

It is one ASGI layer. A request is refused for its host (a page elsewhere may have been pointed at this
address, which is how DNS rebinding works), for its origin, for a missing token, for too large a body or
too many requests at once; whatever goes wrong inside is answered with a status and a short sentence.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import time
from dataclasses import dataclass
from typing import Any

import anyio

from onebit.serve.metrics import Metrics
from onebit.serve.requests import Refused

logger = logging.getLogger("onebit.serve")

HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
LOCAL = ("localhost", "127.0.0.1", "::1")
# Anybody may ask whether the server is there; the page itself holds no data.
OPEN = ("/", "/page.js", "/page.css", "/icon.svg", "/api/health")


@dataclass(frozen=True)
class Settings:
    """Who may use a server, and how much of it.

    Attributes
    ----------
    token : str, optional
        What a request must bring as ``Authorization: Bearer ...``; without one, anybody who reaches the
        server may ask.
    hosts : tuple of str
        The names that requests may address the server by; ``*`` is any.
    origins : tuple of str
        Other sites whose pages may ask (CORS), such as ``https://example.org``; none unless named.
    max_body : int
        The most bytes of a request's body.
    max_pairs, max_answers, max_rows : int
        The most pairs to predict, answers of a row, and rows to summarise in one request.
    max_requests : int
        Requests in work or waiting at once; more are asked to come back.
    timeout : float
        Seconds that a request may take, and its body to arrive.
    """

    token: str | None = None
    hosts: tuple[str, ...] = LOCAL
    origins: tuple[str, ...] = ()
    max_body: int = 1 << 20
    max_pairs: int = 10_000
    max_answers: int = 5_000
    max_rows: int = 50
    max_requests: int = 64
    timeout: float = 10.0

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < 16 or not self.token.isascii()):
            raise ValueError("a token has at least 16 characters, all of them ASCII")


class Guard:
    """The layer itself, around an application."""

    def __init__(self, app: Any, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.busy = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
                return
            await self.app(scope, receive, send)
            return
        scope = {**scope, "onebit.path": _path(scope)}
        reply = _Reply(send, self._headers(scope))
        began = time.perf_counter()
        try:
            await self._passed(scope, receive, reply)
        except Refused as refusal:
            await reply.say(refusal.status, refusal.message)
        except Exception:
            logger.exception("a request to %s failed", scope.get("path"))
            await reply.say(500, "something went wrong here; it has been noted")
        finally:
            self.metrics.count(scope["onebit.path"], reply.status, time.perf_counter() - began)

    async def _passed(self, scope: Any, receive: Any, reply: _Reply) -> None:
        settings = self.settings
        head = _head(scope)
        if scope["method"] == "OPTIONS" and "origin" in head:
            await reply.say(204 if head["origin"] in settings.origins else 403, None)
            return
        self._check(scope, head)
        if self.busy >= settings.max_requests:
            reply.headers["retry-after"] = "1"
            raise Refused(503, "too many requests at once; come back in a second")
        self.busy += 1
        try:
            with anyio.move_on_after(settings.timeout) as limit:
                body = await _body(receive, head, settings.max_body)
                await self.app(scope, _once(body), reply.send)
            if limit.cancelled_caught:
                raise Refused(503, f"this took more than {settings.timeout:g} seconds")
        finally:
            self.busy -= 1

    def _check(self, scope: Any, head: dict[str, str]) -> None:
        settings = self.settings
        host = _host(head.get("host", ""))
        if "*" not in settings.hosts and host not in settings.hosts:
            raise Refused(421, "this server does not answer by that name (Host)")
        origin = head.get("origin")
        if origin is not None and origin not in settings.origins and not _same(origin, head):
            raise Refused(403, "pages of other sites may not ask here (Origin)")
        if settings.token is not None and scope["onebit.path"] not in OPEN:
            given = head.get("authorization", "")
            wanted = f"Bearer {settings.token}"
            if not hmac.compare_digest(given.encode("latin-1", "replace"), wanted.encode()):
                raise Refused(401, "a token is needed: Authorization: Bearer ...")
        if scope["method"] == "POST":
            # A form on another site cannot send this type without asking first.
            kind = head.get("content-type", "").split(";")[0].strip().lower()
            if kind != "application/json":
                raise Refused(415, "send JSON: Content-Type: application/json")

    def _headers(self, scope: Any) -> dict[str, str]:
        headers = dict(HEADERS)
        origin = _head(scope).get("origin")
        if origin in self.settings.origins and origin is not None:
            headers |= {
                "access-control-allow-origin": origin,
                "access-control-allow-headers": "authorization, content-type",
                "access-control-allow-methods": "GET, POST",
                "cross-origin-resource-policy": "cross-origin",
                "vary": "origin",
            }
        return headers


class _Reply:
    """What is sent back, with the headers that every reply has."""

    def __init__(self, send: Any, headers: dict[str, str]) -> None:
        self._send, self.headers = send, headers
        self.status = 0

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name for name, _ in message.get("headers", [])}
            more = [
                (name.encode(), value.encode())
                for name, value in self.headers.items()
                if name.encode() not in own
            ]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await self._send(message)

    async def say(self, status: int, message: str | None) -> None:
        """Answer with a status and a sentence, if nothing has been sent yet."""
        if self.status:
            return
        body = b"" if message is None else json.dumps({"error": message}).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if status == 401:
            head.append((b"www-authenticate", b"Bearer"))
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body})


def _path(scope: Any) -> str:
    """Return the path inside this application, which may be mounted in another."""
    path, root = scope["path"], scope.get("root_path", "")
    return (path[len(root) :] or "/") if root and path.startswith(root) else path


def _head(scope: Any) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _host(header: str) -> str:
    """Return the name in a Host header, without its port; nothing where it is none."""
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]*)(:[0-9]{1,5})?", header)
    return "" if found is None else found[1].strip("[]").lower()


def _same(origin: str, head: dict[str, str]) -> bool:
    scheme, _, where = origin.partition("://")
    return scheme in ("http", "https") and where.lower() == head.get("host", "").lower()


async def _body(receive: Any, head: dict[str, str], most: int) -> bytes:
    """Read a body, as long as it is not too long."""
    declared = head.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise Refused(413, f"a request has at most {most:,} bytes")
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request broke off")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise Refused(413, f"a request has at most {most:,} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _once(body: bytes) -> Any:
    """Return a ``receive`` that hands over a body that has been read."""

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
