"""Prompts of calibration rounds: documents or demonstrations and earlier answers, each with its score.

The layout is that of paper 001, table 1. The first answer is called "Round 1" there, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...pool.prompts import CUE, EarlierAnswer, Order, Prompt, cued
from ...pool.records import Demonstration, Message, Query, Task
from ...prompting.template import AUTO, FileTemplate, Template, build_prompt, opening_of, question_of

Over = Literal["documents", "demonstrations", "steps"]
OVERS: tuple[Over, ...] = ("documents", "demonstrations", "steps")

STEPS_CUE = "Reasoning Steps:"
CONCLUDE = "Give the final answer to the question after its reasoning steps: a few words or a number, and nothing else."


@dataclass(frozen=True, slots=True)
class Document:
    """Something an answer may be based on: a block of the query's context, a demonstration of the pool, or a step of
    the LLM's reasoning.

    ``relevant`` is None if it is not known whether it helps.
    """

    id: str
    text: str
    relevant: bool | None = None
    demonstration: Demonstration | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A query and its documents; demonstrations are sorted best first.

    With documents, the query's ``context`` is their text, separated by blank lines.
    """

    query: Query
    documents: tuple[Document, ...]
    over: Over


@dataclass(frozen=True, slots=True)
class Frame:
    """What all prompts of a run share."""

    task: Task
    template: Template = AUTO
    order: Order = "best-last"


def first_prompt(case: Case, frame: Frame) -> Prompt:
    """Round 0: everything, without scores. With demonstrations this is the same prompt as in `preview`, if the template
    shows scores; else all rounds have the layout of the paper."""
    return round_prompt(case, frame)


def alone_prompt(case: Case, frame: Frame, document: int) -> Prompt:
    """The query with one of its documents."""
    return round_prompt(with_documents(case, case.documents[document : document + 1]), frame)


def round_prompt(
    case: Case, frame: Frame, scores: Sequence[int | None] = (), earlier: Sequence[EarlierAnswer] = ()
) -> Prompt:
    """The case with the ``scores`` of its documents, in their order, and the ``earlier`` answers with theirs."""
    if case.over == "demonstrations":
        return _over_demonstrations(case, frame, tuple(scores), tuple(earlier))
    query, task, template, over_steps = case.query, frame.task, frame.template, case.over == "steps"
    marks = [_mark(score) for score in scores] or [""] * len(case.documents)
    documents = [(mark, document.text) for mark, document in zip(marks, case.documents, strict=True)]
    if over_steps:  # and the cue for the final answer (table 12)
        steps = [f"{i}. {text}{mark}" for i, (mark, text) in enumerate(documents, 1)]
        shown = [question_of(template, query, task), *([STEPS_CUE, *steps] if steps else [])]
        user = "\n".join(shown) + _previous(earlier) + f"\nFinal {template.cue or CUE}"
    else:
        question = question_of(template, replace(query, context=""), task) + _previous(earlier)
        shown = [f"Document [{i}]{mark}: {text}" for i, (mark, text) in enumerate(documents, 1)]
        user = cued("\n\n".join([*shown, question]), template.cue)
    opening = opening_of(template, query, task, CONCLUDE if over_steps else "")
    system = "\n".join([opening, *_scores_explained("step" if over_steps else "document", scores, earlier)])
    return Prompt(
        (Message("system", system), Message("user", user)),
        query,
        (),
        task.choices(query),
        document_scores=() if over_steps else tuple(scores),
        earlier=tuple(earlier),
        numbered=over_steps or bool(documents),
        one_line=over_steps or task.one_line,
        cue=template.cue,
        form=template.form,
    )


def _over_demonstrations(
    case: Case, frame: Frame, scores: tuple[int | None, ...], earlier: tuple[EarlierAnswer, ...]
) -> Prompt:
    shots = [document.demonstration for document in case.documents if document.demonstration is not None]
    template = frame.template
    if not template.marks:
        template = FileTemplate(instruction=opening_of(template, case.query, frame.task))
    if not scores and not earlier:
        return build_prompt(case.query, shots, frame.task, template, frame.order)
    # numbers go up in the order in which the LLM reads the examples
    places = range(1, len(shots) + 1) if frame.order == "best-first" else range(len(shots), 0, -1)
    values = scores or (None,) * len(shots)
    marks = [f"Example [{i}]{_mark(score)}\n" for i, score in zip(places, values, strict=True)]
    prompt = build_prompt(case.query, shots, frame.task, template, frame.order, marks, _previous(earlier))
    messages = list(prompt.messages)
    opens = messages and messages[0].role in ("system", "developer")
    first = messages.pop(0) if opens else Message("system", "")
    told = [first.content] * bool(opens) + _scores_explained("example", scores, earlier)
    messages.insert(0, replace(first, content="\n".join(told)))
    shown = values if frame.order == "best-first" else values[::-1]
    return replace(prompt, messages=tuple(messages), shot_scores=shown, earlier=earlier, numbered=True)


def with_documents(case: Case, documents: Sequence[Document]) -> Case:
    """The case with other documents."""
    query = case.query
    if case.over == "documents":
        query = replace(query, context="\n\n".join(document.text for document in documents))
    return replace(case, query=query, documents=tuple(documents))


def _mark(score: int | None) -> str:
    """A score behind what it belongs to."""
    return "" if score is None else f" (Uncertainty Score: {score})"


def _previous(earlier: Sequence[EarlierAnswer]) -> str:
    """The lines with earlier answers, which begin on a line of their own."""
    if not earlier:
        return ""
    lines = [f"Round {i}: {' '.join(each.answer.split())}{_mark(each.score)}" for i, each in enumerate(earlier, 1)]
    return "\n".join(["\nPrevious Generated Answer:", *lines])


def _scores_explained(name: str, scores: Sequence[int | None], earlier: Sequence[EarlierAnswer]) -> list[str]:
    """Lines that say what the scores and the earlier answers of a prompt mean."""
    lines = []
    if any(score is not None for score in scores):
        lines.append(
            f"The uncertainty score of each {name}, 0 to 100, says how far to trust it: the lower, the more likely it "
            "leads to the right answer."
        )
    if any(each.score is not None for each in earlier):
        lines.append(
            "Earlier answers stand below the question with their uncertainty scores, 0 to 100: the lower, the surer. "
            "Keep an answer that is right, correct one that is wrong."
        )
    elif earlier:
        lines.append(
            "Earlier answers stand below the question. Keep an answer that is right, correct one that is wrong."
        )
    return lines
