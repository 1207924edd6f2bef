"""`check`: suspicious rows, found without an LLM, and what to do about them. `skipped`: records that are no rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..engine.base.errors import UsageError
from ..render.terminal import print_json, say
from . import values
from .options import (
    AS_STORED,
    DEFAULT_WORKSPACE,
    DryRunOption,
    EvidenceOptions,
    JsonOption,
    ReasonOption,
    RowsOption,
    ShotsOption,
    WorkspaceOption,
)
from .shared import narrated, open_workspace, settings_of, tell, tell_all, tell_change
from .values import option, several_of

if TYPE_CHECKING:
    from ..engine.checks.evidence import PoolEvidence
    from ..engine.checks.results import Kind
    from ..engine.store.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """What is looked for, and what is shown of it."""

    kind: Annotated[
        str | None,
        option(
            help="Kinds to look for, separated by commas: label, mismatch, part, schema, entity, call, "
            "member, rationale, style, neighbour, conflict, duplicate, leak, outlier, class, empty, cut, mojibake, "
            "refusal (default: all).",
            some_of=values.kinds,
        ),
    ] = None
    rows: RowsOption = 20
    also_kept: Annotated[
        bool, typer.Option("--all", help="Show rows as well whose latest decision is to keep them.")
    ] = False
    k: ShotsOption = None
    as_json: JsonOption = False


EVERY_KIND = CheckOptions()


def check(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    options: CheckOptions = EVERY_KIND,
    counts: EvidenceOptions = AS_STORED,
) -> None:
    """Find wrong labels and outputs, conflicts, duplicates, leaks, outliers and broken texts. No LLM is asked."""
    _check(workspace, options, counts)


def check_prune(
    kinds: Annotated[
        str,
        typer.Argument(
            metavar="KINDS",
            help="Kinds whose rows to prune, separated by commas.",
            autocompletion=several_of(values.kinds),
        ),
    ],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    options: CheckOptions = EVERY_KIND,
    counts: EvidenceOptions = AS_STORED,
    dry_run: DryRunOption = False,
) -> None:
    """Prune the rows found of these kinds; of each group of duplicates the first is kept. undo reverts it."""
    from ..engine.checks.results import kinds_named

    _check(workspace, options, counts, accepted=kinds_named(kinds), dry_run=dry_run)


def check_relabel(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    sure: Annotated[float, typer.Option(help="Minimum probability of the suggested output.", min=0.0, max=1.0)] = 0.5,
    options: CheckOptions = EVERY_KIND,
    counts: EvidenceOptions = AS_STORED,
    dry_run: DryRunOption = False,
) -> None:
    """Give rows with a suspected label or a faulty output the suggested one, if it is likely. undo reverts it."""
    _check(workspace, options, counts, sure=sure, dry_run=dry_run)


def skipped(workspace: WorkspaceOption = DEFAULT_WORKSPACE, rows: RowsOption = 20, as_json: JsonOption = False) -> None:
    """List the records that index could not use, by reason, with file and line."""
    from ..engine.index.results import skipped_records

    tell(skipped_records(open_workspace(workspace)), as_json, rows)


def _check(
    workspace: Path,
    options: CheckOptions,
    counts: EvidenceOptions,
    accepted: Sequence[Kind] = (),
    sure: float | None = None,
    dry_run: bool = False,
) -> None:
    """Look, decide, and show both: the rows of ``accepted`` kinds are pruned, suggested labels given from ``sure``."""
    from ..engine.checks.active import ActivePool
    from ..engine.checks.check import check_pool
    from ..engine.checks.decided import prune_found, relabel_found
    from ..engine.checks.groups import open_groups
    from ..engine.checks.results import KINDS, kinds_named
    from ..engine.checks.suspects import suspects_of

    wanted = kinds_named(options.kind) if options.kind is not None else KINDS
    if set(accepted) - set(wanted):
        raise UsageError("a kind to prune is left out by --kind", "icl-curate check prune --help")
    store = open_workspace(workspace)
    with narrated() as monitor:
        pool = ActivePool(store, settings_of(workspace, k=options.k, **asdict(counts)), monitor)
        checked = check_pool(pool, wanted, options.also_kept)
        if set(wanted) == set(KINDS):
            suspects_of(pool, checked)  # `status` counts them
    grouped = tuple(name for name in ("duplicate", "leak") if name in wanted)
    shows_groups = set(wanted) == set(grouped)
    groups = (
        [group for name in grouped for group in open_groups(store, name)] if options.as_json or shows_groups else []
    )
    pruned = checked.accepted(accepted)
    relabelled = checked.relabelled(sure) if sure is not None else {}
    if sure is not None:
        change = relabel_found(store, checked, sure, dry_run=dry_run)
    else:
        change = prune_found(store, checked, accepted, dry_run=dry_run)
    if options.as_json:
        from ..engine.store.decisions import Effects

        print_json(
            checked.as_json()
            | {
                "groups": [group.as_json() for group in groups],
                "dry_run": dry_run,
                "pruned": list(pruned),
                "relabelled": {name: output for name, (output, _) in relabelled.items()},
                "batch": change.batch if change else None,
                "active_after": change.active_after if change else checked.checked,
                **(change.effects if change else Effects()).as_json(),
            }
        )
        return
    from ..render.checks import show_checks, show_groups

    if shows_groups:
        show_groups(groups, checked.kinds, options.rows, checked.notes, bool(accepted))
    else:
        given = {"--kind": options.kind, "--all": "" if options.also_kept else None, "-k": options.k}
        words = [f"{name} {value}".rstrip() for name, value in given.items() if value is not None]
        show_checks(checked, options.rows, " ".join(["", *words]))
    if change is None:
        if accepted or sure is not None:
            say("nothing to prune of these kinds" if accepted else "nothing to relabel")
        return
    tell(change, False)


IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the demonstration.")]


def suspects(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    source: Annotated[str | None, typer.Option(help="Only this source.")] = None,
    rows: RowsOption = 20,
    counts: EvidenceOptions = AS_STORED,
    as_json: JsonOption = False,
) -> None:
    """List active demonstrations by how likely they hurt, with all evidence about them. No LLM is asked."""
    from ..engine.checks.decided import undecided

    store = open_workspace(workspace)
    evidence = undecided(store, _evidence(store, workspace, counts))
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
    name: IdArgument,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    counts: EvidenceOptions = AS_STORED,
    as_json: JsonOption = False,
) -> None:
    """Show all evidence about one demonstration."""
    evidence = _evidence(open_workspace(workspace), workspace, counts)
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
    counts: EvidenceOptions = AS_STORED,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Prune demonstrations that are likely to hurt, by all evidence."""
    from ..engine.checks.decided import prune_suspects

    store = open_workspace(workspace)
    evidence = _evidence(store, workspace, counts)
    tell_change(prune_suspects(store, evidence, sure, reason, dry_run=dry_run), as_json)


def flips(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    misleading: Annotated[
        bool, typer.Option("--misleading", help="Only those that turned right answers wrong more often.")
    ] = False,
    helpful: Annotated[
        bool, typer.Option("--helpful", help="Only those that turned wrong answers right more often, best first.")
    ] = False,
    rows: RowsOption = 20,
    counts: EvidenceOptions = AS_STORED,
    as_json: JsonOption = False,
) -> None:
    """List the ledger: how each demonstration changed answers while the ranker was trained, worst first."""
    from ..engine.checks.ledger import ledger

    store, grading = _graded(workspace, counts)
    tell_all("ledger", "demonstrations", ledger(store, misleading, helpful, rows, grading), as_json)


def flips_show(
    name: IdArgument,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    counts: EvidenceOptions = AS_STORED,
    as_json: JsonOption = False,
) -> None:
    """Show the prompts in which one demonstration flipped the answer."""
    from ..engine.store.demonstrations import find
    from ..engine.store.trials import flips as flips_of

    store, grading = _graded(workspace, counts)
    tell_all("flips", "flips", flips_of(store, find(store, name).row, grading), as_json)


def flips_prune(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    reason: ReasonOption = "",
    counts: EvidenceOptions = AS_STORED,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Prune demonstrations that hurt significantly, and more than the median one, by the ledger."""
    from ..engine.checks.decided import prune_misleading

    store, grading = _graded(workspace, counts)
    tell_change(prune_misleading(store, reason, grading, dry_run=dry_run), as_json)


def _graded(workspace: Path, counts: EvidenceOptions) -> tuple[Workspace, list[str]]:
    """The workspace, and the grading of the answers in the ledger; tells what of it is graded otherwise."""
    from ..engine.llm.graded import grading_set, left_out
    from ..engine.store.trials import RANKER

    store, settings = open_workspace(workspace), settings_of(workspace, **asdict(counts))
    for line in left_out(store, settings, kinds=(RANKER,)):
        say(line, err=True)
    return store, grading_set(store, settings)


def _evidence(store: Workspace, workspace: Path, counts: EvidenceOptions) -> PoolEvidence:
    from ..engine.checks.active import ActivePool
    from ..engine.checks.evidence import row_evidence

    with narrated() as monitor:
        return row_evidence(ActivePool(store, settings_of(workspace, **asdict(counts)), monitor))
