"""The fine-tuning set that teaches a model to use uncertainty scores (paper 001, section 3.3), from stored rounds.

The input of an example is the reformulated input of the round whose answer was right, its target the right answer. A
query that was right at round 0 gives round 1's input, so that the model also sees answers to keep; a query that was
never right gives no example.

The paper mentions, but does not specify, a substitution that keeps a model from changing answers it was sure of. Here,
an earlier answer in the input that is wrong and more certain than average (a score below 50) is replaced by the
reference answer; its score is not changed. So in every example a low score belongs to a right answer, which the target
keeps, and what the target corrects has a high score. If the last of the certain answers was right in other accepted
words, these words are the target: a right answer is not reworded.

An answer that a person accepted in review is the right answer of the query, whatever its reference says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..pool.answers import is_correct
from ..pool.choices import choice_of
from ..pool.prompts import EarlierAnswer, Order, Prompt, Template
from ..pool.records import Query, Split, Task
from ..settings import Settings
from ..store import rounds as kept
from ..store.demonstrations import fetch, task_of
from ..store.reviews import reviews
from ..store.workspace import Workspace
from .documents import cases_for, queries_of
from .prompts import OVERS, Case, Document, Frame, first_prompt, round_prompt, with_documents
from .scores import MIDDLE, shown

ARM = "full"


@dataclass(frozen=True, slots=True)
class Example:
    """A training conversation; ``id`` is the query's."""

    id: str
    messages: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class FineTuningSet:
    """The examples of a run, 0 for a set without rounds. ``counts``: queries by outcome, substituted answers, and
    queries whose answer a person accepted."""

    run: int
    examples: tuple[Example, ...]
    counts: Mapping[str, int]


Cut = Callable[[str], str]
"""Shortens the text of a document."""


def whole(text: str) -> str:
    """A `Cut` that leaves documents as they are."""
    return text


def fine_tuning_set(
    workspace: Workspace, split: Split, template: Template, order: Order = "best-last", cut: Cut = whole
) -> FineTuningSet:
    """The set from the latest finished calibration of ``split``. Calls no LLM.

    Raises `UsageError` for the test split, which would spoil every evaluation on it, if the split was never calibrated,
    or if none of its queries ended right.
    """
    _refuse_test(split)
    latest = kept.latest(workspace, ARM, split)
    if latest is None:
        raise UsageError(f"no {split} queries have been calibrated yet", f"icl-curate calibrate --split {split}")
    run, llm = latest
    accepted = {row: review.answer for row, review in reviews(workspace, llm).items() if review.round is not None}
    task = task_of(workspace)
    frame = Frame(task, template, order)
    stored_cases = kept.stored_cases(workspace, run, ARM)
    rows = {row.row: row for row in fetch(workspace, [case.query for case in stored_cases])}
    shots = {
        row.row: row
        for row in fetch(workspace, [d.row for c in stored_cases for d in c.documents if d.row is not None])
    }
    examples = []
    outcomes = ("kept_right", "corrected", "dropped", "substituted", "accepted")
    counts = Counter({"queries": len(stored_cases), **dict.fromkeys(outcomes, 0)})
    for case in stored_cases:
        query = rows[case.query].as_query()
        choices = task.choices(query)
        if case.query in accepted:
            answer = accepted[case.query]
            named = choice_of(answer, choices) if choices else None
            query = replace(query, answers=(answer if named is None else choices[named],))
            counts["accepted"] += 1
        right = next(
            (round_.round for round_ in case.rounds if is_correct(round_.answer, query.answers, choices)),
            None,
        )
        if right is None:
            counts["dropped"] += 1
            continue
        use = max(right, 1)  # the input of round 1 is known even if the rounds ended with a right first answer
        documents = [
            Document(d.id, cut(d.text), None, shots[d.row] if d.row is not None else None) for d in case.documents
        ]
        [over] = [name for name in OVERS if name == case.over]
        again = with_documents(Case(query, (), over), documents)
        earlier, substituted = substitute(query, case.rounds[:use], task)
        counts["substituted"] += substituted
        counts["kept_right" if right == 0 else "corrected"] += 1
        prompt = round_prompt(again, frame, [shown(d.score) for d in case.documents], earlier)
        examples.append(_example(query, prompt, target(query, earlier, task)))
    if not examples:
        raise UsageError(
            f"none of the {len(stored_cases):,} {split} queries ended with a right answer",
            "icl-curate calibrate --split …",
        )
    return FineTuningSet(run, tuple(examples), counts)


def answer_set(
    workspace: Workspace, split: Split, settings: Settings, limit: int | None = None, cut: Cut = whole
) -> FineTuningSet:
    """The plain set of a split, without rounds: the first prompt of every query, and its reference (the baseline "LoRA
    tuning" of table 2). Calls no LLM.

    Raises `UsageError` for the test split, or if no query of the split has a reference.
    """
    _refuse_test(split)
    asked = queries_of(workspace, split, limit)
    judged = [query for query in asked if query.answers]
    if not judged:
        raise UsageError(f"there are no {split} queries with answers", "icl-curate index POOL.jsonl --validation …")
    task = task_of(workspace)
    frame = Frame(task, settings.template, settings.order)
    examples = []
    for case in cases_for(workspace, judged, task, settings):
        documents = case.documents
        if case.over == "documents":
            documents = tuple(replace(document, text=cut(document.text)) for document in documents)
        prompt = first_prompt(with_documents(case, documents), frame)
        examples.append(_example(case.query, prompt, case.query.answers[0]))
    return FineTuningSet(0, tuple(examples), {"queries": len(asked), "dropped": len(asked) - len(judged)})


def _refuse_test(split: Split) -> None:
    if split == "test":
        raise UsageError(
            "test queries are for evaluation: an LLM fine-tuned on them cannot be judged by them",
            "icl-curate calibrate --validation, then export --format calibration --split validation",
        )


def _example(query: Query, prompt: Prompt, answer: str) -> Example:
    turns = [{"role": m.role, "content": m.content} for m in prompt.messages]
    return Example(query.id, (*turns, {"role": "assistant", "content": answer}))


def substitute(query: Query, earlier: Sequence[kept.StoredRound], task: Task) -> tuple[list[EarlierAnswer], int]:
    """The earlier answers as the example shows them, and how many of them were replaced."""
    choices = task.choices(query)
    corrected = []
    substituted = 0
    for round_ in earlier:
        answer = round_.answer
        if round_.score < MIDDLE and not is_correct(answer, query.answers, choices):
            answer = query.answers[0]
            substituted += 1
        corrected.append(EarlierAnswer(answer, shown(round_.score)))
    return corrected, substituted


def target(query: Query, earlier: Sequence[EarlierAnswer], task: Task) -> str:
    """The words of the last certain earlier answer, which is right after `substitute`; else the reference."""
    sure = [each.answer for each in earlier if each.score is not None and each.score < MIDDLE]
    if sure and is_correct(sure[-1], query.answers, task.choices(query)):
        return sure[-1]
    return query.answers[0]


def llama_factory(out: Path) -> Mapping[str, Any]:
    """The entry of a file of conversations in LLaMA-Factory's ``dataset_info.json``; TRL and OpenAI need none."""
    return {out.stem: {"file_name": out.name, **_SHAREGPT}}


_SHAREGPT: Mapping[str, Any] = {
    "formatting": "sharegpt",
    "columns": {"messages": "messages"},
    "tags": {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
        "system_tag": "system",
    },
}
