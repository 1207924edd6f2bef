"""Export of the fine-tuning set of calibration: chat JSONL, one conversation per line, with a manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import UsageError
from ..calibrate.finetune import ARM, fine_tuning_set
from ..store.demonstrations import task_of
from ..store.runs import numbered
from ..store.settings import Settings
from ..store.workspace import Workspace
from .corpus import Chosen, ExportPlan, check_target, foreseen, manifest_of, publish, settled_digest
from .results import ExportReport


def export_calibration(
    workspace: Workspace, plan: ExportPlan, settings: Settings, arm: str = ARM, balance: bool = False
) -> ExportReport:
    """Write the fine-tuning set of the latest calibration of ``plan.split``; in a dry run, report what would be
    written.

    Lines contain ``messages`` (system, user, assistant) and nothing else, as OpenAI requires; TRL and LLaMA-Factory
    read the same format. The manifest is that of every export, with what the scores in the set rest on. Raises what
    `fine_tuning_set` and `check_target` raise, and `UsageError` for filters, which are for rows.
    """
    check_target(plan)
    if plan.version:
        raise UsageError(
            "calibrated answers are not part of a version", "leave out --version, or choose another format"
        )
    if plan.sources or plan.deduplicate:
        raise UsageError("calibrated answers are not filtered", "leave out --source and --deduplicate")
    found = fine_tuning_set(workspace, plan.split, settings, arm, balance)
    exported: dict[str, int] = {plan.split: len(found.examples)}
    told = {"counts": found.counts, "warnings": found.warnings}
    if plan.dry_run:
        return foreseen(plan, exported, **told)
    run = numbered(workspace, found.run)
    assert run is not None
    rows = np.array(sorted(example.row for example in found.examples), np.int64)

    def write(temporary: Path) -> dict[str, Any]:
        with temporary.open("w", encoding="utf-8") as file:
            for example in found.examples:
                file.write(json.dumps({"messages": list(example.messages)}, ensure_ascii=False) + "\n")
        digests = {plan.out.name: settled_digest(temporary)}
        manifest = manifest_of(workspace, plan, Chosen({plan.split: rows}, None, task_of(workspace)), digests, exported)
        return {
            **manifest,
            "counts": {**manifest["counts"], **found.counts},
            "warnings": list(found.warnings),
            "run": found.run,
            "llm": run.llm,
            "arm": arm,
            "estimator": run.summary["estimator"],
            "means": run.summary["means"],
            "calibration": run.settings,
            "order": settings.order,
            "ids": [example.id for example in found.examples],
        }

    return publish(plan, exported, write, **told)
