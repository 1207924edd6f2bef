"""Which labels are answered for which: counted from the stored outcomes of an evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..pool.choices import choice_of
from ..store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ConfusionCell:
    """``count`` answers, to the ``queries`` (ids) whose label is ``wanted``, that name the label ``answer``; None: they
    name no label."""

    wanted: str
    answer: str | None
    count: int
    queries: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return self.answer == self.wanted


@dataclass(frozen=True, slots=True)
class ConfusionMatrix:
    """``labels`` (n,) are the columns, and ``wanted`` (m,) those of them that some query has, the rows. ``counts``
    (m, n + 2): the last two columns are answers that name a label which is not shown, and answers that name none.
    ``hidden``: labels left out."""

    labels: tuple[str, ...]
    wanted: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    hidden: int

    def column(self, answer: str | None) -> int:
        """The column of an answer."""
        if answer is None:
            return len(self.labels) + 1
        return self.labels.index(answer) if answer in self.labels else len(self.labels)


@dataclass(frozen=True, slots=True)
class Confusion:
    """The answers under one method, those of all seeds: ``right`` of ``answers`` are. ``cells`` has those with answers,
    the largest confusions first and right answers last."""

    answers: int
    right: int
    cells: tuple[ConfusionCell, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label that was wanted or named, those of the largest confusions first."""
        named = (label for cell in self.cells for label in (cell.wanted, cell.answer) if label is not None)
        return tuple(dict.fromkeys(named))

    def cell(self, wanted: str, answer: str | None) -> ConfusionCell | None:
        """The cell of two labels, None if it has no answers."""
        return next((cell for cell in self.cells if (cell.wanted, cell.answer) == (wanted, answer)), None)

    def matrix(self, columns: int, rows: int | None = None) -> ConfusionMatrix:
        """The first labels, so many that no more columns and rows (if given) are needed."""
        asked = {cell.wanted for cell in self.cells}
        labels: list[str] = []
        wanted: list[str] = []
        for label in self.labels[:columns]:
            if label in asked and len(wanted) == rows:
                break
            labels.append(label)
            wanted += [label] if label in asked else []
        shown = ConfusionMatrix(tuple(labels), tuple(wanted), (), len(self.labels) - len(labels))
        counts = {label: [0] * (len(labels) + 2) for label in wanted}
        for cell in self.cells:
            if cell.wanted in counts:
                counts[cell.wanted][shown.column(cell.answer)] += cell.count
        return replace(shown, counts=tuple(tuple(counts[label]) for label in wanted))


def confusion(workspace: Workspace, run: int, method: str) -> Confusion:
    """The confusion of a method in a stored evaluation whose answers are labels; empty if it has no such outcomes.

    What counts as right was decided by the evaluation. A wrong answer names the label that `choice_of` finds among all
    labels of the workspace, pruned rows included.
    """
    with workspace.read() as con:
        every = con.execute("SELECT DISTINCT output FROM demonstrations ORDER BY output").fetchall()
        labels = tuple(label for (label,) in every)
        found = con.execute(
            """
            SELECT d.id, d.output, e.answer, e.correct
              FROM evaluations e JOIN demonstrations d USING (row)
             WHERE e.run = ? AND e.method = ? AND e.state IN ('right', 'wrong', 'unusable') ORDER BY e.row, e.seed
            """,
            [run, method],
        ).fetchall()
    named = _named(labels, [answer for _, _, answer, right in found if answer and not right])
    queries: dict[tuple[str, str | None], Counter[str]] = {}
    for name, wanted, answer, right in found:
        given = wanted if right else named.get(answer)
        queries.setdefault((wanted, None if given == wanted and not right else given), Counter())[name] += 1
    cells = [ConfusionCell(*pair, counts.total(), tuple(counts)) for pair, counts in queries.items()]
    cells.sort(key=lambda cell: (cell.is_right, -cell.count, cell.wanted, cell.answer or ""))
    return Confusion(len(found), sum(cell.count for cell in cells if cell.is_right), tuple(cells))


def _named(labels: Sequence[str], answers: Sequence[str]) -> dict[str, str | None]:
    """The label that each answer names."""
    found: dict[str, str | None] = {}
    for answer in dict.fromkeys(answers):
        choice = choice_of(answer, labels)
        found[answer] = None if choice is None else labels[choice]
    return found
