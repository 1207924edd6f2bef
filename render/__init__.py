"""What commands print: tables, sentences, pages. `show` prints a result by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

SHOWN: Mapping[str, str] = {
    "audit": "learned:show_audit",
    "calibration": "calibration:show_calibration",
    "calibration-runs": "calibration:show_comparison",
    "calibration-set": "calibration:show_calibrations",
    "curation": "curate:show_curation",
    "decision": "decisions:show_change",
    "demonstrations": "pool:show_page",
    "diff": "decisions:show_diff",
    "evaluation": "evaluation:show_evaluation",
    "export": "pool:show_export",
    "files-here": "files:show_files",
    "flips": "learned:show_flips",
    "gaps": "learned:show_gaps",
    "history": "pool:show_history",
    "index": "pool:show_index",
    "index-peek": "pool:show_peek",
    "jobs": "jobs:show_jobs",
    "key-ablation": "calibration:show_keys",
    "ledger": "learned:show_ledger",
    "llm-check": "costs:show_check",
    "preview": "preview:show_preview",
    "request": "preview:show_request",
    "skipped": "checks:show_skipped",
    "sources": "learned:show_sources",
    "status": "pool:show_status",
    "sweep": "evaluation:show_sweep",
    "template": "preview:show_template",
    "topics": "learned:show_topics",
    "train-all": "jobs:show_parts",
    "train-calibration": "calibration:show_fine_tuning",
    "train-calibration-cost": "calibration:show_fine_tuning_cost",
    "train-datamodel": "checks:show_datamodel",
    "train-fixed": "curate:show_fixed",
    "train-ranker": "learned:show_ranker",
    "train-ranker-seeds": "learned:show_ranker_seeds",
    "train-rows": "checks:show_asked",
    "train-sources": "learned:show_training",
    "train-topics": "learned:show_topic_training",
    "tuning": "curate:show_tuning",
    "verification": "checks:show_verified",
    "version-detail": "decisions:show_version",
    "version-restored": "decisions:show_restored",
    "versions": "decisions:show_versions",
    "vote-tuning": "learned:show_tuned",
    "watch": "watch:show_watch",
}
"""Module and function by the kind of a result, or of a list; what prints nothing else is not loaded."""


def show(kind: str, result: Any, *more: Any) -> None:
    """Print a result of this kind for people; ``more`` says how, if its function asks."""
    module, name = SHOWN[kind].split(":")
    getattr(import_module(f"{__name__}.{module}"), name)(result, *more)
