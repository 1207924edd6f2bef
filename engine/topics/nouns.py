"""Which words of a pool are nouns, told by the words around them: no tagger has to be installed for it.

A noun closes a group that an article, a possessive, a number or a preposition opens ("my old card,"); a verb follows a
pronoun, a modal or "to" ("I wait", "to cancel"), or has a pronoun after it ("suit me"). A word that does neither (an
adverb, a filler) is no noun. This is for English, and for pools of some hundred texts or more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from .words import FUNCTION_WORDS, fold, runs_of

OPENERS = frozenset(
    """
    a an the this that these those my your his her its our their no any some each every another which what whose
    one two three four five six seven eight nine ten many much few several all both other more same such own
    of for in on at by with from about without after before into over under during within through per
    """.split()  # noqa: SIM905
)
SUBJECTS = frozenset(
    """
    i you he she it we they who to can could will would shall should may might must cannot not never do does did don
    didn doesn won wouldn couldn can't don't didn't doesn't please let lets
    """.split()  # noqa: SIM905
)
OBJECTS = frozenset("a an the this that these those my your his her its our their me you him it us them".split())  # noqa: SIM905
"""Words that a verb has after it, and a noun seldom."""
PRONOUNS = frozenset({"me", "him", "us", "them"})

BEFORE = 2
"""Words between an opener and the noun at most."""

LEAST = 0.2
"""Minimum share of a word's occurrences in which it is a noun."""


class NounCounts:
    """How often each folded word occurs, and how often as a noun or as a verb."""

    def __init__(self) -> None:
        self.all: Counter[str] = Counter()
        self.sure: Counter[str] = Counter()
        self.noun: Counter[str] = Counter()
        self.verb: Counter[str] = Counter()

    def add(self, text: str) -> None:
        for word, is_sure, is_noun, is_verb in _uses(text):
            self.all[word] += 1
            self.sure[word] += is_sure
            self.noun[word] += is_noun
            self.verb[word] += is_verb

    def is_noun(self, word: str) -> bool:
        """Whether a folded word is a noun often enough, more often than a verb, and once right after an opener: a verb
        can follow a noun that has one ("my pump grinds")."""
        noun = self.noun[word]
        return self.sure[word] > 0 and noun >= LEAST * self.all[word] and noun > self.verb[word]

    def is_topic(self, phrase: str) -> bool:
        """Whether a folded phrase can name a topic: a noun, or several words of which the last is not a verb."""
        words = phrase.split()
        if len(words) == 1:
            return self.is_noun(words[0])
        return self.sure[words[-1]] > 0 or not self.verb[words[-1]]


def _uses(text: str) -> Iterator[tuple[str, bool, bool, bool]]:
    """Each word that is not a function word, folded, and whether it stands where a noun surely stands (right after an
    opener), where a noun or a verb stands."""
    for run in runs_of(text):
        for i, word in enumerate(run):
            if word in FUNCTION_WORDS or word in OPENERS:
                continue
            after = run[i + 1] if i + 1 < len(run) else ""
            closes = not after or (after in FUNCTION_WORDS and after not in OBJECTS)
            before = run[i - 1] if i else ""
            is_verb = before in SUBJECTS or after in PRONOUNS
            yield fold(word), closes and before in OPENERS, closes and _opened(run[:i]), is_verb


def _opened(before: Sequence[str]) -> bool:
    """Whether a group of words is open at its end."""
    for word in reversed(before[-BEFORE - 1 :]):
        if word in OPENERS:
            return True
        if word in FUNCTION_WORDS:
            return False
    return False
