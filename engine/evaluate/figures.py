"""Figures of an evaluation's stored outcomes: who flips from zero to k shots (paper 000, figure 3), which labels are
answered for which, how sure the LLM is of the right answer and how long a selection takes (paper 004, table 4 and
figure 3).
"""

from __future__ import annotations

import math
import shlex
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ..base.registry import Registry
from ..grading.metrics import metric_for, metric_named
from ..grading.readers import READERS
from ..llm.marks import MOST_UNUSABLE, Mark, Tally, figure
from ..llm.reading import read_as
from ..llm.types import Answer, Result
from ..pool.answers import accepted_options
from ..pool.choices import choice_of
from ..pool.records import STRUCTURED, Query, Task
from ..store.demonstrations import some_outputs
from ..store.workspace import Workspace
from .statistics import bootstrap_interval, wilson

if TYPE_CHECKING:  # results import this module, and many commands results
    from ..llm.judge import Grader
    from ..retrieval.view import PoolView

FAR = 0.2
"""How far F1 is above the value, and twice how far another reader's is, for these to be named."""

TRIED = 200
"""Replies that other readers are tried on."""

Measured = Callable[[Sequence[Sequence[Sequence[int]]]], Mapping[str, tuple[float, ...]]]
"""From the rows shown, run by run and query by query, to figures of `results.MethodFigures` by their names."""
Measure = Callable[["PoolView", Sequence[Query]], Measured | None]
"""Prepared once for all compared methods; None where what it needs is not trained."""

MEASURES: Registry[Measure] = Registry("measures")
"""What adds figures of the rows shown."""


@dataclass(frozen=True, slots=True)
class FlipCounts:
    """A method against zero shots, over the ``queries`` that both answered, ``easy`` (right zero-shot) and ``hard``.

    ``turned_right`` of the hard ones and ``turned_wrong`` of the easy ones are means over the seeds. ``changed`` is the
    share of queries that did either, with its interval ``ci95`` over queries; ``hard_share`` the share of the hard ones
    among those, None if nothing changed.
    """

    queries: int
    easy: int
    hard: int
    turned_right: float
    turned_wrong: float
    changed: float
    ci95: tuple[float, float]
    hard_share: float | None


def flips(workspace: Workspace, run: int, methods: Sequence[str], seed: int = 0) -> dict[str, FlipCounts]:
    """By method, without ``zero`` itself and methods that share no answered query with it; ``seed`` of the bootstrap.

    A query that failed under a method has not flipped: it does not count for it.
    """
    with workspace.read() as con:
        pairs = con.execute(
            """
            SELECT m.method, m.row, bool_or(z.correct), avg(CAST(m.correct AS DOUBLE))
              FROM evaluations m JOIN evaluations z ON z.run = m.run AND z.row = m.row AND z.method = 'zero'
             WHERE m.run = ? AND m.method <> 'zero' AND m.correct IS NOT NULL AND z.correct IS NOT NULL
             GROUP BY m.method, m.row ORDER BY m.method, m.row
            """,
            [run],
        ).fetchall()
    by_method: dict[str, list[tuple[bool, float]]] = {}
    for method, _, easy, right in pairs:
        by_method.setdefault(method, []).append((easy, right))
    return {name: _counts(by_method[name], seed) for name in methods if name in by_method}


def _counts(outcomes: Sequence[tuple[bool, float]], seed: int) -> FlipCounts:
    easy = np.array([was_right for was_right, _ in outcomes], np.bool_)
    right = np.array([share for _, share in outcomes], np.float64)
    changed = np.where(easy, 1 - right, right)
    turned_right, turned_wrong = float(changed[~easy].sum()), float(changed[easy].sum())
    flipped = turned_right + turned_wrong
    return FlipCounts(
        queries=len(outcomes),
        easy=int(easy.sum()),
        hard=int((~easy).sum()),
        turned_right=turned_right,
        turned_wrong=turned_wrong,
        changed=float(changed.mean()),
        ci95=bootstrap_interval(changed, seed),
        hard_share=turned_right / flipped if flipped else None,
    )


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
        answers = con.execute(
            """
            SELECT d.id, d.output, e.answer, e.correct
              FROM evaluations e JOIN demonstrations d USING (row)
             WHERE e.run = ? AND e.method = ? AND e.state IN ('right', 'wrong', 'unusable') ORDER BY e.row, e.seed
            """,
            [run, method],
        ).fetchall()
    named = _named(labels, [answer for _, _, answer, right in answers if answer and not right])
    queries: dict[tuple[str, str | None], Counter[str]] = {}
    for name, wanted, answer, right in answers:
        given = wanted if right else named.get(answer)
        queries.setdefault((wanted, None if given == wanted and not right else given), Counter())[name] += 1
    cells = [ConfusionCell(*pair, counts.total(), tuple(counts)) for pair, counts in queries.items()]
    cells.sort(key=lambda cell: (cell.is_right, -cell.count, cell.wanted, cell.answer or ""))
    return Confusion(len(answers), sum(cell.count for cell in cells if cell.is_right), tuple(cells))


def _named(labels: Sequence[str], answers: Sequence[str]) -> dict[str, str | None]:
    """The label that each answer names."""
    choices = {answer: choice_of(answer, labels) for answer in dict.fromkeys(answers)}
    return {answer: None if choice is None else labels[choice] for answer, choice in choices.items()}


def hint(
    outcomes: Tally,
    value: float | None,
    f1: float | None,
    answered: Sequence[tuple[Query, Result]],
    task: Task,
    grader: Grader,
    most_tokens: int,
) -> str:
    """What to try where many replies were cut off after so many tokens or cannot be read, or token F1 is far above the
    value; empty where none is so. A reader is named if it makes more of the same replies, which takes no call."""
    in_words = task.form not in STRUCTURED  # records have names of fields in common, whatever they say
    apart = in_words and value is not None and f1 is not None and f1 - value > FAR
    if value is None or not (outcomes.unread or apart):
        return ""
    cut = sum(isinstance(result, Answer) and result.finish == "length" and not result.usable for _, result in answered)
    if cut > MOST_UNUSABLE * len(answered):
        told = f"{cut:,} of {len(answered):,} replies were cut off after {most_tokens:,} tokens"
        return f"{told}: --max-tokens {4 * most_tokens}"
    why = "many replies cannot be read" if outcomes.unread else f"token F1 is {figure(f1)}, far above it"
    replies = [(query, result) for query, result in answered if isinstance(result, Answer)][:TRIED]
    if grader.judge is None and replies and not replies[0][1].option_logprobs:

        def mean(name: str) -> float:
            texts = [read_as(name, answer.reply, task.choices(query)) for query, answer in replies]
            return _mean(grader, task, replies, texts)

        best = max(READERS, key=mean)
        if mean(best) - _mean(grader, task, replies, [answer.text for _, answer in replies]) > FAR / 2:
            return f"{why}: --read {best} makes {figure(mean(best))} of the same replies"
    if apart and grader.by.binary:
        judge = "" if grader.judge else ", --metric judge what is said otherwise"
        return f"{why}: --metric f1 also counts what is right in part{judge}"
    again = shlex.join(["icl-curate", "preview", "QUERY", "--answer", *grader.by.options])
    return f"{why}: see what was read of them with {again}"


def _mean(grader: Grader, task: Task, replies: Sequence[tuple[Query, Answer]], texts: Sequence[str]) -> float:
    """The mean value of the texts, one read of each reply."""
    scored = [grader.metric.score(text, query, task) for (query, _), text in zip(replies, texts, strict=True)]
    return float(np.mean(scored))


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a judge agrees with the ``metric`` that fits the pool's outputs, on so many ``answers``, one to a query: the
    ``share`` that both call right or both wrong, with its interval ``ci95``, and those that only one calls right."""

    metric: str
    answers: int
    share: float
    ci95: tuple[float, float]
    judge_alone: int
    metric_alone: int


def agreement(
    workspace: Workspace, queries: Sequence[Query], results: Sequence[Result], marks: Sequence[Mark], task: Task
) -> Agreement | None:
    """From a judge's ``marks`` of ``results``, one of each query; None if no metric can tell, or without a verdict."""
    name, _ = metric_for(task, some_outputs(workspace))
    metric = metric_named(name)
    pairs = Counter(
        (mark.state == "right", metric.is_right(metric.score(result.text, query, task)))
        for query, result, mark in zip(queries, results, marks, strict=True)
        if isinstance(result, Answer) and mark.state in ("right", "wrong")
    )
    count, same = pairs.total(), pairs[True, True] + pairs[False, False]
    if name in ("rouge-l", "exact") or not count:  # those measure how alike texts are, not which is right
        return None
    return Agreement(name, count, same / count, wilson(same, count), pairs[True, False], pairs[False, True])


T = TypeVar("T")


def timed(select: Callable[[Sequence[Query]], T], queries: Sequence[Query]) -> tuple[T, float]:
    """The selection for all queries and its seconds per query. It selects for one query first: what only the first
    selection of a process reads or compiles is not counted."""
    select(queries[:1])
    started = time.perf_counter()
    chosen = select(queries)
    return chosen, (time.perf_counter() - started) / max(len(queries), 1)


def llm_seconds(received: Sequence[Result], answers: Sequence[Result], queries: int) -> float:
    """Seconds of LLM time per query that a selection takes: of all ``received`` replies but the final ``answers``, as
    they took when they were asked, one after the other."""
    final = {id(answer) for answer in answers}
    spent = sum(result.latency for result in received if isinstance(result, Answer) and id(result) not in final)
    return spent / max(queries, 1)


def perplexity(results: Sequence[Result], queries: Sequence[Query], task: Task) -> float | None:
    """exp of the mean over queries of −log p of the right answer per token: the geometric mean of the perplexities of
    table 4. None if options were not scored, or no option is the right one."""
    surprises = [
        surprise
        for result, query in zip(results, queries, strict=True)
        if isinstance(result, Answer) and (surprise := _surprise(result, query, task.choices(query))) is not None
    ]
    return math.exp(float(np.mean(surprises))) if surprises else None


def _surprise(result: Answer, query: Query, choices: Sequence[str]) -> float | None:
    if len(choices) != len(result.option_logprobs):
        return None
    right = compress(result.option_logprobs, accepted_options(choices, query.answers))
    return min((-sum(option) / max(len(option), 1) for option in right), default=None)
