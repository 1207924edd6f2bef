"""Documents that are the steps of the LLM's own reasoning (paper 001, section 5.4, tables 7 and 12).

The LLM first writes its reasoning. Each step is then scored like a document, by the answer given with this step alone,
and the rounds show the steps with their scores. The answer is what follows the final cue.
"""

from __future__ import annotations

import re

from ..pool.prompts import Prompt, instruction_for
from ..pool.records import Message
from .prompts import STEPS_CUE, Case, Document, Frame

REASONING_CUE = "Reasoning Steps and Final Answer:"
EXPLAIN = "Explain your reasoning and give a final answer for the given question. Write one step a line."
REASONING_TOKENS = 256
"""Least number of tokens that a reasoning may have."""
MOST_STEPS = 12
"""Maximum steps that are scored; further ones stay part of the last."""
USUAL_STEPS = 5
"""Steps that an estimate of the cost counts for a query whose reasoning is not known yet."""

_FINAL = re.compile(r"(?im)^\W*(?:the\s+)?final answer\b.*|^\W*answer\s*:.*|####.*")
_NUMBER = re.compile(r"^\s*(?:(?:step\s*)?\d+\s*[.:)]|[-*•])\s*", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=\S)")


def reasoning_prompt(case: Case, frame: Frame) -> Prompt:
    """Asks for the reasoning, over as many lines as it takes."""
    question = f"{frame.template.question(case.query)}\n{REASONING_CUE}"
    messages = (Message("system", instruction_for(frame.task, frame.template, EXPLAIN)), Message("user", question))
    return Prompt(messages, case.query)


def steps_of(reasoning: str) -> list[Document]:
    """The steps before the final answer: the lines, or, of a single line, the sentences."""
    before = _FINAL.split(reasoning, maxsplit=1)[0]
    lines = [_NUMBER.sub("", line).strip() for line in before.splitlines()]
    lines = [line for line in lines if line and line not in (STEPS_CUE, REASONING_CUE)]
    if len(lines) == 1:
        lines = [part for sentence in _SENTENCE.split(lines[0]) if (part := sentence.strip())]
    if len(lines) > MOST_STEPS:
        lines[MOST_STEPS - 1 :] = [" ".join(lines[MOST_STEPS - 1 :])]
    return [Document(str(number), line) for number, line in enumerate(lines, 1)]
