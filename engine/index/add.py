"""One demonstration at a time, from a running process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ..disk import private
from ..errors import UsageError
from ..retrieval.served import Access
from ..settings import Settings
from ..store.demonstrations import encoder_of
from ..store.locks import exclusive
from ..store.workspace import Workspace
from .build import IndexPlan, index_pool

FILE = "added.jsonl"
"""The file in a workspace that holds what was added; `index` reads it again like any other."""


def add_demonstration(workspace: Workspace, settings: Settings, record: Mapping[str, Any]) -> None:
    """Index ``record`` as one more row of `FILE`, with a vector if the other rows have one.

    Raises `UsageError` for a record that `index_pool` would skip, and changes nothing then.
    """
    path = workspace.path / FILE
    line = json.dumps(record, ensure_ascii=False) + "\n"
    plan = IndexPlan(
        paths=(str(path),),
        strict=True,
        near_duplicate=settings.near_duplicate,
        encoder=encoder_of(workspace),
        device=settings.device,
        full_precision=settings.full_precision,
        passages=settings.passages,
        access=Access.of(settings),
    )
    with exclusive(workspace.path / "tmp" / "add.lock"):
        with open(path, "ab", opener=private) as file:
            before = file.tell()
            file.write(line.encode())
        try:
            index_pool(workspace, plan)
        except BaseException as error:
            os.truncate(path, before)
            if isinstance(error, UsageError):
                raise UsageError(f"the demonstration was not added: {error.what}", "correct its fields") from error
            raise
