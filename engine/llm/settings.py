"""Settings of the access to the LLM. None of them changes an answer, so none is in the cache key, except those that a
backend includes in its identity (base URL, endpoint, dtype)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Endpoint = Literal["auto", "chat", "completions"]
ENDPOINTS: tuple[Endpoint, ...] = ("auto", "chat", "completions")
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class LLMSettings:
    """All settings of an LLM except its name.

    ``base_url``: the server of ``openai:`` specs (else ``OPENAI_BASE_URL``, else the vendor's own). ``timeout``:
    seconds for one call. ``concurrency``: maximum calls in flight; the runner increases up to it and backs off if the
    server asks for it. ``attempts`` and ``max_wait`` (seconds) bound how often and how long one request is tried.
    ``grace``: seconds for calls already sent, and so paid for, to finish after an interruption. ``endpoint``: ``auto``
    uses chat completions and falls back to completions. ``device`` and ``dtype`` belong to ``hf:`` specs (``auto``: see
    `hf.loading.dtype_named`); ``batch_size``: maximum requests that a local model takes at once.
    """

    base_url: str | None = None
    timeout: float = 120.0
    concurrency: int = 64
    attempts: int = 6
    max_wait: float = 600.0
    grace: float = 5.0
    endpoint: Endpoint = "auto"
    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 32


DEFAULTS = LLMSettings()
