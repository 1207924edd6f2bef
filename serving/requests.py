"""The body of POST /select: what it may say, and within which limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.base.errors import UsageError
from ..engine.pool.records import Message, Query
from ..engine.select.selector import method_named
from ..engine.store.settings import Settings
from .service import Ask

OF_A_QUERY = ("query", "options", "context", "history")
OF_A_REQUEST = (*OF_A_QUERY, "queries", "method", "k")
ROLES = ("system", "user", "assistant")
EXAMPLE = 'send {"query": "a question"} or {"queries": ["one", "another"]}'


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """``body`` in bytes, ``text`` in characters; ``queries`` and ``k`` of one request, ``shots`` their product;
    ``waiting`` queries of all requests together; ``connections`` of a process, and the ``timeout`` in seconds for a
    head and again for a body."""

    body: int = 4 << 20
    text: int = 100_000
    k: int = 100
    queries: int = 1_000
    shots: int = 20_000
    waiting: int = 4_000
    connections: int = 512
    timeout: float = 20.0


def read(body: bytes, settings: Settings, limits: RequestLimits) -> tuple[Ask, bool]:
    """What is asked, and whether as a batch. Raises `UsageError` for anything unknown, of another type or too large."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is not JSON: {error}", EXAMPLE) from error
    if not isinstance(fields, dict):
        raise UsageError("the body is not a JSON object", EXAMPLE)
    _only(fields, OF_A_REQUEST)
    if ("query" in fields) == ("queries" in fields):
        raise UsageError("the body needs either 'query' or 'queries'", EXAMPLE)
    method = fields.get("method", settings.method)
    if not isinstance(method, str):
        raise UsageError("'method' is not a text", 'for example "method": "bm25"')
    method_named(method)
    k = fields.get("k", settings.k)
    if not isinstance(k, int) or isinstance(k, bool) or not 0 <= k <= limits.k:
        raise UsageError(f"'k' is not a number from 0 to {limits.k:,}", "ask for fewer, or serve with a larger --max-k")
    if "query" in fields:
        alone = {name: fields[name] for name in OF_A_QUERY if name in fields}
        return Ask((_query(alone, limits.text),), method, k), False
    if stray := [name for name in OF_A_QUERY if name in fields]:
        fix = '{"queries": [{"query": "…", "options": […], "context": "…", "history": […]}]}'
        raise UsageError(f"'{stray[0]}' stands beside 'queries'", f"give it with each query: {fix}")
    queries = fields["queries"]
    if not isinstance(queries, list) or not queries:
        raise UsageError("'queries' is not a list with at least one query", EXAMPLE)
    if len(queries) > limits.queries or len(queries) * k > limits.shots:
        what = f"{len(queries):,} queries with k = {k} are too many for one request"
        raise UsageError(what, f"send at most {min(limits.queries, limits.shots // max(k, 1)):,} at a time")
    return Ask(tuple(_query(one, limits.text) for one in queries), method, k), True


def _query(given: Any, longest: int) -> Query:
    fields = {"query": given} if isinstance(given, str) else given
    if not isinstance(fields, dict):
        raise UsageError("a query is neither a text nor an object", EXAMPLE)
    _only(fields, OF_A_QUERY)
    text, options, context = fields.get("query"), fields.get("options") or [], fields.get("context") or ""
    if not isinstance(text, str) or not text.strip():
        raise UsageError("the query is empty or not a text", EXAMPLE)
    if not isinstance(options, list) or not all(isinstance(one, str) for one in options):
        raise UsageError("'options' is not a list of texts", 'for example "options": ["yes", "no"]')
    if not isinstance(context, str):
        raise UsageError("'context' is not a text", 'for example "context": "a passage"')
    query = Query(text, tuple(options), context, history=_history(fields.get("history")))
    said = [turn.content for turn in query.history or ()]
    if (size := max(map(len, (text, context, *options, *said)))) > longest:
        raise UsageError(f"a text has {size:,} characters", f"send texts of at most {longest:,}")
    return query


def _history(given: Any) -> tuple[Message, ...] | None:
    """The messages before a query, a system prompt first."""
    if given is None:
        return None
    fix = 'for example "history": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]'
    if not isinstance(given, list):
        raise UsageError("'history' is not a list of messages", fix)
    turns = []
    for turn in given:
        if not isinstance(turn, dict) or turn.keys() != {"role", "content"}:
            raise UsageError("a message of 'history' has not exactly 'role' and 'content'", fix)
        if turn["role"] not in ROLES or not isinstance(turn["content"], str):
            raise UsageError(f"a message of 'history' is not a text of {' or '.join(ROLES)}", fix)
        turns.append(Message(turn["role"], turn["content"]))
    return tuple(turns)


def _only(fields: Mapping[str, Any], known: Sequence[str]) -> None:
    if strange := [name for name in fields if name not in known]:
        raise UsageError(f"unknown key '{strange[0]}'", f"use {', '.join(known)}")
