"""Rows that repeat each other, and queries that are in the pool, group by group with their texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import contract
from ..base.arrays import Int64s
from ..pool.records import Demonstration
from ..retrieval.duplicates import normalised
from ..store.browse import GroupKind, Place, RowGroups, places_of, pruned_rows, row_groups
from ..store.decisions import kept_rows
from ..store.demonstrations import Leak, fetch
from ..store.workspace import Workspace
from .repeats import leak_findings, repeated
from .results import Finding

BLOCK = 500
"""Groups read together."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A row of a group. ``evidence``: how it is related to the others, in words; empty for the first. ``suggestion``:
    ``keep ID`` or ``prune``, or empty; it applies unless the row is pruned or ``kept`` by decision. ``reason``: that of
    the decision to prune it."""

    row: int
    id: str
    source: str
    split: str
    input: str
    output: str
    file: str
    line: int
    pruned: bool
    kept: bool
    evidence: str
    suggestion: str
    reason: str

    @property
    def to_prune(self) -> bool:
        """Whether keeping the first of the group prunes it; of a leak, whether its rows are pruned."""
        return bool(self.suggestion) and not self.pruned and not self.kept

    def as_json(self) -> dict[str, Any]:
        """One of ``groups[].rows`` in ``check --json``."""
        found = contract.to_json(self)
        del found["reason"]
        return found


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Duplicates: rows of the pool, the first is kept; leaks: rows of the pool, then the queries they repeat."""

    kind: GroupKind
    rows: tuple[GroupRow, ...]

    @property
    def prunes(self) -> dict[str, str]:
        """Ids to prune, with the reason of each."""
        return {row.id: row.reason for row in self.rows if row.to_prune}

    @property
    def first(self) -> GroupRow:
        """The first row of the pool that is not pruned, or the first one."""
        return next((row for row in self.rows if not row.pruned and row.split == "pool"), self.rows[0])

    def as_json(self) -> dict[str, Any]:
        """One of ``groups`` in ``check --json``."""
        return {"kind": self.kind, "rows": [row.as_json() for row in self.rows]}


def read_groups(workspace: Workspace, groups: RowGroups, first: int = 0, last: int | None = None) -> list[RowGroup]:
    """The groups from ``first`` to ``last`` (excluded) with their rows."""
    return _Reader(workspace, groups).read(first, len(groups) if last is None else last)


def open_groups(workspace: Workspace, kind: GroupKind) -> Iterator[RowGroup]:
    """All groups with rows that may still be pruned."""
    groups = row_groups(workspace, kind, only_open=True)
    reader = _Reader(workspace, groups)
    for first in range(0, len(groups), BLOCK):
        yield from reader.read(first, first + BLOCK)


def prunable(workspace: Workspace, kind: GroupKind) -> dict[str, str]:
    """What keeping the first row of each group prunes, or pruning all rows that queries repeat: ids with the reason of
    each; the same rows as ``check prune`` of this kind prunes."""
    return {name: reason for group in open_groups(workspace, kind) for name, reason in group.prunes.items()}


class _Reader:
    """Reads groups; which rows are pruned and kept is read once for all of them."""

    def __init__(self, workspace: Workspace, groups: RowGroups) -> None:
        self._workspace, self._groups, self._kind = workspace, groups, groups.kind
        self._pruned = _among(groups.rows, pruned_rows(workspace))
        self._kept = _among(groups.rows, kept_rows(workspace))
        self._places: Mapping[int, Place] = {}
        """Of the rows read last."""

    def read(self, first: int, last: int) -> list[RowGroup]:
        """The groups from ``first`` to ``last`` (excluded)."""
        members = self._groups.of(first, last)
        numbers = np.concatenate(members) if members else self._groups.rows[:0]
        self._places = places_of(self._workspace, numbers)
        found = {one.row: one for one in fetch(self._workspace, numbers)}
        return [self._group([found[row] for row in each.tolist()]) for each in members]

    def _group(self, rows: Sequence[Demonstration]) -> RowGroup:
        found = self._repeated(rows) if self._kind == "duplicate" else self._leaking(rows)
        return RowGroup(self._kind, tuple(self._row(row, found.get(row.row, ("", "", ""))) for row in rows))

    def _row(self, row: Demonstration, told: tuple[str, str, str]) -> GroupRow:
        place: Place = self._places[row.row]
        return GroupRow(
            row.row, row.id, row.source, place.split, row.input, row.output, place.file, place.line,
            row.row in self._pruned, row.row in self._kept, *told,
        )  # fmt: skip

    def _repeated(self, rows: Sequence[Demonstration]) -> dict[int, tuple[str, str, str]]:
        """Evidence, suggestion and reason of each row but the first; pruned rows are compared with those left."""
        active = [row for row in rows if row.row not in self._pruned]
        first, *others = [*active, *(row for row in rows if row.row in self._pruned)]
        found = {}
        for row in others:
            if normalised(row.output) != normalised(first.output):
                found[row.row] = (f"another output than {first.id}", "", "")
        by_answer: dict[str, list[Demonstration]] = defaultdict(list)
        for row in (first, *others):
            by_answer[normalised(row.output)].append(row)
        for same in by_answer.values():
            found |= {one.row: _told(one) for one in repeated(same)}
        return found

    def _leaking(self, rows: Sequence[Demonstration]) -> dict[int, tuple[str, str, str]]:
        pool = {row.row: row for row in rows if self._places[row.row].split == "pool"}
        asked = [row for row in rows if row.row not in pool]
        pairs = [Leak(row, query.id, self._places[query.row].split, query.input) for row in pool for query in asked]
        return {one.row: _told(one) for one in leak_findings(pool, pairs)}


def _told(one: Finding) -> tuple[str, str, str]:
    return one.evidence, one.suggestion, one.reason


def _among(rows: Int64s, others: Int64s) -> Collection[int]:
    return frozenset(np.intersect1d(rows, others).tolist())
