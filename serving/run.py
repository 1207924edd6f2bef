"""Run the HTTP application until it is interrupted, in one process or in several that share its address."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from ..engine.base.errors import UsageError, counted
from ..engine.base.files import read_regular
from ..engine.store.settings import Settings
from ..render.terminal import guard, narrate, say
from .app import Served, make_app
from .hosts import ANY, LOOPBACK, WILDCARDS, is_loopback, listener_at, log_on_one_line, own_hosts
from .requests import RequestLimits
from .service import Service

BACKLOG = 64
"""Connections that wait to be accepted. As many are accepted in one go, before any of them can be refused."""
FILES = 64
"""Files of the process that are no connections: of the database, of indexes, of libraries."""
HEAD = 64 << 10
"""Maximum bytes of a head, as far as they come in several pieces."""


class Connection(HttpToolsProtocol):
    """A connection that is closed if its client takes longer than ``limits.timeout`` over a head, or does not take its
    reply. (How long a body may take is the application's affair.)

    At most ``limits.connections`` stay open, half of them from one address. One more closes the one that has waited
    longest for its client: who keeps connections open cannot keep others out.
    """

    def __init__(self, *args: Any, limits: RequestLimits, **more: Any) -> None:
        super().__init__(*args, **more)
        self._limits = limits
        self._since, self._head, self._unsent = 0.0, 0, 0
        self._look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        own = [other for other in self._others() if other.client and self.client and other.client[0] == self.client[0]]
        if len(own) >= max(self._limits.connections // 2, 1):
            self._make_room(own)
        elif len(self.connections) > self._limits.connections:
            self._make_room(self._others())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._between_requests:
            rest = self._limits.body if self.cycle and self.cycle.more_body else 0  # of a request refused by its head
            if self._head > HEAD + rest:
                self.transport.abort()
                return
            self._head += len(data)
        super().data_received(data)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    @property
    def waits(self) -> bool:
        """Whether it is the client's turn to send."""
        return self._between_requests or self.cycle.more_body

    @property
    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _others(self) -> list[Connection]:
        return [other for other in self.connections if isinstance(other, Connection) and other is not self]

    def _make_room(self, others: list[Connection]) -> None:
        idle = [other for other in others if other.waits and not other.transport.get_write_buffer_size()]
        oldest = min(idle, key=lambda other: other._since, default=self)
        self.connections.discard(oldest)
        oldest.transport.abort()

    def _wait(self) -> None:
        self._since, self._head = self.loop.time(), 0
        self._look_later()

    def _look_later(self) -> None:
        if self._look is not None:
            self._look.cancel()
        self._unsent = self.transport.get_write_buffer_size()
        self._look = self.loop.call_later(self._limits.timeout, self._looked)

    def _looked(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent >= self._unsent if unsent else self._between_requests:
            self.transport.abort()
        else:
            self._look_later()


def within_files(limits: RequestLimits) -> RequestLimits:
    """The same with no more connections than the limit of open files leaves."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = limits.connections if files == resource.RLIM_INFINITY else max(files - FILES, 8)
    return replace(limits, connections=min(limits.connections, room))


LIMITS = RequestLimits()
GRACE = 5
"""Seconds for requests to end after an interruption."""
LEFT = 1.0
"""Seconds for threads to end after that."""
BUSY = 300
"""Seconds without a sign of a worker after which it is replaced. With uvicorn's 5, two workers beside eight busy loops
did not answer in a quarter of an hour."""

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
                uvicorn.Server(configured(partial(make_app, served, service, _leave), limits)).run([listener])
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
        timeout_worker_healthcheck=BUSY,
    )


def _in_worker(served: Served) -> Starlette:
    guard()
    log_on_one_line()
    return make_app(served, ended=_leave)


def _leave() -> None:
    """End the process soon, whatever its threads wait for: nobody reads that, and a thread cannot be stopped while an
    encoder's server does not answer it (up to the timeout of a call)."""
    late = threading.Timer(LEFT, os._exit, (0,))
    late.daemon = True
    late.start()


def _ended(number: int, frame: object) -> None:
    """uvicorn hands on the signal that it was ended by; the command then ends as having done what it was asked to."""
