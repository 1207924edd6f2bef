"""Budgets: calls and money are reserved before a call is sent and settled with its actual usage.

A limit checked only afterwards would be exceeded by everything in flight. There is no table of vendors' prices here:
prices change often, so they come from the user's settings.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from ..base.errors import UsageError, counted
from .types import Answer, Capabilities, Failure, Result

SPREAD = (0.7, 1.5)
"""Factors (low, high) between an estimate without the tokeniser and a server's token count."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million prompt and completion tokens."""

    input_per_million: float
    output_per_million: float
    billed: bool = False
    """A program: its replies say what they cost, or their tokens have these prices, if those are not 0."""

    def cost(self, tokens_in: float, tokens_out: float) -> float:
        return (tokens_in * self.input_per_million + tokens_out * self.output_per_million) / 1e6


FREE = Price(0.0, 0.0)
"""A local model: it takes time, not money."""


class Bill(NamedTuple):
    """What a call has really cost, in US dollars, and its tokens."""

    cost: float
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """The part of a budget reserved for one call: the estimate of its ``cost``, and whose call it is."""

    cost: float
    llm: str


@dataclass(slots=True)
class _Used:
    """What was charged and what is reserved, under one lock. ``dearest``: the largest bill of each LLM so far;
    ``most``: the most calls that one of its answers took."""

    calls: int = 0
    cost: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    held: set[Reservation] = field(default_factory=set)
    dearest: dict[str, Bill] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    run: int | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def expected(self, call: Reservation) -> float:
        """What a call may cost, as far as is known by now."""
        dearest = self.dearest.get(call.llm)
        return max(call.cost, dearest.cost) if dearest else call.cost


class Budget:
    """Limits for a whole command, shared by all of its `ask` calls; every method may be called from any thread.

    ``max_calls`` limits the requests that a server may charge for (`Failure.paid`); a rejected one (rate limit, 5xx,
    bad request) is not counted, a run of a program counts the calls that it made. ``max_cost`` is in US dollars; it
    needs a ``price``, else `UsageError`. `at` gives the same budget to an LLM with another price.

    Estimates may be wrong: a proxy adds a system prompt, a model reasons unseen. So a call reserves what the dearest
    one of its LLM has cost, if that is more, and until one bill is known calls are sent one at a time. The cost can
    then exceed its limit only by what calls in flight cost more than any before them.
    """

    def __init__(
        self, max_calls: int | None = None, max_cost: float | None = None, price: Price | None = None, llm: str = ""
    ) -> None:
        if max_cost is not None and price is None:
            raise UsageError(
                "a cost limit needs the price of the LLM's tokens",
                "give its prices with --price-in and --price-out or in your own config file (those of a workspace's own"
                " do not count), or limit calls with --max-calls N",
            )
        for name, limit in (("call", max_calls), ("cost", max_cost)):
            if limit is not None and (limit < 0 or math.isnan(limit)):
                raise UsageError(f"the {name} limit is negative", "give 0 or more")
        self.max_calls = max_calls
        self.max_cost = max_cost
        self.price = price
        self.llm = llm
        self._used = _Used()

    def at(self, price: Price | None, llm: str = "") -> Budget:
        """The same budget, whose calls are those of ``llm`` and cost ``price``. Raises `UsageError` for a cost limit
        without a price."""
        other = Budget(self.max_calls, self.max_cost, price, llm)
        other._used = self._used
        return other

    @property
    def calls(self) -> int:
        """Calls made so far."""
        return self._used.calls

    @property
    def cost(self) -> float:
        """US dollars spent so far."""
        return self._used.cost

    @property
    def tokens_in(self) -> int:
        """Prompt tokens so far."""
        return self._used.tokens_in

    @property
    def tokens_out(self) -> int:
        """Generated tokens so far."""
        return self._used.tokens_out

    @property
    def run(self) -> int | None:
        """The run whose number is stored with the answers; None for a command that never goes on."""
        return self._used.run

    @run.setter
    def run(self, run: int) -> None:
        self._used.run = run

    @property
    def in_flight(self) -> bool:
        """Whether reserved calls may still release budget."""
        return bool(self._used.held)

    @property
    def dearest(self) -> Bill | None:
        """The largest bill of this LLM so far, None before the first."""
        return self._used.dearest.get(self.llm)

    def learn(self, tokens_in: int, tokens_out: int) -> None:
        """A bill of this LLM from an earlier run."""
        with self._used.lock:
            self._billed(tokens_in, tokens_out)

    def _billed(self, tokens_in: int, tokens_out: int, cost: float | None = None) -> float:
        bill = Bill(self._cost(tokens_in, tokens_out) if cost is None else cost, tokens_in, tokens_out)
        self._used.dearest[self.llm] = max(bill, self.dearest or bill)
        return bill.cost

    def _cost(self, tokens_in: float, tokens_out: float) -> float:
        return self.price.cost(tokens_in, tokens_out) if self.price else 0.0

    def reserve(self, tokens_in: float, tokens_out: float) -> Reservation | None:
        """Reserve budget for a call of at most so many tokens by the estimate; None if there is not enough left, or
        not before a call in flight ends."""
        call = Reservation(self._cost(tokens_in, tokens_out), self.llm)
        used = self._used
        with used.lock:
            limited = self.max_calls is not None or self.max_cost is not None
            if limited and self.price and self.price.billed and used.held and self.llm not in used.most:
                return None
            calls = sum(used.most.get(one.llm, 1) for one in (*used.held, call))
            if self.max_calls is not None and used.calls + calls > self.max_calls:
                return None
            if self.max_cost is not None:
                if call.cost and used.held and self.llm not in used.dearest:
                    return None
                expected = used.cost + sum(map(used.expected, (*used.held, call)))
                if expected > self.max_cost * (1 + 1e-12):
                    return None
            used.held.add(call)
            return call

    def release(self, reservation: Reservation) -> None:
        """Release the reservation of a rejected call, which costs nothing."""
        with self._used.lock:
            self._used.held.discard(reservation)

    def settle(self, reservation: Reservation, result: Result | None) -> None:
        """Charge the call: its usage, or its reservation if that is not known (``None``: nothing came back)."""
        if isinstance(result, Failure) and not result.paid:
            self.release(reservation)
            return
        used = self._used
        with used.lock:
            used.held.discard(reservation)
            answer = result if isinstance(result, Answer) else None
            used.calls += answer.calls if answer else (result and result.calls) or used.most.get(self.llm, 1)
            if result is None or (isinstance(result, Failure) and not result.tokens_in + result.tokens_out):
                used.cost += used.expected(reservation)
                return
            used.tokens_in += result.tokens_in
            used.tokens_out += result.tokens_out
            used.cost += self._billed(result.tokens_in, result.tokens_out, answer.cost if answer else None)
            if answer:
                used.most[self.llm] = max(answer.calls, used.most.get(self.llm, 1))

    def unknown(self, result: Result) -> bool:
        """Whether there is a limit of cost, and it cannot be known what an answer has cost."""
        if self.max_cost is None or self.price is None or not self.price.billed or not isinstance(result, Answer):
            return False
        return result.cost is None and result.calls > 0 and not self._cost(result.tokens_in, result.tokens_out)

    @property
    def calls_left(self) -> int:
        """Calls that the limit still allows; a limit of calls must have been set."""
        assert self.max_calls is not None
        return max(0, self.max_calls - self.calls)

    def spend(self, calls: int, tokens_in: int, tokens_out: int) -> None:
        """Charge calls that an earlier part of the same work has made."""
        used = self._used
        with used.lock:
            used.calls += calls
            used.tokens_in += tokens_in
            used.tokens_out += tokens_out
            used.cost += self._cost(tokens_in, tokens_out)

    @contextmanager
    def limited(self, calls: int) -> Iterator[None]:
        """Allow at most so many further calls inside the block."""
        before = self.max_calls
        most = self.calls + calls
        self.max_calls = most if before is None else min(before, most)
        try:
            yield
        finally:
            self.max_calls = before

    def describe(self) -> str:
        """The limit as text, for the message when it is reached."""
        limits = []
        if self.max_calls is not None:
            limits.append(f"{self.calls:,} of {counted(self.max_calls, 'call')} made")
        if self.max_cost is not None:
            limits.append(f"${self.cost:.4f} of ${self.max_cost:.4f} spent")
        return ", ".join(limits) or "no limit"


@runtime_checkable
class Charges(Protocol):
    """A backend whose probe makes calls that are charged, and which changes its requests once it knows what its server
    can do."""

    async def probe_within(self, budget: Budget) -> Capabilities:
        """`Backend.probe`, each call within the budget. Raises `BudgetError` if it allows no more."""

    def adopt(self, capabilities: Capabilities) -> None:
        """Use the result of an earlier `Backend.probe` instead of probing again."""
