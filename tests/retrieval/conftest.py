"""Tests of vectors compute them."""

from __future__ import annotations

import pytest
from factories.vectors import compute_vectors


@pytest.fixture(autouse=True)
def _vectors_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    compute_vectors(monkeypatch.setattr)
