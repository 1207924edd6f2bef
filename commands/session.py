"""`review`: the interactive screen; `verify`: one dialog of it. `config`: all settings. `demo`: a session on the sample
data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..render.terminal import print_json
from .options import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption
from .shared import narrated, open_workspace, tell


def demo(
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", help="Keep the demo's workspace in this folder.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show all that the commands print, not a line each.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a whole session on the sample data, with no API key, server or download."""
    from .story import run_demo

    with narrated() as monitor:
        story = run_demo(workspace, monitor, "nothing" if as_json else "tables" if full else "lines")
    if as_json:
        print_json(story.as_json())


def config(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """Show all settings with their values and origins."""
    from ..engine.store.settings import CONFIG, about, knobs, resolve, user_config

    resolved = resolve(workspace, {})
    if as_json:
        print_json(resolved.as_json())
        return
    from ..render.tables import show_table

    rows = [
        [name, None if value in (None, []) else str(value), resolved.origins[name], about(name)]
        for name, value in knobs(resolved.settings).items()
    ]
    note = f"set them in {workspace / CONFIG}, {user_config()}, or as ICL_CURATE_<NAME> in the environment"
    show_table(["setting", "value", "from", "meaning>"], rows, note=note)


def review(
    context: typer.Context,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    serve: Annotated[
        int | None, typer.Option(help="Serve it to a local browser on this port; 0: any free port.", min=0, max=65535)
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


def verify(
    file: Annotated[Path, typer.Argument(help="Where verified rows are kept.")] = Path("verified.jsonl"),
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, help="How many to verify.")] = 100,
    seed: Annotated[int, typer.Option(help="Random seed of the order.", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Verify outputs of rows drawn at random: as validation queries they teach check which labels are right."""
    from ..engine.export.verified import Verification

    drawn = Verification(open_workspace(workspace), file, rows, seed)
    if not as_json and drawn.row is not None:
        from ..tui import review as tui
        from ..tui.dialogs.verify import Verify

        if code := tui.review(workspace, only=lambda: Verify(drawn)):
            raise typer.Exit(code)
    tell(drawn.report(as_json), as_json)
