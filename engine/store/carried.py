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
    something new and ``stay`` pruned; how many decided rows are ``gone``; pruned ``sources`` that have no row now, each
    with the only one whose new rows say the same, empty if there is none; the ids of rows that ``took`` the decisions
    on rows that were gone earlier, as they say the same; the ids of active rows that say the same as some that ``left``
    a pruned source, which has others; the ids of rows that ``joined`` a pruned source, and are pruned with it."""

    lapsed: int = 0
    stay: tuple[str, ...] = ()
    gone: int = 0
    sources: tuple[tuple[str, str], ...] = ()
    took: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()


_SOURCES_OUT = """
    (SELECT target AS source FROM decisions WHERE scope = 'source' AND batch NOT IN (FROM undone)
      GROUP BY target HAVING arg_max(action, seq) = 'prune')"""
_DECIDED = """
    SELECT target FROM decisions WHERE scope IN ('demonstration', 'output') AND batch NOT IN (FROM undone)
     GROUP BY target HAVING arg_max(action, seq) <> 'restore'"""


def carry_over(con: duckdb.DuckDBPyConnection, gone: Int64s, come: Int64s) -> Carried:
    """Let decisions stand for what their rows said: rows that have ``gone`` are retired already, and those that have
    ``come`` are there."""
    with given(con, "gone", {"row": gone}), given(con, "come", {"row": come}):
        took = _follow(con) if come.size else ()
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
            f"""
            SELECT count(DISTINCT id) FROM demonstrations SEMI JOIN gone USING (row)
             WHERE id NOT IN (SELECT id FROM demonstrations WHERE retired_at IS NULL) AND id IN ({_DECIDED})
            """,
        )
        of_pruned = f"demonstrations SEMI JOIN gone USING (row) SEMI JOIN {_SOURCES_OUT} USING (source)"
        sources, left = [], []
        if number(con, f"SELECT count(*) FROM {of_pruned}"):  # what follows joins texts, which may be long
            sources = con.execute(
                f"""
                SELECT o.source, if(count(DISTINCT n.source) = 1, min(n.source), '')
                  FROM (SELECT * FROM {of_pruned} WHERE source NOT IN (SELECT source FROM pool)) o
                  LEFT JOIN (SELECT * FROM pool SEMI JOIN come USING (row)) n USING (input, output)
                 GROUP BY o.source ORDER BY o.source
                """
            ).fetchall()
            left = con.execute(
                f"""
                SELECT DISTINCT n.id
                  FROM (SELECT * FROM {of_pruned} WHERE source IN (SELECT source FROM pool)) o
                  JOIN (SELECT * FROM active SEMI JOIN come USING (row)) n USING (input, output)
                 WHERE n.id NOT IN (
                    SELECT target FROM decisions WHERE scope = 'demonstration' AND batch NOT IN (FROM undone))
                 ORDER BY n.id
                """
            ).fetchall()
        joined = con.execute(
            f"""
            WITH was AS (SELECT source, id, hash(input) AS input FROM {of_pruned})
            SELECT id FROM (SELECT row, source, id, hash(input) AS input FROM demonstrations SEMI JOIN come USING (row))
              SEMI JOIN {_SOURCES_OUT} USING (source)
              ANTI JOIN was USING (source, id) ANTI JOIN was USING (source, input)
             WHERE row IN (FROM pruned) ORDER BY row
            """
        ).fetchall()
    stays, leaves, joins = (tuple(name for (name,) in found) for found in (stay, left, joined))
    return Carried(lapsed, stays, lost, tuple(sources), took, leaves, joins)


def _follow(con: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """Give decided rows that are gone, now or since earlier, the ids of those that come and say the same, so that
    decisions are on these. Where another row had that id, its own decisions are not on them. Returns the ids of those
    that take decisions on rows that were gone earlier."""
    con.execute(
        f"""
        CREATE TEMP TABLE texts AS
        WITH decided AS (
                SELECT target AS id, arg_max(action, seq)
                       FILTER (scope = 'demonstration' AND batch NOT IN (FROM undone)) = 'prune' AS pruned
                  FROM decisions WHERE scope IN ('demonstration', 'output') GROUP BY target),
             rows AS (
                SELECT arg_max(row, retired_at) AS row FROM demonstrations
                 WHERE retired_at IS NOT NULL AND (id IN (SELECT id FROM decided) OR row IN (FROM gone))
                   AND id NOT IN (SELECT id FROM demonstrations WHERE retired_at IS NULL AND row NOT IN (FROM come))
                 GROUP BY id UNION ALL FROM come)
        SELECT id, row, line, source, split, retired_at IS NULL AS here, coalesce(pruned, false) AS is_out,
               {_WHOLE} AS said
          FROM {_TEXTS} LEFT JOIN decided USING (id)
         WHERE row IN (FROM rows)
           AND input IN (SELECT input FROM demonstrations SEMI JOIN rows USING (row) SEMI JOIN decided USING (id))
        QUALIFY count(*) OVER (PARTITION BY id, said) = 1
        """
    )
    con.execute("CREATE TEMP TABLE renamed (old VARCHAR, id VARCHAR)")
    for alike in ("said, split, source", "said, split", "said"):
        pairs = paired("(FROM texts WHERE NOT here)", "(FROM texts WHERE here)", alike)
        con.execute(f"INSERT INTO renamed SELECT o.id, n.id FROM {pairs}")
        con.execute(
            "DELETE FROM texts WHERE CASE WHEN here THEN id IN (SELECT id FROM renamed)"
            " ELSE id IN (SELECT old FROM renamed) END"
        )
    took = con.execute(
        f"""
        SELECT id FROM renamed WHERE old <> id AND old IN ({_DECIDED})
           AND old NOT IN (SELECT id FROM demonstrations SEMI JOIN gone USING (row)) ORDER BY id
        """
    ).fetchall()
    con.execute(  # the ids of files end in no space, so that none is another's
        """
        INSERT INTO renamed
        SELECT id, id || '~' || max(row) || ' ' FROM demonstrations
         WHERE retired_at IS NOT NULL AND id IN (SELECT id FROM renamed) AND id NOT IN (SELECT old FROM renamed)
         GROUP BY id
        """
    )
    # in the order of what is updated: DuckDB takes the time of thousands of rows for each that is out of order
    con.execute(
        """
        UPDATE decisions AS d SET target = n.id
          FROM (SELECT seq, r.id FROM decisions JOIN renamed r ON r.old = target
                 WHERE scope IN ('demonstration', 'output') ORDER BY seq) n WHERE n.seq = d.seq
        """
    )
    con.execute(
        """
        UPDATE demonstrations AS d SET id = n.id
          FROM (SELECT row, r.id FROM demonstrations o JOIN renamed r ON r.old = o.id
                 WHERE retired_at IS NOT NULL ORDER BY row) n WHERE n.row = d.row
        """
    )
    con.execute("DROP TABLE texts; DROP TABLE renamed")
    return tuple(name for (name,) in took)


def paired(old: str, new: str, alike: str) -> str:
    """SQL that joins rows ``o`` of the table ``old`` with rows ``n`` of the table ``new`` that agree in the columns
    ``alike``, in the order of their lines. If fewer are new, those of ``old`` that are pruned have none: what is left
    of equal rows is active."""
    ranked = f"row_number() OVER (PARTITION BY {alike} ORDER BY"
    return f"""
        (SELECT *, {ranked} line, row) AS place
           FROM (FROM {old} JOIN (SELECT {alike}, count(*) AS many FROM {new} GROUP BY {alike}) USING ({alike})
                QUALIFY {ranked} is_out, line, row) <= many)) o
          JOIN (SELECT *, {ranked} line, row) AS place FROM {new}) n USING ({alike}, place)
    """


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
