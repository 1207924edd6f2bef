"""When failed requests are tried again, and what is said meanwhile."""

from __future__ import annotations

from collections import deque

import pytest
from icl_curate.engine.http.refusals import Failure
from icl_curate.engine.llm import pace
from icl_curate.engine.llm.types import LLMSettings, Request
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query


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


def test_why_calls_fail_is_told_once_for_each_kind() -> None:
    notes: deque[str] = deque()
    rules = pace.Retries(LLMSettings(attempts=1), "stub", notes)
    request = Request(Prompt((Message("user", "x"),), Query("x"), (), ()))
    for kind, message in (("transient", "HTTP 500: on fire"), ("transient", "HTTP 502"), ("timeout", "no reply")):
        failure = Failure(kind, message)  # type: ignore[arg-type]
        rules.sort([((b"key", request), failure)], pace.Attempts(count=1))
    assert list(notes) == ["failed: stub: HTTP 500: on fire", "failed: stub: no reply"]
