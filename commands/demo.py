"""`demo`: a session on the sample data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..render.terminal import print_json
from .options import JsonOption
from .shared import narrated


def demo(
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", help="Keep the demo's workspace in this folder.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show all that the commands print, not a line each.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a whole session on the sample data, with no API key, server or download."""
    from .story import run_demo

    with narrated() as (report, cancel):
        story = run_demo(workspace, report, cancel, "nothing" if as_json else "tables" if full else "lines")
    if as_json:
        print_json(story.as_json())
