"""When failed requests are tried again, and what is said meanwhile."""

from __future__ import annotations

from collections import deque

import pytest
from icl_curate.engine.llm import pace
from icl_curate.engine.llm.types import LLMSettings


def test_a_long_pause_is_told_once_for_all_calls_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(pace.time, "monotonic", lambda: now)
    notes: deque[str] = deque()
    rules = pace.Retries(LLMSettings(), "stub", notes)
    rules._note_wait(pace.LONG_PAUSE - 0.1)
    assert not notes
    for _ in range(3):
        rules._note_wait(30.0)
    now += 29.9
    rules._note_wait(30.0)
    assert list(notes) == ["stub asks for a pause of 30 s"]
    now += 0.1
    rules._note_wait(60.0)
    assert len(notes) == 2
