"""The majority vote of the first K kept answers of each list, and how one source changes it.

Where answers cannot be counted (``voted`` of the lists is false), the mean utility of these K stands in for the vote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..base.arrays import Bools, Float64s, Int64s, compiled
from .lists import RankedLists


def vote(
    lists: RankedLists,
    voters: int,
    present: Bools | None = None,
    weights: Float64s | None = None,
    decay: float = 1.0,
) -> Float64s:
    """(N,) utility of the winning answer of each list: 0 if nothing is present. Without a vote the mean utility of the
    voters, by the same weights.

    The first ``voters`` items whose source is ``present`` (C,) vote for their answers, the r-th of them (from 0) with
    ``weights[source] · decay**r``; ties go to the answer that comes first.
    """
    count = len(lists.names)
    order = np.where(np.ones(count, bool) if present is None else present, 1, 0).astype(np.int64)
    cuts, sizes = np.array([1], np.int64), np.array([voters], np.int64)
    return np.asarray(vote_curve(lists, order, cuts, sizes, weights, decay)[0, 0])


def vote_curve(
    lists: RankedLists,
    order: Int64s,
    cuts: Int64s,
    voters: Sequence[int] | Int64s,
    weights: Float64s | None = None,
    decay: float = 1.0,
) -> Float64s:
    """(Q, J, N) utility of the winner if the sources with ``order[source] < cuts[q]`` are dropped.

    ``voters`` (J,) must be ascending; all of them are computed in one pass over each list.
    """
    weight = np.ones(len(lists.names)) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    sizes = np.asarray(voters, dtype=np.int64)
    powers = decay ** np.arange(int(sizes[-1]), dtype=np.float64)
    out = np.zeros((len(cuts), len(sizes), len(lists)))
    _curve_kernel()(
        lists.sources, lists.answers, lists.utilities, lists.offsets, np.asarray(order, np.int64),
        np.asarray(cuts, np.int64), sizes, weight, powers, lists.voted, out,
    )  # fmt: skip
    return out


def vote_marginals(lists: RankedLists, present: Bools, voters: int) -> Float64s:
    """(C,) mean over the lists of U(S ∪ s) − U(S \\ s) for each source s, U the utility of the majority vote.

    S = the sources ``present`` (C,). Only sources before the last voter can change a vote, so a pass costs O(N ·
    voters²) instead of O(N · C · voters).
    """
    sums = np.zeros(len(lists.names))
    _marginals_kernel()(
        lists.sources, lists.answers, lists.utilities, lists.offsets, present, voters, lists.voted, sums
    )
    return sums / max(1, len(lists))


@cache
def _curve_kernel() -> Callable[..., None]:
    def run(
        sources: Any, answers: Any, utilities: Any, offsets: Any, order: Any, cuts: Any, sizes: Any,
        weights: Any, powers: Any, voted: bool, out: Any,
    ) -> None:  # fmt: skip
        longest = 0
        for n in range(len(offsets) - 1):
            longest = max(longest, offsets[n + 1] - offsets[n])
        tally = np.zeros(longest)
        met = np.zeros(longest, np.int64)  # answers in order of appearance
        value = np.zeros(longest)  # utility of each answer
        seen = np.zeros(longest, np.bool_)
        last = sizes[-1]
        for n in range(len(offsets) - 1):
            for c in range(len(cuts)):
                cut = cuts[c]
                distinct, votes, column = 0, 0, 0
                total, mass = 0.0, 0.0  # Σ w u and Σ w of the voters
                for i in range(offsets[n], offsets[n + 1]):
                    source = sources[i]
                    if order[source] < cut:
                        continue
                    answer = answers[i]
                    if not seen[answer]:
                        seen[answer] = True
                        met[distinct] = answer
                        distinct += 1
                        value[answer] = utilities[i]
                        tally[answer] = 0.0
                    weight = weights[source] * powers[votes]
                    tally[answer] += weight
                    total += weight * utilities[i]
                    mass += weight
                    votes += 1
                    if votes == sizes[column]:
                        best = 0
                        for a in range(1, distinct):
                            if tally[met[a]] > tally[met[best]]:
                                best = a
                        out[c, column, n] = value[met[best]] if voted else total / mass if mass > 0.0 else 0.0
                        column += 1
                        if votes == last:
                            break
                if distinct and column < len(sizes):
                    best = 0
                    for a in range(1, distinct):
                        if tally[met[a]] > tally[met[best]]:
                            best = a
                    for rest in range(column, len(sizes)):
                        out[c, rest, n] = value[met[best]] if voted else total / mass if mass > 0.0 else 0.0
                for a in range(distinct):
                    seen[met[a]] = False

    return compiled(run)


@cache
def _marginals_kernel() -> Callable[..., None]:
    def run(
        sources: Any, answers: Any, utilities: Any, offsets: Any, present: Any, voters: int, voted: bool, sums: Any
    ) -> None:
        longest = 0
        for n in range(len(offsets) - 1):
            longest = max(longest, offsets[n + 1] - offsets[n])
        tally = np.zeros(longest, np.int64)
        met = np.zeros(longest, np.int64)
        value = np.zeros(longest)
        toggled = np.full(len(present), -1, np.int64)  # the last list in which a source was toggled
        for n in range(len(offsets) - 1):
            start, end = offsets[n], offsets[n + 1]
            base = 0.0
            reach = end
            for turn in range(start - 1, end):  # first turn: nothing toggled; then each source seen before `reach`
                if turn >= reach:
                    break
                other = -1
                if turn >= start:
                    other = sources[turn]
                    if toggled[other] == n:
                        continue
                    toggled[other] = n
                distinct, votes, total = 0, 0, 0.0
                for i in range(start, end):
                    source = sources[i]
                    if present[source] == (source == other):
                        continue
                    answer = answers[i]
                    is_met = False
                    for a in range(distinct):
                        if met[a] == answer:
                            is_met = True
                            break
                    if not is_met:
                        met[distinct] = answer
                        distinct += 1
                        value[answer] = utilities[i]
                        tally[answer] = 0
                    tally[answer] += 1
                    total += utilities[i]
                    votes += 1
                    if votes == voters:
                        if turn < start:
                            reach = i + 1
                        break
                utility = 0.0
                if distinct:
                    best = 0
                    for a in range(1, distinct):
                        if tally[met[a]] > tally[met[best]]:
                            best = a
                    utility = value[met[best]] if voted else total / votes
                if turn < start:
                    base = utility
                elif present[other]:
                    sums[other] += base - utility
                else:
                    sums[other] += utility - base

    return compiled(run)
