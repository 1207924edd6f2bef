"""Broken texts: empty, cut off, decoded wrongly, or refusals of a model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ..pool.records import Demonstration, Task
from .results import Finding, Kind, finding

PLACEHOLDERS = frozenset({"n/a", "#n/a", "null", "nan", "undefined", "tbd", "todo", "#value!", "[object object]"})
_CUT_MARK = re.compile(r"(\[truncated\]|\(truncated\)|<truncated>|\[\.\.\.\]|\[…\])\s*$", re.IGNORECASE)
_ENDED = re.compile(r"[.!?。！？…:;)\]}\"'”’»`|>*]\s*$")
LONG, PILED, MOSTLY = 100, 5, 0.9
"""Characters from which on a text is long; number of texts with exactly the maximum length that indicates a limit;
share of long texts ending like sentences above which one that does not is suspicious."""

_SORRY = r"^\W*((i'?m|i am|we are|we're) )?(very |so )?(sorry|afraid)\b[^.!?]{0,20}?"
_SELF = (
    r"(as an? (ai|artificial intelligence|(large )?language model)\b"
    r"|i('m| am) ((just |only )?an? (ai|(large )?language model)|programmed to)\b"
)
_DECLINES = (
    r"i('m| am)? ?(cannot|can't|can not|won't|will not|unable to|not able to) (assist|help|comply|fulfil|fulfill"
)
_REFUSAL = re.compile(
    rf"^\W*{_SELF})|{_SORRY}({_SELF})|{_DECLINES})\b)"
    r"|\bas an? (ai|(large )?language) (language )?(model|assistant)\b[^.!?]{0,40}\b(i|my)\b",
    re.IGNORECASE,
)
_REFUSED = re.compile(rf"^\W*({_SORRY})?{_DECLINES}|provide|generate|create|answer|engage)\b", re.IGNORECASE)
"""Applied to outputs that begin like this; an input may come from a person who cannot create an account and asks for
help."""
_FOREIGN = re.compile(r"[^\x00-\x7f]{2,}")
_LEADS = frozenset({0xC2, 0xC3, 0xE2, 0xF0})
"""First bytes of accented letters, of typographic marks and of emoji in UTF-8; mojibake nearly always begins with
one."""


def text_findings(rows: Sequence[Demonstration], task: Task) -> Iterator[Finding]:
    """Problems of the texts of rows. Labels are a closed set and are not checked one by one."""
    for field, text_of in _fields(task):
        limit = _piled(text_of(row) for row in rows)
        mostly_ended = _mostly_ended(list(map(text_of, rows))) if field == "output" else False
        for row in rows:
            text = text_of(row)
            fault = _fault(text, field, task, limit, mostly_ended)
            if fault:
                kind, severity, evidence = fault
                yield finding(row, kind, severity, f"the {field} {evidence}", characters=len(text))


def _fields(task: Task) -> list[tuple[str, Callable[[Demonstration], str]]]:
    fields: list[tuple[str, Callable[[Demonstration], str]]] = [("input", lambda row: row.input)]
    if task.kind == "open":
        fields.append(("output", lambda row: row.output))
    return fields


def _fault(text: str, field: str, task: Task, limit: int | None, mostly_ended: bool) -> tuple[Kind, float, str] | None:
    """The worst problem of a text: kind, severity, evidence."""
    if field == "input" and not any(c.isalnum() for c in text):
        return "empty", 0.9, "has no letter and no digit"
    if text.strip().casefold() in PLACEHOLDERS:
        return "empty", 0.9, f"is a placeholder: {text.strip()}"
    if refuses(text, answer=field == "output"):
        return "refusal", 0.9, f"is a refusal: {text.strip()[:60]}"
    if "\ufffd" in text:
        return "mojibake", 0.7, "has characters that were lost in decoding"
    if mended := mojibake(text):
        return "mojibake", 0.7, f"was decoded wrongly: '{mended[0]}' for '{mended[1]}'"
    if found := _CUT_MARK.search(text):
        return "cut", 0.7, f"ends with {found[1]}"
    if limit is not None and len(text) == limit and not _ENDED.search(text):
        return "cut", 0.6, f"ends in mid-sentence at {limit:,} characters, the greatest length of several"
    if mostly_ended and len(text) >= LONG and not _ENDED.search(text):
        return "cut", 0.4, f"ends in mid-sentence: …{text.strip()[-30:]}"
    return None


def refuses(text: str, answer: bool) -> bool:
    """Whether a model declines, or calls itself a model, instead of answering."""
    straight = text.replace("’", "'")
    return bool(_REFUSAL.search(straight) or (answer and _REFUSED.search(straight)))


def mojibake(text: str) -> tuple[str, str] | None:
    """UTF-8 that was decoded as Windows-1252: the first such run of characters, and its correct decoding."""
    for found in _FOREIGN.finditer(text):
        run = found[0]
        try:
            data = bytes(_byte(c) for c in run)
            meant = data.decode("utf-8")
        except ValueError:
            continue
        if data[0] in _LEADS:
            return run, meant
    return None


def _byte(character: str) -> int:
    """The byte that Windows-1252 decodes to this character; its five undefined bytes are decoded as control
    characters."""
    try:
        return character.encode("cp1252")[0]
    except UnicodeEncodeError:
        return bytes([ord(character)])[0]  # ValueError above 255


def _piled(texts: Iterator[str]) -> int | None:
    """The maximum length, if several texts have exactly this length and it is long: a limit that cut them."""
    counts = Counter(map(len, texts))
    longest = max(counts, default=0)
    return longest if longest >= LONG and counts[longest] >= PILED else None


def _mostly_ended(texts: Sequence[str]) -> bool:
    long = [text for text in texts if len(text) >= LONG]
    return len(long) >= 2 * PILED and sum(bool(_ENDED.search(text)) for text in long) >= MOSTLY * len(long)
