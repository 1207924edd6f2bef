"""Answers requests: from the call cache, else by the LLM, within a budget, concurrently, each answer committed.

The whole list is first looked up in the cache, with one join. An answer is committed before another call takes its
slot, so a process killed at any moment has to pay again at most for the calls in flight; to resume, run it again.
Processes that ask the same at once wait for each other's answers (`claims`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from ..base.errors import BudgetError, Cancelled, UsageError, WorkspaceError
from ..base.progress import SILENT, Event, Monitor, Report
from ..store import calls
from ..store.calls import Call, FailedCall
from ..store.workspace import Workspace
from . import cache, loop
from .budget import FREE, SPREAD, Budget, Charges, Price, Reservation
from .claims import Claims, claims_in
from .cost import Plan
from .pace import EPISODE, Attempts, Job, Limiter, NoAnswers, Retries
from .probing import adopt_stored, probe
from .types import DEFAULTS, Answer, Backend, Failure, LLMSettings, Request, Result, Streams
from .writer import Writer, disk_full

TASK = "ask"
TICK = 0.1
"""Seconds between two checks of the cancel token and two progress events."""
CLAIMED = 0.1
"""Seconds after which a prompt that another process asks is looked at again."""

_limiters: weakref.WeakKeyDictionary[Any, Limiter] = weakref.WeakKeyDictionary()
_no_answers: weakref.WeakKeyDictionary[Any, NoAnswers] = weakref.WeakKeyDictionary()


def known_answers(workspace: Workspace, backend: Backend, requests: Sequence[Request]) -> list[Answer | None]:
    """The cached answer of each request, None if there is none yet; nothing is sent."""
    adopt_stored(workspace, backend)
    keys = _keys(backend, requests)
    cached = _kept(workspace, backend, dict(zip(keys, requests, strict=True)))
    return [cache.to_answer(cached[key]) if key in cached else None for key in keys]


def _keys(backend: Backend, requests: Sequence[Request]) -> list[bytes]:
    identity = backend.identity()
    return [cache.call_key(identity, request) for request in requests]


def _kept(workspace: Workspace, backend: Backend, by_key: Mapping[bytes, Request]) -> dict[bytes, Call]:
    """The cached answers of requests, by their keys, and what was asked for another reader (`cache.other_key`)."""
    found, identity = calls.lookup(workspace, by_key), backend.identity()
    lacking = ((key, cache.other_key(identity, request)) for key, request in by_key.items() if key not in found)
    others = {other: key for key, other in lacking if other is not None}
    return found | {others[other]: call for other, call in calls.lookup(workspace, others).items()}


def plan(
    workspace: Workspace,
    backend: Backend,
    requests: Sequence[Request],
    price: Price | None = None,
    *,
    anew: bool = False,
) -> Plan:
    """What `ask` would do, counted without sending anything, not even a probe; ``anew``: as if no answer were
    cached."""
    probed = adopt_stored(workspace, backend) is not None
    by_key = dict(zip(_keys(backend, requests), requests, strict=True))
    cached = {} if anew else _kept(workspace, backend, by_key)
    left = [request for key, request in by_key.items() if key not in cached]
    tokens = [expected_tokens(backend, request) for request in left]
    low_in, high_in, high_out = (sum(column) for column in zip(*tokens, strict=True)) if tokens else (0, 0, 0)
    low_out = sum(not request.score for request in left)
    if backend.local:
        price = FREE
    told = price is not None and not price.billed  # how much of a prompt a program sends, and how often, is its affair
    cost = (price.cost(low_in, low_out), price.cost(high_in, high_out)) if price and told else None
    return Plan(
        requests=len(requests),
        distinct=len(by_key),
        cached=len(cached),
        to_ask=len(left),
        tokens_in=(low_in, high_in),
        tokens_out=(low_out, high_out),
        cost=cost,
        to_probe=(cache.label(backend),) if isinstance(backend, Charges) and not probed else (),
    )


def expected_tokens(backend: Backend, request: Request) -> tuple[int, int, int]:
    """Tokens in (low, high) and out (high) of one request."""
    count = backend.count_tokens(request.prompt)
    if request.score and not backend.local:
        count *= max(len(request.prompt.choices), 1)  # a server computes the whole prompt again for each choice
    low, high = (1.0, 1.0) if backend.local else SPREAD
    out = len(request.prompt.choices) if request.score else request.sampling.max_tokens
    return round(count * low), round(count * high), out


def ask(
    workspace: Workspace,
    backend: Backend,
    requests: Sequence[Request],
    settings: LLMSettings = DEFAULTS,
    budget: Budget | None = None,
    monitor: Monitor = SILENT,
) -> list[Result]:
    """Answer every request, in order: from the cache, else from the LLM; identical requests are sent once.

    A request that cannot be answered gives a `Failure` in its place; failures are recorded but never cached. Raises,
    after committing everything that was answered: `BudgetError` if the budget does not allow the next call, `LLMError`
    if no request can succeed (key, quota, model, a server that is gone), `Cancelled` on the token or on Ctrl-C,
    `WorkspaceError` if answers cannot be stored. Events (task "ask", in the caller's thread) have the fields cached,
    failed, in_flight and limit, and the budget's totals so far: calls, tokens_in, tokens_out, cost.
    """
    budget = budget or Budget()
    budget = budget.at(budget.price, cache.label(backend))
    monitor.check()
    keys = _keys(backend, requests)
    by_key = dict(zip(keys, requests, strict=True))
    # before the answers are looked up: who is not seen now has stored them
    with nullcontext() if backend.local else claims_in(workspace.path) as claims:
        known = _kept(workspace, backend, by_key)
        results: dict[bytes, Result] = {key: cache.to_answer(call) for key, call in known.items()}
        missing = [(key, request) for key, request in by_key.items() if key not in results]
        run = _Run(workspace, backend, settings, budget, missing, len(results), claims)
        if missing:
            if budget.max_calls is not None and budget.calls >= budget.max_calls:
                raise _over_budget(budget, len(missing))
            if (full := disk_full(workspace)) is not None:
                raise full
            probe(workspace, backend, budget=budget, monitor=monitor)
            loop.remember(backend)
            with cache.bills_known(workspace, budget):
                _follow(run, monitor)
        else:
            run.send_events(monitor.report)
    results.update(run.results)
    return [results[key] for key in keys]


def _follow(run: _Run, monitor: Monitor) -> None:
    """Wait for the run in the caller's thread, pass on its events and check for interruptions."""
    future = loop.submit(run.go())
    interrupted: BaseException | None = None
    while not future.done():
        try:
            concurrent.futures.wait([future], timeout=TICK)
            if interrupted is None:
                monitor.check()
                run.send_events(monitor.report)
        except BaseException as error:  # Ctrl-C, the token, or a report that failed: stop the run
            loop.call_soon(run.stop, interrupted is not None)  # a second Ctrl-C does not wait for calls in flight
            if interrupted is None:
                interrupted = Cancelled() if isinstance(error, KeyboardInterrupt) else error
    if interrupted is not None:
        if isinstance(lost := future.exception(), WorkspaceError):  # not "finished parts are kept"
            raise lost from interrupted
        if isinstance(interrupted, Cancelled):  # answers have come meanwhile, and are kept
            run.send_events(monitor.report)
        raise interrupted
    run.send_events(monitor.report)
    future.result()


def _over_budget(budget: Budget, left: int) -> BudgetError:
    return BudgetError(
        f"the budget is used up ({budget.describe()}) with {left:,} prompt(s) of this step left to ask",
        "run the same command again with a higher --max-calls or --max-cost; answers are kept",
    )


@dataclass(slots=True)
class _Sent:
    """A batch in flight: what is still reserved for it, by position, and its results so far."""

    batch: list[Job]
    reserved: dict[int, Reservation]
    attempt: int
    at: float
    failed: list[tuple[Job, Failure]] = field(default_factory=list)
    commits: list[asyncio.Future[None]] = field(default_factory=list)


class _Run:
    """One `ask` on the event loop. Everything here except `event` and `send_events` runs on that loop."""

    def __init__(
        self,
        workspace: Workspace,
        backend: Backend,
        settings: LLMSettings,
        budget: Budget,
        jobs: Sequence[Job],
        cached: int,
        claims: Claims | None,
    ) -> None:
        self.backend, self.settings, self.budget, self.cached = backend, settings, budget, cached
        self.workspace, self.claims = workspace, claims
        self.local, self.llm = backend.local, cache.label(backend)
        self.count, self.waiting = len(jobs), deque(jobs)
        self.results: dict[bytes, Result] = {}
        self.failed = self.sending = self.uncommitted = 0
        self.tasks: set[asyncio.Task[None]] = set()
        ceiling = min(settings.concurrency, backend.max_in_flight)
        if backend not in _limiters or _limiters[backend].ceiling != ceiling:
            _limiters[backend] = Limiter(ceiling)
        self.limiter = _limiters[backend]  # a later `ask` starts at the current concurrency
        self.no_answers = _no_answers.setdefault(backend, NoAnswers(self.local))  # many a command asks a few at a time
        self.no_answers.begin(some_known=cached > 0)
        self.error: BaseException | None = None
        self.notes: deque[str] = deque()
        self.reported_troubles: set[str] = set()
        self.retries = Retries(settings, self.llm, self.notes)
        self.stopping = self.shared = False
        self.wake, self.halt = asyncio.Event(), asyncio.Event()
        self.compute = asyncio.Semaphore(backend.max_in_flight)
        self.writer = Writer(workspace, budget.run)

    # called from the caller's thread

    @property
    def unanswered(self) -> int:
        return self.count - len(self.results)

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
        return Event(TASK, self.cached + len(self.results), self.cached + self.count, fields=fields)

    def send_events(self, report: Report) -> None:
        if self.writer.trouble and self.writer.trouble not in self.reported_troubles:
            self.reported_troubles.add(self.writer.trouble)
            self.notes.append(f"cannot save answers, so no more requests are sent: {self.writer.trouble}")
        while self.notes:
            report(replace(self.event(), note=self.notes.popleft()))
        report(self.event())

    # on the loop

    async def go(self) -> None:
        """Ask everything; raises what ended the run early, after all answers are committed."""
        try:
            while not self.stopping:
                # a local model computes its next batch while the last is being stored: a lost batch costs no money
                if self.waiting and not self.writer.trouble and len(self.tasks) < self.limiter.limit + self.local:
                    self._start()
                elif self.tasks or self.writer.trouble:
                    self.wake.clear()
                    self._flush_writer()
                    await self.wake.wait()
                else:
                    break
            await self._wind_down()
        finally:
            await asyncio.to_thread(self.writer.close)
        if isinstance(self.error, BudgetError):  # raised again, now that every call in flight is settled
            raise _over_budget(self.budget, self.unanswered)
        if self.error is not None:
            raise self.error

    def _start(self) -> None:
        batch = [self.waiting.popleft() for _ in range(min(self.backend.batch_size, len(self.waiting)))]
        task = asyncio.create_task(self._serve(batch))
        self.tasks.add(task)
        task.add_done_callback(self._done)

    async def _wind_down(self) -> None:
        """After an interruption: calls in flight are paid for, so they get a grace period. The finished answers of a
        local model are with the writer already."""
        if self.tasks and not self.local:
            self.writer.flush()
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

    def _flush_writer(self) -> None:
        """Every call in flight waits for its commit and none can start before: the writer need not wait for more."""
        if self.uncommitted and self.uncommitted >= len(self.tasks):
            self.writer.flush()

    def _fail(self, error: BaseException) -> None:
        """End the run; the first error is reported."""
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

    async def _serve(self, batch: list[Job]) -> None:
        if (claims := self.claims) is None:  # an answer of a local model costs time alone
            return await self._answer(batch)
        mine = [job for job in batch if claims.take(job[0])]
        try:
            self.waiting += [job for job in batch if job not in mine]
            if mine and claims.others:
                known = await asyncio.to_thread(calls.lookup, self.workspace, [key for key, _ in mine])
                self.results.update((key, cache.to_answer(call)) for key, call in known.items())
                await self._answer([job for job in mine if job[0] not in known])
            elif mine:
                await self._answer(mine)
            else:
                if not self.shared:
                    self.shared = True
                    self.notes.append("some of these prompts are being asked already: their answers are waited for")
                await self._stopped_within(CLAIMED)
        finally:
            for key, _ in mine:
                claims.release(key)

    async def _answer(self, batch: list[Job]) -> None:
        attempts = Attempts()
        while batch:
            attempts.count += 1
            batch, reserved = await self._reserve(batch)
            if not batch:
                return
            sent = _Sent(batch, dict(enumerate(reserved)), attempts.count, time.monotonic())
            await self._send(sent)
            failures = self.retries.sort(sent.failed, attempts)
            if failures.error is not None:
                self._fail(failures.error)
            for _, failure in failures.settled:
                if (error := self.no_answers.lost(failure, self.llm)) is not None:
                    self._fail(error)
            if failures.settled:
                sent.commits.append(self._commit(failures.settled))
            await self._committed(sent.commits)
            batch = failures.again
            if batch and await self._stopped_within(failures.delay):
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
                else:  # a cancelled call in flight may have been charged: its reservation counts as spent
                    self.budget.settle(reservation, None)
            sent.reserved.clear()
            self.wake.set()

    def _arrived(self, sent: _Sent, results: Mapping[int, Result]) -> None:
        """Answers go to the writer at once; failures wait for the end of their batch, to be retried."""
        settled: list[tuple[bytes, Result]] = []
        for place, result in results.items():
            reservation = sent.reserved.pop(place, None)
            if reservation is None:  # no caller waits for this batch any more
                continue
            self.budget.settle(reservation, result)
            self.wake.set()
            self._learn(result, sent.at)
            if self.budget.unknown(result):
                self._fail(
                    UsageError(
                        f"{self.llm} does not say what its runs cost, so no limit of costs can be kept",
                        "limit its calls: --max-calls N, or let it return Reply(text, …, cost=…); its answer is kept",
                    )
                )
            if isinstance(result, Failure):
                sent.failed.append((sent.batch[place], replace(result, attempts=sent.attempt)))
            else:
                settled.append((sent.batch[place][0], replace(result, attempts=sent.attempt)))
        if settled:
            sent.commits.append(self._commit(settled))

    def _learn(self, result: Result, sent_at: float) -> None:
        """What a result shows about the server: its load, and whether it gives answers at all."""
        now = time.monotonic()
        before = self.limiter.limit
        if isinstance(result, Answer):
            self.retries.answered(now, sent_at)
            fast = now - sent_at <= self.settings.timeout / 2
            self.limiter.answered(now, saturated=fast and len(self.tasks) >= before)
        elif result.kind == "timeout" or (result.busy and self.retries.answered_at + EPISODE > now):
            self.limiter.refused(now, sent_at, result.retry_after)
        elif result.retryable:
            self.limiter.failed()
        if self.limiter.limit < before:
            why = "limits the rate" if isinstance(result, Failure) and result.kind == "rate_limit" else "is overloaded"
            self.notes.append(f"{self.llm} {why}: concurrency lowered from {before} to {self.limiter.limit}")
        if self.limiter.limit != before:
            self.wake.set()
        if (error := self.no_answers.given_up(result, self.llm, now)) is not None:
            self._fail(error)

    async def _reserve(self, batch: list[Job]) -> tuple[list[Job], list[Reservation]]:
        """The part of the batch that fits the budget; the rest goes back to the queue.

        Waits while calls in flight may still release budget; without any, an empty part ends the run.
        """
        while self.writer.trouble and not self.stopping:
            await self._stopped_within(0.05)
        reserved: list[Reservation] = []
        for _, request in batch:
            _, tokens_in, tokens_out = expected_tokens(self.backend, request) if self.budget.price else (0, 0, 0)
            while (reservation := self.budget.reserve(tokens_in, tokens_out)) is None:
                if reserved or self.stopping or not self.budget.in_flight or await self._stopped_within(0.02):
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

    async def _stopped_within(self, delay: float) -> bool:
        """Sleep; returns True as soon as the run has to stop."""
        try:
            async with asyncio.timeout(delay):
                await self.halt.wait()
        except TimeoutError:
            return False
        return True

    def _commit(self, settled: Sequence[tuple[bytes, Result]]) -> asyncio.Future[None]:
        """Pass results to the writer; done once they are stored."""
        answers = [cache.to_call(key, self.llm, result) for key, result in settled if isinstance(result, Answer)]
        failures = [
            FailedCall(key, self.llm, result.kind, result.message)
            for key, result in settled
            if isinstance(result, Failure)
        ]
        done = self.writer.put(answers, failures)

        def stored(_: asyncio.Future[None]) -> None:
            if done.cancelled() or done.exception() is not None:
                return
            self.results.update(settled)
            self.failed += len(failures)

        done.add_done_callback(stored)
        return done

    async def _committed(self, commits: Sequence[asyncio.Future[None]]) -> None:
        """Wait until all of them are stored; raises `WorkspaceError` if one is not."""
        self.uncommitted += 1
        try:
            self._flush_writer()
            for done in commits:
                await asyncio.shield(done)
        finally:
            self.uncommitted -= 1
        if self.writer.full is not None and self.waiting:
            self._fail(self.writer.full)
