"""Labels judged before, kept for the run of a worker: many tests judge those of the sample pool."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable

from icl_curate.engine.arrays import Bools, Float32s, Int64s
from icl_curate.engine.checks import active
from icl_curate.engine.checks.labels import FOLDS, LabelPredictions, judge_labels
from icl_curate.engine.progress import CancelToken, Event, Report, silent

_KEPT: dict[Hashable, LabelPredictions | None] = {}


def keep_judgements(patch: Callable[[object, str, object], None]) -> None:
    """Let `ActivePool` judge the same labels once in a process; ``patch`` is ``monkeypatch.setattr``."""

    def judged(
        vectors: Float32s,
        outputs: list[str],
        groups: Int64s,
        report: Report = silent,
        cancel: CancelToken | None = None,
        pruned: Bools | None = None,
    ) -> LabelPredictions | None:
        key = (vectors.tobytes(), tuple(outputs), groups.tobytes(), None if pruned is None else pruned.tobytes())
        if key not in _KEPT:
            _KEPT[key] = judge_labels(vectors, outputs, groups, report, cancel, pruned)
        elif cancel:
            cancel.check()
        report(Event("labels", 2 * FOLDS, 2 * FOLDS))
        return copy.deepcopy(_KEPT[key])

    patch(active, "judge_labels", judged)
