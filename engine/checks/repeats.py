"""Rows that duplicate, contradict or leak others, as found by the index."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..base.arrays import Float64s, Int64s
from ..pool.records import Demonstration, Task
from ..retrieval.duplicates import jaccards, normalised
from ..store.demonstrations import Leak
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
    known = similarity or {}
    for row in others:
        if normalised(row.input) == normalised(first.input):
            yield finding(row, "duplicate", 0.5, f"repeats {first.id}", f"keep {first.id}", similarity=1.0)
            continue
        alike = known[row.row] if first.row == group and row.row in known else _similarity(first, row)
        evidence = f"nearly repeats {first.id}, similarity {alike:.2f}"
        yield finding(row, "duplicate", 0.5 * alike, evidence, f"keep {first.id}", similarity=alike)


def _similarity(a: Demonstration, b: Demonstration) -> float:
    return float(jaccards([normalised(a.input), normalised(b.input)], np.array([[0, 1]], np.int64))[0])


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
            found = list(_same_input(rows, answers, task, quality))
            conflicting.update(place for place, _ in found)
            yield from (one for _, one in found)
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
    for number, found in queries.items():
        row, first = rows[number], found[0]
        exact = any(normalised(row.input) == normalised(leak.input) for leak in found)
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        evidence = f"{'repeats' if exact else 'nearly repeats'} the {first.split} query {first.id}{more}"
        yield finding(row, "leak", 0.9 if exact else 0.7, evidence, queries=len(found))
