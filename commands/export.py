"""What leaves a workspace: `export` and `report`; `diff` compares what was exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..render.terminal import print_json, say
from . import values
from .decide import known_versions
from .jobs import start_job
from .options import (
    DEFAULT_WORKSPACE,
    AnswerPrefixOption,
    BackgroundOption,
    BalanceOption,
    DocumentTokensOption,
    DryRunOption,
    ForceOption,
    JsonOption,
    PromptFormatOption,
    RowsOption,
    SetArmOption,
    TemplateOption,
    WorkspaceOption,
)
from .shared import narrated, open_workspace, settings_of, split_of, state, tell
from .values import option

if TYPE_CHECKING:
    from ..engine.store.workspace import Workspace


def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE",
            help="A version, an export, or another file that index reads.",
            autocompletion=known_versions,
        ),
    ],
    after: Annotated[
        str | None,
        typer.Argument(
            metavar="AFTER",
            help="Another one (default: the active pool of the workspace).",
            autocompletion=known_versions,
        ),
    ] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    rows: RowsOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Compare two states of a pool: rows added, removed and changed."""
    from ..engine.export.diff import diff as compare
    from ..engine.export.diff import entries_of, entries_of_pool

    def opened() -> Workspace:
        return open_workspace(workspace)

    first = entries_of(before, opened)
    tell(compare(first, entries_of(after, opened) if after else entries_of_pool(opened())), as_json, rows)


def export(
    out: Annotated[Path, typer.Argument(help="Output file; a folder for format hf.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    format: Annotated[
        str | None,
        option(
            "--format",
            "-f",
            help="jsonl, csv, parquet, chat, dspy, hf or calibration (default: from the file name).",
            of=values.formats,
        ),
    ] = None,
    split: Annotated[
        str | None,
        option(help="pool, validation or test (default: pool; for calibration: validation).", of=values.SPLITS),
    ] = None,
    source: Annotated[list[str] | None, typer.Option("--source", help="Export only this source; repeatable.")] = None,
    deduplicate: Annotated[
        bool, typer.Option("--deduplicate", help="Leave out rows that repeat an earlier one with the same output.")
    ] = False,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas/--no-escape-formulas",
            help="In CSV, put an apostrophe before formulas; index removes it.",
        ),
    ] = True,
    licence: Annotated[
        str, typer.Option("--license", help="For format hf: the licence in the card, as the hub names it (apache-2.0).")
    ] = "",
    version: Annotated[
        str | None,
        typer.Option(
            "--version",
            help="Export the demonstrations of this version instead of the active ones.",
            autocompletion=known_versions,
        ),
    ] = None,
    arm: SetArmOption = "full",
    document_tokens: DocumentTokensOption = None,
    balance: BalanceOption = False,
    template: TemplateOption = None,
    prompt_format: PromptFormatOption = None,
    answer_prefix: AnswerPrefixOption = None,
    force: ForceOption = False,
    background: BackgroundOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Export the active pool with a manifest of what was pruned and why, or a fine-tuning set from calibration."""
    from ..engine.export.corpus import CALIBRATION, ExportPlan, format_of, usual_split
    from ..engine.export.corpus import export as write

    settings = settings_of(
        workspace,
        template=template,
        prompt_format=prompt_format,
        answer_prefix=answer_prefix,
        document_tokens=document_tokens,
    )
    plan = ExportPlan(
        out=out,
        format=format or format_of(out),
        split=split_of(split or usual_split(format)),
        sources=tuple(source or ()),
        deduplicate=deduplicate,
        template=replace(settings, llm="offline").prompt_template,  # what a program is given is no turn of a chat
        force=force,
        dry_run=dry_run,
        escape_formulas=escape_formulas,
        licence=licence,
        version=version or "",
    )
    if background and not dry_run:
        start_job(open_workspace(workspace), as_json)
        return
    with narrated() as monitor:
        if format == CALIBRATION:
            from ..engine.papers.calibrate.finetune import export_calibration

            done = export_calibration(open_workspace(workspace), plan, settings, arm, balance)
        else:
            done = write(open_workspace(workspace), plan, monitor)
    tell(done, as_json, done=not dry_run)


def report(
    out: Annotated[Path, typer.Argument(help="Page to write: OUT.html or OUT.md.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "",
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write one page for colleagues: the pool before and after, accuracy, what was taken out and why, costs, how to
    repeat it. Calls no LLM."""
    from ..engine.report.gather import gather
    from ..render.report.write import check_page, write_page

    check_page(out, force)
    gathered = gather(open_workspace(workspace), settings_of(workspace), title)
    size = write_page(out, gathered)
    if as_json:
        print_json({"out": str(out), **gathered.as_json()})
    elif not state.quiet:
        say(f"wrote {out} ({size:,} bytes)")
