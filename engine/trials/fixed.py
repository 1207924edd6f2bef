"""A fixed prompt: the same demonstrations for every query, for services that cannot retrieve."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence

import numpy as np

from ..base.arrays import Int64s
from ..base.errors import UsageError, WorkspaceError
from ..retrieval.view import PoolView
from ..store import runs
from ..store.workspace import Workspace

KIND = "train-fixed"
SHOTS = "shots"
"""Name of the digest by which a lock knows the set."""

_loaded: weakref.WeakKeyDictionary[PoolView, Int64s] = weakref.WeakKeyDictionary()


def keep(workspace: Workspace, run: int, ids: Sequence[str]) -> None:
    """Store the digest of a run's set, of demonstrations best first."""
    runs.keep_files(workspace, run, {SHOTS: hashlib.sha256("\0".join(ids).encode()).hexdigest()})


def fixed_rows(view: PoolView) -> Int64s:
    """The rows of the latest set that are in the view, best first; one chosen with the configured LLM is preferred.
    Read once for each view. Raises `UsageError` if there is no set, `WorkspaceError` if it cannot be read."""
    if view not in _loaded:
        done = runs.finished(view.workspace, KIND)
        if not done:
            raise UsageError("no fixed set has been chosen yet", "icl-curate train fixed")
        latest = max(done, key=lambda run: (run.llm == view.settings.llm, run.run))
        try:
            chosen = np.array([int(shot["row"]) for shot in latest.summary["metrics"]["shots"]], np.int64)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise WorkspaceError(f"the set of run {latest.run} cannot be read", "icl-curate train fixed") from error
        _loaded[view] = chosen[np.isin(chosen, view.rows)]
    return _loaded[view]
