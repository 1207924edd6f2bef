"""``template import``: a prompt of another tool as a template."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..engine.base.errors import counted
from ..render.terminal import past, say
from .options import ForceOption
from .shared import fail, state


def template_import(
    file: Annotated[
        Path,
        typer.Argument(
            help="A promptfoo config (YAML), a prompt saved by LangChain or a program saved by DSPy (JSON), messages "
            "as JSON, or a text with {{ variables }}.",
        ),
    ],
    prompt: Annotated[int, typer.Option("--prompt", min=1, help="Which prompt of the file.")] = 1,
    examples: Annotated[
        str, typer.Option("--examples", help="The variable that holds the demonstrations.")
    ] = "examples",
    input: Annotated[
        str, typer.Option("--input", help="The variable that is the query's input (default: by its name).")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="Template to write, such as mine.jinja (default: stdout).")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Turn a prompt of promptfoo, LangChain or DSPy into a template. Nothing in the file is run; what cannot be
    translated is a comment TODO at its place, and the exit code is then 2."""
    from ..engine.base.files import replace_file
    from ..engine.prompting.imports import import_template
    from ..engine.store.targets import check_file
    from ..render.tables import show_text

    if out:
        check_file(out, force)
    made = import_template(file, prompt, examples, input)
    if out:
        replace_file(out, lambda stream: stream.write(made.source.encode()))
    elif sys.stdout.isatty():  # which the text of a stranger must not steer
        show_text(made.source.rstrip())
    else:
        past(sys.stdout).write(made.source)
    if not state.quiet:
        for note in made.notes:
            say(f"note: {note}", err=True)
        if out:
            say(f"wrote {out}", err=True)
    for todo in made.todos:
        say(f"TODO: {todo}", err=True)
    if made.todos:
        where = f"of {out}" if out else "printed"
        fail(
            f"{counted(len(made.todos), 'thing')} could not be translated",
            f"correct the places {where} that say TODO, then: icl-curate template check {out or 'FILE'}",
            2,
        )
