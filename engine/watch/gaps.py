"""Queries that are far from every demonstration: what to collect next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import ceil, exp, lgamma

import numpy as np

from ..base.arrays import Float64s

BEYOND = 0.99
"""Share of the reference queries that are as near to a demonstration as a covered one."""


def farthest(similarities: Float64s, beyond: float = BEYOND) -> tuple[float, int]:
    """The similarity below which a query is not covered, and the rank of the reference query that has it, 1 for the
    farthest: of further queries of the same distribution, rank / (m + 1) are expected beyond it. ``similarities`` (m,)
    of the reference queries to their nearest demonstrations, at least one."""
    rank = min(max(1, ceil((1 - beyond) * (len(similarities) + 1) - 1e-9)), len(similarities))
    return float(np.partition(similarities, rank - 1)[rank - 1]), rank


def exceedance_p(beyond: int, asked: int, rank: int, reference: int) -> float:
    """Probability that at least ``beyond`` of ``asked`` queries are beyond the ``rank``-th farthest of ``reference``
    ones, if all are drawn alike.

    Exact: of the farthest beyond + rank − 1 of all, fewer than ``rank`` are then reference queries, which is a
    hypergeometric probability (Wilks 1942 on exceedances).
    """
    if beyond <= 0:
        return 1.0
    drawn, total = beyond + rank - 1, asked + reference
    least = max(0, drawn - asked)
    chances = [
        _log_choose(reference, i) + _log_choose(asked, drawn - i) - _log_choose(total, drawn)
        for i in range(least, min(rank - 1, reference, drawn) + 1)
    ]
    return min(1.0, sum(map(exp, chances)))


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def grouped_by_words(
    words: Sequence[AbstractSet[str]], usual: Counter[str], reference: int, most: int, least: int = 2
) -> list[tuple[str, list[int]]]:
    """The word that most queries have beyond what is usual, with these queries (positions in ``words``), then the next
    one among the others: at most ``most`` groups of ``least`` or more.

    ``usual``: of the ``reference`` queries, how many have each word.
    """
    left = list(range(len(words)))
    found: list[tuple[str, list[int]]] = []
    while left and len(found) < most:
        counts = Counter(word for i in left for word in words[i])
        excess = {
            word: count - len(left) * usual[word] / max(reference, 1)
            for word, count in counts.items()
            if count >= least
        }
        if not excess:
            break
        best = max(excess, key=lambda word: (excess[word], word))
        if excess[best] <= 0:
            break
        found.append((best, [i for i in left if best in words[i]]))
        left = [i for i in left if best not in words[i]]
    return found
