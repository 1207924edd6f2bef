"""Topics of a pool: its key phrases.

Phrases of one to three words are ranked by class-based TF-IDF (Grootendorst 2022, BERTopic, section 3.3): a phrase is a
topic if it is frequent in one neighbourhood of the pool and rare elsewhere. The neighbourhoods are clusters of the
embeddings. Function words, words that occur nearly everywhere, loose word pairs, parts of longer phrases and
near-synonyms are removed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from ...base.arrays import Float32s, Float64s, Int64s, one_blas_thread
from ...base.errors import UsageError
from ...base.files import read_regular
from ...base.progress import SILENT, Event, Monitor
from ...pool.words import FUNCTION_WORDS, fold, runs_of, tokens_of

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


TASK = "mine"
LONGEST = 3
"""Words of the longest phrase."""

EVERYWHERE = 0.2
"""A word in more than this share of the texts counts as boilerplate."""

TIED = 0.25
"""Minimum normalised pointwise mutual information of the words of a phrase."""

ABSORBED = 0.75
"""A phrase that is part of a longer one in this share of its texts is dropped in favour of the longer one."""

SAME = 0.9
"""Two names with at least this cosine are one topic."""

MOST = 10_000
"""Maximum topics in total; also at most `PER_TEXT` per text: the paper's sets have 0.3 to 1 (table 5)."""

PER_TEXT = 0.4
ROOM = 1_000_000
"""Maximum phrases counted at once; beyond it, the rarest so far are dropped, a quarter of them or more: each time all
are looked at (Manku & Motwani 2002, lossy counting)."""

_CHUNK = 4096


def mine(
    texts: Sequence[str],
    vectors: Float32s,
    embed: Callable[[Sequence[str]], Float32s],
    size: int | None = None,
    given: Sequence[str] = (),
    seed: int = 0,
    monitor: Monitor = SILENT,
    *,
    nouns: bool = False,
) -> tuple[list[str], Float32s]:
    """The topics of ``texts`` (n,), best first, and the vectors of their names.

    ``vectors`` (n, d) are the texts' embeddings and ``embed`` computes those of names, all of length 1. ``size`` bounds
    the number of topics; by default `PER_TEXT` times the texts, at most `MOST`. ``given`` topics come first, whether or
    not they occur in the texts. ``nouns``: one word is a topic only if it is a noun (`NounCounts`). Raises `UsageError`
    if no topic is left.
    """
    size = min(MOST, max(20, int(PER_TEXT * len(texts)))) if size is None else size
    counts = _counted(texts, monitor)
    kept = _phrases(counts, len(texts))
    if nouns:
        kept = _nominal(kept, texts, monitor)
    scores, names = _ranked(texts, kept, clusters(vectors, seed), monitor)
    order = sorted(range(len(names)), key=lambda i: (-scores[i], names[i]))[: size + size // 4]
    if not order and not given:
        raise UsageError("no phrase occurs in two texts of the pool", "icl-curate train topics --topics LIST.txt")
    known = {fold(name) for name in given}
    best = [*given, *(names[i] for i in order if fold(names[i]) not in known)]
    found = embed(best)
    distinct = sorted({*range(len(given)), *without_synonyms(found)})[:size]
    return [best[i] for i in distinct], found[distinct]


def label_topics(labels: Iterable[str]) -> list[str]:
    """The labels of a pool that describe their rows, as topics; ``yes``, ``B`` or ``3`` do not."""
    by_key: dict[str, str] = {}
    for label in labels:
        words = label.lower().replace("_", " ").split()
        if any(len(word) > 2 and word.isalpha() and word not in FUNCTION_WORDS for word in words):
            by_key.setdefault(fold(label), " ".join(words))
    return list(by_key.values())


def read_list(path: Path) -> list[str]:
    """The user's own topics, one per line; empty lines, comments (#) and repeats are skipped. `UsageError` if none."""
    try:
        lines = [" ".join(line.split()) for line in read_regular(path).decode("utf-8-sig").splitlines()]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot read the topics in {path}: {reason}", "give a text file with one topic per line"
        ) from error
    by_key: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith("#") and fold(line):
            by_key.setdefault(fold(line), line)
    if not by_key:
        raise UsageError(f"{path} contains no topic", "write one topic per line")
    return list(by_key.values())


def phrases(text: str) -> Iterator[tuple[str, str]]:
    """The text's phrases, folded and as written in lower case, repeats included.

    A phrase neither begins nor ends with a function word and does not cross punctuation; numbers are left out.
    """
    for run in runs_of(text):
        folded = [fold(word) for word in run]
        usable = [len(word) > 2 and not word.isdigit() and word not in FUNCTION_WORDS for word in run]
        for start in range(len(run)):
            for end in range(start + 1, min(start + LONGEST, len(run)) + 1) if usable[start] else ():
                if usable[end - 1]:
                    yield " ".join(folded[start:end]), " ".join(run[start:end])


def clusters(vectors: Float32s, seed: int, rounds: int = 8, sample: int = 10_000) -> Int64s:
    """Spherical k-means (Dhillon & Modha 2001): the cluster of each of ``vectors`` (n, d), √n clusters, 300 at most.

    The centres are learnt on a seeded sample.
    """
    rng = np.random.default_rng([seed, 1])
    n = len(vectors)
    count = max(1, min(300, int(np.sqrt(n))))
    learnt = np.asarray(vectors[np.sort(rng.choice(n, min(n, sample), replace=False))])
    centres = learnt[rng.choice(len(learnt), count, replace=False)].copy()
    with one_blas_thread():
        for _ in range(rounds):
            nearest = (learnt @ centres.T).argmax(axis=1)
            order = np.argsort(nearest, kind="stable")
            used, starts = np.unique(nearest[order], return_index=True)
            sums = np.add.reduceat(learnt[order], starts, axis=0)
            centres[used] = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
        blocks = [(np.asarray(vectors[i : i + _CHUNK]) @ centres.T).argmax(axis=1) for i in range(0, n, _CHUNK)]
    return np.concatenate(blocks).astype(np.int64)


def without_synonyms(vectors: Float32s) -> list[int]:
    """Positions of the names, best first, whose cosine with every better selected one is below `SAME`; input (t, d)."""
    different: list[int] = []
    with one_blas_thread():
        for start in range(0, len(vectors), 512):
            block = vectors[start : start + 512]
            clear = ((block @ vectors[different].T).max(axis=1) < SAME) if different else np.ones(len(block), np.bool_)
            inside = block @ block.T
            chosen: list[int] = []
            for i in np.flatnonzero(clear).tolist():
                if not chosen or inside[i, chosen].max() < SAME:
                    chosen.append(i)
            different += [start + i for i in chosen]
    return different


def _counted(texts: Sequence[str], monitor: Monitor) -> Counter[str]:
    """Number of texts in which each phrase and each single word occurs."""
    counts: Counter[str] = Counter()
    for i, text in enumerate(texts):
        if i % _CHUNK == 0:
            monitor.check()
            monitor.report(Event(TASK, i, 2 * len(texts)))
        found = {key for key, _ in phrases(text)}
        found.update(fold(word) for word in tokens_of(text) if word[0].isalnum())
        counts.update(found)
        if len(counts) > ROOM:
            rare = 0
            while len(counts) > 0.75 * ROOM:
                rare += 1
                counts = Counter({key: count for key, count in counts.items() if count > rare})
    return counts


def _phrases(counts: Counter[str], texts: int) -> dict[str, int]:
    """The phrases worth ranking, numbered."""
    least = 2 if texts < 5_000 else 3 if texts < 50_000 else 5
    worth = {
        key: count
        for key, count in counts.items()
        if least <= count <= max(least, EVERYWHERE * texts) and (" " not in key or _tied(key, counts, texts) >= TIED)
    }
    for key in [key for key in worth if " " in key]:
        words = key.split()
        parts = [*words, *(" ".join(pair) for pair in pairwise(words))] if len(words) > 2 else words
        for part in parts:
            if part in worth and part != key and counts[key] >= ABSORBED * counts[part]:
                del worth[part]
    return {key: number for number, key in enumerate(worth)}


def _nominal(phrases: dict[str, int], texts: Sequence[str], monitor: Monitor) -> dict[str, int]:
    """Those of the phrases that can name a topic, numbered anew."""
    nouns = NounCounts()
    for i, text in enumerate(texts):
        if i % _CHUNK == 0:
            monitor.check()
        nouns.add(text)
    return {key: number for number, key in enumerate(key for key in phrases if nouns.is_topic(key))}


def _tied(key: str, counts: Counter[str], texts: int) -> float:
    """The minimum, over all cuts, of the normalised pointwise mutual information (Bouma 2009) of the two halves of a
    phrase. 1 if they never occur apart. Halves that end in a function word are not phrases, so there is no cut there.
    """
    words = key.split()
    cuts: list[tuple[str, ...]] = [(" ".join(words[:i]), " ".join(words[i:])) for i in range(1, len(words))]
    halves = [cut for cut in cuts if all(half in counts for half in cut)] or [tuple(words)]
    together = np.log(counts[key] / texts)
    return min(
        float((together - sum(np.log(max(counts[half], counts[key]) / texts) for half in cut)) / max(-together, 1e-12))
        / (len(cut) - 1)
        for cut in halves
    )


def _ranked(
    texts: Sequence[str], numbers: dict[str, int], cluster: Int64s, monitor: Monitor
) -> tuple[Float64s, list[str]]:
    """Each phrase's best class-based TF-IDF over the clusters, and its most frequent spelling."""
    forms: defaultdict[int, Counter[str]] = defaultdict(Counter)
    pairs: list[Int64s] = []
    count = int(cluster.max()) + 1
    for start in range(0, len(texts), _CHUNK):
        monitor.check()
        monitor.report(Event(TASK, len(texts) + start, 2 * len(texts)))
        chunk: list[int] = []
        for i in range(start, min(start + _CHUNK, len(texts))):
            written = {numbers[key]: form for key, form in phrases(texts[i]) if key in numbers}
            for number, form in written.items():
                forms[number][form] += 1
                chunk.append(number * count + int(cluster[i]))
        pairs.append(np.array(chunk, np.int64))
    monitor.report(Event(TASK, 2 * len(texts), 2 * len(texts)))
    cells, times = np.unique(np.concatenate(pairs), return_counts=True)
    phrase, where = cells // count, cells % count
    per_class = np.maximum(np.bincount(where, times, count), 1.0)
    total = np.maximum(np.bincount(phrase, times, len(numbers)), 1.0)
    weights = times / per_class[where] * np.log1p(per_class.mean() / total[phrase])
    scores = np.zeros(len(numbers))
    np.maximum.at(scores, phrase, weights)
    names = [
        max(forms[i].items(), key=lambda item: (item[1], item[0]))[0] if i in forms else "" for i in range(len(numbers))
    ]
    present = [i for i, name in enumerate(names) if name]
    return scores[present], [names[i] for i in present]
