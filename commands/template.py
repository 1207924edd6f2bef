"""`template`: how prompts are written, looked at and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..engine.base.code import is_code
from ..engine.base.errors import UsageError
from ..render.terminal import print_json
from .options import (
    DEFAULT_WORKSPACE,
    FieldOption,
    JsonOption,
    OrderOption,
    PromptFormatOption,
    ShotsOption,
    WorkspaceOption,
)
from .shared import asked_of, fail, open_workspace, settings_of, tell

TemplateArgument = Annotated[str, typer.Argument(help="A built-in template, a file, or module:function.")]


def template_list(as_json: JsonOption = False) -> None:
    """List the built-in templates."""
    from ..engine.prompting.template import built_in, names, parted
    from ..render.tables import show_table

    rows = [(name, parted(built_in(name))[0].about) for name in names()]
    if as_json:
        print_json({"kind": "templates", "templates": [{"template": name, "about": about} for name, about in rows]})
    else:
        show_table(["template", "about>"], rows)


def template_show(
    name: TemplateArgument = "auto",
    prompt_format: PromptFormatOption = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
) -> None:
    """Print a template, to begin one of your own: icl-curate template show auto > mine.jinja."""
    from ..engine.prompting.template import built_in
    from ..render.tables import show_text

    settings = settings_of(workspace, template=name, prompt_format=prompt_format)
    if is_code(name):
        raise UsageError(f"{name} is code, and no text", f"icl-curate template check {name} shows what it writes")
    show_text((settings.template_text or built_in(settings.template, settings.prompt_format)).rstrip())


def template_check(
    file: TemplateArgument,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    query: Annotated[str, typer.Option("--query", help="A question (default: the first one indexed).")] = "",
    further: FieldOption = None,
    demo: Annotated[
        list[str] | None,
        typer.Option("--demo", help="Id of a demonstration to show; repeat it in the order in which they are read."),
    ] = None,
    k: ShotsOption = None,
    order: OrderOption = None,
    expect: Annotated[
        Path | None, typer.Option("--expect", help="A request as JSON: exit code 1 unless the prompt is the same.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a template against the pool and show the prompt that it writes."""
    from ..engine.select.templates import check_template

    settings = settings_of(workspace, template=file, k=k, order=order)
    if further and not query:
        raise UsageError("--field is of a query that was given", '--query "a question" --field tier=gold')
    asked = asked_of({"input": query}, further or (), settings) if query else None
    checked = check_template(open_workspace(workspace), settings, asked, demo or (), expect)
    tell(checked, as_json)
    if checked.differs:
        fail(f"the prompt is not what was expected: {checked.differs}", f"correct {file} or {expect}", 1)
