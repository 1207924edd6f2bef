"""Clients of httpx2 below the official ones: they limit the size and time of replies, and follow no redirect elsewhere.

httpx2 and openai are heavy, so this module is imported only when the first connection is opened.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from .address import Address, certificates, is_loopback
from .refusals import Refused

LARGEST = 64 << 20
"""Maximum bytes of a decompressed reply. Echoed prompts of 80 options with their log-probabilities have some 25 MB."""
CONNECT = 10.0
"""Maximum seconds until a connection is open."""
HOPS = 5
"""Maximum redirects within one server."""

_CODINGS = {"", "identity", "gzip", "x-gzip", "deflate"}
_KEPT = ("retry-after", "retry-after-ms")


def connected(address: Address, key: str, timeout: float) -> openai.OpenAI:
    """A client for threads; a whole reply may take ``timeout`` seconds. Raises `UsageError` as `certificates`."""
    http = _Client(**_options(address.url, timeout))
    return openai.OpenAI(http_client=http, **_known(address, key, timeout))


def connected_loop(address: Address, key: str, timeout: float, kept_alive: int) -> openai.AsyncOpenAI:
    """A client for an event loop, which limits the time of a whole reply itself. Raises as `connected`."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=kept_alive)
    http = _AsyncClient(limits=limits, **_options(address.url, timeout))
    return openai.AsyncOpenAI(http_client=http, **_known(address, key, timeout))


def _known(address: Address, key: str, timeout: float) -> dict[str, Any]:
    """What the official client is told; OpenAI alone learns whose organisation and project the environment names."""
    own = (urlsplit(address.url).hostname or "").endswith("api.openai.com")  # eu.api.openai.com, too
    headers = {} if own else {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
    return {
        "api_key": key, "base_url": address.url, "default_headers": headers, "max_retries": 0, "timeout": timeout,
    }  # fmt: skip


def _options(url: str, timeout: float) -> dict[str, Any]:
    trust_env = not is_loopback(url)  # proxy variables would also apply to 127.0.0.1
    return {
        "headers": {"Accept-Encoding": "gzip, deflate"},  # it would ask for others where their packages are installed
        "timeout": httpx2.Timeout(timeout, connect=min(CONNECT, timeout)),
        "trust_env": trust_env,
        "verify": certificates(trust_env),
    }


class _Client(httpx2.Client):
    """Never sends a text to a server that the user did not name. Returned replies are complete and have only the
    headers that are needed. Raises `Refused`."""

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        latest = time.monotonic() + (self.timeout.read or 0.0)
        for _ in range(HOPS):
            response = super().send(request, **_streamed(options))
            try:
                _check_coding(response)
                content = bytearray()
                for piece in response.iter_bytes():
                    _add(content, piece)
                    if time.monotonic() > latest:
                        raise httpx2.ReadTimeout("the reply does not end", request=request)
            finally:
                response.close()
            if not response.has_redirect_location:
                return _whole(response, content)
            request = _followed(request, response)
        raise _in_a_loop(request)


class _AsyncClient(httpx2.AsyncClient):
    """As `_Client`."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        for _ in range(HOPS):
            response = await super().send(request, **_streamed(options))
            try:
                _check_coding(response)
                content = bytearray()
                async for piece in response.aiter_bytes():
                    _add(content, piece)
            finally:
                await response.aclose()
            if not response.has_redirect_location:
                return _whole(response, content)
            request = _followed(request, response)
        raise _in_a_loop(request)


def _streamed(options: dict[str, Any]) -> dict[str, Any]:
    auth = {"auth": options["auth"]} if "auth" in options else {}
    return {"stream": True, "follow_redirects": False, **auth}


def _check_coding(response: httpx2.Response) -> None:
    """Raise `Refused` for nested compressions, which can expand a few bytes to gigabytes."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in _CODINGS:
        raise Refused("malformed", f"the reply is compressed as '{coding[:40]}', which was not requested")


def _add(content: bytearray, piece: bytes) -> None:
    """Append to the content read so far; raises `Refused` above `LARGEST`."""
    content += piece
    if len(content) > LARGEST:
        raise Refused("malformed", f"the reply is larger than {LARGEST >> 20} MB")


def _whole(response: httpx2.Response, content: bytearray) -> httpx2.Response:
    """Without other headers, an invalid character set or a compression cannot affect later processing."""
    headers = {name: response.headers[name] for name in _KEPT if name in response.headers}
    return httpx2.Response(response.status_code, headers=headers, content=bytes(content), request=response.request)


def _followed(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request:
    """The redirected request, if server and request stay the same; raises `Refused`."""
    following = response.next_request
    if following is None:
        raise Refused("redirect", f"{_server_of(request.url)} redirects to an invalid address")
    if following.url.origin != request.url.origin:
        raise Refused(
            "redirect",
            f"{_server_of(request.url)} redirects to {_server_of(following.url)}, another server: "
            "nothing was sent to it",
        )
    if following.method != request.method:
        raise Refused(
            "redirect", f"{_server_of(request.url)} redirects to {following.url.path[:100]} without the prompt"
        )
    return following


def _in_a_loop(request: httpx2.Request) -> Refused:
    return Refused("redirect", f"{_server_of(request.url)} redirects in a loop")


def _server_of(url: httpx2.URL) -> str:
    """Scheme, host and port: other parts may be secret."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"
