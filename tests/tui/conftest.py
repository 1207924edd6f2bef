"""Screens are driven by keys, each waited for until all that follows from it is drawn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from factories.drawing import draw_at_rest_only
from factories.patience import PATIENCE
from factories.styles import keep_rules
from factories.waiting import use_own_waits
from icl_curate.tui import decisions
from icl_curate.tui.app import ReviewApp


@pytest.fixture(autouse=True)
def _own_waits_and_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    use_own_waits(monkeypatch.setattr)
    draw_at_rest_only(monkeypatch.setattr)


@pytest.fixture(autouse=True)
def _keys_wait_for_every_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "HELD", PATIENCE)  # on a busy machine it is looked at for longer than two seconds


@pytest.fixture
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a command a process imports all that another may need: three seconds of a processor, after which these
    sessions end. Where a session goes on it waits: `test_standby.py`, `test_session.py`."""
    monkeypatch.setattr(ReviewApp, "stand_by", lambda self: None)


@pytest.fixture(autouse=True, scope="session")
def _rules_kept() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        keep_rules(patch.setattr)
        yield
