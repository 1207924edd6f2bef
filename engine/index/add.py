"""One demonstration at a time, from a running process."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.errors import UsageError
from ..base.files import private
from ..retrieval.served import Access
from ..store.demonstrations import encoder_of
from ..store.locks import exclusive
from ..store.settings import Settings
from ..store.workspace import Workspace
from .build import IndexPlan, index_pool

FILE = "added.jsonl"
"""The first of the files in a workspace that hold what was added; `index` reads them again like any other."""
LARGEST = 1 << 18
"""Bytes of a file from which another one is begun: each addition reads its file again."""


def add_demonstration(workspace: Workspace, settings: Settings, record: Mapping[str, Any]) -> None:
    """Index ``record`` as one more row, with a vector if the other rows have one. Without an id it gets one.

    Raises `UsageError` for a record that `index_pool` would skip, and changes nothing then.
    """
    line = json.dumps({"id": uuid.uuid4().hex[:16], **record}, ensure_ascii=False) + "\n"
    encoder = encoder_of(workspace)
    with exclusive(workspace.path / "tmp" / "add.lock"):
        path = _latest(workspace.path)
        plan = IndexPlan(
            paths=(str(path),),
            strict=True,
            near_duplicate=settings.near_duplicate,
            encoder=encoder,
            device=settings.device,
            full_precision=settings.full_precision,
            passages=settings.passages,
            access=Access.of(settings),
        )
        with open(path, "ab", opener=private) as file:
            before = file.tell()
            file.write(line.encode())
        try:
            index_pool(workspace, plan)
        except BaseException as error:
            os.truncate(path, before)
            if not before:
                path.unlink()
            if isinstance(error, UsageError):
                raise UsageError(f"the demonstration was not added: {error.what}", "correct its fields") from error
            raise


def _latest(folder: Path) -> Path:
    """The file to add to."""
    path, number = folder / FILE, 1
    while path.exists() and path.stat().st_size >= LARGEST:
        number += 1
        path = path.with_name(f"{Path(FILE).stem}-{number}.jsonl")
    return path
