"""The command line: parse, call the engine, print. Nothing is computed here.

stdout is data, stderr is narration. The top level imports the standard library and typer alone; every command
imports what it uses in its body, so that ``--help``, ``--version`` and ``status`` start at once.
"""

from __future__ import annotations

import atexit
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import wraps
from itertools import takewhile
from pathlib import Path
from traceback import format_exc
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Protocol

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from .engine.jobs.folder import Job
    from .engine.llm.budget import Budget, Price
    from .engine.llm.runner import Plan
    from .engine.llm.types import Backend
    from .engine.progress import CancelToken, Report
    from .engine.settings import Settings
    from .engine.store.decisions import Action, Change, Scope
    from .engine.store.workspace import Workspace


class CurateGroup(TyperGroup):
    """Leaves every error to `_run`, which says it."""

    def invoke(self, ctx: Any) -> Any:
        from .engine.errors import Cancelled

        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Cancelled from None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help:  # no error: the help is what was wanted
            from .render.terminal import narrate

            narrate(ctx.get_help())
            raise typer.Exit(2)
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=CurateGroup,
    name="icl-curate",
    help="Curate pools of in-context-learning demonstrations: index, measure, prune, export.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help starts faster and reads the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
llm_app = typer.Typer(cls=CurateGroup, no_args_is_help=True, rich_markup_mode=None, help="The chosen LLM.")
app.add_typer(llm_app, name="llm")
train_app = typer.Typer(
    cls=CurateGroup, no_args_is_help=True, rich_markup_mode=None, help="Learn from the chosen LLM's answers."
)
app.add_typer(train_app, name="train")
jobs_app = typer.Typer(cls=CurateGroup, rich_markup_mode=None, help="Long work in the background: list, follow, stop.")
app.add_typer(jobs_app, name="jobs")

WorkspaceOption = Annotated[
    Path, typer.Option("--workspace", "-w", envvar="ICL_CURATE_WORKSPACE", help="Folder of the workspace.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
LLMOption = Annotated[str | None, typer.Option("--llm", help="offline, openai:MODEL or hf:NAME_OR_PATH.")]
BaseURLOption = Annotated[str | None, typer.Option("--base-url", help="OpenAI-compatible server.")]
DeviceOption = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or mps.")]
ShotsOption = Annotated[int | None, typer.Option("-k", "--shots", help="Demonstrations in a prompt.")]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of everything drawn at random.")]
OrderOption = Annotated[str | None, typer.Option("--order", help="best-last (next to the query) or best-first.")]
AnswersOption = Annotated[str | None, typer.Option("--answers", help="auto, score or generate.")]
ConcurrencyOption = Annotated[int | None, typer.Option("--concurrency", "-j", help="Most calls in flight.")]
MaxCallsOption = Annotated[int | None, typer.Option("--max-calls", help="Stop before more calls than this.")]
MaxCostOption = Annotated[float | None, typer.Option("--max-cost", help="Stop before spending more USD than this.")]
PriceInOption = Annotated[float | None, typer.Option("--price-in", help="USD per million prompt tokens.")]
PriceOutOption = Annotated[float | None, typer.Option("--price-out", help="USD per million generated tokens.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
BackgroundOption = Annotated[
    bool, typer.Option("--background", help="As a job of its own, behind those that wait: icl-curate jobs.")
]
JobArgument = Annotated[int | None, typer.Argument(help="Number of the job (default: the latest).")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite what exists.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Kept in the history.")]


@dataclass(frozen=True)
class LLMOptions:
    """Settings about the LLM, by their names; None where nothing was typed."""

    llm: LLMOption = None
    base_url: BaseURLOption = None
    answers: AnswersOption = None
    seed: SeedOption = None
    device: DeviceOption = None
    concurrency: ConcurrencyOption = None
    price_in: PriceInOption = None
    price_out: PriceOutOption = None


@dataclass(frozen=True)
class PaidOptions:
    """What work that asks the LLM may spend, where it is done, and how it is told."""

    max_calls: MaxCallsOption = None
    max_cost: MaxCostOption = None
    background: BackgroundOption = False
    dry_run: DryRunOption = False
    as_json: JsonOption = False

    @property
    def rehearse(self) -> bool:
        """Nothing may be sent, not even a probe."""
        return self.dry_run or self.max_calls == 0


NO_LLM_OPTIONS, NO_PAID_OPTIONS = LLMOptions(), PaidOptions()
DEFAULT_WORKSPACE = Path(".icl-curate")
TRACEBACK = "ICL_CURATE_TRACEBACK"


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take a group of options as one parameter: Typer is shown the fields of the group in its place."""
    plain = inspect.signature(command, eval_str=True).parameters
    kinds = {name: parameter.annotation for name, parameter in plain.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}

    @wraps(command)
    def spread(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    shown: list[inspect.Parameter] = []
    for name, parameter in plain.items():
        group = groups.get(name)
        shown += inspect.signature(group, eval_str=True).parameters.values() if group else [parameter]
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]
    spread.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    spread.__annotations__ = {}
    return spread


def _version(value: bool) -> None:
    if value:
        from .engine.version import VERSION

        _say(f"icl-curate {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the release and stop.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No narration on stderr but errors.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours (NO_COLOR works too).")] = False,
) -> None:
    from .engine.store import locks

    _state["quiet"] = quiet
    locks.on_wait = _tell_waiting
    if no_color:
        os.environ["NO_COLOR"] = "1"


_state: dict[str, Any] = {"quiet": False, "json": False, "waiting": False, "cancel": None}
"""How errors and progress are told; `_run` looks at it before anything can fail."""
WAITED = 1.0
"""Seconds after which it is said whom a command waits for."""


# Commands, in the order of a curation session.


@app.command()
def index(
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="JSONL, JSON, CSV, TSV or Parquet; globs; - for JSONL on stdin. None: known files again."),
    ] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    validation: Annotated[list[str] | None, typer.Option(help="Validation queries (file or glob).")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Test queries (file or glob).")] = None,
    validation_fraction: Annotated[float, typer.Option(help="Share of the pool set aside, by hash.")] = 0.0,
    test_fraction: Annotated[float, typer.Option(help="Share of the pool set aside, by hash.")] = 0.0,
    columns: Annotated[
        list[str] | None, typer.Option("--map", help="FIELD=COLUMN, e.g. --map input=utterance; repeatable.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Source of every row (default: column, or file's stem).")] = None,
    encoder: Annotated[str | None, typer.Option(help="sentence-transformers name or path.")] = None,
    device: DeviceOption = None,
    encode: Annotated[bool, typer.Option("--encode/--no-encode", help="Compute embeddings.")] = True,
    near_duplicate: Annotated[float | None, typer.Option(help="Jaccard from which inputs repeat.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Any bad row is an error.")] = False,
    background: BackgroundOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Read a pool into the workspace: check, find duplicates and leaks, encode what is new."""
    from .engine.index.build import IndexPlan, index_pool, rehearse_index
    from .engine.store.workspace import Workspace

    settings = _settings(workspace, encoder=encoder, device=device, near_duplicate=near_duplicate)
    plan = IndexPlan(
        paths=tuple(paths or ()),
        columns=_mapping(columns or ()),
        validation=tuple(validation or ()),
        test=tuple(test or ()),
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
        source=source,
        strict=strict,
        near_duplicate=settings.near_duplicate,
        encoder=settings.encoder if encode else None,
        device=settings.device,
    )
    if background and not dry_run:
        _start_job(Workspace.create(workspace), as_json)
        return
    with _narrated() as (report, cancel):
        if dry_run:
            done = rehearse_index(workspace, plan, report, cancel)
        else:
            done = index_pool(Workspace.create(workspace), plan, report, cancel)
    told = {"dry_run": dry_run, **done.as_json()}
    if as_json:
        _print_json(told)
        return
    from .render.pool import show_index

    show_index(told)


@app.command()
def status(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """What the workspace holds, what was asked of LLMs, and the next sensible step."""
    from .engine.store.overview import overview

    found = overview(_open(workspace))
    if as_json:
        _print_json(found.as_json())
        return
    from .render.tables import show_table

    show_table(["", ""], found.lines(), note=f"next: {found.next_step}")


@app.command()
def sources(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """Sources of the pool: what was learnt of each, size, what is pruned."""
    from .engine.store.trials import standings

    found = standings(_open(workspace))
    if as_json:
        _print_json({"sources": [_plain(source) for source in found]})
        return
    from .render.tables import show_sources

    show_sources(found)


@app.command()
def demos(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    search: Annotated[str, typer.Option("--search", "-s", help="Only rows that hold this text.")] = "",
    source: Annotated[str | None, typer.Option(help="Only this source.")] = None,
    split: Annotated[str, typer.Option(help="pool, validation or test.")] = "pool",
    pruned: Annotated[bool | None, typer.Option("--pruned/--active", help="Only pruned, or only active rows.")] = None,
    duplicates: Annotated[bool, typer.Option("--duplicates", help="Only rows that repeat an earlier one.")] = False,
    misleading: Annotated[
        bool, typer.Option("--misleading", help="The ledger: what turned right answers wrong, worst first.")
    ] = False,
    helpful: Annotated[
        bool, typer.Option("--helpful", help="The ledger: what turned wrong answers right, best first.")
    ] = False,
    flips: Annotated[str | None, typer.Option(help="The flips behind this demonstration's entry, by id.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Rows to show.")] = 20,
    after: Annotated[int, typer.Option(help="Go on after this row number.")] = -1,
    as_json: JsonOption = False,
) -> None:
    """Look at demonstrations: the rows, or what training saw each of them do."""
    from .engine.store.demonstrations import Filter, page

    if flips is not None:
        _show_flips(workspace, flips, as_json)
        return
    if misleading or helpful:
        _show_ledger(workspace, misleading, helpful, limit, as_json)
        return
    kept = Filter(source, _split(split), pruned, search, duplicates)
    found = page(_open(workspace), kept, after=after, limit=limit)
    if as_json:
        _print_json({"demonstrations": [_plain(row) for row in found]})
        return
    from .render.tables import show_table

    rows = [[r.row, r.id, r.source, "pruned" if r.pruned else "", r.input, r.output] for r in found]
    more = f"more: icl-curate demos --after {found[-1].row} …" if len(found) == limit else ""
    show_table(["row", "id", "source", "", "input>", "output"], rows, note=more)


@app.command()
def prune(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    source: Annotated[list[str] | None, typer.Option("--source", help="Take this source out; repeatable.")] = None,
    demo: Annotated[list[str] | None, typer.Option("--demo", help="Take this demonstration out; repeatable.")] = None,
    tune: Annotated[bool, typer.Option("--tune", help="Sources that training showed to hurt, if any.")] = False,
    below: Annotated[float | None, typer.Option("--below", help="Sources with a learnt weight below this.")] = None,
    misleading: Annotated[
        bool, typer.Option("--misleading", help="Demonstrations that the ledger shows to hurt beyond doubt.")
    ] = False,
    noise: Annotated[float, typer.Option(help="With --tune: standard errors a gain must have.")] = 1.645,
    k: ShotsOption = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the latest decision back.")] = False,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take sources or demonstrations out of the active pool. Nothing is deleted; --undo takes it back."""
    if sum(map(bool, (source, demo, tune, below is not None, misleading, undo))) > 1:
        from .engine.errors import UsageError

        raise UsageError("name one way of pruning at a time", "icl-curate prune --help")
    if undo:
        from .engine.store.decisions import undo as take_back

        _show_change(take_back(_open(workspace), dry_run=dry_run), dry_run, as_json)
    elif tune:
        _prune_tuned(workspace, _settings(workspace, k=k), noise, reason, dry_run, as_json)
    elif misleading:
        from .engine.ranker.ledger import surely_misleading

        hurtful = surely_misleading(_open(workspace))
        _decide("prune", workspace, None, hurtful, reason or "misleading by the ledger", dry_run, as_json)
    elif below is not None:
        from .engine.sources.train import sources_below

        found = sources_below(_open(workspace), below)
        _decide("prune", workspace, found, None, reason or f"weight below {below}", dry_run, as_json)
    else:
        _decide("prune", workspace, source, demo, reason, dry_run, as_json)


@app.command()
def restore(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    source: Annotated[list[str] | None, typer.Option("--source", help="Put this source back; repeatable.")] = None,
    demo: Annotated[list[str] | None, typer.Option("--demo", help="Put this demonstration back; repeatable.")] = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Put pruned sources or demonstrations back into the active pool."""
    _decide("restore", workspace, source, demo, reason, dry_run, as_json)


@app.command()
def history(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Decisions to show.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Decisions taken, latest first."""
    from .engine.store.decisions import history as list_history

    entries = list_history(_open(workspace), limit)
    if as_json:
        _print_json({"history": [_plain(entry) for entry in entries]})
        return
    from .render.tables import show_table

    rows = [
        [
            e.batch,
            f"{e.decided_at:%Y-%m-%d %H:%M}",
            e.who,
            e.action,
            e.scope,
            ", ".join(e.targets[:3]) + _more(len(e.targets), 3),
            e.reason,
            "undone" if e.undone else "",
        ]
        for e in entries
    ]
    show_table(["#", "when", "who", "did", "to", "which>", "why", ""], rows)


@app.command()
@grouped
def preview(
    query: Annotated[str, typer.Argument(help="A question, or - to read it from stdin.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    method: Annotated[str | None, typer.Option("--method", "-m", help="Selection method.")] = None,
    k: ShotsOption = None,
    options: Annotated[list[str] | None, typer.Option("--option", help="An answer option; repeatable.")] = None,
    context: Annotated[str, typer.Option(help="A passage that belongs to the query.")] = "",
    explain: Annotated[bool, typer.Option("--explain", help="Take every score apart and show the prompt.")] = False,
    answer: Annotated[bool, typer.Option("--answer", help="Ask the LLM.")] = False,
    stability: Annotated[
        bool, typer.Option("--stability", help="Ask it also without each demonstration and with their order turned.")
    ] = False,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    max_calls: MaxCallsOption = None,
    max_cost: MaxCostOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show which demonstrations a query gets, why, and with --answer or --stability what the LLM makes of them."""
    from .engine.pool.records import Query
    from .engine.select.preview import PreviewAsked
    from .engine.select.preview import preview as look
    from .render.tables import show_preview, show_stability

    settings = _settings(workspace, method=method, k=k, order=order, **asdict(llm))
    text = _typed(query)
    asked = Query(text, tuple(options or ()), context)
    store = _open(workspace)
    if answer or stability:
        paid = PaidOptions(max_calls, max_cost, False, dry_run, as_json)
        made: list[PreviewAsked] = []

        def ready(backend: Backend, report: Report, cancel: CancelToken) -> PreviewAsked:
            rehearse = paid.rehearse
            made.append(
                PreviewAsked(store, backend, asked, settings, report, cancel, stability=stability, rehearse=rehearse)
            )
            return made[0]

        done = _carry_out(ready, store, settings, paid)
        if done is None:
            return
        seen = made[0].seen
    else:
        with _narrated() as (report, cancel):
            seen = look(store, asked, settings, report=report, cancel=cancel)
        done = seen.as_json()
    if as_json:
        _print_json(done)
    elif stability:
        show_stability(done)
    else:
        show_preview(seen, explain)


@app.command()
@grouped
def evaluate(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            "-m",
            help="Comma-separated: zero, random, bm25, dense, dpp, set-bsr; once trained: ranker, promptpg, topick; "
            "asking the LLM while they select: rerank, sure, mdl, mdr, cone (the last three: an LLM that scores).",
        ),
    ] = "zero,random,bm25,dense",
    k: ShotsOption = None,
    seeds: Annotated[int, typer.Option(help="Seeds for methods that draw at random.", min=1)] = 3,
    split: Annotated[str, typer.Option(help="validation or test.")] = "test",
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="First queries only.")] = None,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Compare selection methods on one table. Stop it at any time: run again, it goes on and pays nothing twice."""
    from .engine.evaluate.compare import Evaluation, EvaluationPlan

    settings = _settings(workspace, k=k, order=order, **asdict(llm))
    plan = EvaluationPlan(tuple(m.strip() for m in methods.split(",") if m.strip()), seeds, _query_split(split), limit)
    store = _open(workspace)

    def ready(backend: Backend, report: Report, cancel: CancelToken) -> Evaluation:
        return Evaluation(store, backend, settings, plan, report, cancel, rehearse=paid.rehearse)

    table = _carry_out(ready, store, settings, paid)
    if table is None:
        return
    if paid.as_json:
        _print_json(table)
        return
    from .render.tables import show_evaluation

    show_evaluation(table)


@app.command()
@grouped
def calibrate(
    query: Annotated[
        str | None, typer.Argument(help="A question, the id of an indexed query, or - to read one from stdin.")
    ] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    validation: Annotated[bool, typer.Option("--validation", help="All validation queries.")] = False,
    split: Annotated[str | None, typer.Option(help="All queries of: validation, test or pool.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="First queries only.")] = None,
    rounds: Annotated[int, typer.Option("--rounds", "-r", help="Rounds after the first answer.", min=1)] = 5,
    stop_early: Annotated[bool, typer.Option("--stop-early", help="Stop when answer and score have settled.")] = False,
    arms: Annotated[
        str,
        typer.Option(help="full, answers, plain, relevance, oracle, sampling, vote; comma-separated, or all."),
    ] = "full",
    uncertainty: Annotated[
        str, typer.Option(help="product, geometric, entropy, or self-consistency (needs no log-probabilities).")
    ] = "product",
    over: Annotated[
        Literal["auto", "documents", "demonstrations"],
        typer.Option(help="Score the query's documents, or selected demonstrations; auto: documents where it has two."),
    ] = "auto",
    method: Annotated[str | None, typer.Option("--method", "-m", help="Selects the demonstrations.")] = None,
    k: ShotsOption = None,
    options: Annotated[list[str] | None, typer.Option("--option", help="An answer option; repeatable.")] = None,
    context: Annotated[str, typer.Option(help="Documents of the query, blank lines between them.")] = "",
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Answer in rounds: the LLM sees how unsure it was of each document and of its earlier answers (paper 001)."""
    from .engine.calibrate.calibration import Calibration
    from .engine.calibrate.documents import queries_of, query_named
    from .engine.calibrate.round_runner import SETTLED, CalibrationPlan
    from .engine.errors import UsageError

    settings = _settings(workspace, method=method, k=k, order=order, **asdict(llm))
    chosen: Any = "validation" if validation else _split(split) if split else ""
    if bool(query) == bool(chosen) or (validation and split):
        raise UsageError("name one query or one set of queries", 'icl-curate calibrate "a question", or --validation')
    store = _open(workspace)
    if query:
        text = _typed(query)
        asked = [query_named(store, text, options or (), context)]
    else:
        asked = queries_of(store, chosen, limit)
    names = tuple(name.strip() for name in arms.split(",") if name.strip())
    plan = CalibrationPlan(rounds, names, uncertainty, over, SETTLED if stop_early else None, split=chosen)

    def ready(backend: Backend, report: Report, cancel: CancelToken) -> Calibration:
        return Calibration(store, backend, settings, asked, plan, report, cancel, rehearse=paid.rehearse)

    done = _carry_out(ready, store, settings, paid)
    if done is None:
        return
    if paid.as_json:
        _print_json(done)
        return
    from .render.calibration import show_calibration, show_calibrations

    (show_calibrations if chosen else show_calibration)(done)


@app.command()
def export(
    out: Annotated[Path, typer.Argument(help="File, or folder for the format hf.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="jsonl, csv, parquet, chat, dspy, hf (default: by name), or calibration."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="pool, validation or test (default: pool; for calibration: validation).")
    ] = None,
    source: Annotated[list[str] | None, typer.Option("--source", help="Only these sources; repeatable.")] = None,
    deduplicate: Annotated[bool, typer.Option("--deduplicate", help="Only the first of each duplicate group.")] = False,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas/--no-escape-formulas",
            help="In CSV, an apostrophe before what a spreadsheet would run; index takes it off again.",
        ),
    ] = True,
    force: ForceOption = False,
    background: BackgroundOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the active pool with a manifest that says what was taken out and why, or what calibration teaches."""
    from .engine.export.calibration import FORMAT, export_calibration
    from .engine.export.corpus import ExportPlan, format_of, manifest_path
    from .engine.export.corpus import export as write

    settings = _settings(workspace)
    chosen = _split(split or ("validation" if format == FORMAT else "pool"))
    plan = ExportPlan(
        out,
        format or format_of(out),
        chosen,
        tuple(source or ()),
        deduplicate,
        settings.template,
        force,
        dry_run,
        escape_formulas,
    )
    if background and not dry_run:
        _start_job(_open(workspace), as_json)
        return
    with _narrated() as (report, cancel):
        if format == FORMAT:
            manifest = export_calibration(_open(workspace), plan, settings.order)
        else:
            manifest = write(_open(workspace), plan, report, cancel)
    told = {"out": str(out), "manifest": str(manifest_path(plan)), **manifest}
    if as_json:
        _print_json(told)
        return
    from .render.pool import show_export

    show_export(told)


@app.command()
def config(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """Every setting, its value and where it came from."""
    from .engine.settings import CONFIG, about, knobs, resolve, user_config

    resolved = resolve(workspace, {})
    values = knobs(resolved.settings)
    if as_json:
        _print_json({"settings": values, "origins": dict(resolved.origins)})
        return
    from .render.tables import show_table

    rows = [[name, str(value), resolved.origins[name], about(name)] for name, value in values.items()]
    note = f"set them in {workspace / CONFIG}, {user_config()}, or as ICL_CURATE_<NAME> in the environment"
    show_table(["setting", "value", "from", "meaning>"], rows, note=note)


@app.command()
def demo(
    workspace: Annotated[Path | None, typer.Option("--workspace", "-w", help="Keep the demo's workspace here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The whole story on the sample data, with the embedded encoder and reader: no key, no server, no download."""
    from .commands.story import run_demo

    with _narrated() as (report, cancel):
        told = run_demo(workspace, report, cancel, show=not as_json)
    if as_json:
        _print_json(told)


@llm_app.command("check")
def llm_check(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    llm: LLMOption = None,
    base_url: BaseURLOption = None,
    device: DeviceOption = None,
    price_in: PriceInOption = None,
    price_out: PriceOutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Can the LLM be reached, how fast is it, does it give log-probabilities, can it score, is its price known."""
    from .engine.errors import LLMError
    from .engine.llm.asking import backend_for, price_of
    from .engine.llm.runner import check
    from .engine.retrieval.artefacts import encode_for_reader
    from .engine.store.workspace import Workspace

    settings = _settings(workspace, llm=llm, base_url=base_url, device=device, price_in=price_in, price_out=price_out)
    store = Workspace.create(workspace)
    _confirm_server(settings)
    with _narrated() as (report, _), backend_for(settings, encode_for_reader(store, settings), report) as backend:
        found = check(store, backend, price_of(settings))
    if not found.reachable:
        _fail(found.error, found.fix, LLMError.exit_code)
    if as_json:
        _print_json(_plain(found))
        return
    from .render.tables import show_check

    show_check(found)


@llm_app.command("trust")
def llm_trust(
    url: Annotated[str | None, typer.Argument(help="Base URL to confirm. None: those confirmed.")] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    forget: Annotated[str | None, typer.Option("--forget", help="Confirm this base URL no longer.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Servers that this workspace's own config.toml may send prompts and your key to."""
    from .engine import trust

    if url is not None:
        trust.confirm(workspace, url)
    if forget is not None:
        trust.forget(workspace, forget)
    found = trust.confirmed(workspace)
    if as_json:
        _print_json({"workspace": str(workspace.resolve()), "confirmed": found})
        return
    for server in found:
        _say(f"confirmed: {server}")
    if not found:
        _say("no server is confirmed for this workspace")


@train_app.command("sources")
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
    from .engine.sources.train import SourcePlan, SourceTraining

    settings = _settings(workspace, k=k, **asdict(llm))
    store = _open(workspace)
    plan = SourcePlan(depth, ranking, limit)

    def ready(backend: Backend, report: Report, cancel: CancelToken) -> SourceTraining:
        return SourceTraining(store, backend, settings, plan, report, cancel, rehearse=paid.rehearse)

    done = _carry_out(ready, store, settings, paid)
    if done is None:
        return
    if paid.as_json:
        _print_json(done)
        return
    from .engine.store.trials import standings
    from .render.tables import show_sources, show_training

    show_sources(standings(store))
    show_training(done)


@train_app.command("ranker")
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
    from .engine.ranker.train import RankerPlan, RankerTraining

    settings = _settings(workspace, k=k, order=order, **asdict(llm))
    store = _open(workspace)
    if taken_from is not None:
        from .engine.ranker.inference import import_ranker

        run = import_ranker(store, taken_from, settings)
        if paid.as_json:
            _print_json({"run": run, "from": str(taken_from)})
        else:
            _say(f"run {run}: the ranker of {taken_from}; next: icl-curate evaluate --methods bm25,ranker")
        return
    plan = RankerPlan(method, epochs, batch, rate=rate, rouge=rouge, limit=limit)

    def ready(backend: Backend, report: Report, cancel: CancelToken) -> RankerTraining:
        return RankerTraining(store, backend, settings, plan, report, cancel, rehearse=paid.rehearse)

    done = _carry_out(ready, store, settings, paid)
    if done is None:
        return
    if paid.as_json:
        _print_json(done)
        return
    from .render.tables import show_ranker

    show_ranker(done)


@train_app.command("topics")
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
    from .engine.topics.train import TopicPlan, TopicTraining

    settings = _settings(workspace, **asdict(llm))
    store = _open(workspace)
    plan = TopicPlan(topics, size, llm_topics, sample, questions, cosine=cosine, epochs=epochs)

    def ready(backend: Backend, report: Report, cancel: CancelToken) -> TopicTraining:
        return TopicTraining(store, backend, settings, plan, report, cancel, rehearse=paid.rehearse)

    done = _carry_out(ready, store, settings, paid)
    if done is None:
        return
    if paid.as_json:
        _print_json(done)
        return
    from .render.topics import show_topic_training

    show_topic_training(done)


@train_app.command("all")
@grouped
def train_all(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    k: ShotsOption = None,
    order: OrderOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Sources, ranker and topics one after the other, as set by default, within one budget."""
    from .engine.ranker.train import RankerTraining
    from .engine.sources.train import SourceTraining
    from .engine.topics.train import TopicTraining

    settings = _settings(workspace, k=k, order=order, **asdict(llm))
    store = _open(workspace)
    parts: dict[str, Callable[[Backend, Report, CancelToken], _Ready]] = {
        "sources": lambda b, r, c: SourceTraining(store, b, settings, report=r, cancel=c, rehearse=paid.rehearse),
        "ranker": lambda b, r, c: RankerTraining(store, b, settings, report=r, cancel=c, rehearse=paid.rehearse),
        "topics": lambda b, r, c: TopicTraining(store, b, settings, report=r, cancel=c, rehearse=paid.rehearse),
    }
    done = _carry_out_all(parts, store, settings, paid)
    if not done:
        return
    if paid.as_json:
        _print_json(done)
        return
    from .render.tables import show_ranker, show_text, show_training
    from .render.topics import show_topic_training

    shown = {"sources": show_training, "ranker": show_ranker, "topics": show_topic_training}
    for name, result in done.items():
        show_text(f"\n{name}", style="bold")
        shown[name](result)


@app.command("topics")
def list_topics(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    gaps: Annotated[
        bool, typer.Option("--gaps", help="What queries need, the LLM lacks and the pool does not cover.")
    ] = False,
    search: Annotated[str, typer.Option("--search", "-s", help="Only topics that hold this text.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", help="Topics to show.", min=1)] = 20,
    as_json: JsonOption = False,
) -> None:
    """Topics of the pool with size, knowledge, coverage and sources; with --gaps what to collect next."""
    from .engine.topics import report

    settings = _settings(workspace)
    store = _open(workspace)
    if gaps:
        found = report.gaps(store, settings, limit)
        if as_json:
            _print_json({"gaps": [gap.as_json() for gap in found]})
            return
        from .render.topics import show_gaps

        show_gaps(found)
        return
    listed = [topic for topic in report.topics(store, settings) if search.lower() in topic.topic.lower()]
    if as_json:
        _print_json({"topics": [_plain(topic) for topic in listed[:limit]], "total": len(listed)})
        return
    from .render.topics import show_topics

    show_topics(listed[:limit], len(listed))


@jobs_app.callback(invoke_without_command=True)
def jobs(context: typer.Context, workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """Jobs of the workspace, latest first. They run one at a time; start one with --background."""
    if context.invoked_subcommand is not None:
        return
    from .engine.jobs.folder import jobs as list_jobs

    found = list_jobs(_open(workspace))
    if as_json:
        _print_json({"jobs": [_plain(job) for job in found]})
        return
    from .render.jobs import show_jobs

    show_jobs(found)


@jobs_app.command("follow")
def jobs_follow(
    number: JobArgument = None, workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False
) -> None:
    """Watch a job to its end and show what came out; ends with its exit code. Ctrl-C leaves the job running."""
    from .engine.jobs import folder
    from .engine.jobs.follow import follow
    from .render.terminal import say

    store = _open(workspace)
    job = _job(store, number)
    if job.behind:
        say(f"job {job.number} waits for job {job.behind}", err=True)
    with _narrated() as (report, cancel):
        for event in follow(store, job.number, cancel):
            report(event)
    job = folder.find(store, job.number)
    if job.live:
        _fail(f"job {job.number} goes on", f"icl-curate jobs cancel {job.number} would stop it", 130)
    if job.state != "done":
        _fail(f"job {job.number} {job.state}" + (f": {job.error}" if job.error else ""), job.fix, job.code or 1)
    done = folder.result(job) or {}
    if as_json:
        _print_json(done)
        return
    from .render.jobs import show_result

    show_result(job, done)


@jobs_app.command("cancel")
def jobs_cancel(
    number: JobArgument = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    kill: Annotated[bool, typer.Option("--kill", help="At once; calls in flight may be paid again.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop a job, or take it out of the queue. What was answered is kept: resume pays only for the rest."""
    from .engine.jobs.lock import wait_for
    from .engine.jobs.start import cancel

    store = _open(workspace)
    job = cancel(store, _job(store, number).number, kill=kill)
    wait_for(job.folder)
    _show_job(_job(store, job.number), as_json)


@jobs_app.command("resume")
def jobs_resume(
    number: JobArgument = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    trust: Annotated[bool, typer.Option("--trust", help="Also a job that was not started here by you.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Queue the command of an ended job again; nothing that was answered is paid twice."""
    from .engine.jobs.start import resumable, resume
    from .engine.progress import Event

    store = _open(workspace)
    job = resumable(store, _job(store, number).number, trusted=trust)
    with _narrated() as (report, _):
        report(Event("resume", note=f"in {job.directory}: {job.command}"))
    _show_job(resume(store, job.number, trusted=trust), as_json)


@app.command()
def review(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    serve: Annotated[
        int | None,
        typer.Option(
            help="Serve it to browsers on this port of this machine instead; 0: a free one.", min=0, max=65535
        ),
    ] = None,
    allow_commands: Annotated[
        bool, typer.Option("--allow-commands", help="With --serve: any command, path and LLM from the browser too.")
    ] = False,
) -> None:
    """The whole of it on one screen, by keyboard: look, filter, compare, decide, undo."""
    from .tui import review as tui

    if serve is not None:
        tui.serve(workspace, serve, allow_commands)
        return
    raise typer.Exit(tui.review(workspace, allow_commands))


@app.command()
def audit(
    log: Annotated[Path, typer.Argument(help="Recorded retrievals, JSONL or Parquet: questions to choose on.")],
    test: Annotated[Path | None, typer.Option(help="Recorded retrievals to confirm on.")] = None,
    k: Annotated[int, typer.Option("-k", "--voters", help="Answers that vote.")] = 10,
    group_by: Annotated[
        Literal["auto", "source", "domain"], typer.Option(help="What a source is; domain: of addresses.")
    ] = "auto",
    noise: Annotated[float, typer.Option(help="Standard errors a gain must have.")] = 1.645,
    seed: Annotated[int, typer.Option(help="Seed of the cross-validation.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Source importance from recorded retrievals, no LLM: which sources to drop (paper 003)."""
    from .engine.sources.audit import audit as run_audit

    with _narrated() as (report, cancel):
        found = run_audit(log, test, k, group_by=group_by, noise=noise, seed=seed, report=report, cancel=cancel)
    if as_json:
        _print_json(found.to_json())
        return
    from .render.tables import show_audit

    show_audit(found)


# What the commands share.


def _start_job(workspace: Workspace, as_json: bool) -> None:
    """The command that was typed, as a job."""
    from .engine.jobs.start import start

    _show_job(start(workspace, [word for word in sys.argv[1:] if word != "--background"]), as_json)


def _job(workspace: Workspace, number: int | None) -> Job:
    """The job of this number, else the latest."""
    from .engine.errors import UsageError
    from .engine.jobs.folder import find
    from .engine.jobs.folder import jobs as list_jobs

    if number is not None:
        return find(workspace, number)
    found = list_jobs(workspace)
    if not found:
        raise UsageError("there are no jobs", "icl-curate evaluate --background")
    return found[0]


def _show_job(job: Job, as_json: bool) -> None:
    if as_json:
        _print_json({"job": _plain(job)})
        return
    behind = f" behind job {job.behind}" if job.behind else ""
    _say(f"job {job.number} {job.state}{behind}: {job.command}")
    if job.live:
        _say(f"follow it with: icl-curate jobs follow {job.number}")
    elif job.state != "done":
        _say(f"go on with: icl-curate jobs resume {job.number}")


def _show_ledger(workspace: Path, misleading: bool, helpful: bool, limit: int, as_json: bool) -> None:
    from .engine.ranker.ledger import ledger

    found = ledger(_open(workspace), misleading, helpful, limit)
    if as_json:
        _print_json({"demonstrations": [_plain(standing) for standing in found]})
        return
    from .render.tables import show_ledger

    show_ledger(found)


def _show_flips(workspace: Path, name: str, as_json: bool) -> None:
    from .engine.ranker.ledger import flips_of
    from .engine.store.demonstrations import find

    store = _open(workspace)
    found = flips_of(store, find(store, name).row)
    if as_json:
        _print_json({"flips": [_plain(flip) for flip in found]})
        return
    from .render.tables import show_flips

    show_flips(found)


def _decide(
    action: Action,
    workspace: Path,
    sources: Sequence[str] | None,
    demos: Sequence[str] | None,
    reason: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    from .engine.errors import UsageError
    from .engine.store.decisions import decide

    if bool(sources) == bool(demos):
        raise UsageError(f"name what to {action}", f"icl-curate {action} --source NAME, or --demo ID")
    scope: Scope = "source" if sources else "demonstration"
    change = decide(_open(workspace), action, scope, sources or demos or (), reason, dry_run=dry_run)
    _show_change(change, dry_run, as_json)


def _prune_tuned(workspace: Path, settings: Settings, noise: float, reason: str, dry_run: bool, as_json: bool) -> None:
    from .engine.sources.train import tune as choose
    from .engine.store.decisions import decide

    store = _open(workspace)
    with _narrated() as (report, cancel):
        tuned = choose(store, settings, noise, report, cancel)
    change = None
    if tuned.pruned:
        why = reason or f"run {tuned.run}: {tuned.estimator} below {tuned.threshold:.3g}"
        change = decide(store, "prune", "source", tuned.pruned, why, dry_run=dry_run)
    if as_json:
        _print_json(tuned.as_json() | {"dry_run": dry_run, "batch": change.batch if change else None})
        return
    from .render.tables import show_tuned

    show_tuned(tuned)
    if change:
        _show_change(change, dry_run, as_json)


def _show_change(change: Change, dry_run: bool, as_json: bool) -> None:
    if as_json:
        _print_json(
            {
                "dry_run": dry_run,
                "batch": change.batch,
                "action": change.action,
                "targets": list(change.targets),
                "pruned": list(change.pruned_sources),
                "kept": list(change.kept_sources),
                "active_before": change.active_before,
                "active_after": change.active_after,
                "validation_before": None,  # measured by --tune, which trains source weights
                "validation_after": None,
                "curve": [],
            }
        )
        return
    verb = "would leave" if dry_run else "leaves"
    what = "undo of decision" if change.action == "undo" else f"{change.action} {change.scope}"
    names = ", ".join(change.targets[:5]) + _more(len(change.targets), 5)
    _say(f"{what} {names}: {verb} {change.active_after:,} active of {change.active_before:,} before")
    if not dry_run and change.action != "undo":
        _say("take it back with: icl-curate prune --undo")


class _Ready(Protocol):
    """Paid work made ready: its prompts are known, nothing has been asked yet."""

    def cost(self, price: Price | None) -> Plan: ...

    def run(self, budget: Budget) -> dict[str, Any]: ...


def _carry_out(
    ready: Callable[[Backend, Report, CancelToken], _Ready],
    workspace: Workspace,
    settings: Settings,
    paid: PaidOptions,
) -> dict[str, Any] | None:
    """Do one piece of work within the budget, or say what it would cost, or leave it to a job; as `_carry_out_all`."""
    done = _carry_out_all({"": ready}, workspace, settings, paid)
    return done[""] if done else None


def _carry_out_all(
    parts: Mapping[str, Callable[[Backend, Report, CancelToken], _Ready]],
    workspace: Workspace,
    settings: Settings,
    paid: PaidOptions,
) -> dict[str, dict[str, Any]]:
    """Open the LLM, then do the parts one after the other within one budget; what came out, by part.

    In a dry run only their cost is said, in the background a job is started; nothing comes back then. Of several
    parts one that the pool does not allow is left out, and said; it is an error where none is left.
    """
    _confirm_server(settings)
    if paid.background and not paid.dry_run:
        _start_job(workspace, paid.as_json)
        return {}
    from .engine.errors import UsageError
    from .engine.llm.asking import backend_for, destination, price_of
    from .engine.llm.budget import Budget
    from .engine.progress import Event, silent
    from .engine.retrieval.artefacts import encode_for_reader

    price = price_of(settings)
    budget = Budget(paid.max_calls, paid.max_cost, price)
    done: dict[str, dict[str, Any]] = {}
    costs: dict[str, Plan] = {}
    refused: list[UsageError] = []
    with (
        _narrated() as (report, cancel),
        backend_for(settings, encode_for_reader(workspace, settings), silent if paid.rehearse else report) as backend,
    ):
        for name, ready in parts.items():
            try:
                work = ready(backend, report, cancel)
            except UsageError as error:
                refused.append(error)
                if len(refused) == len(parts):
                    raise
                report(Event(name, note=f"{name} left out: {error.what}"))
                continue
            if paid.dry_run:
                costs[name] = work.cost(price)
            else:
                done[name] = work.run(budget)
    if paid.dry_run:
        _show_costs(costs, destination(settings), paid.as_json)
    return done


def _show_costs(costs: Mapping[str, Plan], destination: str, as_json: bool) -> None:
    told = {name: _plain(plan) | {"destination": destination} for name, plan in costs.items()}
    if as_json:
        _print_json({"dry_run": True, **told.get("", told)})
        return
    from .render.tables import show_plan

    for name, plan in told.items():
        show_plan(plan, name)


def _confirm_server(settings: Settings) -> None:
    """On a terminal ask once about a server that only the workspace's own file names; elsewhere it is an error."""
    from .engine import trust
    from .engine.llm.asking import check_server
    from .render.terminal import narrate

    try:
        check_server(settings)
    except trust.UnconfirmedServer as error:
        if not (error.url and not _state["json"] and sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        narrate(error.what)
        try:
            agreed = typer.confirm("Go on, now and from now on with this workspace?", err=True)
        except typer.Abort:
            agreed = False
        if not agreed:
            raise
        trust.confirm(Path(error.workspace), error.url)


def _open(path: Path) -> Workspace:
    from .engine.store.workspace import Workspace

    return Workspace.open(path)


def _settings(workspace: Path, **flags: Any) -> Settings:
    from .engine.settings import resolve

    return resolve(workspace, flags).settings


def _split(name: str) -> Any:
    from .engine.errors import UsageError
    from .engine.pool.records import SPLITS

    if name not in SPLITS:
        raise UsageError(f"unknown split '{name}'", f"use one of: {', '.join(SPLITS)}")
    return name


def _query_split(name: str) -> Any:
    from .engine.errors import UsageError

    if _split(name) == "pool":
        raise UsageError("the pool is not evaluated on itself", "--split validation or --split test")
    return name


def _mapping(pairs: Sequence[str]) -> dict[str, str]:
    from .engine.errors import UsageError

    mapping = {}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        if not equals or not name or not column:
            raise UsageError(f"--map takes FIELD=COLUMN, not '{pair}'", "--map input=utterance --map output=intent")
        mapping[name] = column
    return mapping


def _typed(query: str) -> str:
    """The query as it was typed, or what was piped in for ``-``."""
    from .engine.index.readers import STDIN, piped

    if query != STDIN:
        return query
    return piped("pipe one in, or type it in place of the -").decode(errors="replace").strip()


def _tell_waiting(what: str, waited: float) -> None:
    """Say once on stderr whom a command waits for. Ctrl-C ends the waiting, but not that of a thread that keeps what
    was paid for."""
    from .render.terminal import say

    token = _state["cancel"]
    if token and token.cancelled and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
    if waited >= WAITED and not _state["waiting"] and not _state["quiet"]:
        say(f"waiting for {what}", err=True)
    _state["waiting"] = waited >= WAITED


@contextmanager
def _narrated() -> Iterator[tuple[Report, CancelToken]]:
    """Progress on stderr, or in the folder of the job that this process is; the first Ctrl-C or SIGTERM asks the work
    to stop tidily, a second one stops it at once."""
    from .engine.progress import CancelToken

    token = CancelToken()

    def stop(number: int, frame: object) -> None:
        if token.cancelled:
            raise KeyboardInterrupt
        token.cancel()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    _state["cancel"] = token
    try:
        with _narrator() as narrator:
            yield narrator, token
    finally:
        _state["cancel"] = None
        for number, handler in previous.items():
            signal.signal(number, handler)


def _narrator() -> AbstractContextManager[Report]:
    from .engine.jobs import VARIABLE

    if folder := os.environ.get(VARIABLE):
        from .engine.jobs.child import Recorder

        return Recorder(Path(folder))
    from .render.tables import Narrator

    return Narrator(_state["quiet"])


def _plain(record: Any) -> dict[str, Any]:
    return asdict(record)


def _print_json(fields: Mapping[str, Any]) -> None:
    from .render.terminal import print_json

    print_json(fields)


def _say(text: str) -> None:
    from .render.terminal import say

    say(text)


def _more(total: int, shown: int, where: str = "") -> str:
    if total <= shown:
        return ""
    return f" … and {total - shown:,} more" + (f": icl-curate {where}" if where else "")


def _fail(what: str, fix: str, code: int) -> NoReturn:
    from .render.terminal import complain

    complain(what, fix, code, _state["json"])
    raise typer.Exit(code)


def _run() -> NoReturn:
    """Carry out what was typed. However it ends, errors are one line, the command that mends them, and the promised
    exit code; with ``--json`` one object, also where the command line itself is wrong."""
    from .engine.disk import fault
    from .engine.errors import CurateError
    from .render.terminal import complain, end, narrate

    typed = sys.argv[1:]
    _state["json"] = as_json = "--json" in takewhile("--".__ne__, typed)
    try:
        end(typer.main.get_command(app).main(typed, "icl-curate", standalone_mode=False) or 0)
    except CurateError as error:
        what, fix, code = error.what, error.fix, error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        if hasattr(error, "format_message"):  # the parser's: what Typer calls them differs from release to release
            context = getattr(error, "ctx", None)
            what, code = " ".join(error.format_message().split()), getattr(error, "exit_code", 2)
            fix = f"{context.command_path if context else 'icl-curate'} --help"
        elif (refused := fault(error)) is not None:  # the disk's, met outside the workspace
            what, fix, code = refused.what, refused.fix, refused.exit_code
        else:
            if os.environ.get(TRACEBACK):
                narrate(format_exc())
            what, code = f"unexpected: {type(error).__name__}: {error}", 1
            fix = f"run it with {TRACEBACK}=1 and report what it says"
    complain(what, fix, code, as_json)
    sys.exit(code)


def main() -> None:
    """Entry point of the ``icl-curate`` command, and the end of its process."""
    ended: list[int] = []
    atexit.register(_leave, ended)  # first, so called last: once threads and libraries have ended
    try:
        run()
    except SystemExit as stop:
        ended.append(stop.code if isinstance(stop.code, int) else int(stop.code is not None))
        raise


def _leave(ended: Sequence[int]) -> None:
    """End at once. Taking the interpreter apart would take seconds where torch is loaded, and let DuckDB list what it
    finds still in use."""
    if not ended:  # an error that nobody caught: the interpreter tells it
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(ended[0])


def run() -> None:
    """Carry out what ``sys.argv`` says; ends with `SystemExit`."""
    from .engine.jobs import VARIABLE
    from .render.terminal import guard

    guard()
    if folder := os.environ.get(VARIABLE):
        from .engine.jobs.child import work

        sys.exit(work(Path(folder), _run))
    _run()


if __name__ == "__main__":
    main()
