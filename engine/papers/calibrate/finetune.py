"""The fine-tuning set that teaches a model to use uncertainty scores (paper 001, section 3.3), from stored rounds;
exported as chat JSONL, one conversation per line, with a manifest.

The input of an example is the reformulated input of the round whose answer was right, its target the right answer. A
query that was right at round 0 gives round 1's input, so that the model also sees answers to keep; a query that was
never right gives no example.

The paper mentions, but does not specify, a substitution that keeps a model from changing answers it was sure of. Here,
an earlier answer in the input that is wrong and more certain than average (a score below 50) is replaced by the
reference answer; its score is not changed. So in every example a low score belongs to a right answer, which the target
keeps, and what the target corrects has a high score. If the last of the certain answers was right in other accepted
words, these words are the target: a right answer is not reworded.

An answer that a person accepted in review is the right answer of the query, whatever its reference says.

What was pruned since gives no example, neither as the question nor as a demonstration shown: its output would be
learnt. The same holds for demonstrations shown whose output was corrected since, because their scores are of the old
one.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import UsageError, counted
from ...export.corpus import (
    Chosen,
    ExportPlan,
    check_target,
    foreseen,
    manifest_of,
    publish,
    settled_digest,
)
from ...export.results import ExportReport
from ...grading.metrics import JUDGES
from ...llm.graded import metric_set
from ...llm.marks import Mark
from ...pool.choices import choice_of
from ...pool.prompts import EarlierAnswer, Prompt
from ...pool.records import Demonstration, Query, Split, Task
from ...store import decisions
from ...store.demonstrations import active_rows, fetch, queries, task_of
from ...store.runs import Run, grading_of, numbered
from ...store.settings import Settings
from ...store.targets import check_no_input
from ...store.workspace import Workspace
from . import stored
from .documents import as_text, cases_for, queries_of
from .prompts import OVERS, Case, Document, Frame, first_prompt, round_prompt, with_documents
from .results import FEW_CORRECTED, OUTCOMES
from .rounds import ARMS, Grades, verdict_key
from .scores import MIDDLE, shown
from .stored import reviews

ARM = "full"
LEARNT = ("full", "answers", "plain")
"""The arms whose rounds can be learnt from: those of table 5."""


@dataclass(frozen=True, slots=True)
class TrainingConversation:
    """A training conversation; ``id`` is the query's, ``row`` its row. ``corrects``: its target is another answer than
    the LLM's first."""

    id: str
    row: int
    messages: tuple[Mapping[str, str], ...]
    corrects: bool = False


@dataclass(frozen=True, slots=True)
class FineTuningSet:
    """The examples of a run, 0 for a set without rounds. ``counts``: queries by outcome (`OUTCOMES`). ``warnings``:
    why a model may learn something else from it. ``document_tokens``: what documents were cut to; None: whole."""

    run: int
    examples: tuple[TrainingConversation, ...]
    counts: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    document_tokens: int | None = None


def fine_tuning_set(
    workspace: Workspace, split: Split, settings: Settings, arm: str = ARM, balance: bool = False
) -> FineTuningSet:
    """The set from the rounds of ``arm`` in the latest finished calibration of ``split``, its documents as they were
    shown there. Calls no LLM: which answers are right is said by the metric of the settings, or, if that is a judge, by
    its verdicts in that calibration. With ``balance`` at most as many answers are kept as are corrected, drawn at
    random.

    Raises `UsageError` for the test split, which would spoil every evaluation on it, for an arm that is none of
    `LEARNT`, if the split was never calibrated with it, if ``settings.document_tokens`` is set and the documents were
    cut to another length, or if no query is left.
    """
    _refuse_test(split)
    latest, again = _calibration(workspace, split, settings, arm)
    given = reviews(workspace, latest.llm)
    accepted = {row: review.answer for row, review in given.items() if review.round is not None}
    task = task_of(workspace)
    frame = Frame(task, settings.prompt_template, settings.order)
    cases = stored.stored_cases(workspace, latest.run, arm)
    grades = _grades(workspace, settings, task, latest, again)
    if arm != ARM and not any(case.documents for case in cases):
        raise UsageError(f"run {latest.run} did not keep its documents", f"{again} (its answers are cached)")
    now = _Rows.of(workspace, split, cases)
    examples = []
    counts = Counter({"queries": len(cases), **dict.fromkeys(OUTCOMES, 0)})
    for case in cases:
        if gone := now.gone(case):
            counts[gone] += 1
            continue
        query = now.asked[case.query].as_query()
        own = _judged(grades, query, case)
        if case.query in accepted:
            query = _as_accepted(query, accepted[case.query], task)
            own = replace(grades, verdicts=None)  # a judge knew another reference
            counts["accepted"] += 1
        right = next((round_.round for round_ in case.rounds if own.mark(query, round_.answer).right), None)
        if right is None:
            counts["dropped"] += 1
            continue
        rounds = case.rounds[: max(right, 1)]  # the input of round 1 is known even if the first answer was right
        if ARMS[arm].answers == "uncertainty":
            earlier, substituted = substitute(query, rounds, own)
            counts["substituted"] += substituted
        else:
            earlier = [EarlierAnswer(round_.answer, None) for round_ in rounds]
        documents = now.documents(case)
        scores = [shown(d.score) for d in case.documents] if ARMS[arm].documents == "uncertainty" else []
        [over] = [name for name in OVERS if name == case.over]
        prompt = round_prompt(with_documents(Case(query, (), over), documents), frame, scores, earlier)
        examples.append(_example(query, prompt, target(query, earlier, own), corrects=right > 0))
        counts["kept_right" if right == 0 else "corrected"] += 1
    if not examples:
        gone = " and is in the pool as it was" if counts["pruned"] or counts["outdated"] else ""
        raise UsageError(f"none of the {len(cases):,} {split} queries ended with a right answer{gone}", again)
    if balance:
        examples = _balanced(examples, settings.seed)
        counts["left_out"] = counts["kept_right"] + counts["corrected"] - len(examples)
    warnings = (*few_corrections(examples), *_unchecked(workspace, split))
    return FineTuningSet(latest.run, tuple(examples), counts, warnings, latest.settings.get("document_tokens"))


def _calibration(workspace: Workspace, split: Split, settings: Settings, arm: str) -> tuple[Run, str]:
    """The latest finished run of an arm on a split, and the command that repeats it; raises `UsageError` if there is
    none to learn from."""
    if arm not in LEARNT:
        raise UsageError(f"no fine-tuning set is made from the arm '{arm}'", f"--arm with one of: {', '.join(LEARNT)}")
    again = f"icl-curate calibrate --split {split}" + ("" if arm == ARM else f" --arms {arm}")
    latest = stored.latest(workspace, arm, split)
    if latest is None:
        with_it = "" if arm == ARM else f" with the arm '{arm}'"
        raise UsageError(f"no {split} queries have been calibrated yet{with_it}", again)
    then, now = latest.settings.get("document_tokens"), settings.document_tokens
    if now is not None and then != now:
        cut = "whole" if then is None else f"cut to {counted(then, 'token')}"
        raise UsageError(
            f"the documents of run {latest.run} were {cut}, not cut to {counted(now, 'token')}",
            f"{again} --document-tokens {now}, or leave the length out here",
        )
    return latest, again


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a calibration ``asked`` and showed (``shots``), as it is now: by row. ``current``: the rows of its split
    that are asked now; ``active``: those shown that are in the pool."""

    asked: Mapping[int, Demonstration]
    shots: Mapping[int, Demonstration]
    current: Collection[int | None]
    active: Collection[int]

    @classmethod
    def of(cls, workspace: Workspace, split: Split, cases: Sequence[stored.StoredCase]) -> _Rows:
        asked = {row.row: row for row in fetch(workspace, [case.query for case in cases])}
        documents = [d.row for case in cases for d in case.documents if d.row is not None]
        shots = {row.row: row for row in fetch(workspace, documents)}
        active = set(np.intersect1d(active_rows(workspace), [*asked, *shots]).tolist())
        current = active if split == "pool" else {query.row for query in queries(workspace, split)}
        return cls(asked, shots, current, active)

    def gone(self, case: stored.StoredCase) -> str:
        """Why nothing is learnt from a case: its query was pruned, or what it was shown was pruned or corrected."""
        if case.query not in self.current:
            return "pruned"
        was = [(d.row, d.text) for d in case.documents if d.row is not None]
        outdated = any(row not in self.active or as_text(self.shots[row]) != text for row, text in was)
        return "outdated" if outdated else ""

    def documents(self, case: stored.StoredCase) -> list[Document]:
        return [Document(d.id, d.text, None, self.shots[d.row] if d.row is not None else None) for d in case.documents]


def _judged(grades: Grades, query: Query, case: stored.StoredCase) -> Grades:
    """With the verdicts of a judge on the answers of a case, if one judged them."""
    if grades.verdicts is None:
        return grades
    marks = {r.answer: Mark("right" if r.correct else "wrong") for r in case.rounds if r.correct is not None}
    return replace(grades, verdicts={verdict_key(query, answer): mark for answer, mark in marks.items()})


def _as_accepted(query: Query, answer: str, task: Task) -> Query:
    """The query with an answer that a person accepted for its reference."""
    choices = task.choices(query)
    named = choice_of(answer, choices) if choices else None
    return replace(query, answers=(answer if named is None else choices[named],))


def _grades(workspace: Workspace, settings: Settings, task: Task, calibrated: Run, again: str) -> Grades:
    """How good the answers of a calibration are; `UsageError` if a judge is to say so who was not asked then."""
    metric = metric_set(workspace, settings, task)
    if metric.name not in JUDGES:
        return Grades(task, metric)
    if grading_of(calibrated.settings)["metric"] != metric.name:
        raise UsageError(f"the answers of run {calibrated.run} were not judged", f"{again} --metric {metric.name}")
    return Grades(task, metric, {})


def _balanced(examples: Sequence[TrainingConversation], seed: int) -> list[TrainingConversation]:
    """The examples that correct an answer and at most as many others, in their order."""
    others = [i for i, example in enumerate(examples) if not example.corrects]
    most = len(examples) - len(others)
    if not most:
        raise UsageError("no example corrects an answer, so there is nothing to balance with", "leave out --balance")
    chosen = set(random.Random(seed).sample(others, min(most, len(others))))
    return [example for i, example in enumerate(examples) if example.corrects or i in chosen]


def few_corrections(examples: Sequence[TrainingConversation]) -> list[str]:
    """A warning if nearly all examples keep the first answer."""
    corrected = sum(example.corrects for example in examples)
    if corrected >= max(FEW_CORRECTED, len(examples) / 10):
        return []
    shown_of = f"{corrected:,} of {counted(len(examples), 'example')}"
    return [f"only {shown_of} correct an answer: a model learns from this set to keep its answers"]


def _unchecked(workspace: Workspace, split: Split) -> list[str]:
    """A pool on which nothing was ever decided may be clean or not: only its curator can tell, so this warns and does
    not refuse."""
    if split != "pool" or decisions.history(workspace):
        return []
    return ["no row of the pool was ever pruned, kept or corrected, and its outputs are learnt: icl-curate check"]


def answer_set(
    workspace: Workspace,
    split: Split,
    settings: Settings,
    limit: int | None = None,
    count_tokens: Callable[[Prompt], int] | None = None,
) -> FineTuningSet:
    """The plain set of a split, without rounds: the first prompt of every query, and its reference (the baseline "LoRA
    tuning" of table 2), its documents cut as in `cases_for`. Calls no LLM.

    Raises `UsageError` for the test split, or if no query of the split has a reference.
    """
    _refuse_test(split)
    asked = queries_of(workspace, split, limit)
    judged = [query for query in asked if query.answers]
    if not judged:
        raise UsageError(f"there are no {split} queries with answers", "icl-curate index POOL.jsonl --validation …")
    task = task_of(workspace)
    frame = Frame(task, settings.prompt_template, settings.order)
    cases = cases_for(workspace, judged, task, settings, count_tokens=count_tokens)
    examples = [_example(case.query, first_prompt(case, frame), case.query.answers[0]) for case in cases]
    counts = {"queries": len(asked), "dropped": len(asked) - len(judged)}
    return FineTuningSet(0, tuple(examples), counts, tuple(_unchecked(workspace, split)), settings.document_tokens)


def _refuse_test(split: Split) -> None:
    if split == "test":
        raise UsageError(
            "test queries are for evaluation: an LLM fine-tuned on them cannot be judged by them",
            "icl-curate calibrate --split validation and then export --format calibration --split validation",
        )


def _example(query: Query, prompt: Prompt, answer: str, corrects: bool = False) -> TrainingConversation:
    assert query.row is not None
    turns = [{"role": m.role, "content": m.content} for m in prompt.messages]
    return TrainingConversation(query.id, query.row, (*turns, {"role": "assistant", "content": answer}), corrects)


def substitute(query: Query, earlier: Sequence[stored.StoredRound], grades: Grades) -> tuple[list[EarlierAnswer], int]:
    """The earlier answers as the example shows them, and how many of them were replaced."""
    corrected = []
    substituted = 0
    for round_ in earlier:
        answer = round_.answer
        if round_.score < MIDDLE and not grades.mark(query, answer).right:
            answer = query.answers[0]
            substituted += 1
        corrected.append(EarlierAnswer(answer, shown(round_.score)))
    return corrected, substituted


def target(query: Query, earlier: Sequence[EarlierAnswer], grades: Grades) -> str:
    """The words of the last certain earlier answer, which is right after `substitute`, or of the last one without a
    score if it is right; else the reference."""
    sure = [each.answer for each in earlier if each.score is None or each.score < MIDDLE]
    if sure and grades.mark(query, sure[-1]).right:
        return sure[-1]
    return query.answers[0]


def export_calibration(
    workspace: Workspace, plan: ExportPlan, settings: Settings, arm: str = ARM, balance: bool = False
) -> ExportReport:
    """Write the fine-tuning set of the latest calibration of ``plan.split``; in a dry run, report what would be
    written.

    Lines contain ``messages`` (system, user, assistant) and nothing else, as OpenAI requires; TRL and LLaMA-Factory
    read the same format. The manifest is that of every export, with what the scores in the set rest on. Raises what
    `fine_tuning_set` and `check_target` raise, and `UsageError` for filters, which are for rows.
    """
    check_no_input(workspace, plan.out)
    check_target(plan)
    if plan.version:
        raise UsageError(
            "calibrated answers are not part of a version", "leave out --version, or choose another format"
        )
    if plan.sources or plan.deduplicate:
        raise UsageError("calibrated answers are not filtered", "leave out --source and --deduplicate")
    taught = fine_tuning_set(workspace, plan.split, settings, arm, balance)
    exported: dict[str, int] = {plan.split: len(taught.examples)}
    told = {"counts": taught.counts, "warnings": taught.warnings}
    if plan.dry_run:
        return foreseen(plan, exported, **told)
    run = numbered(workspace, taught.run)
    assert run is not None
    rows = np.array(sorted(example.row for example in taught.examples), np.int64)

    def write(temporary: Path) -> dict[str, Any]:
        with temporary.open("w", encoding="utf-8") as file:
            for example in taught.examples:
                file.write(json.dumps({"messages": list(example.messages)}, ensure_ascii=False) + "\n")
        digests = {plan.out.name: settled_digest(temporary)}
        manifest = manifest_of(workspace, plan, Chosen({plan.split: rows}, None, task_of(workspace)), digests, exported)
        return {
            **manifest,
            "counts": {**manifest["counts"], **taught.counts},
            "warnings": list(taught.warnings),
            "run": taught.run,
            "llm": run.llm,
            "arm": arm,
            "estimator": run.summary["estimator"],
            "means": run.summary["means"],
            "calibration": run.settings,
            "order": settings.order,
            "ids": [example.id for example in taught.examples],
        }

    return publish(plan, exported, write, **told)
