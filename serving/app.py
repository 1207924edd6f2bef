"""The HTTP application: POST /select and GET /health as JSON, for those who may ask."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..engine.base.errors import CurateError, LLMError, LockedError, UsageError
from ..engine.base.packages import VERSION
from ..engine.pool.display import encodable_json
from ..engine.pool.records import Query
from ..engine.retrieval.encoder import FEW
from ..engine.retrieval.served import EncoderDown, is_served
from ..engine.store.settings import Settings
from ..render.suggested import completed
from .hosts import is_own, is_own_page
from .requests import EXAMPLE, RequestLimits, read
from .service import Ask, Found, Service

AT_ONCE = FEW - 1
"""Queries of one batch: larger requests are cut, so that small ones get their turn in between. So few that the encoder
stays the same one under load: bfloat16 would move cosines by .001, and its packages take seconds to load."""
COUNTED = 1_000
"""Characters from which a query counts as several: 33 texts of 100,000 were one batch of five seconds and more."""


class BusyError(CurateError):
    """More queries wait than the service accepts."""


class Batches:
    """Hands requests to ``service`` in one thread. At most ``most`` queries wait; a request beyond that is refused with
    `BusyError`."""

    def __init__(self, service: Service, most: int) -> None:
        self.service, self.most = service, most
        self._waiting: deque[tuple[Ask, asyncio.Future[Found]]] = deque()
        self._queries = 0
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "select")

    async def ask(self, ask: Ask) -> list[dict[str, Any]]:
        """One object for each query, in order. Raises what the selection raises."""
        if self._queries + len(ask.queries) > self.most:
            raise BusyError(f"{self._queries:,} queries are waiting", "try again in a second, or serve more --workers")
        self._queries += len(ask.queries)
        try:
            answers = []
            for part in _parts(ask):
                answer = await self._queued(part)
                if isinstance(answer, Exception):
                    raise answer
                answers += answer
            return answers
        finally:
            self._queries -= len(ask.queries)

    def close(self) -> None:
        """What is being answered is finished."""
        self._thread.shutdown()

    def _queued(self, ask: Ask) -> asyncio.Future[Found]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Found] = loop.create_future()
        self._waiting.append((ask, future))
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        return future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = [*self._next()]
            answers = await loop.run_in_executor(self._thread, self.service.answer, [ask for ask, _ in batch])
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():  # its client has gone
                    future.set_result(answer)

    def _next(self) -> Iterator[tuple[Ask, asyncio.Future[Found]]]:
        """The next requests that can be answered together."""
        first, room = self._waiting[0][0], AT_ONCE
        while self._waiting:
            ask, future = self._waiting[0]
            room -= sum(map(_size, ask.queries))
            if not ask.alike(first) or (room < 0 and ask is not first):
                return
            self._waiting.popleft()
            if not future.cancelled():
                yield ask, future


def _parts(ask: Ask) -> Iterator[Ask]:
    """The request in parts of `AT_ONCE` queries at most, fewer where they are long."""
    part: list[Query] = []
    room = AT_ONCE
    for query in ask.queries:
        room -= _size(query)
        if part and room < 0:
            yield replace(ask, queries=tuple(part))
            part, room = [], AT_ONCE - _size(query)
        part.append(query)
    yield replace(ask, queries=tuple(part))


def _size(query: Query) -> int:
    """How many short queries it counts for."""
    return 1 + len(query.searched(passages=True)) // COUNTED


_log = logging.getLogger(__name__)

SELECT, PROMPT = "/select", "/prompt"
ROUTES = f"POST {SELECT}, POST {PROMPT} or GET /health"


@dataclass(frozen=True)
class Served:
    """What a server needs to know; it can be sent to another process. ``hosts`` are the Host headers it answers to;
    without ``token`` everybody who reaches it may ask; ``locked``: changes of the workspace are not followed."""

    path: Path
    settings: Settings
    hosts: frozenset[str]
    token: str = field(default="", repr=False)
    limits: RequestLimits = RequestLimits()
    locked: bool = False


def make_app(served: Served, service: Service | None = None, ended: Callable[[], None] = lambda: None) -> Starlette:
    """The application; it opens its ``service`` if none is given, and closes it at its end. ``ended`` is called before:
    all requests have their replies, but threads may still wait for an encoder's server."""
    opened = service or Service(served.path, served.settings, locked=served.locked)
    lanes: defaultdict[str, Batches] = defaultdict(partial(Batches, opened, served.limits.waiting))
    apart = is_served(opened.settings.encoder)  # methods that need no encoder do not wait for its server

    async def answer(request: Request) -> Response:
        body = await _body(request, served.limits)
        try:
            ask, many = read(body, served.settings, served.limits, prompts=request.url.path == PROMPT)
        except UsageError as error:
            return _error(400, error.what, error.fix)
        batches = lanes[ask.method if apart else ""]
        asked, gone = asyncio.create_task(batches.ask(ask)), asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait((asked, gone), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():  # those who wait are not to wait for answers that nobody reads
                raise ClientDisconnect
            results = asked.result()
        except asyncio.CancelledError:  # the server has been told to end, and waits no longer
            fix = "send it again: to this server once it is back, or to another one"
            return _error(503, "the server is ending", fix, {"Retry-After": "1", "Connection": "close"})
        finally:
            asked.cancel()
            gone.cancel()
        return _reply({"method": ask.method, "k": ask.k, "results": results} if many else {**results[0], "k": ask.k})

    async def health(request: Request) -> Response:
        """Who has no token learns that it runs, as a probe does, and no more."""
        seen = await asyncio.to_thread(opened.health)
        known = {"version": VERSION, **seen} if _may_ask(request.headers, served.token) else {}
        return _reply({"status": "ok", **known})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            with suppress(asyncio.CancelledError):  # after a second Ctrl-C
                yield
        finally:
            ended()
            for lane in lanes.values():
                lane.close()
            opened.close()

    app = Starlette(
        routes=[
            *(Route(path, answer, methods=["POST"]) for path in (SELECT, PROMPT)),
            Route("/health", health, methods=["GET"]),
        ],
        middleware=[Middleware(_Guard, served=served)],
        exception_handlers={
            HTTPException: _refused,
            CurateError: _failed,
            ClientDisconnect: _gone,
            Exception: _unexpected,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a client may lose the body on the way
    return app


class _Guard:
    """Answers requests under the server's own name alone, and all but ``/health`` with the token alone."""

    def __init__(self, app: ASGIApp, served: Served) -> None:
        self.app, self.served = app, served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not is_own(headers.getlist("host"), self.served.hosts):
            return _error(403, "not an address of this server", "serve with --allow-host NAME to answer to that name")
        if not is_own_page(headers.getlist("origin"), self.served.hosts):
            return _error(403, "a page of another site asks", "serve with --allow-host NAME if the page is yours")
        if scope["path"] != "/health" and not _may_ask(headers, self.served.token):
            what = "the token is missing or wrong"
            return _error(401, what, "send the header Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        return None


def _may_ask(headers: Headers, token: str) -> bool:
    given = headers.getlist("authorization")
    if not token:
        return True
    scheme, _, sent = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return scheme.lower() == "bearer" and hmac.compare_digest(sent.strip().encode("latin-1"), token.encode())


async def _body(request: Request, limits: RequestLimits) -> bytes:
    """The body, read no further and no longer than its limits. Only JSON is accepted: pages of other sites cannot send
    it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the body is not declared as JSON")
    body = bytearray()
    try:
        async with asyncio.timeout(limits.timeout):
            async for part in request.stream():
                body += part
                if len(body) > limits.body:
                    raise HTTPException(413, f"the body has more than {limits.body:,} bytes")
    except TimeoutError as error:
        what = f"the body did not arrive within {limits.timeout:g} seconds"
        raise HTTPException(408, what, {"Connection": "close"}) from error
    return bytes(body)


FIXES = {
    404: f"use {ROUTES}",
    405: f"use {ROUTES}",
    408: "send it faster or in parts, or serve with a larger --timeout",
    413: "send fewer queries at a time",
    415: "send the header Content-Type: application/json",
}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail.lower(), FIXES.get(error.status_code, EXAMPLE), error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    """`UsageError`: the workspace as it is cannot answer this, for instance because it has no vectors."""
    assert isinstance(error, CurateError)
    if isinstance(error, LockedError | BusyError):
        return _error(503, error.what, error.fix, {"Retry-After": "1"})
    if isinstance(error, LLMError):  # the server of an encoder behind an API
        _log.error("%s", error.what)
        return _error(502, error.what, "send it again later" if isinstance(error, EncoderDown) else error.fix)
    if not isinstance(error, UsageError):
        _log.error("%s", error.what)
    return _error(409 if isinstance(error, UsageError) else 500, error.what, error.fix)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _unexpected(request: Request, error: Exception) -> Response:
    return _error(500, f"unexpected: {type(error).__name__}", "see the server's log")


def _error(status: int, what: str, fix: str, headers: Mapping[str, str] | None = None) -> Response:
    return _reply({"error": what, "fix": completed(fix)}, status, headers)


def _reply(fields: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    text = encodable_json(json.dumps(fields, ensure_ascii=False))
    kept = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})}
    return Response(text.encode(), status, kept, "application/json")
