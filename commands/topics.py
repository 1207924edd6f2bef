"""`topics`: what the pool covers and what it lacks."""

from __future__ import annotations

from typing import Annotated

import typer

from ..render.terminal import print_json
from .options import DEFAULT_WORKSPACE, JsonOption, RowsOption, WorkspaceOption
from .shared import open_workspace, settings_of


def topics(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    gaps: Annotated[
        bool, typer.Option("--gaps", help="Show topics that queries need, the LLM lacks and the pool does not cover.")
    ] = False,
    search: Annotated[str, typer.Option("--search", "-s", help="Only topics that contain this text.")] = "",
    rows: RowsOption = 20,
    as_json: JsonOption = False,
) -> None:
    """List topics with size, LLM knowledge, coverage and sources; with --gaps, what to collect next."""
    from ..engine.papers.topics import report

    settings = settings_of(workspace)
    store = open_workspace(workspace)
    if gaps:
        found = report.gaps(store, settings, rows)
        if as_json:
            print_json({"kind": "gaps", "gaps": [gap.as_json() for gap in found]})
            return
        from ..render.topics import show_gaps

        show_gaps(found)
        return
    listed = report.topics(store, settings, search, rows)
    if as_json:
        print_json(listed.as_json())
        return
    from ..render.topics import show_topics

    show_topics(listed)
