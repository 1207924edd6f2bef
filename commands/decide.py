"""Decisions about the active pool: `prune`, `restore`, `keep`, `relabel`, `undo`, `redo`, `history`; `version`: its
states by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..engine.base.errors import UsageError, counted
from ..render.terminal import print_json, say
from .options import (
    AS_STORED,
    DEFAULT_WORKSPACE,
    DryRunOption,
    EvidenceOptions,
    JsonOption,
    ReasonOption,
    RowsOption,
    WorkspaceOption,
)
from .shared import open_workspace, settings_of, state, tell, tell_all, tell_change

if TYPE_CHECKING:
    from ..engine.store.decisions import Action, Scope
    from ..engine.store.versions import Version


def prune(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    source: Annotated[list[str] | None, typer.Option("--source", help="Prune this source; repeatable.")] = None,
    demo: Annotated[list[str] | None, typer.Option("--demo", help="Prune this demonstration; repeatable.")] = None,
    below: Annotated[
        float | None, typer.Option("--below", help="Prune sources whose learned weight is below this.", min=0, max=1)
    ] = None,
    reason: ReasonOption = "",
    counts: EvidenceOptions = AS_STORED,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove sources or demonstrations from the active pool. Nothing is deleted; undo reverts it."""
    if below is not None and (source or demo):
        raise UsageError("--below names what to prune, too", "leave out --source and --demo, or --below")
    if below is None and counts != AS_STORED:
        raise UsageError("what says which answers count is of --below alone", "leave it out, or --below WEIGHT")
    if below is not None:
        from ..engine.trials.sources import sources_below

        source = sources_below(open_workspace(workspace), below, settings_of(workspace, **asdict(counts)))
        reason = reason or f"weight below {below}"
    _decide("prune", workspace, source, demo, reason, dry_run, as_json)


def undo(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE, dry_run: DryRunOption = False, as_json: JsonOption = False
) -> None:
    """Undo the latest decision; repeat it to undo earlier ones."""
    from ..engine.store.decisions import undo as undo_latest

    tell_change(undo_latest(open_workspace(workspace), dry_run=dry_run), as_json)


def redo(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE, dry_run: DryRunOption = False, as_json: JsonOption = False
) -> None:
    """Bring back the decision that was undone last; repeat it for those before. A new decision ends this."""
    from ..engine.store.decisions import redo as redo_latest

    tell_change(redo_latest(open_workspace(workspace), dry_run=dry_run), as_json)


def relabel(
    name: Annotated[str, typer.Argument(metavar="ID", help="Id of the demonstration.", show_default=False)] = "",
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="Its correct output.", show_default=False)] = "",
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    corrections: Annotated[
        str | None, typer.Option("--from", help="File with the columns id and output, instead of ID and OUTPUT.")
    ] = None,
    new_label: Annotated[bool, typer.Option("--new-label", help="Allow labels that no row or query has yet.")] = False,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Correct the output of demonstrations. The files stay as they are; undo reverts it."""
    from ..engine.store.decisions import relabel as correct

    if bool(name and output) == bool(corrections) or bool(name) != bool(output):
        raise UsageError("give an id and its correct output, or --from FILE", "icl-curate relabel ID OUTPUT")
    places: dict[str, str] = {}
    if corrections is None:
        outputs = {name: output}
    else:
        from ..engine.index.questions import read_corrections

        outputs, places = read_corrections(corrections)
    change = correct(open_workspace(workspace), outputs, reason, new=new_label, dry_run=dry_run, places=places)
    tell_change(change, as_json)


def restore(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    source: Annotated[list[str] | None, typer.Option("--source", help="Restore this source; repeatable.")] = None,
    demo: Annotated[list[str] | None, typer.Option("--demo", help="Restore this demonstration; repeatable.")] = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Return pruned sources or demonstrations to the active pool."""
    _decide("restore", workspace, source, demo, reason, dry_run, as_json)


def keep(
    names: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of demonstrations.", show_default=False)],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Keep suspected demonstrations: no check lists them again, and those that were pruned return."""
    _decide("keep", workspace, (), names, reason, dry_run, as_json)


def history(workspace: WorkspaceOption = DEFAULT_WORKSPACE, rows: RowsOption = 50, as_json: JsonOption = False) -> None:
    """List decisions, latest first."""
    from ..engine.store.decisions import history as list_history

    tell_all("history", "history", list_history(open_workspace(workspace), rows), as_json)


def _decide(
    action: Action,
    workspace: Path,
    sources: Sequence[str] | None,
    demos: Sequence[str] | None,
    reason: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    from ..engine.store.decisions import decide

    if sources and demos:
        raise UsageError(
            f"{action} sources or demonstrations, one after the other", f"icl-curate {action} --source NAME"
        )
    if not (sources or demos):
        raise UsageError(f"name what to {action}", f"icl-curate {action} --source NAME or --demo ID")
    scope: Scope = "source" if sources else "demonstration"
    change = decide(open_workspace(workspace), action, scope, sources or demos or (), reason, dry_run=dry_run)
    tell_change(change, as_json)


def known_versions(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names for the completion of a shell."""
    from ..engine.base.errors import CurateError
    from ..engine.store.versions import versions
    from ..engine.store.workspace import Workspace

    try:
        saved = versions(Workspace.open(Path(ctx.params.get("workspace") or DEFAULT_WORKSPACE)))
    except CurateError:
        return []
    return [version.name for version in saved if version.name.startswith(incomplete)]


NameArgument = Annotated[str, typer.Argument(help="Name of the version.", autocompletion=known_versions)]


def version_list(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """List versions, states of the pool by name, latest first."""
    from ..engine.base.contract import to_json
    from ..engine.store.versions import versions

    saved = versions(open_workspace(workspace))
    if as_json:
        print_json({"kind": "versions", "versions": [to_json(version) for version in saved]})
        return
    from ..render import show

    show("versions", saved)


def version_save(
    name: Annotated[str, typer.Argument(help="Name of the version.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    note: Annotated[str, typer.Option("--note", help="What the version is for.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace the version of this name.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Save the active pool and its corrected outputs under a name. No text is copied."""
    from ..engine.store.versions import save_version

    saved = save_version(open_workspace(workspace), name, note, force=force)
    holds = f"{counted(saved.rows, 'demonstration')}, {saved.corrected:,} corrected outputs"
    _tell_version(saved, f"saved version {saved.name}: {holds}", as_json)


def version_show(
    name: NameArgument, workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False
) -> None:
    """Show a version: its sources, and how the pool differs from it now."""
    from ..engine.store.versions import version_detail

    tell(version_detail(open_workspace(workspace), name), as_json)


def version_restore(
    name: NameArgument,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make the active pool that of a version again. A decision: undo reverts it."""
    from ..engine.store.versions import restore_version

    tell(restore_version(open_workspace(workspace), name, reason, dry_run=dry_run), as_json, done=not dry_run)


def version_delete(
    name: NameArgument, workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False
) -> None:
    """Forget a version. The pool stays as it is."""
    from ..engine.store.versions import delete_version

    gone = delete_version(open_workspace(workspace), name)
    _tell_version(gone, f"deleted version {gone.name}; the pool stays as it is", as_json)


def _tell_version(version: Version, done: str, as_json: bool) -> None:
    from ..engine.base.contract import to_json

    if as_json:
        print_json({"kind": "version", **to_json(version)})
    elif not state.quiet:
        say(done)
