"""Files at an address: on the web, or in an object store with the user's own credentials.

An address is fetched when the user names it and at no other time: what was fetched lies in the workspace, which may be
a stranger's, and is read from there.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from ..base.errors import UsageError
from ..base.progress import SILENT, Event, Monitor
from ..http.address import certificates, is_loopback
from ..shards import storage
from ..store.request_fields import without_secrets

WEB, STORE = ("https://", "http://"), "s3://"
LARGEST = 20 << 30
"""Bytes of a file."""
CONNECT, SILENCE = 10.0, 60.0
"""Seconds until a connection is open, and until the next bytes come."""
HOPS = 5
"""Redirects."""
_PIECE = 1 << 20
_CODINGS = {"", "identity", "gzip", "x-gzip", "deflate"}
"""Of which a piece unpacks to a thousand times its size at most."""


def is_remote(pattern: str) -> bool:
    """Whether this is the address of a file."""
    return pattern.lower().startswith((*WEB, STORE))


def kept_file(home: Path, address: str) -> Path:
    """Where a workspace keeps the file at an address: under its own name, which may tell format and source."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", PurePosixPath(unquote(urlsplit(address).path)).name).lstrip(".")
    return home / "web" / hashlib.blake2b(address.encode(), digest_size=8).hexdigest() / (name[-100:] or "file")


def fetch(address: str, out: BinaryIO, monitor: Monitor = SILENT) -> None:
    """Write the file at an address. Raises `UsageError` if it cannot be had, is a web page or larger than `LARGEST`,
    and `Cancelled` between pieces."""
    place, size = without_secrets(address), 0
    with (_on_the_web if address.lower().startswith(WEB) else _stored)(address) as (total, pieces):
        for piece in chain([b""], pieces):  # the first, before the answer is read
            monitor.check()
            size += out.write(piece)
            if max(size, total or 0) > LARGEST:
                raise UsageError(f"{place} is larger than {LARGEST >> 30} GB", "take a part of it")
            monitor.report(Event("download (MB)", size >> 20, total and total >> 20))
    if not size:
        raise UsageError(f"{place} is empty", "check the address")


@contextmanager
def _stored(address: str) -> Iterator[tuple[int | None, Iterator[bytes]]]:
    try:
        with storage.reading(address, "download the file yourself") as stream:
            yield None, iter(lambda: stream.read(_PIECE), b"")
    except FileNotFoundError as error:
        raise UsageError(f"there is no {without_secrets(address)}", "name a single file") from error


@contextmanager
def _on_the_web(address: str) -> Iterator[tuple[int | None, Iterator[bytes]]]:
    import httpx2

    place = without_secrets(address)
    trust_env = not is_loopback(address)  # proxy variables would also apply to 127.0.0.1
    client = httpx2.Client(
        timeout=httpx2.Timeout(SILENCE, connect=CONNECT), trust_env=trust_env, verify=certificates(trust_env),
        headers={"Accept-Encoding": "identity", "User-Agent": "icl-curate"},
    )  # fmt: skip
    try:
        with client:
            response = _answer(client, address)
            length = response.headers.get("content-length", "")
            _demand_file(place, response)
            yield int(length) if length.isdecimal() else None, response.iter_bytes(_PIECE)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        what = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise UsageError(f"cannot fetch {place}: {what}", "check the address, or download the file yourself") from error


def _answer(client: Any, address: str) -> Any:
    """The response behind redirects: none leads away from https, or from a public address to a private one."""
    request = client.build_request("GET", address)
    for _ in range(HOPS):
        response = client.send(request, stream=True, follow_redirects=False)
        following = response.next_request
        if following is None:
            return response
        response.close()
        here, there = str(request.url), str(following.url)
        if (request.url.scheme == "https" != following.url.scheme) or (_private(there) and not _private(here)):
            raise UsageError(
                f"{without_secrets(here)} redirects to {without_secrets(there)}", "name that address if you trust it"
            )
        request = following
    raise UsageError(f"{without_secrets(address)} redirects more than {HOPS} times", "check the address")


def _demand_file(place: str, response: Any) -> None:
    if response.status_code != 200:
        secret = " (a user and a password stand before the host)" if response.status_code == 401 else ""
        raise UsageError(f"cannot fetch {place}: HTTP {response.status_code}", f"check the address{secret}")
    if response.headers.get("content-type", "").startswith("text/html"):
        raise UsageError(f"{place} is a web page, not a file", "take the address of the file itself (raw, download)")
    if (coding := response.headers.get("content-encoding", "").strip().lower()) not in _CODINGS:
        raise UsageError(f"{place} is sent as '{coding[:40]}', which was not asked for", "download the file yourself")


def _private(address: str) -> bool:
    try:
        return ipaddress.ip_address(urlsplit(address).hostname or "").is_private
    except ValueError:
        return is_loopback(address)
