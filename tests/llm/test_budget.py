"""Reservations and the concurrency controller, as plain arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.http.refusals import pause
from icl_curate.engine.llm.budget import Budget, Price
from icl_curate.engine.llm.pace import EPISODE, START, Limiter
from icl_curate.engine.llm.types import Answer


def test_a_cost_limit_needs_a_price_and_limits_are_not_negative() -> None:
    with pytest.raises(UsageError) as caught:
        Budget(max_cost=1.0)
    assert "--price" in caught.value.fix
    for wrong in ({"max_calls": -1}, {"max_cost": -0.1}, {"max_cost": math.nan}):
        with pytest.raises(UsageError):
            Budget(**wrong, price=Price(1, 1))  # type: ignore[arg-type]


def test_two_llms_spend_one_budget_each_at_its_price() -> None:
    dear, cheap = Price(1e6, 0), Price(1e5, 0)
    one = Budget(max_calls=4, max_cost=2.5, price=dear)
    other = one.at(cheap)
    for budget, tokens in ((one, 2), (other, 4)):
        held = budget.reserve(tokens, 0)
        assert held is not None
        budget.settle(held, None)
    assert one.cost == other.cost == pytest.approx(2 + 0.4) and one.calls == 2
    assert one.reserve(1, 0) is None and other.reserve(1, 0) is not None
    with pytest.raises(UsageError, match="price"):
        one.at(None)
    assert Budget(max_calls=1).at(cheap).max_calls == 1


@example(2, [("reserve", 2), ("answer", 20), ("reserve", 0), ("lost", 0)])
@given(
    st.integers(0, 8),
    st.lists(st.tuples(st.sampled_from(["reserve", "answer", "lost", "release"]), st.integers(0, 50)), max_size=60),
)
def test_no_order_of_events_overspends(max_calls: int, events: list[tuple[str, int]]) -> None:
    price = Price(10.0, 30.0)
    limit = price.cost(200, 100)
    budget = Budget(max_calls, limit, price)
    held = []
    spent, calls, dearest, beyond = 0.0, 0, 0.0, 0.0
    for event, size in events:
        if event == "reserve":
            tokens = max(size, 1)  # no prompt is empty
            reservation = budget.reserve(tokens, 20)
            if reservation is not None:
                held.append((reservation, tokens))
        elif held:
            reservation, reserved = held.pop(size % len(held))
            if event == "release":
                budget.release(reservation)
                continue
            used = Answer("x", tokens_in=min(size, reserved), tokens_out=size % 21)
            budget.settle(reservation, used if event == "answer" else None)
            calls += 1
            if event == "answer":
                bill = price.cost(used.tokens_in, used.tokens_out)
                dearest = max(dearest, bill)
            else:  # what is not known may have cost as much as the dearest bill so far
                bill = max(price.cost(reserved, 20), dearest)
                beyond += bill - price.cost(reserved, 20)
            spent += bill
    assert budget.calls == calls <= max_calls
    assert budget.cost == pytest.approx(spent)
    assert spent <= (limit + beyond) * (1 + 1e-9)


def test_the_limit_doubles_until_the_first_429_then_creeps() -> None:
    limiter = Limiter(64)
    assert limiter.limit == START
    for _ in range(START + 2 * START):
        limiter.answered(0.0, saturated=True)
    assert limiter.limit == 4 * START
    limiter.refused(1.0, 0.5, None)
    cut = limiter.limit
    assert START < cut < 4 * START
    for _ in range(cut):
        limiter.answered(EPISODE + 2, saturated=True)
    assert limiter.limit == cut + 1


def test_one_episode_cuts_once() -> None:
    limiter = Limiter(64, start=40)
    for i in range(30):
        limiter.refused(1.0 + i * 0.01, 0.5, None)
    assert limiter.limit == 32
    limiter.refused(EPISODE + 2.0, 0.9, None)  # sent before the cut: it knows nothing of it
    assert limiter.limit == 32
    limiter.refused(EPISODE + 2.0, EPISODE + 1.5, None)
    assert limiter.limit == 25
    assert [limit for _, limit in limiter.history] == [32, 25]


def test_only_a_429_cuts_and_an_idle_or_unclean_round_does_not_grow() -> None:
    limiter = Limiter(64)
    for _ in range(100):
        limiter.answered(0.0, saturated=False)
        limiter.failed()
    assert limiter.limit == START
    for _ in range(START * 10):
        limiter.answered(0.0, saturated=True)
        limiter.failed()
    assert limiter.limit == START


@given(st.integers(1, 100), st.lists(st.booleans(), max_size=300))
def test_the_limit_stays_within_its_bounds(ceiling: int, goods: list[bool]) -> None:
    limiter = Limiter(ceiling)
    for i, good in enumerate(goods):
        if good:
            limiter.answered(float(i), saturated=True)
        else:
            limiter.refused(float(i), float(i) - 0.5, 1.0)
        assert 1 <= limiter.limit <= ceiling


@given(st.integers(1, 12), st.one_of(st.none(), st.floats(0, 1000)))
def test_pauses_grow_and_honour_the_server(attempt: int, wish: float | None) -> None:
    seconds, own = pause(attempt, wish), min(0.5 * 2 ** (attempt - 1), 30.0)
    assert 0.5 * own <= seconds  # a server that asks for the same short pause each time has time to recover, too
    assert (wish or 0.0) <= seconds <= (own if wish is None else max(own, wish + 1.0))


def test_a_budget_counts_from_nothing_what_was_answered_and_what_was_lost() -> None:
    budget = Budget(price=Price(1e6, 2e6))
    for answer in (Answer("yes", tokens_in=3, tokens_out=1), Answer("no", tokens_in=4, tokens_out=2), None):
        held = budget.reserve(5, 5)
        assert held is not None
        budget.settle(held, answer)
    assert (budget.calls, budget.tokens_in, budget.tokens_out) == (3, 7, 3)
    assert budget.cost == pytest.approx((7 + 2 * 3) + (5 + 2 * 5))


def test_what_was_used_is_added_up_and_what_was_released_is_free_again() -> None:
    budget = Budget(max_cost=10.0, price=Price(1e6, 1e6))  # a dollar a token
    assert (budget.calls, budget.cost, budget.tokens_in, budget.tokens_out) == (0, 0.0, 0, 0)
    budget.learn(1, 1)
    first, second = budget.reserve(3, 2), budget.reserve(4, 1)
    assert first and second and budget.reserve(1, 0) is None
    budget.release(second)
    third = budget.reserve(4, 1)
    assert third
    budget.settle(first, Answer("a", tokens_in=2, tokens_out=1))
    budget.settle(third, Answer("b", tokens_in=3, tokens_out=2))
    assert (budget.calls, budget.cost, budget.tokens_in, budget.tokens_out) == (2, 8.0, 5, 3)
    assert budget.reserve(1, 1) is None  # two dollars are left, and a call has cost four
