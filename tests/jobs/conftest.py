"""A pool for the tests of jobs, of which none outlives its test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from factories.jobs_world import leave_nothing_running, make_pool
from icl_curate.engine.store.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = make_pool(tmp_path)
    yield made
    leave_nothing_running(made)
