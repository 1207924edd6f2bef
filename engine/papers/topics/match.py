"""The topics of a text: candidates by word overlap and by embedding, core topics by the LLM.

Paper 004, section 3.1.1: ten topics by BM25, ten others by cosine; the LLM picks from them and adds what is missing. A
topic overlaps with a text only if all of its words occur in it: half a phrase is another topic. What the LLM adds must
be named for several texts. Both can be had as printed instead.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...base.arrays import Float32s, Float64s, Int64s, one_blas_thread
from ...base.errors import UsageError
from ...base.files import read_regular
from ...base.progress import SILENT, Event, Monitor
from ...http.refusals import storable
from ...llm.types import Request, Sampling
from ...pool.prompts import Prompt
from ...pool.records import Message, Query
from ...pool.words import fold
from ...prompting.template import AUTO, question_of
from ...retrieval.bm25 import BM25Index

TASK = "match"
LEXICAL = SEMANTIC = 10
"""Number of candidates by word overlap and by embedding (paper 004, section 3.1.1)."""

MOST_CORE = 20
"""Maximum core topics read from one reply."""

NAMINGS = 2
"""Minimum texts for which the LLM must name a topic that was not mined."""

LONGEST_NAME = 5
"""Maximum words of a topic taken from a reply."""

MOST_GIVEN, LONGEST_GIVEN = 100, 200
"""Maximum topics that are given for a row, and characters of each; those released with the paper have up to 23."""

_CHUNK = 2048
_SEPARATOR = re.compile(r"[,;\n]+")
_MARK = re.compile(r"^\s*(?:[-*•]|\(?\d+[.)](?!\d))\s*")


@dataclass(frozen=True, slots=True)
class Links:
    """Topics of texts: those of text i are ``topics[starts[i]:starts[i + 1]]``; ``starts`` (n + 1,), ``topics`` and
    ``weights`` (m,)."""

    starts: Int64s
    topics: Int64s
    weights: Float32s

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, text: int) -> Int64s:
        return self.topics[self.starts[text] : self.starts[text + 1]]

    def texts(self) -> Int64s:
        """The text of each link, (m,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def some(self, texts: Int64s) -> Links:
        """Those of some texts, renumbered by their position in ``texts``."""
        lengths = np.diff(self.starts)[texts]
        starts = np.append(0, np.cumsum(lengths))
        at = np.repeat(self.starts[texts] - starts[:-1], lengths) + np.arange(starts[-1])
        return Links(starts, self.topics[at], self.weights[at])


def links_of(texts: int, text: Int64s, topics: Int64s, weights: Float32s) -> Links:
    """Links from pairs in any order; those of one text keep their order."""
    order = np.argsort(text, kind="stable")
    starts = np.searchsorted(text[order], np.arange(texts + 1)).astype(np.int64)
    return Links(starts, topics[order], weights[order].astype(np.float32))


def lexical_candidates(
    index: BM25Index, names: Sequence[str], count: int = LEXICAL, whole: bool = True, monitor: Monitor = SILENT
) -> Links:
    """The ``count`` topics of each text with the highest BM25, ties to the earlier topic; the weights are the scores.

    ``index`` has the folded texts, numbered from 0. ``whole``: only topics of which every word occurs.
    """
    by_topic: list[tuple[Int64s, Int64s, Float64s]] = []
    for topic, name in enumerate(names):
        if topic % 256 == 0:
            monitor.check()
            monitor.report(Event(TASK, topic, len(names)))
        scores = index.scores(fold(name))
        here = scores != 0
        words = fold(name).split()
        for word in words if whole and len(words) > 1 else ():
            here &= index.scores(word) != 0
        texts = np.flatnonzero(here)
        by_topic.append((texts, np.full(len(texts), topic), scores[texts]))
    monitor.report(Event(TASK, len(names), len(names)))
    text, topics, scores = (np.concatenate(column) for column in zip(*by_topic, strict=True))
    order = np.lexsort((topics, -scores, text))
    text, topics, scores = text[order], topics[order], scores[order]
    rank = np.arange(len(text)) - np.searchsorted(text, text)
    best = rank < count
    return links_of(len(index), text[best], topics[best], scores[best].astype(np.float32))


def semantic_candidates(vectors: Float32s, names: Float32s, lexical: Links, count: int = SEMANTIC) -> Links:
    """The ``count`` topics nearest to each text by cosine that are not among its lexical ones.

    ``vectors`` (n, d) of texts, ``names`` (t, d) of topic names; the weights are the cosines.
    """
    columns: list[Int64s] = []
    values: list[Float32s] = []
    count = min(count, len(names))
    owner = lexical.texts()
    with one_blas_thread():
        for start in range(0, len(vectors), _CHUNK):
            scores = np.asarray(vectors[start : start + _CHUNK]) @ names.T
            span = slice(*lexical.starts[[start, min(start + _CHUNK, len(vectors))]])
            scores[owner[span] - start, lexical.topics[span]] = -np.inf
            best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
            by_score = np.take_along_axis(scores, best, axis=1)
            order = np.lexsort((best, -by_score), axis=1)
            columns.append(np.take_along_axis(best, order, axis=1))
            values.append(np.take_along_axis(by_score, order, axis=1))
    topics, cosines = np.concatenate(columns), np.concatenate(values)
    usable = np.isfinite(cosines)
    text = np.broadcast_to(np.arange(len(vectors))[:, None], topics.shape)
    return links_of(len(vectors), text[usable], topics[usable], cosines[usable])


def core_request(query: Query, candidates: Sequence[str], seed: int = 0) -> Request:
    """The request for core topics (after paper 004, appendix A); ``query`` carries its answer."""
    answer = query.answers[0] if query.answers else ""
    text = (
        "Here are a question with its answer and some candidate topics. Which topics is it about? Take those of the "
        "candidates that fit, add topics that are missing, and name five or more. Write nothing but the topics, on one "
        "line, with commas between them.\n\n"
        f"{question_of(AUTO, query)}\nAnswer: {answer}\n\nCandidate topics: {', '.join(candidates)}"
    )
    return Request(Prompt((Message("user", text),), query), sampling=Sampling(max_tokens=160, seed=seed))


def topics_in(reply: str) -> list[str]:
    """The topics a reply names, in lower case, each once."""
    named: dict[str, str] = {}
    for part in _SEPARATOR.split(reply):
        name = " ".join(_MARK.sub("", part).strip(" .\"'*`").lower().split())
        key = fold(name)
        if key and len(key.split()) <= LONGEST_NAME:
            named.setdefault(key, name)
    return list(named.values())[:MOST_CORE]


def read_core(path: Path) -> dict[str, list[str]]:
    """Core topics that somebody else picked, by the id of a row or a query: JSONL with ``id`` and ``topics``, of which
    the first `MOST_GIVEN` count. Raises `UsageError`."""
    fix = 'give JSONL, one line for each row: {"id": "r-1", "topics": ["refunds", "opening hours"]}'
    picked: dict[str, list[str]] = {}
    try:
        lines = read_regular(path).decode("utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the core topics in {path}: {reason}", fix) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
            key, topics = told["id"], told["topics"]
            if isinstance(key, bool) or not isinstance(key, str | int) or not isinstance(topics, list):
                raise TypeError
            names = [" ".join(storable(topic).split()) for topic in topics]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"{path}, line {number}: no id with a list of topics", fix) from error
        if any(len(name) > LONGEST_GIVEN or not name.isprintable() for name in names):
            limit = f"{LONGEST_GIVEN} characters, and none that cannot be printed"
            raise UsageError(f"{path}, line {number}: a topic may have {limit}", fix)
        if (row := str(key).strip()) in picked:
            raise UsageError(f"{path}, line {number}: its row has a line already", "give one line for each row")
        by_key: dict[str, str] = {}
        for name in names:
            by_key.setdefault(fold(name), name)
        picked[row] = [name for folded, name in by_key.items() if folded][:MOST_GIVEN]
    if not any(picked.values()):
        raise UsageError(f"{path} contains no core topics", fix)
    return {row: names for row, names in picked.items() if names}


def core_topics(
    names: Sequence[str], lexical: Links, named: Sequence[Sequence[str]], least: int = NAMINGS
) -> tuple[list[str], Links]:
    """The topics including those that were added to ``least`` texts or more, and the core topics of each text.

    ``named`` has the topics that an LLM or somebody else names for each text; where no known one is among them, the
    lexical candidates are used.
    """
    numbers: dict[str, int] = {}
    for number, name in enumerate(names):
        numbers.setdefault(fold(name), number)
    added = Counter(fold(name) for own in named for name in own if fold(name) not in numbers)
    grown = list(names)
    for own in named:
        for name in own:
            if added[fold(name)] >= least and fold(name) not in numbers:
                numbers[fold(name)] = len(grown)
                grown.append(name)
    text: list[int] = []
    topics: list[int] = []
    for i, own in enumerate(named):
        chosen = [numbers[key] for key in map(fold, own) if key in numbers] or lexical.of(i).tolist()
        text += [i] * len(chosen)
        topics += chosen
    weights = np.ones(len(topics), np.float32)
    return grown, links_of(len(named), np.array(text, np.int64), np.array(topics, np.int64), weights)
