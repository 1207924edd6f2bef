"""`review`: the interactive screen."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DEFAULT_WORKSPACE, WorkspaceOption


def review(
    context: typer.Context,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    serve: Annotated[
        int | None,
        typer.Option(help="Serve it to a local browser on this port; 0: any free port.", min=0, max=65535),
    ] = None,
    allow_commands: Annotated[
        bool, typer.Option("--allow-commands", help="With --serve: allow any command, path and LLM.")
    ] = False,
) -> None:
    """Review the pool in an interactive terminal screen."""
    from ..tui import review as tui

    if serve is not None:
        tui.serve(workspace, serve, allow_commands)
        return

    raise typer.Exit(tui.review(workspace, allow_commands, context.find_root().command))
