"""What tests of the store share."""

from __future__ import annotations

import pytest
from factories.copies import MAKE
from icl_curate.engine.store import workspace


@pytest.fixture(autouse=True)
def _made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each workspace is made as by a user, not copied."""
    monkeypatch.setattr(workspace, "_make", MAKE)
