"""Run the HTTP application until it is interrupted, in one process or in several that share its address."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from uvicorn.supervisors import Multiprocess

from ..engine.base.errors import UsageError, counted
from ..engine.base.files import read_regular
from ..engine.store.settings import Settings
from ..render.terminal import guard, narrate, say
from .app import Served, make_app
from .connections import BACKLOG, Connection, within_files
from .hosts import ANY, LOOPBACK, WILDCARDS, is_loopback, listener_at, log_on_one_line, own_hosts
from .requests import RequestLimits
from .service import Service

LIMITS = RequestLimits()
GRACE = 5
"""Seconds for requests to end after an interruption."""

TOKEN = "ICL_CURATE_TOKEN"
SHORTEST = 16
"""Characters of a token: a shorter one can be guessed."""

MAKE_TOKEN = "python -c 'import secrets; print(secrets.token_urlsafe())' > token.txt, and --token-file token.txt"


def token_of(file: Path | None) -> str:
    """The token in the file, else in the environment, else an empty one. Raises `UsageError` for one that is short or
    cannot be sent in a header."""
    if file is None and TOKEN not in os.environ:
        return ""
    try:
        token = os.environ[TOKEN] if file is None else read_regular(file).decode().strip()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read the token: {getattr(error, 'strerror', None) or error}", MAKE_TOKEN) from error
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"the token is not {SHORTEST} or more letters, digits and signs", MAKE_TOKEN)
    return token


def serve(
    path: Path,
    settings: Settings,
    host: str,
    port: int,
    *,
    also: Sequence[str] = (),
    token: str = "",
    limits: RequestLimits = LIMITS,
    workers: int = 1,
    locked: bool = False,
) -> None:
    """Serve the workspace at ``path`` until SIGINT or SIGTERM; ``also`` are further names that the server answers to.

    The address is printed once requests are accepted. Raises `UsageError` for an address that is not available, or that
    others can reach without a token, and as `Service` does.
    """
    names = names_of(host, also, token)
    with (
        listener_at(host, port, "icl-curate serve --port 0") as listener,
        closing(Service(path, settings, locked=locked)) as service,
    ):
        port = listener.getsockname()[1]
        served = Served(service.workspace.path, settings, own_hosts(names, port), token, limits, locked)
        narrate(f"{counted(service.health()['rows'], 'demonstration')}, method {settings.method}. Ctrl-C ends it.")
        say(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        previous = {number: signal.signal(number, _ended) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            if workers == 1:
                log_on_one_line()
                uvicorn.Server(configured(partial(make_app, served, service), limits)).run([listener])
            else:
                service.close()  # each worker has its own
                Multiprocess(configured(partial(_in_worker, served), limits, workers), [listener]).run()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def names_of(host: str, also: Sequence[str], token: str) -> list[str]:
    """The names that a server at the address ``host`` answers to. Raises `UsageError` if others than this machine could
    ask without a token, or if it would have no name."""
    if not token and (not is_loopback(host) or ANY in also):
        what = f"everybody who reaches {host} could ask" if ANY not in also else "any page could ask under its own name"
        raise UsageError(f"{what}: a token is required", MAKE_TOKEN)
    if host in WILDCARDS and not also:
        what = f"{host} is no name that a client can use"
        raise UsageError(what, "--allow-host NAME for each name or address it is reached by, or --allow-host '*'")
    own = () if host in WILDCARDS else (host,)
    return [*own, *LOOPBACK, *also]


def configured(make: Callable[[], Starlette], limits: RequestLimits = LIMITS, workers: int = 1) -> uvicorn.Config:
    """Without a log of requests, without websockets, and without trusting what a client says of proxies."""
    return uvicorn.Config(
        make,
        http=partial(Connection, limits=within_files(limits)),  # type: ignore[arg-type]
        ws="none",
        backlog=BACKLOG,
        factory=True,
        workers=workers,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
    )


def _in_worker(served: Served) -> Starlette:
    guard()
    log_on_one_line()
    return make_app(served)


def _ended(number: int, frame: object) -> None:
    """uvicorn hands on the signal that it was ended by; the command then ends as having done what it was asked to."""
