"""What the papers add to the core, by name: their table of contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..base.registry import Registry
    from ..trials.estimators import SourceEstimator


def estimators(registry: Registry[SourceEstimator]) -> None:
    from ..trials.estimators import SourceEstimator
    from .sources.estimators import grouped, monte_carlo, multilinear

    registry.add("multilinear", SourceEstimator(multilinear, default=True, weights=True))
    registry.add("monte-carlo", SourceEstimator(monte_carlo, weights=True))
    registry.add("grouped", SourceEstimator(grouped, weights=True))
