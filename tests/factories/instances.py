"""DuckDB instances started before: to start one takes as long as a hundred small queries. A user's workspace has one of
its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
from icl_curate.engine.store import workspace

START = workspace._instance
"""Starts the instance of a workspace, confined to its folder; for tests of that."""

_kept: dict[duckdb.DuckDBPyConnection, int] = {}
"""Instances for all workspaces of the tests, with the memory that they were started for."""


def keep_instances(patch: Callable[[object, str, object], None]) -> None:
    """Let workspaces among the temporary files be read with an instance that another one has left, which is confined to
    those files; ``patch`` is ``monkeypatch.setattr``."""
    root = Path(tempfile.gettempdir()).resolve()

    def instance(folder: Path) -> duckdb.DuckDBPyConnection:
        if not folder.is_relative_to(root):
            return START(folder)
        memory = workspace._memory_mib()
        workspace._lingering.close(wait=False)
        with workspace._spare_lock:
            for left, con in reversed(workspace._spare.items()):
                if _kept.get(con) == memory:
                    return workspace._spare.pop(left)
        con = workspace.in_memory(workspace.limits(root / "spilt"))
        workspace.confine(con, f"allowed_directories = [{workspace.quoted(root)}]")
        _kept[con] = memory
        return con

    patch(workspace, "_instance", instance)
