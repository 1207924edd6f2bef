"""Predictors of DSPy, as its ChatAdapter writes them (dspy 3.3.1, adapters/chat_adapter.py and adapters/base.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from textwrap import dedent
from typing import Any

from ...base.errors import UsageError, counted
from .languages import checked
from .pieces import END, INPUTS, SHOTS, Draft, Items, Tag, Turn, Untranslatable, first


def signatures(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The predictors of a saved program that have a signature; it may be one itself."""
    return [state for state in (value, *value.values()) if isinstance(state, Mapping) and "signature" in state]


MISSING = "Not supplied for this particular example. "
INCOMPLETE = "This is an example of the task, though some input or output fields are not supplied."


def dspy(state: Mapping[str, Any], draft: Draft) -> tuple[str, Items]:
    """The head of a template, and what ChatAdapter writes for a saved predictor. Raises `UsageError` if it has no
    input or no output."""
    signature, demos = state["signature"], state.get("demos")
    fields = signature.get("fields") if isinstance(signature, Mapping) else None
    if not isinstance(fields, list) or len(fields) < 2 or not all(isinstance(field, Mapping) for field in fields):
        raise UsageError(
            "the saved signature has no input and output", "save the program again: program.save('x.json')"
        )
    task, demos = cleandoc(str(signature.get("instructions") or "")), demos if isinstance(demos, list) else []
    names = [_name(field, demos, draft) for field in fields]
    items: Items = []
    inputs = _inputs(names, task, draft, items)
    outputs = names[len(inputs) :]
    if demos:
        draft.notes.append(f"{counted(len(demos), 'demo')} of the file left out: index them as a pool")
    draft.notes.append("DSPy does not save the types of fields: all are written as text")
    draft.input = draft.input or first(INPUTS, inputs) or inputs[0]
    draft.given, draft.output, draft.loops = draft.input, outputs[-1], True
    about = [str(field.get("description") or "") for field in fields]
    said = [(name, "" if text == f"${{{name}}}" else text) for name, text in zip(names, about, strict=True)]
    system = _system(said, inputs, task)
    asked: list[str] = []
    for name in inputs:
        try:
            value = Tag(f"{{{{ {draft.query(name)} }}}}")
        except Untranslatable as error:
            value = draft.todo(str(error))
        asked += [_header(name), value, "\n\n"]
    then = ", then ".join(f"`[[ ## {name} ## ]]`" for name in outputs)
    asked.append(
        f"Respond with the corresponding output fields, starting with the field {then}, and then ending with the "
        "marker for `[[ ## completed ## ]]`."
    )
    answer = json.dumps(f"{_header(outputs[-1])}{{{{ output }}}}\n\n[[ ## completed ## ]]\n")
    head = ["+++", f"answer = {answer}", *["reasons = true"] * (len(outputs) > 1), "+++\n"]
    items += [Turn("system", [checked(system)]), *_demos(inputs, outputs, draft), Turn("user", asked)]
    return "\n".join(head), items


def _system(fields: Sequence[tuple[str, str]], inputs: Sequence[str], task: str) -> str:
    def listed(some: Sequence[tuple[str, str]]) -> str:
        return "\n".join(f"{i}. `{name}` (str): {about}" for i, (name, about) in enumerate(some, 1)).strip()

    objective = "\n        ".join(["", *dedent(task).splitlines()])
    return (
        f"Your input fields are:\n{listed(fields[: len(inputs)])}\n"
        f"Your output fields are:\n{listed(fields[len(inputs) :])}\n"
        "All interactions will be structured in the following way, with the appropriate values filled in.\n\n"
        + "".join(f"{_header(name)}{{{name}}}\n\n" for name, _ in fields)
        + f"[[ ## completed ## ]]\nIn adhering to this structure, your objective is: {objective}"
    )


def _header(name: str) -> str:
    return f"[[ ## {name} ## ]]\n"


def _name(field: Mapping[str, Any], demos: Sequence[object], draft: Draft) -> str:
    """The name of a saved field, which is in its description, if that is the usual one, or in a demo; else its prefix
    says it, but for digits and capitals."""
    if usual := re.fullmatch(r"\$\{(\w+)\}", str(field.get("description"))):
        return usual[1]
    prefix = str(field.get("prefix") or "").rstrip(": ")
    for demo in demos:
        for name in demo if isinstance(demo, Mapping) else ():
            if _bare(name) == _bare(prefix) and re.fullmatch(r"[A-Za-z_]\w*", name):
                return str(name)
    said = re.sub(r"\W+", "_", prefix).strip("_").lower()
    if not re.fullmatch(r"[a-z_]\w*", said):
        raise UsageError(f"a field of the saved signature has no name: {str(field)[:80]}", "save the program again")
    draft.notes.append(f"DSPy does not save the names of fields; '{prefix}' is taken for {said}")
    return said


def _bare(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _inputs(names: Sequence[str], task: str, draft: Draft, items: Items) -> list[str]:
    """The fields that are inputs: DSPy does not save which they are."""
    usual = re.fullmatch(r"Given the fields (.*), produce the fields (.*)\.", task)
    said = re.findall(r"`(\w+)`", usual[1]) if usual else []
    if said and list(names[: len(said)]) == said:
        return said
    if "reasoning" in names[1:]:
        return list(names[: names.index("reasoning")])
    if len(names) > 2:
        items.append(
            draft.todo(f"DSPy does not save which fields are outputs; is it {names[-1]} alone? Else correct this")
        )
    return list(names[:-1])


def _demos(inputs: Sequence[str], outputs: Sequence[str], draft: Draft) -> Items:
    """The demonstrations: first those that lack a field, then the others."""
    sure = {draft.given, draft.output, "context", "options"}
    unsure = [name for name in (*inputs, *outputs) if name not in sure]

    def text(names: Sequence[str], optional: bool) -> list[str]:
        pieces: list[str] = []
        for name in names:
            field = "shot.output" if name == draft.output else draft.shot("shot", name)
            may = optional and name in unsure
            if name in outputs and may:
                field += f" | default({json.dumps(MISSING)})"
            shown = [_header(name), Tag(f"{{{{ {field} }}}}"), "\n\n"]
            if name in inputs and may:
                shown = [Tag(f"{{% if {field} is defined %}}"), *shown, Tag("{% endif %}")]
            pieces += shown
        return pieces

    def turns(optional: bool) -> Items:
        # what DSPy strips off ends, it strips off texts that begin with a marker
        trimmed = [
            [Tag("{% filter trim %}"), *pieces, Tag("{% endfilter %}")]
            for pieces in (text(inputs, optional), text(outputs, optional))
        ]
        lead = [INCOMPLETE, "\n\n"] if optional else []
        return [Turn("user", [*lead, *trimmed[0]]), Turn("assistant", [*trimmed[1], "\n\n[[ ## completed ## ]]\n"])]

    if not unsure:
        return [SHOTS, *turns(False), END]
    whole = " and ".join(f"shot.{name} is defined" for name in unsure)
    return [
        Tag(f"{{% for shot in shots if not ({whole}) %}}"), *turns(True), END,
        Tag(f"{{% for shot in shots if {whole} %}}"), *turns(False), END,
    ]  # fmt: skip
