"""Servers behind an OpenAI-compatible API: their addresses, which replies are accepted from them, and when to try
again. For LLMs and encoders alike.
"""

from __future__ import annotations

import os
import random
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from .errors import UsageError

if TYPE_CHECKING:
    import ssl

    import httpx2

VENDOR = "https://api.openai.com/v1"
NO_KEY = "none"
"""Sent to the user's own server, which needs no key."""

LARGEST = 64 << 20
"""Maximum bytes of a decompressed reply. Echoed prompts of 80 options with their log-probabilities have some 25 MB."""
CONNECT = 10.0
"""Maximum seconds until a connection is open."""
HOPS = 5
"""Maximum redirects within one server."""

FIRST = 0.5
LONGEST = 30.0

_CODINGS = {"", "identity", "gzip", "x-gzip", "deflate"}
_KEPT = ("retry-after", "retry-after-ms")


class Refused(Exception):
    """A rejected reply."""

    def __init__(self, kind: Literal["malformed", "redirect"], message: str) -> None:
        super().__init__(message)
        self.kind: Literal["malformed", "redirect"] = kind


def pause(attempt: int, retry_after: float | None) -> float:
    """Seconds before the attempt after number ``attempt`` (1, 2, …): doubling from half a second up to thirty, with
    jitter so that calls that failed together are not retried together. The server's own request is the minimum."""
    if retry_after is None:
        return min(FIRST * 2.0 ** (attempt - 1), LONGEST) * random.uniform(0.5, 1.0)
    return retry_after + random.uniform(0.0, min(0.1 * retry_after + 0.05, 1.0))


CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables that name the certificates to trust instead of the system's."""


def http_options(base_url: str, timeout: float) -> dict[str, Any]:
    """How a client of httpx2 connects; ``timeout`` in seconds. Raises `UsageError` as `certificates`."""
    import httpx2

    trust_env = not is_loopback(base_url)  # proxy variables would also apply to 127.0.0.1
    return {
        "timeout": httpx2.Timeout(timeout, connect=min(CONNECT, timeout)),
        "trust_env": trust_env,
        "verify": certificates(trust_env),
    }


def certificates(trust_env: bool) -> ssl.SSLContext:
    """The certificates that servers are checked against, those of the environment if it is to be trusted. Loaded once:
    this takes 20 to 40 ms, and each client would do it again. Raises `UsageError` if they cannot be read."""
    named = {name: os.environ[name] for name in CERTIFICATES if trust_env and os.environ.get(name)}
    try:
        return _certificates(trust_env, tuple(named.items()))
    except OSError as error:
        fix = next((f"correct {name}={value}" for name, value in named.items()), "export SSL_CERT_FILE=FILE.pem")
        raise UsageError(f"cannot read the certificates to trust: {error.strerror or error}", fix) from error


@lru_cache(maxsize=4)
def _certificates(trust_env: bool, named: tuple[tuple[str, str], ...]) -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context(trust_env=trust_env)


def checked_url(url: str) -> str:
    """A base URL without a slash at its end; raises `UsageError` for what is none."""
    parts = urlsplit(url.strip())
    try:
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or above 65535
        right = False
    if not right:
        raise UsageError(f"'{without_secrets(url)}' is not a base URL", "give one such as http://localhost:8000/v1")
    return url.strip().rstrip("/")


def without_secrets(url: str) -> str:
    """Only scheme, host, port and path: user names, passwords and query strings may be secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_loopback(url: str) -> bool:
    """Whether the server is on this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.") or host.endswith(".localhost")


def check_coding(response: httpx2.Response) -> None:
    """Raise `Refused` for nested compressions, which can expand a few bytes to gigabytes."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in _CODINGS:
        raise Refused("malformed", f"the reply is compressed as '{coding[:40]}', which was not requested")


def added(content: bytearray, piece: bytes) -> None:
    """Append to the content read so far; raises `Refused` above `LARGEST`."""
    content += piece
    if len(content) > LARGEST:
        raise Refused("malformed", f"the reply is larger than {LARGEST >> 20} MB")


def kept_headers(response: httpx2.Response) -> dict[str, str]:
    """The headers that are needed: an invalid character set or a compression cannot affect later processing."""
    return {name: response.headers[name] for name in _KEPT if name in response.headers}


def followed(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request:
    """The redirected request, if server and request stay the same; raises `Refused`."""
    following = response.next_request
    if following is None:
        raise Refused("redirect", f"{server_of(request.url)} redirects to an invalid address")
    if following.url.origin != request.url.origin:
        raise Refused(
            "redirect",
            f"{server_of(request.url)} redirects to {server_of(following.url)}, another server: nothing was sent to it",
        )
    if following.method != request.method:
        raise Refused(
            "redirect", f"{server_of(request.url)} redirects to {following.url.path[:100]} without the prompt"
        )
    return following


def server_of(url: httpx2.URL) -> str:
    """Scheme, host and port: other parts may be secret."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"
