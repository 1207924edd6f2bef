"""Prompts: from a query and its demonstrations to what the LLM reads.

Three formats after paper 000, table 5: ``Q-A`` (question), ``QO-A`` (question and options) and ``SQO-A`` (statement,
question and options). Chat LLMs get demonstrations as user/assistant turns, completion LLMs one text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..base.errors import UsageError
from .records import Demonstration, Message, Query, Task
from .sets import NONE

Order = Literal["best-last", "best-first"]
ORDERS: tuple[Order, ...] = ("best-last", "best-first")

LETTERS = string.ascii_uppercase
FIELDS = frozenset({"context", "input", "options"})
FORMATS: Mapping[str, str] = {
    "Q-A": "Question: {input}",
    "QO-A": "Question: {input}\nOptions:\n{options}",
    "SQO-A": "Statement: {context}\nQuestion: {input}\nOptions:\n{options}",
    "SQ-A": "Statement: {context}\nQuestion: {input}",
}
CUE = "Answer:"
_BLANK_LINE = re.compile(r"\n\s*\n")


def documents_of(context: str) -> tuple[str, ...]:
    """The documents of a context: its blocks between blank lines."""
    return tuple(block.strip() for block in _BLANK_LINE.split(context) if block.strip())


@dataclass(frozen=True, slots=True)
class Template:
    """How one question is written.

    ``format`` is a name in `FORMATS`, ``auto`` (chosen from the fields each row has) or a custom text with the fields
    ``{input}``, ``{options}`` and ``{context}``. ``instruction`` opens the prompt, with ``{labels}`` where the labels
    go; empty means the default instruction of the task. ``answer_prefix`` comes before every answer ("The answer is" in
    paper 000).
    """

    format: str = "auto"
    instruction: str = ""
    answer_prefix: str = ""

    @property
    def cue(self) -> str:
        """What asks for an answer: the text in front of each demonstration's output, and the end of the prompt."""
        return f"{CUE} {self.answer_prefix}".rstrip()

    def question(self, query: Query) -> str:
        """The query as the LLM reads it, without the answer cue."""
        pattern = FORMATS.get(self.format, self.format)
        if self.format == "auto":
            pattern = FORMATS[("S" if query.context else "") + ("QO" if query.options else "Q") + "-A"]
        return pattern.format(context=query.context, input=query.input, options=lettered(query.options))


def check_template(template: Template) -> Template:
    """The template itself, or `UsageError` when its format names a field that does not exist, or its prefix of answers
    has several lines."""
    if template.answer_prefix != template.answer_prefix.strip() or len(template.answer_prefix.splitlines()) > 1:
        raise UsageError(
            f"answer_prefix is {template.answer_prefix!r}", "use one line without blanks at its ends: The answer is"
        )
    if template.format == "auto" or template.format in FORMATS:
        return template
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(template.format) if name is not None}
    except ValueError as error:
        raise UsageError(f"the prompt format is malformed: {error}", "write literal braces as {{ and }}") from error
    if unknown := names - FIELDS:
        raise UsageError(
            f"the prompt format names unknown field(s): {', '.join(sorted(unknown)) or '(empty)'}",
            f"use a name ({', '.join(['auto', *FORMATS])}) or the fields {{input}}, {{options}}, {{context}}",
        )
    if "input" not in names:
        raise UsageError("the prompt format lacks {input}", "add {input} where the question goes")
    return template


def lettered(options: Sequence[str]) -> str:
    """Options one a line, as ``(A) text``; past the alphabet the number serves as the letter."""
    return "\n".join(f"({letter_of(i)}) {option}" for i, option in enumerate(options))


def letter_of(index: int) -> str:
    """The label of option ``index``: A … Z, then 27, 28, …"""
    return LETTERS[index] if index < len(LETTERS) else str(index + 1)


INSTRUCTIONS: Mapping[str, str] = {
    "short": "Answer each question with a few words and nothing else.",
    "long": "Answer each input in full, in the form and at the length of the examples, and write nothing else.",
    "code": "Answer each input with code in the form of the examples and nothing else.",
    "json": "Answer each input with one JSON value, with the same fields as in the examples, and nothing else.",
    "entities": 'Answer each input with a JSON list of its entities, [{"text": …, "type": …}], and nothing else.',
    "calls": (
        'Answer each input with a JSON list of the tool calls that it needs, [{"name": …, "arguments": {…}}], or [] if '
        "it needs none, and nothing else."
    ),
    "final": "Answer each question step by step, and end with #### and the final answer.",
    "boxed": "Answer each question step by step, and end with the final answer in \\boxed{}.",
}
"""What opens a prompt, by the form of open answers."""


def instruction_for(task: Task, template: Template = Template(), default: str = "") -> str:
    """What opens a prompt: the template's instruction, its ``{labels}`` filled; else the ``default``, or that of the
    task."""
    if template.instruction:
        return template.instruction.replace("{labels}", ", ".join(task.labels)) if task.labels else template.instruction
    if default:
        return default
    if task.kind == "options":
        return "Answer each question with exactly one of its options, written out, and nothing else."
    if task.kind == "labels":
        return "Label each input with exactly one of these labels and nothing else:\n" + "\n".join(task.labels)
    if task.kind == "sets":
        which = "of these labels that apply" if task.labels else "labels that apply"
        opening = f'Label each input with all {which}, separated by commas, or with "{NONE}", and nothing else'
        return "\n".join([f"{opening}:", *task.labels]) if task.labels else f"{opening}."
    return INSTRUCTIONS.get(task.form, INSTRUCTIONS["short"])


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """An earlier answer to the prompt's own question, and the uncertainty score (0 to 100) shown with it, if any."""

    answer: str
    score: int | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt to send, and its parts.

    ``demonstrations`` are in the order in which the LLM reads them. ``messages`` is the chat form, ending with the
    user's question; `text` is the same for a completion LLM. ``choices`` is the closed set of answers, empty for an
    open question. ``document_scores`` and ``shot_scores`` are the uncertainty scores (0 to 100, None: shown without
    one) of the query's documents and of the demonstrations, ``earlier`` the answers to the query so far; all three are
    empty outside calibration rounds. ``numbered``: its documents or examples have headers. ``one_line``: the answer is
    one line of text (see `Task`). ``cue``: what every question ends with (`Template.cue`).
    ``read``: the reader of its answer, by name (`grading.readers`).
    """

    messages: tuple[Message, ...]
    query: Query
    demonstrations: tuple[Demonstration, ...] = ()
    choices: tuple[str, ...] = ()
    document_scores: tuple[int | None, ...] = ()
    shot_scores: tuple[int | None, ...] = ()
    earlier: tuple[EarlierAnswer, ...] = ()
    numbered: bool = False
    one_line: bool = False
    cue: str = CUE
    read: str = "auto"

    @property
    def text(self) -> str:
        """The prompt as one text that ends where the answer begins."""
        parts: list[str] = []
        for message in self.messages:
            if message.role == "assistant":
                parts[-1] += f" {message.content}"
            elif message.role == "system" or message.content.endswith(self.cue):
                parts.append(message.content)
            else:
                parts.append(cued(message.content, self.cue))
        return "\n\n".join(parts)


def build_prompt(
    query: Query,
    best_first: Sequence[Demonstration],
    task: Task,
    template: Template = Template(),
    order: Order = "best-last",
) -> Prompt:
    """The prompt for ``query`` with demonstrations given best first and placed by ``order``.

    Earlier turns of a conversation are turns of the prompt. The system prompt is that of the query, if it came with
    one, else the instruction; where answers call tools, one that all demonstrations have: it names the tools.
    """
    shown = tuple(best_first if order == "best-first" else reversed(best_first))
    own = system_prompt(query)
    if not own and task.form == "calls" and len(shared := {system_prompt(shot.as_query()) for shot in shown}) == 1:
        (own,) = shared
    system = own or instruction_for(task, template)
    messages = [Message("system", system)]
    for demonstration in shown:
        messages += _turns(demonstration.as_query(), template, system)
        messages.append(Message("assistant", demonstration.output))
    messages += _turns(query, template, system)
    return Prompt(tuple(messages), query, shown, task.choices(query), one_line=task.one_line, cue=template.cue)


def system_prompt(query: Query) -> str:
    """The system prompt that the query came with; empty if there is none."""
    return next((turn.content for turn in query.history or () if turn.role == "system"), "")


def turns_of(demonstration: Demonstration) -> int:
    """How many messages of a prompt the demonstration takes."""
    return 2 + sum(turn.role != "system" for turn in demonstration.history or ())


def _turns(query: Query, template: Template, system: str) -> list[Message]:
    """What was said before the query, and the query. A system prompt of its own, unless it is ``system``, opens its
    first turn: a chat has one system prompt."""
    turns = []
    for turn in query.history or ():
        if turn.role == "user":
            turns.append(Message("user", cued(template.question(Query(turn.content)), template.cue)))
        elif turn.role == "assistant":
            turns.append(turn)
        elif turn.role == "tool":
            turns.append(Message("user", cued(f"Tool result: {turn.content}", template.cue)))
    turns.append(Message("user", cued(template.question(query), template.cue)))
    if (own := system_prompt(query)) and own != system:
        turns[0] = replace(turns[0], content=f"{own}\n\n{turns[0].content}")
    return turns


def cued(question: str, cue: str = CUE) -> str:
    """A question with the cue that asks for its answer. Without it, small chat LLMs continue the question."""
    return f"{question}\n{cue}"


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
    low, high = 0, given - 1  # token counts grow with the number of shots: the largest that fits, by bisection
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(build(query, best_first[:middle])) <= limit:
            low = middle
        else:
            high = middle - 1
    return build(query, best_first[: max(low, 0)]), given - max(low, 0)
