"""Which Host headers belong to a server.

Any page that a user visits can reach a port of this machine through a host name of its own (DNS rebinding). A request
under another name than the server's own is refused.
"""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Collection, Iterable, Sequence

from ..engine.base.errors import UsageError
from ..engine.pool.display import display_line

LOOPBACK = ("127.0.0.1", "localhost")
ANY = "*"
WILDCARDS = frozenset({"0.0.0.0", "::", ""})
"""Addresses to listen on that nobody writes into a Host header."""

MINUTE = 60.0
MOST_LINES = 1000
"""Different lines of the log that are remembered."""


def own_hosts(names: Iterable[str], port: int) -> frozenset[str]:
    """The Host headers of a server at ``port``; clients omit port 80. A name that has a port is taken as it is."""
    hosts = set()
    for name in names:
        if name == ANY or _has_port(name):
            hosts.add(name.lower())
            continue
        hosts.add(f"{_bracketed(name)}:{port}".lower())
        if port == 80:
            hosts.add(_bracketed(name).lower())
    return frozenset(hosts)


def is_own(hosts: Sequence[str], own: Collection[str]) -> bool:
    """Whether a request has exactly one Host header, and it is one of the server's ``own``."""
    return len(hosts) == 1 and (hosts[0].lower() in own or ANY in own)


def is_own_page(origins: Sequence[str], own: Collection[str]) -> bool:
    """Whether a request comes from no page (no Origin header), or from one under the server's ``own`` names."""
    if not origins:
        return True
    scheme, _, host = origins[0].partition("://")
    port = {"http": 80, "https": 443}.get(scheme)
    return len(origins) == 1 and port is not None and (is_own([host], own) or is_own([f"{host}:{port}"], own))


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the address."""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def listener_at(host: str, port: int, again: str) -> socket.socket:
    """A listening socket; port 0 means any free one. `UsageError` if it is not available; ``again`` is its fix."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        where = f"port {port}" if host in LOOPBACK else f"{host}, port {port}"
        raise UsageError(f"cannot serve on {where}: {reason}", again) from error
    # connections inherit it; without it a reply's body waits 40 ms for its head to be acknowledged
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def log_on_one_line() -> None:
    """Warnings and errors of the server on stderr, each on one line, without tracebacks, the same once a minute."""
    logs = logging.StreamHandler()
    logs.setFormatter(_OneLine())
    logs.addFilter(Sparing())
    logging.basicConfig(level=logging.WARNING, handlers=[logs])


def _line(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    return display_line(f"{record.getMessage()}: {error!r}" if error else record.getMessage(), 500)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        again = getattr(record, "again", 0)
        return _line(record) + (f" ({again:,} times more since it was last told)" if again else "")


class Sparing(logging.Filter):
    """Of lines that are the same, one a minute; the next one says how many it stands for, as ``again``."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        line, now = _line(record), record.created
        told, again = self._told.get(line, (-math.inf, 0))
        if fresh := now - told >= MINUTE:
            record.again, again = again, 0
            if len(self._told) >= MOST_LINES:
                self._told.clear()
        self._told[line] = (now, 0) if fresh else (told, again + 1)
        return fresh


def _has_port(name: str) -> bool:
    before, colon, port = name.rpartition(":")
    return bool(colon) and port.isdigit() and (":" not in before or before.endswith("]"))


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name
