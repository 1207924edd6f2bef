"""Which shards are finished: a line each, written by the driver alone, for the next driver."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from ..base.files import private_folder
from .shard import Summary


class Manifest:
    """Summaries by the name of a shard's output, in an append-only file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _read(path)

    def get(self, name: str) -> Summary | None:
        return self._known.get(name)

    def record(self, name: str, summary: Summary) -> None:
        """Append a line; it is complete or, after a kill in between, ignored."""
        private_folder(self._path.parent)
        line = json.dumps({"shard": name, **asdict(summary)}).encode() + b"\n"
        with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
            file.write(line)
        self._known[name] = summary

    def remove(self) -> None:
        """The stage is finished."""
        self._path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Summary]:
    known = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        try:
            row = json.loads(line)
            known[row.pop("shard")] = Summary(**row)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # cut off by a kill
    return known
