"""From recorded queries: `watch` compares those of production with the pool, `audit` finds sources to drop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from ..engine.base.errors import ALARMED, UsageError
from .options import (
    AS_SET,
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    ColumnsOption,
    DryRunOption,
    GradingOptions,
    JsonOption,
    LLMOptions,
    MaxCallsOption,
    MaxCostOption,
    MethodOption,
    OrderOption,
    PaidOptions,
    ShotsOption,
    WorkspaceOption,
)
from .paid import carry_out_all
from .shared import mapping_of, narrated, open_workspace, settings_of, tell

if TYPE_CHECKING:
    from ..engine.trials.results import Use


def watch(
    queries: Annotated[
        list[str],
        typer.Argument(help="Queries of production: files in any format of index, globs; - is JSONL on stdin."),
    ],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    columns: ColumnsOption = None,
    answer_field: Annotated[
        str, typer.Option("--answer-field", help="Column with the answer given in production, to be measured.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", help="Use only a random sample of N queries.", min=1)] = 20_000,
    drift: Annotated[
        float, typer.Option(help="Alarm if at least this share of the queries has changed.", min=0, max=1)
    ] = 0.1,
    uncovered: Annotated[
        float, typer.Option(help="Alarm if at least this share is far from every demonstration.", min=0, max=1)
    ] = 0.05,
    least_accuracy: Annotated[
        float | None,
        typer.Option(
            "--least-accuracy",
            help="Alarm if the accuracy measured, or else expected, is lower (default: 0.05 below the evaluated one).",
            min=0,
            max=1,
        ),
    ] = None,
    method: MethodOption = None,
    k: ShotsOption = None,
    order: OrderOption = None,
    ask: Annotated[bool, typer.Option("--ask", help="Ask the LLM about a sample of the queries with answers.")] = False,
    sample: Annotated[int, typer.Option(help="Number of queries to ask about.", min=1)] = 200,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    max_calls: MaxCallsOption = None,
    max_cost: MaxCostOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare queries of production with the pool: drift, gaps, accuracy. Exits with 6 if an alarm is raised."""
    from ..engine.watch.watch import AlarmLimits, AskedWatch, Watch, WatchPlan

    settings = settings_of(workspace, method=method, k=k, order=order, **asdict(llm), **asdict(grading))
    asked = min(sample, max_calls) if max_calls else sample
    limits = AlarmLimits(drift, uncovered, least_accuracy)
    plan = WatchPlan(
        patterns=tuple(queries),
        columns=mapping_of(columns or ()),
        answer_field=answer_field,
        most=limit,
        sample=asked,
        limits=limits,
    )
    if not ask and (dry_run or max_calls is not None or max_cost is not None):
        raise UsageError("without --ask nothing is asked, so there is no cost to limit", "add --ask, or omit the limit")
    store = open_workspace(workspace)
    paid = PaidOptions(max_calls=max_calls, max_cost=max_cost, dry_run=dry_run, as_json=as_json)
    if ask:
        watched = carry_out_all({"": lambda llm: AskedWatch.prepare(llm, plan)}, store, settings, paid).get("")
    else:
        with narrated() as monitor:
            watched = Watch(store, settings, plan, monitor).report()
    if watched is None:
        return
    tell(watched, as_json)
    if watched.alarms:
        raise typer.Exit(ALARMED)


def audit(
    log: Annotated[Path, typer.Argument(help="Recorded retrievals to fit on (JSONL or Parquet).")],
    test: Annotated[Path | None, typer.Option(help="Recorded retrievals to test on.")] = None,
    k: Annotated[int, typer.Option("-k", "--voters", help="Number of answers that vote.")] = 10,
    task: Annotated[
        Literal["questions", "imputation"],
        typer.Option(help="imputation: missing values of a table, compared without case, articles and punctuation."),
    ] = "questions",
    group_by: Annotated[
        Literal["auto", "source", "domain"],
        typer.Option(help="How to group into sources; domain: by the domain of URLs."),
    ] = "auto",
    uses: Annotated[
        str, typer.Option(help="Comma-separated, to choose from: prune, vote, reweight, reweight-points.")
    ] = "prune,vote,reweight",
    rate: Annotated[float, typer.Option(help="Learning rate of the weights, per retrieved item.")] = 500.0,
    epochs: Annotated[int, typer.Option(help="Number of steps of the weights.", min=1)] = 50,
    noise: Annotated[float, typer.Option(help="Minimum gain, in standard errors.")] = 1.645,
    seed: Annotated[int, typer.Option(help="Seed of the cross-validation.", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Find sources to drop from recorded retrievals, without an LLM (Lyu et al. 2023)."""
    from ..engine.papers.sources.audit import audit as run_audit

    chosen = cast("Sequence[Use]", [use.strip() for use in uses.split(",") if use.strip()])
    with narrated() as monitor:
        audited = run_audit(
            log, test, k, task=task, group_by=group_by, uses=chosen, rate=rate, epochs=epochs, noise=noise, seed=seed,
            monitor=monitor,
        )  # fmt: skip
    tell(audited, as_json)
