"""When failed requests are tried again, and what is said meanwhile."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from icl_curate.engine.http.refusals import Failure
from icl_curate.engine.llm import pace
from icl_curate.engine.llm.types import Answer, LLMSettings, Request
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
    longest = Failure("rate_limit", "HTTP 429", 3600.0)  # the error says it
    assert rules.sort([((b"key", request), longest)], pace.Attempts(count=1)).error and len(notes) == 2


REQUEST = Request(Prompt((Message("user", "x"),), Query("x"), (), ()))
LIMITED = Failure("rate_limit", "HTTP 429", status=429)
BUSY, AWAY, BROKEN = (Failure("transient", f"HTTP {status}", status=status) for status in (503, 502, 500))
REFUSED = Failure("transient", "connection refused", unreachable=True)


def test_what_is_not_the_prompts_fault_uses_up_no_attempts_while_the_server_may_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(pace.time, "monotonic", lambda: now)
    rules = pace.Retries(LLMSettings(attempts=6), "stub", notes := deque())

    def again(failure: Failure, tried: pace.Attempts) -> bool:
        return bool(rules.sort([((b"key", REQUEST), failure)], tried).again)

    for failure in (LIMITED, BUSY, AWAY, REFUSED):
        assert again(failure, pace.Attempts(count=6)), failure  # a limit of a minute, or a restart
    assert not again(BROKEN, pace.Attempts(count=6))
    assert [note for note in notes if "sent again" in note] == [
        "stub turned a prompt away, which is sent again for longer: HTTP 429"
    ]
    now += pace.AT_FIRST
    assert not again(LIMITED, pace.Attempts(count=6))
    rules.answered(now, now)
    now += pace.SILENCE - 40.0
    assert again(LIMITED, pace.Attempts(count=20)) and again(AWAY, pace.Attempts(count=20))
    early = pace.Attempts(count=20, started=now - 100.0)
    assert again(AWAY, early)
    now += 1.0
    rules.answered(now, now - 1.5)  # of one that ends, and takes no more
    assert again(AWAY, early)
    rules.answered(now, now - 0.5)  # of another prompt: the server is back
    assert not again(AWAY, early) and not again(REFUSED, early)
    assert again(LIMITED, early) and again(BUSY, early)  # it takes some
    now += LLMSettings().max_wait
    rules.answered(now, now)
    assert not again(LIMITED, early)
    once = pace.Retries(LLMSettings(attempts=1), "stub", notes)
    assert not once.sort([((b"key", REQUEST), LIMITED)], pace.Attempts(count=1)).again


def test_a_server_is_given_up_after_twenty_prompts_in_a_row_that_it_turned_away() -> None:
    silent, away, limited = pace.NoAnswers(), replace(AWAY, attempts=6), replace(LIMITED, attempts=6)
    assert not any(silent.lost(away, "stub") for _ in range(pace.NO_ANSWERS - 1))
    assert silent.given_up(Answer("x"), "stub", 0.0) is None
    for other in (Failure("context", "too long"), replace(BROKEN, attempts=6), LIMITED):
        assert not any(silent.lost(other, "stub") for _ in range(2 * pace.NO_ANSWERS))
    assert not any(silent.lost(limited, "stub") for _ in range(pace.NO_ANSWERS - 1))
    error = silent.lost(away, "stub")
    assert error and "20 prompts in a row failed: HTTP 502" in error.what and error.fix
    for told in (limited, replace(limited, retry_after=2.0)):  # what is said of a pause has not named one
        error = silent.lost(told, "stub")
        assert error and error.fix.startswith("wait, ") and error.fix.endswith(pace.AGAIN)


def test_a_server_that_only_fails_is_given_up_over_many_small_runs_but_not_one_that_has_answered() -> None:
    broken, silent = replace(BROKEN, attempts=6), pace.NoAnswers()
    for _ in range(pace.NO_ANSWERS - 1):
        silent.begin(some_known=False)
        assert silent.lost(broken, "stub") is None
    silent.begin(some_known=True)  # these prompts may be the ones that it cannot answer
    assert not any(silent.lost(broken, "stub") for _ in range(2 * pace.NO_ANSWERS))
    silent.begin(some_known=False)
    error = silent.lost(broken, "stub")
    assert error and "20 prompts in a row failed" in error.what and "server's log" in error.fix
