"""`report`: one page for colleagues."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..engine.base.errors import UsageError
from ..render.terminal import print_json, say
from .options import DEFAULT_WORKSPACE, ForceOption, JsonOption, WorkspaceOption
from .shared import open_workspace, settings_of, state

HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


def report(
    out: Annotated[Path, typer.Argument(help="Page to write: OUT.html or OUT.md.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "",
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write one page for colleagues: the pool before and after, accuracy, what was taken out and why, costs, how to
    repeat it. Calls no LLM."""
    if out.suffix.lower() not in (*HTML, *MARKDOWN):
        raise UsageError(f"cannot tell the format from the name '{out.name}'", "name it OUT.html or OUT.md")
    if out.exists() and (not out.is_file() or not force):
        fix = "overwrite it with --force" if out.is_file() else "choose another name"
        raise UsageError(f"{out} exists{'' if out.is_file() else ' and is no file'}", fix)
    from ..engine.report.gather import gather

    found = gather(open_workspace(workspace), settings_of(workspace), title)
    from ..engine.base.files import replace_file
    from ..render.report.html import html
    from ..render.report.markdown import markdown
    from ..render.report.page import document

    write = html if out.suffix.lower() in HTML else markdown
    page = write(document(found)).encode()
    replace_file(out, lambda file: file.write(page))
    if as_json:
        print_json({"out": str(out), **found.as_json()})
        return
    if not state.quiet:
        say(f"wrote {out} ({len(page):,} bytes)")
