"""The words of texts, and normalised ones for comparing topics: folded to the singular, function words known."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache

_PUNCTUATION = r"|[^\w\s'’-]"

FUNCTION_WORDS = frozenset(
    """
    a about above across after again against ago all almost alone along already also although always am among an and
    another any anybody anyone anything are aren around as at away back be became because become been before behind
    being below beside besides between beyond both but by can cannot could couldn d did didn do does doesn doing don
    done down during each either else enough etc even ever every everybody everyone everything for from further get
    gets getting give given gives go goes going gone got had hadn has hasn have haven having he hence her here hers
    herself him himself his how however i if in indeed instead into is isn it its itself just keep kept kind know
    least less let like likely ll look lot m made make makes making many may maybe me might mine more moreover most
    much must my myself near need needs neither never next no nobody none nor not nothing now of off often on once one
    only onto or other others otherwise our ours ourselves out over own per perhaps put quite rather re really s said
    same say says see seem seems several shall she should shouldn since so some somebody someone something sometimes
    somewhere soon still such sure t take takes tell than that the their theirs them themselves then there therefore
    these they thing things this those though through thus to together too toward towards try two under unless until
    up upon us use used uses using usually ve very via want wanted wants was wasn way we well went were weren what
    whatever when whenever where wherever whether which while who whoever whole whom whose why will with within
    without won would wouldn yes yet you your yours yourself
    arent cant couldnt didnt doesnt dont hasnt havent hello hey hi hows ill im isnt ive okay ok please shouldnt thank
    thanks thats theres wasnt werent whats wheres whos whys wont wouldnt youre
    """.split()  # noqa: SIM905
)
"""English words that name no topic at either end of a phrase; words that occur nearly everywhere in a pool are found by
counting."""


def runs_of(text: str) -> Iterator[list[str]]:
    """The words of a text in lower case, from one punctuation mark to the next."""
    run: list[str] = []
    for token in [*tokens_of(text), "."]:
        if token[0].isalnum():
            run.append(token)
            continue
        yield run
        run = []


def words_in(text: str) -> list[str]:
    """The words (``\\w+``) of a text in any script: with their combining marks, which are a part of many words."""
    return _words(text.isascii()).findall(text)


@cache
def _words(ascii: bool, also: str = "") -> re.Pattern[str]:
    marks = [] if ascii else [code for code in range(0x300, 0x20000) if unicodedata.category(chr(code)).startswith("M")]
    firsts, lasts = ({*marks} - {code + step for code in marks} for step in (1, -1))
    # as ranges: `re` compares marks above U+FFFF one after the other, 832 of them at the end of each word
    ranges = (f"{chr(first)}-{chr(last)}" for first, last in zip(sorted(firsts), sorted(lasts), strict=True))
    return re.compile(rf"\w[\w{''.join(ranges)}]*{also}")


def tokens_of(text: str) -> list[str]:
    """The words and punctuation marks of a text in lower case."""
    text = text.lower().replace("_", " ")
    return _words(text.isascii(), _PUNCTUATION).findall(text)


def fold(text: str) -> str:
    """The words of a text, lower case and singular, separated by single blanks: the form in which phrases are
    compared."""
    return " ".join(map(singular, words_in(text.lower().replace("_", " "))))


@lru_cache(maxsize=1 << 18)
def singular(word: str) -> str:
    """A lower-case word without its plural ending (the S-stemmer of Harman 1991)."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("us", "ss", "is")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")) and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("es") and not word.endswith(("aes", "ees", "oes")):
        return word[:-1] if not word.endswith(("sses", "shes", "ches", "xes", "zes")) else word[:-2]
    return word[:-1]
