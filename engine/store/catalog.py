"""What the file of a workspace may hold: the tables and views that the migrations make, and nothing else.

A workspace may come from somebody else. A view in place of a table, a macro named like a function, a default or a
generated column would run within our queries. So before anything in a file is queried, what it holds is compared with
what `schema.MIGRATIONS` make.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import duckdb

from ..base.errors import WorkspaceError
from ..pool.display import display_line
from . import schema

SETTLED = "531c0d763b1f70a29dc83dcb1aededbd2d2473ec718571342d9ada5ebf4a10d9"
"""The digest of a file of this release with nothing else in it, where DuckDB is the one of ``constraints.txt``. It
only saves time: for another digest the migrations are run, to compare."""


class Held(NamedTuple):
    """Something that a file holds, with DuckDB's own SQL of it if there is one."""

    kind: str
    schema: str
    name: str
    sql: str


_RELATIONS = (
    "'table', schema_name, table_name, sql FROM duckdb_tables() WHERE true",
    "'view', schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal",
)
_OTHERS = (
    "'schema', schema_name, schema_name, '' FROM duckdb_schemas() WHERE NOT internal",
    "'index', schema_name, index_name, sql FROM duckdb_indexes() WHERE true",
    "'sequence', schema_name, sequence_name, sql FROM duckdb_sequences() WHERE true",
    "'type', schema_name, type_name, '' FROM duckdb_types() WHERE NOT internal",
    "'trigger', schema_name, trigger_name, sql FROM duckdb_triggers() WHERE true",
    "'macro', schema_name, function_name, '' FROM duckdb_functions() WHERE true",
)
_OIDS = "SELECT database_oid - oid FROM duckdb_schemas() WHERE schema_name = 'main' AND database_name = ?"

_made: dict[int, frozenset[Held]] = {}
"""What files of a version hold; filled as needed."""


def check(con: duckdb.DuckDBPyConnection, catalog: str, database: Path) -> int:
    """The schema version of the file ``database``, which is attached as ``catalog``. Raises `WorkspaceError` if the
    file is of a newer release, or holds anything but what the migrations up to its version make.

    ``con`` must not use the catalog yet, whose macros would come before DuckDB's own functions; it does afterwards.

    Listing all that there is takes DuckDB 15 ms, most of it for functions, and running the migrations as long. A file
    with the digest `SETTLED` needs neither: while DuckDB attaches a file it numbers all that is in it, and then the
    file, so that with tables and views as they should be those numbers leave no room for anything else.
    """
    held = _held(con, catalog, *_RELATIONS)
    settled = _digest(held, con.execute(_OIDS, [catalog]).fetchone()) == SETTLED
    if not settled and (held := held | _held(con, catalog, *_OTHERS)):
        _demand(frozenset(one for one in held if one.name == "meta"), _made_by(con, 0), database)
    con.execute(f"USE {catalog}")
    version = schema.version_of(con)
    schema.check_version(version)
    if held and not (settled and version == schema.VERSION):
        _demand(held, _made_by(con, version), database)
    return version


def _held(con: duckdb.DuckDBPyConnection, catalog: str, *lists: str) -> frozenset[Held]:
    query = " UNION ALL ".join(f"SELECT {one} AND database_name = $catalog" for one in lists)
    return frozenset(Held(*row) for row in con.execute(query, {"catalog": catalog}).fetchall())


def _made_by(con: duckdb.DuckDBPyConnection, version: int) -> frozenset[Held]:
    """What the migrations up to a version make, tried in memory."""
    if version not in _made:
        with con.cursor() as aside:
            aside.execute("BEGIN")
            for step in (schema.META, *schema.MIGRATIONS[:version]):
                aside.execute(step)
            _made[version] = _held(aside, "memory", *_RELATIONS, *_OTHERS)
            aside.execute("ROLLBACK")
    return _made[version]


def _digest(held: frozenset[Held], oids: object) -> str:
    told = (duckdb.__version__, schema.META, schema.MIGRATIONS, sorted(held), oids)
    return hashlib.sha256(repr(told).encode()).hexdigest()


def _demand(held: frozenset[Held], made: frozenset[Held], database: Path) -> None:
    """Raise `WorkspaceError` unless both are the same."""
    if held == made:
        return
    one = min(held - made or made - held)
    what = f"{one.kind} '{display_line(one.name, 60)}'"
    if one not in held:
        why = f"lacks the {what}"
    elif any(one[:3] == other[:3] for other in made):
        why = f"has another {what} than icl-curate makes"
    else:
        why = f"holds a {what} that icl-curate did not make"
    raise WorkspaceError(
        f"{database} {why}, so nothing in it is read",
        "ask whoever made it for the rows as a file, then: icl-curate index FILE --workspace NEW",
    )
