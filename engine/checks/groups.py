"""Rows that duplicate, contradict or leak others, as the index found them: as findings, and group by group with their
texts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import contract
from ..base.arrays import Float64s, Int64s
from ..pool.records import Demonstration, Task
from ..retrieval.duplicates import jaccards, normalised
from ..store.browse import pruned_rows
from ..store.decisions import kept_rows
from ..store.demonstrations import Leak, fetch
from ..store.groups import GroupKind, Place, RowGroups, places_of, row_groups
from ..store.workspace import Workspace
from .results import REVIEW, Finding, finding

BETTER = 0.1
"""Minimum difference in label quality that decides between two sides of a conflict."""

MOST_WORDS = 8
"""A longer open answer may be one of many right ones and is not treated as a conflict."""


def repeat_findings(
    rows: Sequence[Demonstration],
    groups: Int64s,
    similarity: Mapping[int, float],
    task: Task,
    quality: Float64s | None,
) -> Iterator[Finding]:
    """Duplicates and conflicts among rows (n,): ``groups`` (n,) as returned by `store.demonstrations.groups`,
    ``similarity`` by row number to the first of its group, ``quality`` (n,) of labels if they were checked."""
    members: dict[int, list[int]] = defaultdict(list)
    for place, group in enumerate(groups.tolist()):
        members[group].append(place)
    for group, places in members.items():
        if len(places) > 1:
            by_answer: dict[str, list[int]] = defaultdict(list)
            for place in places:
                by_answer[normalised(rows[place].output)].append(place)
            for same in by_answer.values():
                yield from repeated([rows[place] for place in same], group, similarity)
            if len(by_answer) > 1:
                yield from _conflicts(rows, by_answer, task, quality)


def repeated(
    same: Sequence[Demonstration], group: int = -1, similarity: Mapping[int, float] | None = None
) -> Iterator[Finding]:
    """All but the first of rows with the same content; ``similarity`` to the first row of the ``group``, where it is
    known."""
    first, *others = same
    to_first = similarity if similarity and first.row == group else {}
    for row in others:
        texts = [normalised(first.input), normalised(row.input)]
        if texts[0] == texts[1]:
            yield finding(row, "duplicate", 0.5, f"repeats {first.id}", f"keep {first.id}", similarity=1.0)
            continue
        alike = to_first.get(row.row)
        if alike is None:
            alike = float(jaccards(texts, np.array([[0, 1]], np.int64))[0])
        evidence = f"nearly repeats {first.id}, similarity {alike:.2f}"
        yield finding(row, "duplicate", 0.5 * alike, evidence, f"keep {first.id}", similarity=alike)


def _conflicts(
    rows: Sequence[Demonstration], by_answer: Mapping[str, Sequence[int]], task: Task, quality: Float64s | None
) -> Iterator[Finding]:
    """Rows of one group with different outputs. If inputs are only nearly the same, only closed labels contradict each
    other: a nearly equal open question may be about another country and have another right answer."""
    by_input: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for answer, places in by_answer.items():
        for place in places:
            by_input[normalised(rows[place].input)].setdefault(answer, []).append(place)
    conflicting: set[int] = set()
    for answers in by_input.values():
        if len(answers) > 1:
            for place, conflict in _same_input(rows, answers, task, quality):
                conflicting.add(place)
                yield conflict
    if task.kind == "labels" and not conflicting:
        yield from _near_input(rows, by_answer, quality)


def _same_input(
    rows: Sequence[Demonstration], answers: Mapping[str, Sequence[int]], task: Task, quality: Float64s | None
) -> Iterator[tuple[int, Finding]]:
    if task.kind == "open" and (
        any(len(answer.split()) > MOST_WORDS for answer in answers) or _share_an_answer(rows, answers)
    ):
        return
    winner = _winner(answers, quality)
    total = sum(map(len, answers.values()))
    for answer, places in answers.items():
        if answer == winner:
            continue
        for place in places:
            row = rows[place]
            others = [other for name, held in answers.items() if name != answer for other in held]
            against = rows[answers[winner][0]] if winner else rows[others[0]]
            evidence = (
                f"says {row.output}, {against.id} with the same input says {against.output} ({len(places)} of {total})"
            )
            suggestion = f"keep {against.id}" if winner else REVIEW
            yield place, finding(row, "conflict", 0.8, evidence, suggestion, agree=len(places), rows=total)


def _near_input(
    rows: Sequence[Demonstration], answers: Mapping[str, Sequence[int]], quality: Float64s | None
) -> Iterator[Finding]:
    """A nearly equal question may have another answer, so a row is a conflict only if its label is suspected as
    well."""
    winner = _winner(answers, quality)
    for answer, places in answers.items():
        other = winner if winner and winner != answer else next(name for name in answers if name != answer)
        against = rows[answers[other][0]]
        for place in places if answer != winner else ():
            doubted = winner is not None and quality is not None and quality[place] < 0.5
            evidence = f"says {rows[place].output}, {against.id} with nearly the same input says {against.output}"
            suggestion = f"keep {against.id}" if doubted else REVIEW
            yield finding(rows[place], "conflict", 0.6 if doubted else 0.3, evidence, suggestion, agree=len(places))


def _winner(answers: Mapping[str, Sequence[int]], quality: Float64s | None) -> str | None:
    """The most frequent answer; in a tie, the one whose rows have clearly the best label quality."""
    counts = Counter({answer: len(places) for answer, places in answers.items()})
    most = counts.most_common(1)[0][1]
    best = [answer for answer, count in counts.items() if count == most]
    if len(best) == 1:
        return best[0]
    if quality is None:
        return None
    by_quality = sorted(best, key=lambda answer: -float(quality[list(answers[answer])].mean()))
    first, second = (float(quality[list(answers[answer])].mean()) for answer in by_quality[:2])
    return by_quality[0] if first - second >= BETTER else None


def _share_an_answer(rows: Sequence[Demonstration], answers: Mapping[str, Sequence[int]]) -> bool:
    """Whether all rows share one accepted answer: the outputs are then aliases."""
    accepted = [
        {answer, *(normalised(other) for place in places for other in rows[place].answers)}
        for answer, places in answers.items()
    ]
    return bool(set.intersection(*accepted))


def leak_findings(rows: Mapping[int, Demonstration], leaks: Sequence[Leak]) -> Iterator[Finding]:
    """Rows, by number, that duplicate a validation or test query; each once, even if several queries match."""
    queries: dict[int, list[Leak]] = defaultdict(list)
    for leak in leaks:
        if leak.row in rows:
            queries[leak.row].append(leak)
    for number, repeated_queries in queries.items():
        row, first = rows[number], repeated_queries[0]
        exact = any(normalised(row.input) == normalised(leak.input) for leak in repeated_queries)
        more = f" and {len(repeated_queries) - 1} more" if len(repeated_queries) > 1 else ""
        evidence = f"{'repeats' if exact else 'nearly repeats'} the {first.split} query {first.id}{more}"
        yield finding(row, "leak", 0.9 if exact else 0.7, evidence, queries=len(repeated_queries))


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
        told = contract.to_json(self)
        del told["reason"]
        return told


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
        self._pruned = frozenset(np.intersect1d(groups.rows, pruned_rows(workspace)).tolist())
        self._kept = frozenset(np.intersect1d(groups.rows, kept_rows(workspace)).tolist())
        self._places: Mapping[int, Place] = {}
        """Of the rows read last."""

    def read(self, first: int, last: int) -> list[RowGroup]:
        """The groups from ``first`` to ``last`` (excluded)."""
        members = self._groups.of(first, last)
        numbers = np.concatenate(members) if members else self._groups.rows[:0]
        self._places = places_of(self._workspace, numbers)
        by_number = {row.row: row for row in fetch(self._workspace, numbers)}
        tell = self._repeated if self._kind == "duplicate" else self._leaking
        groups = []
        for group in members:
            rows = [by_number[number] for number in group.tolist()]
            told = tell(rows)
            groups.append(RowGroup(self._kind, tuple(self._row(row, told.get(row.row, ("", "", ""))) for row in rows)))
        return groups

    def _row(self, row: Demonstration, told: tuple[str, str, str]) -> GroupRow:
        place = self._places[row.row]
        return GroupRow(
            row.row, row.id, row.source, place.split, row.input, row.output, place.file, place.line,
            row.row in self._pruned, row.row in self._kept, *told,
        )  # fmt: skip

    def _repeated(self, rows: Sequence[Demonstration]) -> dict[int, tuple[str, str, str]]:
        """Evidence, suggestion and reason of each row but the first; pruned rows are compared with those left."""
        active = [row for row in rows if row.row not in self._pruned]
        first, *others = [*active, *(row for row in rows if row.row in self._pruned)]
        told = {}
        by_answer: dict[str, list[Demonstration]] = defaultdict(list)
        for row in (first, *others):
            by_answer[normalised(row.output)].append(row)
            if normalised(row.output) != normalised(first.output):
                told[row.row] = (f"another output than {first.id}", "", "")
        for same in by_answer.values():
            told |= _told(repeated(same))
        return told

    def _leaking(self, rows: Sequence[Demonstration]) -> dict[int, tuple[str, str, str]]:
        pool = {row.row: row for row in rows if self._places[row.row].split == "pool"}
        asked = [row for row in rows if row.row not in pool]
        pairs = [Leak(row, query.id, self._places[query.row].split, query.input) for row in pool for query in asked]
        return _told(leak_findings(pool, pairs))


def _told(findings: Iterable[Finding]) -> dict[int, tuple[str, str, str]]:
    """Evidence, suggestion and reason by row."""
    return {problem.row: (problem.evidence, problem.suggestion, problem.reason) for problem in findings}
