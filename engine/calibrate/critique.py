"""A baseline in the manner of Self-RAG (Asai et al. 2023), whose cost paper 001 compares with its own (A.3, table 9).

Each document is read alone and answered from; the same LLM then judges whether the document is relevant to the question
and whether it supports the answer. The answer of the best document is final. Self-RAG itself fine-tunes an LLM that
writes its critique as special tokens, and retrieves on demand; here both judgements are questions, each with two
options.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..llm.types import Answer, Result
from ..pool.choices import choice_of
from ..pool.prompts import Prompt, cued
from ..pool.records import Message
from .prompts import Case

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
