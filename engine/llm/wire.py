"""The HTTP client beneath the official one: how much of a reply is read, and where a request may be sent on to.

httpx2 is heavy, so this module is imported where the first connection is opened.
"""

from __future__ import annotations

from typing import Any

import httpx2

from .types import FailureKind

LARGEST = 64 << 20
"""Bytes of a reply, decompressed. Echoed prompts of 80 options with their log-probabilities come to some 25 MB."""
HOPS = 5
"""Redirects within one server that a request follows."""

_CODINGS = {"", "identity", "gzip", "x-gzip", "deflate"}
_KEPT = ("retry-after", "retry-after-ms")


class Refused(Exception):
    """A reply that is not taken, as the failure it makes."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind


class Client(httpx2.AsyncClient):
    """Reads at most `LARGEST` bytes of any reply and never sends a prompt to a server that the user did not name.

    What it returns is read to its end and has no headers but those that are of use: a character set made up by a
    server, or a compression, has no say in what comes after. Raises `Refused`.
    """

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        auth = {"auth": options["auth"]} if "auth" in options else {}
        for _ in range(HOPS):
            response = await super().send(request, stream=True, follow_redirects=False, **auth)
            try:
                content = await _read(response)
            finally:
                await response.aclose()
            if not response.has_redirect_location:
                headers = {name: response.headers[name] for name in _KEPT if name in response.headers}
                return httpx2.Response(response.status_code, headers=headers, content=content, request=request)
            request = _followed(request, response)
        raise Refused("redirect", f"{_server(request.url)} redirects in a loop")


async def _read(response: httpx2.Response) -> bytes:
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in _CODINGS:  # several on top of each other make gigabytes of a few bytes
        raise Refused("malformed", f"the reply is compressed as '{coding[:40]}', which was not requested")
    pieces: list[bytes] = []
    size = 0
    async for piece in response.aiter_bytes():
        size += len(piece)
        if size > LARGEST:
            raise Refused("malformed", f"the reply is larger than {LARGEST >> 20} MB")
        pieces.append(piece)
    return b"".join(pieces)


def _followed(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request:
    """The request again where the server sends it, as long as that is the same server and the same request."""
    following = response.next_request
    if following is None:
        raise Refused("redirect", f"{_server(request.url)} redirects to an invalid address")
    if following.url.origin != request.url.origin:
        raise Refused(
            "redirect",
            f"{_server(request.url)} redirects to {_server(following.url)}, another server: nothing was sent to it",
        )
    if following.method != request.method:
        raise Refused("redirect", f"{_server(request.url)} redirects to {following.url.path[:100]} without the prompt")
    return following


def _server(url: httpx2.URL) -> str:
    """Scheme, host and port: the rest may hold secrets."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"
