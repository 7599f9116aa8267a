"""``onebit serve``: a model over HTTP, with a page to answer questions on."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import typer

from onebit.cli import options as o
from onebit.cli.shell import Voice, WrongCommand, plain_errors


def serve(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]", show_default=False, help="A model that `onebit fit` wrote; or --demo."
        ),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve the demo's school, which is fitted first if need be.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8571,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="FILE",
            help="Keep answers that are sent in this SQLite file, for `onebit update --store`.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="ONEBIT_TOKEN",
            help="What requests must bring as Authorization: Bearer ...; new: make one and print it.",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", help="A host name that requests may use besides the address; may be repeated."
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            "--origin", help="A site whose pages may ask, such as https://example.org; else none."
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", help="Take up a new model that replaces the file.")
    ] = True,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
) -> None:
    """Serve a model: JSON under /api/, and a page at / that asks a person questions.

    It listens on this machine alone unless --host says otherwise, and keeps nothing of who asks; with
    --store it keeps the answers that are sent to /api/answers. What it answers is described in
    /api/openapi.json.

    Examples:
      onebit serve likes.onebit

      onebit serve --demo

      onebit serve likes.onebit --host 0.0.0.0 --name likes.example.org --token new --store answers.db
    """
    with plain_errors("Stopped."):
        voice = Voice(quiet)
        try:
            import uvicorn

            from onebit.serve.app import create_app
            from onebit.serve.guard import LOCAL, Settings
            from onebit.serve.protocol import HastyProtocol
        except ModuleNotFoundError as error:
            raise ImportError(
                f"serving needs {error.name}, which is not installed: pip install 'onebit[serve]'"
            ) from None
        if (model is None) != demo:
            raise WrongCommand("name a model, or say --demo, and not both")
        if token == "new":
            token = secrets.token_urlsafe(24)
        if host not in LOCAL and token is None:
            raise WrongCommand(
                f"listening on {host}, others can reach this server: set a token with --token new, or "
                "the environment variable ONEBIT_TOKEN"
            )
        path = _demo(voice) if model is None else model
        hosts = tuple(dict.fromkeys([*LOCAL, host, *(name or [])]))
        settings = Settings(token=token, hosts=hosts, origins=tuple(origin or ()))
        voice.note(f"preparing {path}")
        app = create_app(path, n_jobs=threads, store=store, settings=settings, watch=watch)
        config = uvicorn.Config(
            app, host=host, port=port, log_level="warning", access_log=False, server_header=False,
            date_header=False, limit_concurrency=256, timeout_keep_alive=5, http=HastyProtocol, ws="none",
            h11_max_incomplete_event_size=65536, timeout_graceful_shutdown=10,
        )  # fmt: skip
        _run(voice, uvicorn.Server(config), token, path, store)


def _run(voice: Voice, server: Any, token: str | None, path: str, store: str | None) -> None:
    """Run until Ctrl-C, and say where the page is once it is there."""
    import asyncio
    from contextlib import suppress

    from onebit.serve.guard import LOCAL

    host = server.config.host

    async def served() -> None:
        with suppress(SystemExit):  # uvicorn has said why it could not start
            await server.serve()

    async def main() -> None:
        serving = asyncio.create_task(served())
        while not server.started and not serving.done():
            await asyncio.sleep(0.02)
        if server.started:
            port = server.servers[0].sockets[0].getsockname()[1]
            shown = f"[{host}]" if ":" in host else "localhost" if host in LOCAL else host
            address = f"http://{shown}:{port}/" + (f"#token={token}" if token else "")
            voice.answer(None, f"Serving {path} at {address}")
            if store is not None:
                voice.note(f"answers sent there are kept in {store}; take them up with")
                voice.note(f"  onebit update {path} --store {store} -o {path}")
            voice.note("Ctrl-C stops it.")
        await serving

    asyncio.run(main())
    if not server.started:
        raise OSError(f"the server could not start: is port {server.config.port} taken?")


def _demo(voice: Voice) -> str:
    """Return the file of the demo's model, fitted where it is not there yet."""
    from pathlib import Path

    from onebit.study.demo import school_model

    path = Path("demo") / "school.onebit"
    if not path.is_file():
        voice.note("fitting the demo's school first, which takes a minute")
        path.parent.mkdir(exist_ok=True)
        school_model().save(path)
    return str(path)
