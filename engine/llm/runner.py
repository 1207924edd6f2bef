"""The one door to the chosen LLM: cache, budget, concurrency, retries, and an account of every request.

`plan` says what a list of requests would cost, `ask` answers it. Both look the whole list up in the cache first, in
one join. An answer is committed before its place among the calls in flight is given on, so a process killed at any
moment has at most the calls in flight to pay again; running it again is the resume.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ..errors import BudgetError, Cancelled, LLMError, WorkspaceError
from ..progress import CancelToken, Event, Report, silent
from ..store import calls
from ..store.workspace import Workspace
from . import cache, loop
from .budget import FREE, SPREAD, Budget, Price, Reservation
from .failures import explain, pause
from .limiter import Limiter
from .settings import DEFAULTS, LLMSettings
from .types import Adopts, Answer, Backend, Capabilities, Failure, Request, Result, Streams
from .writer import Writer, room

T = TypeVar("T")

TASK = "ask"
TICK = 0.1
"""Seconds between two looks at the cancel token and two progress events."""

WORTH_SAYING = 5.0
"""Seconds that a server asks to wait from which on the user is told."""

MALFORMED_ATTEMPTS = 3
"""A malformed answer may have been charged; a server that sends nothing else is not asked six times."""

UNSEEN = Capabilities(logprobs=False, scoring=False)
"""Of an LLM that was never probed."""

_limiters: weakref.WeakKeyDictionary[Any, Limiter] = weakref.WeakKeyDictionary()
_probed: weakref.WeakKeyDictionary[Any, Capabilities] = weakref.WeakKeyDictionary()


# what it would cost


@dataclass(frozen=True, slots=True)
class Plan:
    """What `ask` would do with a list of requests.

    ``distinct`` of the ``requests`` differ; ``cached`` of these are answered, ``to_ask`` are left. The token
    counts and the ``cost`` in US dollars are ranges (low, high) for those left; the cost is None where the price
    is not known. A local model counts its prompt tokens exactly and costs nothing.
    """

    requests: int
    distinct: int
    cached: int
    to_ask: int
    tokens_in: tuple[int, int]
    tokens_out: tuple[int, int]
    cost: tuple[float, float] | None


def plan(workspace: Workspace, backend: Backend, requests: Sequence[Request], price: Price | None = None) -> Plan:
    """Count without asking: no call is made, not even a probe."""
    _adopt_stored(workspace, backend)
    by_key = _distinct(backend, requests)
    known = calls.lookup(workspace, by_key)
    left = [request for key, request in by_key.items() if key not in known]
    tokens = [_expected_tokens(backend, request) for request in left]
    low_in, high_in, high_out = (sum(column) for column in zip(*tokens, strict=True)) if tokens else (0, 0, 0)
    low_out = sum(not request.score for request in left)
    if backend.local:
        price = FREE
    cost = (price.cost(low_in, low_out), price.cost(high_in, high_out)) if price else None
    return Plan(
        requests=len(requests),
        distinct=len(by_key),
        cached=len(known),
        to_ask=len(left),
        tokens_in=(low_in, high_in),
        tokens_out=(low_out, high_out),
        cost=cost,
    )


def _distinct(backend: Backend, requests: Iterable[Request]) -> dict[bytes, Request]:
    identity = backend.identity()
    return {cache.call_key(identity, request): request for request in requests}


def _expected_tokens(backend: Backend, request: Request) -> tuple[int, int, int]:
    """Tokens in (low, high) and out (high) of one request."""
    count = backend.count_tokens(request.prompt)
    if request.score and not backend.local:
        count *= max(len(request.prompt.choices), 1)  # a server reads the whole prompt again for each choice
    low, high = (1.0, 1.0) if backend.local else SPREAD
    out = len(request.prompt.choices) if request.score else request.sampling.max_tokens
    return round(count * low), round(count * high), out


# what it can do


def probe(
    workspace: Workspace, backend: Backend, *, fresh: bool = False, cancel: CancelToken | None = None
) -> Capabilities:
    """What the LLM can do: as stored for this server and model, else found out now and stored.

    ``fresh`` asks again. A probe is about five tiny calls, outside any budget. Raises `LLMError` when the LLM
    cannot be reached, `Cancelled` on the token or on Ctrl-C.
    """
    if not fresh and (known := _adopt_stored(workspace, backend)) is not None:
        return known
    before = _stored(workspace, backend)
    loop.remember(backend)
    found = _wait(loop.submit(backend.probe()), cancel or CancelToken())
    text = cache.dump_capabilities(found)
    calls.save_capabilities(workspace, cache.canonical(backend.identity()), text)
    found = cache.load_capabilities(text)
    if before is not None and found.logprobs and not before.logprobs:
        # answers of the time before would hide that it gives log-probabilities now
        calls.forget(workspace, llm=cache.label(backend), only_without_logprobs=True)
    _probed[backend] = found
    return found


def capabilities(
    workspace: Workspace, backend: Backend, *, rehearse: bool, cancel: CancelToken | None = None
) -> Capabilities:
    """What to plan with: what `probe` finds out; in a rehearsal, which sends nothing, what an earlier probe found,
    and `UNSEEN` where there was none. The offline reader's probe asks nobody, so a rehearsal knows it too."""
    if not rehearse or backend.spec == "offline":
        return probe(workspace, backend, cancel=cancel)
    return _adopt_stored(workspace, backend) or UNSEEN


def known_answers(workspace: Workspace, backend: Backend, requests: Sequence[Request]) -> list[Answer | None]:
    """The cached answer of each request, None where there is none yet; nothing is asked."""
    _adopt_stored(workspace, backend)
    keys = [cache.call_key(backend.identity(), request) for request in requests]
    found = calls.lookup(workspace, dict.fromkeys(keys))
    return [cache.to_answer(found[key]) if key in found else None for key in keys]


def _adopt_stored(workspace: Workspace, backend: Backend) -> Capabilities | None:
    if (known := _probed.get(backend)) is not None:
        return known
    known = _stored(workspace, backend)
    if known is not None:
        if isinstance(backend, Adopts):
            backend.adopt(known)
        _probed[backend] = known
    return known


def _stored(workspace: Workspace, backend: Backend) -> Capabilities | None:
    text = calls.capabilities(workspace, cache.canonical(backend.identity()))
    return cache.load_capabilities(text) if text else None


def require(
    capabilities: Capabilities,
    llm: str,
    *,
    logprobs: bool = False,
    scoring: bool = False,
    instructs: bool = False,
    purpose: str = "this method",
) -> None:
    """Raise `LLMError` when ``purpose`` needs what ``llm`` was seen to lack; called before the first paid call."""
    lacks = [
        text
        for needed, has, text in (
            (logprobs, capabilities.logprobs, "log-probabilities of its answers"),
            (scoring, capabilities.scoring, "scores of given options"),
            (instructs, capabilities.instructs, "answers to free instructions"),
        )
        if needed and not has
    ]
    if lacks:
        raise LLMError(
            f"{purpose} needs {' and '.join(lacks)}, which {llm} does not give",
            "choose an LLM that does (hf:PATH gives all, vLLM gives log-probabilities), or probe this one again: "
            "icl-curate llm check --llm " + llm,
        )


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of `check`. ``latency``: seconds of the first tiny call, with connecting or loading;
    ``error`` and ``fix`` are empty when it is reachable."""

    llm: str
    reachable: bool
    latency: float | None = None
    capabilities: Capabilities | None = None
    price_known: bool = False
    error: str = ""
    fix: str = ""


def check(workspace: Workspace, backend: Backend, price: Price | None = None) -> Check:
    """Probe afresh and say how it went; does not raise for an LLM that cannot be reached."""
    priced = price is not None or backend.local
    start = time.monotonic()
    try:
        found = probe(workspace, backend, fresh=True)
    except LLMError as error:
        return Check(cache.label(backend), False, price_known=priced, error=error.what, fix=error.fix)
    latency = float(found.details.get("latency", time.monotonic() - start))
    return Check(cache.label(backend), True, latency, found, priced)


# asking


def ask(
    workspace: Workspace,
    backend: Backend,
    requests: Sequence[Request],
    settings: LLMSettings = DEFAULTS,
    budget: Budget | None = None,
    report: Report = silent,
    cancel: CancelToken | None = None,
) -> list[Result]:
    """Answer every request, in order: from the cache, else from the LLM, the same request once.

    A request that cannot be answered gives a `Failure` in its place; failures are recorded but never cached.
    Raises, after committing everything that was answered: `BudgetError` when the budget does not allow the next
    call, `LLMError` when no request can succeed (key, quota, model, a server that is gone), `Cancelled` on the
    token or on Ctrl-C, `WorkspaceError` when answers cannot be stored. Events (task "ask", in the caller's thread)
    carry cached, failed, in_flight and limit, and what the budget has seen so far: calls, tokens_in, tokens_out, cost.
    """
    budget = budget or Budget()
    cancel = cancel or CancelToken()
    cancel.check()
    identity = backend.identity()
    keys = [cache.call_key(identity, request) for request in requests]
    by_key = dict(zip(keys, requests, strict=True))
    results: dict[bytes, Result] = {key: cache.to_answer(call) for key, call in calls.lookup(workspace, by_key).items()}
    missing = [(key, request) for key, request in by_key.items() if key not in results]
    run = _Run(workspace, backend, settings, budget, missing)
    run.cached = len(results)
    if missing:
        if budget.max_calls is not None and budget.calls >= budget.max_calls:
            raise _over_budget(budget, len(missing))
        if (full := room(workspace)) is not None:
            raise full
        probe(workspace, backend, cancel=cancel)
        loop.remember(backend)
        _follow(run, report, cancel)
    else:
        run.tell(report)
    results.update(run.results)
    return [results[key] for key in keys]


def _follow(run: _Run, report: Report, cancel: CancelToken) -> None:
    """Wait for the run in the caller's thread, passing events on and watching for interruptions."""
    future = loop.submit(run.go())
    interrupted: BaseException | None = None
    while not future.done():
        try:
            concurrent.futures.wait([future], timeout=TICK)
            if interrupted is None:
                cancel.check()
                run.tell(report)
        except BaseException as error:  # Ctrl-C, the token, or a report that failed: the run must not go on unseen
            loop.call_soon(run.stop, interrupted is not None)  # a second Ctrl-C does not wait for calls in flight
            if interrupted is None:
                interrupted = Cancelled() if isinstance(error, KeyboardInterrupt) else error
    if interrupted is not None:
        if isinstance(lost := future.exception(), WorkspaceError):  # not "what was finished is kept"
            raise lost from interrupted
        raise interrupted
    run.tell(report)
    future.result()


def _wait(future: concurrent.futures.Future[T], cancel: CancelToken) -> T:
    """The result, interruptible by Ctrl-C and by the token."""
    try:
        while not future.done():
            concurrent.futures.wait([future], timeout=TICK)
            cancel.check()
    except (KeyboardInterrupt, Cancelled):
        future.cancel()
        raise Cancelled from None
    return future.result()


def _over_budget(budget: Budget, left: int) -> BudgetError:
    return BudgetError(
        f"the budget is used up ({budget.describe()}) with {left:,} prompt(s) left to ask",
        "run the same command again with a higher --max-calls or --max-cost; what was answered is kept",
    )


_Job = tuple[bytes, Request]


@dataclass(slots=True)
class _Sent:
    """A batch on its way: what is still reserved for it, by place, and what has come of it."""

    batch: list[_Job]
    reserved: dict[int, Reservation]
    attempt: int
    at: float
    failed: list[tuple[_Job, Failure]] = field(default_factory=list)
    commits: list[asyncio.Future[None]] = field(default_factory=list)


@dataclass
class _Run:
    """One `ask` on the event loop. Everything here but `event` and `tell` runs on that loop."""

    workspace: Workspace
    backend: Backend
    settings: LLMSettings
    budget: Budget
    jobs: Sequence[_Job]
    cached: int = 0
    results: dict[bytes, Result] = field(default_factory=dict)
    failed: int = 0
    sending: int = 0
    notes: deque[str] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.local = self.backend.local
        self.llm = cache.label(self.backend)
        self.waiting: deque[_Job] = deque(self.jobs)
        self.tasks: set[asyncio.Task[None]] = set()
        self.limiter = self._limiter()
        self.silence = _Silence()
        self.uncommitted = 0
        self.error: BaseException | None = None
        self.told: set[str] = set()
        self.said_until = 0.0
        self.stopping = False
        self.wake = asyncio.Event()
        self.halt = asyncio.Event()
        self.compute = asyncio.Semaphore(self.backend.max_in_flight)
        self.writer = Writer(self.workspace)

    def _limiter(self) -> Limiter:
        """The backend's own, so that a later `ask` starts where this one has arrived."""
        ceiling = min(self.settings.concurrency, self.backend.max_in_flight)
        limiter = _limiters.get(self.backend)
        if limiter is None or limiter.ceiling != ceiling:
            limiter = _limiters[self.backend] = Limiter(ceiling)
        return limiter

    # seen from the caller's thread

    @property
    def unanswered(self) -> int:
        return len(self.jobs) - len(self.results)

    def event(self) -> Event:
        fields = {
            "cached": self.cached,
            "failed": self.failed,
            "in_flight": self.sending,
            "limit": self.limiter.limit,
            "calls": self.budget.calls,
            "tokens_in": self.budget.tokens_in,
            "tokens_out": self.budget.tokens_out,
            "cost": self.budget.cost,
        }
        return Event(TASK, self.cached + len(self.results), self.cached + len(self.jobs), fields=fields)

    def tell(self, report: Report) -> None:
        if self.writer.trouble and self.writer.trouble not in self.told:
            self.told.add(self.writer.trouble)
            self.notes.append(f"answers wait to be kept, and nothing more is asked: {self.writer.trouble}")
        while self.notes:
            report(replace(self.event(), note=self.notes.popleft()))
        report(self.event())

    # on the loop

    async def go(self) -> None:
        """Ask everything; raises what ended the run early, once all that was answered is committed."""
        try:
            while not self.stopping:
                # a local model computes its next batch while the last is being stored: that costs nothing twice
                if self.waiting and not self.writer.trouble and len(self.tasks) < self.limiter.limit + self.local:
                    self._start()
                elif self.tasks or self.writer.trouble:
                    await self._woken()
                else:
                    break
            await self._wind_down()
        finally:
            await asyncio.to_thread(self.writer.close)
        if isinstance(self.error, BudgetError):  # told anew, now that every call in flight is settled
            raise _over_budget(self.budget, self.unanswered)
        if self.error is not None:
            raise self.error

    def _start(self) -> None:
        batch = [self.waiting.popleft() for _ in range(min(self.backend.batch_size, len(self.waiting)))]
        task = asyncio.create_task(self._serve(batch))
        self.tasks.add(task)
        task.add_done_callback(self._done)

    async def _woken(self) -> None:
        self.wake.clear()
        self._hurry_writer()
        await self.wake.wait()

    async def _wind_down(self) -> None:
        """After an interruption: calls in flight were paid for, so they get their time of grace. What a local model
        has finished is with the writer already."""
        if self.tasks and not self.local:
            self.writer.hurry()
            await asyncio.wait(self.tasks, timeout=self.settings.grace)
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _hurry_writer(self) -> None:
        """Every call out there waits for its commit and none can start before: the writer need not linger."""
        if self.uncommitted and self.uncommitted >= len(self.tasks):
            self.writer.hurry()

    def _fail(self, error: BaseException) -> None:
        """End the run; the first error is the one told."""
        self.error = self.error or error
        self.stop(False)

    def stop(self, now: bool) -> None:
        """Send nothing more; ``now`` also gives up the calls in flight."""
        self.stopping = True
        self.halt.set()
        self.wake.set()
        if now:
            self.writer.give_up()
            for task in self.tasks:
                task.cancel()

    # one batch (one request, for a server)

    async def _serve(self, batch: list[_Job]) -> None:
        started = time.monotonic()
        attempt = 0
        malformed: Counter[bytes] = Counter()
        while batch:
            attempt += 1
            batch, reserved = await self._reserve(batch)
            if not batch:
                return
            sent = _Sent(batch, dict(enumerate(reserved)), attempt, time.monotonic())
            await self._send(sent)
            settled, batch, delay = self._sort(sent.failed, attempt, started, malformed)
            if settled:
                sent.commits.append(self._commit(settled))
            await self._committed(sent.commits)
            if batch and await self._halted_within(delay):
                return

    async def _send(self, sent: _Sent) -> None:
        requests = [request for _, request in sent.batch]
        try:
            async with self.compute:
                self.sending += len(requests)
                try:
                    if isinstance(self.backend, Streams):
                        await self.backend.ask_each(requests, lambda results: self._arrived(sent, results))
                    else:
                        self._arrived(sent, dict(enumerate(await self.backend.ask(requests))))
                finally:
                    self.sending -= len(requests)
            if sent.reserved:
                raise RuntimeError(f"{self.llm} gave no result for {len(sent.reserved)} of {len(requests)} requests")
        finally:
            for reservation in sent.reserved.values():
                if self.local:
                    self.budget.release(reservation)
                else:  # a call given up in flight may have been charged: what was kept for it counts as spent
                    self.budget.settle(reservation, None)
            sent.reserved.clear()
            self.wake.set()

    def _arrived(self, sent: _Sent, results: Mapping[int, Result]) -> None:
        """Answers go to the writer at once; failures wait for the end of their batch, to be asked again."""
        settled: list[tuple[bytes, Result]] = []
        for place, result in results.items():
            reservation = sent.reserved.pop(place, None)
            if reservation is None:  # nobody waits for this batch any more
                continue
            self._settle(reservation, result)
            self._learn(result, sent.at)
            if isinstance(result, Failure):
                sent.failed.append((sent.batch[place], replace(result, attempts=sent.attempt)))
            else:
                settled.append((sent.batch[place][0], replace(result, attempts=sent.attempt)))
        if settled:
            sent.commits.append(self._commit(settled))

    def _settle(self, reservation: Reservation, result: Result | None) -> None:
        if isinstance(result, Failure) and result.kind not in ("timeout", "malformed", "refusal"):
            self.budget.release(reservation)
        else:
            self.budget.settle(reservation, result if isinstance(result, Answer) else None)
        self.wake.set()

    def _learn(self, result: Result, sent_at: float) -> None:
        """What a result says about the server: its load, and whether it is there at all."""
        now = time.monotonic()
        before = self.limiter.limit
        if isinstance(result, Answer):
            self.limiter.answered(now, saturated=len(self.tasks) >= before)
        elif result.kind == "rate_limit":
            self.limiter.refused(now, sent_at, result.retry_after)
        elif result.retryable:
            self.limiter.failed()
        if self.limiter.limit < before:
            self.notes.append(f"{self.llm} limits the rate: {self.limiter.limit} calls at once instead of {before}")
        if self.limiter.limit != before:
            self.wake.set()
        if isinstance(result, Failure) and (result.unreachable or result.kind == "timeout"):
            if self.silence.heard_nothing(now):
                self._fail(explain(result, self.llm))
        else:
            self.silence.heard(answer=isinstance(result, Answer))

    def _sort(
        self, failed: list[tuple[_Job, Failure]], attempt: int, started: float, malformed: Counter[bytes]
    ) -> tuple[list[tuple[bytes, Result]], list[_Job], float]:
        """Failures that stand, requests to ask again, and the seconds to wait before. ``malformed`` counts on."""
        settled: list[tuple[bytes, Result]] = []
        again: list[_Job] = []
        delay = 0.0
        for (key, request), failure in failed:
            asked_to_wait = failure.retry_after or 0.0 if failure.retryable else 0.0
            if failure.fatal or asked_to_wait > self.settings.max_wait:
                self._fail(explain(failure, self.llm))
            malformed[key] += failure.kind == "malformed"
            wait = self._patience(failure, attempt, started, malformed[key])
            if wait is None:
                settled.append((key, failure))
            else:
                again.append((key, request))
                delay = max(delay, wait)
                self._say_wait(asked_to_wait)
        return settled, again, delay

    def _say_wait(self, seconds: float) -> None:
        """Once for all calls that are told to wait at the same time."""
        now = time.monotonic()
        if seconds >= WORTH_SAYING and now >= self.said_until:
            self.said_until = now + seconds
            self.notes.append(f"{self.llm} asks to wait {seconds:,.0f} s")

    def _patience(self, failure: Failure, attempt: int, started: float, malformed: int) -> float | None:
        """Seconds until the request is worth asking again; None when its failure stands."""
        if not failure.retryable or attempt >= self.settings.attempts or malformed >= MALFORMED_ATTEMPTS:
            return None
        wait = pause(attempt, failure.retry_after)
        return wait if time.monotonic() - started + wait <= self.settings.max_wait else None

    async def _reserve(self, batch: list[_Job]) -> tuple[list[_Job], list[Reservation]]:
        """The part of the batch that the budget has room for; the rest goes back among the waiting.

        Waits while calls in flight may still give room back; without any, an empty part ends the run.
        """
        while self.writer.trouble and not self.stopping:
            await self._halted_within(0.05)
        reserved: list[Reservation] = []
        for _, request in batch:
            _, tokens_in, tokens_out = _expected_tokens(self.backend, request) if self.budget.price else (0, 0, 0)
            while (reservation := self.budget.reserve(tokens_in, tokens_out)) is None:
                if reserved or self.stopping or not self.sending or await self._halted_within(0.02):
                    break
            if reservation is None:
                break
            reserved.append(reservation)
        if self.stopping:
            for reservation in reserved:
                self.budget.release(reservation)
            return [], []
        if not reserved:
            self._fail(_over_budget(self.budget, self.unanswered))
        self.waiting.extendleft(reversed(batch[len(reserved) :]))
        return batch[: len(reserved)], reserved

    async def _halted_within(self, delay: float) -> bool:
        """Sleep; True as soon as the run is told to stop."""
        try:
            async with asyncio.timeout(delay):
                await self.halt.wait()
        except TimeoutError:
            return False
        return True

    def _commit(self, settled: list[tuple[bytes, Result]]) -> asyncio.Future[None]:
        """Hand results to the writer; done once they are safe."""
        answers = [cache.to_call(key, self.llm, result) for key, result in settled if isinstance(result, Answer)]
        failures = [cache.to_failed(key, self.llm, result) for key, result in settled if isinstance(result, Failure)]
        done = self.writer.put(answers, failures)

        def stored(_: asyncio.Future[None]) -> None:
            if done.cancelled() or done.exception() is not None:
                return
            self.results.update(settled)
            self.failed += len(failures)

        done.add_done_callback(stored)
        return done

    async def _committed(self, commits: Sequence[asyncio.Future[None]]) -> None:
        """Wait until all of them are safe; raises `WorkspaceError` when one is not."""
        self.uncommitted += 1
        try:
            self._hurry_writer()
            for done in commits:
                await asyncio.shield(done)
        finally:
            self.uncommitted -= 1
        if self.writer.full is not None and self.waiting:
            self._fail(self.writer.full)


class _Silence:
    """Tells a dead server from a slip: so many calls in a row, over so long, that nobody answered."""

    def __init__(self) -> None:
        self._count = 0
        self._since = 0.0
        self._answered = False

    def heard(self, *, answer: bool) -> None:
        self._count = 0
        self._answered = self._answered or answer

    def heard_nothing(self, now: float) -> bool:
        """Note one more call without any reply; True when the server has to be given up."""
        if self._count == 0:
            self._since = now
        self._count += 1
        calls_needed, seconds = (20, 10.0) if self._answered else (5, 2.0)
        return self._count >= calls_needed and now - self._since >= seconds


def close(backend: Backend) -> None:
    """Release the backend's connections or its model's memory; done at exit in any case."""
    loop.close(backend)
