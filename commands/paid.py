"""Work that calls the LLM: its cost, its budget, and where it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..engine.base.errors import UsageError
from ..render.terminal import narrate, print_json
from .jobs import start_job
from .options import PaidOptions
from .shared import agrees, can_ask, narrated, tell

if TYPE_CHECKING:
    from ..engine.base.contract import Reported
    from ..engine.llm.budget import Budget
    from ..engine.llm.client import LLMClient, PaidWork
    from ..engine.llm.cost import DryRun, Plan
    from ..engine.store.settings import Settings
    from ..engine.store.workspace import Workspace


R = TypeVar("R", bound="Reported")


def carry_out(
    ready: Callable[[LLMClient], PaidWork[R]], workspace: Workspace, settings: Settings, paid: PaidOptions, *more: Any
) -> None:
    """Run one piece of work within the budget and print its result, ``more`` as for `tell`; see `carry_out_all`."""
    for done in carry_out_all({"": ready}, workspace, settings, paid).values():
        tell(done, paid.as_json, *more)


def carry_out_with(
    other: Settings | None,
    ready: Callable[[LLMClient, LLMClient], PaidWork[R]],
    workspace: Workspace,
    settings: Settings,
    paid: PaidOptions,
) -> None:
    """As `carry_out`, with a second LLM, that of the ``other`` settings, at its own price; without those it is the same
    one."""
    if other is None:
        carry_out(lambda llm: ready(llm, llm), workspace, settings, paid)
        return
    from ..engine.llm.asking import price_of
    from ..engine.llm.client import client_for

    if paid.max_cost is not None and price_of(other) is None:
        raise UsageError(
            f"a cost limit needs the prices of {other.llm}, too", "give both, or limit calls: --max-calls N"
        )
    confirm_server(other)
    with ExitStack() as opened:

        def both(llm: LLMClient) -> PaidWork[R]:
            client = client_for(workspace, other, llm.monitor, dry_run=llm.dry_run, budget=llm.budget)
            return ready(llm, opened.enter_context(client))

        carry_out(both, workspace, settings, paid)


def carry_out_all(
    parts: Mapping[str, Callable[[LLMClient], PaidWork[R]]], workspace: Workspace, settings: Settings, paid: PaidOptions
) -> dict[str, R]:
    """Open the LLM and run the parts in turn within one budget. Returns the results by part.

    A dry run prints the cost, ``background`` starts a job; both return nothing. If there are several parts, those that
    the pool does not allow are skipped with a note. Raises `UsageError` if none is left.
    """
    from ..engine.base.progress import Event
    from ..engine.jobs.kinds import PART
    from ..engine.llm.asking import foreseen

    confirm_server(settings)
    if in_background(workspace, paid):
        return {}

    done: dict[str, R] = {}
    costs: dict[str, Plan] = {}
    refused: list[UsageError] = []
    with asking(workspace, settings, paid) as (llm, budget):
        for at, (name, ready) in enumerate(parts.items()):
            if len(parts) > 1 and not paid.dry_run:
                llm.monitor.report(Event(PART, at, len(parts)))
            try:
                work = ready(llm)
            except UsageError as error:
                refused.append(error)
                if len(refused) == len(parts):
                    raise
                llm.monitor.report(Event(name, note=f"{name} skipped: {error.what}"))
                continue
            if paid.dry_run:
                costs[name] = work.cost()
            else:
                done[name] = work.ask(budget)
    if paid.dry_run:
        _show_costs({name: foreseen(plan, workspace, settings) for name, plan in costs.items()}, paid.as_json)
    return done


def in_background(workspace: Workspace, paid: PaidOptions) -> bool:
    """Whether the command goes on as a job, which is started then."""
    starts = paid.background and not paid.dry_run
    if starts:
        start_job(workspace, paid.as_json)
    return starts


@contextmanager
def asking(workspace: Workspace, settings: Settings, paid: PaidOptions) -> Iterator[tuple[LLMClient, Budget]]:
    """The LLM of the settings, and the budget it is asked within; its progress is reported."""
    from ..engine.llm.client import within_budget

    with (
        narrated() as monitor,
        within_budget(
            workspace, settings, monitor,
            max_calls=paid.max_calls, max_cost=paid.max_cost, dry_run=paid.dry_run,
        ) as asked,
    ):  # fmt: skip
        yield asked


def _show_costs(dry_runs: Mapping[str, DryRun], as_json: bool) -> None:
    if as_json:
        from ..engine.jobs.kinds import Parts

        print_json({"dry_run": True, **dry_runs.get("", Parts(dry_runs)).as_json()})
        return
    from ..render.costs import plan_rows
    from ..render.tables import show_table

    for name, dry_run in dry_runs.items():
        show_table(["", ""], plan_rows(dry_run), title=name)


def confirm_server(settings: Settings) -> None:
    """Ask for confirmation of a server that only the workspace's own config names, also for the LLM that judges; an
    error without a terminal."""
    from ..engine.http import trust
    from ..engine.llm.asking import check_server, judges

    for asked in filter(None, (settings, judges(settings))):
        try:
            check_server(asked)
        except trust.UnconfirmedServer as error:
            if not (error.url and can_ask()):
                raise
            narrate(error.what)
            if not agrees("Trust this server for this workspace from now on?"):
                raise
            trust.confirm(Path(error.workspace), error.url)
