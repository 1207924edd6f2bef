"""The baselines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..base.registry import Registry
    from ..evaluate.request_stages import LLMMethod
    from ..select.methods import Method


def methods(registry: Registry[Method]) -> None:
    from ..select.methods import Method
    from .bm25_plus import bm25_plus

    registry.add("bm25-plus", Method(bm25_plus, "as bm25, for texts of very different lengths (BM25+)"))


def llm_methods(registry: Registry[LLMMethod]) -> None:
    from ..evaluate.request_stages import LLMMethod
    from .listwise import rerank
    from .sure import sure
    from .uncertainty import cone, mdl, mdr

    ranked = "the LLM orders the best 20 by BM25 (RankGPT)"
    registry.add("rerank", LLMMethod(rerank, ranked, instructs=True))
    registry.add("sure", LLMMethod(sure, "summaries of the evidence for two candidate answers (SuRe)", instructs=True))
    entropy = "the set with the lowest entropy of the LLM's answer (MDL)"
    registry.add("mdl", LLMMethod(mdl, entropy, scores=True, choices=True, seeded=True))
    registry.add("mdr", LLMMethod(mdr, "similar ones that the LLM answers well zero-shot (MDR)", scores=True))
    perplexity = "those with the lowest perplexity of the query (ConE)"
    registry.add("cone", LLMMethod(cone, perplexity, scores=True, instructs=True))
