"""The body of POST /select and POST /prompt: what it may say, and within which limits."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.base.errors import UsageError
from ..engine.pool.fields import query_of, require
from ..engine.pool.records import Query
from ..engine.select.selector import method_named
from ..engine.store.settings import Settings
from .service import Ask

OF_A_QUERY = ("query", "options", "context", "history", "system")
OF_A_REQUEST = (*OF_A_QUERY, "queries", "method", "k")
EXAMPLE = 'send {"query": "a question"} or {"queries": ["one", "another"]}'


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """``body`` in bytes, ``text`` in characters; ``queries`` and ``k`` of one request, ``shots`` their product;
    ``waiting`` queries of all requests together, with an encoder behind an API of all by one method; ``connections`` of
    a process, and the ``timeout`` in seconds for a head and again for a body."""

    body: int = 4 << 20
    text: int = 100_000
    k: int = 100
    queries: int = 1_000
    shots: int = 20_000
    waiting: int = 4_000
    connections: int = 512
    timeout: float = 20.0


def read(body: bytes, settings: Settings, limits: RequestLimits, prompts: bool = False) -> tuple[Ask, bool]:
    """What is asked, with ``prompts`` for prompts, and whether as a batch. Raises `UsageError` for anything unknown, of
    another type or too large, and for a query without a field that the prompt reads."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is not JSON: {error}", EXAMPLE) from error
    if not isinstance(fields, dict):
        raise UsageError("the body is not a JSON object", EXAMPLE)
    _only(fields, OF_A_REQUEST, '{{"query": {{"input": "…", "{}": …}}}}')
    if ("query" in fields) == ("queries" in fields):
        raise UsageError("the body needs either 'query' or 'queries'", EXAMPLE)
    reads = settings.reads
    method = fields.get("method", settings.method)
    if not isinstance(method, str):
        raise UsageError("'method' is not a text", 'for example "method": "bm25"')
    method_named(method)
    k = fields.get("k", settings.k)
    if not isinstance(k, int) or isinstance(k, bool):
        raise UsageError("'k' is not a whole number", 'for example "k": 4')
    if not 0 <= k <= limits.k:
        raise UsageError(f"'k' is not a number from 0 to {limits.k:,}", "ask for fewer, or serve with a larger --max-k")
    stray = [name for name in OF_A_QUERY[1:] if name in fields]
    if "query" in fields:
        asked = fields["query"]
        if not isinstance(asked, dict):
            asked = {name: fields[name] for name in OF_A_QUERY if name in fields}
        elif stray:
            what = f"'{stray[0]}' stands beside a query that is an object"
            raise UsageError(what, f'put it there: {{"query": {{"input": "…", "{stray[0]}": …}}}}')
        return Ask((_query(asked, limits.text, reads),), method, k, prompts), False
    if stray:
        fix = '{"queries": [{"query": "…", "options": […], "context": "…", "history": […], "system": "…"}]}'
        raise UsageError(f"'{stray[0]}' stands beside 'queries'", f"give it with each query: {fix}")
    queries = fields["queries"]
    if not isinstance(queries, list) or not queries:
        raise UsageError("'queries' is not a list with at least one query", EXAMPLE)
    if len(queries) > limits.queries or len(queries) * k > limits.shots:
        what = f"{len(queries):,} queries with k = {k} are too many for one request"
        raise UsageError(what, f"send at most {min(limits.queries, limits.shots // max(k, 1)):,} at a time")
    return Ask(tuple(_each(queries, limits.text, reads)), method, k, prompts), True


def _each(queries: Sequence[Any], longest: int, reads: Collection[str]) -> Iterator[Query]:
    """As `_query`; an error tells which of them it is."""
    for number, given in enumerate(queries, 1):
        try:
            yield _query(given, longest, reads)
        except UsageError as error:
            raise UsageError(f"query {number} of {len(queries):,}: {error.what}", error.fix) from error


def _query(given: Any, longest: int, reads: Collection[str]) -> Query:
    record = {"input": given} if isinstance(given, str) else given
    if not isinstance(record, dict):
        raise UsageError("a query is neither a text nor an object", EXAMPLE)
    if "input" not in record:
        if "query" not in record:
            raise UsageError("the query has no 'input'", 'for example {"input": "a question", "tier": "gold"}')
        _only(record, OF_A_QUERY, '{{"input": "…", "{}": …}}')
        record = {"input": record.get("query")} | {name: record[name] for name in OF_A_QUERY[1:] if name in record}
    query = query_of(record)
    require(query, reads)
    said = (turn.content for turn in query.history or ())
    texts = (query.input, query.context, *query.options, *said, *map(_text, query.fields.values()))
    if (size := max(map(len, texts))) > longest:
        raise UsageError(f"a text has {size:,} characters", f"send texts of at most {longest:,}")
    return query


def _text(value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except RecursionError as error:
        raise UsageError("a field is nested too deeply", EXAMPLE) from error


def _only(fields: Mapping[str, Any], known: Sequence[str], record: str) -> None:
    """Raise `UsageError` for a name that is not ``known``: it may be a field, which has its place in a ``record``."""
    if strange := [name for name in fields if name not in known]:
        fix = f"use {', '.join(known)}; a field of the query goes into a record: {record.format(strange[0])}"
        raise UsageError(f"unknown key '{strange[0]}'", fix)
