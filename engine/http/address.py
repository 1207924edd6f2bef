"""Addresses of servers, the certificates that they are checked against, and the keys that they are sent."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..base.errors import UsageError
from ..store.request_fields import VARIABLE, base_url, read_table, sendable, without_secrets
from .refusals import LLM_KEY, SENT

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class Vendor:
    """An OpenAI-compatible address, and the environment variable of the key that goes there and nowhere else."""

    url: str
    key: str


VENDORS = {
    "openai": Vendor("https://api.openai.com/v1", LLM_KEY),
    "anthropic": Vendor("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "gemini": Vendor("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "groq": Vendor("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": Vendor("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "openrouter": Vendor("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
}
"""By the prefix of ``--llm``."""
NO_KEY = "none"
"""Sent to the user's own server, which needs no key."""

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables that name the certificates to trust instead of the system's."""


@dataclass(frozen=True, slots=True)
class Address:
    """The base URL of a server; ``own``: the user named it, so it may need no key; ``variable``: where its key is."""

    url: str
    own: bool
    variable: str = LLM_KEY

    @classmethod
    def of(cls, url: str, vendor: str = "openai") -> Address:
        """That of ``url``, else of ``OPENAI_BASE_URL``, else the vendor's; another vendor has its own alone. Raises
        `UsageError` for what is no URL."""
        given = (url or os.environ.get("OPENAI_BASE_URL") or "") if vendor == "openai" else ""
        usual = VENDORS[vendor]
        if not given:
            return cls(usual.url, False, usual.key)
        return cls(base_url("base_url" if url else "OPENAI_BASE_URL", given), True, usual.key)

    def key(self, key: str) -> str:
        """What is sent as the key where ``key`` is known; empty if the server cannot be asked without one."""
        return key or (NO_KEY if self.own else "")

    def __str__(self) -> str:
        return without_secrets(self.url)


def is_asked_at(server: str, llm: str, url: str) -> bool:
    """Whether the ``server`` is where an LLM is asked, by its spec, if ``url`` is the setting."""
    with suppress(UsageError, KeyError):  # of a variable that names no server; another kind of LLM
        return str(Address.of(url, llm.partition(":")[0].strip().lower())) == server
    return False


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


def filled(name: str, table: str) -> dict[str, str]:
    """What is sent of the setting ``headers`` or ``query_params``: its values with the variables of the environment
    that they name. Raises `UsageError` for one that is not set, or that cannot be sent."""
    return {key: _filled(f"{name}: {key}", name, value) for key, value in read_table(table).items()}


def _filled(what: str, name: str, value: str) -> str:
    named = VARIABLE.findall(value)
    if lacking := [variable for variable in named if not os.environ.get(variable)]:
        raise UsageError(f"{what} needs {lacking[0]}, which is not set", f"export {lacking[0]}=…")
    SENT.update(os.environ[variable].strip() for variable in named)
    value = VARIABLE.sub(lambda variable: os.environ[variable[1]].strip(), value)
    if not sendable(name, value):
        raise UsageError(f"{what} has a line break or a character that cannot be sent", f"correct {', '.join(named)}")
    return value


def is_loopback(url: str) -> bool:
    """Whether the server is on this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.") or host.endswith(".localhost")


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port."""
    parts = urlsplit(url.strip())
    return parts.scheme, (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)
