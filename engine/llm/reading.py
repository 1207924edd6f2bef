"""From what an LLM wrote to its answer.

A chat LLM writes more than it was asked for: further lines, the headers and uncertainty scores of its prompt, a text
that ends where its tokens ran out. Answers are kept in the call cache as they came; what is read out of them is
decided here, for every part that asks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..pool.answers import choice_of
from ..pool.prompts import CUE, Prompt
from .types import Answer, Request, Result

_SCORE = re.compile(r"\s*\(?\s*Uncertainty Score:\s*\d*\s*\)?", re.IGNORECASE)
_HEADER = re.compile(
    r"^\s*(?:(?:Document|Example|Round)\s*[\[(]*\d+[\])]*\s*:?|[\[(]*\d+[\])]+\s*:|Previous Generated Answers?:?)\s*",
    re.IGNORECASE,
)
"""What opens documents, examples and rounds; the first word may be missing."""
_CUE = re.compile(rf"^\s*(?:{CUE.rstrip(':')}|A)\s*:\s*", re.IGNORECASE)


def read_all(requests: Sequence[Request], results: Sequence[Result]) -> list[Result]:
    """The results in order, each answer as `read` gives it."""
    return [
        read(request, result) if isinstance(result, Answer) else result
        for request, result in zip(requests, results, strict=True)
    ]


def read(request: Request, answer: Answer) -> Answer:
    """The answer that was meant, with its own tokens alone.

    Of a one-line task the first line that says something; without the cue, headers and scores of the prompt that it
    repeats. ``usable`` is then false where nothing is left, where the text was cut off by the limit of tokens, where
    it began by repeating the prompt's headers, or where it names none of the prompt's choices.
    """
    if answer.option_logprobs:
        return answer
    prompt = request.prompt
    text, ended = answer.text.strip(), False
    if prompt.one_line:
        text, ended = _first_line(text)
    text, echoed = _without_echoes(text, prompt)
    finish = "stop" if ended else answer.finish
    named = not prompt.choices or choice_of(text, prompt.choices) is not None
    usable = bool(text) and named and not echoed and (bool(prompt.choices) or finish != "length")
    return _cut(replace(answer, finish=finish, usable=usable), text)


def _first_line(text: str) -> tuple[str, bool]:
    """The first line with more than the answer cue, and whether others follow."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if _CUE.sub("", line).strip():
            return line.strip(), i + 1 < len(lines)
    return "", False


def _without_echoes(text: str, prompt: Prompt) -> tuple[str, bool]:
    """The text without what it repeats of the prompt's layout, and whether it began with a header."""
    text = _CUE.sub("", text)
    if not (prompt.earlier or prompt.document_scores or prompt.shot_scores or prompt.numbered):
        return text.strip(), False
    bare = _HEADER.sub("", text)
    return _SCORE.sub("", bare).strip(), bare != text


def _cut(answer: Answer, text: str) -> Answer:
    """The answer with this part of its text, and the tokens that make it up."""
    if text == answer.text:
        return answer
    whole = "".join(answer.tokens)
    start = whole.find(text) if text else -1
    if start < 0:  # bytes that make no text, or a score taken out of the middle: all tokens stay
        return replace(answer, text=text)
    kept, place = [], 0
    for i, token in enumerate(answer.tokens):
        if place < start + len(text) and place + len(token) > start:
            kept.append(i)
        place += len(token)
    return replace(
        answer,
        text=text,
        tokens=tuple(answer.tokens[i] for i in kept),
        logprobs=tuple(answer.logprobs[i] for i in kept) if answer.logprobs else (),
        entropies=tuple(answer.entropies[i] for i in kept) if answer.entropies else (),
    )
