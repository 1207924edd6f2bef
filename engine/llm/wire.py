"""The HTTP client below the official one: limits the size of replies and restricts redirects.

httpx2 is heavy, so this module is imported only when the first connection is opened.
"""

from __future__ import annotations

from typing import Any

import httpx2

from .types import FailureKind

LARGEST = 64 << 20
"""Maximum bytes of a decompressed reply. Echoed prompts of 80 options with their log-probabilities have some 25 MB."""
HOPS = 5
"""Maximum redirects within one server."""

_CODINGS = {"", "identity", "gzip", "x-gzip", "deflate"}
_KEPT = ("retry-after", "retry-after-ms")


class Refused(Exception):
    """A rejected reply, as a failure."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind


class Client(httpx2.AsyncClient):
    """Reads at most `LARGEST` bytes of any reply and never sends a prompt to a server that the user did not name.

    Returned replies are complete and have only the headers that are needed, so an invalid character set or a
    compression cannot affect later processing. Raises `Refused`.
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
    if coding not in _CODINGS:  # nested compressions can expand a few bytes to gigabytes
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
    """The redirected request, if server and request stay the same."""
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
    """Scheme, host and port: other parts may be secret."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"
