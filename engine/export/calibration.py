"""Writing the fine-tuning set of calibration: chat JSONL, one conversation a line, with a manifest."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..calibrate.finetune import columns, fine_tuning_set
from ..pool.prompts import Order
from ..store.workspace import Workspace
from ..version import VERSION
from .corpus import ExportPlan, check_target, foreseen, publish, settled_digest

FORMAT = "calibration"


def export_calibration(workspace: Workspace, plan: ExportPlan, order: Order = "best-last") -> dict[str, Any]:
    """Write what the latest calibration of ``plan.split`` teaches; returns the manifest, of a dry run the part that is
    known beforehand.

    Lines hold ``messages`` (system, user, assistant) and nothing else, as OpenAI demands; TRL and LLaMA-Factory read
    the same. Raises what `fine_tuning_set` and `check_target` raise.
    """
    check_target(plan)
    found = fine_tuning_set(workspace, plan.split, plan.template, order)
    if plan.dry_run:
        return foreseen(plan, {plan.split: len(found.examples)})

    def write(temporary: Path) -> dict[str, Any]:
        with temporary.open("w", encoding="utf-8") as file:
            for example in found.examples:
                file.write(json.dumps({"messages": list(example.messages)}, ensure_ascii=False) + "\n")
        return {
            "schema_version": 1,
            "tool": "icl-curate",
            "version": VERSION,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "format": FORMAT,
            "files": {plan.out.name: settled_digest(temporary)},
            "run": found.run,
            "counts": {"exported": {plan.split: len(found.examples)}, **found.counts},
            "ids": [example.id for example in found.examples],
            "llama_factory": {plan.out.stem: {"file_name": plan.out.name, **columns()}},
        }

    return publish(plan, write)
