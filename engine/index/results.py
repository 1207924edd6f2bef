"""The result of an index run: the object of ``index --json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.contract import Reported, from_json
from .understood import Understood


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that could not be used."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class IndexReport(Reported):
    """The state of the workspace and what this run changed; counts are rows. ``duplicates``: by kind. A dry run does
    not search for duplicates and leaks: None. ``warnings``: what may have been misread, a line each."""

    kind = "index"
    demonstrations: int
    sources: int
    validation: int
    test: int
    skipped: tuple[Skipped, ...]
    duplicates: Mapping[str, int] | None
    leaking: tuple[str, ...] | None
    added: int
    retired: int
    revived: int
    unchanged_files: int
    task: str
    encoded: int
    encoder: str | None
    dry_run: bool = False
    warnings: tuple[str, ...] = ()
    readings: tuple[Understood, ...] = ()
    """How the files that were read were understood, the first of each kind."""

    def as_json(self) -> dict[str, Any]:
        """The ``index --json`` contract; ``duplicates`` and ``leaks`` are counts, with the details in other keys."""
        return Reported.as_json(self) | {
            "duplicates": None if self.duplicates is None else sum(self.duplicates.values()),
            "duplicates_by_kind": self.duplicates,
            "leaks": None if self.leaking is None else len(self.leaking),
        }

    @classmethod
    def from_json(cls, data: Any) -> IndexReport:
        """From the output of `as_json`. Raises `ValueError` for anything else."""
        if not isinstance(data, Mapping):
            raise ValueError("IndexReport is not an object")
        return from_json(cls, {**data, "duplicates": data.get("duplicates_by_kind")})
