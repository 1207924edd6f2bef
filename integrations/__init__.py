"""Adapters: the selection of a workspace inside LangChain, DSPy and LlamaIndex. Each needs its own library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..engine.pool.records import Message, Query

NOTHING: Mapping[str, Any] = {"options": [], "context": "", "history": []}
"""What a demonstration may have besides its input and output, where it has none of it."""


def asked(text: str, given: Mapping[str, Any]) -> Query:
    """A query with what is given besides its text: ``options``, ``context``, and as ``history`` messages with ``role``
    and ``content``; values of other types are left out."""
    options, context, history = (given.get(name) for name in NOTHING)
    listed = [turn for turn in history if isinstance(turn, Mapping)] if isinstance(history, list) else []
    turns = tuple(Message(str(turn.get("role")), str(turn.get("content", ""))) for turn in listed)
    texts = tuple(map(str, options)) if isinstance(options, list | tuple) else ()
    return Query(text, texts, context if isinstance(context, str) else "", history=turns or None)
