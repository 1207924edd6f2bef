"""Prompts as they are sent: the turns of a chat, or one text, and how the answer is written."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .records import Demonstration, Message, Query, Task
from .sets import NONE

Order = Literal["best-last", "best-first"]
ORDERS: tuple[Order, ...] = ("best-last", "best-first")

LETTERS = string.ascii_uppercase
CUE = "Answer:"
CUES = r"(?:\b(?:antwort|réponse|respuesta|resposta|risposta|ответ)\b|答案|答え|回答|정답|답|คำตอบ|ចម្លើយ)"
IS = r"(?:\b(?:ist|est|es|é|è)\b|[是为為は은는]|คือ|គឺ)"
"""What LLMs write for "answer" and "is" in other languages, as expressions."""
_BLANK_LINE = re.compile(r"\n\s*\n")
_LEAD = r"^[ \t*_#>]*(?:the\s+)?(?:final\s+)?"
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|\w+|\S')
"""Of JSON; between two there may be white space."""


def documents_of(context: str) -> tuple[str, ...]:
    """The documents of a context: its blocks between blank lines."""
    return tuple(block.strip() for block in _BLANK_LINE.split(context) if block.strip())


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


def instruction_of(task: Task, own: str = "") -> str:
    """What opens a prompt: the user's ``own`` instruction, its ``{labels}`` filled; else that of the task."""
    if own:
        return own.replace("{labels}", ", ".join(task.labels)) if task.labels else own
    if task.kind == "options":
        return "Answer each question with exactly one of its options, written out, and nothing else."
    if task.kind == "labels":
        return "Label each input with exactly one of these labels and nothing else:\n" + "\n".join(task.labels)
    if task.kind == "sets":
        which = "of these labels that apply" if task.labels else "labels that apply"
        opening = f'Label each input with all {which}, separated by commas, or with "{NONE}", and nothing else'
        return "\n".join([f"{opening}:", *task.labels]) if task.labels else f"{opening}."
    return INSTRUCTIONS.get(task.form, INSTRUCTIONS["short"])


def _is_structure(output: str) -> bool:
    """Whether an output is an object or a list of JSON, and nothing around it."""
    try:
        return output[:1] in ("{", "[") and output[-1:] in ("}", "]") and json.loads(output) is not None
    except (ValueError, RecursionError):
        return False


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How an output is written where an LLM answers, and found again in its reply: between ``before`` and ``after``,
    ``quoted`` as JSON: a string, or the object or list that the output is."""

    before: str = ""
    after: str = ""
    quoted: bool = False

    def as_json(self) -> dict[str, Any]:
        """What it says; a library's own way of reading is not in it."""
        return {"before": self.before, "after": self.after, "quoted": self.quoted}

    def write(self, output: str) -> str:
        quoted = self.quoted and not _is_structure(output)
        return f"{self.before}{json.dumps(output, ensure_ascii=False) if quoted else output}{self.after}"

    def read(self, reply: str) -> str:
        """The output in the last place that has this form, whose end may be missing; where none has its own case, at
        the beginning of a line in any case; the reply itself if none has. Between the signs of JSON there may be any
        white space."""
        before, after = self.before.rstrip(), self.after.strip()
        if not (before or after or self.quoted):
            return reply
        form = r"\s*".join(map(re.escape, _PIECE.findall(before) if self.quoted else [before])) or r"\A"
        if not (places := [*re.finditer(form, reply)] or [*re.finditer(_LEAD + form, reply, re.IGNORECASE | re.M)]):
            return reply
        rest = reply[places[-1].end() :]
        if self.quoted:
            try:
                value, end = json.JSONDecoder().raw_decode(rest := rest.lstrip())
            except (ValueError, RecursionError):
                return reply
            if isinstance(value, str):
                return value
            return rest[:end] if before or isinstance(value, dict | list) else reply
        if reply[: places[-1].end()].rpartition("\n")[2].count("**") % 2:  # **Answer:** x
            rest = rest.replace("**", "", 1)
        return (re.split(re.escape(after), rest, maxsplit=1, flags=re.IGNORECASE)[0] if after else rest).strip()


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
    ``read``: the reader of its answer, by name (`grading.readers`). ``form``: how an answer is written; ``stop``: texts
    that end it. ``reasons``: the LLM writes more before it, so choices are not scored. ``template``: the name of what
    wrote it.
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
    form: AnswerForm = AnswerForm()
    reasons: bool = False
    stop: tuple[str, ...] = ()
    template: str = "auto"

    @property
    def text(self) -> str:
        """The prompt as one text that ends where the answer begins."""
        parts: list[str] = []
        for message in self.messages:
            if message.role == "assistant":
                parts[-1] += f" {message.content}"
            elif message.role in ("system", "developer") or message.content.endswith(self.cue):
                parts.append(message.content)
            else:
                parts.append(cued(message.content, self.cue))
        return "\n\n".join(parts)

    def as_json(self) -> dict[str, Any]:
        """What a caller needs to send it and to read the reply: ``messages``, ``stop``, and what stands ``before`` and
        ``after`` an answer, which is ``quoted`` if it is written as JSON."""
        turns = [{"role": turn.role, "content": turn.content} for turn in self.messages]
        return {"messages": turns, "stop": list(self.stop), "answer": self.form.as_json()}

    @property
    def prefill(self) -> str:
        """The beginning of the answer, which the LLM goes on with."""
        return self.messages[-1].content if self.messages[-1].role == "assistant" else ""

    def scored(self, text: str, chat: bool) -> tuple[str, list[str]]:
        """Where each choice begins and what the LLM would write as it, after ``text``, this prompt in its own format.

        In a ``chat`` an answer is a turn, or goes on with the prefill. After one text it follows a blank, or what
        stands between question and answer in the demonstrations. Blanks at the end move in front of the choices: they
        are part of a choice's first token.
        """
        begun = self.prefill
        written = [self.form.write(choice) for choice in self.choices]
        if begun:  # as much of the form as the prefill ends with
            most = max((n for n in range(len(self.form.before) + 1) if begun.endswith(self.form.before[:n])), default=0)
            written = [option[most:] for option in written]
        if chat or begun:
            return text, written
        shown = text.rstrip()
        tail, outputs = shown.rpartition("\n")[2], [self.form.write(shot.output) for shot in self.demonstrations]
        near = any(tail and f"{tail}{output}" in text for output in outputs)  # "Team:billing"
        lead = text[len(shown) :] or ("" if near else " ")
        return shown, [lead + choice for choice in written]


def system_prompt(query: Query | Demonstration) -> str:
    """The system prompt that the query came with; empty if there is none."""
    return next((turn.content for turn in query.history or () if turn.role == "system"), "")


def cued(question: str, cue: str = CUE) -> str:
    """A question with the cue that asks for its answer. Without it, small chat LLMs continue the question."""
    return f"{question}\n{cue}" if cue else question
