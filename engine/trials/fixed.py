"""A fixed prompt: the same demonstrations for every query, for services that cannot retrieve."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ..base.arrays import Int64s
from ..base.errors import UsageError
from ..store import runs
from ..store.workspace import Workspace

KIND = "train-fixed"
SHOTS = "shots"
"""Name of the digest by which a lock knows the set."""


def keep(workspace: Workspace, run: int, ids: Sequence[str]) -> None:
    """Store the digest of a run's set, of demonstrations best first."""
    runs.keep_files(workspace, run, {SHOTS: hashlib.sha256("\0".join(ids).encode()).hexdigest()})


def fixed_rows(workspace: Workspace, llm: str) -> Int64s:
    """The rows of the latest set, best first; one that was chosen with this LLM is preferred. Raises `UsageError` if
    there is none."""
    done = [past.run for past in runs.finished(workspace, KIND)]
    if not done:
        raise UsageError("no fixed set has been chosen yet", "icl-curate train fixed -k 8 --llm SPEC")
    latest = max(done, key=lambda run: (run.llm == llm, run.run))
    return np.array([shot["row"] for shot in latest.summary["metrics"]["shots"]], np.int64)
