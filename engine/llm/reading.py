"""Reading the answer from an LLM's reply.

A chat LLM often writes more than requested: further lines, headers and uncertainty scores of its prompt, a text cut off
at the token limit. Replies are stored unchanged in the call cache; this module extracts the answer for all parts that
call an LLM.
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
"""The headers of documents, examples and rounds; the first word may be missing."""
_CUE = re.compile(rf"^\s*(?:(?:Final )?{CUE.rstrip(':')}|A)\s*:\s*", re.IGNORECASE)


def read_all(requests: Sequence[Request], results: Sequence[Result]) -> list[Result]:
    """The results in order, each answer after `read`."""
    return [
        read(request, result) if isinstance(result, Answer) else result
        for request, result in zip(requests, results, strict=True)
    ]


def read(request: Request, answer: Answer) -> Answer:
    """The intended answer, with only its own tokens.

    In tasks with one-line answers: the first line with content, without the cue, the prefix of answers, headers and
    scores repeated from the prompt. ``usable`` is then false if nothing is left, if the text was cut off at the token
    limit, if it began by repeating the prompt's headers, or if it names none of the prompt's choices.
    """
    if answer.option_logprobs:
        return answer
    prompt = request.prompt
    text, ended = answer.text.strip(), False
    if prompt.one_line:
        text, ended = _first_line(text, prompt)
    text, echoed = _without_echoes(text, prompt)
    finish = "stop" if ended else answer.finish
    named = not prompt.choices or choice_of(text, prompt.choices) is not None
    usable = bool(text) and named and not echoed and (bool(prompt.choices) or finish != "length")
    return _cut(replace(answer, finish=finish, usable=usable), text)


def _first_line(text: str, prompt: Prompt) -> tuple[str, bool]:
    """The first line with more than the answer cue, and whether others follow."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if _without_cue(line, prompt).strip():
            return line.strip(), i + 1 < len(lines)
    return "", False


def _without_echoes(text: str, prompt: Prompt) -> tuple[str, bool]:
    """The text without repeated prompt layout, and whether it began with a header."""
    text = _without_cue(text, prompt)
    if not (prompt.earlier or prompt.document_scores or prompt.shot_scores or prompt.numbered):
        return text.strip(), False
    bare = _HEADER.sub("", text)
    return _SCORE.sub("", bare).strip(), bare != text


def _without_cue(text: str, prompt: Prompt) -> str:
    """The text without the answer cue and without the template's prefix of answers, each only at its beginning."""
    text = _CUE.sub("", text)
    prefix = prompt.cue.removeprefix(CUE).strip()
    if not prefix:
        return text
    end = r"(?!\w)" if prefix[-1].isalnum() else ""  # "The answer isn" does not repeat "The answer is"
    return re.sub(rf"^\s*{re.escape(prefix)}{end}\s*:?\s*", "", text, count=1, flags=re.IGNORECASE)


def _cut(answer: Answer, text: str) -> Answer:
    """The answer with this part of its text, and the tokens of this part."""
    if text == answer.text:
        return answer
    whole = "".join(answer.tokens)
    start = whole.find(text) if text else -1
    if start < 0:  # bytes that do not decode to text, or a score removed from the middle: all tokens are kept
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
