"""Decisions about the active pool: `prune`, `relabel`, `restore`, `history`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..engine.base.errors import UsageError
from ..render.terminal import print_json
from .options import (
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    BackgroundOption,
    DryRunOption,
    JsonOption,
    LLMOptions,
    MaxCallsOption,
    MaxCostOption,
    OrderOption,
    ReasonOption,
    ShotsOption,
    WorkspaceOption,
    grouped,
)
from .shared import narrated, open_workspace, settings_of, state

if TYPE_CHECKING:
    from ..engine.store.decisions import Action, Change, Scope
    from ..engine.store.settings import Settings

TUNING = "For --tune"
"""Group of options."""


@grouped
def prune(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    source: Annotated[list[str] | None, typer.Option("--source", help="Prune this source; repeatable.")] = None,
    demo: Annotated[list[str] | None, typer.Option("--demo", help="Prune this demonstration; repeatable.")] = None,
    tune: Annotated[bool, typer.Option("--tune", help="Prune the sources and rows that hurt on validation.")] = False,
    propose: Annotated[
        bool, typer.Option("--propose", help="Only measure: --proposed prunes it afterwards.", rich_help_panel=TUNING)
    ] = False,
    proposed: Annotated[
        bool, typer.Option("--proposed", help="Prune what the latest --tune confirmed with served prompts.")
    ] = False,
    below: Annotated[
        float | None, typer.Option("--below", help="Prune sources whose learned weight is below this.")
    ] = None,
    misleading: Annotated[
        bool, typer.Option("--misleading", help="Prune demonstrations that hurt significantly, by the ledger.")
    ] = False,
    suspects: Annotated[
        bool, typer.Option("--suspects", help="Prune demonstrations that are likely to hurt, by all evidence.")
    ] = False,
    sure: Annotated[float, typer.Option(help="Minimum probability for --suspects.", min=0.0, max=1.0)] = 0.9,
    relabel: Annotated[
        bool,
        typer.Option("--relabel", help="Also try to correct labels instead of pruning rows.", rich_help_panel=TUNING),
    ] = False,
    by: Annotated[
        Literal["served", "vote"],
        typer.Option(
            help="What decides: the prompts served, or the vote of single answers (no LLM calls).",
            rich_help_panel=TUNING,
        ),
    ] = "served",
    noise: Annotated[float, typer.Option(help="Minimum gain, in standard errors.", rich_help_panel=TUNING)] = 1.645,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="Served selection method.", rich_help_panel=TUNING)
    ] = None,
    k: ShotsOption = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", help="Use only the first N validation queries.", rich_help_panel=TUNING),
    ] = None,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    max_calls: MaxCallsOption = None,
    max_cost: MaxCostOption = None,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the latest decision.")] = False,
    reason: ReasonOption = "",
    background: BackgroundOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove sources or demonstrations from the active pool. Nothing is deleted; --undo reverts it."""
    if sum(map(bool, (source, demo, tune, proposed, below is not None, misleading, suspects, undo))) > 1:
        raise UsageError("choose one way of pruning at a time", "icl-curate prune --help")
    if (propose or relabel or background) and not tune:
        raise UsageError("--propose, --relabel and --background are for --tune", "icl-curate prune --tune --propose")
    if undo:
        from ..engine.store.decisions import undo as undo_latest

        _show_change(undo_latest(open_workspace(workspace), dry_run=dry_run), as_json)
    elif tune:
        from .tune import TuneOptions, tune_by_vote, tune_served

        settings = settings_of(workspace, k=k, method=method, order=order, **asdict(llm))
        options = TuneOptions(noise, limit, max_calls, max_cost, reason, propose, relabel, background, dry_run, as_json)
        change = (tune_served if by == "served" else tune_by_vote)(workspace, settings, options)
        if change:
            _show_change(change, as_json)
    elif proposed:
        from ..engine.curate.stored import prune_proposed

        _show_change(prune_proposed(open_workspace(workspace), reason, dry_run=dry_run), as_json)
    elif misleading:
        from ..engine.checks.ledger import surely_misleading

        hurtful = surely_misleading(open_workspace(workspace))
        _decide("prune", workspace, None, hurtful, reason or "misleading by the ledger", dry_run, as_json)
    elif suspects:
        _prune_suspects(workspace, settings_of(workspace), sure, reason, dry_run, as_json)
    elif below is not None:
        from ..engine.trials.sources import sources_below

        found = sources_below(open_workspace(workspace), below)
        _decide("prune", workspace, found, None, reason or f"weight below {below}", dry_run, as_json)
    else:
        _decide("prune", workspace, source, demo, reason, dry_run, as_json)


def relabel(
    name: Annotated[str, typer.Argument(metavar="[ID", help="Id of the demonstration.", show_default=False)] = "",
    output: Annotated[str, typer.Argument(metavar="OUTPUT]", help="Its correct output.", show_default=False)] = "",
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    corrections: Annotated[
        str | None, typer.Option("--from", help="File with the columns id and output, instead of ID and OUTPUT.")
    ] = None,
    new_label: Annotated[bool, typer.Option("--new-label", help="Allow labels that no row or query has yet.")] = False,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Correct the output of demonstrations. The files stay as they are; prune --undo reverts it."""
    from ..engine.store.decisions import relabel as correct

    if bool(name and output) == bool(corrections) or bool(name) != bool(output):
        raise UsageError("give an id and its correct output, or --from FILE", "icl-curate relabel ID OUTPUT")
    if corrections is None:
        outputs = {name: output}
    else:
        from ..engine.index.questions import read_corrections

        outputs = read_corrections(corrections)
    change = correct(open_workspace(workspace), outputs, reason, new=new_label, dry_run=dry_run)
    _show_change(change, as_json)


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


def history(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of decisions to show.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List decisions, latest first."""
    from ..engine.store.decisions import history as list_history

    entries = list_history(open_workspace(workspace), limit)
    if as_json:
        print_json({"history": [entry.as_json() for entry in entries]})
        return
    from ..render.pool import show_history

    show_history(entries)


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

    if bool(sources) == bool(demos):
        raise UsageError(f"name what to {action}", f"icl-curate {action} --source NAME, or --demo ID")
    scope: Scope = "source" if sources else "demonstration"
    change = decide(open_workspace(workspace), action, scope, sources or demos or (), reason, dry_run=dry_run)
    _show_change(change, as_json)


def _prune_suspects(
    workspace: Path, settings: Settings, sure: float, reason: str, dry_run: bool, as_json: bool
) -> None:
    from ..engine.checks.active import ActivePool
    from ..engine.checks.evidence import row_evidence
    from ..engine.store.decisions import decide, settled_rows

    store = open_workspace(workspace)
    settled = set(settled_rows(store).tolist())
    with narrated() as (report, cancel):
        known = row_evidence(ActivePool(store, settings, report, cancel))
    found = [row for row in known.suspects(sure) if row.row not in settled]
    if not found:
        raise UsageError(f"no demonstration is likely to hurt from {sure:g} on", "icl-curate demos --suspects")
    reasons = [reason or row.reason for row in found]
    _show_change(decide(store, "prune", "demonstration", [row.id for row in found], reasons, dry_run=dry_run), as_json)


def _show_change(change: Change, as_json: bool) -> None:
    if as_json:
        print_json(change.as_json())
        return
    if state.quiet and not change.dry_run:
        return
    from ..render.decisions import show_change

    show_change(change)
