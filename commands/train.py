"""`train`: what is learnt from the LLM's answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..render.terminal import print_json, say
from .options import (
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    NO_PAID_OPTIONS,
    LLMOptions,
    OrderOption,
    PaidOptions,
    ShotsOption,
    WorkspaceOption,
    grouped,
)
from .paid import carry_out, carry_out_all
from .shared import open_workspace, settings_of

if TYPE_CHECKING:
    from ..engine.llm.client import LLMClient, PaidWork


@grouped
def train_sources(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    depth: Annotated[int, typer.Option("--depth", "-b", help="Demonstrations tried for each query.", min=2)] = 50,
    ranking: Annotated[str, typer.Option(help="What ranks them: dense or bm25.")] = "dense",
    k: ShotsOption = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="First validation queries only.")] = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Which sources help and which hurt: the LLM answers validation queries with single demonstrations (paper 003)."""
    from ..engine.sources.train import SourcePlan, SourceTraining
    from ..engine.store.trials import source_summaries
    from ..render.sources import show_sources, show_training

    settings = settings_of(workspace, k=k, **asdict(llm))
    store = open_workspace(workspace)
    plan = SourcePlan(depth, ranking, limit)

    def show(done: dict[str, Any]) -> None:
        show_sources(source_summaries(store))
        show_training(done)

    carry_out(lambda llm: SourceTraining(llm, plan), store, settings, paid, show)


@grouped
def train_ranker(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    method: Annotated[
        Literal["ranker", "promptpg"], typer.Option("--method", "-m", help="promptpg: the whole-prompt baseline.")
    ] = "ranker",
    epochs: Annotated[int, typer.Option(help="Passes over the validation queries, at most.", min=1)] = 5,
    batch: Annotated[int, typer.Option(help="Queries between two steps.", min=1)] = 20,
    rate: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 1e-3,
    rouge: Annotated[float | None, typer.Option(help="Free text is right from this ROUGE-L on.")] = None,
    taken_from: Annotated[
        Path | None, typer.Option("--from", help="Train nothing: take over the ranker of another workspace.")
    ] = None,
    k: ShotsOption = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="First validation queries only.")] = None,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Learn to rank demonstrations from the LLM's right and wrong answers, and book every flip (paper 000)."""
    from ..engine.ranker.train import RankerPlan, RankerTraining
    from ..render.ranker import show_ranker

    settings = settings_of(workspace, k=k, order=order, **asdict(llm))
    store = open_workspace(workspace)
    if taken_from is not None:
        from ..engine.ranker.inference import import_ranker

        run = import_ranker(store, taken_from, settings)
        if paid.as_json:
            print_json({"run": run, "from": str(taken_from)})
        else:
            say(f"run {run}: the ranker of {taken_from}; next: icl-curate evaluate --methods bm25,ranker")
        return
    plan = RankerPlan(method, epochs, batch, rate=rate, rouge=rouge, limit=limit)
    carry_out(lambda llm: RankerTraining(llm, plan), store, settings, paid, show_ranker)


@grouped
def train_topics(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    topics: Annotated[str, typer.Option("--topics", help="Your own list, one topic a line, instead of mining.")] = "",
    size: Annotated[int | None, typer.Option(help="Topics at most.", min=1)] = None,
    llm_topics: Annotated[
        bool, typer.Option("--llm-topics/--no-llm-topics", help="Whether the LLM picks each row's core topics.")
    ] = True,
    sample: Annotated[int, typer.Option(help="Demonstrations to learn from, at most.", min=1)] = 20_000,
    questions: Annotated[int, typer.Option(help="Demonstrations asked without shots.", min=0)] = 1_000,
    cosine: Annotated[float, typer.Option("--lambda", help="Weight of similarity beside topics.")] = 1.0,
    epochs: Annotated[int, typer.Option(help="Passes over the examples, at most.", min=1)] = 30,
    llm: LLMOptions = NO_LLM_OPTIONS,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Which topics the pool has, which the LLM knows, and which demonstrations cover them (paper 004)."""
    from ..engine.topics.train import TopicPlan, TopicTraining
    from ..render.topics import show_topic_training

    settings = settings_of(workspace, **asdict(llm))
    store = open_workspace(workspace)
    plan = TopicPlan(topics, size, llm_topics, sample, questions, cosine=cosine, epochs=epochs)
    carry_out(lambda llm: TopicTraining(llm, plan), store, settings, paid, show_topic_training)


@grouped
def train_all(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    k: ShotsOption = None,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Sources, ranker and topics one after the other, as set by default, within one budget."""
    from ..engine.ranker.train import RankerTraining
    from ..engine.sources.train import SourceTraining
    from ..engine.topics.train import TopicTraining

    settings = settings_of(workspace, k=k, order=order, **asdict(llm))
    store = open_workspace(workspace)
    parts: dict[str, Callable[[LLMClient], PaidWork[Any]]] = {
        "sources": SourceTraining,
        "ranker": RankerTraining,
        "topics": TopicTraining,
    }
    done = carry_out_all(parts, store, settings, paid)
    if not done:
        return
    if paid.as_json:
        print_json(done)
        return
    from ..render.ranker import show_ranker
    from ..render.sources import show_training
    from ..render.tables import show_text
    from ..render.topics import show_topic_training

    shown = {"sources": show_training, "ranker": show_ranker, "topics": show_topic_training}
    for name, result in done.items():
        show_text(f"\n{name}", style="bold")
        shown[name](result)
