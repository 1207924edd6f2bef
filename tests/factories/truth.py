"""The truth about the sample pool, row by row."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from factories.commands import SAMPLE


@cache
def true_outputs() -> dict[str, str]:
    """The right output of each demonstration, by id; none fits those off topic: "None"."""
    return {row["id"]: str(row["true"]) for row in _rows()}


@cache
def is_wrong() -> dict[str, bool]:
    """Whether each demonstration has a wrong output, by id."""
    return {row["id"]: not row["correct"] for row in _rows()}


def _rows() -> list[dict[str, Any]]:
    lines = (SAMPLE / "support" / "truth_rows.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
