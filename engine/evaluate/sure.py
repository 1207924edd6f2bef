"""`sure`: answer by summaries that argue for two candidate answers (Kim et al. 2024, SuRe), demonstrations as passages.

Seven calls a query: two candidates, a summary of the passages for each, whether each summary holds, and which of the
two is better, in both orders.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..llm.types import Answer, Request, Result, Sampling
from ..pool.prompts import Message, Prompt, Template, fit_prompt
from ..pool.records import Demonstration, Query
from .dialogue import Answered, Bench, Dialogue, Stage

_CANDIDATES = re.compile(r"\(a\)\s*(.*?)\s*(?:[;,.]?\s*\(b\)\s*(.*?)\s*)?$", re.IGNORECASE | re.DOTALL)
_VERDICT = re.compile(r"\b(true|false)\b", re.IGNORECASE)
_CHOICE = re.compile(r"\b(?:summary\s*)?([12])\b", re.IGNORECASE)
_EDGES = " \t\n.;,\"'"


def sure(bench: Bench, seed: int) -> Dialogue:
    """The passages are the first k demonstrations by BM25."""
    k = bench.settings.k
    rows = [[int(row) for row in found] for found, _ in bench.selector.view.bm25_top(bench.queries, k)]
    passages, dropped = _passages(bench, bench.demonstrations(rows))
    first = yield Stage([_ask(q, d, candidates_asked(q, d)) for q, d in passages], "(a) one (b) other")
    pairs = [candidates_in(result) for result in first]
    both = [i for i, pair in enumerate(pairs) if len(pair) == 2]
    summaries = yield Stage(
        [_ask(*passages[i], summary_asked(*passages[i], answer), 200) for i in both for answer in pairs[i]], "a summary"
    )
    said = [result.text.strip() if isinstance(result, Answer) else "" for result in summaries]
    argued = {i: (said[2 * n], said[2 * n + 1]) for n, i in enumerate(both)}
    queries = bench.queries
    checks = yield Stage(
        [_ask(queries[i], (), check_asked(queries[i], pairs[i][j], argued[i][j]), 8) for i in both for j in (0, 1)],
        "True",
    )
    turns = yield Stage(
        [_ask(queries[i], (), choice_asked(queries[i], argued[i][::way]), 8) for i in both for way in (1, -1)], "1"
    )
    results: list[Result] = []
    for i, result in enumerate(first):
        winner = 0
        if i in argued:
            at = 2 * both.index(i)
            winner = voted([_is_true(c) for c in checks[at : at + 2]], [_chosen(t) for t in turns[at : at + 2]])
        results.append(replace(result, text=pairs[i][winner], tokens=(), logprobs=()) if pairs[i] else result)  # type: ignore[arg-type]
    return Answered(rows, dropped, results)


def candidates_in(result: Result) -> list[str]:
    """The candidate answers that a reply names, two at most; a reply without marks is one candidate."""
    if not isinstance(result, Answer) or not result.text.strip():
        return []
    match = _CANDIDATES.search(result.text)
    named = [part.strip(_EDGES) for part in match.groups() if part] if match else [result.text.strip(_EDGES)]
    return list(dict.fromkeys(name for name in named if name))


def voted(valid: Sequence[bool | None], choices: Sequence[int | None]) -> int:
    """0 or 1 from the verdicts on both summaries and the choice in both orders (the second order turned round).

    A choice that changes with the order counts for neither; one valid summary alone counts half; ties go to the first.
    """
    turned = [choices[0], None if choices[1] is None else 1 - choices[1]]
    score = 0.0  # above 0: the second
    if turned[0] is not None and turned[0] == turned[1]:
        score += 1.0 if turned[0] else -1.0
    if valid[0] != valid[1] and True in valid:
        score = (score + (1.0 if valid[1] else -1.0)) / 2
    return 1 if score > 0 else 0


def candidates_asked(query: Query, shown: Sequence[Demonstration]) -> str:
    return (
        f"{_numbered(shown)}\n\n{Template().question(query)}\n\nName the two most likely answers to this question in "
        "view of the passages, each as short as it can be. Write only: (a) first answer (b) second answer"
    )


def summary_asked(query: Query, shown: Sequence[Demonstration], answer: str) -> str:
    return (
        f"{_numbered(shown)}\n\n{Template().question(query)}\nProposed answer: {answer}\n\nSum up what in the passages "
        "supports this answer, in at most four sentences. Write only the summary."
    )


def check_asked(query: Query, answer: str, summary: str) -> str:
    return (
        f"{Template().question(query)}\nProposed answer: {answer}\nSummary: {summary}\n\nDoes the summary really "
        "support the proposed answer? Write True or False and nothing else."
    )


def choice_asked(query: Query, summaries: Sequence[str]) -> str:
    return (
        f"{Template().question(query)}\n\nSummary 1: {summaries[0]}\n\nSummary 2: {summaries[1]}\n\n"
        "Which summary tells more that helps to answer the question? Write 1 or 2 and nothing else."
    )


def _numbered(shown: Sequence[Demonstration]) -> str:
    return "\n\n".join(
        f"Passage #{i}:\n{Template().question(d.as_query())}\nAnswer: {d.output}" for i, d in enumerate(shown, 1)
    )


def _ask(query: Query, shown: Sequence[Demonstration], text: str, most: int = 64) -> Request:
    return Request(Prompt((Message("user", text),), query, tuple(shown)), sampling=Sampling(max_tokens=most))


def _passages(
    bench: Bench, shown: Sequence[Sequence[Demonstration]]
) -> tuple[list[tuple[Query, Sequence[Demonstration]]], list[int]]:
    """Each query with as many passages as its longest prompt has room for, best first."""
    fitting: list[tuple[Query, Sequence[Demonstration]]] = []
    dropped = []
    for query, best_first in zip(bench.queries, shown, strict=True):
        prompt, lost = fit_prompt(
            query,
            best_first,
            lambda q, d: _ask(q, d, candidates_asked(q, d)).prompt,
            bench.backend.count_tokens,
            bench.room,
        )
        fitting.append((query, prompt.demonstrations))
        dropped.append(lost)
    return fitting, dropped


def _is_true(result: Result) -> bool | None:
    match = _VERDICT.search(result.text) if isinstance(result, Answer) else None
    return match.group(1).lower() == "true" if match else None


def _chosen(result: Result) -> int | None:
    match = _CHOICE.search(result.text) if isinstance(result, Answer) else None
    return int(match.group(1)) - 1 if match else None
