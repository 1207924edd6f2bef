"""How much each source changes any utility of a set, by its definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from icl_curate.engine.papers.sources.estimators import Marginals

Present = np.ndarray[Any, np.dtype[np.bool_]]


def set_marginals(utility: Callable[[Present], float], sources: int) -> Marginals:
    """U(S ∪ s) − U(S \\ s) for every source s, by C + 1 evaluations."""

    def marginals(present: Present) -> np.ndarray[Any, np.dtype[np.float64]]:
        base = utility(present)
        changes = np.zeros(sources)
        for source in range(sources):
            toggled = present.copy()
            toggled[source] = not present[source]
            changes[source] = (base - utility(toggled)) * (1 if present[source] else -1)
        return changes

    return marginals
