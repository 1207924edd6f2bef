"""`curate`: from the pool as it is to a curated one, within a budget."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..engine.base.errors import UsageError
from ..render.terminal import print_json
from .jobs import start_job
from .options import (
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    NO_PAID_OPTIONS,
    LLMOptions,
    MethodOption,
    OrderOption,
    PaidOptions,
    ShotsOption,
    WorkspaceOption,
)
from .paid import confirm_server
from .shared import agrees, can_ask, narrated, open_workspace, settings_of

if TYPE_CHECKING:
    from ..engine.curate.curation import Curation
    from ..engine.curate.plan import CurationReport
    from ..engine.llm.cost import DryRun
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
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Curate the pool within a budget: plan, check, ask, prune or relabel what hurts, choose the method. Each decision
    can be undone."""
    settings = settings_of(workspace, method=method, k=k, order=order, **asdict(llm))
    store = open_workspace(workspace)
    from ..engine.curate.state import check_answered

    if accept or reject:
        _answer(store, settings, accept, reject, paid.as_json)
        return
    if not (paid.dry_run or anew):
        check_answered(store)
    confirm_server(settings)
    if paid.background and not paid.dry_run:
        _agreed(yes)
        start_job(store, paid.as_json)
        return
    from ..engine.curate.curation import Curation, CurationPlan
    from ..engine.llm.asking import destination, price_of
    from ..engine.llm.budget import Budget
    from ..engine.llm.client import client_for
    from ..engine.llm.cost import DryRun

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
    budget = Budget(paid.max_calls, paid.max_cost, price_of(settings))
    with (
        narrated() as (report, cancel),
        client_for(store, settings, report, cancel, dry_run=paid.sends_nothing, budget=budget) as client,
    ):
        work = Curation.prepare(client, plan)
        cost = DryRun(work.cost(), destination(settings))
        if paid.dry_run or not (yes or paid.as_json):
            _show_plan(work, cost, paid)
        if paid.dry_run or not _agreed(yes):
            return
        done = work.ask(budget)
    _show(done, paid.as_json)


def _answer(store: Workspace, settings: Settings, accept: bool, reject: bool, as_json: bool) -> None:
    if accept and reject:
        raise UsageError("--accept and --reject are two answers", "give one of them")
    from ..engine.curate.state import answer

    _show(answer(store, settings, accept), as_json)


def _show(done: CurationReport, as_json: bool) -> None:
    if as_json:
        print_json(done.as_json())
        return
    from ..render.curation import show_curation

    show_curation(done)


def _show_plan(work: Curation, cost: DryRun, paid: PaidOptions) -> None:
    if paid.as_json:
        from ..engine.curate.plan import CurationDryRun

        print_json({"dry_run": True, **CurationDryRun(tuple(work.steps), cost).as_json()})
        return
    from ..render.curation import show_plan

    show_plan(work.steps, cost, work.suspected)


def _agreed(yes: bool) -> bool:
    """Whether to go on. Raises `UsageError` if nobody can be asked."""
    if yes:
        return True
    if not can_ask():
        raise UsageError("nobody is there to agree to the plan", "add --yes to carry it out, or --dry-run to see it")
    return agrees("Carry out this plan?")
