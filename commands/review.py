"""`review`: the whole on one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DEFAULT_WORKSPACE, WorkspaceOption


def review(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    serve: Annotated[
        int | None,
        typer.Option(
            help="Serve it to browsers on this port of this machine instead; 0: a free one.", min=0, max=65535
        ),
    ] = None,
    allow_commands: Annotated[
        bool, typer.Option("--allow-commands", help="With --serve: any command, path and LLM from the browser too.")
    ] = False,
) -> None:
    """The whole of it on one screen, by keyboard: look, filter, compare, decide, undo."""
    from ..tui import review as tui

    if serve is not None:
        tui.serve(workspace, serve, allow_commands)
        return
    raise typer.Exit(tui.review(workspace, allow_commands))
