"""Reading the answer from an LLM's reply.

A chat LLM often writes more than requested: further lines, headers and uncertainty scores of its prompt, a text cut off
at the token limit. Replies are stored unchanged in the call cache; this module extracts the answer for all parts that
call an LLM.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, compress

from ..grading.readers import reader_named
from ..http.refusals import storable
from ..pool.choices import WHOLE, choice_at, choice_of
from ..pool.open_answers import after_thinking, final_of, unfenced
from ..pool.prompts import CUE, CUES, IS, Prompt
from .types import Answer, Request

_SCORE = re.compile(r"\s*\(?\s*Uncertainty Score:\s*\d*\s*\)?", re.IGNORECASE)
_ROUND = re.compile(r"^\s*(?:Previous Generated Answers?:?\s*|Round\s*[\[(]*\d+[\])]*\s*:\s*)+", re.IGNORECASE)
"""The headers of earlier answers: a quarter of what Qwen2.5-Coder-0.5B replies in rounds is an answer behind them."""
_HEADER = re.compile(r"^\s*(?:(?:Document|Example|Round)\s*[\[(]*\d+[\])]*\s*:?|[\[(]*\d+[\])]+\s*:)\s*", re.IGNORECASE)
"""Those of documents and examples; the first word may be missing."""
_CUE = re.compile(rf"^\s*(?:(?:(?:Final )?{CUE.rstrip(':')}|A)\s*[:：]|{CUES}\s*(?:[:：]|{IS}))\s*", re.IGNORECASE)


def read(request: Request, answer: Answer) -> Answer:
    """The intended answer, with only its own tokens.

    What comes before the end of a think block is no part of it, nor is what the template writes around an answer, nor
    a fence around it. Where the prompt names a
    reader (`grading.readers`), it is what that finds; one of the user's own looks into the whole reply if it finds
    nothing in the template's form. Of a closed set it is the
    part that names one of the prompt's choices, see `choice_at`; in other tasks with one-line answers the first line
    with content. Both are without the cue, the prefix of answers, headers and scores repeated from the prompt.
    ``usable`` is then false if nothing is left, if the text was cut off at the token limit or while thinking, if it
    repeats a document or an example of the prompt, or if it names none of the prompt's choices. ``how`` names the
    rules that found it, ``reply`` is all that the LLM wrote.
    """
    answer = replace(answer, reply=answer.text)
    if answer.option_logprobs:
        return replace(answer, how="likeliest option")
    prompt = request.prompt
    said = after_thinking(answer.text)
    if said is None:
        return replace(answer, text="", usable=False, how="cut off while thinking")
    rules = ["after its thoughts"] if said != answer.text else []
    start = thought = len(answer.text) - len(said)
    whole = prompt.prefill + said
    if (formed := storable(prompt.form.read(whole))) != whole:
        start += max(said.rfind(formed), 0)
        said, rules = formed, [*rules, "in the template's form"]
    if (reader := reader_named(prompt.read)).find:
        text = read_as(prompt.read, said, prompt.choices)
        if reader.own and not text and formed != whole:  # what the form took off may be what it looks for
            start, said, rules = thought, answer.text[thought:], rules[:-1]
            text = read_as(prompt.read, whole, prompt.choices)
        at = start + max(said.rfind(text), 0)
        return _cut(replace(answer, usable=bool(text), how=", ".join([*rules, prompt.read])), text, at)
    text, ended = _own(said, prompt), False
    rules += ["inside a fence"] if "```" in said and "```" not in text else []
    at = start + max(said.rfind(text), 0)
    if named := choice_at(text, prompt.choices):
        chosen, first, end, rule = named
        at, ended, part = at + first, bool(text[end:].strip()), text[first:end]
        text = _without_cue(part, prompt)
        if choice_of(text, prompt.choices) != chosen:  # "A:" is a letter, and no cue
            text = part
        rules += [rule] if rule != WHOLE else []
    elif prompt.choices:
        rules.append("no option")
    if prompt.one_line and not named and not (prompt.reasons and (formed == whole or _goes_on(text))):
        line, more = _first_line(text, prompt)
        ended = more and not prompt.choices
        rules += ["first line"] if ended else []
        text = _without_cue(line, prompt)
    text, echoed = _without_echoes(text, prompt)
    finish = "stop" if ended else answer.finish
    usable = bool(text) and not echoed and (named is not None if prompt.choices else finish != "length")
    rules += ["echo of the prompt"] if echoed else ["cut off"] if finish == "length" and not usable else []
    return _cut(replace(answer, finish=finish, usable=usable, how=", ".join(rules) or WHOLE), text, at)


def read_as(name: str, reply: str, choices: Sequence[str]) -> str:
    """What a reader other than ``auto`` takes from a reply; empty if that is nothing."""
    said, find = after_thinking(reply), reader_named(name).find
    return "" if said is None or find is None else storable(find(unfenced(said).strip(), choices) or "")


def _own(text: str, prompt: Prompt) -> str:
    """The text without the fence around it, unless the prompt shows fences, and, of a closed set, only up to where it
    goes on with a question of its own."""
    if not any("```" in shot.output for shot in prompt.demonstrations):
        text = unfenced(text)
    text = text.strip()
    before, found, _ = prompt.messages[-1].content.partition(prompt.query.input)
    header = before.rpartition("\n")[2].strip()
    if not (prompt.choices and found and header):
        return text
    return re.split(rf"\n\s*{re.escape(header)}", text, maxsplit=1)[0].strip()


def _goes_on(text: str) -> bool:
    """Whether reasons may follow the first line, as in a reply that begins with the cue and then reasons. The line is
    the answer only if a blank line follows and nothing after that says a final one."""
    line, _, rest = text.partition("\n\n")
    told = f"\n{rest}"
    return "\n" in line.strip() or final_of(told) != told


def _first_line(text: str, prompt: Prompt) -> tuple[str, bool]:
    """The first line with more than the answer cue, and whether others follow. A line that ends in a colon leads to
    those after it."""
    lines = [line for line in text.splitlines() if _without_cue(line, prompt).strip()]
    if len(lines) > 1 and lines[0].rstrip().endswith((":", "：")):
        del lines[0]
    return (lines[0].strip(), len(lines) > 1) if lines else ("", False)


def _without_echoes(text: str, prompt: Prompt) -> tuple[str, bool]:
    """The text without repeated prompt layout, and whether it repeats a document or an example: such begin with its
    header."""
    if not (prompt.earlier or prompt.document_scores or prompt.shot_scores or prompt.numbered):
        return text.strip(), False
    answer = _ROUND.sub("", text)
    bare = _HEADER.sub("", answer)
    return _SCORE.sub("", bare).strip(), bare != answer


def _without_cue(text: str, prompt: Prompt) -> str:
    """The text without the answer cue and without the template's prefix of answers, each only at its beginning."""
    text = _CUE.sub("", text)
    prefix = prompt.cue.removeprefix(CUE).strip()
    if not prefix:
        return text
    end = r"(?!\w)" if prefix[-1].isalnum() else ""  # "The answer isn" does not repeat "The answer is"
    return re.sub(rf"^\s*{re.escape(prefix)}{end}\s*:?\s*", "", text, count=1, flags=re.IGNORECASE)


def _cut(answer: Answer, text: str, at: int) -> Answer:
    """The answer with this part of its text, the first from place ``at`` on, and the tokens of this part."""
    if text == answer.text:
        return answer
    whole = "".join(answer.tokens)
    start = whole.find(text, max(whole.find(answer.text), 0) + at) if text else -1
    if start < 0:  # bytes that do not decode to text, or a score removed from the middle: all tokens are kept
        return replace(answer, text=text)
    own = inside(answer.tokens, start, start + len(text))
    return replace(
        answer,
        text=text,
        tokens=tuple(compress(answer.tokens, own)),
        logprobs=tuple(compress(answer.logprobs, own)),
        entropies=tuple(compress(answer.entropies, own)),
    )


def inside(tokens: Sequence[str], start: int, end: int) -> list[bool]:
    """Which of the tokens have a part in the characters from ``start`` to ``end`` of their text. One without text is
    part of the next character."""
    ends = accumulate(map(len, tokens))
    return [at + (not token) > start and at - len(token) < end for token, at in zip(tokens, ends, strict=True)]
