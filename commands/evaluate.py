"""`evaluate`: compare selection methods."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from . import values
from .options import (
    ACCURACY,
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    NO_PAID_OPTIONS,
    LLMOptions,
    MetricOptions,
    OrderOption,
    PaidOptions,
    ShotsOption,
    WorkspaceOption,
)
from .paid import carry_out_judged
from .shared import open_workspace, query_split_of, settings_of
from .values import any_of, several_of


def evaluate(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            "-m",
            help="Comma-separated: zero, random, bm25, bm25-plus, dense, dpp, set-bsr, ranker-untrained; after "
            "training: ranker, promptpg, topick (also topick-union, topick-alone, topick-no-knowledge, topick-binary, "
            "topick-ranks); calling the LLM to select: rerank, sure, mdl, mdr, cone (the last three need an LLM "
            "that scores).",
            autocompletion=several_of(values.compared),
        ),
    ] = "zero,random,bm25,dense",
    k: ShotsOption = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for random methods.", min=1)] = 3,
    split: Annotated[str, typer.Option(help="validation or test.", autocompletion=any_of(values.QUERIES))] = "test",
    limit: Annotated[int | None, typer.Option("--limit", help="Use only the first N queries.")] = None,
    confusion: Annotated[
        bool, typer.Option("--confusion", help="Also show which labels are answered for which, for the best method.")
    ] = False,
    flips: Annotated[
        bool,
        typer.Option("--flips", help="Also show how many hard queries turned right and easy ones wrong with shots."),
    ] = False,
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", help="Evaluate for several values of one setting: k=0,1,2,5 or preselect=10,20,50."),
    ] = None,
    by: Annotated[str, typer.Option("--by", help="Report figures by this field of the queries, too.")] = "",
    marking: MetricOptions = ACCURACY,
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
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Compare selection methods in one table. An interrupted run resumes when repeated; answers are not paid twice."""
    from ..engine.evaluate.compare import Evaluation, EvaluationPlan, Sweep, sweep_named
    from ..render.evaluation import show_evaluation, show_sweep

    settings = settings_of(workspace, k=k, order=order, **asdict(llm))
    plan = EvaluationPlan(
        methods=tuple(m.strip() for m in methods.split(",") if m.strip()),
        seeds=seeds,
        split=query_split_of(split),
        limit=limit,
        confusion=confusion,
        metric=marking.computed,
        mdr_error=None if choose_mdr_c else mdr_c,
        flips=flips,
        transfer=transfer,
        by=by,
    )
    swept = sweep_named(sweep) if sweep else None
    store = open_workspace(workspace)
    if swept:
        carry_out_judged(
            lambda llm, judge: Sweep.prepare(llm, plan, swept, judge), marking, store, settings, paid, show_sweep
        )
        return
    carry_out_judged(
        lambda llm, judge: Evaluation.prepare(llm, plan, judge), marking, store, settings, paid, show_evaluation
    )
