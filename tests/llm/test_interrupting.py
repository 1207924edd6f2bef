"""Stopping what computes on this machine, and what may go wrong while everything ends."""

from __future__ import annotations

import _thread
import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.models import save_model
from factories.patience import PATIENCE
from factories.servers import Server
from factories.usage import calls_in
from icl_curate.engine.backends.hf.model import LocalModel
from icl_curate.engine.backends.offline.reader import OfflineReader
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.backends.worker import Worker
from icl_curate.engine.base.errors import Cancelled
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.llm import loop, probing, runner
from icl_curate.engine.llm.spec import open_backend, parse
from icl_curate.engine.llm.types import Answer, Capabilities, LLMSettings, Request, Result, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Demonstration, Message, Query
from icl_curate.engine.store.workspace import Workspace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "llama", "llama")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "w")


def _request(i: int, choices: tuple[str, ...] = (), **sampling: Any) -> Request:
    text = f"item {i}"
    return Request(Prompt((Message("user", text),), Query(text), (), choices), bool(choices), Sampling(**sampling))


def _cancel_after(count: int) -> tuple[CancelToken, Callable[[Event], None]]:
    token = CancelToken()
    return token, lambda event: token.cancel() if event.done >= count else None


class _Stops:
    """Called before each step of the work: after ``steps`` of them it waits until the interruption has arrived."""

    def __init__(self, worker: Worker, steps: int) -> None:
        self.worker, self.left = worker, steps

    def __call__(self, *_: object) -> None:
        self.left -= 1
        deadline = time.monotonic() + PATIENCE
        while self.left < 0 and time.monotonic() < deadline:
            self.worker.check()
            time.sleep(0.001)


@pytest.mark.parametrize("scored", [True, False])
def test_an_interrupted_model_keeps_each_answer_that_was_finished(
    workspace: Workspace, folder: Path, scored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icl_curate.engine.backends.hf.scoring.PASS_TOKENS_CPU", 24)
    model = LocalModel(str(folder), LLMSettings(device="cpu", batch_size=64))
    loaded = model._ready()
    if scored:  # prompts that have nothing in common: a forward pass each
        texts = [f"{chr(65 + i % 26)}{i} colour" for i in range(64)]
        requests = [Request(Prompt((Message("user", t),), Query(t), (), ("red", "blue")), True) for t in texts]
        requests = [
            Request(Prompt((Message("system", t), *r.prompt.messages), r.prompt.query, (), r.prompt.choices), True)
            for t, r in zip(texts, requests, strict=True)
        ]
    else:  # answers that end one after the other
        requests = [_request(i, max_tokens=2 * i + 1, stop=()) for i in range(64)]
    token, report = _cancel_after(3)
    loaded.model.register_forward_pre_hook(_Stops(model._worker, 12))
    with pytest.raises(Cancelled):
        runner.ask(workspace, model, requests, monitor=Monitor(report, token))
    loop.close(model)
    kept = calls_in(workspace)
    assert 3 <= kept < 64  # before the batch was whole
    again = LocalModel(str(folder), LLMSettings(device="cpu", batch_size=64))
    results = runner.ask(workspace, again, requests)
    loop.close(again)
    answers = [result for result in results if isinstance(result, Answer)]
    assert (len(answers), sum(answer.cached for answer in answers)) == (64, kept)


def test_a_long_forward_pass_ends_between_two_layers(folder: Path) -> None:
    model = LocalModel(str(folder), LLMSettings(device="cpu"))
    layers = model._ready().model.model.layers
    inside, go, passed = threading.Event(), threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        inside.set()
        go.wait(PATIENCE)

    layers[0].register_forward_pre_hook(wait)
    layers[1].register_forward_pre_hook(lambda *_: passed.set())

    async def work() -> None:
        task = asyncio.create_task(model.ask([_request(1)]))
        await asyncio.to_thread(inside.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        assert await model._worker.run(passed.is_set) is False  # in the same thread, so after the pass has ended
        (answer,) = await model.ask([_request(1, max_tokens=1)])
        assert isinstance(answer, Answer)
        assert passed.is_set()

    asyncio.run(work())


def test_an_interrupted_reader_keeps_what_it_has_read(workspace: Workspace) -> None:
    def encode(texts: Sequence[str]) -> Any:
        stops()
        vectors = np.array([[len(t), sum(map(ord, t)) % 97, 1.0] for t in texts], np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    shown = Demonstration(0, "d", "which colour has the sky", "blue", "s")
    requests = [
        Request(Prompt((Message("user", f"item {i}"),), Query(f"item {i}"), (shown,), ("blue", "red")), True)
        for i in range(512)
    ]
    reader = OfflineReader(encode, "none")
    stops = _Stops(reader._worker, 1)
    token, report = _cancel_after(1)
    with pytest.raises(Cancelled):
        runner.ask(workspace, reader, requests, monitor=Monitor(report, token))
    loop.close(reader)
    assert 0 < calls_in(workspace) < 256  # not even the first batch was whole


STUCK = """
import asyncio, sys, time
from icl_curate.engine.backends import worker as local
local.LEAVE = 0.2
worker = local.Worker("stuck")

async def work():
    await asyncio.wait_for(worker.run(lambda: time.sleep(300)), 0.3)

try:
    asyncio.run(work())
except TimeoutError:
    print("interrupted")
sys.exit(130)
"""


def test_the_process_does_not_wait_for_a_computation_that_cannot_be_cut() -> None:
    child = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (child.returncode, child.stdout.strip(), child.stderr) == (130, "interrupted", "")


class Scripted:
    """A backend whose every step a test decides."""

    spec = "scripted"
    local, max_in_flight, batch_size = False, 4, 1

    def __init__(self, **steps: Callable[[], Any]) -> None:
        self.steps = steps

    async def _step(self, name: str) -> None:
        if name in self.steps and (found := self.steps[name]()) is not None:
            await found

    def identity(self) -> Mapping[str, Any]:
        return {"backend": "scripted"}

    def count_tokens(self, prompt: Prompt) -> int:
        return 1

    async def probe(self) -> Capabilities:
        await self._step("probe")
        return Capabilities(True, True)

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        await self._step("ask")
        return [Answer("yes") for _ in requests]

    async def close(self) -> None:
        await self._step("close")


@pytest.mark.parametrize("what", ["hangs", "fails"])
def test_closing_hides_no_error(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(loop, "CLOSING", 0.05)

    def fail() -> Any:
        if what == "hangs":
            return asyncio.sleep(60)
        raise OSError("gone")

    backend = Scripted(close=fail)
    with pytest.raises(Cancelled):
        try:
            raise Cancelled
        finally:
            loop.close(backend)


def test_answers_that_came_after_the_interruption_are_told(workspace: Workspace) -> None:
    token, told = CancelToken(), list[Event]()
    backend = Scripted(ask=token.cancel)
    backend.max_in_flight = 1
    with pytest.raises(Cancelled):
        runner.ask(workspace, backend, [_request(i) for i in range(59)], monitor=Monitor(told.append, token))
    assert told[-1].done == calls_in(workspace) > 0


def test_the_token_ends_a_probe(workspace: Workspace) -> None:
    token = CancelToken()
    backend = Scripted(probe=lambda: (token.cancel(), asyncio.sleep(60))[1])
    with pytest.raises(Cancelled):
        runner.ask(workspace, backend, [_request(1)], monitor=Monitor(cancel=token))
    token = CancelToken()
    with pytest.raises(Cancelled):
        probing.capabilities(workspace, backend, dry_run=False, monitor=Monitor(cancel=token))


def test_what_would_end_the_loop_ends_its_run_alone(workspace: Workspace) -> None:
    def die() -> Any:
        raise SystemExit

    with pytest.raises(SystemExit):
        runner.ask(workspace, Scripted(ask=die), [_request(1)])
    (answer,) = runner.ask(workspace, Scripted(), [_request(1)])
    assert isinstance(answer, Answer)


MOST_PRESSES = 60


@pytest.fixture
def heeding_ctrl_c() -> Iterator[None]:
    """Ctrl-C is heeded, even if the tests run as a background job, for which a shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeding_ctrl_c")
def test_a_second_ctrl_c_does_not_wait_for_calls_in_flight(workspace: Workspace) -> None:
    """Pressed again and again, as one does: one press may be lost in what Python does meanwhile."""
    answering = threading.Event()
    with Server(fault=lambda server, call, seen: "stall" if "item" in call.text else None) as server:
        settings = LLMSettings(base_url=server.url, grace=600, timeout=600)
        backend = OpenAIServer("stub", settings)
        presses = 0

        def press() -> None:
            nonlocal presses
            while not answering.wait(0.3) and presses < MOST_PRESSES:
                presses += 1
                _thread.interrupt_main()
            if not answering.is_set():
                server.hang_up()  # so that the test fails instead of waiting for ever

        presser = threading.Thread(target=press)

        def report(event: Event) -> None:
            if event.fields["in_flight"] and presser.ident is None:
                presser.start()

        try:
            with pytest.raises(Cancelled):
                runner.ask(workspace, backend, [_request(i) for i in range(4)], settings, monitor=Monitor(report))
        finally:
            answering.set()
            presser.join()
        loop.close(backend)
    assert 2 <= presses < MOST_PRESSES


def test_what_runs_here_is_said_once() -> None:
    for spec in ("offline", "hf:some/model", "openai:some-model"):
        backend = open_backend(spec, encode=lambda texts: np.zeros((len(texts), 3), np.float32))
        assert backend.local is parse(spec).local is (not spec.startswith("openai"))
    assert LocalModel("some/model", LLMSettings(batch_size=1)).local
