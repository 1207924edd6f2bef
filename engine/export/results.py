"""The result of an export: the object of ``export --json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.contract import Reported, from_json


@dataclass(frozen=True, slots=True)
class ExportReport(Reported):
    """A file or folder and its manifest. ``exported``: rows by split. ``written``: the manifest as written. It is a
    file format that other tools read, so it stays plain data; None in a dry run. ``counts`` and ``warnings`` are those
    of a fine-tuning set (`FineTuningSet`)."""

    kind = "export"
    out: str
    manifest: str
    format: str
    exported: Mapping[str, int]
    written: Mapping[str, Any] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The ``export --json`` contract: the paths, and the keys of the manifest that are known."""
        fields: Mapping[str, Any]
        if self.written is None:
            counts = {"exported": dict(self.exported), **self.counts}
            fields = {"dry_run": True, "format": self.format, "counts": counts}
            fields |= {"warnings": list(self.warnings)} if self.counts else {}
        else:
            fields = {key: value for key, value in self.written.items() if key != "schema_version"}
        return {"kind": self.kind, "out": self.out, "manifest": self.manifest, **fields}

    @classmethod
    def from_json(cls, data: Any) -> ExportReport:
        """From the output of `as_json`. Raises `ValueError` for anything else."""
        if not isinstance(data, Mapping) or not isinstance(data.get("counts"), Mapping):
            raise ValueError("this is no export")
        counts = dict(data["counts"])
        own = {"exported": counts.pop("exported", None), "counts": counts, "written": None}
        if not data.get("dry_run"):
            own["written"] = {key: data[key] for key in data if key not in ("kind", "out", "manifest")}
        return from_json(cls, {**data, **own})
