"""Free texts written unlike the others, and rows whose nearest neighbours answer otherwise.

Length and wording are compared by robust scores: the distance from the median in standard deviations as the tenth and
ninetieth percentile give them (0.4 σ = 1.2816 σ for a normal distribution), each side by its own, since lengths are
skewed and up to a tenth of the rows on one side may be faulty. No language is detected: of a text in another one nearly
all words are in hardly another output of the pool.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from ..base.arrays import Bools, Float32s, Float64s, one_blas_thread
from ..base.progress import SILENT, Monitor
from ..grading.metrics import ACCURACY, metric_for, metric_named
from ..pool.open_answers import unfenced
from ..pool.records import Demonstration, Task
from ..pool.words import words_in
from .results import Fault
from .structure import LEAST, RARE, is_usual

SPREADS = 4.5
"""Robust standard deviations from which on a text is apart, as for outliers."""

LEAST_SPREAD = 0.2
"""Least standard deviation of the logarithm of the length: texts of a pool may be of nearly one length."""

FEW, FOREIGN, READ = 10, 0.9, 400
"""Words from which on a text can be compared with the others, the share of words of its own from which on it is in
another language, and the characters that are read of it."""

NONE: Float64s = np.empty(0)

LONG = 100
"""Characters from which on a text is long: it may end like a sentence where short ones need not."""

ENDED = re.compile(r"[.!?。！？…:;)\]}\"'”’»`|>*]\s*$")
"""The end of a sentence, a quotation, a list or code."""

_LETTERS = re.compile(r"[^\W\d_]{2,}")

_MARKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a code fence", re.compile(r"^```", re.MULTILINE)),
    ("a heading", re.compile(r"^#{1,6} ", re.MULTILINE)),
    ("list items", re.compile(r"^\s*(?:[-*•]|\d+[.)]) \S", re.MULTILINE)),
    ("bold text", re.compile(r"\*\*\S")),
    ("HTML tags", re.compile(r"</?[a-z][a-z0-9]*(?: [^<>]*)?/?>", re.IGNORECASE)),
    ("an answer after ####", re.compile(r"^####", re.MULTILINE)),
    ("a boxed answer", re.compile(r"\\boxed\{")),
    ("a lead-in", re.compile(r"\A\s*(?:(?:sure|certainly|of course)[,!]|here is\b|(?:answer|output):)", re.IGNORECASE)),
)  # fmt: skip
_LEAD = re.compile(r"\s*(?:answer|output):\s*", re.IGNORECASE)


def style_faults(
    rows: Sequence[Demonstration], structured: bool, verified: Sequence[Demonstration] = ()
) -> Iterator[Fault]:
    """Outputs of another length, script, wording, markup or ending; of ``structured`` ones only the first two."""
    if len(rows) < LEAST:
        return
    texts, right = ([row.output for row in of] for of in (rows, verified))
    yield from _lengths(texts, right)
    yield from _scripts(rows)
    if not structured:
        yield from _wordings(texts)
        yield from _marks(texts)
        yield from _endings(texts, right)


def _lengths(texts: Sequence[str], verified: Sequence[str]) -> Iterator[Fault]:
    lengths, right = (np.array([len(text) for text in of]) for of in (texts, verified))
    scores, apart = far_from(np.log1p(lengths), LEAST_SPREAD, np.log1p(right))
    usual = int(np.median(right if len(right) >= LEAST else lengths))
    for place in np.flatnonzero(apart).tolist():
        told = f"has {lengths[place]:,} characters, the median is {usual:,} ({scores[place]:+.1f} robust deviations)"
        yield Fault(place, "style", False, told)


def far_from(values: Float64s, least: float, verified: Float64s = NONE) -> tuple[Float64s, Bools]:
    """Robust scores (n,) of values (n,), each side by its own deviation, at least ``least``; and which are apart: none
    on a side where that is `is_usual`. Of enough ``verified`` values (m,) the deviations are theirs."""
    low, middle, high = np.quantile(verified if len(verified) >= LEAST else values, (0.1, 0.5, 0.9))
    below, above = (max(side / 1.2816, least) for side in (middle - low, high - middle))
    scores, right = ((of - middle) / np.where(of < middle, below, above) for of in (values, verified))
    apart = np.zeros(len(values), np.bool_)
    for sign in (-1, 1):
        near, right_near = sign * scores <= SPREADS, sign * right <= SPREADS
        if is_usual(near.tolist(), right_near.tolist()):
            apart |= ~near
    return scores, apart


@lru_cache(maxsize=1 << 14)
def _script(letter: str) -> str:
    """The script of a letter, by its name in Unicode: LATIN, CYRILLIC, CJK …"""
    return unicodedata.name(letter, "unnamed").split(" ")[0].split("-")[0] if letter.isalpha() else ""


def script_of(text: str) -> str:
    """The script of most of a text's letters; empty if it has none."""
    if text.isascii():
        return "LATIN" if any(map(str.isalpha, text)) else ""
    counts = Counter(map(_script, text[:READ]))
    counts.pop("", None)
    return counts.most_common(1)[0][0] if counts else ""


def _scripts(rows: Sequence[Demonstration]) -> Iterator[Fault]:
    """Rows of a script that hardly another output has, and that is not the one of their own input."""
    scripts = [script_of(row.output) for row in rows]
    counts = Counter(filter(None, scripts))
    for place, (row, script) in enumerate(zip(rows, scripts, strict=True)):
        if script and counts[script] <= RARE * counts.total() and script_of(row.input) != script:
            usual, most = counts.most_common(1)[0]
            told = f"is written in {script.title()}, {most:,} of {counts.total():,} outputs in {usual.title()}"
            yield Fault(place, "style", True, told)


def _wordings(texts: Sequence[str]) -> Iterator[Fault]:
    words = [frozenset(_LETTERS.findall(text[:READ].lower())) for text in texts]
    long = [place for place, own in enumerate(words) if len(own) >= FEW]
    if len(long) < LEAST:
        return
    texts_with = Counter(word for own in words for word in own)
    few = max(1, RARE * len(texts))
    shares = np.array([sum(texts_with[word] <= few for word in words[place]) / len(words[place]) for place in long])
    scores, apart = far_from(shares, 0.01)
    usual = float(np.median(shares))
    for i in np.flatnonzero(apart & (scores > 0)).tolist():
        place = long[i]
        shown = ", ".join(sorted(words[place], key=lambda word: (texts_with[word], word))[:3])
        told = f"is worded unlike the others: {shares[i]:.0%} of its words (usually {usual:.0%}) are in hardly another"
        yield Fault(place, "style", bool(shares[i] >= FOREIGN), f"{told}, such as {shown}")


def _marks(texts: Sequence[str]) -> Iterator[Fault]:
    for name, pattern in _MARKS:
        has = np.array([bool(pattern.search(text)) for text in texts])
        total, most = len(texts), int(np.count_nonzero(has))
        if 0 < most <= RARE * total:
            for place in np.flatnonzero(has).tolist():
                bare = _LEAD.sub("", unfenced(texts[place]), 1)
                corrected = bare if bare != texts[place] else ""
                told = f"has {name}; {total - most:,} of {total:,} outputs have none"
                yield Fault(place, "style", bool(corrected), told, corrected, 0.9 if corrected else 0.0)
        elif (1 - RARE) * total <= most < total:
            for place in np.flatnonzero(~has).tolist():
                yield Fault(place, "style", True, f"is without {name}; {most:,} of {total:,} outputs have it")


def _endings(texts: Sequence[str], verified: Sequence[str]) -> Iterator[Fault]:
    """Outputs that end in mid-sentence where nearly all do not; where short ones may, the long ones that do."""
    for least in (0, LONG):
        places = [place for place, text in enumerate(texts) if len(text) >= least]
        ended = [bool(ENDED.search(texts[place])) for place in places]
        right = [bool(ENDED.search(text)) for text in verified if len(text) >= least]
        if is_usual(ended, right):
            convention = right if len(right) >= LEAST else ended
            sure = sum(convention) >= (1 - RARE) * len(convention)
            whole = f"{sum(ended):,} of {len(ended):,}{' long' if least else ''} outputs end like a sentence"
            for place, ends in zip(places, ended, strict=True):
                if not ends:
                    yield Fault(place, "style", sure, f"ends in mid-sentence: …{texts[place].strip()[-30:]}; {whole}")
            return


# Neighbours.

NEAR, TABLES, BLOCK, NEAREST = 0.95, 6, 256, 3
"""Cosine from which on two inputs ask the same; orders in which neighbours are looked for, rows compared with each
other in each, and pairs for each row in each."""

AGREE, LEAST_PAIRS, MOST_PAIRS = 0.8, 10, 50_000
"""Share of near pairs that must agree for the others to tell anything, of how many pairs at least; and at most."""

SPECIAL = 0.005
"""Share of the inputs up to which a word is what a question is about: two inputs that differ in one ask different
things."""


def neighbour_faults(
    rows: Sequence[Demonstration], vectors: Float32s, task: Task, monitor: Monitor = SILENT
) -> Iterator[Fault]:
    """Rows that nearly all of their near neighbours contradict; looked for where near neighbours mostly agree."""
    if len(rows) < LEAST:
        return
    pairs = _asking_the_same(rows, near_pairs(vectors, monitor))[:MOST_PAIRS]
    name = metric_for(task, [row.output for row in rows[:: max(1, len(rows) // 2_000)]])[0]
    metric = ACCURACY if name == ACCURACY.name else metric_named(name)

    def says(row: Demonstration, other: Demonstration) -> bool:
        return metric.is_right(metric.score(row.output, other.as_query(), task))

    agree = [says(rows[i], rows[j]) or says(rows[j], rows[i]) for i, j in pairs]
    if len(pairs) < LEAST_PAIRS or sum(agree) < AGREE * len(pairs):
        return
    near: dict[int, list[int]] = defaultdict(list)
    against: dict[int, list[int]] = defaultdict(list)
    for (i, j), same in zip(pairs, agree, strict=True):
        for place, other in ((i, j), (j, i)):
            near[place].append(other)
            if not same:
                against[place].append(other)
    for place, others in sorted(against.items()):
        if len(others) <= len(near[place]) / 2:
            continue
        first = rows[others[0]]
        told = f"{first.id} asks nearly the same and says {first.output[:80]}"
        alone = len(near[place]) > 1
        outvoted = alone and all(len(against[other]) <= len(near[other]) / 2 for other in others)
        told += f"; of {len(near[place])} such rows {len(others)} say otherwise"
        yield Fault(place, "neighbour", outvoted, told)


def near_pairs(vectors: Float32s, monitor: Monitor = SILENT) -> list[tuple[int, int]]:
    """Pairs of rows with a cosine of `NEAR` or more, the nearest first.

    Rows are put in the order of the signs of their products with random directions, which near rows share (Charikar
    2002), and compared in blocks; among more than `BLOCK` rows a pair is missed with a small probability.
    """
    draw, n = np.random.default_rng(0), len(vectors)
    cosine_of: dict[tuple[int, int], float] = {}
    for _ in range(TABLES if n > BLOCK else 1):
        monitor.check()
        with one_blas_thread():
            signs = vectors @ draw.normal(size=(vectors.shape[1], 32)).astype(np.float32) > 0
            order = np.argsort(np.packbits(signs, axis=1).view(">u4").ravel(), kind="stable")
            for start in range(0, n, BLOCK):
                block = order[start : start + BLOCK]
                own = vectors[block]
                cosines = own @ own.T  # of one array with itself numpy computes one half
                for a, b in np.argwhere(np.triu(cosines >= NEAR, 1))[: NEAREST * BLOCK].tolist():
                    first, second = sorted((int(block[a]), int(block[b])))
                    cosine_of[first, second] = float(cosines[a, b])
    return sorted(cosine_of, key=lambda pair: (-cosine_of[pair], pair))


def _asking_the_same(rows: Sequence[Demonstration], pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs whose inputs differ in common words alone: in no number, and in no word that few inputs have."""
    words = {place: frozenset(words_in(_asked(rows[place]))) for pair in pairs for place in pair}
    counts = Counter(word for row in rows for word in set(words_in(_asked(row)))) if pairs else Counter[str]()

    def special(word: str) -> bool:
        return counts[word] <= SPECIAL * len(rows) or any(map(str.isdigit, word))

    return [(i, j) for i, j in pairs if not any(map(special, words[i] ^ words[j]))]


def _asked(row: Demonstration) -> str:
    return f"{row.input}\n{row.context}".casefold()
