"""What becomes of decisions when the files say something else of the rows: they stay with what was decided on."""

from __future__ import annotations

from typing import NamedTuple

import duckdb

from ..base.arrays import Int64s
from .columns import given, now, number
from .outputs import set_outputs

SAID = "input, options, answers, context, coalesce(history, '[]')"
"""What a correction was made in sight of, beside the output."""
_WHOLE = f"md5(CAST(({SAID}, coalesce(r.output, d.output)) AS VARCHAR))"
_TEXTS = "demonstrations d LEFT JOIN outputs_as_read r USING (row)"


class Carried(NamedTuple):
    """How many corrections ``lapsed``, as the files say something new about their rows; the ids of rows that say
    something new and ``stay`` pruned; how many decided rows are ``gone``; pruned ``sources`` that have no row now."""

    lapsed: int = 0
    stay: tuple[str, ...] = ()
    gone: int = 0
    sources: tuple[str, ...] = ()


def carry_over(con: duckdb.DuckDBPyConnection, gone: Int64s, come: Int64s) -> Carried:
    """Let decisions stand for what their rows said: rows that have ``gone`` are retired already, and those that have
    ``come`` are there."""
    with given(con, "gone", {"row": gone}), given(con, "come", {"row": come}):
        if gone.size and come.size:
            _follow(con)
        lapsed = _carry_outputs(con)
        stay = con.execute(
            f"""
            WITH is_out AS (
                SELECT target AS id FROM decisions WHERE scope = 'demonstration' AND batch NOT IN (FROM undone)
                 GROUP BY target HAVING arg_max(action, seq) = 'prune'),
                 pairs AS (
                SELECT c.row, max(o.row) AS before FROM come JOIN demonstrations c USING (row) JOIN is_out USING (id)
                  JOIN demonstrations o ON o.id = c.id AND o.row < c.row GROUP BY c.row),
                 texts AS (
                SELECT row, id, (input, coalesce(r.output, d.output)) AS said FROM {_TEXTS}
                 WHERE row IN (SELECT before FROM pairs UNION ALL SELECT row FROM pairs))
            SELECT a.id FROM pairs p JOIN texts a ON a.row = p.row JOIN texts b ON b.row = p.before
             WHERE a.said <> b.said AND a.row IN (FROM pruned) ORDER BY a.id
            """
        ).fetchall()
        lost = number(
            con,
            """
            SELECT count(DISTINCT id) FROM demonstrations SEMI JOIN gone USING (row)
             WHERE id NOT IN (SELECT id FROM demonstrations WHERE retired_at IS NULL)
               AND id IN (SELECT target FROM decisions WHERE scope IN ('demonstration', 'output')
                             AND batch NOT IN (FROM undone) GROUP BY target HAVING arg_max(action, seq) <> 'restore')
            """,
        )
        sources = con.execute(
            """
            SELECT target FROM decisions
             WHERE scope = 'source' AND batch NOT IN (FROM undone) AND target NOT IN (SELECT source FROM pool)
               AND target IN (SELECT source FROM demonstrations SEMI JOIN gone USING (row))
             GROUP BY target HAVING arg_max(action, seq) = 'prune' ORDER BY target
            """
        ).fetchall()
    return Carried(lapsed, tuple(name for (name,) in stay), lost, tuple(name for (name,) in sources))


def _follow(con: duckdb.DuckDBPyConnection) -> None:
    """Give decided rows that have gone the ids of those that come and say the same, in their order: so decisions are on
    these. Of equal rows pruned ones come last, so that what is left of them is active. Where another row had that id,
    its own decisions are not on them."""
    con.execute(
        f"""
        CREATE TEMP TABLE renamed AS
        WITH decided AS (
                SELECT target AS id, arg_max(action, seq)
                       FILTER (scope = 'demonstration' AND batch NOT IN (FROM undone)) = 'prune' AS is_out
                  FROM decisions WHERE scope IN ('demonstration', 'output') GROUP BY target),
             texts AS MATERIALIZED (
                SELECT row, id, retired_at IS NULL AS here, {_WHOLE} AS said FROM {_TEXTS}
                 WHERE (row IN (SELECT row FROM gone) OR row IN (SELECT row FROM come))
                   AND input IN (SELECT input FROM demonstrations SEMI JOIN gone USING (row)
                                   SEMI JOIN decided USING (id))),
             places AS MATERIALIZED (
                SELECT *, row_number() OVER (PARTITION BY said, here ORDER BY coalesce(is_out, false), row) AS place
                  FROM texts t LEFT JOIN decided USING (id)
                 WHERE NOT EXISTS (FROM texts o WHERE o.id = t.id AND o.said = t.said AND o.here <> t.here)),
             moved AS (
                SELECT o.id AS old, n.id FROM places o JOIN places n USING (said, place) WHERE n.here AND NOT o.here)
        SELECT old, id FROM moved
         UNION ALL
        SELECT id, id || '~' || max(row) FROM demonstrations
         WHERE retired_at IS NOT NULL AND id IN (SELECT id FROM moved) AND id NOT IN (SELECT old FROM moved) GROUP BY id
        """
    )
    con.execute(
        """
        UPDATE decisions SET target = n.id FROM renamed n WHERE target = n.old AND scope IN ('demonstration', 'output')
        """
    )
    con.execute("UPDATE demonstrations AS d SET id = n.id FROM renamed n WHERE d.id = n.old AND retired_at IS NOT NULL")
    con.execute("DROP TABLE renamed")


def _carry_outputs(con: duckdb.DuckDBPyConnection) -> int:
    """Let corrections also stand for rows that come under the ids of theirs, if these say the same but for source and
    metadata. Returns how many lapsed."""
    con.execute(
        f"""
        CREATE TEMP TABLE successors AS
        WITH pairs AS (
            SELECT DISTINCT o.row AS before, d.row FROM new_outputs n JOIN demonstrations o USING (row)
              JOIN demonstrations d ON d.id = o.id AND d.row <> o.row SEMI JOIN come ON come.row = d.row),
             texts AS (
            SELECT row, ({SAID}, coalesce(r.output, d.output)) AS said FROM {_TEXTS}
             WHERE row IN (SELECT before FROM pairs UNION ALL SELECT row FROM pairs))
        SELECT p.before, p.row, a.said = b.said AS same
          FROM pairs p JOIN texts a ON a.row = p.before JOIN texts b ON b.row = p.row
        """
    )
    con.execute(
        """
        INSERT INTO new_outputs
        SELECT DISTINCT n.seq, n.output, s.row FROM successors s JOIN new_outputs n ON n.row = s.before
         WHERE same AND NOT EXISTS (FROM new_outputs e WHERE e.seq = n.seq AND e.row = s.row)
        """
    )
    set_outputs(con, now())
    lapsed = number(
        con,
        """
        SELECT count(*) FROM successors s JOIN demonstrations o ON o.row = s.before JOIN demonstrations d
            ON d.row = s.row JOIN outputs_as_read r ON r.row = s.before
         WHERE NOT same AND o.row IN (SELECT row FROM gone) AND o.output NOT IN (r.output, d.output)
        """,
    )
    con.execute("DROP TABLE successors")
    return lapsed
