"""Selection by the LLM's own uncertainty: `mdl`, `mdr` and `cone`, baselines of paper 004 (section 4.1, appendix).

All three choose among the `CANDIDATES` nearest demonstrations and need log-probabilities of given texts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ..base.progress import Event
from ..evaluate.request_stages import FinalAnswers, MethodContext, RequestStages, Stage
from ..llm.asking import prompt_for, request_for
from ..llm.types import Answer, Request, Result
from ..pool.answers import accepted_options
from ..pool.prompts import Prompt
from ..pool.records import Demonstration, Message, Query
from ..prompting.template import question_of

CANDIDATES = 30
SETS = 10
"""Sets of demonstrations that `mdl` compares."""

ERROR = 0.5
"""The penalty of `mdr` on the cosine of a demonstration that the LLM would surely answer wrong: the paper's C."""

ERRORS = (0.5, 0.25, 0.75, 0.0, 1.0)
"""Values of C to choose from, the first of equals; the paper takes one of [0, 1] by validation."""


def mdl(context: MethodContext, seed: int) -> RequestStages:
    """Of the k nearest and nine random sets of k candidates, the one with the lowest entropy over the choices (Wu et
    al. 2023, by minimum description length)."""
    k = context.settings.k
    sets: list[list[list[int]]] = [[] for _ in range(SETS)]
    for query, (rows, _) in zip(context.queries, _nearest(context), strict=True):
        generator = random.Random(f"{seed}\0{query.id}\0{query.input}")
        places = [list(range(min(k, len(rows))))]
        places += [sorted(generator.sample(range(len(rows)), min(k, len(rows)))) for _ in range(SETS - 1)]
        for chosen, at in zip(sets, places, strict=True):
            chosen.append([rows[i] for i in at])
    asked = [context.prompts(chosen, "mdl") for chosen in sets]
    requests = [request for prompted, _ in asked for request in prompted]
    results = yield Stage([replace(request, score=True) for request in requests])
    n = len(context.queries)
    best = [int(np.argmin([entropy(results[s * n + i]) for s in range(SETS)])) for i in range(n)]
    shown = [sets[s][i] for i, s in enumerate(best)]
    if not all(request.score for request in requests):  # the set is chosen by scores, the answer will be generated
        return (yield from context.answer(shown, "mdl"))
    dropped = [asked[s][1][i] for i, s in enumerate(best)]
    return FinalAnswers(shown, dropped, [results[s * n + i] for i, s in enumerate(best)])


def mdr(context: MethodContext, seed: int) -> RequestStages:
    """Near demonstrations that the LLM itself answers well without shots: highest cosine − C × (1 − p of its own
    output). After paper 004's description of Wang et al. 2024, whose code is not available. C is the context's, or, if
    that is None, chosen by the answers to validation queries."""
    n = len(context.queries)
    groups = [] if context.mdr_error is not None else _groups(context)
    candidates = _nearest(context)
    apart = [_nearest(replace(context, queries=chosen_on)) for _, chosen_on in groups]
    rows = sorted({row for nearest in (candidates, *apart) for near, _ in nearest for row in near})
    (shots,) = context.demonstrations([rows])
    asked = [_own_answer(context, shot) for shot in shots]
    results = yield Stage(asked)
    error = {row: _error(request, result) for row, request, result in zip(rows, asked, results, strict=True)}
    penalties = np.full(n, ERROR if context.mdr_error is None else context.mdr_error)
    for (own, chosen_on), nearest in zip(groups, apart, strict=True):
        other = replace(context, queries=chosen_on)
        tried = [other.prompts(_penalised(nearest, error, [c] * len(nearest), context), "mdr")[0] for c in ERRORS]
        answers = yield Stage([request for requests in tried for request in requests])
        worth = [_worth(other, answers[i * len(chosen_on) : (i + 1) * len(chosen_on)]) for i in range(len(ERRORS))]
        penalties[own] = ERRORS[int(np.argmax(worth))]
        context.monitor.report(
            Event("select", note=f"mdr: C = {penalties[own[0]]:g} chosen on {len(chosen_on)} validation queries")
        )
    chosen = _penalised(candidates, error, penalties.tolist(), context)
    return (yield from context.answer(chosen, "mdr"))


def _groups(context: MethodContext) -> list[tuple[list[int], list[Query]]]:
    """Which queries C is chosen for, by their places, and on which: never on themselves."""
    queries, apart = list(context.queries), list(context.validation)
    if not {query.row for query in queries} & {query.row for query in apart}:
        return [(list(range(len(queries))), apart)] if apart else []
    halves = [list(range(0, len(queries), 2)), list(range(1, len(queries), 2))]
    return [(own, [queries[i] for i in other]) for own, other in (halves, halves[::-1]) if own and other]


def _penalised(
    nearest: list[tuple[list[int], list[float]]],
    error: dict[int, float],
    penalties: list[float],
    context: MethodContext,
) -> list[list[int]]:
    """For each query the k rows of the highest cosine − C × error."""
    chosen = []
    for (near, cosines), penalty in zip(nearest, penalties, strict=True):
        scores = np.array([c - penalty * error[row] for row, c in zip(near, cosines, strict=True)])
        chosen.append([near[i] for i in np.argsort(-scores, kind="stable")[: context.settings.k]])
    return chosen


def _worth(context: MethodContext, results: list[Result]) -> float:
    """The sum of the values of the answers to the context's queries."""
    task = context.selector.task
    return sum(
        context.metric.score(result.text, query, task)
        for query, result in zip(context.queries, results, strict=True)
        if isinstance(result, Answer)
    )


def cone(context: MethodContext, seed: int) -> RequestStages:
    """The candidates after which, each alone, the query is least surprising to the LLM: lowest −log p(x | d) (Peng et
    al. 2024, ConE), the sum over the query's tokens."""
    candidates = [rows for rows, _ in _nearest(context)]
    shown = context.demonstrations(candidates)
    ask = partial(question_of, context.settings.prompt_template, task=context.selector.task)
    pairs = [(query, shot) for query, shots in zip(context.queries, shown, strict=True) for shot in shots]
    asked = [query_after(query, shot, ask) for query, shot in pairs]
    results = yield Stage(asked)
    chosen, at = [], 0
    for rows in candidates:
        surprise = np.array([_surprise(result) for result in results[at : at + len(rows)]])
        chosen.append([rows[i] for i in np.argsort(surprise, kind="stable")[: context.settings.k]])
        at += len(rows)
    return (yield from context.answer(chosen, "cone"))


def entropy(result: Result) -> float:
    """Entropy in nats of the choices' shares by log-probability per token; infinite without choices."""
    if not isinstance(result, Answer) or not result.option_logprobs:
        return math.inf
    shares = np.array(result.token_shares)
    return float(-(shares * np.log(np.maximum(shares, 1e-300))).sum())  # −Σ p log p


def query_after(query: Query, demonstration: Demonstration, asked: Callable[[Query], str]) -> Request:
    """A request that scores the query as the next question after a demonstration, each written as ``asked``."""
    messages = (
        Message("system", "Questions of one kind, each with its answer."),
        Message("user", asked(demonstration.as_query())),
        Message("assistant", demonstration.output),
        Message("user", "Write the next question."),
    )
    return Request(Prompt(messages, query, (demonstration,), (asked(query),)), score=True)


def _nearest(context: MethodContext) -> list[tuple[list[int], list[float]]]:
    nearest = context.selector.view.dense_top(context.queries, max(CANDIDATES, context.settings.k))
    return [(rows.tolist(), [float(c) for c in cosines]) for rows, cosines in nearest]


def _own_answer(context: MethodContext, shot: Demonstration) -> Request:
    """A request that answers a demonstration's own question without shots, with its choices (or its output alone)
    scored."""
    query = shot.as_query()
    prompt, _ = prompt_for(query, [], context.selector.task, context.settings)
    if not prompt.choices:
        prompt = replace(prompt, choices=(shot.output,))
    return replace(request_for(prompt, context.settings, context.capabilities), score=True)


def _error(request: Request, result: Result) -> float:
    """1 − the LLM's probability of the known answer to the request's question; 1 without scores."""
    if not isinstance(result, Answer) or not result.option_logprobs:
        return 1.0
    if len(result.option_logprobs) == 1:
        return 1 - math.exp(*result.token_means)  # p per token, of free text
    prompt = request.prompt
    return 1 - float(np.dot(result.token_shares, accepted_options(prompt.choices, prompt.query.answers)))


def _surprise(result: Result) -> float:
    if not isinstance(result, Answer) or not result.option_logprobs:
        return math.inf
    return -sum(result.option_logprobs[0])  # −log p(x | d)
