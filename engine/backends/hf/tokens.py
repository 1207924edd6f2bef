"""From prompts to the tokens of a model: by its chat template if it has one, else as one text."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ...base.errors import LLMError
from ...pool.prompts import Prompt

CPU_SECONDS, ADDED = 10.0, 1 << 20
"""What a chat template may take, looked at between its steps, and the characters that it may add to its messages: the
sandbox has a limit for one loop, and none for a loop in a loop. A single step, as ``9 ** 9 ** 9``, is not ended."""

WORTH_SHARING = 16
"""Minimum number of further common tokens for which a part of a batch gets its own prefix."""


class Unrendered(LLMError):
    """A prompt that a chat template refuses, as one whose roles do not alternate; it may take others."""


@dataclass(slots=True)
class Scored:
    """One option of one request: token ids of prompt and option, and where the option begins."""

    request: int
    option: int
    ids: list[int]
    split: int


def render(tokenizer: Any, prompt: Prompt) -> tuple[str, bool]:
    """The prompt as text, and whether the chat template (which writes its own special tokens) was used. Raises
    `Unrendered` if the template refuses it or does what it may not, and `LLMError` if it takes too long, as it will for
    the next one."""
    if not tokenizer.chat_template:
        return prompt.text, False
    from jinja2 import TemplateError

    roles = {"developer": "system"}  # which few models know by another name
    messages = [{"role": roles.get(m.role, m.role), "content": m.content} for m in prompt.messages]
    # a prefill is a turn that is not over
    how = {"continue_final_message": True} if prompt.prefill else {"add_generation_prompt": True}
    try:
        with _in_time():
            try:
                text = tokenizer.apply_chat_template(messages, tokenize=False, **how)
            except TemplateError:  # many do not support a system turn: its text then opens the first user turn
                said = _without_system(messages)
                text = tokenizer.apply_chat_template(said, tokenize=False, **how)
        if len(text) > ADDED + sum(len(message["content"]) for message in messages):
            raise ValueError(f"adds more than {ADDED:,} characters to its messages")
    except Exception as error:  # a template is a program of its author's, kept in a sandbox
        reason = " ".join(str(error).split())[:200]
        raise (LLMError if isinstance(error, TimeoutError) else Unrendered)(
            f"the chat template of {tokenizer.name_or_path} fails: {type(error).__name__}: {reason}",
            "use another model, or replace chat_template.jinja in a copy of its folder",
        ) from error
    return str(text), True


def tokens_in(tokenizer: Any, prompt: Prompt) -> int:
    """Tokens of a prompt; of one that the chat template refuses, those of its text: it fails when it is asked."""
    try:
        return len(encode(tokenizer, *render(tokenizer, prompt)))
    except Unrendered:
        return len(encode(tokenizer, prompt.text, False))


@contextmanager
def _in_time() -> Iterator[None]:
    """Raises `TimeoutError` between two steps of a template that has had this thread for `CPU_SECONDS`."""
    end, before, steps = time.thread_time() + CPU_SECONDS, sys.gettrace(), itertools.count()

    def look(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != "<template>":
            return None
        if next(steps) % 100 == 99 and time.thread_time() > end:
            raise TimeoutError(f"takes more than {CPU_SECONDS:g} seconds")
        return look

    sys.settrace(look)
    try:
        yield
    finally:
        sys.settrace(before)


def encode(tokenizer: Any, text: str, chat: bool) -> list[int]:
    """The tokens of a text returned by `render`."""
    return list(tokenizer(text, add_special_tokens=not chat, verbose=False)["input_ids"])


def texts_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """What each token adds to the text of all: decoded alone, those of many tokenizers lack their blank. A character of
    several tokens comes with its last."""
    texts: list[str] = []
    start = read = 0  # decoded anew are the tokens of the last addition, and those since
    for end in range(1, len(ids) + 1):
        before = tokenizer.decode(ids[start:read], skip_special_tokens=True)
        text = tokenizer.decode(ids[start:end], skip_special_tokens=True)
        if text.endswith("\ufffd") and end < len(ids):
            texts.append("")
            continue
        texts.append(text[len(before) :])
        start, read = (read, end) if texts[-1] else (start, read)
    return texts


def encode_options(tokenizer: Any, index: int, prompt: Prompt) -> list[Scored]:
    """The options of the request ``index``, each encoded together with the prompt: encoded alone it would have other
    tokens at the boundary."""
    text, chat = render(tokenizer, prompt)
    text, written = prompt.scored(text, chat)
    rows = []
    for j, option in enumerate(written):
        whole = text + option
        wanted = {"return_offsets_mapping": True, "return_special_tokens_mask": True}
        encoded = tokenizer(whole, add_special_tokens=not chat, **wanted, verbose=False)
        ids, offsets = list(encoded["input_ids"]), encoded["offset_mapping"]
        while ids and offsets[len(ids) - 1][1] <= len(text) and encoded["special_tokens_mask"][len(ids) - 1]:
            ids.pop()  # an end-of-text token added by the tokenizer does not belong to the option
        split = next((k for k in range(len(ids)) if offsets[k][1] > len(text)), len(ids))
        rows.append(Scored(index, j, ids, split))
    return rows


def grouped(sequences: Sequence[list[int]]) -> list[list[int]]:
    """Positions of the sequences that are worth computing together, because they begin alike.

    A part of a group leaves it if its own longer beginning, computed once for all of it, saves more tokens than
    computing the group's beginning again costs.
    """
    groups, rest = [], []
    order = sorted(range(len(sequences)), key=lambda i: sequences[i])
    shared = common(sequences)
    for _, part in itertools.groupby(order, key=lambda i: sequences[i][shared : shared + 1]):
        alike = list(part)
        begins = common([sequences[i] for i in alike])
        if begins - shared >= WORTH_SHARING and shared < (len(alike) - 1) * (begins - shared):
            groups += [[alike[i] for i in inner] for inner in grouped([sequences[i] for i in alike])]
        else:
            rest += alike
    return [*groups, rest] if rest else groups


def context_of(tokenizer: Any, config: Any) -> int | None:
    """Longest sequence a model was made for; None if its configuration does not say."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    limits = [getattr(text, "max_position_embeddings", None), tokenizer.model_max_length]
    return min((int(limit) for limit in limits if limit and limit < 1e9), default=None)


def common(sequences: Sequence[list[int]]) -> int:
    """Length of the longest common prefix. It is enough to compare the smallest and the largest sequence."""
    low, high = min(sequences), max(sequences)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))


def _without_system(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The system turn's text at the beginning of the first user turn."""
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
    rest = [dict(m) for m in messages if m["role"] != "system"]
    if rest and system:
        rest[0]["content"] = f"{system}\n\n{rest[0]['content']}"
    return rest
