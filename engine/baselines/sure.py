"""`sure`: answer by summaries that argue for two candidate answers (Kim et al. 2024, SuRe), demonstrations as passages.

Seven calls per query: two candidates, a summary of the passages for each, whether each summary is valid, and which of
the two is better, in both orders. If a call fails, the failure is the query's result, and the query is not asked
further.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..evaluate.request_stages import FinalAnswers, MethodContext, RequestStages, Stage
from ..llm.types import Answer, Failure, Request, Result, Sampling
from ..pool.prompts import Prompt
from ..pool.records import Demonstration, Message, Query, Task
from ..prompting.template import Template, fit_prompt, question_of

ANSWER, SUMMARY, VERDICT = 64, 200, 8
"""Maximum reply tokens: candidates, a summary, a verdict or a choice."""

_MARK, _CAPITAL = re.compile(r"\(([abc])\)"), re.compile(r"\(([ABC])\)")
_LINK = re.compile(r"[\s;,.]+(?:and|or)$", re.IGNORECASE)
_VERDICT = re.compile(r"\b(true|false)\b", re.IGNORECASE)
_CHOICE = re.compile(r"\b([12])\b")
_EDGES = " \t\n.;,\"'*"
_TYPICAL = "what the passages say for it " * 12


def sure(context: MethodContext, seed: int) -> RequestStages:
    """The passages are the first k demonstrations by BM25."""
    best = context.selector.view.bm25_top(context.queries, context.settings.k)
    rows = [first.tolist() for first, _ in best]
    shown, dropped = _passages(context, context.demonstrations(rows))
    task, template = context.selector.task, context.settings.prompt_template
    sure_prompts = [SurePrompts(query, d, task, template) for query, d in shown]
    results = list((yield Stage([t.candidates() for t in sure_prompts], ["(a) one (b) other"] * len(sure_prompts))))
    pairs = [candidates_in(result) for result in results]
    two = [i for i, pair in enumerate(pairs) if len(pair) == 2]
    asked = [sure_prompts[i].summary(answer) for i in two for answer in pairs[i]]
    replies = yield Stage(asked, [f"{answer}: {_TYPICAL}" for i in two for answer in pairs[i]])
    summaries = _answers_of(two, replies, results)
    argued = [(i, *side) for i, both in summaries.items() for side in zip(pairs[i], both, strict=True)]
    asked = [sure_prompts[i].check(answer, summary.text) for i, answer, summary in argued]
    checks = _answers_of(list(summaries), (yield Stage(asked, ["True"] * len(asked))), results)
    asked = [sure_prompts[i].choice([s.text for s in summaries[i]][::way]) for i in checks for way in (1, -1)]
    choices = _answers_of(list(checks), (yield Stage(asked, ["1"] * len(asked))), results)
    for i, pair in enumerate(pairs):
        result = results[i]
        if pair and isinstance(result, Answer):
            winner = 0
            if i in choices:
                valid = [{"true": True, "false": False}.get(_said(_VERDICT, check)) for check in checks[i]]
                winner = voted(valid, [{"1": 0, "2": 1}.get(_said(_CHOICE, choice)) for choice in choices[i]])
            results[i] = replace(result, text=pair[winner], tokens=(), logprobs=())
    return FinalAnswers(rows, dropped, results)


def _answers_of(asked: Sequence[int], replies: Sequence[Result], results: list[Result]) -> dict[int, list[Answer]]:
    """The two replies to each query of ``asked``; if one failed, the failure goes into ``results`` instead."""
    received: dict[int, list[Answer]] = {}
    for n, i in enumerate(asked):
        both = replies[2 * n : 2 * n + 2]
        answers = [reply for reply in both if isinstance(reply, Answer)]
        if len(answers) == 2:
            received[i] = answers
        else:
            results[i] = next(reply for reply in both if isinstance(reply, Failure))
    return received


def candidates_in(result: Result) -> list[str]:
    """The candidate answers after (a) and (b) in a reply, each up to the end of its line; a reply without marks is one
    answer."""
    text = result.text.strip() if isinstance(result, Answer) else ""
    marks = list(_MARK.finditer(text)) or list(_CAPITAL.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)][: len(marks)]
    named: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=True):
        line, *_ = text[mark.end() : end].strip().splitlines() or [""]
        named.setdefault(mark[1].lower(), _LINK.sub("", line.strip()).strip(_EDGES))
    found = [named.get("a", ""), named.get("b", "")] if named else [text.strip(_EDGES)]
    return list(dict.fromkeys(name for name in found if name.strip()))


def voted(valid: Sequence[bool | None], choices: Sequence[int | None]) -> int:
    """0 or 1 from the verdicts on both summaries and the choice in both orders (the second order reversed).

    A choice that changes with the order counts for neither; one valid summary alone counts half; ties go to the first.
    """
    turned = [choices[0], None if choices[1] is None else 1 - choices[1]]
    score = 0.0  # above 0: the second
    if turned[0] is not None and turned[0] == turned[1]:
        score += 1.0 if turned[0] else -1.0
    if valid[0] != valid[1] and True in valid:
        score = (score + (1.0 if valid[1] else -1.0)) / 2
    return 1 if score > 0 else 0


@dataclass(frozen=True, slots=True)
class SurePrompts:
    """The prompts for a query, from the question and its passages, best first."""

    query: Query
    passages: Sequence[Demonstration]
    task: Task
    template: Template

    def candidates(self) -> Request:
        labels = "\nOne of: " + ", ".join(self.task.labels) if self.task.kind == "labels" else ""
        return self._ask(
            f"{self._numbered()}\n\n{self._question()}{labels}\n\nName the two most likely answers to this question in "
            "view of the passages, each as short as it can be. Write only: (a) first answer (b) second answer",
            ANSWER,
            self.passages,
        )

    def summary(self, answer: str) -> Request:
        return self._ask(
            f"{self._numbered()}\n\n{self._question()}\nProposed answer: {answer}\n\nSum up what in the passages "
            "supports this answer, in at most four sentences. Write only the summary.",
            SUMMARY,
            self.passages,
        )

    def check(self, answer: str, summary: str) -> Request:
        return self._ask(
            f"{self._question()}\nProposed answer: {answer}\nSummary: {summary.strip()}\n\nDoes the summary really "
            "support the proposed answer? Write True or False and nothing else.",
            VERDICT,
        )

    def choice(self, summaries: Sequence[str]) -> Request:
        first, second = (summary.strip() for summary in summaries)
        return self._ask(
            f"{self._question()}\n\nSummary 1: {first}\n\nSummary 2: {second}\n\n"
            "Which summary tells more that helps to answer the question? Write 1 or 2 and nothing else.",
            VERDICT,
        )

    def _question(self) -> str:
        return question_of(self.template, self.query, self.task)

    def _numbered(self) -> str:
        return "\n\n".join(
            f"Passage #{i}:\n{question_of(self.template, d.as_query(), self.task)}\nAnswer: {d.output}"
            for i, d in enumerate(self.passages, 1)
        )

    def _ask(self, text: str, most: int, shown: Sequence[Demonstration] = ()) -> Request:
        return Request(Prompt((Message("user", text),), self.query, tuple(shown)), sampling=Sampling(max_tokens=most))


def _passages(
    context: MethodContext, shown: Sequence[Sequence[Demonstration]]
) -> tuple[list[tuple[Query, Sequence[Demonstration]]], list[int]]:
    """Each query with as many passages, best first, as fit with its longest prompt and the reply."""
    task, template = context.selector.task, context.settings.prompt_template
    prompt_budget = context.prompt_budget(SUMMARY)

    def longest(query: Query, passages: Sequence[Demonstration]) -> Prompt:
        sure_prompts = SurePrompts(query, passages, task, template)
        prompts = [sure_prompts.candidates().prompt, sure_prompts.summary("word " * ANSWER).prompt]
        return max(prompts, key=context.backend.count_tokens) if prompt_budget else prompts[0]

    fitting: list[tuple[Query, Sequence[Demonstration]]] = []
    dropped = []
    for query, best_first in zip(context.queries, shown, strict=True):
        prompt, lost = fit_prompt(query, best_first, longest, context.backend.count_tokens, prompt_budget)
        fitting.append((query, prompt.demonstrations))
        dropped.append(lost)
    return fitting, dropped


def _said(pattern: re.Pattern[str], answer: Answer) -> str:
    match = pattern.search(answer.text)
    return match[1].lower() if match else ""
