"""What was decided: rows taken out, by reason, and outputs corrected, each with examples."""

from __future__ import annotations

from typing import Any

from ..store.demonstrations import task_of
from ..store.workspace import Workspace
from .measured import told
from .results import CorrectedRow, CorrectedRows, Corrections, Excerpt, LabelChange, Removal, RemovedRow

SHOWN = 300
"""Characters of a text in a report: a row may hold a megabyte."""

EXAMPLES = 5
"""Examples of each reason, from as many sources as there are."""

MOST_REASONS, MOST_CHANGES, MOST_CORRECTED = 40, 15, 10

_ABOUT = """
    CASE WHEN starts_with(d.reason, 'check: ') THEN regexp_extract(d.reason, '^check: [a-z]+')
         WHEN starts_with(d.reason, 'suspect: ') THEN 'suspect'
         ELSE d.reason END
"""
"""Reasons that name a row's own figures, without these: rows of one kind are one group."""

_TAKEN_OUT = f"""
    CREATE TEMP TABLE taken_out AS
    WITH said AS (
        SELECT p.row, d.seq FROM pool p JOIN decisions d ON d.scope = 'source' AND d.target = p.source
         WHERE d.batch NOT IN (FROM undone)
        UNION ALL
        SELECT p.row, d.seq FROM pool p JOIN decisions d ON d.scope = 'demonstration' AND d.target = p.id
         WHERE d.batch NOT IN (FROM undone)
    ), last AS (
        SELECT row, max(seq) AS seq FROM said GROUP BY row
    )
    SELECT l.row, d.batch, d.decided_at, d.who, d.scope, d.reason, {_ABOUT} AS about
      FROM pruned JOIN last l USING (row) JOIN decisions d USING (seq)
"""


def removals(workspace: Workspace) -> tuple[Removal, ...]:
    """Rows taken out, by decision and reason, most rows first."""
    with workspace.read() as con:
        con.execute(_TAKEN_OUT)
        groups = con.execute(
            """
            SELECT batch, about, scope, any_value(decided_at), any_value(who), count(*) FROM taken_out
             GROUP BY batch, about, scope ORDER BY count(*) DESC, batch, about LIMIT ?
            """,
            [MOST_REASONS],
        ).fetchall()
        sources: dict[tuple[Any, ...], dict[str, int]] = {}
        for *key, source, rows in con.execute(
            """
            SELECT batch, about, scope, source, count(*) FROM taken_out JOIN pool USING (row)
             GROUP BY ALL ORDER BY count(*) DESC, source
            """
        ).fetchall():
            sources.setdefault(tuple(key), {})[source] = rows
        examples: dict[tuple[Any, ...], list[RemovedRow]] = {}
        for *key, name, source, text, length, output, size, reason in con.execute(
            # each source once before any comes twice, and rows of one source in an order that is not that of its file
            f"""
            WITH placed AS (
                SELECT t.*, p.id, p.source, p.input, p.output, t.row * 2654435761 % 4294967296 AS draw,
                       row_number() OVER (PARTITION BY batch, about, t.scope, source ORDER BY draw, t.row) AS turn
                  FROM taken_out t JOIN pool p USING (row)
            )
            SELECT batch, about, scope, id, source, left(input, {SHOWN}), length(input), left(output, {SHOWN}),
                   length(output), reason
              FROM placed
           QUALIFY row_number() OVER (PARTITION BY batch, about, scope ORDER BY turn, draw, row) <= {EXAMPLES}
             ORDER BY turn, draw, row
            """
        ).fetchall():
            row = RemovedRow(name, source, Excerpt(text, length), Excerpt(output, size), reason)
            examples.setdefault(tuple(key), []).append(row)
        con.execute("DROP TABLE taken_out")
    return tuple(
        Removal(
            batch, told(when), who, scope, about, rows,
            sources[batch, about, scope], tuple(examples[batch, about, scope]),
        )
        for batch, about, scope, when, who, rows in groups
    )  # fmt: skip


def corrections(workspace: Workspace) -> Corrections:
    """Corrected outputs, with the decision that applies to each."""
    with workspace.read() as con:
        con.execute(
            """
            CREATE TEMP TABLE mended AS
            SELECT p.row, p.id, p.source, p.input, r.output AS before, p.output AS after, p.indexed_at
              FROM outputs_as_read r JOIN pool p USING (row) WHERE p.output <> r.output
            """
        )
        count = con.execute("SELECT count(*) FROM mended").fetchone()
        changes = con.execute(
            f"""
            SELECT left(before, {SHOWN}), any_value(length(before)), left(after, {SHOWN}), any_value(length(after)),
                   count(*)
              FROM mended GROUP BY before, after ORDER BY count(*) DESC, before, after LIMIT {MOST_CHANGES}
            """
        ).fetchall()
        rows = con.execute(
            f"""
            WITH last AS (
                SELECT m.row, max(d.seq) AS seq FROM mended m JOIN decisions d
                    ON d.scope = 'output' AND d.target = m.id AND d.decided_at >= m.indexed_at
                 WHERE d.batch NOT IN (FROM undone) GROUP BY m.row
            )
            SELECT m.id, m.source, left(m.input, {SHOWN}), length(m.input), left(m.before, {SHOWN}), length(m.before),
                   left(m.after, {SHOWN}), length(m.after), d.batch, d.decided_at, d.who, d.reason
              FROM mended m LEFT JOIN last l USING (row) LEFT JOIN decisions d USING (seq)
             ORDER BY m.row LIMIT {MOST_CORRECTED}
            """
        ).fetchall()
        con.execute("DROP TABLE mended")
    examples = tuple(
        CorrectedRow(
            name, source, Excerpt(text, size), Excerpt(before, was), Excerpt(after, now),
            batch, told(when), who or "", reason or "",
        )
        for name, source, text, size, before, was, after, now, batch, when, who, reason in rows
    )  # fmt: skip
    found = tuple(CorrectedRows(Excerpt(a, m), Excerpt(b, n), rows) for a, m, b, n, rows in changes)
    return Corrections(int(count[0]) if count else 0, found, examples)


def labels(workspace: Workspace) -> tuple[LabelChange, ...]:
    """Rows by label before and after, the most frequent first; none if the answers are not labels."""
    if task_of(workspace).kind != "labels":
        return ()
    with workspace.read() as con:
        found = con.execute(
            """
            WITH before AS (
                SELECT coalesce(r.output, p.output) AS label, count(*) AS rows
                  FROM pool p LEFT JOIN outputs_as_read r USING (row) GROUP BY 1
            ), after AS (SELECT output AS label, count(*) AS rows FROM active GROUP BY 1)
            SELECT label, coalesce(b.rows, 0), coalesce(a.rows, 0) FROM before b FULL JOIN after a USING (label)
             ORDER BY 2 DESC, 1
            """
        ).fetchall()
    return tuple(LabelChange(*row) for row in found)
