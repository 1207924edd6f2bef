"""Contents of the pool: `index`, `status`, `sources`, `demos`, `topics`."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..render.terminal import print_json
from . import values
from .jobs import start_job
from .options import (
    AS_STORED,
    CONFIGURED_ENGINE,
    DEFAULT_WORKSPACE,
    BackgroundOption,
    ColumnsOption,
    DeviceOption,
    DryRunOption,
    EngineOptions,
    EvidenceOptions,
    JsonOption,
    RowsOption,
    WorkspaceOption,
)
from .shared import mapping_of, narrated, open_workspace, settings_of, split_of, tell, tell_all
from .values import option

if TYPE_CHECKING:
    from ..engine.index.build import IndexPlan


def index(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, globs, https://…, s3://…, hf://NAME, sql:FILE?QUERY; - is JSONL on stdin (default: known)."
        ),
    ] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    sql: Annotated[
        str | None, typer.Option("--sql", help="Query of databases (DuckDB, SQLite): short for sql:FILE?QUERY.")
    ] = None,
    validation: Annotated[list[str] | None, typer.Option(help="Validation queries (file or glob).")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Test queries (file or glob).")] = None,
    validation_fraction: Annotated[float, typer.Option(help="Share of the pool held out for validation.")] = 0.0,
    test_fraction: Annotated[float, typer.Option(help="Share of the pool held out for test.")] = 0.0,
    columns: ColumnsOption = None,
    labels: Annotated[
        str | None, typer.Option(help="Names of labels that the files give as numbers from 0: negative,positive.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Source of all rows (default: the column source, or the file name).")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="sentence-transformers model, by name or path, or openai:MODEL behind an API.")
    ] = None,
    encoder_url: Annotated[
        str | None, typer.Option("--encoder-url", help="OpenAI-compatible server of an openai: encoder.")
    ] = None,
    encoder_price: Annotated[
        float | None, typer.Option("--encoder-price", help="Price of the encoder per million tokens in USD.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="Most USD to spend on an openai: encoder.", min=0)
    ] = None,
    device: DeviceOption = None,
    encode: Annotated[bool, typer.Option("--encode/--no-encode", help="Compute embeddings.")] = True,
    near_duplicate: Annotated[
        float | None, typer.Option(help="Jaccard similarity, .5 to 1, from which inputs are near duplicates.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on any bad row.")] = False,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Stop reading this known file: its rows are retired; repeatable.")
    ] = None,
    peek: Annotated[
        bool,
        typer.Option("--peek", help="Show the first rows as they would be read, or the files here; store nothing."),
    ] = False,
    engine: EngineOptions = CONFIGURED_ENGINE,
    background: BackgroundOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Index a pool: validate rows, find duplicates and leaks, encode new texts."""
    from ..engine.index.build import IndexPlan, dry_run_index, index_pool, made_workspace
    from ..engine.index.databases import asked

    settings = settings_of(
        workspace, encoder=encoder, encoder_url=encoder_url, encoder_price=encoder_price, device=device,
        near_duplicate=near_duplicate, **asdict(engine),
    )  # fmt: skip
    plan = IndexPlan.of(
        settings,
        max_cost=max_cost,
        paths=tuple(paths or ()) if sql is None else asked(paths or (), sql),
        columns=mapping_of(columns or ()),
        validation=tuple(validation or ()),
        test=tuple(test or ()),
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
        source=source,
        strict=strict,
        drop=tuple(drop or ()),
        labels=tuple(label.strip() for label in labels.split(",")) if labels else (),
        **({} if encode else {"encoder": None}),
    )
    if peek:
        _peek(plan, as_json)
        return
    if background and not dry_run:
        start_job(open_workspace(workspace, create=True), as_json)
        return
    with narrated() as monitor:
        if dry_run:
            done = dry_run_index(workspace, plan, monitor)
        else:
            with made_workspace(workspace) as store:
                done = index_pool(store, plan, monitor)
    tell(done, as_json, done=not dry_run)


def _peek(plan: IndexPlan, as_json: bool) -> None:
    """Show what the plan would read; if it names no files, those of the folder that could be read."""
    if plan.paths or plan.validation or plan.test:
        from ..engine.index.peek import peek_plan

        tell(peek_plan(plan), as_json)
        return
    from ..engine.index.listing import PATIENCE, files_here

    listing = files_here(seconds=PATIENCE)
    if as_json:
        print_json({"kind": "files-here", "files": [each.as_json() for each in listing]})
        return
    from ..render import show

    show("files-here", listing)


def status(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """Show what is left to do and what was gained, what the workspace contains, and LLM usage."""
    from ..engine.report import road

    settings = settings_of(workspace)
    tell(road.status(open_workspace(workspace), settings.method, settings.base_url), as_json)


def sources(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    counts: EvidenceOptions = AS_STORED,
    as_json: JsonOption = False,
) -> None:
    """List sources with their learned scores, sizes and pruned state."""
    from ..engine.llm.graded import grading_set, left_out
    from ..engine.store.trials import KIND, source_summaries

    store, settings = open_workspace(workspace), settings_of(workspace, **asdict(counts))
    listed = source_summaries(store, grading_set(store, settings))
    notes = left_out(store, settings, kinds=(KIND,))
    if as_json:
        print_json({"kind": "sources", "sources": [one.as_json() for one in listed], "notes": notes})
    else:
        from ..render import show

        show("sources", listed, notes)


def demos(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    search: Annotated[str, typer.Option("--search", "-s", help="Only rows that contain this text.")] = "",
    source: Annotated[str | None, typer.Option(help="Only this source.")] = None,
    split: Annotated[str, option(help="pool, validation or test.", of=values.SPLITS)] = "pool",
    pruned: Annotated[bool | None, typer.Option("--pruned/--active", help="Only pruned, or only active rows.")] = None,
    duplicates: Annotated[bool, typer.Option("--duplicates", help="Only duplicates of earlier rows.")] = False,
    rows: RowsOption = 20,
    after: Annotated[int, typer.Option(help="Start after this row number.")] = -1,
    as_json: JsonOption = False,
) -> None:
    """List demonstrations, or the queries of a split."""
    from ..engine.store.browse import Filter, page
    from ..engine.store.demonstrations import check_sources

    store = open_workspace(workspace)
    listed = page(store, Filter(source, split_of(split), pruned, search, duplicates), after=after, limit=rows)
    if not listed and source is not None:
        with store.read() as con:
            check_sources(con, [source], split)
    flags = {"--pruned": pruned, "--active": pruned is False, "--duplicates": duplicates}
    valued = {"--search": search, "--source": source, "--split": split != "pool" and split, "-n": rows != 20 and rows}
    filters = [word for name, value in valued.items() if value for word in (name, str(value))]
    filters += [name for name, wanted in flags.items() if wanted]
    last = str(listed[-1].row) if listed and len(listed) == rows else ""
    more = shlex.join(["icl-curate", "demos", *filters, "--after", last]) if last else ""
    tell_all("demonstrations", "demonstrations", listed, as_json, more)


def topics(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    gaps: Annotated[
        bool, typer.Option("--gaps", help="Show topics that queries need, the LLM lacks and the pool does not cover.")
    ] = False,
    search: Annotated[str, typer.Option("--search", "-s", help="Only topics that contain this text.")] = "",
    rows: RowsOption = 20,
    as_json: JsonOption = False,
) -> None:
    """List topics with size, LLM knowledge, coverage and sources; with --gaps, what to collect next."""
    from ..engine.papers.topics import report

    settings = settings_of(workspace)
    store = open_workspace(workspace)
    if gaps:
        tell_all("gaps", "gaps", report.gaps(store, settings, rows), as_json)
    else:
        tell(report.topics(store, settings, search, rows), as_json)
