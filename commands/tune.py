"""`tune`: prune what hurts on validation, by served prompts or by the vote of single answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..render.terminal import print_json
from .decide import show_change
from .jobs import start_job
from .options import (
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    NO_PAID_OPTIONS,
    DryRunOption,
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
from .paid import confirm_server
from .shared import narrated, open_workspace, settings_of

if TYPE_CHECKING:
    from ..engine.store.decisions import Change

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
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Prune the sources and rows that hurt the prompts you serve, if validation confirms it. Nothing is deleted; undo
    reverts it."""
    settings = settings_of(workspace, k=k, method=method, order=order, **asdict(llm))
    confirm_server(settings)
    store = open_workspace(workspace)
    if paid.background and not paid.dry_run:
        start_job(store, paid.as_json)
        return
    from ..engine.curate.tune import Tuning, TuningPlan
    from ..engine.llm.asking import destination, price_of
    from ..engine.llm.budget import Budget
    from ..engine.llm.client import client_for
    from ..engine.llm.cost import DryRun
    from ..engine.store.decisions import revise

    budget = Budget(paid.max_calls, paid.max_cost, price_of(settings))
    cost: DryRun | None = None
    with (
        narrated() as (report, cancel),
        client_for(store, settings, report, cancel, dry_run=paid.sends_nothing, budget=budget) as client,
    ):
        work = Tuning.prepare(client, TuningPlan(noise=noise, limit=limit, relabel=relabel))
        if paid.dry_run:
            cost = DryRun(work.cost(), destination(settings))
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
    from ..render.tables import show_text

    if cost and tuned.stopped:
        show_candidates(tuned, cost)
    else:
        show_tuning(tuned)
        if tuned.worth_it and propose:
            show_text("nothing is pruned yet; to prune it: icl-curate tune apply")
    if change:
        show_change(change, as_json=False)


def tune_vote(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    noise: NoiseOption = 1.645,
    k: ShotsOption = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Prune the sources whose removal improves the vote of single answers, by the latest train sources. No LLM is
    asked."""
    from ..engine.store.decisions import decide
    from ..engine.trials.sources import tune as tune_by_vote

    store = open_workspace(workspace)
    with narrated() as (report, cancel):
        tuned = tune_by_vote(store, settings_of(workspace, k=k), noise, report, cancel)
    change = None
    if tuned.pruned:
        why = reason or f"run {tuned.run}: {tuned.estimator} below {tuned.threshold:.3g}"
        change = decide(store, "prune", "source", tuned.pruned, why, dry_run=dry_run)
    if as_json:
        _print_decided(tuned.as_json(), change, dry_run)
        return
    from ..render.sources import show_tuned

    show_tuned(tuned)
    if change:
        show_change(change, as_json=False)


def tune_apply(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Prune what the latest tune confirmed with served prompts. No LLM is asked."""
    from ..engine.curate.stored import prune_proposed

    show_change(prune_proposed(open_workspace(workspace), reason, dry_run=dry_run), as_json)


def _print_decided(tuned: Mapping[str, Any], change: Change | None, dry_run: bool) -> None:
    """The JSON object: what was measured, and what the decision does."""
    from ..engine.store.decisions import Effects

    effects = change.effects if change else Effects()
    print_json({**tuned, "dry_run": dry_run, "batch": change.batch if change else None, **effects.as_json()})
