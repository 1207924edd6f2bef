"""Do hints help? Relevant documents tagged with ``<KEY>``, at the start, in the middle, at the end or in random places
among the others (paper 001, A.2, table 11 and figure 7). One answer for each place, with tags and without; no rounds.

The paper uses this to show that an LLM can be guided by marks in its context at all: if tags of the truly relevant
documents change nothing, scores of documents cannot either.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, get_args

from ...base.arrays import Float64s
from ...base.contract import SPREAD, Reported
from ...base.errors import UsageError
from ...base.packages import VERSION
from ...evaluate.statistics import compare
from ...llm.asking import request_for, with_reader
from ...llm.budget import Budget
from ...llm.client import LLMClient
from ...llm.cost import Plan, Usage, usage_of
from ...llm.judge import Grader
from ...llm.marks import Mark, scores_of, tally, values_of
from ...llm.types import Answer, Request, Result
from ...pool.answers import token_f1
from ...pool.prompts import Prompt
from ...pool.records import Query, Task
from ...store.demonstrations import task_of
from .documents import cases_for
from .prompts import Case, Document, Frame, round_prompt, with_documents
from .reports import shares_of
from .results import CalibrationVersus, Shares

KIND = "calibrate keys"
TAG = "<KEY>"
MEANING = f"{TAG} means this document contains key information of the question."

Place = Literal["start", "middle", "end", "random"]
PLACES: tuple[Place, ...] = get_args(Place)


@dataclass(frozen=True, slots=True)
class PlaceFigures(Shares):
    """Answers with the relevant documents in one ``place``, tagged or not; ``versus``: tagged against not, paired."""

    place: str
    tagged: bool
    failures: int
    versus: CalibrationVersus | None


@dataclass(frozen=True, slots=True)
class KeyReport(Reported):
    """The ablation on a set; ``left_out``: queries without answers, or without both relevant and other documents."""

    kind = "key-ablation"
    run: int
    llm: str
    split: str
    usage: Usage = field(metadata=SPREAD)
    queries: int
    left_out: int
    places: tuple[PlaceFigures, ...]


@dataclass(frozen=True, slots=True)
class KeyAblation:
    """A prepared ablation: the ``requests`` ask about every case in each of the ``cells``, a place with tags or
    without; ``left_out`` queries are no case."""

    llm: LLMClient
    split: str
    task: Task
    cases: Sequence[Case]
    left_out: int
    cells: Sequence[tuple[Place, bool]]
    requests: Sequence[Request]
    grader: Grader

    @classmethod
    def prepare(cls, llm: LLMClient, queries: Sequence[Query], split: str) -> KeyAblation:
        """Write the prompts. Raises `UsageError` if no query has answers, relevant documents and others."""
        settings, task = llm.settings, task_of(llm.workspace)
        own = [query for query in queries if query.answers and query.context]
        count = llm.backend.count_tokens
        cases = cases_for(llm.workspace, own, task, settings, "documents", count_tokens=count) if own else []
        cases = [case for case in cases if {document.relevant for document in case.documents} >= {True, False}]
        if not cases:
            raise UsageError(
                f"none of the {split} queries has answers, relevant documents and others",
                "index queries with a context of several documents, and answers that occur in some of them",
            )
        frame = Frame(task, settings.prompt_template, settings.order)
        cells = [(place, tagged) for place in PLACES for tagged in (False, True)]
        prompts = [
            key_prompt(placed(case, place, settings.seed), frame, tagged) for place, tagged in cells for case in cases
        ]
        requests = [request_for(with_reader(prompt, settings), settings, llm.capabilities) for prompt in prompts]
        return cls(llm, split, task, cases, len(queries) - len(cases), cells, requests, Grader.of(llm, task))

    def cost(self) -> Plan:
        """What is left to ask."""
        return self.grader.plan(self.llm, self.requests)

    def ask(self, budget: Budget) -> KeyReport:
        """Ask all prompts, store the figures and return them."""
        settings = {"split": self.split, "queries": len(self.cases), "version": VERSION} | self.grader.told
        with self.llm.recorded(KIND, settings) as record:
            results = self.llm.ask(self.requests, budget)
            size, seed = len(self.cases), self.llm.settings.seed
            parts = [results[i : i + size] for i in range(0, len(results), size)]
            queries = [case.query for case in self.cases]
            marks = replace(self.grader).marks(queries * len(self.cells), results, budget)
            judged = [self._judged(part, marks[i * size : (i + 1) * size]) for i, part in enumerate(parts)]
            figures = []
            for i, ((place, tagged), (correct, f1)) in enumerate(zip(self.cells, judged, strict=True)):
                failures = sum(not isinstance(result, Answer) for result in parts[i])
                versus = None
                if tagged:
                    versus = CalibrationVersus("untagged", **asdict(compare(correct, judged[i - 1][0], seed)))
                own = shares_of(correct, f1, seed)
                figures.append(PlaceFigures(**own, place=place, tagged=tagged, failures=failures, versus=versus))
            usage = usage_of(results)
            report = KeyReport(record.run, self.llm.name, self.split, usage, size, self.left_out, tuple(figures))
            record.summary = report.as_json()
        return report

    def _judged(self, results: Sequence[Result], marks: Sequence[Mark]) -> tuple[Float64s, Float64s]:
        """Values by the metric, and F1, each (n,); nan where it is not known. Raises `LLMError` if too few are."""
        tally(marks).check()
        texts = [result.text if isinstance(result, Answer) else None for result in results]
        return values_of(marks), scores_of(token_f1, texts, [case.query for case in self.cases], marks)


def placed(case: Case, place: Place, seed: int) -> Case:
    """The case with its relevant documents in this place, in their own order."""
    relevant = [document for document in case.documents if document.relevant]
    others = [document for document in case.documents if not document.relevant]
    documents: list[Document]
    if place == "random":
        documents = list(case.documents)
        random.Random(f"{seed} {case.query.id} {case.query.input}").shuffle(documents)
    else:
        at = {"start": 0, "middle": len(others) // 2, "end": len(others)}[place]
        documents = [*others[:at], *relevant, *others[at:]]
    return with_documents(case, documents)


def key_prompt(case: Case, frame: Frame, tagged: bool) -> Prompt:
    """The first prompt, with the relevant documents tagged as in table 11."""
    if not tagged:
        return round_prompt(case, frame)
    marked = [
        replace(document, text=f"{TAG} {document.text}") if document.relevant else document
        for document in case.documents
    ]
    prompt = round_prompt(with_documents(case, marked), frame)
    system, *rest = prompt.messages
    return replace(prompt, messages=(replace(system, content=f"{system.content}\n{MEANING}"), *rest))
