"""Selection by the LLM's own uncertainty: `mdl`, `mdr` and `cone`, baselines of paper 004 (section 4.1, appendix).

All three choose among the `CANDIDATES` nearest demonstrations and need log-probabilities of given texts.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np

from ..arrays import Float64s
from ..llm.asking import prompt_for, request_for
from ..llm.types import Answer, Request, Result
from ..pool.answers import exact_match
from ..pool.prompts import Message, Prompt, Template
from ..pool.records import Demonstration, Query
from .request_stages import FinalAnswers, MethodContext, RequestStages, Stage

CANDIDATES = 30
SETS = 10
"""Sets of demonstrations that `mdl` compares."""

ERROR = 0.5
"""The penalty of `mdr` on the cosine of a demonstration that the LLM would surely answer wrong."""


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
    """Near demonstrations that the LLM itself answers well without shots: highest cosine − `ERROR` × (1 − p of its
    own output). After paper 004's description of Wang et al. 2024, whose code is not available."""
    found = _nearest(context)
    rows = sorted({row for near, _ in found for row in near})
    (shots,) = context.demonstrations([rows])
    asked = [_own_answer(context, shot) for shot in shots]
    results = yield Stage(asked)
    error = {row: _error(request, result) for row, request, result in zip(rows, asked, results, strict=True)}
    chosen = []
    for near, cosines in found:
        scores = np.array([c - ERROR * error[row] for row, c in zip(near, cosines, strict=True)])
        chosen.append([near[i] for i in np.argsort(-scores, kind="stable")[: context.settings.k]])
    return (yield from context.answer(chosen, "mdr"))


def cone(context: MethodContext, seed: int) -> RequestStages:
    """The candidates after which, each alone, the query is least surprising to the LLM: lowest −log p(x | d) (Peng et
    al. 2024, ConE), the sum over the query's tokens."""
    found = _nearest(context)
    shown = context.demonstrations([rows for rows, _ in found])
    template = context.settings.template
    pairs = [(query, shot) for query, shots in zip(context.queries, shown, strict=True) for shot in shots]
    asked = [query_after(query, shot, template) for query, shot in pairs]
    results = yield Stage(asked)
    chosen, at = [], 0
    for rows, _ in found:
        surprise = np.array([_surprise(result) for result in results[at : at + len(rows)]])
        chosen.append([rows[i] for i in np.argsort(surprise, kind="stable")[: context.settings.k]])
        at += len(rows)
    return (yield from context.answer(chosen, "cone"))


def entropy(result: Result) -> float:
    """Entropy in nats of the choices' shares by log-probability per token; infinite without choices."""
    if not isinstance(result, Answer) or not result.option_logprobs:
        return math.inf
    shares = shares_of(result)
    return float(-(shares * np.log(np.maximum(shares, 1e-300))).sum())


def shares_of(result: Answer) -> Float64s:
    """The softmax over the choices of the mean log-probability of their tokens."""
    means = np.array([sum(option) / max(len(option), 1) for option in result.option_logprobs])
    shares = np.exp(means - means.max())
    return np.asarray(shares / shares.sum(), np.float64)


def query_after(query: Query, demonstration: Demonstration, template: Template) -> Request:
    """A request that scores the query as the next question after a demonstration."""
    messages = (
        Message("system", "Questions of one kind, each with its answer."),
        Message("user", template.question(demonstration.as_query())),
        Message("assistant", demonstration.output),
        Message("user", "Write the next question."),
    )
    return Request(Prompt(messages, query, (demonstration,), (template.question(query),)), score=True)


def _nearest(context: MethodContext) -> list[tuple[list[int], list[float]]]:
    found = context.selector.view.dense_top(context.queries, max(CANDIDATES, context.settings.k))
    return [([int(row) for row in rows], [float(c) for c in cosines]) for rows, cosines in found]


def _own_answer(context: MethodContext, shot: Demonstration) -> Request:
    """A request that answers a demonstration's own question without shots, with its choices (or its output alone)
    scored."""
    query = shot.as_query()
    prompt, _ = prompt_for(query, [], context.selector.task, context.settings)
    if not prompt.choices:
        prompt = Prompt(prompt.messages, query, (), (shot.output,))
    return replace(request_for(prompt, context.settings, context.capabilities), score=True)


def _error(request: Request, result: Result) -> float:
    """1 − the LLM's probability of the known answer to the request's question; 1 without scores."""
    if not isinstance(result, Answer) or not result.option_logprobs:
        return 1.0
    if len(result.option_logprobs) == 1:
        (logprobs,) = result.option_logprobs
        return 1 - math.exp(sum(logprobs) / max(len(logprobs), 1))
    right = [exact_match(choice, request.prompt.query.answers) for choice in request.prompt.choices]
    return 1 - float(shares_of(result) @ np.array(right))


def _surprise(result: Result) -> float:
    if not isinstance(result, Answer) or not result.option_logprobs:
        return math.inf
    return -sum(result.option_logprobs[0])
