"""`train`: learn from the LLM's answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..render.terminal import print_json, say
from . import values
from .jobs import start_job
from .options import (
    AS_SET,
    CONFIGURED_ENGINE,
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    NO_PAID_OPTIONS,
    BackgroundOption,
    BalanceOption,
    DocumentTokensOption,
    DryRunOption,
    EngineOptions,
    ForceOption,
    GradingOptions,
    JsonOption,
    LimitOption,
    LLMOptions,
    OrderOption,
    PaidOptions,
    RankingOption,
    SetArmOption,
    ShotsOption,
    WorkspaceOption,
)
from .paid import carry_out, carry_out_all, carry_out_with
from .shared import narrated, open_workspace, settings_of, split_of, tell
from .values import option

if TYPE_CHECKING:
    from ..engine.llm.client import LLMClient, PaidWork


def train_sources(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    depth: Annotated[int, typer.Option("--depth", "-b", help="Number of demonstrations tried per query.", min=2)] = 50,
    ranking: RankingOption = "dense",
    estimator: Annotated[
        Literal["multilinear", "monte-carlo", "grouped"],
        typer.Option(help="Learn weights by the exact gradient, by sampling the vote itself, or of whole sources."),
    ] = "multilinear",
    rate: Annotated[
        float | None, typer.Option(help="Learning rate of the weights (multilinear: 500, the others: 1).")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of steps of the weights (multilinear: 50, the others: 20).", min=1)
    ] = None,
    epsilon: Annotated[float, typer.Option(help="monte-carlo: maximum error of a gradient.")] = 0.05,
    delta: Annotated[float, typer.Option(help="monte-carlo: probability of a larger error.")] = 0.05,
    k: ShotsOption = None,
    limit: LimitOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Learn which sources help: the LLM answers validation queries with single demonstrations (Lyu et al. 2023)."""
    from ..engine.llm.graded import grading_set
    from ..engine.store.trials import source_summaries
    from ..engine.trials.sources import SourcePlan, SourceTraining
    from ..render import show

    settings = settings_of(workspace, k=k, **asdict(llm), **asdict(grading))
    store = open_workspace(workspace)
    plan = SourcePlan(
        depth=depth,
        ranking=ranking,
        limit=limit,
        rate=rate,
        epochs=epochs,
        estimator=estimator,
        epsilon=epsilon,
        delta=delta,
    )

    for done in carry_out_all({"": lambda llm: SourceTraining.prepare(llm, plan)}, store, settings, paid).values():
        if not paid.as_json:
            show("sources", source_summaries(store, grading_set(store, settings)))
        tell(done, paid.as_json)


def train_ranker(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    method: Annotated[
        Literal["ranker", "promptpg"], typer.Option("--method", "-m", help="ranker, or the baseline promptpg.")
    ] = "ranker",
    epochs: Annotated[int, typer.Option(help="Maximum number of epochs.", min=0)] = 5,
    trials: Annotated[
        int, typer.Option(help="First learn from the answers of train sources, with this many passes.", min=0)
    ] = 0,
    batch: Annotated[int, typer.Option(help="Batch size in queries.", min=1)] = 20,
    rate: Annotated[float, typer.Option(help="Learning rate (Adam).")] = 1e-3,
    candidates: Annotated[
        Literal["bm25", "dense", "both"], typer.Option(help="Retrieval that finds the candidates it ranks.")
    ] = "dense",
    preselect: Annotated[int, typer.Option(help="Number of candidates per query.", min=2)] = 30,
    sees: Annotated[
        Literal["row", "input"],
        typer.Option(help="What it sees of a demonstration: the row (input and output), or the input alone."),
    ] = "row",
    sources: Annotated[bool, typer.Option("--sources/--no-sources", help="Let it see the source, too.")] = True,
    credit: Annotated[
        Literal["gain", "reward"],
        typer.Option(help="Credit of a demonstration: what it changed (gain), or its prompt's reward (the paper's)."),
    ] = "gain",
    threshold: Annotated[
        bool,
        typer.Option(
            "--threshold/--no-threshold", help="Let the threshold σ limit the shots: fewer prompts, less learnt."
        ),
    ] = False,
    temperature: Annotated[
        float, typer.Option(help="Divisor of the scores before the softmax (the LLM's is a setting).")
    ] = 0.1,
    start: Annotated[
        Literal["similarity", "random"], typer.Option(help="Initial policy: by similarity of embeddings, or random.")
    ] = "similarity",
    held_out: Annotated[
        float, typer.Option(help="Share of the queries that choose the best epoch.", min=0.0, max=0.9)
    ] = 0.2,
    patience: Annotated[
        int,
        typer.Option(
            help="Stop after this many epochs without a gain, 0: never; with --held-out 0, too, keep the last epoch.",
            min=0,
        ),
    ] = 5,
    seeds: Annotated[int, typer.Option(help="Number of seeds to train with, one ranker each.", min=1)] = 1,
    rouge: Annotated[float | None, typer.Option(help="Short for --metric rouge-l --least X.")] = None,
    taken_from: Annotated[
        Path | None, typer.Option("--from", help="Do not train: import the ranker of another workspace.")
    ] = None,
    k: ShotsOption = None,
    limit: LimitOption = None,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Learn to rank demonstrations from the LLM's right and wrong answers; record every flip (Yu et al. 2024)."""
    from ..engine.base.errors import UsageError
    from ..engine.papers.ranker.train import RankerPlan, RankerTraining, SeededTraining
    from ..engine.trials.policy import Inputs

    if rouge is not None:
        grading = replace(grading, metric="rouge-l", least=rouge)
    settings = settings_of(workspace, k=k, order=order, **asdict(llm), **asdict(grading))
    store = open_workspace(workspace)
    if taken_from is not None:
        from ..engine.trials.ranker import import_ranker

        run = import_ranker(store, taken_from, settings)
        if paid.as_json:
            print_json({"kind": "policy", "run": run, "from": str(taken_from)})
        else:
            say(f"run {run}: the ranker of {taken_from}; next: icl-curate evaluate --methods bm25,ranker")
        return
    if not epochs and not trials:
        raise UsageError("there is nothing to learn with --epochs 0", "give --trials 30, after train sources")
    if not temperature > 0:
        raise UsageError(f"the temperature is {temperature}", "give one above 0")
    inputs = Inputs(preselect, candidates, sees, (), temperature, start)
    plan = RankerPlan(
        method=method,
        epochs=epochs,
        batch=batch,
        inputs=inputs,
        sources=sources,
        credit=credit,
        threshold=threshold,
        trials=trials,
        rate=rate,
        held_out=held_out,
        patience=patience,
        limit=limit,
    )
    if seeds > 1:
        carry_out(lambda llm: SeededTraining.prepare(llm, plan, seeds), store, settings, paid)
    else:
        carry_out(lambda llm: RankerTraining.prepare(llm, plan), store, settings, paid)


def train_topics(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    topics: Annotated[
        str, typer.Option("--topics", help="File with one topic per line, instead of mining topics.")
    ] = "",
    core: Annotated[
        str,
        typer.Option(
            "--core-topics",
            help="File with core topics that are known (JSONL: id, topics), instead of asking an LLM for them.",
        ),
    ] = "",
    size: Annotated[int | None, typer.Option(help="Maximum number of topics.", min=1)] = None,
    llm_topics: Annotated[
        bool, typer.Option("--llm-topics/--no-llm-topics", help="Let the LLM pick the core topics of each row.")
    ] = True,
    labelling_llm: Annotated[
        str,
        option(
            help="Another LLM, by its SPEC, that picks core topics; --llm is the one that is served.", of=values.llms
        ),
    ] = "",
    labelling_price_in: Annotated[
        float | None, typer.Option(help="Price per million prompt tokens of --labelling-llm (USD).", min=0.0)
    ] = None,
    labelling_price_out: Annotated[
        float | None, typer.Option(help="Price per million generated tokens of --labelling-llm (USD).", min=0.0)
    ] = None,
    as_printed: Annotated[
        bool, typer.Option("--as-printed", help="Keep topics that share one word, and those the LLM names only once.")
    ] = False,
    nouns: Annotated[
        bool, typer.Option("--nouns", help="Mine no single words but nouns: no verbs, adverbs and fillers.")
    ] = False,
    sample: Annotated[int, typer.Option(help="Maximum number of demonstrations to learn from.", min=1)] = 20_000,
    questions: Annotated[
        int, typer.Option(help="Number of demonstrations asked zero-shot, to estimate LLM knowledge.", min=0)
    ] = 1_000,
    cosine: Annotated[float, typer.Option("--lambda", help="Weight of similarity relative to topics.")] = 1.0,
    choose_lambda: Annotated[
        bool,
        typer.Option(
            "--choose-lambda", help="Choose it (.1, .25, .5, 1) on half of the validation queries, kept apart."
        ),
    ] = False,
    labels: Annotated[
        Literal["soft", "binary"],
        typer.Option(help="What the predictor learns: how distinctive topics are, or yes and no (for topick-binary)."),
    ] = "soft",
    epochs: Annotated[int, typer.Option(help="Maximum number of epochs.", min=1)] = 30,
    rate: Annotated[
        float, typer.Option(help="Learning rate of the predictor (Adam; the paper's are 1e-5 to 1e-4).")
    ] = 1e-3,
    k: ShotsOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    engine: EngineOptions = CONFIGURED_ENGINE,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Learn the pool's topics, which of them the LLM knows and which demonstrations cover them (Kweon et al. 2025)."""
    from ..engine.base.errors import UsageError
    from ..engine.llm.asking import another
    from ..engine.papers.topics.train import TopicPlan, TopicTraining

    settings = settings_of(workspace, k=k, **asdict(llm), **asdict(grading), **asdict(engine))
    store = open_workspace(workspace)
    plan = TopicPlan(
        topics_file=topics, core_file=core, size=size, llm_topics=llm_topics, sample=sample, questions=questions,
        soft=labels == "soft", cosine=cosine, epochs=epochs, rate=rate, as_printed=as_printed, nouns=nouns,
        lambdas=(0.1, 0.25, 0.5, 1.0) if choose_lambda else (),
    )  # fmt: skip
    prices = labelling_price_in, labelling_price_out
    if not labelling_llm and prices != (None, None):
        raise UsageError("prices of another LLM were given, but none labels", "--labelling-llm SPEC, or --price-in")
    if core and labelling_llm:
        raise UsageError("core topics are given, so --labelling-llm has nothing to pick", "leave one of them out")
    labelling = another(settings, labelling_llm, *prices) if labelling_llm else None
    carry_out_with(labelling, lambda llm, other: TopicTraining.prepare(llm, plan, other), store, settings, paid)


def train_rows(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    ranking: RankingOption = "dense",
    k: ShotsOption = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Ask only N rows, drawn at random.", min=1)] = None,
    suspects_first: Annotated[
        bool, typer.Option("--suspects-first", help="Ask the N rows most likely to hurt, not random ones.")
    ] = False,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Ask the LLM each row's own input, with its nearest other rows: evidence about the row, one call each."""
    from ..engine.checks.ask import RowPlan, RowTraining

    settings = settings_of(workspace, k=k, order=order, **asdict(llm), **asdict(grading))
    store = open_workspace(workspace)
    plan = RowPlan(ranking=ranking, limit=limit, suspects_first=suspects_first)
    carry_out(lambda llm: RowTraining.prepare(llm, plan), store, settings, paid)


def train_fixed(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    sets: Annotated[int, typer.Option(help="Number of sets to race.", min=2)] = 16,
    noise: Annotated[float, typer.Option(help="Minimum gain over the first set, in standard errors.")] = 1.645,
    k: ShotsOption = None,
    limit: LimitOption = None,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Choose one set of k demonstrations for all queries, by a race on validation: for services that cannot retrieve.
    Serve it with --method fixed."""
    from ..engine.curate.fixed import FixedPlan, FixedTraining

    settings = settings_of(workspace, k=k, order=order, **asdict(llm), **asdict(grading))
    plan = FixedPlan(sets=sets, noise=noise, limit=limit)
    carry_out(lambda llm: FixedTraining.prepare(llm, plan), open_workspace(workspace), settings, paid)


def train_datamodel(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    prompts: Annotated[int, typer.Option("--prompts", "-b", help="Number of prompts per query.", min=1)] = 30,
    candidates: Annotated[
        int, typer.Option(help="Number of demonstrations per query that prompts are drawn from.", min=2)
    ] = 30,
    ranking: RankingOption = "dense",
    k: ShotsOption = None,
    limit: LimitOption = None,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Learn how demonstrations change answers among others: prompts of k random candidates (Chang and Jia 2023)."""
    from ..engine.baselines.datamodel import DatamodelPlan, DatamodelTraining

    settings = settings_of(workspace, k=k, order=order, **asdict(llm), **asdict(grading))
    plan = DatamodelPlan(prompts=prompts, candidates=candidates, ranking=ranking, limit=limit)
    carry_out(lambda llm: DatamodelTraining.prepare(llm, plan), open_workspace(workspace), settings, paid)


def train_calibration(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    on: Annotated[
        Literal["rounds", "answers"],
        typer.Option(help="Learn from calibrated rounds, or (the baseline) from plain questions and answers."),
    ] = "rounds",
    split: Annotated[
        str, option(help="Learn from the queries of: validation or pool.", of=("validation", "pool"))
    ] = "validation",
    arm: SetArmOption = "full",
    balance: BalanceOption = False,
    limit: Annotated[int | None, typer.Option("--limit", help="Use only the first N examples.", min=1)] = None,
    rate: Annotated[float, typer.Option(help="Initial learning rate (AdamW).")] = 5e-5,
    epochs: Annotated[int, typer.Option(help="Number of epochs.", min=1)] = 3,
    batch: Annotated[int, typer.Option(help="Batch size in examples.", min=1)] = 16,
    rank: Annotated[int, typer.Option(help="Rank of the LoRA matrices.", min=1)] = 8,
    document_tokens: DocumentTokensOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the adapter (default: in the workspace).")
    ] = None,
    force: ForceOption = False,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    background: BackgroundOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune a local LLM with LoRA to use uncertainty scores, on its calibrated rounds (Chen et al. 2025)."""
    from ..engine.papers.calibrate.lora import Recipe
    from ..engine.papers.calibrate.tuning import FineTuning, FineTuningPlan

    settings = settings_of(workspace, document_tokens=document_tokens, **asdict(llm), **asdict(grading))
    store = open_workspace(workspace)
    if background and not dry_run:
        start_job(store, as_json)
        return
    plan = FineTuningPlan(
        recipe=Recipe(rate, epochs, batch, rank, settings.seed),
        on=on,
        split=split_of(split),
        limit=limit,
        out=out,
        force=force,
        arm=arm,
        balance=balance,
    )
    with narrated() as monitor:
        work = FineTuning.prepare(store, settings, plan, monitor)
        done = work.cost() if dry_run else work.run()
    tell(done, as_json)


def train_all(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    k: ShotsOption = None,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Train sources, ranker and topics in turn with default options, within one budget."""
    from ..engine.papers.ranker.train import RankerTraining
    from ..engine.papers.topics.train import TopicTraining
    from ..engine.trials.sources import SourceTraining

    settings = settings_of(workspace, k=k, order=order, **asdict(llm), **asdict(grading))
    store = open_workspace(workspace)
    parts: dict[str, Callable[[LLMClient], PaidWork[Any]]] = {
        "sources": SourceTraining.prepare,
        "ranker": RankerTraining.prepare,
        "topics": TopicTraining.prepare,
    }
    done = carry_out_all(parts, store, settings, paid)
    if not done:
        return
    if paid.as_json:
        from ..engine.jobs.kinds import Parts

        print_json(Parts(done).as_json())
        return
    from ..render import show
    from ..render.tables import show_text

    for name, trained in done.items():
        show_text(f"\n{name}", style="bold")
        show(trained.kind, trained)
