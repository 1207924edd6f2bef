"""Keys, which are sent to a server and never stored or shown, and texts of servers without them."""

from __future__ import annotations

import os
import re

LLM_KEY = "OPENAI_API_KEY"
ENCODER_KEY = "ICL_CURATE_ENCODER_KEY"
"""Environment variables."""

_SECRET = re.compile(r"\b(?:sk|pk|gsk|key|hf)[-_][A-Za-z0-9*_\-]{6,}|Bearer\s+\S+")


def key_in(variable: str) -> str:
    """The key in an environment variable, empty if there is none."""
    return os.environ.get(variable, "").strip()


def without_keys(text: str) -> str:
    """The text without the user's own keys."""
    for key in filter(None, map(key_in, (LLM_KEY, ENCODER_KEY))):
        text = text.replace(key, "***")
    return text


def shorten(text: str, limit: int = 300) -> str:
    """One line without anything that looks like a key, in a form that can be stored."""
    line = _SECRET.sub("***", " ".join(storable(without_keys(text[:10_000])).split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def storable(text: str) -> str:
    """The text with U+FFFD for each lone surrogate: JSON can contain them, UTF-8 (the workspace, a file) cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
