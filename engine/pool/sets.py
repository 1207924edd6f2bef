"""Sets of labels: how an output that is any number of labels is written, and which labels it has.

A set is its labels in the order of its row, with commas between them; the empty set is "none". Where a label holds a
separator itself, the set is a JSON list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from .records import TaskKind

MOST_LABELS, ROWS_A_LABEL, LABEL_LENGTH = 300, 5, 60
"""Limits of a closed set of labels: number of labels, mean rows per label, characters per label."""

NONE = "none"
"""The empty set as it is written; a label of this name is no member of a set."""

_SEPARATOR = re.compile(r"[\n;,]")


def set_text(labels: Iterable[str]) -> str:
    """The set as an output."""
    members = tuple(label for label in dict.fromkeys(labels) if label.lower() != NONE)
    text = ", ".join(members) or NONE
    return text if members_of(text) == members else json.dumps(members, ensure_ascii=False)


def members_of(output: str) -> tuple[str, ...]:
    """The labels of a set, the inverse of `set_text`."""
    if output.startswith("["):
        try:
            value = json.loads(output)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, list) and all(isinstance(label, str) for label in value):
            return tuple(dict.fromkeys(value))
    parts = (part.strip() for part in _SEPARATOR.split(output))
    return tuple(dict.fromkeys(part for part in parts if part and part.lower() != NONE))


def labels_of(kind: TaskKind, outputs: Iterable[str]) -> tuple[str, ...]:
    """The closed set of labels that outputs are, or are sets of, sorted; empty for other kinds, and where sets have too
    many or too long ones to list in a prompt."""
    if kind == "labels":
        return tuple(sorted(set(outputs)))
    if kind != "sets":
        return ()
    members = sorted({label for output in outputs for label in members_of(output)})
    return tuple(members) if len(members) <= MOST_LABELS and max(map(len, members), default=0) <= LABEL_LENGTH else ()
