"""From a query and its demonstrations to what the LLM reads.

A template is a text with a head. The built-in ones lie beside this module; `auto` writes the formats of paper 000,
table 5: ``Q-A`` (question), ``QO-A`` (question and options), ``SQO-A`` (statement, question and options).
"""

from __future__ import annotations

import hashlib
import json
import re
import string
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from ..base.errors import UsageError
from ..pool.prompts import AnswerForm, Order, Prompt, instruction_of, system_prompt
from ..pool.records import Demonstration, Message, Query, Task, untold
from .sandbox import Compiled, compiled

FORMATS: Mapping[str, str] = {
    "Q-A": "Question: {input}",
    "QO-A": "Question: {input}\nOptions:\n{options}",
    "SQO-A": "Statement: {context}\nQuestion: {input}\nOptions:\n{options}",
    "SQ-A": "Statement: {context}\nQuestion: {input}",
}
"""How `auto` writes a question, if not by the fields that each row has."""
FIELDS: Mapping[str, str] = {
    "context": "{{ q.context }}", "input": "{{ q.input }}", "options": "{{ q.options | lettered }}",
}  # fmt: skip
OPEN = Task("open")
BUILT_IN = Path(__file__).parent / "templates"


class Template(Protocol):
    """What turns a query and its demonstrations into turns.

    ``digest`` names its text, ``form`` says how it writes an answer, ``cue`` what every question ends with. ``stop``:
    texts that end an answer. ``reads``: the fields that a query must have; ``optional``: those that it may have.
    ``reasons``: the LLM writes more before its answer, so options cannot be scored. ``marks``: it shows the scores of
    calibration rounds.
    """

    @property
    def digest(self) -> str: ...
    @property
    def form(self) -> AnswerForm: ...
    @property
    def cue(self) -> str: ...
    @property
    def stop(self) -> tuple[str, ...]: ...
    @property
    def reads(self) -> frozenset[str]: ...
    @property
    def optional(self) -> frozenset[str]: ...
    @property
    def reasons(self) -> bool: ...
    @property
    def marks(self) -> bool: ...

    def render(
        self, query: Query, shots: Sequence[Demonstration], task: Task, marks: Sequence[str] = (), earlier: str = ""
    ) -> tuple[Message, ...]:
        """The turns for ``query`` with ``shots`` in the order in which they are read, each after its mark, if any;
        ``earlier``: what follows the question. Raises `UsageError` if that fails."""


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before a template's text, see `Template`."""

    form: AnswerForm = AnswerForm()
    cue: str = ""
    stop: tuple[str, ...] = ()
    reasons: bool = False
    about: str = ""


KINDS = {str: "a text", list: 'a list of texts, such as ["</team>"]', bool: "true or false"}
_FENCED = re.compile(r"\A\+\+\+\r?\n(.*?)^\+\+\+[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_OUTPUT = re.compile(r"\{\{\s*output\s*(\|\s*tojson\s*)?\}\}")


@lru_cache(maxsize=64)
def parted(source: str) -> tuple[Head, str]:
    """The head of a template and its text. Raises `UsageError` if the head is malformed."""
    fix = "write it as TOML between two lines of +++, with the keys about, answer, cue, stop, reasons"
    if not (fenced := _FENCED.match(source)):
        if source.startswith(("+++\n", "+++\r\n")):
            raise UsageError("the head of the template has no end: a second line of +++", fix)
        return Head(), source
    try:
        values = tomllib.loads(fenced[1])
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the head of the template: {error}", fix) from error
    kinds = {"about": str, "answer": str, "cue": str, "stop": list, "reasons": bool}
    for name, value in values.items():
        if name not in kinds:
            raise UsageError(f"the head of the template has an unknown key {name!r}", fix)
        texts = value if isinstance(value, list) else ["…"]
        if type(value) is not kinds[name] or not all(type(text) is str and text for text in texts):
            kind = KINDS[kinds[name]]
            raise UsageError(f"the head of the template: {name} is {value!r}, not {kind}", fix)
    form = answer_form(values.get("answer", "{{ output }}"), "the head of the template: answer", fix)
    given = {name: values[name] for name in ("about", "cue", "reasons") if name in values}
    head = Head(form, stop=tuple(values.get("stop", ())), **given)
    return head, source[fenced.end() :]


def answer_form(text: str, what: str, fix: str) -> AnswerForm:
    """The form that a text with one ``{{ output }}`` says. Raises `UsageError` for any other."""
    places = list(_OUTPUT.finditer(text))
    if len(places) != 1:
        raise UsageError(f"{what} is {text!r}, without one {{{{ output }}}}", fix)
    return AnswerForm(text[: places[0].start()], text[places[0].end() :], bool(places[0][1]))


_QUESTION = re.compile(r"(?<={% macro question\(q\) %}\n).*?(?={% endmacro %})", re.DOTALL)


@lru_cache(maxsize=64)
def built_in(name: str, question: str = "auto") -> str:
    """The text of a built-in template, of `auto` with another ``question``: a name in `FORMATS`, or a text with the
    fields ``{input}``, ``{options}`` and ``{context}``. Raises `UsageError` if there is no such template, or if that is
    malformed or lacks the input."""
    if name not in names():  # a lock says it, and a path would be that of any file
        raise UsageError(f"there is no built-in template {name!r}", f"use one of: {', '.join(names())}")
    source = (BUILT_IN / f"{name}.jinja").read_text(encoding="utf-8")
    if question == "auto":
        return source
    try:
        parts = [(text, name) for text, name, _, _ in string.Formatter().parse(FORMATS.get(question, question))]
    except ValueError as error:
        raise UsageError(f"the prompt format is malformed: {error}", "write literal braces as {{ and }}") from error
    given = {name for _, name in parts if name is not None}
    if strange := given - FIELDS.keys():
        raise UsageError(
            f"the prompt format names unknown field(s): {', '.join(sorted(strange)) or '(empty)'}",
            f"use a name ({', '.join(['auto', *FORMATS])}) or the fields {{input}}, {{options}}, {{context}}",
        )
    if "input" not in given:
        raise UsageError("the prompt format lacks {input}", "add {input} where the question goes")
    # as strings of Jinja's: nothing in the text of a format is a tag
    written = "".join(
        f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}" * bool(text) + FIELDS.get(name or "", "")
        for text, name in parts
    )
    return _QUESTION.sub(lambda _: written, source)


def names() -> list[str]:
    """The built-in templates."""
    return sorted(path.stem for path in BUILT_IN.glob("*.jinja"))


@dataclass(frozen=True, slots=True)
class FileTemplate:
    """A template by its text: a head of TOML between lines of ``+++``, and Jinja with roles as tags (`sandbox`).

    ``instruction`` opens the prompt, with ``{labels}`` where the labels go; empty means that of the task.
    ``answer_prefix`` comes before every answer ("The answer is" in paper 000).
    """

    source: str = built_in("auto")
    instruction: str = ""
    answer_prefix: str = ""

    @property
    def digest(self) -> str:
        parts = [self.source, self.instruction, self.answer_prefix]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=6).hexdigest()

    @property
    def form(self) -> AnswerForm:
        return self._head.form

    @property
    def cue(self) -> str:
        return self._head.cue.replace("{{ answer_prefix }}", self.answer_prefix).rstrip()

    @property
    def stop(self) -> tuple[str, ...]:
        return self._head.stop

    @property
    def reasons(self) -> bool:
        return self._head.reasons

    @property
    def reads(self) -> frozenset[str]:
        return self._program.needs - OWN

    @property
    def optional(self) -> frozenset[str]:
        return self._program.optional - OWN

    @property
    def marks(self) -> bool:
        return bool({"mark", "opening"} & self._program.uses) and "earlier" in self._program.uses

    def render(
        self, query: Query, shots: Sequence[Demonstration], task: Task, marks: Sequence[str] = (), earlier: str = ""
    ) -> tuple[Message, ...]:
        instruction = instruction_of(task, self.instruction)
        system = _system(query, shots, task) or instruction
        cue, visible = self.cue, self.reads | self.optional  # what was checked, and nothing else
        fields = {name: value for name, value in untold(query.fields).items() if name in visible}
        values = {
            "query": _seen(query, system, earlier=earlier, fields=fields),
            "shots": [
                _seen(shot, system, mark, fields=shot.metadata)
                | {"id": shot.id, "source": shot.source, "output": shot.output, "mark": mark}
                | {"answer": self.form.write(shot.output)}
                for shot, mark in zip(shots, marks or [""] * len(shots), strict=True)
            ],
            "labels": task.labels, "options": query.options, "instruction": instruction, "system": system, "cue": cue,
            "answer_prefix": self.answer_prefix,
        }  # fmt: skip
        turns = self._program.render(values)
        if not any(turn.role in ("user", "tool") for turn in turns) or turns[0].role == "assistant":
            raise UsageError(
                "the template begins with an answer, or asks nothing", "{% user %}{{ query.input }}{% enduser %}"
            )
        return turns

    @property
    def _head(self) -> Head:
        return parted(self.source)[0]

    @property
    def _program(self) -> Compiled:
        text = parted(self.source)[1]
        return compiled(text, self.source[: len(self.source) - len(text)].count("\n"))


OWN = frozenset({"input", "context", "options", "turns", "system", "earlier"})
"""What every query has."""


def _seen(
    row: Query | Demonstration, system: str, mark: str = "", earlier: str = "", *, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """What a template sees of a query or demonstration: its ``fields``, what every one has, and ``turns``, what was
    said before and the question. A system prompt of its own, unless it is ``system``, opens the first of them."""
    own = system_prompt(row)
    question = {"input": row.input, "context": row.context, "options": row.options, "earlier": earlier}
    bare = {"role": "user", "context": "", "options": (), "earlier": "", "opening": ""}
    turns = [
        bare | {"role": turn.role, "input": turn.content, "content": turn.content}
        for turn in row.history or ()
        if turn.role in ("user", "assistant", "tool")
    ]
    turns.append(bare | question | {"content": row.input})
    turns[0]["opening"] = mark + (f"{own}\n\n" if own and own != system else "")
    return {**fields, **question, "system": own, "turns": turns}


def _system(query: Query, shots: Sequence[Demonstration], task: Task) -> str:
    """The system prompt that the query came with, else, where answers call tools, one that all demonstrations have: it
    names the tools."""
    if (own := system_prompt(query)) or task.form != "calls":
        return own
    shared = {system_prompt(shot) for shot in shots}
    return shared.pop() if len(shared) == 1 else ""


AUTO = FileTemplate()


def question_of(template: Template, query: Query, task: Task = OPEN) -> str:
    """The query as the LLM reads it, for other prompts: without demonstrations, what was said before, and the cue."""
    turns = template.render(replace(query, history=None), (), task)
    turn = next(turn for turn in reversed(turns) if turn.role != "assistant")  # an assistant's is the prefill
    return turn.content.removesuffix(template.cue).removesuffix("\n")


def opening_of(template: Template, query: Query, task: Task, default: str = "") -> str:
    """The system prompt of a query without a conversation. Where the template has none, or only the instruction of the
    task, it is the ``default`` or that instruction."""
    turns = template.render(replace(query, history=None), (), task)
    usual = instruction_of(task)
    opening = next((turn.content for turn in turns if turn.role in ("system", "developer")), usual)
    return default if default and opening == usual else opening


def build_prompt(
    query: Query,
    best_first: Sequence[Demonstration],
    task: Task,
    template: Template = AUTO,
    order: Order = "best-last",
    marks: Sequence[str] = (),
    earlier: str = "",
) -> Prompt:
    """The prompt for ``query`` with demonstrations given best first and placed by ``order``, each after its mark.

    Earlier turns of a conversation are turns of the prompt. The system prompt is that of the query, if it came with
    one, else the instruction.
    """
    shown = tuple(best_first if order == "best-first" else reversed(best_first))
    placed = marks if order == "best-first" else marks[::-1]
    messages = template.render(query, shown, task, placed, earlier)
    one_line = task.one_line and "\n" not in template.form.before + template.form.after
    return Prompt(messages, query, shown, task.choices(query), one_line=one_line, cue=template.cue, form=template.form,
                  reasons=template.reasons, stop=template.stop)  # fmt: skip


def fit_prompt(
    query: Query,
    best_first: Sequence[Demonstration],
    build: Callable[[Query, Sequence[Demonstration]], Prompt],
    count_tokens: Callable[[Prompt], int],
    limit: int | None,
) -> tuple[Prompt, int]:
    """The longest prompt within ``limit`` tokens, dropping the weakest demonstrations first.

    Returns the prompt and the number of dropped demonstrations. If the query alone is too long, it is returned without
    demonstrations; the LLM then refuses it with an error.
    """
    given = len(best_first)
    prompt = build(query, best_first)
    if limit is None or count_tokens(prompt) <= limit:
        return prompt, 0
    # token counts grow with the number of shots
    kept = largest(given - 1, lambda shots: count_tokens(build(query, best_first[:shots])) <= limit)
    return build(query, best_first[:kept]), given - kept


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest size up to ``most`` that fits, if smaller ones do too, by bisection; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
