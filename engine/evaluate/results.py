"""What an evaluation found: the object of ``evaluate --json``, which is also what the run keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .. import contract
from ..contract import JSON_VERSION, OPTIONAL, SPREAD
from ..llm.usage import Usage

if TYPE_CHECKING:
    from ..store.runs import Run

KIND = "evaluate"


@dataclass(frozen=True, slots=True)
class Versus:
    """A method against another on the same queries: `statistics.Comparison`, and its p adjusted by Holm for all of the
    table."""

    method: str
    difference: float
    low: float
    high: float
    p: float
    test: str
    p_holm: float


@dataclass(frozen=True, slots=True)
class MethodFigures:
    """A method in figures. ``accuracy`` is the mean over queries and seeds with its interval ``ci95``, ``std`` that of
    the seeds' means; ``easy`` and ``hard`` are None where there are no such queries. ``shots``: demonstrations a prompt
    held on average. ``em`` and ``f1`` of open questions alone. ``topic_coverage`` and ``topic_redundancy`` after each
    shot, where topics are learnt. ``versus``: the best other baseline, where one was compared."""

    accuracy: float
    std: float
    ci95: tuple[float, float]
    easy: float | None
    hard: float | None
    seeds: int
    usage: Usage = field(metadata=SPREAD)
    shots: float
    em: float | None = field(default=None, metadata=OPTIONAL)
    f1: float | None = field(default=None, metadata=OPTIONAL)
    topic_coverage: tuple[float, ...] | None = field(default=None, metadata=OPTIONAL)
    topic_redundancy: tuple[float, ...] | None = field(default=None, metadata=OPTIONAL)
    versus: Versus | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class Setup:
    """What was compared on what: ``metric`` says what accuracy means, ``answered_by`` is score or generate."""

    split: str
    queries: int
    k: int
    llm: str
    task: str
    metric: str
    answered_by: str
    seeds: int
    settings: Mapping[str, Any]
    version: str


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Methods on one table. Queries are easy where the LLM is right without demonstrations."""

    run: int
    setup: Setup = field(metadata=SPREAD)
    easy_queries: int
    hard_queries: int
    methods: Mapping[str, MethodFigures]

    @property
    def best(self) -> str:
        """The method of the highest accuracy, the first of equals."""
        return max(self.methods, key=lambda name: self.methods[name].accuracy)

    def as_json(self) -> dict[str, Any]:
        """The ``evaluate --json`` contract; it is kept with the run, so it says its version itself."""
        return {"schema_version": JSON_VERSION, **contract.to_json(self)}

    @classmethod
    def from_json(cls, told: object) -> EvaluationReport:
        """From what `as_json` gave. Raises `ValueError` for anything else."""
        return contract.from_json(cls, told)


@dataclass(frozen=True, slots=True)
class KeptEvaluation:
    """A finished evaluation as its run keeps it."""

    started_at: datetime
    report: EvaluationReport


def kept_evaluations(runs: Iterable[Run]) -> list[KeptEvaluation]:
    """Of runs of the kind `KIND`, the finished ones; one whose report cannot be read is left out."""
    found = []
    for run in runs:
        if run.status == "done":
            try:
                found.append(KeptEvaluation(run.started_at, EvaluationReport.from_json(run.summary)))
            except ValueError:
                continue
    return found
