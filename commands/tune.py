"""`prune --tune`: prune what hurts on validation, by served prompts or by the vote of single answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.base.errors import UsageError
from ..render.terminal import print_json
from .jobs import start_job
from .paid import confirm_server
from .shared import narrated, open_workspace

if TYPE_CHECKING:
    from ..engine.llm.cost import DryRun
    from ..engine.store.decisions import Change
    from ..engine.store.settings import Settings


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Options of ``prune --tune``."""

    noise: float
    limit: int | None
    max_calls: int | None
    max_cost: float | None
    reason: str
    propose: bool
    relabel: bool
    background: bool
    dry_run: bool
    as_json: bool


def tune_served(workspace: Path, settings: Settings, options: TuneOptions) -> Change | None:
    """Race candidate prunings with served prompts, and apply the winner if its gain is confirmed, unless it is only to
    be proposed."""
    confirm_server(settings)
    if options.background and not options.dry_run:
        start_job(open_workspace(workspace), options.as_json)
        return None
    from ..engine.curate.tune import Tuning, TuningPlan
    from ..engine.llm.asking import destination, price_of
    from ..engine.llm.budget import Budget
    from ..engine.llm.client import client_for
    from ..engine.llm.cost import DryRun
    from ..engine.store.decisions import revise

    store = open_workspace(workspace)
    budget = Budget(options.max_calls, options.max_cost, price_of(settings))
    cost: DryRun | None = None
    with (
        narrated() as (report, cancel),
        client_for(
            store, settings, report, cancel, dry_run=options.dry_run or options.max_calls == 0, budget=budget
        ) as llm,
    ):
        work = Tuning(llm, TuningPlan(options.noise, options.limit, relabel=options.relabel))
        if options.dry_run:
            cost = DryRun(work.cost(), destination(settings))
            found = work.from_cache()
        else:
            found = work.run(budget)
    change = None
    if found.worth_it and not options.propose:
        why = options.reason or found.reason
        change = revise(store, found.revision, why, dry_run=options.dry_run)
    if options.as_json:
        _print_decided(found.as_json() | (cost.as_json() if cost else {}), change, options)
        return None
    from ..render.curate import show_candidates, show_tuning
    from ..render.tables import show_text

    if cost and found.stopped:
        show_candidates(found, cost)
    else:
        show_tuning(found)
        if found.worth_it and options.propose:
            show_text("nothing is pruned yet; to prune it: icl-curate prune --proposed")
    return change


def tune_by_vote(workspace: Path, settings: Settings, options: TuneOptions) -> Change | None:
    """Prune the sources whose removal improves the vote of single answers, by the latest ``train sources``."""
    if options.propose or options.relabel or options.background:
        raise UsageError(
            "--by vote prunes sources and calls no LLM: leave out --propose, --relabel, --background", "add --dry-run"
        )
    from ..engine.store.decisions import decide
    from ..engine.trials.sources import tune

    store = open_workspace(workspace)
    with narrated() as (report, cancel):
        tuned = tune(store, settings, options.noise, report, cancel)
    change = None
    if tuned.pruned:
        why = options.reason or f"run {tuned.run}: {tuned.estimator} below {tuned.threshold:.3g}"
        change = decide(store, "prune", "source", tuned.pruned, why, dry_run=options.dry_run)
    if options.as_json:
        _print_decided(tuned.as_json(), change, options)
        return None
    from ..render.sources import show_tuned

    show_tuned(tuned)
    return change


def _print_decided(found: Mapping[str, Any], change: Change | None, options: TuneOptions) -> None:
    """The JSON object: what was found, and what the decision does."""
    from ..engine.store.effects import Effects

    effects = change.effects if change else Effects()
    batch = change.batch if change else None
    print_json({**found, "dry_run": options.dry_run, "batch": batch, **effects.as_json()})
