"""Export of the fine-tuning set of calibration: chat JSONL, one conversation per line, with a manifest."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..calibrate.finetune import fine_tuning_set, llama_factory
from ..errors import UsageError
from ..pool.prompts import Order
from ..store.workspace import Workspace
from ..version import VERSION
from .corpus import ExportPlan, check_target, foreseen, publish, settled_digest
from .results import ExportReport

FORMAT = "calibration"

MANIFEST_VERSION = 1
"""The ``schema_version`` of this format's manifest, whose keys are not those of a pool's."""


def export_calibration(workspace: Workspace, plan: ExportPlan, order: Order = "best-last") -> ExportReport:
    """Write the fine-tuning set of the latest calibration of ``plan.split``; in a dry run, report what would be
    written.

    Lines contain ``messages`` (system, user, assistant) and nothing else, as OpenAI requires; TRL and LLaMA-Factory
    read the same format. Raises what `fine_tuning_set` and `check_target` raise.
    """
    check_target(plan)
    if plan.version:
        raise UsageError(
            "calibrated answers are not part of a version", "leave out --version, or choose another format"
        )
    found = fine_tuning_set(workspace, plan.split, plan.template, order)
    exported: dict[str, int] = {plan.split: len(found.examples)}
    if plan.dry_run:
        return foreseen(plan, exported)

    def write(temporary: Path) -> dict[str, Any]:
        with temporary.open("w", encoding="utf-8") as file:
            for example in found.examples:
                file.write(json.dumps({"messages": list(example.messages)}, ensure_ascii=False) + "\n")
        return {
            "schema_version": MANIFEST_VERSION,
            "tool": "icl-curate",
            "version": VERSION,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "format": FORMAT,
            "files": {plan.out.name: settled_digest(temporary)},
            "run": found.run,
            "counts": {"exported": exported, **found.counts},
            "ids": [example.id for example in found.examples],
            "llama_factory": llama_factory(plan.out),
        }

    return publish(plan, exported, write)
