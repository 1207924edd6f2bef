"""What is done beside the rounds: documents that are the steps of the LLM's own reasoning (paper 001, section 5.4,
tables 7 and 12), a baseline in the manner of Self-RAG, whose cost the paper compares with its own (A.3, table 9), and
whether the LLM looks at the relevant documents while it answers (figure 6 and table 10).

Steps: the LLM first writes its reasoning. Each step is then scored like a document, by the answer given with this step
alone, and the rounds show the steps with their scores. The answer is what follows the final cue.

Critique: each document is read alone and answered from; the same LLM then judges whether the document is relevant to
the question and whether it supports the answer. The answer of the best document is final. Self-RAG itself (Asai et al.
2023) fine-tunes an LLM that writes its critique as special tokens, and retrieves on demand; here both judgements are
questions, each with two options.

Attention: only of local models, whose attention is known, before and after the first calibration; computed, not asked,
and not cached.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import fmean

from ...base.errors import LLMError
from ...base.progress import Event
from ...llm import loop
from ...llm.client import LLMClient
from ...llm.types import Answer, Attends, Looked, Result
from ...pool.choices import choice_of
from ...pool.prompts import Prompt, cued
from ...pool.records import Message
from ...prompting.template import opening_of, question_of
from .prompts import STEPS_CUE, Case, Document, Frame
from .results import AttentionFigures
from .rounds import QueryRounds

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
    question = f"{question_of(frame.template, case.query, frame.task)}\n{REASONING_CUE}"
    opening = opening_of(frame.template, case.query, frame.task, EXPLAIN)
    messages = (Message("system", opening), Message("user", question))
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


TASK = "attention"
DEPTHS = (2, 5)
"""The k of R10@k."""
ROUNDS = (0, 1)
"""Before and after the first calibration."""


def check_attention(llm: LLMClient) -> Attends:
    """The backend, or `LLMError` if it cannot tell where it looks."""
    if not isinstance(llm.backend, Attends):
        raise LLMError(f"{llm.name} does not tell where it looks", "--llm hf:PATH or smollm2, or without --attention")
    return llm.backend


def attention_figures(llm: LLMClient, all_rounds: Sequence[QueryRounds]) -> AttentionFigures:
    """Recall at k of documents ranked by the attention they get, over the queries with documents of known relevance
    that took the first calibration."""
    backend = check_attention(llm)
    calibrated = [
        rounds
        for rounds in all_rounds
        if len(rounds.rounds) > max(ROUNDS)
        and rounds.case.over == "documents"
        and {document.relevant for document in rounds.case.documents} >= {True, False}
    ]
    recalls: dict[int, list[tuple[float, ...]]] = {number: [] for number in ROUNDS}
    for done, query in enumerate(calibrated, 1):
        llm.monitor.check()
        relevant = [bool(document.relevant) for document in query.case.documents]
        texts = tuple(document.text for document in query.case.documents)
        looked = [Looked(query.rounds[number].prompt, query.rounds[number].answer, texts) for number in ROUNDS]
        shares = loop.submit(backend.attention(looked)).result()
        if all(shares):
            for number, seen in zip(ROUNDS, shares, strict=True):
                recalls[number].append(tuple(recall_at(seen or (), relevant, k) for k in DEPTHS))
        llm.monitor.report(Event(TASK, done, len(calibrated)))
    before, after = (_means(recalls[number]) for number in ROUNDS)
    return AttentionFigures(len(recalls[0]), before, after)


def recall_at(shares: Sequence[float], relevant: Sequence[bool], k: int) -> float:
    """The share of the relevant documents among the k with the largest shares; of equal ones the earlier first."""
    top = sorted(range(len(shares)), key=lambda i: -shares[i])[:k]
    return sum(relevant[i] for i in top) / sum(relevant)


def _means(recalls: Sequence[Sequence[float]]) -> Mapping[str, float]:
    columns = zip(*recalls, strict=True) if recalls else ([0.0] for _ in DEPTHS)
    return {str(k): fmean(values) for k, values in zip(DEPTHS, columns, strict=True)}


CHOICES = ("yes", "no")
INSTRUCTION = "Judge the document. Answer yes or no and nothing else."
PARTS = 3
"""Terms of a document's score, each in [0, 1] and of equal weight."""


def critique_prompts(case: Case, document: int, answer: str) -> tuple[Prompt, Prompt]:
    """Whether one of the case's documents is relevant to its question, and whether it supports ``answer``."""
    text, question = case.documents[document].text, case.query.input
    relevant = f"Document [1]: {text}\n\nQuestion: {question}\nIs the document relevant to the question?"
    supports = (
        f"Document [1]: {text}\n\nQuestion: {question}\nProposed answer: {' '.join(answer.split())}\n"
        "Does the document support the proposed answer?"
    )
    return _judgement(case, relevant), _judgement(case, supports)


def _judgement(case: Case, question: str) -> Prompt:
    messages = (Message("system", INSTRUCTION), Message("user", cued(question)))
    return Prompt(messages, case.query, (), CHOICES, numbered=True, one_line=True)


def share_of_yes(result: Result | None) -> float:
    """The probability of yes among the two options, or, if it was generated, 1 or 0; a failure is a no."""
    if not isinstance(result, Answer):
        return 0.0
    if result.option_logprobs:
        yes, no = (sum(option) for option in result.option_logprobs)
        return 1.0 / (1.0 + math.exp(min(no - yes, 700.0)))
    return float(choice_of(result.text, CHOICES) == CHOICES.index("yes"))


def best_document(
    uncertainties: Sequence[float | None], judgements: Sequence[tuple[Result | None, Result | None]]
) -> tuple[int, float] | None:
    """The document with the highest sum of its answer's certainty, relevance and support, and its uncertainty, one
    minus a third of that sum; None if no document was answered from."""
    scores = {
        i: 1.0 - uncertainty + share_of_yes(relevant) + share_of_yes(supports)
        for i, (uncertainty, (relevant, supports)) in enumerate(zip(uncertainties, judgements, strict=True))
        if uncertainty is not None
    }
    if not scores:
        return None
    best = max(scores, key=lambda i: scores[i])
    return best, 1.0 - scores[best] / PARTS
