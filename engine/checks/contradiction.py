"""Whether the LLM's answers contradict the suspected labels.

Confident learning trusts the majority: where most rows follow a wrong guideline, it suspects those that follow the
right one. Validation queries tell: the answers of the LLM with single demonstrations (``train sources``) are then right
more often with a suspected row than with the others.
"""

from __future__ import annotations

import numpy as np

from ..base.arrays import Bools, Float64s, Int64s
from ..store.trials import Trials
from .labels import LabelPredictions

CHANCE = 0.05
"""Suspected labels are contradicted at this p, one-sided. Where they say nothing, little is lost with them."""


def contradiction(found: Trials, rows: Int64s, judged: LabelPredictions) -> str:
    """In a sentence, by how much single demonstrations with a suspected label help more than the others; empty if they
    do not, or by no more than chance (`excess`). ``rows`` (n,), ascending, are those judged."""
    from scipy import stats

    at = np.minimum(np.searchsorted(rows, found.rows), len(rows) - 1)
    there = (rows[at] == found.rows) & (judged.labels[at] >= 0)
    right, suspect = found.right[there].astype(np.float64), judged.suspect[at[there]]
    queries = np.unique(found.queries[there], return_inverse=True)[1]
    more, by_chance, by_query = excess(right, suspect, queries)
    if more <= 0.5 or stats.norm.sf((more - 0.5) / np.sqrt(max(by_chance, by_query))) >= CHANCE:
        return ""
    both = np.isin(queries, queries[suspect]) & np.isin(queries, queries[~suspect])
    shares = [np.mean([right[both & side & (queries == query)].mean() for query in np.unique(queries[both])])
              for side in (suspect, ~suspect)]  # fmt: skip
    return f"with a row of a suspected label the LLM is right in {shares[0]:.0%}, with the others in {shares[1]:.0%}"


def excess(right: Float64s, suspect: Bools, queries: Int64s) -> tuple[float, float, float]:
    """How many more answers are right with suspected rows than expected of any rows of the same query, over all
    queries, and the variance of this: by chance within queries (Mantel and Haenszel 1959), and as the queries differ,
    which is larger where rows of one label answer alike. All arguments (t,), one for each trial."""
    count = int(queries.max(initial=-1)) + 1
    n, n1 = np.bincount(queries, minlength=count), np.bincount(queries, suspect, count)
    hits, hits1 = np.bincount(queries, right, count), np.bincount(queries, right * suspect, count)
    more = hits1 - n1 * hits / np.maximum(n, 1)
    chance = n1 * (n - n1) * hits * (n - hits) / np.maximum(n * n * (n - 1), 1)
    return float(more.sum()), float(chance.sum()), float((more**2).sum())
