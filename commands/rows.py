"""What is known of single rows: `suspects` by all evidence, `flips` by training with an LLM."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..engine.base.errors import UsageError
from ..render.terminal import print_json
from .decide import show_change
from .options import DEFAULT_WORKSPACE, DryRunOption, JsonOption, ReasonOption, RowsOption, WorkspaceOption
from .shared import narrated, open_workspace, settings_of

if TYPE_CHECKING:
    from ..engine.checks.evidence import PoolEvidence
    from ..engine.store.workspace import Workspace

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the demonstration.")]


def suspects(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    source: Annotated[str | None, typer.Option(help="Only this source.")] = None,
    rows: RowsOption = 20,
    as_json: JsonOption = False,
) -> None:
    """List active demonstrations by how likely they hurt, with all evidence about them. No LLM is asked."""
    store = open_workspace(workspace)
    evidence = _evidence(store, workspace)
    listed = [row for row in evidence.suspects(0.0) if source in (None, row.source)][:rows]
    if not listed and source is not None:
        from ..engine.store.demonstrations import check_sources

        with store.read() as con:
            check_sources(con, [source], "pool")
    if as_json:
        print_json(
            {"kind": "suspects", "demonstrations": [row.as_json() for row in listed], "notes": list(evidence.notes)}
        )
        return
    from ..render.checks import show_suspects

    show_suspects(listed, evidence)


def suspects_show(
    name: IdArgument, workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False
) -> None:
    """Show all evidence about one demonstration."""
    evidence = _evidence(open_workspace(workspace), workspace)
    row = evidence.of(name)
    if as_json:
        print_json({"kind": "row-evidence"} | row.as_json() | {"notes": list(evidence.notes)})
        return
    from ..render.checks import show_evidence

    show_evidence(row, evidence.notes)


def suspects_prune(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    sure: Annotated[float, typer.Option(help="Minimum probability that a row hurts.", min=0.0, max=1.0)] = 0.9,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Prune demonstrations that are likely to hurt, by all evidence."""
    from ..engine.store.decisions import decide, settled_rows

    store = open_workspace(workspace)
    settled = set(settled_rows(store).tolist())
    likely = [row for row in _evidence(store, workspace).suspects(sure) if row.row not in settled]
    if not likely:
        raise UsageError(f"no demonstration is likely to hurt from {sure:g} on", "icl-curate suspects")
    reasons = [reason or row.reason for row in likely]
    show_change(decide(store, "prune", "demonstration", [row.id for row in likely], reasons, dry_run=dry_run), as_json)


def flips(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    misleading: Annotated[
        bool, typer.Option("--misleading", help="Only those that turned right answers wrong more often.")
    ] = False,
    helpful: Annotated[
        bool, typer.Option("--helpful", help="Only those that turned wrong answers right more often, best first.")
    ] = False,
    rows: RowsOption = 20,
    as_json: JsonOption = False,
) -> None:
    """List the ledger: how each demonstration changed answers while the ranker was trained, worst first."""
    from ..engine.checks.ledger import ledger

    entries = ledger(open_workspace(workspace), misleading, helpful, rows)
    if as_json:
        print_json({"kind": "ledger", "demonstrations": [entry.as_json() for entry in entries]})
        return
    from ..render.ranker import show_ledger

    show_ledger(entries)


def flips_show(name: IdArgument, workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """Show the prompts in which one demonstration flipped the answer."""
    from ..engine.store.demonstrations import find
    from ..engine.store.trials import flips as flips_of
    from ..render.ranker import show_flips

    store = open_workspace(workspace)
    prompts = flips_of(store, find(store, name).row)
    print_json({"kind": "flips", "flips": [flip.as_json() for flip in prompts]}) if as_json else show_flips(prompts)


def flips_prune(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Prune demonstrations that hurt significantly, by the ledger."""
    from ..engine.checks.ledger import surely_misleading
    from ..engine.store.decisions import decide

    store = open_workspace(workspace)
    hurtful = surely_misleading(store)
    why = reason or "misleading by the ledger"
    show_change(decide(store, "prune", "demonstration", hurtful, why, dry_run=dry_run), as_json)


def _evidence(store: Workspace, workspace: Path) -> PoolEvidence:
    from ..engine.checks.active import ActivePool
    from ..engine.checks.evidence import row_evidence

    with narrated() as (report, cancel):
        return row_evidence(ActivePool(store, settings_of(workspace), report, cancel))
