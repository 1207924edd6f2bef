"""`preview`: the demonstrations of a query, and the LLM's answer."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from ..render.terminal import print_json
from .options import (
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    DryRunOption,
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
from .shared import narrated, open_workspace, settings_of, text_of


def preview(
    query: Annotated[str, typer.Argument(help="A question, or - for stdin.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    method: MethodOption = None,
    k: ShotsOption = None,
    options: Annotated[list[str] | None, typer.Option("--option", help="An answer option; repeatable.")] = None,
    context: Annotated[str, typer.Option(help="Passage of the query.")] = "",
    explain: Annotated[bool, typer.Option("--explain", help="Explain every score and show the prompt.")] = False,
    answer: Annotated[bool, typer.Option("--answer", help="Ask the LLM.")] = False,
    stability: Annotated[
        bool, typer.Option("--stability", help="Ask it also without each demonstration and in reversed order.")
    ] = False,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    max_calls: MaxCallsOption = None,
    max_cost: MaxCostOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show which demonstrations a query gets and why, and with --answer or --stability the LLM's answers."""
    from ..engine.pool.records import Query
    from ..engine.select.preview import PreviewWithAnswer
    from ..engine.select.preview import preview as look
    from ..render.preview import show_preview, show_stability

    settings = settings_of(workspace, method=method, k=k, order=order, **asdict(llm))
    text = text_of(query)
    asked = Query(text, tuple(options or ()), context)
    store = open_workspace(workspace)
    if answer or stability:
        paid = PaidOptions(max_calls=max_calls, max_cost=max_cost, background=False, dry_run=dry_run, as_json=as_json)
        show = show_stability if stability else partial(show_preview, explain=explain)
        carry_out(lambda llm: PreviewWithAnswer(llm, asked, stability=stability), store, settings, paid, show)
        return
    with narrated() as (report, cancel):
        seen = look(store, asked, settings, report=report, cancel=cancel)
    if as_json:
        print_json(seen.as_json())
    else:
        show_preview(seen, explain)
