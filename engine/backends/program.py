"""``program:module:object``: code of the user's that answers a query with its shots, calling LLMs itself.

Its prompt is what it is given, as one message of JSON (`ProgramTemplate`). So its answers are planned, cached, raced
and recorded as those of an LLM, and asked for again when one of its source files has changed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..http.refusals import shorten, storable, without_keys
from ..llm.types import DEFAULTS, Answer, Capabilities, Failure, LLMSettings, Reply, Request, Result
from ..pool.prompts import Prompt
from ..prompting.function import own
from .worker import Worker

NOTES = ("a program: it answers queries with demonstrations, and no other prompts",)


class Program:
    """The backend behind ``program:``. A program is a function ``(query, shots)``, see `prompting.function`, to its
    answer, a text, or to a `Reply`. It may be asynchronous; if it is not, its runs are in threads of their own. An
    exception is the failure of that query. Raises `UsageError` if it cannot be imported."""

    local = False
    batch_size = 1

    def __init__(self, name: str, settings: LLMSettings = DEFAULTS) -> None:
        self.spec = f"program:{name}"
        self.max_in_flight = settings.concurrency
        self._own = own(name, "program")
        self._idle: list[Worker] = []

    def identity(self) -> Mapping[str, Any]:
        """The version that it declares, else the hash of its sources, and the libraries that it is written with."""
        return {"backend": "program", "name": self._own.name, **self._own.identity}

    def count_tokens(self, prompt: Prompt) -> int:
        """Of what it is given, four characters per token: what it sends is not known."""
        return len(prompt.text) // 4

    async def probe(self) -> Capabilities:
        """It is not run for that."""
        return Capabilities(logprobs=False, scoring=False, instructs=False, notes=NOTES)

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        """One result per request; their runs are at the same time."""
        return list(await asyncio.gather(*map(self._answered, requests)))

    async def close(self) -> None:
        """End the threads that wait for a run."""
        while self._idle:
            self._idle.pop().end()

    async def _answered(self, request: Request) -> Result:
        try:
            given = json.loads(request.prompt.messages[-1].content)
            query, shots = given["query"], given["shots"]
        except (ValueError, TypeError, LookupError):
            return Failure("capability", "a program answers queries with demonstrations, and no other prompts")
        start = time.monotonic()
        try:
            reply = _checked(await self._run(query, shots))
        except BaseException as error:  # it is somebody's program
            if isinstance(error, asyncio.CancelledError) and (task := asyncio.current_task()) and task.cancelling():
                raise  # the caller stops it
            return Failure("raised", shorten(f"{type(error).__name__}: {error}"))
        return Answer(
            text=without_keys(storable(reply.text)),
            tokens_in=reply.tokens_in,
            tokens_out=reply.tokens_out,
            latency=time.monotonic() - start,
            calls=reply.calls,
            cost=reply.cost,
        )

    async def _run(self, query: dict[str, Any], shots: list[dict[str, Any]]) -> Any:
        call = self._own.call
        if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__):
            return await call(query, shots)

        def run() -> Any:
            try:
                return call(query, shots)
            except SystemExit as error:
                raise RuntimeError(f"it ended with exit code {error.code}") from error

        worker = self._idle.pop() if self._idle else Worker("icl-curate-program")
        said = await worker.run(run)  # if it is cancelled, the run goes on, and its thread is not used again
        self._idle.append(worker)
        return await said if inspect.isawaitable(said) else said


def _checked(said: Any) -> Reply:
    """What a program returned. Raises `TypeError` or `ValueError` if it is no reply."""
    reply = Reply(said) if isinstance(said, str) else said
    if not isinstance(reply, Reply) or not isinstance(reply.text, str):
        raise TypeError(f"it returned {type(said).__name__}, and not a text or a Reply")
    if any(type(count) is not int or count < 0 for count in (reply.tokens_in, reply.tokens_out, reply.calls)):
        raise ValueError("tokens and calls of its Reply are not counts")
    if reply.cost is not None and not (isinstance(reply.cost, int | float) and 0 <= reply.cost < math.inf):
        raise ValueError(f"the cost of its Reply is {reply.cost!r}")
    return reply
