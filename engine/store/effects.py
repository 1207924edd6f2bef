"""What is active before and after a decision: rows, and which sources and labels come and go with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from ..base.contract import Reported


@dataclass(frozen=True, slots=True)
class ActiveCounts:
    """Active rows in all, of each source of the pool, and of each of its labels; no labels if the answers are none."""

    rows: int
    sources: Mapping[str, int]
    labels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LabelLoss:
    """Active rows of a label before and after."""

    label: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Effects(Reported):
    """Sources and labels that have no active row any more (``gone``) or for the first time have one (``added``), those
    with the most rows first. ``label_losses``: labels that are left with half of their rows or fewer, but are not gone;
    the largest share lost first."""

    sources_gone: tuple[str, ...] = ()
    sources_added: tuple[str, ...] = ()
    labels_gone: tuple[str, ...] = ()
    labels_added: tuple[str, ...] = ()
    label_losses: tuple[LabelLoss, ...] = ()


def active_counts(con: duckdb.DuckDBPyConnection) -> ActiveCounts:
    """The counts as of now."""
    found = con.execute(
        """
        SELECT source, CASE WHEN (SELECT value FROM meta WHERE key = 'task') = 'labels' THEN output END AS label,
               count(*) FILTER (row IN (SELECT row FROM active))
          FROM pool GROUP BY ALL ORDER BY ALL
        """
    ).fetchall()
    sources: dict[str, int] = {}
    labels: dict[str, int] = {}
    for source, label, count in found:
        sources[source] = sources.get(source, 0) + count
        if label is not None:
            labels[label] = labels.get(label, 0) + count
    return ActiveCounts(sum(sources.values()), sources, labels)


def effects_of(before: ActiveCounts, after: ActiveCounts) -> Effects:
    """What a decision does, from the counts around it."""
    lost = [LabelLoss(label, count, after.labels.get(label, 0)) for label, count in before.labels.items()]
    losses = [one for one in lost if 0 < one.after <= one.before / 2]
    return Effects(
        sources_gone=_gone(before.sources, after.sources),
        sources_added=_gone(after.sources, before.sources),
        labels_gone=_gone(before.labels, after.labels),
        labels_added=_gone(after.labels, before.labels),
        label_losses=tuple(sorted(losses, key=lambda one: (one.after / one.before, -one.before, one.label))),
    )


def _gone(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    names = [name for name, count in before.items() if count and not after.get(name)]
    return tuple(sorted(names, key=lambda name: (-before[name], name)))
