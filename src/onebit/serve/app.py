"""The application: paths and what they answer. Plain ASGI, for any server or inside another one."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import joblib
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from onebit.data.store import Conflict, Store, StoreError
from onebit.serve import replies
from onebit.serve import requests as r
from onebit.serve.guard import Guard, Settings
from onebit.serve.held import Held
from onebit.serve.metrics import Metrics
from onebit.serve.openapi import PATHS, description
from onebit.serve.requests import Refused

_PAGE = Path(__file__).parent / "page"
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
# Seconds between two looks at the model's file.
WATCH = 2.0
MOST_LISTED = 100
WORDS = {
    404: "there is no such path; /api/openapi.json lists them all",
    405: "this path takes another method; /api/openapi.json says which",
}
# Each is chosen in view of those before it.
MOST_QUESTIONS = 20

logger = logging.getLogger("onebit.serve")

Reply = Callable[[Any, dict[str, Any]], dict[str, Any]]


def create_app(
    model: Any,
    *,
    n_jobs: int | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    watch: bool = False,
) -> Any:
    """Return an ASGI application that answers from a model.

    Parameters
    ----------
    model : completer or path
        A fitted model, or the file of one.
    n_jobs : int, optional
        Threads of large predictions, if not as the model was fitted.
    store : Store or path, optional
        Where ``/api/answers`` keeps new answers; without it, it keeps none.
    settings : Settings, optional
        Who may ask, and how much.
    watch : bool
        Look at the model's file every two seconds, and take up one that was put in its place.

    Examples
    --------
    >>> from onebit import LogisticCompleter, simulate
    >>> from onebit.serve import Settings, create_app
    >>> from starlette.testclient import TestClient
    >>> world = simulate.world("B1", rank=1, shape=(30, 20), density=0.5, seed=0)
    >>> model = LogisticCompleter(2).fit(world.pairs, world.answers)
    >>> client = TestClient(create_app(model), base_url="http://localhost")
    >>> client.get("/api/model").json()["rows"]
    30
    """
    service = _Service(Held(model, n_jobs), store, settings or Settings())
    app = Starlette(
        routes=service.routes(),
        lifespan=partial(_watching, service, watch),
        exception_handlers={Refused: _refused, HTTPException: _refused, Exception: _failed},
    )
    app.router.redirect_slashes = False
    app.state.held = service.held
    service.guard = Guard(app, service.settings, service.metrics)
    return service.guard


async def _refused(request: Request, error: Any) -> Response:
    """Answer with a status and a sentence."""
    status = getattr(error, "status", None) or error.status_code
    message = getattr(error, "message", None) or WORDS.get(status, str(getattr(error, "detail", "")))
    return JSONResponse({"error": message}, status)


async def _failed(request: Request, error: Exception) -> Response:
    """Answer what nobody foresaw; the guard has it logged."""
    return JSONResponse({"error": "something went wrong here; it has been noted"}, 500)


@asynccontextmanager
async def _watching(service: _Service, watch: bool, app: Any) -> Any:
    """Look after the model's file for as long as the application runs."""

    async def look() -> None:
        while True:
            await anyio.sleep(WATCH)
            if service.held.changed() and await anyio.to_thread.run_sync(service.held.reload):
                service.metrics.reloads += 1

    async with anyio.create_task_group() as tasks:
        if watch:
            tasks.start_soon(look)
        yield
        tasks.cancel_scope.cancel()


class _Service:
    """What the paths share: the model, the store, the limits and the threads that compute."""

    def __init__(self, held: Held, store: Any, settings: Settings) -> None:
        self.held, self.settings = held, settings
        self.store = Store(store) if isinstance(store, (str, os.PathLike)) else store
        self.metrics = Metrics((*_FILES, *PATHS, "/api/openapi.json"))
        self.places = anyio.CapacityLimiter(max(2, joblib.cpu_count()))
        self.writing = anyio.CapacityLimiter(1)
        self.threads = anyio.CapacityLimiter(1000)  # the places are what is scarce
        self.guard: Guard | None = None
        self.files = {path: (_PAGE / name).read_bytes() for path, (name, _) in _FILES.items()}

    def routes(self) -> list[Route]:
        """Return the paths."""
        posts: dict[str, Reply] = {
            "/api/predict": self.predict,
            "/api/fold-in": self.fold_in,
            "/api/recommend": self.recommend,
            "/api/next": self.next_questions,
            "/api/rows": self.rows,
            "/api/answers": self.answers,
        }
        gets: dict[str, Reply] = {
            "/api/model": self.card,
            "/api/columns": partial(self.search, side=1),
            "/api/map": lambda model, content: replies.map_points(model),
        }
        found = [Route(path, self._post(reply), methods=["POST"]) for path, reply in posts.items()]
        found += [Route(path, self._get(reply), methods=["GET"]) for path, reply in gets.items()]
        found += [
            Route("/api/health", self.health, methods=["GET"]),
            Route("/api/metrics", self.counts, methods=["GET"]),
            Route("/api/openapi.json", self.description, methods=["GET"]),
        ]
        found += [Route(path, partial(self.file, path=path), methods=["GET"]) for path in _FILES]
        return found

    def _post(self, reply: Reply) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            return await self._replied(reply, await request.body())

        return handle

    def _get(self, reply: Reply) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            return await self._replied(reply, dict(request.query_params))

        return handle

    async def _replied(self, reply: Reply, given: bytes | dict[str, Any]) -> Response:
        """Compute a reply on a thread, from the model that is there now."""
        model = self.held.model

        def work() -> bytes:
            content = r.parsed(given) if isinstance(given, bytes) else given
            return bytes(JSONResponse(reply(model, content)).body)

        # Whoever waits for the disk keeps nobody from computing.
        places = self.writing if reply == self.answers else self.places
        return Response(await self._computed(work, places), media_type="application/json")

    async def _computed(self, work: Callable[[], bytes], places: anyio.CapacityLimiter) -> bytes:
        """Run work on one of a few threads.

        A request that is given up is answered at once; its thread counts until it is done.
        """
        place = object()
        await places.acquire_on_behalf_of(place)
        begun = False

        def leaving() -> bytes:
            nonlocal begun
            begun = True
            try:
                return work()
            finally:
                with suppress(RuntimeError):  # the loop is gone
                    anyio.from_thread.run_sync(places.release_on_behalf_of, place)

        try:
            return await anyio.to_thread.run_sync(leaving, limiter=self.threads, abandon_on_cancel=True)
        except BaseException:
            if not begun:
                places.release_on_behalf_of(place)
            raise

    def card(self, model: Any, content: dict[str, Any]) -> dict[str, Any]:
        """Return what the model is."""
        r.fields(content)
        return replies.card(model, self.held.name, self.held.token, self.store is not None)

    def predict(self, model: Any, content: dict[str, Any]) -> dict[str, Any]:
        """Return predictions of pairs."""
        given = r.fields(content, pairs=r.pairs(self.settings.max_pairs))
        return replies.predict(model, given["pairs"])

    def _answers(self, model: Any) -> Any:
        return r.answers(self.settings.max_answers, replies.words_of(model))

    def fold_in(self, model: Any, content: dict[str, Any]) -> dict[str, Any]:
        """Return what is known of a new row."""
        given = r.fields(
            content,
            answers=self._answers(model),
            columns=r.ids(self.settings.max_pairs),
            n=r.whole(0, MOST_LISTED, 5),
            level=r.share(0.9),
            questions=r.whole(0, MOST_QUESTIONS, 0),
        )
        return replies.fold_in(model, *given.values())

    def next_questions(self, model: Any, content: dict[str, Any]) -> dict[str, Any]:
        """Return the next questions."""
        given = r.fields(
            content,
            answers=self._answers(model),
            n=r.whole(1, MOST_QUESTIONS, 1),
            goal=_goal(self.settings.max_pairs),
            among=r.ids(self.settings.max_pairs),
        )
        return replies.next_questions(model, *given.values())

    def recommend(self, model: Any, content: dict[str, Any]) -> dict[str, Any]:
        """Return the likeliest columns of a row."""
        told = "answers" in content
        given = r.fields(
            content, row=r.optional_id, answers=self._answers(model), n=r.whole(1, MOST_LISTED, 10)
        )
        if told == (given["row"] is not None):
            raise Refused(422, "name a row that the model knows, or send the answers of a new one")
        return replies.recommend(model, given["row"], given["answers"] if told else None, given["n"])

    def rows(self, model: Any, content: dict[str, Any]) -> dict[str, Any]:
        """Return known rows: those named, or those whose ids contain a text."""
        if "rows" in content:
            given = r.fields(content, rows=r.ids(self.settings.max_rows), level=r.share(0.9))
            return replies.rows(model, given["rows"] or [], given["level"])
        return self.search(model, content, side=0)

    def search(self, model: Any, content: dict[str, Any], side: int) -> dict[str, Any]:
        """Return ids that contain a text."""
        numbers = {
            name: int(value) if isinstance(value, str) and _few_digits(value) else value
            for name, value in content.items()
            if name in ("n", "offset")
        }
        given = r.fields(
            {**content, **numbers},
            search=r.text(r.LONGEST_ID),
            n=r.whole(0, MOST_LISTED, 20),
            offset=r.whole(0, 2**31, 0),
        )
        return replies.search(model, side, *given.values())

    def answers(self, model: Any, content: dict[str, Any]) -> dict[str, Any]:
        """Keep new answers of a row; they are on the disk when this returns."""
        if self.store is None:
            raise Refused(404, "this server keeps no answers; it was started without --store")
        given = r.fields(content, key=r.text(200), row=r.optional_id, answers=self._answers(model))
        if given["key"] is None or given["row"] is None or not given["answers"]:
            raise Refused(422, "answers need a key of their own, a row and at least one answer")
        replies.encoded(model.rows_, [given["row"]])
        replies.known_codes(model.columns_, [column for column, _ in given["answers"]], 422)
        try:
            new = self.store.add(given["key"], given["row"], given["answers"])
        except Conflict as conflict:
            raise Refused(409, str(conflict)) from None
        except StoreError as error:
            logger.warning("answers were not stored: %s", error)
            raise Refused(
                503, "the answers were not stored; send them again, with the same key"
            ) from None
        self.metrics.stored += len(given["answers"]) if new else 0
        return {"stored": len(given["answers"]), "new": new}

    async def health(self, request: Request) -> Response:
        """Say that the server is there."""
        return JSONResponse({"status": "ok"})

    async def counts(self, request: Request) -> Response:
        """Return the metrics."""
        busy = 0 if self.guard is None else self.guard.busy
        return PlainTextResponse(self.metrics.text(self.held.version, busy))

    async def description(self, request: Request) -> Response:
        """Return the OpenAPI description."""
        return JSONResponse(description(self.settings))

    async def file(self, request: Request, path: str) -> Response:
        """Return a file of the page."""
        return Response(self.files[path], media_type=_FILES[path][1])


def _few_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def _goal(most: int) -> Callable[[Any, str], Any]:
    listed = r.ids(most)

    def rule(value: Any, name: str) -> Any:
        if value is None or value in ("mean", "row"):
            return value or "mean"
        if isinstance(value, str):
            raise Refused(422, f'{name} is "mean", "row" or a list of columns; not {r.shown(value)}')
        return listed(value, name)

    return rule
