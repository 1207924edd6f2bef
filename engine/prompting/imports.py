"""Prompts of promptfoo, LangChain and DSPy as templates of ours. Their files are data: nothing in them is run, and no
file is read that does not lie beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.errors import UsageError
from ..pool.records import Demonstration, Query
from .foreign.chats import chat, messages, settings
from .foreign.dspy import dspy, signatures
from .foreign.files import LARGEST, Beside, text_of, value_of
from .foreign.langchain import LangChain
from .foreign.pieces import Draft, Items, template
from .foreign.promptfoo import promptfoo, prompts
from .template import OPEN, FileTemplate


@dataclass(frozen=True, slots=True)
class Imported:
    """A template of ours; what could not be translated, each with a comment ``TODO`` at its place; and what to know."""

    source: str
    todos: tuple[str, ...]
    notes: tuple[str, ...]


def import_template(path: Path, prompt: int = 1, examples: str = "examples", input: str = "") -> Imported:
    """The template for prompt number ``prompt`` in a file: a config of promptfoo, a prompt that LangChain saved, the
    state of a DSPy program, a chat as JSON, or one text with ``{{ variables }}``.

    ``examples`` names the variable that holds the demonstrations, ``input`` the one that is the query's input; if not
    given, a name such as ``question`` or the only one. The template compiles. Raises `UsageError` if the file is none
    of these, is malformed or too large, or names a file that does not lie beside it.
    """
    value = value_of(path, text_of(path, LARGEST))
    draft = Draft(examples, input)
    _read(value, path, prompt, draft)
    draft = draft.settled()  # which variable is the input is known when all are
    head, items = _read(value, path, prompt, draft)
    if draft.input not in ("", "input"):
        draft.notes.append(f"{draft.input} is the query's input")
    if not draft.asked:
        draft.notes.append("it has no variable, such as {{ ticket }}: write {{ query.input }} where the question goes")
    elif draft.input not in draft.asked:
        draft.notes.append("no variable is the query's input; if one is, name it: --input VAR")
    if draft.given not in ("", "input", draft.input):
        draft.notes.append(f"{draft.given} of a demonstration is its input")
    if draft.output not in ("", "output"):
        draft.notes.append(f"{draft.output} of a demonstration is its output")
    fields = [name for name in draft.asked if name not in (draft.input, "context", "options", "input")]
    if fields:
        draft.notes.append(f"fields of each query: {', '.join(fields)}")
    if not draft.loops:
        draft.notes.append(
            f"no loop over '{examples}', so the demonstrations are turns before the last question; "
            "if they are in another variable: --examples VAR"
        )
    source = head + template(items, draft)
    if failed := _tried(source, draft):
        draft.notes.append(f"it could not be tried with made-up values: {failed}; try it with a query of yours")
    return Imported(source, tuple(draft.todos), tuple(dict.fromkeys(draft.notes)))


class _Any(dict[str, Any]):
    """A table that has every field."""

    def __missing__(self, name: str) -> str:
        return name


def _tried(source: str, draft: Draft) -> str:
    """Compile a template and render it with made-up values: what fails, or nothing. Raises `UsageError` if it does not
    compile."""
    ours = FileTemplate(source)
    try:
        _ = ours.reads, ours.form
    except UsageError as error:
        raise UsageError(
            f"what it would be here is no template: {error.what}",
            "correct the prompt, or write a template of your own: icl-curate template show auto > mine.jinja",
        ) from error
    row = {name: name for name in (*draft.asked, *draft.shown)}
    shots = [Demonstration(i, str(i), "input", "output", "source", metadata=row) for i in range(2)]
    failed = ""
    for text in ("text", 3):  # a condition may compare numbers
        values = {"text": text, "table": _Any(), "list": [_Any()]}
        try:
            ours.render(Query("input", fields={name: values[kind] for name, kind in draft.asked.items()}), shots, OPEN)
        except UsageError as error:
            failed = failed or error.what
        else:
            return ""
    return failed


def _read(value: object, path: Path, prompt: int, draft: Draft) -> tuple[str, Items]:
    """The head of the template and the turns of the prompt that was asked for."""
    if isinstance(value, str):
        return "", chat(value, draft)
    if isinstance(value, list):
        return "", messages(value, draft)
    if isinstance(value, Mapping):
        if "prompts" in value:
            return "", promptfoo(_picked(prompts(value, Beside(path)), prompt, path, draft), value, draft)
        if "_type" in value or "lc" in value:
            return "", LangChain(Beside(path), draft).items(value)
        if states := signatures(value):
            return dspy(_picked(states, prompt, path, draft), draft)
        if isinstance(value.get("messages"), list):
            return "", [*settings(value, "", draft), *messages(value["messages"], draft)]
    raise UsageError(
        f"{path.name} is no prompt that is known",
        "give a promptfoo config, a prompt saved by LangChain, a state saved by DSPy, messages as JSON, or a text",
    )


def _picked(among: Sequence[Any], prompt: int, path: Path, draft: Draft) -> Any:
    if not 1 <= prompt <= len(among):
        raise UsageError(f"there is no prompt {prompt}: {path.name} has {len(among)}", "--prompt N")
    if isinstance(among[prompt - 1], UsageError):
        raise among[prompt - 1]
    if len(among) > 1:
        draft.notes.append(f"prompt {prompt} of {len(among)}; another: --prompt N")
    return among[prompt - 1]
