"""Capabilities of an LLM: probed with a few tiny calls, stored for its server and model, checked before a plan runs."""

from __future__ import annotations

import concurrent.futures
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from ..base.code import program_in
from ..base.contract import Reported
from ..base.errors import BudgetError, Cancelled, LLMError
from ..base.progress import SILENT, Event, Monitor
from ..pool.records import Demonstration, Query, Task
from ..prompting.template import build_prompt
from ..store import calls
from ..store.workspace import Workspace
from . import cache, loop
from .budget import Budget, Charges, Price
from .cost import PROBE_CALLS
from .pace import explain
from .reading import read
from .spec import probe_command
from .types import Answer, Backend, Capabilities, Failure, Request, Sampling

T = TypeVar("T")

SAMPLE_TOKENS = 24
GREEDY = Sampling()

PATIENCE = 5.0
"""Seconds between two reports of what `check` waits for."""

TICK = 0.1
"""Seconds between two checks of the cancel token."""

UNSEEN = Capabilities(logprobs=False, scoring=False)
"""The capabilities assumed for an LLM that was never probed."""

_probed: weakref.WeakKeyDictionary[Any, Capabilities] = weakref.WeakKeyDictionary()


def probe(
    workspace: Workspace,
    backend: Backend,
    *,
    fresh: bool = False,
    budget: Budget | None = None,
    monitor: Monitor = SILENT,
    waited: Callable[[float], None] | None = None,
) -> Capabilities:
    """What the LLM can do: as stored for this server and model, else probed now and stored.

    ``fresh`` probes again. A server is probed with about `PROBE_CALLS` tiny calls, within the ``budget``. Raises
    `LLMError` if the LLM cannot be reached, `BudgetError` before or within the probe, `Cancelled` on the token or on
    Ctrl-C.
    """
    if not fresh and (stored := adopt_stored(workspace, backend)) is not None:
        return stored
    if waited is None and isinstance(backend, Charges):  # a busy server may take a minute and more
        waited = _patience(monitor, f"{cache.label(backend)} to be probed")
    before = _stored(workspace, backend)
    # bills of tiny calls say nothing of the first prompt, which goes alone
    budget = (budget or Budget()).at(budget.price if budget else None, f"probe of {cache.label(backend)}")
    if isinstance(backend, Charges) and budget.max_calls is not None and budget.calls_left < PROBE_CALLS:
        raise BudgetError(
            f"{backend.spec} must be probed first, which takes about {PROBE_CALLS} calls ({budget.describe()})",
            f"give a higher --max-calls, or once {probe_command(backend.spec)}",
        )
    with cache.bills_known(workspace, budget):
        text = _probe_now(backend, budget, monitor, waited)
    calls.save_capabilities(workspace, cache.canonical(backend.identity()), text)
    probed = cache.load_capabilities(text)
    if before is not None and probed.logprobs and not before.logprobs:
        # answers cached before would hide that it gives log-probabilities now
        calls.forget_without_logprobs(workspace, cache.label(backend))
    _probed[backend] = probed
    return probed


def capabilities(
    workspace: Workspace, backend: Backend, *, dry_run: bool, budget: Budget | None = None, monitor: Monitor = SILENT
) -> Capabilities:
    """The capabilities to plan with: the result of `probe`; in a dry run, which sends nothing, that of an earlier
    probe, or `UNSEEN` if there was none. The probes of the offline reader and of programs send nothing, so a dry run
    runs them too, but stores nothing: what only looks must not write to the workspace."""
    if not dry_run:
        return probe(workspace, backend, budget=budget, monitor=monitor)
    probed = adopt_stored(workspace, backend)
    if probed is None and (backend.spec == "offline" or program_in(backend.spec)):
        probed = _probed[backend] = cache.load_capabilities(_probe_now(backend, Budget(), monitor))
    return probed or UNSEEN


def _probe_now(
    backend: Backend, budget: Budget, monitor: Monitor, waited: Callable[[float], None] | None = None
) -> str:
    loop.remember(backend)
    probed = backend.probe_within(budget) if isinstance(backend, Charges) else backend.probe()
    return cache.dump_capabilities(_wait(loop.submit(probed), monitor, waited))


def adopt_stored(workspace: Workspace, backend: Backend) -> Capabilities | None:
    """The result of the latest probe, by whatever process, which the backend then uses; None if there was none. Nothing
    is sent."""
    stored, known = _stored(workspace, backend), _probed.get(backend)
    if stored is None or stored == known:
        return known
    if isinstance(backend, Charges):
        backend.adopt(stored)
    _probed[backend] = stored
    return stored


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
    seconds: float = 0.0


_CITY = Query("What is the capital of France?")
_MOOD = Query("I waited an hour and the food was cold.", answers=("negative",))
_SAMPLES = (
    (_CITY, Task("open"), Demonstration(0, "", "What is the capital of Italy?", "Rome", "")),
    (_MOOD, Task("labels", ("negative", "positive")), Demonstration(0, "", "What a lovely evening!", "positive", "")),
)


def samples(
    backend: Backend,
    monitor: Monitor = SILENT,
    waited: Callable[[float], None] | None = None,
    sampling: Sampling = GREEDY,
) -> tuple[Sample, ...]:
    """An open question and a label question, each after one demonstration, in the format of all other prompts; failures
    are reported. Raises `LLMError` if the LLM refuses what the user set of the ``sampling``."""
    sampling = replace(sampling, max_tokens=SAMPLE_TOKENS, response_format="")  # the form is that of the pool's outputs
    requests = [Request(build_prompt(query, [shot], task), sampling=sampling) for query, task, shot in _SAMPLES]
    answered = []
    for request in requests:  # one at a time: each is timed
        started = time.monotonic()
        (result,) = _wait(loop.submit(backend.ask([request])), monitor, waited)
        if isinstance(result, Failure) and result.kind == "setting":
            raise explain(result, cache.label(backend))
        if isinstance(result, Answer):
            usable = read(request, result).usable
            answered.append(Sample(request.prompt.query.input, result.text, usable, time.monotonic() - started))
        else:
            monitor.report(Event("check", note=f"failed: {cache.label(backend)}: {result.message}"))
    return tuple(answered)


@dataclass(frozen=True, slots=True)
class LLMCheck(Reported):
    """The result of `check`. ``latency``: seconds of one short answer, the quicker of the samples, when connected and
    loaded; None if no answer was timed. ``answers``: how the options of a query are answered. ``error`` and ``fix`` are
    empty if it is reachable."""

    kind = "llm-check"
    llm: str
    reachable: bool
    latency: float | None = None
    capabilities: Capabilities | None = None
    price_known: bool = False
    error: str = ""
    fix: str = ""
    samples: tuple[Sample, ...] = ()
    answers: Literal["", "scored", "generated"] = ""


def check(
    workspace: Workspace,
    backend: Backend,
    price: Price | None = None,
    monitor: Monitor = SILENT,
    sampling: Sampling = GREEDY,
) -> LLMCheck:
    """Probe again and report the result; does not raise for an LLM that cannot be reached, or refuses what the user set
    of the ``sampling``. Reports every `PATIENCE` seconds what is waited for."""
    label, priced = cache.label(backend), backend.local or (price is not None and not price.billed)
    try:
        waited = None if isinstance(backend, Charges) else _patience(monitor, f"{label} to be probed")
        able = probe(workspace, backend, fresh=True, monitor=monitor, waited=waited)
        waited = _patience(monitor, f"an answer of {label}")
        asked = samples(backend, monitor, waited, sampling) if able.instructs else ()
    except LLMError as error:
        return LLMCheck(label, False, price_known=priced, error=error.what, fix=error.fix)
    measured = able.details.get("latency")
    latency = min((sample.seconds for sample in asked), default=None if measured is None else float(measured))
    answers: Literal["scored", "generated"] = "scored" if able.scores_served else "generated"
    return LLMCheck(label, True, latency, able, priced, samples=asked, answers=answers)


def _patience(monitor: Monitor, what: str) -> Callable[[float], None]:
    """Reports that ``what`` is still waited for, every `PATIENCE` seconds."""
    told = 0

    def waited(seconds: float) -> None:
        nonlocal told
        if seconds >= (told + 1) * PATIENCE:
            told = int(seconds // PATIENCE)
            monitor.report(Event("check", note=f"waiting for {what}: {seconds:,.0f} s"))

    return waited


def _wait(
    future: concurrent.futures.Future[T], monitor: Monitor = SILENT, waited: Callable[[float], None] | None = None
) -> T:
    """The result, interruptible by Ctrl-C and by the token; ``waited`` is told the seconds so far."""
    start = time.monotonic()
    try:
        while not future.done():
            concurrent.futures.wait([future], timeout=TICK)
            monitor.check()
            if waited:
                waited(time.monotonic() - start)
    except (KeyboardInterrupt, Cancelled):
        future.cancel()
        raise Cancelled from None
    return future.result()
