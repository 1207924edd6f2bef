"""`calibrate`: answer in rounds with uncertainty scores."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from ..engine.base.errors import UsageError
from ..render.terminal import print_json
from .options import (
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    NO_PAID_OPTIONS,
    DocumentTokensOption,
    LLMOptions,
    OrderOption,
    PaidOptions,
    ShotsOption,
    WorkspaceOption,
    grouped,
)
from .paid import carry_out
from .shared import open_workspace, settings_of, split_of, text_of


@grouped
def calibrate(
    query: Annotated[str | None, typer.Argument(help="A question, the id of an indexed query, or - for stdin.")] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    validation: Annotated[bool, typer.Option("--validation", help="Calibrate all validation queries.")] = False,
    split: Annotated[str | None, typer.Option(help="Calibrate all queries of: validation, test or pool.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="Use only the first N queries.")] = None,
    rounds: Annotated[int, typer.Option("--rounds", "-r", help="Number of rounds after the first answer.", min=1)] = 5,
    stop_early: Annotated[
        bool, typer.Option("--stop-early", help="Stop when answer and score no longer change.")
    ] = False,
    arms: Annotated[
        str,
        typer.Option(
            help="Variants to run: full, answers, plain, relevance, oracle, sampling, vote, self-rag; comma-separated, "
            "or all."
        ),
    ] = "full",
    uncertainty: Annotated[
        str,
        typer.Option(
            help="Uncertainty: auto (product, or geometric for long answers), product, geometric, entropy, or "
            "self-consistency (needs no log-probabilities)."
        ),
    ] = "auto",
    above: Annotated[
        float | None,
        typer.Option("--above", help="Further rounds only for first answers with at least this score (0 to 100)."),
    ] = None,
    until_correct: Annotated[
        bool, typer.Option("--until-correct", help="Stop at the first right answer (for fine-tuning sets).")
    ] = False,
    over: Annotated[
        Literal["auto", "documents", "demonstrations", "steps"],
        typer.Option(
            help="What to score: the query's documents, demonstrations, or steps of the LLM's own reasoning; auto: "
            "documents if there are two or more, else demonstrations."
        ),
    ] = "auto",
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="Selection method of the demonstrations.")
    ] = None,
    k: ShotsOption = None,
    options: Annotated[list[str] | None, typer.Option("--option", help="An answer option; repeatable.")] = None,
    context: Annotated[str, typer.Option(help="Documents of the query, separated by blank lines.")] = "",
    runs: Annotated[
        bool, typer.Option("--runs", help="Ask nothing: compare the LLMs that calibrated this split before.")
    ] = False,
    keys: Annotated[
        bool,
        typer.Option(
            "--keys", help="Instead of rounds: tag relevant documents with <KEY>, in four places among others."
        ),
    ] = False,
    attention: Annotated[
        bool,
        typer.Option("--attention", help="Report how much attention relevant documents get (local models, a split)."),
    ] = False,
    document_tokens: DocumentTokensOption = None,
    by: Annotated[str, typer.Option("--by", help="Report figures by this field of the queries, too.")] = "",
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Answer in rounds: the LLM sees its uncertainty about documents and earlier answers (Chen et al. 2025)."""
    from ..engine.papers.calibrate.calibration import Calibration
    from ..engine.papers.calibrate.documents import queries_of, query_named
    from ..engine.papers.calibrate.round_runner import SETTLED, CalibrationPlan
    from ..render.calibration import show_calibrated

    settings = settings_of(workspace, method=method, k=k, order=order, document_tokens=document_tokens, **asdict(llm))
    chosen: Any = "validation" if validation else split_of(split) if split else ""
    if bool(query) == bool(chosen) or (validation and split):
        raise UsageError("give either a query or a split", 'icl-curate calibrate "a question", or --validation')
    store = open_workspace(workspace)
    if runs:
        from ..engine.papers.calibrate.comparison import comparison
        from ..render.calibration import show_comparison

        if not chosen:
            raise UsageError("--runs compares calibrations of a split", "icl-curate calibrate --split test --runs")
        found = comparison(store, chosen, settings.seed)
        print_json(found.as_json()) if paid.as_json else show_comparison(found)
        return
    if query:
        text = text_of(query)
        asked = [query_named(store, text, options or (), context)]
    else:
        asked = queries_of(store, chosen, limit)
    if keys:
        from ..engine.papers.calibrate.keys import KeyAblation
        from ..render.calibration import show_keys

        if not chosen:
            raise UsageError("--keys needs the queries of a split", "icl-curate calibrate --validation --keys")
        carry_out(lambda llm: KeyAblation(llm, asked, chosen), store, settings, paid, show_keys)
        return
    names = tuple(name.strip() for name in arms.split(",") if name.strip())
    plan = CalibrationPlan(
        rounds,
        names,
        uncertainty,
        over,
        SETTLED if stop_early else None,
        split=chosen,
        above=above,
        until_correct=until_correct,
        by=by,
        attention=attention,
    )
    carry_out(lambda llm: Calibration(llm, asked, plan), store, settings, paid, show_calibrated)
