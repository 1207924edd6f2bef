"""`curate`: from the pool as it is to a curated one, within a budget. `tune`: prune what hurts on validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..engine.base.errors import UsageError
from ..render.terminal import print_json
from .options import (
    AS_SET,
    AS_STORED,
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    NO_PAID_OPTIONS,
    DryRunOption,
    EvidenceOptions,
    GradingOptions,
    JsonOption,
    LimitOption,
    LLMOptions,
    MethodOption,
    OrderOption,
    PaidOptions,
    ReasonOption,
    ShotsOption,
    WorkspaceOption,
)
from .paid import asking, confirm_server, in_background
from .shared import agrees, can_ask, narrated, open_workspace, settings_of, tell, tell_change

if TYPE_CHECKING:
    from ..engine.curate.curation import Curation
    from ..engine.llm.cost import DryRun
    from ..engine.store.decisions import Change
    from ..engine.store.settings import Settings
    from ..engine.store.workspace import Workspace


def curate(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    method: MethodOption = None,
    k: ShotsOption = None,
    order: OrderOption = None,
    noise: Annotated[float, typer.Option(help="Minimum gain of a decision, in standard errors.")] = 1.645,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the plan is carried out.")] = False,
    one_step: Annotated[bool, typer.Option("--next", help="Carry out the next step only, then stop.")] = False,
    propose: Annotated[
        bool, typer.Option("--propose", help="Decide nothing: only measure what would be gained.")
    ] = False,
    hold: Annotated[
        bool, typer.Option("--hold", help="Stop before a decision and let it wait for --accept or --reject.")
    ] = False,
    accept: Annotated[bool, typer.Option("--accept", help="Carry out what waits; asks no LLM.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Leave what waits as it is; asks no LLM.")] = False,
    relabel: Annotated[
        bool, typer.Option("--relabel/--no-relabel", help="Also try to correct labels instead of pruning rows.")
    ] = True,
    anew: Annotated[bool, typer.Option("--restart", help="Do not continue a run that was stopped.")] = False,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Curate the pool within a budget: plan, check, ask, prune or relabel what hurts, choose the method. Each decision
    can be undone."""
    from ..engine.curate.state import check_answered

    settings = settings_of(workspace, method=method, k=k, order=order, **asdict(llm), **asdict(grading))
    store = open_workspace(workspace)
    if accept and reject:
        raise UsageError("--accept and --reject are two answers", "give one of them")
    if accept or reject:
        name = "--accept" if accept else "--reject"
        given = {
            "--propose": propose, "--next": one_step, "--hold": hold, "--restart": anew,
            "--background": paid.background, "--dry-run": paid.dry_run and reject,
        }  # fmt: skip
        if other := next((option for option, there in given.items() if there), ""):
            raise UsageError(f"{name} answers at once: {other} does not go with it", f"icl-curate curate {name}")
        _answer(store, settings, accept, paid)
        return
    if not (paid.dry_run or anew):
        check_answered(store)
    confirm_server(settings)
    if paid.background and not paid.dry_run:
        _agreed(yes)
    if in_background(store, paid):
        return
    from ..engine.curate.curation import Curation, CurationPlan
    from ..engine.llm.asking import foreseen

    plan = CurationPlan(
        max_calls=paid.max_calls,
        max_cost=paid.max_cost,
        noise=noise,
        one_step=one_step,
        propose=propose,
        anew=anew,
        hold=hold,
        relabel=relabel,
    )
    with asking(store, settings, paid) as (client, budget):
        work = Curation.prepare(client, plan)
        cost = foreseen(work.cost(), store, settings)
        if paid.dry_run or not (yes or paid.as_json):
            _show_plan(work, cost, paid)
        if paid.dry_run or not _agreed(yes):
            return
        done = work.ask(budget)
    tell(done, paid.as_json)


def _answer(store: Workspace, settings: Settings, accept: bool, paid: PaidOptions) -> None:
    """Carry out what waits, or leave it; in a dry run say what carrying it out would do."""
    from ..engine.curate.state import answer, would_change

    if not paid.dry_run:
        tell(answer(store, settings, accept), paid.as_json)
        return
    tell_change(would_change(store), paid.as_json)
    if not paid.as_json:
        from ..render.tables import show_hint

        show_hint("accept it: icl-curate curate --accept; leave it: icl-curate curate --reject")
        show_hint("or begin anew: icl-curate curate --max-calls N --restart")


def _show_plan(work: Curation, cost: DryRun, paid: PaidOptions) -> None:
    from ..engine.curate.plan import CurationDryRun

    held = work.begun.held if work.begun else None
    plan = CurationDryRun(tuple(work.steps), cost, work.visible, held)
    if paid.as_json:
        print_json({"dry_run": True, **plan.as_json()})
        return
    from ..render.curate import show_curation_plan

    done = len(work.begun.steps) + (held is not None) if work.begun else 0
    show_curation_plan(plan, work.suspected, done)


def _agreed(yes: bool) -> bool:
    """Whether to go on. Raises `UsageError` if nobody can be asked."""
    if yes:
        return True
    if not can_ask():
        raise UsageError("nobody is there to agree to the plan", "add --yes to carry it out, or --dry-run to see it")
    return agrees("Carry out this plan?")


NoiseOption = Annotated[float, typer.Option(help="Minimum gain, in standard errors.")]


def tune(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    propose: Annotated[bool, typer.Option("--propose", help="Only measure: tune apply prunes it afterwards.")] = False,
    relabel: Annotated[
        bool, typer.Option("--relabel", help="Also try to correct labels instead of pruning rows.")
    ] = False,
    noise: NoiseOption = 1.645,
    method: MethodOption = None,
    k: ShotsOption = None,
    limit: LimitOption = None,
    order: OrderOption = None,
    reason: ReasonOption = "",
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Prune the sources and rows that hurt the prompts you serve, if validation confirms it. Nothing is deleted; undo
    reverts it."""
    settings = settings_of(workspace, k=k, method=method, order=order, **asdict(llm), **asdict(grading))
    confirm_server(settings)
    store = open_workspace(workspace)
    if in_background(store, paid):
        return
    from ..engine.curate.tune import Tuning, TuningPlan
    from ..engine.llm.asking import foreseen
    from ..engine.store.decisions import revise

    cost: DryRun | None = None
    with asking(store, settings, paid) as (client, budget):
        work = Tuning.prepare(client, TuningPlan(noise=noise, limit=limit, relabel=relabel))
        if paid.dry_run:
            cost = foreseen(work.cost(), store, settings)
            tuned = work.from_cache()
        else:
            tuned = work.ask(budget)
    change = None
    if tuned.worth_it and not propose:
        change = revise(store, tuned.revision, reason or tuned.reason, dry_run=paid.dry_run)
    if paid.as_json:
        _print_decided(tuned.as_json() | (cost.as_json() if cost else {}), change, paid.dry_run)
        return
    from ..render.curate import show_candidates, show_tuning
    from ..render.tables import show_hint

    if cost and tuned.stopped:
        show_candidates(tuned, cost)
    else:
        show_tuning(tuned)
        if tuned.worth_it and propose:
            show_hint("nothing is pruned yet; to prune it: icl-curate tune apply")
    if change:
        tell_change(change, False)


def tune_vote(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    noise: NoiseOption = 1.645,
    k: ShotsOption = None,
    reason: ReasonOption = "",
    counts: EvidenceOptions = AS_STORED,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Prune the sources whose removal improves the vote of single answers, by the latest train sources. No LLM is
    asked."""
    from ..engine.store.decisions import decide
    from ..engine.trials.sources import tune as tune_by_vote

    store = open_workspace(workspace)
    with narrated() as monitor:
        tuned = tune_by_vote(store, settings_of(workspace, k=k, **asdict(counts)), noise, monitor)
    change = None
    if tuned.pruned:
        change = decide(store, "prune", "source", tuned.pruned, reason or tuned.reason, dry_run=dry_run)
    if as_json:
        _print_decided(tuned.as_json(), change, dry_run)
        return
    tell(tuned, False)
    if change:
        tell_change(change, False)


def tune_apply(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Prune what the latest tune confirmed with served prompts. No LLM is asked."""
    from ..engine.curate.stored import prune_proposed

    tell_change(prune_proposed(open_workspace(workspace), reason, dry_run=dry_run), as_json)


def _print_decided(tuned: Mapping[str, Any], change: Change | None, dry_run: bool) -> None:
    """The JSON object: what was measured, and what the decision does."""
    from ..engine.store.decisions import Effects

    effects = change.effects if change else Effects()
    print_json({**tuned, "dry_run": dry_run, "batch": change.batch if change else None, **effects.as_json()})
