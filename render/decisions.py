"""Decisions in words: what one does to the active pool. For commands and tabs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from .pool import names_of
from .terminal import say

if TYPE_CHECKING:
    from ..engine.store.decisions import Change

MOST_NAMES, MOST_LOSSES = 12, 3


def show_change(change: Change) -> None:
    """A decision that was made, or would be, and how to undo it."""
    names = names_of(change.targets, 5)
    what = "undo of decision" if change.action == "undo" else change.action
    if "relabel" not in what and what != "undo of decision":
        what += f" {change.scope}"
    say(f"{what} {names}: {left(change)}")
    for line in effect_lines(change):
        say(line)
    if not change.dry_run and change.action != "undo":
        say("undo with: icl-curate undo")


def left(change: Change) -> str:
    """Active demonstrations after and before."""
    verb = "would leave" if change.dry_run else "leaves"
    return f"{verb} {change.active_after:,} active of {change.active_before:,} before"


def rows_line(change: Change) -> str:
    """Active demonstrations before and after."""
    return f"active: {change.active_before:,} → {counted(change.active_after, 'demonstration')}"


def effect_lines(change: Change) -> list[str]:
    """The sources and labels that come or go, and the labels that lose most of their rows; none if nothing of that
    happens."""
    effects = change.effects
    named = {
        "sources gone": effects.sources_gone,
        "labels gone": effects.labels_gone,
        "sources added": effects.sources_added,
        "labels added": effects.labels_added,
    }
    lines = [f"{what}: {names_of(names, MOST_NAMES)}" for what, names in named.items() if names]
    if losses := effects.label_losses:
        shown = [f"{one.label} {one.before:,} → {one.after:,}" for one in losses]
        lines.append(f"labels left with half or less: {names_of(shown, MOST_LOSSES)}")
    return lines
