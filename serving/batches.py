"""Requests that arrive while another is answered are answered together: one encoding and one search for all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ..engine.base.errors import CurateError
from .service import Ask, Found, Service

AT_ONCE = 64
"""Queries of one batch: larger requests are cut, so that small ones get their turn in between."""


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
            found = []
            for part in _parts(ask):
                answer = await self._queued(part)
                if isinstance(answer, Exception):
                    raise answer
                found += answer
            return found
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
            room -= len(ask.queries)
            if not ask.alike(first) or (room < 0 and ask is not first):
                return
            self._waiting.popleft()
            if not future.cancelled():
                yield ask, future


def _parts(ask: Ask) -> Iterator[Ask]:
    if len(ask.queries) <= AT_ONCE:
        yield ask
        return
    for start in range(0, len(ask.queries), AT_ONCE):
        yield replace(ask, queries=ask.queries[start : start + AT_ONCE])
