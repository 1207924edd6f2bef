"""`evaluate`: selection methods compared. `preview`: the demonstrations of a query, and the LLM's answer."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..engine.base.errors import UsageError
from ..render.terminal import narrate
from . import values
from .options import (
    AS_SET,
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    NO_PAID_OPTIONS,
    DryRunOption,
    FieldOption,
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
from .paid import carry_out
from .shared import asked_of, narrated, open_workspace, query_split_of, settings_of, state, tell, text_of
from .values import option

if TYPE_CHECKING:
    from ..engine.base.contract import Reported
    from ..engine.llm.client import LLMClient, PaidWork


def evaluate(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    methods: Annotated[
        str,
        option(
            "--methods",
            "-m",
            help="Comma-separated: zero, random, bm25, bm25-plus, dense, dpp, set-bsr, ranker-untrained; after "
            "training: fixed, ranker, promptpg, topick (also topick-union, topick-alone, topick-no-knowledge, "
            "topick-binary, topick-ranks); calling the LLM to select: rerank, sure, mdl, mdr, cone (the last three "
            "need an LLM that scores).",
            some_of=values.compared,
        ),
    ] = "zero,random,bm25,dense",
    k: ShotsOption = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for random methods.", min=1)] = 3,
    split: Annotated[str, option(help="validation or test.", of=values.QUERIES)] = "test",
    limit: Annotated[int | None, typer.Option("--limit", help="Use only the first N queries.", min=1)] = None,
    confusion: Annotated[
        bool, typer.Option("--confusion", help="Also show which labels are answered for which, for the best method.")
    ] = False,
    flips: Annotated[
        bool,
        typer.Option("--flips", help="Also show how many hard queries turned right and easy ones wrong with shots."),
    ] = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", help="Evaluate for several values of one setting: k=0,1,2,5 or preselect=10,20,50."),
    ] = None,
    by: Annotated[str, typer.Option("--by", help="Report figures by this field of the queries, too.")] = "",
    mdr_c: Annotated[float, typer.Option("--mdr-c", help="mdr: penalty of what the LLM answers wrong.")] = 0.5,
    choose_mdr_c: Annotated[
        bool, typer.Option("--choose-mdr-c", help="mdr: choose the penalty by answers to validation queries.")
    ] = False,
    transfer: Annotated[
        Path | None,
        typer.Option(
            "--transfer", help="Also evaluate the rankers of another workspace, as they are, as ranker-transfer."
        ),
    ] = None,
    as_indexed: Annotated[
        bool,
        typer.Option("--as-indexed", help="Of the pool as it was indexed, as if nothing had been pruned or corrected."),
    ] = False,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Compare selection methods in one table. An interrupted run resumes when repeated; answers are not paid twice."""
    from ..engine.evaluate.compare import Evaluation, EvaluationPlan, Sweep, sweep_named

    settings = settings_of(workspace, k=k, order=order, **asdict(llm), **asdict(grading))
    plan = EvaluationPlan(
        methods=tuple(m.strip() for m in methods.split(",") if m.strip()),
        seeds=seeds,
        split=query_split_of(split),
        limit=limit,
        confusion=confusion,
        mdr_error=None if choose_mdr_c else mdr_c,
        flips=flips,
        transfer=transfer,
        by=by,
        as_indexed=as_indexed,
    )
    if not (plan.methods or transfer):
        raise UsageError("no methods to compare are given", "icl-curate evaluate --methods bm25,dense")
    if sweep and len(sweep) > 1:
        raise UsageError("one setting is swept at a time", f"icl-curate evaluate --sweep {sweep[0]}")
    swept = sweep_named(sweep[0]) if sweep else None

    def ready(llm: LLMClient) -> PaidWork[Reported]:
        work: PaidWork[Reported] = Sweep.prepare(llm, plan, swept) if swept else Evaluation.prepare(llm, plan)
        if "zero" not in plan.methods and settings.k and not state.quiet:
            narrate("each query is also asked without demonstrations, to tell which are easy")
        return work

    carry_out(ready, open_workspace(workspace), settings, paid)


def preview(
    query: Annotated[str, typer.Argument(help="A question, or - for stdin.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    method: MethodOption = None,
    k: ShotsOption = None,
    options: Annotated[list[str] | None, typer.Option("--option", help="An answer option; repeatable.")] = None,
    context: Annotated[str, typer.Option(help="Passage of the query.")] = "",
    further: FieldOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Explain every score and show the prompt.")] = False,
    answer: Annotated[bool, typer.Option("--answer", help="Ask the LLM.")] = False,
    stability: Annotated[
        bool, typer.Option("--stability", help="Ask it also without each demonstration and in reversed order.")
    ] = False,
    request: Annotated[
        bool, typer.Option("--request", help="Show the request to the LLM as it would be sent; nothing is sent.")
    ] = False,
    curl: Annotated[bool, typer.Option("--curl", help="Show it as a command for a shell.")] = False,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    max_calls: MaxCallsOption = None,
    max_cost: MaxCostOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show which demonstrations a query gets and why, and with --answer or --stability the LLM's answers."""
    from ..engine.llm.client import client_for
    from ..engine.select.preview import PreviewWithAnswer, RequestPreview
    from ..engine.select.preview import preview as look

    settings = settings_of(workspace, method=method, k=k, order=order, **asdict(llm), **asdict(grading))
    own = {"input": text_of(query), "options": options or [], "context": context}
    asked = asked_of(own, further or (), settings)
    store = open_workspace(workspace)
    if (answer or stability) and (request or curl):
        raise UsageError("--request sends nothing, --answer and --stability do", "give one of them")
    if answer or stability:
        paid = PaidOptions(max_calls=max_calls, max_cost=max_cost, dry_run=dry_run, as_json=as_json)
        carry_out(
            lambda llm: PreviewWithAnswer.prepare(llm, asked, stability=stability), store, settings, paid, explain
        )
        return
    with narrated() as monitor:
        if request or curl:
            with client_for(store, settings, monitor, dry_run=True) as client:
                shown = RequestPreview.of(client, asked)
            tell(shown, as_json, curl)
            return
        seen = look(store, asked, settings, monitor=monitor)
    tell(seen, as_json, explain)
