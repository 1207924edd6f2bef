"""The call cache: paid answers, failures, and the probed capabilities of each LLM.

Rows are read and written in bulk: looking up a whole plan is one join, storing a batch of answers one
statement (one row at a time is 50 times slower in DuckDB).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..base.files import open_regular, private_folder
from . import columns
from .workspace import Workspace, confine, in_memory, quoted


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


_DETAILS = "icl-curate"
_COLUMNS = ", ".join(f"c.{field.name}" for field in fields(Call))


def lookup(workspace: Workspace, keys: Iterable[bytes]) -> dict[bytes, Call]:
    """The cached answers, by key; keys without one are left out."""
    wanted = list(dict.fromkeys(keys))
    if not wanted:
        return {}
    with workspace.read() as con, columns.given(con, "wanted_keys", {"key": wanted}):
        rows = con.execute(f"SELECT {_COLUMNS} FROM llm_calls c JOIN wanted_keys w ON c.key = w.key").fetchall()
    return {row[0]: _call(row) for row in rows}


def _call(row: tuple[Any, ...]) -> Call:
    key, llm, model, text, tokens, logprobs, options, finish, tokens_in, tokens_out, latency, attempts, entropies = row
    scored = tuple(tuple(option) for option in options)
    lists = (tuple(tokens), tuple(logprobs), scored)
    return Call(
        bytes(key), llm, model, text, *lists, finish, tokens_in, tokens_out, latency, attempts, tuple(entropies)
    )


def write_recording(workspace: Workspace, llm: str, file: BinaryIO, details: str) -> int:
    """Write all answers of one LLM into a Parquet file, by key: the columns of `Call`, without latencies and numbers of
    attempts, which differ every time, and ``details`` in the file's metadata. Returns their number."""
    temporary = workspace.path / "tmp"  # what reads a workspace's database can write nowhere else
    private_folder(temporary)
    with tempfile.TemporaryDirectory(dir=temporary) as folder:
        written = Path(folder) / "recording.parquet"
        with workspace.read() as con:
            count = con.execute(
                f"""
                COPY (SELECT * REPLACE (CAST(0 AS DOUBLE) AS latency, CAST(1 AS INTEGER) AS attempts)
                        FROM (SELECT {_COLUMNS} FROM llm_calls c WHERE llm = {quoted(llm)}) ORDER BY key)
                  TO {quoted(written)} (
                     FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19, USE_TMP_FILE false,
                     KV_METADATA {{{quoted(_DETAILS)}: {quoted(details)}}})
                """
            ).fetchone()
        with written.open("rb") as content:
            shutil.copyfileobj(content, file)
    return int(count[0]) if count else 0


def read_recording(path: Path) -> tuple[str | None, dict[bytes, Call]]:
    """The details and the answers, by key, of a file by `write_recording`; no details: it is another file. Raises
    `OSError` if it is no regular file, and `duckdb.Error`, `TypeError` or `ValueError` if it cannot be read."""
    open_regular(path).close()
    with in_memory() as con:
        confine(con, f"allowed_paths = [{quoted(path.absolute())}]")
        named = [str(path.absolute())]
        told = con.execute("SELECT value FROM parquet_kv_metadata(?) WHERE decode(key) = ?", [*named, _DETAILS])
        details = told.fetchone()
        if details is None:
            return None, {}
        rows = con.execute(f"SELECT {_COLUMNS} FROM read_parquet(?, hive_partitioning = false) c", named).fetchall()
    return bytes(details[0]).decode(), {row[0]: _call(row) for row in rows}


def record(
    workspace: Workspace, calls: Sequence[Call], failures: Sequence[FailedCall] = (), run: int | None = None
) -> None:
    """Commit answers, asked by run number ``run`` if that is known, and failures in one transaction. An existing answer
    is not changed, so a batch can safely be written again after an unclear end."""
    with workspace.write() as con:
        if calls:
            asked = {**_columns(calls, "asked_at"), "run": [run] * len(calls)}
            columns.insert(con, "llm_calls", asked, "ON CONFLICT DO NOTHING")
        if failures:
            columns.insert(con, "llm_failures", _columns(failures, "failed_at"))


def _columns(rows: Sequence[Call] | Sequence[FailedCall], time: str) -> dict[str, columns.Column]:
    """The rows' columns, and the time now in the column ``time``."""
    found: dict[str, columns.Column] = {
        field.name: [getattr(row, field.name) for row in rows] for field in fields(rows[0])
    }
    return {**found, time: np.full(len(rows), np.datetime64(columns.now(), "us"))}


def forget_without_logprobs(workspace: Workspace, llm: str) -> None:
    """Delete an LLM's failures, and its answers without log-probabilities."""
    with workspace.write() as con:
        con.execute("DELETE FROM llm_failures WHERE llm = ?", [llm])
        con.execute("DELETE FROM llm_calls WHERE llm = ? AND len(logprobs) = 0 AND len(option_logprobs) = 0", [llm])


def dearest(workspace: Workspace, llm: str, price_in: float, price_out: float) -> tuple[int, int] | None:
    """Prompt and generated tokens of an LLM's dearest answer at these prices, None if it has none."""
    with workspace.read() as con:
        row = con.execute(
            "SELECT tokens_in, tokens_out FROM llm_calls WHERE llm = ?"
            " ORDER BY tokens_in * ? + tokens_out * ? DESC LIMIT 1",
            [llm, price_in, price_out],
        ).fetchone()
    return (int(row[0]), int(row[1])) if row else None


@dataclass(frozen=True, slots=True)
class Spent:
    """Answers, and their tokens."""

    calls: int
    tokens_in: int
    tokens_out: int


def spent(workspace: Workspace, asked_by: Sequence[int]) -> dict[str, Spent]:
    """The answers to what these runs asked, by their numbers, of each LLM."""
    asked = [run for run in asked_by if 0 < run < 1 << 63]
    return _spent(workspace, "run IN (SELECT unnest(CAST(? AS BIGINT[])))", [asked])


def spent_since(workspace: Workspace, llm: str, moment: datetime) -> dict[str, Spent]:
    """What an LLM, whatever its server, has answered since ``moment``, in UTC without a zone, to those of which it is
    not known who asked, as in releases that did not store it."""
    which = "run IS NULL AND (llm = $1 OR starts_with(llm, $1 || ' at ')) AND asked_at >= $2"
    return _spent(workspace, which, [llm, moment])


def _spent(workspace: Workspace, which: str, values: Sequence[Any]) -> dict[str, Spent]:
    query = "SELECT llm, count(*), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0) FROM llm_calls"
    with workspace.read() as con:
        rows = con.execute(f"{query} WHERE {which} GROUP BY llm", values).fetchall()
    return {llm: Spent(*map(int, counts)) for llm, *counts in rows}


def capabilities(workspace: Workspace, llm: str) -> str | None:
    """The stored probe of ``llm`` (a key chosen by the caller, here the LLM's identity), as JSON."""
    with workspace.read() as con:
        row = con.execute("SELECT capabilities FROM llm_capabilities WHERE llm = ?", [llm]).fetchone()
    return str(row[0]) if row else None


def save_capabilities(workspace: Workspace, llm: str, found: str) -> None:
    """Store a probe, replacing an earlier one."""
    with workspace.write() as con:
        con.execute("INSERT OR REPLACE INTO llm_capabilities VALUES (?, ?, ?)", [llm, found, columns.now()])
