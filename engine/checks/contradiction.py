"""Whether the LLM's answers contradict the suspected labels.

Confident learning trusts the majority: where most rows follow a wrong guideline, it suspects those that follow the
right one. Validation queries tell: the answers of the LLM with single demonstrations (``train sources``) are then right
more often with a suspected row than with the others.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Int64s
from ..store.trials import Trials
from .labels import LabelPredictions

CHANCE = 0.01
"""Suspected labels are contradicted at this p, one-sided: where they say nothing, that happens in at most one pool of
100."""


def contradiction(found: Trials, rows: Int64s, judged: LabelPredictions) -> str:
    """In a sentence, by how much single demonstrations with a suspected label help more than the others; empty if they
    do not, or by no more than chance (sign test over queries). ``rows`` (n,), ascending, are those judged."""
    from scipy import stats

    at = np.minimum(np.searchsorted(rows, found.rows), len(rows) - 1)
    there = (rows[at] == found.rows) & (judged.labels[at] >= 0)
    right, suspect = found.right[there].astype(np.float64), judged.suspect[at[there]]
    queries = np.unique(found.queries[there], return_inverse=True)[1]
    tried = np.array([np.bincount(queries, suspect == side, queries.max(initial=-1) + 1) for side in (True, False)])
    hits = np.array([np.bincount(queries, right * (suspect == side), tried.shape[1]) for side in (True, False)])
    both = tried.min(axis=0) > 0
    shares = hits[:, both] / tried[:, both]
    wins, losses = np.count_nonzero(shares[0] > shares[1]), np.count_nonzero(shares[0] < shares[1])
    if not wins or stats.binomtest(wins, wins + losses, alternative="greater").pvalue >= CHANCE:
        return ""
    suspected, others = shares.mean(axis=1)
    return f"with a row of a suspected label the LLM is right in {suspected:.0%}, with the others in {others:.0%}"
