"""`version`: states of the pool by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..engine.base.errors import counted
from ..render.terminal import print_json, say
from .options import DEFAULT_WORKSPACE, DryRunOption, JsonOption, ReasonOption, WorkspaceOption
from .shared import open_workspace, state


def known_versions(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names for the completion of a shell."""
    from ..engine.base.errors import CurateError
    from ..engine.store.versions import versions
    from ..engine.store.workspace import Workspace

    try:
        found = versions(Workspace.open(Path(ctx.params.get("workspace") or DEFAULT_WORKSPACE)))
    except CurateError:
        return []
    return [version.name for version in found if version.name.startswith(incomplete)]


NameArgument = Annotated[str, typer.Argument(help="Name of the version.", autocompletion=known_versions)]


def version_list(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """List versions, states of the pool by name, latest first."""
    from ..engine.base.contract import to_json
    from ..engine.store.versions import versions

    found = versions(open_workspace(workspace))
    if as_json:
        print_json({"kind": "versions", "versions": [to_json(version) for version in found]})
        return
    from ..render.versions import show_versions

    show_versions(found)


def version_save(
    name: Annotated[str, typer.Argument(help="Name of the version.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    note: Annotated[str, typer.Option("--note", help="What the version is for.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace the version of this name.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Save the active pool and its corrected outputs under a name. No text is copied."""
    from ..engine.base.contract import to_json
    from ..engine.store.versions import save_version

    found = save_version(open_workspace(workspace), name, note, force=force)
    if as_json:
        print_json({"kind": "version", **to_json(found)})
    elif not state.quiet:
        say(
            f"saved version {found.name}: {counted(found.rows, 'demonstration')}, {found.corrected:,} corrected outputs"
        )


def version_show(
    name: NameArgument, workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False
) -> None:
    """Show a version: its sources, and how the pool differs from it now."""
    from ..engine.store.versions import version_detail

    found = version_detail(open_workspace(workspace), name)
    if as_json:
        print_json(found.as_json())
        return
    from ..render.versions import show_version

    show_version(found)


def version_restore(
    name: NameArgument,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make the active pool that of a version again. A decision: undo reverts it."""
    from ..engine.store.versions import restore_version

    done = restore_version(open_workspace(workspace), name, reason, dry_run=dry_run)
    if as_json:
        print_json(done.as_json())
        return
    if state.quiet and not dry_run:
        return
    from ..render.versions import show_restored

    show_restored(done)


def version_delete(
    name: NameArgument, workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False
) -> None:
    """Forget a version. The pool stays as it is."""
    from ..engine.base.contract import to_json
    from ..engine.store.versions import delete_version

    found = delete_version(open_workspace(workspace), name)
    if as_json:
        print_json({"kind": "version", **to_json(found)})
    elif not state.quiet:
        say(f"deleted version {found.name}; the pool stays as it is")
