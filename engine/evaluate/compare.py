"""Methods × seeds on a split: select, ask, mark, compare.

Answers come through the call cache, so an interrupted evaluation goes on where it stopped and one repeated is
free. Failures count as wrong answers and are shown beside the figure.
"""

from __future__ import annotations

import statistics as plain
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import Cancelled, UsageError
from ..llm import runner
from ..llm.asking import llm_settings, prompt_for, request_for, room_for
from ..llm.budget import Budget, Price
from ..llm.types import Answer, Backend, Failure, Request, Result
from ..pool.answers import is_correct, token_f1
from ..pool.records import Query, Split, Task
from ..progress import CancelToken, Event, Report, silent
from ..select.methods import METHODS
from ..select.selector import Selector, method_named
from ..settings import Settings
from ..store import runs
from ..store.demonstrations import queries as queries_of
from ..store.workspace import Workspace
from ..version import VERSION
from .statistics import bootstrap_interval, compare, holm

BASELINES = ("zero", "random", "bm25", "dense", "dpp", "set-bsr")
"""Methods that need no training: what a trained one has to beat."""


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """What to compare. A method that ignores seeds runs once; ``zero`` always runs, to tell easy from hard."""

    methods: tuple[str, ...]
    seeds: int = 3
    split: Split = "test"
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class _Arm:
    """One method under one seed: a request and the rows shown for every query."""

    method: str
    seed: int
    shown: list[list[int]]
    dropped: list[int]
    requests: list[Request]


@dataclass(frozen=True, slots=True)
class _Marks:
    """Outcomes of an arm, each (n,): right or wrong, F1, and whether an answer was had."""

    correct: NDArray[np.float64]
    f1: NDArray[np.float64]
    failed: NDArray[np.bool_]


class Evaluation:
    """A comparison made ready: its prompts are known, nothing has been asked yet.

    `cost` says what asking would take; `run` asks and returns the table of the ``evaluate --json`` contract.
    With ``rehearse`` not even a probe is sent: an LLM never probed is taken to generate, not to score. Raises
    `UsageError` where the split is empty or a method unknown, before anything is asked.
    """

    def __init__(
        self,
        workspace: Workspace,
        backend: Backend,
        settings: Settings,
        plan: EvaluationPlan,
        report: Report = silent,
        cancel: CancelToken | None = None,
        *,
        rehearse: bool = False,
    ) -> None:
        self.workspace, self.backend, self.settings, self.plan = workspace, backend, settings, plan
        self.report, self.cancel = report, cancel or CancelToken()
        names = list(dict.fromkeys(plan.methods))
        for name in names:
            method_named(name)
        self.methods = names
        self.queries = queries_of(workspace, plan.split, plan.limit)
        if not self.queries:
            raise UsageError(
                f"there are no {plan.split} queries", f"icl-curate index POOL.jsonl --{plan.split} QUERIES.jsonl"
            )
        self.capabilities = runner.known(workspace, backend) if rehearse else runner.probe(workspace, backend)
        self.selector = Selector(workspace, "zero", settings=settings, report=report, cancel=self.cancel)
        self.arms = [self._arm(name, seed) for name in dict.fromkeys(["zero", *names]) for seed in self._seeds(name)]

    def cost(self, price: Price | None) -> runner.Plan:
        """Prompts, cached answers, tokens and price of the whole comparison."""
        return runner.plan(self.workspace, self.backend, self._requests(), price)

    def run(self, budget: Budget) -> dict[str, Any]:
        """Ask what is not cached, mark every answer, keep the outcomes, and compare."""
        described = self._describe()
        run = runs.start(self.workspace, "evaluate", self.backend.spec, described)
        try:
            results = runner.ask(
                self.workspace,
                self.backend,
                self._requests(),
                llm_settings(self.settings),
                budget,
                self.report,
                self.cancel,
            )
        except BaseException as error:
            stopped = isinstance(error, (Cancelled, KeyboardInterrupt))
            runs.finish(self.workspace, run, "interrupted" if stopped else "failed", {"error": str(error)})
            raise
        outcomes = self._by_arm(results)
        marks = [_mark(self.queries, answered, self.selector.task) for answered in outcomes]
        for arm, answered, marked in zip(self.arms, outcomes, marks, strict=True):
            runs.add_evaluations(self.workspace, _outcome_table(run, arm, self.queries, answered, marked))
        summary = {"run": run, **described, **self._table(outcomes, marks)}
        runs.finish(self.workspace, run, "done", summary)
        return summary

    def _seeds(self, method: str) -> range:
        first = self.settings.seed
        return range(first, first + (self.plan.seeds if METHODS[method].seeded else 1))

    def _arm(self, method: str, seed: int) -> _Arm:
        self.cancel.check()
        chooser = METHODS[method].choose
        picks = chooser(self.selector.view, self.queries, self.settings.k, seed)
        shots = self.selector.resolve(picks)
        room = room_for(self.settings, self.capabilities)
        requests, dropped = [], []
        for query, chosen in zip(self.queries, shots, strict=True):
            shown = [shot.demonstration for shot in chosen]
            prompt, lost = prompt_for(query, shown, self.selector.task, self.settings, self.backend, room)
            requests.append(request_for(prompt, self.settings, self.capabilities))
            dropped.append(lost)
        if lost_in := sum(1 for lost in dropped if lost):
            self.report(Event("select", note=f"{method}: {lost_in} prompts were too long and lost their weakest shots"))
        return _Arm(method, seed, [[pick.row for pick in chosen] for chosen in picks], dropped, requests)

    def _requests(self) -> list[Request]:
        return [request for arm in self.arms for request in arm.requests]

    def _by_arm(self, results: Sequence[Result]) -> list[list[Result]]:
        n = len(self.queries)
        return [list(results[i * n : (i + 1) * n]) for i in range(len(self.arms))]

    def _describe(self) -> dict[str, Any]:
        return {
            "split": self.plan.split,
            "queries": len(self.queries),
            "k": self.settings.k,
            "llm": self.backend.spec,
            "task": self.selector.task.kind,
            "metric": metric_of(self.selector.task),
            "answered_by": "score" if self.arms[0].requests[0].score else "generate",
            "seeds": self.plan.seeds,
            "settings": asdict(self.settings),
            "version": VERSION,
        }

    def _table(self, outcomes: list[list[Result]], marks: list[_Marks]) -> dict[str, Any]:
        easy = marks[0].correct == 1.0  # arm 0 is zero-shot: fixed before any compared method is looked at
        items = {
            name: _items([m for arm, m in zip(self.arms, marks, strict=True) if arm.method == name])
            for name in self.methods
        }
        versus = {name: _reference(name, items) for name in self.methods}
        pairs = {
            name: compare(items[name], items[other], self.settings.seed) for name, other in versus.items() if other
        }
        adjusted = dict(zip(pairs, holm([pair.p for pair in pairs.values()]), strict=True))
        methods: dict[str, Any] = {}
        for name in self.methods:
            chosen = [i for i, arm in enumerate(self.arms) if arm.method == name]
            methods[name] = self._row(
                [self.arms[i] for i in chosen], [outcomes[i] for i in chosen], [marks[i] for i in chosen], easy
            )
            if name in pairs:
                methods[name]["versus"] = {"method": versus[name], **asdict(pairs[name]), "p_holm": adjusted[name]}
        return {
            "schema_version": 1,
            "easy_queries": int(easy.sum()),
            "hard_queries": int((~easy).sum()),
            "methods": methods,
        }

    def _row(
        self, arms: list[_Arm], outcomes: list[list[Result]], marks: list[_Marks], easy: NDArray[np.bool_]
    ) -> dict[str, Any]:
        items = _items(marks)
        per_seed = [float(m.correct.mean()) for m in marks]
        answers = [r for results in outcomes for r in results if isinstance(r, Answer)]
        shots = [len(shown) - lost for arm in arms for shown, lost in zip(arm.shown, arm.dropped, strict=True)]
        row: dict[str, Any] = {
            "accuracy": float(items.mean()),
            "std": plain.stdev(per_seed) if len(per_seed) > 1 else 0.0,
            "ci95": list(bootstrap_interval(items, self.settings.seed)),
            "easy": _mean(items[easy]),
            "hard": _mean(items[~easy]),
            "seeds": len(arms),
            "calls": sum(len(results) for results in outcomes),
            "cached_calls": sum(answer.cached for answer in answers),
            "failures": int(sum(m.failed.sum() for m in marks)),
            "shots": float(np.mean(shots)),
            "tokens_in": sum(answer.tokens_in for answer in answers),
            "tokens_out": sum(answer.tokens_out for answer in answers),
        }
        if self.selector.task.kind == "open":
            row["em"] = row["accuracy"]
            row["f1"] = float(np.mean([m.f1.mean() for m in marks]))
        return row


def metric_of(task: Task) -> str:
    """What ``accuracy`` means for the task."""
    return "exact match" if task.kind == "open" else "accuracy"


def _mark(queries: Sequence[Query], results: Sequence[Result], task: Task) -> _Marks:
    n = len(queries)
    correct, f1, failed = np.zeros(n), np.zeros(n), np.zeros(n, bool)
    for i, (query, result) in enumerate(zip(queries, results, strict=True)):
        if isinstance(result, Failure):
            failed[i] = True
            continue
        correct[i] = is_correct(result.text, query.answers, task.choices(query))
        f1[i] = token_f1(result.text, query.answers)
    return _Marks(correct, f1, failed)


def _items(marks: Sequence[_Marks]) -> NDArray[np.float64]:
    """One outcome a query: its mean over seeds."""
    return np.asarray(np.mean([m.correct for m in marks], axis=0), np.float64)


def _reference(name: str, items: dict[str, NDArray[np.float64]]) -> str | None:
    """The best baseline other than the method itself."""
    others = [other for other in items if other != name and other in BASELINES]
    return max(others, key=lambda other: items[other].mean(), default=None)


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if values.size else None


def _outcome_table(run: int, arm: _Arm, queries: Sequence[Query], results: Sequence[Result], marks: _Marks) -> pa.Table:
    answered = [r if isinstance(r, Answer) else None for r in results]
    columns: dict[str, list[Any]] = {
        "run": [run] * len(queries),
        "method": [arm.method] * len(queries),
        "seed": [arm.seed] * len(queries),
        "row": [query.row for query in queries],
        "demonstrations": arm.shown,
        "dropped": arm.dropped,
        "answer": [a.text if a else None for a in answered],
        "failure": ["" if isinstance(r, Answer) else f"{r.kind}: {r.message}" for r in results],
        "correct": [bool(right) if a else None for right, a in zip(marks.correct, answered, strict=True)],
        "f1": [float(f1) if a else None for f1, a in zip(marks.f1, answered, strict=True)],
        "uncertainty": [a.uncertainty if a else None for a in answered],
        "tokens_in": [a.tokens_in if a else 0 for a in answered],
        "tokens_out": [a.tokens_out if a else 0 for a in answered],
    }
    return pa.table(columns, schema=runs.EVALUATION_COLUMNS)
