"""Labels judged before: many tests judge those of the sample pool. Judgements are kept for the run of a worker, and the
classifiers behind them, which are most of the work, for all workers."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Hashable
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
from icl_curate.engine.base.arrays import Bools, Float32s, Float64s, Int64s
from icl_curate.engine.base.progress import SILENT, Event, Monitor
from icl_curate.engine.checks import active, labels
from icl_curate.engine.checks.labels import FOLDS, LabelPredictions, Verified, judge_labels

from factories.copies import VARIABLE

_KEPT: dict[Hashable, LabelPredictions | None] = {}

fit = labels._fitted
"""Fits a classifier, and says what it predicts."""


def keep_judgements(patch: Callable[[object, str, object], None]) -> None:
    """Let `ActivePool` judge the same labels once in a process, and fit a classifier on the same rows for the same ones
    once in all workers; ``patch`` is ``monkeypatch.setattr``."""

    def judged(
        vectors: Float32s,
        outputs: list[str],
        groups: Int64s,
        monitor: Monitor = SILENT,
        pruned: Bools | None = None,
        verified: Verified | None = None,
    ) -> LabelPredictions | None:
        taught = None if verified is None else (verified.vectors.tobytes(), tuple(verified.labels))
        left_out = None if pruned is None else pruned.tobytes()
        key = (vectors.tobytes(), tuple(outputs), groups.tobytes(), left_out, taught)
        if key not in _KEPT:
            _KEPT[key] = judge_labels(vectors, outputs, groups, monitor, pruned, verified)
        monitor.check()
        monitor.report(Event("labels", 2 * FOLDS, 2 * FOLDS))
        return copy.deepcopy(_KEPT[key])

    patch(active, "judge_labels", judged)
    patch(labels, "_fitted", _fitted)


def _fitted(x: Float32s, y: Int64s, asked: Float32s, classes: int) -> Float64s:
    """What this worker or another one has computed, or computes now."""
    digest = sha256(f"{x.dtype} {x.shape} {y.dtype} {asked.shape} {classes} {labels.STRENGTH}".encode())
    for array in (x, y, asked):
        digest.update(np.ascontiguousarray(array).data)
    folder = Path(os.environ[VARIABLE]) / "classifiers"
    kept = folder / f"{digest.hexdigest()}.npy"
    if not kept.exists():
        folder.mkdir(exist_ok=True)
        with NamedTemporaryFile(dir=folder, delete=False) as file:
            np.save(file, fit(x, y, asked, classes))
        Path(file.name).replace(kept)
    return np.asarray(np.load(kept))
