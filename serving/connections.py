"""What a connection may cost before its request is there: uvicorn waits for a head as long as its client likes."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import replace
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .requests import RequestLimits

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
