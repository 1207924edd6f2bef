"""Distinctiveness of core topics for a text: the predictor's soft targets (paper 004, eq. 2 and 3).

Computed in log space: exp(BM25) overflows float64 at a score of 710.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...base.arrays import Float32s, Float64s, Int64s, one_blas_thread, top_k
from ...base.progress import CancelToken, Event, Report, silent
from ...pool.words import fold
from ...retrieval.bm25 import BM25Index
from .match import Links

TASK = "targets"
NEIGHBOURS = 100
"""Nearest demonstrations of a text with which its topics are compared: the paper's D_d."""

_CHUNK = 256


def log_distinctiveness(own: Float64s, others: Float64s) -> Float64s:
    """log DST (m,) from BM25 of the text ``own`` (m,) and of its neighbours ``others`` (m, 100) for a topic; eq. 2."""
    top = np.maximum(others.max(axis=1, initial=0.0), 0.0)
    total = np.exp(-top) + np.exp(others - top[:, None]).sum(axis=1)
    found: Float64s = own - (top + np.log(total))
    return found


def soft_targets(log_dst: Float64s, starts: Int64s) -> Float32s:
    """Each distinctiveness divided by the largest of its text (eq. 3); text i has ``log_dst[starts[i]:starts[i +
    1]]``."""
    if not len(log_dst):
        return np.empty(0, np.float32)
    lengths = np.diff(starts)
    best = np.maximum.reduceat(log_dst, starts[:-1][lengths > 0])
    targets: Float32s = np.exp(log_dst - np.repeat(best, lengths[lengths > 0])).astype(np.float32)
    return targets


def neighbours(
    vectors: Float32s,
    pool: Float32s,
    own: Int64s,
    count: int = NEIGHBOURS,
    report: Report = silent,
    cancel: CancelToken | None = None,
) -> Int64s:
    """Positions in ``pool`` (n, d) of the ``count`` vectors nearest to each of ``vectors`` (m, d), (m, count).

    ``own`` (m,) is a text's own position in the pool, which is left out, or -1.
    """
    count = min(count, len(pool) - (1 if (own >= 0).any() else 0))
    found = np.empty((len(vectors), max(count, 0)), np.int64)
    with one_blas_thread():
        for start in range(0, len(vectors), _CHUNK):
            if cancel:
                cancel.check()
            report(Event(TASK, start, len(vectors)))
            scores = np.asarray(vectors[start : start + _CHUNK]) @ pool.T
            mine = own[start : start + _CHUNK]
            scores[np.flatnonzero(mine >= 0), mine[mine >= 0]] = -np.inf
            for i, row in enumerate(scores, start):
                found[i] = top_k(row, count)
    return found


def distinctiveness(
    index: BM25Index,
    names: Sequence[str],
    core: Links,
    places: Int64s,
    near: Int64s,
    report: Report = silent,
    cancel: CancelToken | None = None,
) -> Links:
    """The core topics with their soft targets as weights.

    ``index`` has the folded texts; text i of ``core`` is there at ``places[i]``, its neighbours at ``near[i]`` (m,
    100). Works topic by topic: no array of size texts × topics is created.
    """
    owner = core.texts()
    by_topic = np.argsort(core.topics, kind="stable")
    bounds = np.searchsorted(core.topics[by_topic], np.arange(len(names) + 1))
    log_dst = np.zeros(len(owner))
    for topic, name in enumerate(names):
        if topic % 256 == 0:
            if cancel:
                cancel.check()
            report(Event(TASK, topic, len(names)))
        links = by_topic[bounds[topic] : bounds[topic + 1]]
        if len(links):
            scores = index.scores(fold(name))
            texts = owner[links]
            log_dst[links] = log_distinctiveness(scores[places[texts]], scores[near[texts]])
    report(Event(TASK, len(names), len(names)))
    return Links(core.starts, core.topics, soft_targets(log_dst, core.starts))
