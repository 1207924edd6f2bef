"""Closed sets of answers: which option a text names.

A text is compared exactly first, then folded, and only as far as the options stay apart: ``card arrival`` is
``card_arrival``, but C, C++ and C# are three options. How far a set folds is found once and kept: the answers to many
queries are read against the same labels.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import contains

from .open_answers import CLOSING, OPENING, bare, json_form
from .open_answers import LETTER as WORD
from .prompts import CUES, IS, letter_of
from .records import Options

WHOLE, LETTER = "whole", ": letter"
"""The rule that takes all of a reply, and the end of one that takes a letter for its option."""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_JOINS = re.compile(r"[_/]|-(?!\d)|(?<=\w)-")
"""What joins words; not the sign of a number."""
_PUNCTUATION = re.compile(
    r"(?<!\d)[.,:]|[.,:](?!\d)|(?<![\w+#])[+#]|-(?!\d)|(?<=\w)-|[!\"$-*/;-@\[-`{-~“”„‘’«»" + OPENING + CLOSING + "]"
)
"""Not what tells texts apart: a decimal point, the sign of a number, the signs of ``C++`` and ``C#``."""

_LEVELS: tuple[Callable[[str], str], ...] = (
    lambda text: json_form(text) or text,
    lambda text: text if text.isascii() else unicodedata.normalize("NFKC", text).replace("−", "-"),
    str.lower,
    lambda text: _JOINS.sub(" ", text),
    lambda text: _PUNCTUATION.sub("", text),
    lambda text: _ARTICLES.sub("", text),
)
"""Ways to fold a text, each applied to what the one before left; blanks are folded with all but the first."""

_MINUS = re.compile(r"(?:\bminus\s+|(?<!\d )(?<!\S)[-−–]\s*)(?=\d)", re.IGNORECASE)
"""A sign, however it is written; a bullet where no option is negative."""

_ORDINARY = re.compile(
    r"(?<!(?i:option|choice|answer) )(?<!(?i:class|label) )(?<!(?i:type) )"
    r"(?:\b(?:a|no|I)|(?:^|(?<=[.!?:\n] )|(?<=\n))(?:A|No))[ \t]+(?=[^\W_])"
    r"(?!(?:is|isn['’]t|as|because|since|for|if|and|or|but|it|they|this|that|there|the"
    r"|(?<!I )(?:would|will|can|could|should)|(?<=A )(?:best|\w*[^\W_suio]s))\b)",  # A fits, A makes sense
)
"""The article, pronoun or negation of the words after it, and so no mention of an option ``A``, ``I`` or ``no``."""

_LEAD = re.compile(
    r"^[\s*_#>]*(?:so\s+|therefore\s*,?\s+)?(?:the\s+)?(?:correct\s+|right\s+|best\s+|final\s+)?"
    r"(?:answer|option|choice|label)\b[*_]*(?:\s+is\b)?\s*:?[*_]*\s*(?:option\s+|choice\s+)?",
    re.IGNORECASE,
)
_ANSWER = re.compile(
    rf"(?:(?:\b(?:answer|option|choice|label)\b|{CUES}|\betiqueta\b|标签|標籤|ラベル|选项|選項)[ \xa0\u202f*_]*"
    rf"(?:is\b\s?:?|[:：៖]|{IS})|[选選](?:[择擇项項])?(?=\s?[(（]?[A-Z](?![A-Za-z])))[ *_]*(.*)",
    re.IGNORECASE,
)
_LINE = re.compile(r"\S(?:.*\S)?")
_EMPHASIS = re.compile(r"\*\*(.+?)\*\*|\\boxed\{([^{}]*)\}")
_MARK = re.compile(r"^\s*[(\[（【「*\"']*\s*([A-Za-z]|\d{1,3})\s*(?:です|입니다)?(?:[)\].:*\"'）】」。．：、，]+|$)")
_COMMA = re.compile("[,，、]")
_SENTENCE_END = re.compile(r"[.!?;:](?=\s|$)|[。！？；：]|\n|\s[-–—]\s")
_NEGATION = re.compile(
    r"\b(?:not|no|never|cannot|neither|nor|except|instead of)\b|n['’]t\b"
    r"|不[是属屬算应應会會能该該选選认認要为為像涉]|[没沒]有|[并並]非|な[いくか]|ません|아[니닌닙]|않",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"(?:(?:\b(?:not|never|cannot|neither|nor|instead of)\b|n['’]t\b)[^\S\n]+(?:(?:an?|the)[^\S\n]+)?|不是?)$",
    re.IGNORECASE,
)
"""What stands before an emphasis that is denied: "not **billing**"."""
_POLITE = re.compile(r"(?:的|です|입니다|이에요|ครับ|ค่ะ|คะ)$")
"""What a reply of one word ends in, in languages that write it without a blank: 是的, 良です, 예입니다."""
_NAMED_BEFORE = re.compile(r"(?<=[^\W\d])\s?[:：៖](?=\S)")
"""The colon behind what an option is, where no blank follows: 情感：正."""
_NO_BLANKS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_KATAKANA, _HANGUL = "[\u30a0-\u30ff]", "[\uac00-\ud7af]"
_PARTICLE = "(?:입니다|이다|이에요|예요|은|는|이|가|을|를|으로|로|에)?"


def option_of(text: str, options: Sequence[str]) -> int | None:
    """The index of the option that a text is, however it is spelled; None if it is none, whatever it mentions."""
    return _known(options if isinstance(options, tuple) else tuple(options)).named(text)


def choice_of(answer: str, options: Sequence[str]) -> int | None:
    """The index of the option that an answer names, None if it names none, see `choice_at`."""
    found = choice_at(answer, options)
    return None if found is None else found[0]


def choice_at(reply: str, options: Sequence[str]) -> tuple[int, int, int, str] | None:
    """The index of the option that a reply names, where the part of the reply that names it starts and ends, and the
    rule that found it; None if it names none.

    The option is the whole reply, its last "Answer:" or what it emphasises, its last line, its first line, the letter
    in one of these, if the prompt lists the options with letters (`Options`), or else the only option that it mentions.
    Of options that contain each other the longest counts. A sentence that negates mentions none.
    """
    return _choice_at(reply, options if isinstance(options, tuple) else tuple(options))


@lru_cache(maxsize=4096, typed=True)  # what was read is graded next; `Options` equal a tuple, but have letters
def _choice_at(reply: str, options: tuple[str, ...]) -> tuple[int, int, int, str] | None:
    forms = _known(options)
    if (chosen := forms.exact.get(reply)) is not None:
        return chosen, 0, len(reply), WHOLE
    lines = [line.span() for line in _LINE.finditer(reply)]
    if not lines:
        return None
    parts: dict[tuple[int, int], str] = {}
    for rule, part in _parts(reply, lines, forms.colon):
        parts.setdefault(part, rule)
    for read, what in ((forms.named, ""), *([(forms.lettered, LETTER)] if isinstance(options, Options) else [])):
        for (start, end), rule in parts.items():
            if (chosen := read(reply[start:end])) is not None:
                return chosen, start, end, rule + what
    if (chosen := forms.mentioned(reply)) is None:
        return None
    whole = lines[0][0], lines[-1][1]  # an option of several lines is mentioned by none of them
    for start, end in (*lines, whole):
        if forms.mentioned(reply[start:end]) == chosen and not forms.denied(reply[start:end], chosen):
            return chosen, start, end, "mention"
    return None


def _parts(text: str, lines: Sequence[tuple[int, int]], colon_in: bool) -> Iterator[tuple[str, tuple[int, int]]]:
    """Where a reply with these lines may name its answer, the likeliest first, and by which rule. ``colon_in``: a colon
    may be of an option."""
    yield WHOLE, (lines[0][0], lines[-1][1])
    for line, after in zip(lines[::-1], [None, *lines[:0:-1]], strict=True):
        if found := _ANSWER.search(text, *line):
            yield "answer line", found.span(1) if found[1] else after or line
            break
    emphasised = [
        mark for mark in _EMPHASIS.finditer(text) if not _DENIED.search(text[max(mark.start() - 20, 0) : mark.start()])
    ]
    if emphasised:
        yield "emphasis", emphasised[-1].span(emphasised[-1].lastindex or 0)
    if text[: lines[0][1]].endswith((":", "：")):
        yield "after a colon", (lines[min(1, len(lines) - 1)][0], lines[-1][1])
    yield "last line", lines[-1]
    if not colon_in and (colon := _NAMED_BEFORE.search(text, *lines[-1])):
        yield "after a colon", (colon.end(), lines[-1][1])
    yield "first line", lines[0]


@dataclass(frozen=True, slots=True)
class _Known:
    """A set of options. ``exact`` and ``folded`` (by the ``levels``) have the index of each; ``words``: its folded
    words; ``starts``: the options that begin with a word, the longest first; ``twins``: those that only white space
    tells apart, so that no mention names one of them; ``within`` finds those in a script without blanks; ``colon``:
    whether an option has one."""

    exact: Mapping[str, int]
    folded: Mapping[str, int]
    levels: tuple[Callable[[str], str], ...]
    words: Mapping[int, list[str]]
    starts: Mapping[str, list[int]]
    twins: frozenset[int]
    within: re.Pattern[str] | None
    colon: bool

    def fold(self, text: str) -> str:
        for level in self.levels:
            text = level(text)
        return " ".join(text.split()) if len(self.levels) > 1 else text

    def named(self, text: str) -> int | None:
        """The option that the text is, as it is or without "the answer is", quotes, emphasis and a full stop."""
        if (place := self.exact.get(text)) is not None:
            return place
        said = _LEAD.sub("", text)
        for form in dict.fromkeys((text, bare(text), said, bare(said), _POLITE.sub("", bare(said)))):
            if (place := self.exact.get(form)) is not None or (place := self.folded.get(self.fold(form))) is not None:
                return place
        return None

    def lettered(self, text: str) -> int | None:
        """The option whose letter the text is: ``(B)``, ``B.``, or the letter with the option's text."""
        text = _LEAD.sub("", text)
        if not (mark := _MARK.match(text)):
            return None
        chosen = next((i for i in self.words if letter_of(i).lower() == mark[1].lower()), None)
        rest = bare(text[mark.end() :])
        return chosen if not rest or self.named(rest) == chosen else None

    def mentioned(self, text: str) -> int | None:
        """The only option that the text mentions as a whole phrase."""
        chosen = self._all_in(text)
        if ordinary := {i for i in chosen if self.words[i] in (["a"], ["i"], ["no"])}:
            chosen -= ordinary - self._all_in(_ORDINARY.sub("", text))
        if chosen & self.twins:
            return None
        # "new york city" also holds "new york": the longest of nested names is kept
        chosen -= {i for i in chosen for j in chosen if i != j and _holds(self.words[j], self.words[i])}
        return chosen.pop() if len(chosen) == 1 else None

    def _all_in(self, text: str) -> set[int]:
        text = self.fold(text)
        words = [(word, bare(word)) for word in (self.within.sub(r" \g<0> ", text) if self.within else text).split()]
        return {i for place in range(len(words)) if (i := self._at(words, place)) is not None}

    def _at(self, words: Sequence[tuple[str, str]], place: int) -> int | None:
        """The longest option that the words at a place begin with."""
        for word in words[place]:
            for i in self.starts.get(word, ()):
                own = self.words[i]
                if len(own) <= len(words) - place and all(map(contains, words[place : place + len(own)], own)):
                    return i
        return None

    def denied(self, text: str, chosen: int) -> bool:
        """Whether every sentence that mentions the option negates: "not billing" names nothing, "billing: it does not
        name an order" does. An option that opens the text and ends in a comma stands for itself."""
        if not _NEGATION.search(_JOINS.sub(" ", text)) or self.named(_COMMA.split(text, 1)[0]) == chosen:
            return False
        own = len(_NEGATION.findall(" ".join(self.words[chosen])))
        sentences = [part for part in _SENTENCE_END.split(text) if self.mentioned(part) == chosen] or [text]
        return all(len(_NEGATION.findall(_JOINS.sub(" ", part))) > own for part in sentences)


@lru_cache(maxsize=256)
def _known(options: tuple[str, ...]) -> _Known:
    """The set, folded up to the level before two of its options meet or one vanishes."""
    exact: dict[str, int] = {}
    for i, option in enumerate(options):
        exact.setdefault(option, i)
    forms, levels = list(exact), list[Callable[[str], str]]()
    signs = (lambda text: _MINUS.sub("-", text),) if any(map(_MINUS.match, options)) else ()
    for level in (_LEVELS[0], *signs, *_LEVELS[1:]):
        folded = [" ".join(level(form).split()) if levels else level(form) for form in forms]
        if len(set(folded)) < len(folded) or not all(folded):
            break
        forms = folded
        levels.append(level)
    words = {i: form.split() for i, form in zip(exact.values(), forms, strict=True)}
    starts: dict[str, list[int]] = {}
    for i in sorted(words, key=lambda i: (-len(words[i]), -len("".join(words[i])))):
        if words[i]:
            starts.setdefault(words[i][0], []).append(i)
    same = Counter(map(tuple, words.values()))
    twins = frozenset(i for i, own in words.items() if same[tuple(own)] > 1)
    inner = sorted((form for form in forms if len(form) > 1 and _NO_BLANKS.search(form)), key=len, reverse=True)
    within = re.compile("|".join(map(_within, inner))) if inner else None
    colon = any(sign in option for option in options for sign in ":：៖")
    folds = dict(zip(forms, exact.values(), strict=True))
    return _Known(exact, folds, tuple(levels), words, starts, twins, within, colon)


def _within(option: str) -> str:
    """An expression for an option inside a sentence without blanks, where it is no part of a longer word. Words of Han
    characters and hiragana have no end that can be seen; those of hangul end in particles."""
    first, last = (
        next((run for run in (_KATAKANA, _HANGUL, WORD) if re.match(run, end)), "") for end in (option[0], option[-1])
    )
    before = f"(?<!{first})" if first else ""
    after = f"(?={_PARTICLE}(?!{_HANGUL}))" if last == _HANGUL else f"(?!{last})" if last else ""
    return before + re.escape(option) + after


def _holds(text: Sequence[str], phrase: Sequence[str]) -> bool:
    return f" {' '.join(phrase)} " in f" {' '.join(text)} "
