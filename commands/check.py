"""`check`: suspicious rows, found without an LLM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..engine.base.errors import UsageError
from ..render.terminal import print_json, say
from .options import DEFAULT_WORKSPACE, DryRunOption, JsonOption, ShotsOption, WorkspaceOption
from .shared import narrated, open_workspace, settings_of

if TYPE_CHECKING:
    from ..engine.checks.results import Kind
    from ..engine.store.decisions import Change
    from ..engine.store.workspace import Workspace


def check(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Kinds to look for, separated by commas: label, mismatch, conflict, duplicate, leak, outlier, class, "
            "empty, cut, mojibake, refusal (default: all)."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Maximum number of findings to show.")] = 20,
    accept: Annotated[
        str | None,
        typer.Option(
            help="Prune the rows found of these kinds, separated by commas; of each group of duplicates the first is "
            "kept."
        ),
    ] = None,
    relabel: Annotated[
        bool, typer.Option("--relabel", help="Give rows with a suspected label the suggested one, if it is likely.")
    ] = False,
    sure: Annotated[
        float, typer.Option(help="Minimum probability of the suggested label for --relabel.", min=0.0, max=1.0)
    ] = 0.5,
    row: Annotated[
        str | None, typer.Option(help="Show all evidence about the demonstration with this id, and nothing else.")
    ] = None,
    skipped: Annotated[
        bool,
        typer.Option("--skipped", help="List the records that index could not use, by reason, with file and line."),
    ] = False,
    also_kept: Annotated[
        bool, typer.Option("--all", help="Show rows as well whose latest decision is to keep them.")
    ] = False,
    k: ShotsOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find wrong labels and outputs, conflicts, duplicates, leaks, outliers and broken texts. No LLM is asked."""
    if row is not None:
        _show_row(workspace, row, as_json)
        return
    if skipped:
        _show_skipped(workspace, limit, as_json)
        return
    from ..engine.checks.active import ActivePool
    from ..engine.checks.check import check_pool
    from ..engine.checks.groups import open_groups
    from ..engine.checks.results import KINDS

    if relabel and accept is not None:
        raise UsageError("choose --accept or --relabel", "icl-curate check --help")
    accepted = _kinds(accept) if accept is not None else ()
    wanted = _kinds(kind) if kind is not None else KINDS
    if set(accepted) - set(wanted):
        raise UsageError("--accept names a kind that --kind leaves out", "icl-curate check --help")
    store = open_workspace(workspace)
    with narrated() as (report, cancel):
        found = check_pool(ActivePool(store, settings_of(workspace, k=k), report, cancel), wanted, also_kept)
    grouped = tuple(name for name in ("duplicate", "leak") if name in wanted)
    shows_groups = set(wanted) == set(grouped)
    groups = [group for name in grouped for group in open_groups(store, name)] if as_json or shows_groups else []
    pruned = found.accepted(accepted)
    relabelled = found.relabelled(sure) if relabel else {}
    change = _carry_out(store, pruned, relabelled, dry_run)
    if as_json:
        from ..engine.store.effects import Effects

        print_json(
            found.as_json()
            | {
                "groups": [group.as_json() for group in groups],
                "dry_run": dry_run,
                "pruned": list(pruned),
                "relabelled": {name: output for name, (output, _) in relabelled.items()},
                "batch": change.batch if change else None,
                "active_after": change.active_after if change else found.checked,
                **(change.effects if change else Effects()).as_json(),
            }
        )
        return
    from ..render.checks import show_checks, show_groups

    if shows_groups:
        show_groups(groups, limit, found.notes, bool(accepted))
    else:
        given = {"--kind": kind, "--all": "" if also_kept else None, "-k": k}
        words = [f"{name} {value}".rstrip() for name, value in given.items() if value is not None]
        show_checks(found, limit, " ".join(["", *words]))
    if change is None:
        if relabel or accepted:
            say("nothing to relabel" if relabel else "nothing to prune of these kinds")
        return
    from ..render.decisions import show_change

    show_change(change)


def _carry_out(
    store: Workspace, pruned: Mapping[str, str], relabelled: Mapping[str, tuple[str, str]], dry_run: bool
) -> Change | None:
    """Prune rows (id → reason) or relabel them (id → output and reason); None if there are none."""
    from ..engine.store.decisions import decide
    from ..engine.store.decisions import relabel as correct

    if pruned:
        return decide(store, "prune", "demonstration", list(pruned), list(pruned.values()), dry_run=dry_run)
    if relabelled:
        outputs = {name: output for name, (output, _) in relabelled.items()}
        return correct(store, outputs, [reason for _, reason in relabelled.values()], dry_run=dry_run)
    return None


def _show_skipped(workspace: Path, limit: int, as_json: bool) -> None:
    from ..engine.index.skipped import skipped_records

    found = skipped_records(open_workspace(workspace))
    if as_json:
        print_json(found.as_json())
        return
    from ..render.checks import show_skipped

    show_skipped(found.reasons, limit)


def _show_row(workspace: Path, name: str, as_json: bool) -> None:
    from ..engine.checks.active import ActivePool
    from ..engine.checks.evidence import row_evidence

    with narrated() as (report, cancel):
        found = row_evidence(ActivePool(open_workspace(workspace), settings_of(workspace), report, cancel))
    evidence = found.of(name)
    if as_json:
        print_json(evidence.as_json() | {"notes": list(found.notes)})
        return
    from ..render.checks import show_evidence

    show_evidence(evidence, found.notes)


def _kinds(named: str) -> tuple[Kind, ...]:
    from ..engine.checks.results import KINDS

    names = {name.strip() for name in named.split(",")}
    if unknown := sorted(names - set(KINDS)):
        raise UsageError(f"unknown kind '{unknown[0]}'", f"use some of: {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in names)
