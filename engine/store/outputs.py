"""Outputs of demonstrations: those of their files, and those that decisions put in their place.

The table ``demonstrations`` holds the output that applies. ``outputs_as_read`` has that of the file for rows that were
ever corrected, ``new_outputs`` what each decision to relabel says and of which rows, and ``output_changes`` when an
output changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

import duckdb

from ..base.errors import UsageError, did_you_mean
from ..pool.records import TaskKind
from ..pool.sets import labels_of
from .columns import noted
from .workspace import Workspace


@dataclass(frozen=True, slots=True)
class Relabelled:
    """A row whose output was corrected: what its file ``has``, and what applies, ``output``."""

    row: int
    id: str
    has: str
    output: str


def relabelled(workspace: Workspace, of: Literal["pool", "active"] = "pool") -> list[Relabelled]:
    """Rows whose output differs from that of their file, by row number: with the pruned ones, or those active alone."""
    with workspace.read() as con:
        rows = con.execute(
            f"""
            SELECT p.row, p.id, r.output, p.output FROM outputs_as_read r JOIN {of} p USING (row)
             WHERE p.output <> r.output ORDER BY row
            """
        ).fetchall()
    return [Relabelled(*each) for each in rows]


def as_read(workspace: Workspace, rows: Sequence[int]) -> dict[int, str]:
    """The outputs that the files of rows have, where others apply."""
    with workspace.read() as con:
        outputs = con.execute(
            "SELECT row, r.output FROM outputs_as_read r JOIN demonstrations d USING (row)"
            " WHERE row IN (SELECT unnest(?)) AND d.output <> r.output",
            [list(rows)],
        ).fetchall()
    return dict(outputs)


LONGEST = 1_000_000
"""Characters of an output, as `index` reads them."""


def changed_outputs(con: duckdb.DuckDBPyConnection, outputs: Mapping[str, str]) -> dict[str, str]:
    """Those of the ``outputs`` (id → output), without outer white space, that differ from what their rows have.

    Raises `UsageError` for an output that `index` would not read, or that is not among the row's options."""
    outputs = {name: output.strip() for name, output in outputs.items()}
    for name, output in outputs.items():
        if not output:
            raise UsageError(f"the new output of '{name}' is empty", f"icl-curate prune --demo {name}")
        if (why := _unreadable(output)) is not None:
            raise UsageError(f"the new output of '{name}' {why}", "index would not read it: give another one")
    known = con.execute(
        "SELECT id, output, options FROM pool WHERE id IN (SELECT unnest(CAST(? AS VARCHAR[])))", [list(outputs)]
    ).fetchall()
    same = set()
    for name, output, options in known:
        if options and outputs[name] not in options:
            raise UsageError(f"'{outputs[name]}' is not an option of '{name}'", f"use one of: {', '.join(options)}")
        if outputs[name] == output:
            same.add(name)
    return {name: output for name, output in outputs.items() if name not in same}


def _unreadable(output: str) -> str | None:
    if "\0" in output:
        return "contains NUL bytes"
    if len(output) > LONGEST:
        return f"has {len(output):,} characters, more than {LONGEST:,}"
    try:
        output.encode()
    except UnicodeEncodeError:
        return "is not valid Unicode: a lone surrogate"
    return None


def check_labels(
    con: duckdb.DuckDBPyConnection, outputs: Mapping[str, str], new: bool, places: Mapping[str, str] = {}
) -> None:
    """Raises `UsageError` if the answers of the pool are labels, or sets of some, and an output has one that no row or
    query uses, unless ``new`` ones are allowed; ``places``: by id, what the error begins with."""
    kind = cast(TaskKind, noted(con, "task") or "open")
    if new or kind not in ("labels", "sets"):
        return
    found = con.execute("SELECT DISTINCT output FROM demonstrations WHERE retired_at IS NULL").fetchall()
    if not (labels := labels_of(kind, [output for (output,) in found])):
        return
    for name, output in outputs.items():
        for label in labels_of(kind, [output]):
            if label not in labels:
                what = f"{places.get(name, '')}no row or query has the label '{label}'{did_you_mean(label, labels)}"
                raise UsageError(what, "add --new-label to use a new one")


def set_outputs(con: duckdb.DuckDBPyConnection, now: datetime) -> None:
    """Make the outputs of all rows that were ever corrected those that the decisions say; they change at ``now``. Rows
    that are out of the pool, too: when they come back, undone corrections have no part in them."""
    con.execute(
        """
        INSERT INTO outputs_as_read
        SELECT row, output FROM demonstrations
         WHERE row IN (SELECT row FROM new_outputs) AND row NOT IN (SELECT row FROM outputs_as_read)
        """
    )
    con.execute(
        """
        CREATE TEMP TABLE corrected AS
        WITH said AS (
            SELECT n.row, arg_max(n.output, seq) AS output FROM new_outputs n JOIN decisions d USING (seq)
             WHERE d.batch NOT IN (FROM undone) GROUP BY n.row)
        SELECT row, coalesce(s.output, r.output) AS output
          FROM outputs_as_read r JOIN demonstrations p USING (row) LEFT JOIN said s USING (row)
         WHERE coalesce(s.output, r.output) <> p.output
        """
    )
    con.execute("INSERT INTO output_changes SELECT row, ?, output FROM corrected", [now])
    con.execute("UPDATE demonstrations AS d SET output = c.output FROM corrected c WHERE d.row = c.row")
    # rows with the same input repeat each other or contradict each other
    con.execute(
        """
        WITH changed AS (SELECT coalesce(u.same, row) AS same FROM corrected LEFT JOIN duplicates u USING (row)),
             members AS (
                SELECT row, same FROM duplicates WHERE same IN (FROM changed) UNION SELECT same, same FROM changed),
             firsts AS (
                SELECT m.row, m.same, min(row) OVER (PARTITION BY m.same, d.output) AS first
                  FROM members m JOIN demonstrations d USING (row) WHERE d.retired_at IS NULL)
        UPDATE duplicates AS u SET kind = CASE WHEN f.first < f.row THEN 'exact' ELSE 'conflict' END
          FROM firsts f WHERE f.row = u.row AND f.row <> f.same
        """
    )
    con.execute("DROP TABLE corrected")
