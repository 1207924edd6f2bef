"""Servers that cost more than they should: dear ones, and those that are paid for replies that are no answers.

Judged: how many requests came, in the first run and when the same command is given again, and that one line says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .harness import Tally, complaint, scratch, wanted
from .server import Call, StubServer, http
from .world import LABELS, MARKER, World, asking, with_key

FLIGHTS = 4
GIVEN_UP = 20
"""Paid replies in a row without an answer after which nothing more may be sent."""
PRICES = ("--price-in", "1", "--price-out", "1")
Reply = Callable[[StubServer, Call], bytes]


@dataclass(frozen=True)
class Case:
    """What the server replies, to probes too if it is ``thorough``; the command's limits; the requests that may come in
    the first run and in each later one; what the error line holds, empty for a server that is good."""

    reply: Reply
    limits: tuple[str, ...]
    most: int
    again: int
    says: str
    thorough: bool = False


def _spoilt(**changes: Any) -> Reply:
    """A good reply whose choice is changed."""

    def reply(server: StubServer, call: Call) -> bytes:
        body = server.completion(call)
        body["choices"][0] |= changes
        return http(200, json.dumps(body).encode())

    return reply


def _dear(tokens_in: int, tokens_out: int) -> Reply:
    def reply(server: StubServer, call: Call) -> bytes:
        usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
        return http(200, json.dumps(server.completion(call) | {"usage": usage}).encode())

    return reply


def _good(server: StubServer, call: Call) -> bytes:
    return http(200, json.dumps(server.completion(call)).encode())


def _body(status: int, text: str) -> Reply:
    return lambda server, call: http(status, text.encode())


CENTS = ("--max-cost", "0.05", *PRICES)
NONE = GIVEN_UP + FLIGHTS - 1
TOOLS = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}
CASES = {
    "100,000 prompt tokens a call": Case(_dear(100_000, 1), CENTS, 1, 0, "budget"),
    "100,000 prompt tokens a call, probes too": Case(_dear(100_000, 1), CENTS, 0, 0, "budget", thorough=True),
    "20,000 tokens of hidden reasoning": Case(_dear(40, 20_000), CENTS, 2, 2, "budget"),
    "a content filter": Case(
        _spoilt(message={"role": "assistant", "content": ""}, finish_reason="content_filter"), (), NONE, NONE, "refused"
    ),
    "a filter by status": Case(
        _body(400, '{"error": {"message": "filtered", "code": "content_filter"}}'), (), NONE, NONE, "refused"
    ),
    "tool calls": Case(_spoilt(message=TOOLS, logprobs=None), (), NONE, NONE, "unusable"),
    "204": Case(_body(204, ""), (), NONE, NONE, "unusable"),
    "an error object of status 200": Case(_body(200, '{"error": {"message": "busy"}}'), (), NONE, NONE, "unusable"),
    "a JSON text": Case(_body(200, '"hello"'), (), NONE, NONE, "unusable"),
    "a page": Case(_body(200, "<html><body>gateway</body></html>"), (), NONE, NONE, "unusable"),
    "good, one call allowed": Case(_good, ("--max-calls", "1"), 0, 0, "probed"),
    "good, 20 calls allowed": Case(_good, ("--max-calls", "20"), 18, 20, ""),
}


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("money")
    for name, case in CASES.items():
        if wanted(name):
            with scratch(world.root, "money") as folder:
                tally.case(name, _problems(world, folder, case))
    return [tally]


def _problems(world: World, folder: Any, case: Case) -> list[str]:
    workspace = world.copy(world.plain, folder)
    problems = []
    with StubServer(LABELS, MARKER, faulty_probes=case.thorough) as server:
        server.fault = lambda call: case.reply(server, call) if call.path.endswith("completions") else None
        words = asking(server, "evaluate", "-m", "bm25,zero", *case.limits, flights=FLIGHTS)
        for allowed in (case.most, case.again, case.again):
            before = len(server.calls)
            found = world.commands.run(*words, "-w", workspace, environment=with_key())
            came = len(server.calls) - before
            problems += [
                complaint(found),
                "" if found.code or not case.says else "ends well",
                f"{came} requests, {allowed} allowed" if came > allowed else "",
                "" if case.says in found.line else f"does not say {case.says!r}: {found.line}",
            ]
    return problems
