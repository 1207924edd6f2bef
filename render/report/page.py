"""The report as a document: sentences, tables and pictures, the same for HTML and Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import accuracy, again, cost, curations, pool, removed, summary
from .document import ReportPage, Section

if TYPE_CHECKING:
    from ...engine.report.results import PoolReport


def document(found: PoolReport) -> ReportPage:
    """The report in sections; a section without anything says so."""
    counts = found.counts
    return ReportPage(
        found.title,
        f"The pool of {found.workspace} as of {found.made_at} UTC, by icl-curate "
        f"{found.reproduction.versions.get('icl-curate', '')}".strip(),
        (
            Section("summary", "In short", tuple(summary.blocks(found))),
            Section("pool", "The pool", (pool.counts(found),)),
            Section("accuracy", "Accuracy", tuple(accuracy.blocks(found))),
            *([Section("curate", "What curate did", tuple(curations.blocks(found)))] if found.curations else ()),
            Section("removed", "What was taken out, and why", tuple(removed.blocks(found))),
            Section("corrected", "Corrected outputs", tuple(removed.corrected(found))),
            Section("sources", "Sources", tuple(pool.sources(found))),
            *([Section("labels", "Labels", (pool.labels(found),))] if found.labels and counts.task == "labels" else ()),
            Section("topics", "Topics and gaps", tuple(pool.topics(found))),
            Section("cost", "What it cost", tuple(cost.blocks(found.costs, counts.encoder))),
            Section("again", "How to do it again", tuple(again.blocks(found.reproduction))),
        ),
    )
