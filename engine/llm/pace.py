"""How fast an LLM is asked: which failed requests are sent again and when, when a server is given up and what the user
can do about that, and how many calls are in flight: additive increase, multiplicative decrease.

Their number doubles until the server first says "too many requests", then grows by a twentieth for each round without
failures that used every slot. Signs of load reduce it (429, 503, a timeout), once per episode: the other calls in
flight at that time carry no new information. Any other 5xx stops growth without a reduction, because a broken server
does not indicate load, and nor does one that answers nobody. An answer that took over half of the time it has does not
count for growth: twice as many at once could take all of it.

Most limits are per minute, and a restart takes a minute or more, while six attempts end after some ten seconds. So a
request that a busy server turned away, or that found none since, is sent for as long as it may come back (`AT_FIRST`,
`SILENCE`), whatever its number of attempts.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..base.errors import LLMError, counted
from ..http.address import VENDORS
from ..http.refusals import explained, pause
from .marks import AGAIN
from .spec import probe_command
from .types import Answer, Failure, LLMSettings, Request, Result

FIXES = {
    "timeout": f"lower --concurrency, or raise the timeout (ICL_CURATE_TIMEOUT=SECONDS), then {AGAIN}",
    "wait": f"wait, then {AGAIN}",
    "unreachable": f"start the server or correct --base-url, then {AGAIN}",
    "transient": f"look into the server's log, then {AGAIN}",
    "quota": "add credit to the account, or choose another LLM with --llm",
    "not_found": "check the model name, and that --base-url ends in /v1 if the server needs it",
    "redirect": "to use that server, give it with --base-url URL",
    "malformed": "check that --base-url is that of the API, which mostly ends in /v1, and the server's log",
    "capability": "choose another LLM with --llm",
    "setting": "correct it, or leave it out (icl-curate config says where it is set)",
    "rate_limit": f"wait, or lower --concurrency, then {AGAIN}",
    "context": "use fewer demonstrations (-k) or a model with a longer context",
    "raised": "correct the program",
    "missing": "give a recording of these prompts (icl-curate llm record FILE --llm SPEC), or an LLM with --llm",
}


def explain(failure: Failure, llm: str) -> LLMError:
    """The error for a failure that ends the work, with its fix."""
    return explained(failure, llm, FIXES | {"auth": key_fix(llm)})


def key_fix(llm: str) -> str:
    """How an LLM gets its key, by the prefix of its spec."""
    vendor = llm.partition(":")[0]
    key = VENDORS[vendor if vendor in VENDORS else "openai"].key
    if os.environ.get(key):
        return f"{key} is set, and refused: export one that this server knows"
    fix = f"export {key}=…"
    return fix if vendor in VENDORS and vendor != "openai" else f"{fix} or use your own server with --base-url URL"


Job = tuple[bytes, Request]
"""A request and its key in the call cache."""

MALFORMED_ATTEMPTS = 2
"""Malformed answers may have been charged, so a request gets fewer attempts after them: one more, for a glitch."""

NO_ANSWERS = 20
"""Paid replies in a row, none of them an answer, after which nothing more is sent."""

RAISED = 10
"""The same for runs of a program that fail: an error is seldom a glitch."""

AT_FIRST = 90.0
"""Seconds from the start of a run for which a server may turn every request away."""

SILENCE = 300.0
"""The same since its latest answer."""

LONG_PAUSE = 5.0
"""Pauses requested by a server are reported to the user from this many seconds on."""


@dataclass(slots=True)
class SortedFailures:
    """The failures of one attempt: final ones, requests to retry in ``delay`` seconds, and an error that affects all
    further requests."""

    settled: list[tuple[bytes, Failure]] = field(default_factory=list)
    again: list[Job] = field(default_factory=list)
    delay: float = 0.0
    error: LLMError | None = None


@dataclass(slots=True)
class Attempts:
    """The attempts of one batch so far."""

    started: float = field(default_factory=time.monotonic)
    count: int = 0
    failed: float = math.inf
    """When the first one failed."""
    malformed: Counter[bytes] = field(default_factory=Counter)


class Retries:
    """The retry rules of one run against the LLM called ``llm``. ``notes`` collects messages to the user."""

    def __init__(self, settings: LLMSettings, llm: str, notes: deque[str]) -> None:
        self._settings, self._llm, self._notes = settings, llm, notes
        self._noted_until = 0.0
        self._began = time.monotonic()
        self.answered_at = self.there_at = -math.inf
        """When the latest answer came, and when the latest request was sent that got one."""
        self._told = {"missing"}
        """Kinds of failures of which one was told, or that are told together."""

    def answered(self, now: float, sent_at: float) -> None:
        self.answered_at, self.there_at = now, max(self.there_at, sent_at)

    def sort(self, failed: Sequence[tuple[Job, Failure]], attempts: Attempts) -> SortedFailures:
        """Sort the requests that failed at the latest of ``attempts``."""
        failures = SortedFailures()
        if failed:
            attempts.failed = min(attempts.failed, time.monotonic())
        for (key, request), failure in failed:
            asked_to_wait = failure.retry_after or 0.0 if failure.retryable else 0.0
            if failure.fatal or asked_to_wait > self._settings.max_wait:
                failures.error = failures.error or explain(failure, self._llm)
            attempts.malformed[key] += failure.kind == "malformed"
            wait = self._wait(failure, attempts, attempts.malformed[key])
            if wait is None:
                failures.settled.append((key, failure))
                if failure.kind not in self._told and failures.error is None:
                    self._told.add(failure.kind)
                    self._notes.append(f"failed: {self._llm}: {failure.message}")
            else:
                failures.again.append((key, request))
                failures.delay = max(failures.delay, wait)
                self._note_wait(asked_to_wait)
                if attempts.count == self._settings.attempts and "again" not in self._told:
                    self._told.add("again")
                    told = "turned a prompt away, which is sent again for longer"
                    self._notes.append(f"{self._llm} {told}: {failure.message}")
        missing = [failure.message for _, failure in failed if failure.kind == "missing"]
        if missing:  # a recording is asked for all prompts at once
            self._notes.append(f"failed: {counted(len(missing), 'prompt')} without a recorded answer; {missing[0]}")
        return failures

    def _wait(self, failure: Failure, attempts: Attempts, malformed: int) -> float | None:
        """Seconds until the request should be retried; None if its failure is final."""
        if not failure.retryable or malformed >= MALFORMED_ATTEMPTS:
            return None
        wait = pause(attempts.count, failure.retry_after)
        again = time.monotonic() + wait
        if attempts.count >= self._settings.attempts and again > self._until(failure, attempts):
            return None
        return wait if again - attempts.started <= self._settings.max_wait else None

    def _until(self, failure: Failure, attempts: Attempts) -> float:
        """Until when a request is sent again, however often it was: its failure says nothing of it."""
        if self._settings.attempts == 1:
            return -math.inf
        if failure.busy or (failure.gone and self.there_at < attempts.failed):
            return max(self._began + AT_FIRST, self.answered_at + SILENCE)
        return -math.inf

    def _note_wait(self, seconds: float) -> None:
        """Report once for all calls that wait at the same time."""
        now = time.monotonic()
        if seconds >= LONG_PAUSE and now >= self._noted_until:
            self._noted_until = now + seconds
            self._notes.append(f"{self._llm} asks for a pause of {seconds:,.0f} s")


class NoAnswers:
    """Tells from the results in a row without an answer when a server is given up, where a glitch is not enough: it is
    dead (so many calls without any reply, over some seconds), it turns all away (so many prompts that failed), or it
    charges for replies that are none (so many of them). A prompt's own refusal is no such sign: an answer between them
    begins anew."""

    def __init__(self, free: bool = False) -> None:
        """``free``: its replies cost nothing, so that empty ones may go on."""
        self._free = free
        self._replies: Counter[str] = Counter()
        self._lost = 0
        self.begin(False)

    def begin(self, some_known: bool) -> None:
        """A new run: what its server did not reply to earlier ones no longer counts. ``some_known``: the cache has some
        of the answers."""
        self._silent = 0
        self._since = 0.0
        self._answered, self._known = False, some_known

    def lost(self, failure: Failure, llm: str) -> LLMError | None:
        """Count one more prompt that is not tried again; the error if the server must be given up."""
        none_yet = not (self._answered or self._known)  # else a 500 may be due to these prompts
        away = failure.busy or failure.gone or (failure.kind == "transient" and none_yet)
        self._lost += failure.attempts > 1 and away
        if self._lost < NO_ANSWERS:
            return None
        what = f"{llm} gives no answers: {self._lost:,} prompts in a row failed: {failure.message}"
        return LLMError(what, explain(failure, llm).fix)

    def given_up(self, result: Result, llm: str, now: float) -> LLMError | None:
        """Count one more result; the error if the server must be given up."""
        if isinstance(result, Answer):
            self._silent, self._lost, self._answered = 0, 0, True
            if result.text.strip() or self._free:
                self._replies.clear()
                return None
            kind, message = "empty", f"the text is empty (finish: {result.finish}, {result.tokens_out:,} tokens)"
        elif result.unreachable or result.kind == "timeout":
            return explain(result, llm) if self._is_dead(now) else None
        else:
            kind, message = result.kind, result.message
        self._silent = 0
        if isinstance(result, Answer) or result.paid:
            self._replies[kind] += 1
        if self._replies.total() < NO_ANSWERS and self._replies["raised"] < RAISED:
            return None
        told = ", ".join(f"{count:,} {_REPLIES.get(kind, kind)}" for kind, count in self._replies.items())
        paid = self._replies.total()
        self._replies.clear()
        return LLMError(
            f"{llm} gives no answers: {told} of {paid:,} replies in a row, which may all be charged: {message}",
            f"{probe_command(llm.split(' at ')[0])}; answers are kept",
        )

    def _is_dead(self, now: float) -> bool:
        """Count one more call without any reply."""
        if self._silent == 0:
            self._since = now
        self._silent += 1
        calls_needed, seconds = (20, 10.0) if self._answered else (5, 2.0)
        return self._silent >= calls_needed and now - self._since >= seconds


_REPLIES = {
    "refusal": "refused", "malformed": "unusable", "context": "to a prompt that was cut", "raised": "failed",
}  # fmt: skip
"""What paid replies without an answer are called."""


START = 8
CUT = 0.8
EPISODE = 10.0
"""Seconds after a reduction during which further 429s belong to the same episode."""


class Limiter:
    """Plain arithmetic over times given by the caller (seconds of any monotonic clock); holds no lock, never waits."""

    def __init__(self, ceiling: int, start: int = START) -> None:
        self.ceiling = max(ceiling, 1)
        self.limit = min(max(start, 1), self.ceiling)
        self.history: list[tuple[float, int]] = []
        self._slow_start = True
        self._clean = 0
        self._cut_at = float("-inf")
        self._until = float("-inf")

    def answered(self, now: float, *, saturated: bool) -> None:
        """A call succeeded; ``saturated``: every slot was in use meanwhile."""
        if not saturated or self.limit >= self.ceiling:
            return
        self._clean += 1
        if self._clean >= self.limit:
            self._clean = 0
            grown = self.limit * 2 if self._slow_start else self.limit + max(1, self.limit // 20)
            self._set(now, min(grown, self.ceiling))

    def refused(self, now: float, sent_at: float, retry_after: float | None) -> None:
        """A sign of load, for a call sent at ``sent_at``."""
        self._clean = 0
        self._slow_start = False
        if sent_at <= self._cut_at or now < self._until:
            return
        self._cut_at = now
        self._until = now + max(EPISODE, min(retry_after or 0.0, 6 * EPISODE))
        self._set(now, max(1, int(self.limit * CUT)))

    def failed(self) -> None:
        """Another 5xx or a broken connection: the round has a failure."""
        self._clean = 0

    def _set(self, now: float, limit: int) -> None:
        if limit != self.limit:
            self.limit = limit
            self.history.append((now, limit))
