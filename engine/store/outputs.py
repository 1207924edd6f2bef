"""Outputs of demonstrations: those of their files, and those that decisions put in their place.

The table ``demonstrations`` holds the output that applies. ``outputs_as_read`` has that of the file for rows that were
ever corrected, ``new_outputs`` what each decision to relabel says, and ``output_changes`` when an output changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

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


def relabelled(workspace: Workspace) -> list[Relabelled]:
    """Rows of the pool whose output differs from that of their file, by row number."""
    with workspace.read() as con:
        rows = con.execute(
            """
            SELECT p.row, p.id, r.output, p.output FROM outputs_as_read r JOIN pool p USING (row)
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


def changed_outputs(con: duckdb.DuckDBPyConnection, outputs: Mapping[str, str]) -> dict[str, None]:
    """Ids of the rows that get another output by ``outputs`` (id → output), in the given order.

    Raises `UsageError` for an output that is empty or not among the row's options, and if none changes."""
    known = con.execute(
        "SELECT id, output, options FROM pool WHERE id IN (SELECT unnest(CAST(? AS VARCHAR[])))", [list(outputs)]
    ).fetchall()
    same = set()
    for name, output, options in known:
        if not outputs[name].strip():
            raise UsageError(f"the new output of '{name}' is empty", f"icl-curate prune --demo {name}")
        if options and outputs[name] not in options:
            raise UsageError(f"'{outputs[name]}' is not an option of '{name}'", f"use one of: {', '.join(options)}")
        if outputs[name] == output:
            same.add(name)
    names = dict.fromkeys(name for name in outputs if name not in same)
    if not names:
        subject = f"the output of '{next(iter(outputs))}' is" if len(outputs) == 1 else "every output is"
        raise UsageError(f"{subject} so already", "icl-curate history")
    return names


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


def set_outputs(con: duckdb.DuckDBPyConnection, targets: Sequence[str], now: datetime) -> None:
    """Make the outputs of rows, by id, those that the decisions now say; they change at ``now``. A row read after a
    decision, because its file has changed, is not meant by it."""
    if not targets:
        return
    con.execute(
        """
        CREATE TEMP TABLE corrected AS
        SELECT p.row, arg_max(n.output, d.seq) AS output FROM pool p
          LEFT JOIN (decisions d JOIN new_outputs n USING (seq))
            ON d.target = p.id AND d.decided_at >= p.indexed_at AND d.batch NOT IN (FROM undone)
         WHERE p.id IN (SELECT unnest(CAST(? AS VARCHAR[]))) GROUP BY p.row
        """,
        [list(targets)],
    )
    con.execute(
        """
        INSERT INTO outputs_as_read
        SELECT p.row, p.output FROM pool p JOIN corrected USING (row)
         WHERE row NOT IN (SELECT row FROM outputs_as_read)
        """
    )
    con.execute(
        """
        INSERT INTO output_changes
        SELECT row, ?, coalesce(c.output, r.output)
          FROM corrected c JOIN outputs_as_read r USING (row) JOIN pool p USING (row)
         WHERE coalesce(c.output, r.output) <> p.output
        """,
        [now],
    )
    con.execute(
        """
        UPDATE demonstrations AS d SET output = coalesce(c.output, r.output)
          FROM corrected c JOIN outputs_as_read r USING (row) WHERE d.row = c.row
        """
    )
    # rows with the same input repeat each other or contradict each other
    con.execute(
        r"""
        UPDATE duplicates AS u SET kind = CASE WHEN EXISTS (
            SELECT 1 FROM demonstrations a, demonstrations b LEFT JOIN duplicates o ON o.row = b.row
             WHERE a.row = u.row AND b.row < a.row AND coalesce(o.of, b.row) = u.of AND b.retired_at IS NULL
               AND a.output = b.output
               AND lower(regexp_replace(trim(a.input), '\s+', ' ', 'g'))
                 = lower(regexp_replace(trim(b.input), '\s+', ' ', 'g'))
        ) THEN 'exact' ELSE 'conflict' END
         WHERE u.kind <> 'near'
           AND u.of IN (SELECT coalesce(o.of, c.row) FROM corrected c LEFT JOIN duplicates o USING (row))
        """
    )
    con.execute("DROP TABLE corrected")
