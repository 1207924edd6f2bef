"""The queries of a split that a limit leaves, and whether they stand for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, lgamma

from ..base.errors import UsageError, counted
from ..base.progress import Event, Report
from ..pool.records import Query, Split
from .demonstrations import queries
from .workspace import Workspace

TASK = "queries"
LEAST_REPEATED = 5
"""Queries to a distinct answer from which the answers are taken for labels."""


def first_queries(workspace: Workspace, split: Split, limit: int | None, report: Report) -> list[Query]:
    """The first ``limit`` queries of a split, in the order they were indexed. Public data sets often come sorted by
    label: reports a warning if the first ones have few of the labels."""
    every = queries(workspace, split)
    first = every[:limit]
    if warning := _unlike(first, every):
        report(Event(TASK, note=f"warning: {split} queries: {warning}"))
    return first


def validation_queries(workspace: Workspace, purpose: str, limit: int | None, report: Report) -> list[Query]:
    """`first_queries` of the validation split. Raises `UsageError` if there are none, which the ``purpose`` needs."""
    if asked := first_queries(workspace, "validation", limit, report):
        return asked
    raise UsageError(
        f"{purpose} needs validation queries",
        "icl-curate index POOL.jsonl --validation QUERIES.jsonl, or --validation-fraction 0.2",
    )


def _unlike(first: Sequence[Query], every: Sequence[Query]) -> str:
    """What the first queries lack, if they have less than half of the labels of as many queries drawn at random."""
    counts = Counter(query.answers[0] for query in every if query.answers)
    seen = len({query.answers[0] for query in first if query.answers})
    total = counts.total()
    if not seen or len(first) == len(every) or total < LEAST_REPEATED * len(counts):
        return ""
    drawn = min(len(first), total)
    expected = sum(1 - _none_of(count, total, drawn) for count in counts.values())
    if seen >= expected / 2:
        return ""
    return (
        f"the first {len(first):,} have {seen:,} of {counted(len(counts), 'label')}, as in a file sorted by label; "
        "leave out -n, or shuffle the file and index it again"
    )


def _none_of(count: int, total: int, drawn: int) -> float:
    """Chance that ``drawn`` of ``total`` queries, without replacement, have none of the ``count`` of a label."""
    if drawn > total - count:
        return 0.0
    kept, others = total - drawn, total - count
    return exp(lgamma(others + 1) + lgamma(kept + 1) - lgamma(others - drawn + 1) - lgamma(total + 1))
