"""Reading and writing the rows of a workspace.

Large results are numpy arrays, never row by row. A selection of rows is found first and fetched second, because
looking up a few rows by their dense number takes a millisecond whatever the size of the pool.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import exp, lgamma
from typing import Any, cast

import duckdb
import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Int64s
from ..base.errors import UsageError, counted, did_you_mean
from ..base.progress import Event, Monitor
from ..pool.records import STRUCTURED, Demonstration, Form, Query, Split, Task, TaskKind, history_of, searched_text
from ..pool.sets import labels_of
from .columns import Column, among, given, noted, now, number, numbers
from .workspace import Workspace

_NONE: Int64s = np.empty(0, np.int64)
_KEY = "CAST(CAST(CAST(hash AS UUID) AS UHUGEINT) >> 64 AS UBIGINT) AS key"
"""The first eight bytes of the hash as a number, the first byte highest: five times as fast as reading the bytes."""
_FIELDS = "row, id, input, output, source, options, context, answers, metadata, history"


MOST_FETCHED, MOST_CHARACTERS = 100_000, 1 << 29
"""About how many demonstrations, and characters of their texts, `Texts` keeps of those it has read."""

MOST_HELD, MOST_BYTES, GOES_ON = 250_000, 1 << 30, 8


VERIFIED = "split = 'validation' AND retired_at IS NULL AND file NOT IN (SELECT file FROM pool)"
"""Whether a row is one of `verified_queries`."""

COMPARED = "near_duplicate"
"""Key of the threshold by which `index` looked for repeats and leaks; without it they are out of date."""

FORM, TOKENS = "form", "answer_tokens"
"""What `index` notes of the outputs: their `Form`, and the maximum tokens of an answer that fit them."""


def task_of(workspace: Workspace, without: Int64s = _NONE) -> Task:
    """The kind of answers in the pool, as found by the last index run; open before the first.

    Labels are the outputs, or their members, of the active pool and of the queries: if no other source uses a label,
    pruning its source removes it from the prompt. The rows ``without`` count as pruned.
    """
    with workspace.read() as con:
        kind = cast(TaskKind, noted(con, "task") or "open")
        if kind not in ("labels", "sets"):
            several = con.execute(
                "SELECT 1 FROM demonstrations WHERE contains(trim(output), chr(10)) AND retired_at IS NULL LIMIT 1"
            ).fetchone()
            form = cast(Form, noted(con, FORM) or "short")
            return Task(kind, one_line=several is None and form not in STRUCTURED, form=form)
        rows = con.execute(
            """
            SELECT DISTINCT output FROM demonstrations
             WHERE retired_at IS NULL
               AND (split <> 'pool' OR row IN (SELECT row FROM active) AND row NOT IN (SELECT unnest($1)))
            """,
            [without],
        ).fetchall()
    outputs = [output for (output,) in rows]
    return Task(kind, labels_of(kind, outputs), not any("\n" in output.strip() for output in outputs))


SAMPLE = 2000
"""Outputs that say of what kind those of a pool are."""


FEWEST_VERIFIED = 20
"""Outputs of verified queries that say it instead: of a pool a part may be of another kind, or wrong."""


def some_outputs(workspace: Workspace) -> list[str]:
    """Outputs that say of what kind answers are, as they were read; the same in every call."""
    with workspace.read() as con:
        return telling_outputs(con)


def telling_outputs(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Those of verified queries, or of the pool if there are fewer than `FEWEST_VERIFIED`."""
    verified = con.execute(f"SELECT output FROM demonstrations WHERE {VERIFIED} ORDER BY row LIMIT {SAMPLE}").fetchall()
    return [output for (output,) in verified] if len(verified) >= FEWEST_VERIFIED else sampled_outputs(con)


def sampled_outputs(con: duckdb.DuckDBPyConnection) -> list[str]:
    """`SAMPLE` outputs of the pool, or fewer if there are not as many."""
    found = con.execute(
        "SELECT output FROM demonstrations WHERE split = 'pool' AND retired_at IS NULL ORDER BY hash(row), row "
        f"LIMIT {SAMPLE}"
    ).fetchall()
    return [output for (output,) in found]


def compared(workspace: Workspace) -> bool:
    """Whether repeats and leaks were looked for since rows changed last."""
    with workspace.read() as con:
        return noted(con, COMPARED) is not None


def answer_tokens(workspace: Workspace) -> int | None:
    """The maximum tokens of an answer that fit the outputs of the pool; None if `index` has not noted them yet."""
    with workspace.read() as con:
        text = noted(con, TOKENS) or ""
    return int(text) if text.isdecimal() and len(text) < 10 else None


def active_rows(workspace: Workspace) -> Int64s:
    """Rows of the active pool, ascending."""
    with workspace.read() as con:
        return numbers(con, "SELECT row FROM active ORDER BY row")


def as_read(workspace: Workspace) -> tuple[Int64s, dict[int, str]]:
    """The rows of the pool whatever was decided, ascending, and the outputs that those had which are pruned or
    corrected now."""
    with workspace.read() as con:
        rows = numbers(con, "SELECT row FROM pool ORDER BY row")
        differing = con.execute(
            """
            SELECT row, coalesce(r.output, p.output) FROM pool p LEFT JOIN outputs_as_read r USING (row)
             WHERE r.output <> p.output OR row NOT IN (SELECT row FROM active) ORDER BY row
            """
        ).fetchall()
    return rows, dict(differing)


def active_sources(workspace: Workspace) -> tuple[Int64s, list[str]]:
    """Rows of the active pool, ascending, and the source of each."""
    with workspace.read() as con:
        found = con.execute("SELECT row, source FROM active ORDER BY row").fetchnumpy()
    return np.asarray(found["row"], np.int64), found["source"].tolist()


def active_labels(workspace: Workspace) -> dict[str, int]:
    """Rows of the active pool by label; empty if the answers are not labels."""
    with workspace.read() as con:
        counts = con.execute(
            """
            SELECT output, count(*) FROM active WHERE (SELECT value FROM meta WHERE key = 'task') = 'labels'
             GROUP BY output ORDER BY output
            """
        ).fetchall()
    return dict(counts)


def encoder_of(workspace: Workspace) -> str | None:
    """The encoder whose vectors the workspace has; None if it has none."""
    with workspace.read() as con:
        return noted(con, "encoder")


def indexed_names(workspace: Workspace) -> list[str]:
    """The files that were indexed, as the workspace names them: relative to the folder that it lies in, or absolute."""
    with workspace.read() as con:
        return [name for (name,) in con.execute("SELECT path FROM files ORDER BY path").fetchall()]


RESPLIT = "resplit"
"""Key of when rows were last moved to another split or revived, which leaves their times as they were."""


def workspace_fingerprint(workspace: Workspace) -> tuple[object, ...]:
    """A value that changes whenever rows, decisions, the encoder or trained models change, but not when answers are
    cached."""
    with workspace.read() as con:
        newest = con.execute(
            """
            SELECT (SELECT max(seq) FROM decisions),
                   (SELECT max(greatest(indexed_at, retired_at)) FROM demonstrations),
                   (SELECT value FROM meta WHERE key = 'encoder'),
                   (SELECT value FROM meta WHERE key = $1),
                   (SELECT max(run) FROM runs WHERE status = 'done' AND kind LIKE 'train-%')
            """,
            [RESPLIT],
        ).fetchone()
    return tuple(newest or ())


def active_digest(workspace: Workspace) -> tuple[int, str]:
    """The number of active rows, and a digest of their numbers, contents, outputs that apply, and sources."""
    with workspace.read() as con:
        return digest_of(con, "active")


def digest_of(con: duckdb.DuckDBPyConnection, rows: str, values: Sequence[Any] = ()) -> tuple[int, str]:
    """The same of the ``rows``, a table or a query with these ``values``."""
    row = con.execute(
        f"""
        SELECT count(*), sha256(coalesce(string_agg(
                   concat_ws(chr(31), row, hex(hash), output, source), chr(30) ORDER BY row), ''))
          FROM {rows}
        """,
        values,
    ).fetchone()
    assert row is not None
    return int(row[0]), str(row[1])


def groups(workspace: Workspace) -> Int64s:
    """For each row number, the first row of its duplicate group (the row itself if it repeats none), (rows,)."""
    with workspace.read() as con:
        found = np.arange(next_row(con), dtype=np.int64)
        repeats = con.execute("SELECT row, of FROM duplicates").fetchnumpy()
    found[np.asarray(repeats["row"], np.int64)] = repeats["of"]
    return found


def fetch(workspace: Workspace, rows: Sequence[int] | Int64s) -> list[Demonstration]:
    """The rows, in the given order, retired and pruned ones included. Unknown numbers are left out."""
    wanted = np.asarray(rows, np.int64)
    with workspace.read() as con:
        found = {row[0]: row for row in _rows(con, wanted, _FIELDS)}
    return [_demonstration(found[row]) for row in wanted.tolist() if row in found]


class Texts:
    """Demonstrations by row number for a long-running process. Rows never change, so each is read from the file only
    once; after `GOES_ON` reads all active ones are loaded, if there are at most `MOST_HELD`, of `MOST_BYTES` in all:
    reading eight rows from the file takes longer than selecting them."""

    def __init__(self, workspace: Workspace, active: int) -> None:
        self._workspace, self._active = workspace, active
        self._fetched: dict[int, Demonstration] = {}
        self._characters = self._reads = 0
        self._held: tuple[Int64s, NDArray[np.object_]] | None = None
        """Numbers (n,), ascending, and of each the rest of `_FIELDS` as one JSON text, which takes less memory than one
        object per field."""

    def of(self, rows: Collection[int]) -> dict[int, Demonstration]:
        """Loads at least these rows; unknown numbers are left out."""
        missing = set(rows) - self._fetched.keys()
        if not missing:
            return self._fetched
        if len(self._fetched) > MOST_FETCHED or self._characters > MOST_CHARACTERS:
            self._fetched, self._characters, missing = {}, 0, set(rows)
        self._reads += 1
        if self._reads == GOES_ON and self._active <= MOST_HELD:
            self._hold()
        read = self._from_memory(sorted(missing))
        if len(read) < len(missing):
            read = fetch(self._workspace, sorted(missing))
        self._fetched |= {d.row: d for d in read}
        self._characters += sum(len(d.input) + len(d.output) + len(d.context) for d in read)
        return self._fetched

    def _hold(self) -> None:
        """Load the active ones, unless they are too large."""
        with self._workspace.read() as con:
            size = "strlen(input) + strlen(output) + strlen(context) + strlen(metadata) + strlen(coalesce(history, ''))"
            if number(con, f"SELECT coalesce(sum({size}), 0) FROM active") > MOST_BYTES:
                return
            fields = _FIELDS.removeprefix("row, ")
            query = f"SELECT row, CAST(json_array({fields}) AS VARCHAR) AS fields FROM active ORDER BY row"
            found = con.execute(query).fetchnumpy()
            self._held = np.asarray(found["row"], np.int64), found["fields"]

    def _from_memory(self, rows: Sequence[int]) -> list[Demonstration]:
        if self._held is None:
            return []
        (numbers, fields), wanted = self._held, np.asarray(rows, np.int64)
        places = np.searchsorted(numbers, wanted)
        there = places < len(numbers)
        there[there] = numbers[places[there]] == wanted[there]
        taken = zip(wanted[there].tolist(), fields[places[there]].tolist(), strict=True)
        return [_demonstration((row, *json.loads(text))) for row, text in taken]


def source_names(workspace: Workspace) -> list[str]:
    """The sources of the active pool, in alphabetical order."""
    with workspace.read() as con:
        found = con.execute("SELECT DISTINCT source FROM pool SEMI JOIN active USING (row) ORDER BY source").fetchall()
    return [source for (source,) in found]


def check_sources(con: duckdb.DuckDBPyConnection, names: Sequence[str], split: str = "pool") -> None:
    """Raises `UsageError` if no row of the ``split`` has one of these sources, with the name that may be meant."""
    found = con.execute(
        "SELECT DISTINCT source FROM demonstrations WHERE split = ? AND retired_at IS NULL ORDER BY source", [split]
    ).fetchall()
    known = [source for (source,) in found]
    if missing := [name for name in names if name not in known]:
        raise UsageError(f"no source named '{missing[0]}'{did_you_mean(missing[0], known)}", "icl-curate sources")


def content_keys(workspace: Workspace) -> NDArray[np.uint64]:
    """For each row number, 64 bits of the hash of its content, (rows,); 0 if there is no such row.

    Files beside the database are checked with these keys: equal keys at equal numbers mean equal rows.
    """
    with workspace.read() as con:
        # unordered: three times as fast
        found = con.execute(f"SELECT row, {_KEY} FROM demonstrations").fetchnumpy()
    rows = np.asarray(found["row"], np.int64)
    keys = np.zeros(int(rows.max(initial=-1)) + 1, np.uint64)
    keys[rows] = _little(found["key"])
    return keys


def live_keys(con: duckdb.DuckDBPyConnection) -> tuple[Int64s, NDArray[np.uint64]]:
    """Rows that are not retired, ascending, and their content keys; sees what its own transaction has written."""
    found = con.execute(f"SELECT row, {_KEY} FROM demonstrations WHERE retired_at IS NULL ORDER BY row").fetchnumpy()
    return np.asarray(found["row"], np.int64), _little(found["key"])


def _little(keys: NDArray[Any]) -> NDArray[np.uint64]:
    """Content keys read as `_KEY`."""
    return np.asarray(keys, np.uint64).byteswap()


def keys_of(workspace: Workspace, rows: Int64s) -> NDArray[np.uint64]:
    """Content keys of rows, in the given order; 0 for an unknown number."""
    with workspace.read() as con:
        found = dict(_rows(con, rows, "row, hash"))
    none = bytes(8)
    return np.frombuffer(b"".join(found.get(row, none)[:8] for row in rows.tolist()), np.uint64)


def inputs(workspace: Workspace, rows: Sequence[int] | Int64s) -> list[str]:
    """Input texts of rows, in the given order. `KeyError` for an unknown number."""
    wanted = np.asarray(rows, np.int64)
    with workspace.read() as con:
        found = dict(_rows(con, wanted, "row, input"))
    return [found[row] for row in wanted.tolist()]


def searched_texts(workspace: Workspace, rows: Sequence[int] | Int64s, passages: bool = False) -> list[str]:
    """The texts that rows are retrieved by, see `searched_text`, in the given order. `KeyError` for an unknown
    number."""
    wanted = np.asarray(rows, np.int64)
    with workspace.read() as con:
        found = {
            row: searched_text(text, context, history_of(history), passages)
            for row, text, context, history in _rows(con, wanted, "row, input, context, history")
        }
    return [found[row] for row in wanted.tolist()]


def input_blocks(
    workspace: Workspace, rows: Int64s, characters: int = 1 << 24, searched: bool = False, passages: bool = False
) -> Iterator[tuple[Int64s, list[str]]]:
    """Rows (n,) and their texts, as `inputs`, or as `searched_texts` if ``searched``, in blocks: each has about at most
    ``characters`` characters, but at least one text. `KeyError` for an unknown number."""
    more = " + coalesce(length(history), 0)" + " + length(context)" * passages if searched else ""
    with workspace.read() as con, given(con, "wanted", {"row": rows}):
        found = con.execute(
            f"SELECT row, length(input){more} AS length FROM demonstrations SEMI JOIN wanted USING (row) ORDER BY row"
        ).fetchnumpy()
    known, lengths = np.asarray(found["row"], np.int64), np.asarray(found["length"], np.int64)
    places = np.searchsorted(known, rows)
    if rows.size and (places.max() == len(known) or (known[places] != rows).any()):
        raise KeyError("unknown row")
    blocks = np.cumsum(lengths[places]) // characters
    for block in np.split(rows, np.flatnonzero(np.diff(blocks)) + 1) if len(rows) else []:
        yield block, searched_texts(workspace, block, passages) if searched else inputs(workspace, block)


def rows_of_inputs(workspace: Workspace, texts: Sequence[str]) -> tuple[Int64s, NDArray[np.uint64]]:
    """For each text, the first row with this input, retired ones included, and its content key; -1 and 0 if there is
    none, (n,) each."""
    rows, keys = np.full(len(texts), -1, np.int64), np.zeros(len(texts), np.uint64)
    asked: dict[str, Column] = {"place": np.arange(len(texts)), "text": texts}
    with workspace.read() as con, given(con, "asked", asked):
        matched = con.execute(
            "SELECT place, min(row), arg_min(hash, row) FROM asked JOIN demonstrations ON input = text GROUP BY place"
        ).fetchall()
    for place, row, key in matched:
        rows[place], keys[place] = row, np.frombuffer(key[:8], np.uint64)[0]
    return rows, keys


def queries(workspace: Workspace, split: Split, limit: int | None = None) -> list[Query]:
    """Queries of a split in the order they were indexed, their reference answers filled in."""
    with workspace.read() as con:
        rows = con.execute(
            f"SELECT {_FIELDS} FROM demonstrations WHERE split = ? AND retired_at IS NULL ORDER BY row LIMIT ?",
            [split, 1 << 60 if limit is None else limit],
        ).fetchall()
    return [_demonstration(row).as_query() for row in rows]


def judged_system(workspace: Workspace) -> str:
    """The system prompt of the first judged query, if every validation and test query came with one; else empty."""
    with workspace.read() as con:
        first, lacking = con.execute(
            """
            SELECT arg_min(history, row), count(*) FILTER (NOT coalesce(starts_with(history, '[["system",'), false))
            FROM demonstrations WHERE split <> 'pool' AND retired_at IS NULL
            """
        ).fetchall()[0]
    turns = history_of(first)
    return turns[0].content if turns and not lacking else ""


def verified_queries(workspace: Workspace) -> list[Query]:
    """The validation queries that were labelled apart from the pool: those that come from a file with rows of the pool
    have labels of the same hands, right or wrong."""
    with workspace.read() as con:
        rows = con.execute(f"SELECT {_FIELDS} FROM demonstrations WHERE {VERIFIED} ORDER BY row").fetchall()
    return [_demonstration(row).as_query() for row in rows]


NO_VALUE = "(none)"


def field_values(workspace: Workspace, asked: Sequence[Query], field: str) -> list[str]:
    """Of each query the value of a field of its row, as text. Raises `UsageError` if no query has the field."""
    rows = fetch(workspace, [query.row for query in asked if query.row is not None])
    metadata = {row.row: row.metadata for row in rows}
    found = [metadata.get(-1 if query.row is None else query.row, {}) for query in asked]
    if not any(field in each for each in found):
        known = sorted({name for each in found for name, value in each.items() if isinstance(value, str | int | bool)})
        raise UsageError(f"no query has a field '{field}'", f"--by with one of: {', '.join(known) or '(none)'}")
    return [str(each.get(field, NO_VALUE)) for each in found]


def find(workspace: Workspace, name: str) -> Demonstration:
    """The row, not retired, whose id is ``name``. Raises `UsageError` if there is none."""
    with workspace.read() as con:
        row = con.execute(
            f"SELECT {_FIELDS} FROM demonstrations WHERE id = ? AND retired_at IS NULL", [name]
        ).fetchone()
    if row is None:
        raise UsageError(f"no row with id '{name}'", "icl-curate demos --search TEXT")
    return _demonstration(row)


LEAKS = """
    WITH grouped AS (
        SELECT t.row, t.id, t.split, coalesce(d.of, t.row) AS of
          FROM demonstrations t LEFT JOIN duplicates d USING (row) WHERE t.retired_at IS NULL
    )
    SELECT id FROM grouped WHERE split <> 'pool'
       AND of IN (SELECT of FROM grouped SEMI JOIN {rows} USING (row)) ORDER BY row
"""
"""Ids of validation and test queries that are also among the ``rows``, ``pool`` or ``active``, exactly or nearly."""


REPEATS = """
    WITH members AS (SELECT row, of, kind FROM duplicates UNION ALL SELECT DISTINCT of, of, NULL FROM duplicates)
    SELECT kind, count(*) FROM (
        SELECT m.kind, row_number() OVER (PARTITION BY m.of ORDER BY m.row) AS place
          FROM members m JOIN {rows} USING (row)
    ) WHERE place > 1 GROUP BY kind ORDER BY kind
"""
"""By kind, how many ``rows``, ``pool`` or ``active``, repeat an earlier one; a query that repeats one is a leak."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A row of the active pool, and a validation or test query of its duplicate group."""

    row: int
    id: str
    split: str
    input: str


def leaks(workspace: Workspace) -> list[Leak]:
    """Rows of the active pool that are exact or near duplicates of queries, as found by the index; ``id`` and ``input``
    are those of the query."""
    with workspace.read() as con:
        rows = con.execute(
            """
            WITH grouped AS (
                SELECT t.*, coalesce(d.of, t.row) AS of FROM demonstrations t LEFT JOIN duplicates d USING (row)
            )
            SELECT p.row, q.id, q.split, q.input FROM grouped p JOIN grouped q USING (of)
             WHERE p.row IN (SELECT row FROM active) AND q.split <> 'pool' AND q.retired_at IS NULL
             ORDER BY p.row, q.row
            """
        ).fetchall()
    return [Leak(*row) for row in rows]


def similarities(workspace: Workspace) -> dict[int, float]:
    """By row number, the similarity of duplicates to the first row of their group."""
    with workspace.read() as con:
        return dict(con.execute("SELECT row, similarity FROM duplicates").fetchall())


def rows_by_split(con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """How many rows that are not retired each split has."""
    query = "SELECT split, count(*) FROM demonstrations WHERE retired_at IS NULL GROUP BY split"
    return dict(con.execute(query).fetchall())


def next_row(con: duckdb.DuckDBPyConnection) -> int:
    """The number of the next new row."""
    return number(con, "SELECT coalesce(max(row), -1) + 1 FROM demonstrations")


def retire(con: duckdb.DuckDBPyConnection, rows: Int64s) -> None:
    """Mark rows as no longer in their file; they keep their number, vector and history."""
    _mark(con, rows, now())


def revive(con: duckdb.DuckDBPyConnection, rows: Int64s) -> None:
    """Revive retired rows that are in their file again."""
    _mark(con, rows, None)


def _mark(con: duckdb.DuckDBPyConnection, rows: Int64s, when: datetime | None) -> None:
    if rows.size:
        with given(con, "marked", {"row": rows}):
            con.execute("UPDATE demonstrations SET retired_at = ? WHERE row IN (SELECT row FROM marked)", [when])


def _rows(con: duckdb.DuckDBPyConnection, rows: Int64s, fields: str) -> list[tuple[Any, ...]]:
    if not rows.size:
        return []
    if rows.size <= 200:
        return con.execute(f"SELECT {fields} FROM demonstrations WHERE row IN {among(rows)}").fetchall()
    with given(con, "wanted", {"row": np.unique(rows)}):
        return con.execute(
            # the span lets DuckDB skip blocks outside: a block of rows of a large pool is read without the others
            f"SELECT {fields} FROM demonstrations SEMI JOIN wanted USING (row) WHERE row BETWEEN ? AND ?",
            [int(rows.min()), int(rows.max())],
        ).fetchall()


def _demonstration(row: tuple[Any, ...]) -> Demonstration:
    number, name, text, output, source, options, context, answers, metadata, history = row
    extra = json.loads(metadata) if metadata != "{}" else {}
    return Demonstration(
        number, name, text, output, source, tuple(options), context, tuple(answers), extra, history_of(history)
    )


TASK = "queries"
LEAST_REPEATED = 5
"""Queries to a distinct answer from which the answers are taken for labels."""


def first_queries(workspace: Workspace, split: Split, limit: int | None, monitor: Monitor) -> list[Query]:
    """The first ``limit`` queries of a split, in the order they were indexed. Public data sets often come sorted by
    label: reports a warning if the first ones have few of the labels. Raises `UsageError` for a limit below 1."""
    if limit is not None and limit < 1:
        raise UsageError(f"the limit of queries is {limit}", "give 1 or more, or leave it out")
    every = queries(workspace, split)
    first = every[:limit]
    if warning := _unlike(first, every):
        monitor.report(Event(TASK, note=f"warning: {split} queries: {warning}"))
    return first


def validation_queries(workspace: Workspace, purpose: str, limit: int | None, monitor: Monitor) -> list[Query]:
    """`first_queries` of the validation split; reports a warning if their outputs may be as wrong as the pool's.
    Raises `UsageError` if there are none, which the ``purpose`` needs."""
    if asked := first_queries(workspace, "validation", limit, monitor):
        if not verified_queries(workspace):
            told = "from files of the pool, and may have its errors: icl-curate verify draws rows to verify"
            monitor.report(Event(TASK, note=f"warning: validation queries: {told}"))
        return asked
    raise no_queries(workspace, f"{purpose} needs validation queries")


INDEX = "icl-curate index POOL.jsonl --validation QUERIES.jsonl"
"""What is run first."""


def no_queries(workspace: Workspace, what: str) -> UsageError:
    """For want of validation queries: how to give some, and a pool if there is none either."""
    with workspace.read() as con:
        if not next_row(con):
            return UsageError("nothing is indexed yet", INDEX)
    return UsageError(what, "icl-curate index --validation QUERIES.jsonl; icl-curate verify draws some from the pool")


def _unlike(first: Sequence[Query], every: Sequence[Query]) -> str:
    """What the first queries lack, if they have less than half of the labels of as many queries drawn at random."""
    counts = Counter(query.answers[0] for query in every if query.answers)
    seen = len({query.answers[0] for query in first if query.answers})
    total = counts.total()
    if not seen or len(first) == len(every) or total < LEAST_REPEATED * len(counts):
        return ""
    drawn = min(len(first), total)
    expected = sum(1 - _none_of(count, total, drawn) for count in counts.values())
    if seen >= expected / 2:
        return ""
    return (
        f"the first {len(first):,} have {seen:,} of {counted(len(counts), 'label')}, as in a file sorted by label; "
        "leave out -n, or shuffle the file and index it again"
    )


def _none_of(count: int, total: int, drawn: int) -> float:
    """Chance that ``drawn`` of ``total`` queries, without replacement, have none of the ``count`` of a label."""
    if drawn > total - count:
        return 0.0
    kept, others = total - drawn, total - count
    return exp(lgamma(others + 1) + lgamma(kept + 1) - lgamma(others - drawn + 1) - lgamma(total + 1))
