"""Screens are driven by keys, each waited for until all that follows from it is drawn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from factories.drawing import draw_at_rest_only
from factories.patience import PATIENCE
from factories.styles import keep_rules
from factories.waiting import use_own_waits
from icl_curate.tui import decisions


@pytest.fixture(autouse=True)
def _own_waits_and_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    use_own_waits(monkeypatch.setattr)
    draw_at_rest_only(monkeypatch.setattr)


@pytest.fixture(autouse=True)
def _keys_wait_for_every_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "HELD", PATIENCE)  # on a busy machine it is looked at for longer than two seconds


@pytest.fixture(autouse=True, scope="session")
def _rules_kept() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        keep_rules(patch.setattr)
        yield
