"""The result of an export: the object of ``export --json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import contract


@dataclass(frozen=True, slots=True)
class ExportReport:
    """A file or folder and its manifest. ``exported``: rows by split. ``written``: the manifest as written. It is a
    file format that other tools read, so it stays plain data; None in a dry run."""

    out: str
    manifest: str
    format: str
    exported: Mapping[str, int]
    written: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The ``export --json`` contract: the paths, and the keys of the manifest that are known."""
        known: Mapping[str, Any]
        if self.written is None:
            known = {"dry_run": True, "format": self.format, "counts": {"exported": dict(self.exported)}}
        else:
            known = {key: value for key, value in self.written.items() if key != "schema_version"}
        return {"out": self.out, "manifest": self.manifest, **known}

    @classmethod
    def from_json(cls, data: Any) -> ExportReport:
        """From the output of `as_json`. Raises `ValueError` for anything else."""
        found = contract.from_json(_ExportJson, data)
        written = None if found.dry_run else {key: data[key] for key in data if key not in ("out", "manifest")}
        return cls(found.out, found.manifest, found.format, found.counts.exported, written)


@dataclass(frozen=True, slots=True)
class _ExportCounts:
    exported: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _ExportJson:
    out: str
    manifest: str
    format: str
    counts: _ExportCounts
    dry_run: bool = False
