"""Screens are driven by keys, each waited for until all that follows from it is drawn."""

from __future__ import annotations

import pytest
from factories.waiting import use_own_waits


@pytest.fixture(autouse=True)
def _own_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    use_own_waits(monkeypatch.setattr)
