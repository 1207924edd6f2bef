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

from ..errors import UsageError
from ..wording import counted
from .types import Answer

SPREAD = (0.7, 1.5)
"""Factors (low, high) between an estimate without the tokeniser and a server's token count."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million prompt and completion tokens."""

    input_per_million: float
    output_per_million: float

    def cost(self, tokens_in: float, tokens_out: float) -> float:
        return (tokens_in * self.input_per_million + tokens_out * self.output_per_million) / 1e6


FREE = Price(0.0, 0.0)
"""A local model: it takes time, not money."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The part of a budget reserved for one call."""

    cost: float


@dataclass(slots=True)
class _Used:
    """What was charged and what is reserved, under one lock."""

    calls: int = 0
    cost: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    held_calls: int = 0
    held_cost: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Budget:
    """Limits for a whole command, shared by all of its `ask` calls; every method may be called from any thread.

    ``max_calls`` limits the requests that a server may charge for: an answer, a malformed or refused answer, a timeout.
    A rejected request (rate limit, 5xx, bad request) is not counted. ``max_cost`` is in US dollars; it needs a
    ``price``, else `UsageError`. `at` gives the same budget to an LLM with another price.
    """

    def __init__(self, max_calls: int | None = None, max_cost: float | None = None, price: Price | None = None) -> None:
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
        self._used = _Used()

    def at(self, price: Price | None) -> Budget:
        """The same budget, whose calls cost ``price``. Raises `UsageError` for a cost limit without a price."""
        other = Budget(self.max_calls, self.max_cost, price)
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

    def reserve(self, tokens_in: float, tokens_out: float) -> Reservation | None:
        """Reserve budget for a call of at most so many tokens; None if there is not enough left."""
        cost = self.price.cost(tokens_in, tokens_out) if self.price else 0.0
        used = self._used
        with used.lock:
            if self.max_calls is not None and used.calls + used.held_calls >= self.max_calls:
                return None
            if self.max_cost is not None and used.cost + used.held_cost + cost > self.max_cost * (1 + 1e-12):
                return None
            used.held_calls += 1
            used.held_cost += cost
            return Reservation(cost)

    def release(self, reservation: Reservation) -> None:
        """Release the reservation of a rejected call, which costs nothing."""
        with self._used.lock:
            self._used.held_calls -= 1
            self._used.held_cost -= reservation.cost

    def settle(self, reservation: Reservation, answer: Answer | None) -> None:
        """Charge the call: its usage, or its reservation if the answer was lost."""
        used = self._used
        with used.lock:
            used.held_calls -= 1
            used.held_cost -= reservation.cost
            used.calls += 1
            if answer is None:
                used.cost += reservation.cost
                return
            used.tokens_in += answer.tokens_in
            used.tokens_out += answer.tokens_out
            if self.price:
                used.cost += self.price.cost(answer.tokens_in, answer.tokens_out)

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
            if self.price:
                used.cost += self.price.cost(tokens_in, tokens_out)

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
