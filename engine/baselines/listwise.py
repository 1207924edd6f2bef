"""`rerank`: the LLM orders the candidates itself (Sun et al. 2023, RankGPT: listwise permutation, sliding window)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from ..evaluate.request_stages import MethodContext, RequestStages, Stage
from ..llm.types import Answer, Request, Result, Sampling
from ..pool.prompts import Prompt
from ..pool.records import Demonstration, Message, Query
from ..prompting.template import question_of

CANDIDATES = 20
"""Demonstrations by BM25 that the LLM orders."""

WINDOW, STEP = 20, 10
LONGEST, SHORTEST = 300, 10
"""Maximum words shown to the LLM of a demonstration's question and answer, and the minimum if the context is short."""

_MARKED, _NUMBER = re.compile(r"\[\s*(\d+)\s*\]"), re.compile(r"\d+")


def rerank(context: MethodContext, seed: int) -> RequestStages:
    """Order the best `CANDIDATES` by BM25, window by window from the weakest up, and show the first k. A window whose
    call fails keeps its order."""
    k = context.settings.k
    orders = [rows.tolist() for rows, _ in context.selector.view.bm25_top(context.queries, max(k, CANDIDATES))]
    for start in windows(max((len(order) for order in orders), default=0)):
        span = slice(start, start + WINDOW)
        shown = context.demonstrations([order[span] for order in orders])
        asked = [i for i, window in enumerate(shown) if len(window) > 1]
        turned = [" > ".join(f"[{n}]" for n in range(len(shown[i]), 0, -1)) for i in asked]
        results = yield Stage([fitting_request(context, context.queries[i], shown[i]) for i in asked], turned)
        for i, result in zip(asked, results, strict=True):
            orders[i][span] = permuted(orders[i][span], result)
    return (yield from context.answer([order[:k] for order in orders], "rerank"))


def windows(count: int) -> list[int]:
    """Start positions of the windows over ``count`` candidates, the weakest first; every candidate can rise to the
    top."""
    starts = list(range(max(count - WINDOW, 0), 0, -STEP))
    return [*starts, 0] if count > 1 else []


def permuted(rows: Sequence[int], result: Result) -> list[int]:
    """Rows in the order of the numbers in the reply (of the numbers in brackets, if there are any); omitted rows follow
    in their old order."""
    text = result.text if isinstance(result, Answer) else ""
    ranked = [int(number) - 1 for number in _MARKED.findall(text) or _NUMBER.findall(text) if len(number) < 4]
    first = dict.fromkeys(i for i in ranked if 0 <= i < len(rows))
    return [rows[i] for i in [*first, *(i for i in range(len(rows)) if i not in first)]]


def fitting_request(context: MethodContext, query: Query, shown: Sequence[Demonstration]) -> Request:
    """`listwise_request` with the examples shortened as far as the LLM's context requires."""
    ask = partial(question_of, context.settings.prompt_template, task=context.selector.task)
    words = LONGEST
    while True:
        request = listwise_request(query, shown, ask, words, context.settings.seed)
        prompt_budget = context.prompt_budget(request.sampling.max_tokens)
        if prompt_budget is None or words <= SHORTEST or context.backend.count_tokens(request.prompt) <= prompt_budget:
            return request
        words = max(words * 2 // 3, SHORTEST)


def listwise_request(
    query: Query, shown: Sequence[Demonstration], asked: Callable[[Query], str], words: int = LONGEST, seed: int = 0
) -> Request:
    """One turn per candidate, then the request for an order such as ``[2] > [1]``; ``asked``: a query as a
    question."""
    question = asked(query)
    messages = [
        Message("system", "You judge which solved examples would help most to answer a new question."),
        Message("user", f"I will show you {len(shown)} solved examples, each with a number. The question:\n{question}"),
        Message("assistant", "Understood. Show me the examples."),
    ]
    for number, demonstration in enumerate(shown, 1):
        text = shortened(asked(demonstration.as_query()), words)
        answer = shortened(demonstration.output, words)
        messages += [
            Message("user", f"[{number}] {text}\nAnswer: {answer}"),
            Message("assistant", f"Noted [{number}]."),
        ]
    ask = (
        f"Put the {len(shown)} examples in order, the most helpful for the question first. Write their numbers alone, "
        f"like [2] > [1], every number once.\nThe question:\n{question}"
    )
    prompt = Prompt((*messages, Message("user", ask)), query, tuple(shown))
    return Request(prompt, sampling=Sampling(max_tokens=6 * len(shown) + 16, seed=seed))


def shortened(text: str, words: int = LONGEST) -> str:
    """The first words of a text, with its line breaks."""
    found = list(re.finditer(r"\S+", text))
    return text if len(found) <= words else text[: found[words - 1].end()] + " …"
