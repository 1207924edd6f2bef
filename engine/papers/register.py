"""What the papers add to the core, by name: their table of contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..base.registry import Registry
    from ..evaluate.figures import Measure
    from ..pool.records import Query
    from ..retrieval.view import PoolView
    from ..select.methods import Choose, Method, Need, Picks
    from ..trials.estimators import SourceEstimator
    from .topics.selection import TopicPick


def methods(registry: Registry[Method]) -> None:
    from ..select.methods import Method, by_policy

    registry.add("ranker-untrained", Method(_untrained, "as ranker, before its training"))
    registry.add("promptpg", by_policy("promptpg", "as ranker, rewarded by whole prompts"))

    def topics(name: str, about: str, choose: Choose, labels: str = "soft") -> None:
        registry.add(name, Method(choose, about, trained="train-topics", needs=_needs(labels)))

    topics("topick", "cover the topics the query needs and the LLM lacks (train topics)", _topick())
    union = "as topick; a topic is covered unless every shot misses it"
    topics("topick-union", union, _topick(coverage="union"))
    topics("topick-alone", "as topick; each shot by itself (the paper's ablation)", _topick(coverage="alone"))
    unknown = "as topick; every topic counts as equally known (the paper's ablation)"
    topics("topick-no-knowledge", unknown, _topick(knowledge=False))
    binary = "as topick; topics learnt as yes or no (the paper's ablation; train topics --labels binary)"
    topics("topick-binary", binary, _topick(labels="binary"), "binary")
    topics("topick-ranks", "as topick; topics count by rank, after the authors' released code", _topick_ranks)


def estimators(registry: Registry[SourceEstimator]) -> None:
    from ..trials.estimators import SourceEstimator
    from .sources.estimators import grouped, monte_carlo, multilinear

    registry.add("multilinear", SourceEstimator(multilinear, default=True, weights=True))
    registry.add("monte-carlo", SourceEstimator(monte_carlo, weights=True))
    registry.add("grouped", SourceEstimator(grouped, weights=True))


def measures(registry: Registry[Measure]) -> None:
    from .topics.report import coverage

    registry.add("topics", coverage)


def results(registry: Registry[str]) -> None:
    registry.add("calibration", "papers.calibrate.results:QueryCalibration")
    registry.add("calibration-set", "papers.calibrate.results:SetCalibration")
    registry.add("key-ablation", "papers.calibrate.keys:KeyReport")
    registry.add("train-calibration", "papers.calibrate.results:FineTuningRun")
    registry.add("train-calibration-cost", "papers.calibrate.results:FineTuningCost")
    registry.add("train-topics", "papers.topics.results:TopicRun")


def _untrained(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """The best by the policy that ``train ranker`` starts from."""
    from ..select.methods import picks_of
    from ..trials.ranker import rank_untrained

    return [picks_of(ranked) for ranked in rank_untrained(view, queries, k, seed)]


def _topick(**variant: Any) -> Choose:
    """A set that covers the topics that the query needs and the LLM does not know (paper 004)."""

    def choose(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
        from .topics.selection import topick

        return _with_topics(topick(view, queries, k, **variant))

    return choose


def _topick_ranks(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    from .topics.ranks import topick_by_ranks

    return _with_topics(topick_by_ranks(view, queries, k))


def _with_topics(chosen: list[list[TopicPick]]) -> list[Picks]:
    from ..select.methods import Pick

    return [[Pick(c.row, c.score, {"relevance": c.relevance, "cosine": c.cosine}, c.adds) for c in of] for of in chosen]


def _needs(labels: Any) -> Callable[[PoolView, Query], list[Need]]:
    def needed(view: PoolView, query: Query) -> list[Need]:
        from .topics.selection import needs

        return needs(view, query, labels=labels)

    return needed
