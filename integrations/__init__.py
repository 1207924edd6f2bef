"""Adapters: the selection of a workspace inside LangChain, DSPy and LlamaIndex. Each needs its own library."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from ..engine.pool.records import Message, Query, untold

NOTHING: Mapping[str, Any] = {"options": [], "context": "", "history": []}
"""What a demonstration may have besides its input and output, where it has none of it."""


def asked(text: str, given: Mapping[str, Any], text_field: str = "input") -> Query:
    """A query with what is given besides its text: ``options``, ``context``, as ``history`` messages with ``role`` and
    ``content``, and further fields, which are texts, numbers, lists and objects; values of other types are left out, as
    is ``text_field``, in which its text is."""
    options, context, history = (given.get(name) for name in NOTHING)
    listed = [turn for turn in history if isinstance(turn, Mapping)] if isinstance(history, list) else []
    turns = tuple(Message(str(turn.get("role")), str(turn.get("content", ""))) for turn in listed)
    texts = tuple(map(str, options)) if isinstance(options, list | tuple) else ()
    plain = (str, int, float, list, dict)
    fields = {name: value for name, value in given.items() if name not in NOTHING and isinstance(value, plain)}
    fields.pop(text_field, None)
    return Query(text, texts, context if isinstance(context, str) else "", history=turns or None, fields=untold(fields))


def digest_of(text: str) -> str:
    """A hash of what an object of a library says of itself, but for the addresses in memory that it may name."""
    return hashlib.blake2b(re.sub(r" at 0x[0-9a-fA-F]+", "", text).encode(), digest_size=8).hexdigest()
