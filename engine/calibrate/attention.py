"""Whether the LLM looks at the relevant documents while it answers, before and after the first calibration (paper 001,
figure 6 and table 10). Only for local models, whose attention is known; computed, not asked, and not cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from ..base.errors import LLMError
from ..base.progress import Event
from ..llm import loop
from ..llm.client import LLMClient
from ..llm.types import Attends, Looked
from .results import AttentionFigures
from .rounds import QueryRounds

TASK = "attention"
DEPTHS = (2, 5)
"""The k of R10@k."""
ROUNDS = (0, 1)
"""Before and after the first calibration."""


def check_attention(llm: LLMClient) -> Attends:
    """The backend, or `LLMError` if it cannot tell where it looks."""
    if not isinstance(llm.backend, Attends):
        raise LLMError(f"{llm.name} does not tell where it looks", "--llm hf:PATH or smollm2, or without --attention")
    return llm.backend


def attention_figures(llm: LLMClient, all_rounds: Sequence[QueryRounds]) -> AttentionFigures:
    """Recall at k of documents ranked by the attention they get, over the queries with documents of known relevance
    that took the first calibration."""
    backend = check_attention(llm)
    kept = [
        rounds
        for rounds in all_rounds
        if len(rounds.rounds) > max(ROUNDS)
        and rounds.case.over == "documents"
        and {document.relevant for document in rounds.case.documents} >= {True, False}
    ]
    recalls: dict[int, list[tuple[float, ...]]] = {number: [] for number in ROUNDS}
    for done, query in enumerate(kept, 1):
        llm.cancel.check()
        relevant = [bool(document.relevant) for document in query.case.documents]
        texts = tuple(document.text for document in query.case.documents)
        looked = [Looked(query.rounds[number].prompt, query.rounds[number].answer, texts) for number in ROUNDS]
        shares = loop.submit(backend.attention(looked)).result()
        if all(shares):
            for number, found in zip(ROUNDS, shares, strict=True):
                recalls[number].append(tuple(recall_at(found or (), relevant, k) for k in DEPTHS))
        llm.report(Event(TASK, done, len(kept)))
    before, after = (_means(recalls[number]) for number in ROUNDS)
    return AttentionFigures(len(recalls[0]), before, after)


def recall_at(shares: Sequence[float], relevant: Sequence[bool], k: int) -> float:
    """The share of the relevant documents among the k with the largest shares; of equal ones the earlier first."""
    top = sorted(range(len(shares)), key=lambda i: -shares[i])[:k]
    return sum(relevant[i] for i in top) / sum(relevant)


def _means(recalls: Sequence[Sequence[float]]) -> Mapping[str, float]:
    columns = zip(*recalls, strict=True) if recalls else ([0.0] for _ in DEPTHS)
    return {str(k): fmean(values) for k, values in zip(DEPTHS, columns, strict=True)}
