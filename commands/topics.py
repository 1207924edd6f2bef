"""`topics`: what the pool covers and what it lacks."""

from __future__ import annotations

from typing import Annotated

import typer

from ..render.terminal import print_json
from .options import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption
from .shared import open_workspace, settings_of


def topics(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    gaps: Annotated[
        bool, typer.Option("--gaps", help="Show topics that queries need, the LLM lacks and the pool does not cover.")
    ] = False,
    search: Annotated[str, typer.Option("--search", "-s", help="Only topics that contain this text.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of topics to show.", min=1)] = 20,
    as_json: JsonOption = False,
) -> None:
    """List topics with size, LLM knowledge, coverage and sources; with --gaps, what to collect next."""
    from ..engine.papers.topics import report

    settings = settings_of(workspace)
    store = open_workspace(workspace)
    if gaps:
        found = report.gaps(store, settings, limit)
        if as_json:
            print_json({"gaps": [gap.as_json() for gap in found]})
            return
        from ..render.topics import show_gaps

        show_gaps(found)
        return
    listed = report.topics(store, settings, search, limit)
    if as_json:
        print_json(listed.as_json())
        return
    from ..render.topics import show_topics

    show_topics(listed)
