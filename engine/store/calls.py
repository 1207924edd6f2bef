"""The call cache: paid answers, failures, and the probed capabilities of each LLM.

Rows are read and written in bulk, as Arrow tables: looking up a whole plan is one join, storing a batch of answers one
statement (one row at a time is 50 times slower in DuckDB).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from .columns import key_table
from .workspace import Workspace


@dataclass(frozen=True, slots=True)
class Call:
    """A row of ``llm_calls`` without its time: see `schema` for the columns. ``key`` has 16 bytes."""

    key: bytes
    llm: str
    model: str
    text: str
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    option_logprobs: tuple[tuple[float, ...], ...]
    finish: str
    tokens_in: int
    tokens_out: int
    latency: float
    attempts: int
    entropies: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A row of ``llm_failures`` without its time."""

    key: bytes
    llm: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class LLMUsage:
    """Totals of one LLM. ``uncertain`` counts its answers without log-probabilities."""

    llm: str
    calls: int
    tokens_in: int
    tokens_out: int
    uncertain: int
    failures: int


_CALLS = pa.schema(
    [
        ("key", pa.binary()),
        ("llm", pa.string()),
        ("model", pa.string()),
        ("text", pa.string()),
        ("tokens", pa.list_(pa.string())),
        ("logprobs", pa.list_(pa.float64())),
        ("option_logprobs", pa.list_(pa.list_(pa.float64()))),
        ("finish", pa.string()),
        ("tokens_in", pa.int64()),
        ("tokens_out", pa.int64()),
        ("latency", pa.float64()),
        ("attempts", pa.int32()),
        ("entropies", pa.list_(pa.float64())),
        ("asked_at", pa.timestamp("us")),
    ]
)
_FAILURES = pa.schema(
    [
        ("key", pa.binary()),
        ("llm", pa.string()),
        ("kind", pa.string()),
        ("message", pa.string()),
        ("failed_at", pa.timestamp("us")),
    ]
)
_COLUMNS = ", ".join(f"c.{field.name}" for field in fields(Call))


def lookup(workspace: Workspace, keys: Iterable[bytes]) -> dict[bytes, Call]:
    """The cached answers, by key; keys without one are left out."""
    wanted = key_table(list(dict.fromkeys(keys)))
    if not wanted.num_rows:
        return {}
    with workspace.read() as con:
        con.register("wanted_keys", wanted)
        rows = con.execute(f"SELECT {_COLUMNS} FROM llm_calls c JOIN wanted_keys w ON c.key = w.key").fetchall()
        con.unregister("wanted_keys")
    return {row[0]: _call(row) for row in rows}


def _call(row: tuple[Any, ...]) -> Call:
    key, llm, model, text, tokens, logprobs, options, finish, tokens_in, tokens_out, latency, attempts, entropies = row
    scored = tuple(tuple(option) for option in options)
    lists = (tuple(tokens), tuple(logprobs), scored)
    return Call(
        bytes(key), llm, model, text, *lists, finish, tokens_in, tokens_out, latency, attempts, tuple(entropies)
    )


def answers_of(workspace: Workspace, llm: str) -> pa.Table:
    """All answers of one LLM, by key: the columns of `Call`."""
    with workspace.read() as con:
        query = f"SELECT {_COLUMNS} FROM llm_calls c WHERE llm = ? ORDER BY key"
        return con.sql(query, params=[llm]).to_arrow_table()


def calls_in(table: pa.Table) -> dict[bytes, Call]:
    """The rows of a table returned by `answers_of`, by key."""
    found = (_call(tuple(row[field.name] for field in fields(Call))) for row in table.to_pylist())
    return {call.key: call for call in found}


def record(workspace: Workspace, calls: Sequence[Call], failures: Sequence[FailedCall] = ()) -> None:
    """Commit answers and failures in one transaction. An existing answer is not changed, so a batch can safely be
    written again after an unclear end."""
    now = datetime.now(UTC).replace(tzinfo=None)
    with workspace.write() as con:
        if calls:
            con.register("new_calls", _table(calls, _CALLS, now))
            con.execute("INSERT INTO llm_calls BY NAME SELECT * FROM new_calls ON CONFLICT DO NOTHING")
            con.unregister("new_calls")
        if failures:
            con.register("new_failures", _table(failures, _FAILURES, now))
            con.execute("INSERT INTO llm_failures SELECT * FROM new_failures")
            con.unregister("new_failures")


def _table(rows: Sequence[Call] | Sequence[FailedCall], schema: pa.Schema, now: datetime) -> pa.Table:
    columns = [*zip(*(astuple(row) for row in rows), strict=True), [now] * len(rows)]
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def forget(
    workspace: Workspace,
    *,
    llm: str | None = None,
    keys: Iterable[bytes] | None = None,
    only_without_logprobs: bool = False,
) -> int:
    """Delete answers (and the failures) of one LLM, for some keys or for all; returns the number of deleted answers.

    ``only_without_logprobs`` keeps every answer that has log-probabilities.
    """
    with workspace.write() as con:
        where, values = ["true"], []
        if llm is not None:
            where.append("llm = ?")
            values.append(llm)
        if keys is not None:
            con.register("wanted_keys", key_table(list(keys)))
            where.append("key IN (SELECT key FROM wanted_keys)")
        con.execute(f"DELETE FROM llm_failures WHERE {' AND '.join(where)}", values)
        if only_without_logprobs:
            where.append("len(logprobs) = 0 AND len(option_logprobs) = 0")
        gone = con.execute(f"DELETE FROM llm_calls WHERE {' AND '.join(where)}", values).fetchone()
        return int(gone[0]) if gone else 0


def usage(workspace: Workspace) -> list[LLMUsage]:
    """Totals for each LLM, by name."""
    with workspace.read() as con:
        rows = con.execute(
            """
            SELECT coalesce(c.llm, f.llm) AS llm, coalesce(calls, 0), coalesce(tokens_in, 0), coalesce(tokens_out, 0),
                   coalesce(uncertain, 0), coalesce(failures, 0)
              FROM (SELECT llm, count(*) AS calls, sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out,
                           count(*) FILTER (len(logprobs) = 0 AND len(option_logprobs) = 0) AS uncertain
                      FROM llm_calls GROUP BY llm) c
              FULL JOIN (SELECT llm, count(*) AS failures FROM llm_failures GROUP BY llm) f ON c.llm = f.llm
             ORDER BY 1
            """
        ).fetchall()
    return [LLMUsage(row[0], *(int(value) for value in row[1:])) for row in rows]


@dataclass(frozen=True, slots=True)
class Spent:
    """Answers of an LLM since a moment, and their tokens."""

    calls: int
    tokens_in: int
    tokens_out: int


def since(workspace: Workspace, llm: str, moment: datetime) -> Spent:
    """What an LLM has answered since ``moment``, which is in UTC without a zone."""
    with workspace.read() as con:
        row = con.execute(
            "SELECT count(*), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0) FROM llm_calls"
            " WHERE llm = ? AND asked_at >= ?",
            [llm, moment],
        ).fetchone()
    assert row is not None
    return Spent(*map(int, row))


def capabilities(workspace: Workspace, llm: str) -> str | None:
    """The stored probe of ``llm`` (a key chosen by the caller, here the LLM's identity), as JSON."""
    with workspace.read() as con:
        row = con.execute("SELECT capabilities FROM llm_capabilities WHERE llm = ?", [llm]).fetchone()
    return str(row[0]) if row else None


def save_capabilities(workspace: Workspace, llm: str, found: str) -> None:
    """Store a probe, replacing an earlier one."""
    now = datetime.now(UTC).replace(tzinfo=None)
    with workspace.write() as con:
        con.execute("INSERT OR REPLACE INTO llm_capabilities VALUES (?, ?, ?)", [llm, found, now])
