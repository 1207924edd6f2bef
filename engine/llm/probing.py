"""Capabilities of an LLM: probed with a few tiny calls, stored for its server and model, checked before a plan runs."""

from __future__ import annotations

import concurrent.futures
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .. import contract
from ..errors import Cancelled, LLMError
from ..pool.prompts import build_prompt
from ..pool.records import Demonstration, Query, Task
from ..progress import CancelToken
from ..store import calls
from ..store.workspace import Workspace
from . import cache, loop
from .budget import Price
from .reading import read
from .types import Adopts, Answer, Backend, Capabilities, Request, Result, Sampling

T = TypeVar("T")

SAMPLE_TOKENS = 24

TICK = 0.1
"""Seconds between two checks of the cancel token."""

UNSEEN = Capabilities(logprobs=False, scoring=False)
"""The capabilities assumed for an LLM that was never probed."""

_probed: weakref.WeakKeyDictionary[Any, Capabilities] = weakref.WeakKeyDictionary()


def probe(
    workspace: Workspace, backend: Backend, *, fresh: bool = False, cancel: CancelToken | None = None
) -> Capabilities:
    """What the LLM can do: as stored for this server and model, else probed now and stored.

    ``fresh`` probes again. A probe is about five tiny calls, outside any budget. Raises `LLMError` if the LLM cannot be
    reached, `Cancelled` on the token or on Ctrl-C.
    """
    if not fresh and (known := adopt_stored(workspace, backend)) is not None:
        return known
    before = _stored(workspace, backend)
    text = _probe_now(backend, cancel)
    calls.save_capabilities(workspace, cache.canonical(backend.identity()), text)
    found = cache.load_capabilities(text)
    if before is not None and found.logprobs and not before.logprobs:
        # answers cached before would hide that it gives log-probabilities now
        calls.forget(workspace, llm=cache.label(backend), only_without_logprobs=True)
    _probed[backend] = found
    return found


def capabilities(
    workspace: Workspace, backend: Backend, *, dry_run: bool, cancel: CancelToken | None = None
) -> Capabilities:
    """The capabilities to plan with: the result of `probe`; in a dry run, which sends nothing, that of an earlier
    probe, or `UNSEEN` if there was none. The offline reader's probe sends nothing, so a dry run runs it too, but stores
    nothing: what only looks must not write to the workspace."""
    if not dry_run:
        return probe(workspace, backend, cancel=cancel)
    known = adopt_stored(workspace, backend)
    if known is None and backend.spec == "offline":
        known = _probed[backend] = cache.load_capabilities(_probe_now(backend, cancel))
    return known or UNSEEN


def _probe_now(backend: Backend, cancel: CancelToken | None) -> str:
    loop.remember(backend)
    return cache.dump_capabilities(_wait(loop.submit(backend.probe()), cancel or CancelToken()))


def adopt_stored(workspace: Workspace, backend: Backend) -> Capabilities | None:
    """The result of an earlier probe, which the backend then uses; None if there was none. Nothing is sent."""
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
    """Raise `LLMError` if ``purpose`` needs what ``llm`` lacks according to its probe; called before the first paid
    call."""
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
            f"{purpose} needs {' and '.join(lacks)}, which {llm} does not provide",
            "choose an LLM that does (hf:PATH: all; vLLM: log-probabilities), or probe this one again: "
            "icl-curate llm check --llm " + llm,
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """A question that `check` asked and the raw answer; ``usable`` as determined by `reading.read`."""

    question: str
    answer: str
    usable: bool


_CITY = Query("What is the capital of France?")
_MOOD = Query("I waited an hour and the food was cold.", answers=("negative",))
_SAMPLES = (
    (_CITY, Task("open"), Demonstration(0, "", "What is the capital of Italy?", "Rome", "")),
    (_MOOD, Task("labels", ("negative", "positive")), Demonstration(0, "", "What a lovely evening!", "positive", "")),
)


def samples(backend: Backend) -> tuple[Sample, ...]:
    """An open question and a label question, each after one demonstration, in the format of all other prompts; failures
    are left out."""
    requests = [
        Request(build_prompt(query, [shot], task), sampling=Sampling(max_tokens=SAMPLE_TOKENS))
        for query, task, shot in _SAMPLES
    ]
    results = _wait(loop.submit(_ask_each(backend, requests)), CancelToken())
    return tuple(
        Sample(request.prompt.query.input, result.text, read(request, result).usable)
        for request, result in zip(requests, results, strict=True)
        if isinstance(result, Answer)
    )


async def _ask_each(backend: Backend, requests: Sequence[Request]) -> list[Result]:
    """A server takes one request at a time."""
    return [(await backend.ask([request]))[0] for request in requests]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of `check`. ``latency``: seconds of the first tiny call, including connecting or loading; ``error``
    and ``fix`` are empty if it is reachable."""

    llm: str
    reachable: bool
    latency: float | None = None
    capabilities: Capabilities | None = None
    price_known: bool = False
    error: str = ""
    fix: str = ""
    samples: tuple[Sample, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The ``llm check --json`` contract."""
        return contract.to_json(self)


def check(workspace: Workspace, backend: Backend, price: Price | None = None) -> Check:
    """Probe again and report the result; does not raise for an LLM that cannot be reached."""
    priced = price is not None or backend.local
    start = time.monotonic()
    try:
        found = probe(workspace, backend, fresh=True)
    except LLMError as error:
        return Check(cache.label(backend), False, price_known=priced, error=error.what, fix=error.fix)
    latency = float(found.details.get("latency", time.monotonic() - start))
    asked = samples(backend) if found.instructs else ()
    return Check(cache.label(backend), True, latency, found, priced, samples=asked)


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
