"""A process killed at any moment: what was committed is never asked again, and little else is."""

from __future__ import annotations

import importlib
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from factories.killing import begun, kill
from factories.patience import PATIENCE
from factories.servers import Server
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.llm import runner
from icl_curate.engine.llm.cache import call_key
from icl_curate.engine.llm.claims import claims_in
from icl_curate.engine.llm.types import Answer, LLMSettings, Request, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store import calls
from icl_curate.engine.store.workspace import Workspace

CHILD = """
import signal
import sys
from pathlib import Path
from icl_curate.engine.base.errors import Cancelled
from icl_curate.engine.llm import runner
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.llm.types import LLMSettings
from icl_curate.engine.llm.types import Request, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message
from icl_curate.engine.pool.records import Query
from icl_curate.engine.store.workspace import Workspace

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with it ignored
url, path, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
settings = LLMSettings(base_url=url, concurrency=8)
texts = [f"item {i}" for i in range(count)]
requests = [Request(Prompt((Message("user", t),), Query(t)), sampling=Sampling(max_tokens=8)) for t in texts]
try:
    results = runner.ask(Workspace.open(path), OpenAIServer("stub", settings), requests, settings)
except Cancelled as error:
    print("cancelled", flush=True)
    sys.exit(error.exit_code)
print(sum(result.text.startswith("word ") for result in results), flush=True)
"""
CONCURRENCY = 8


def _start(server: Server, path: Path, count: int) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI_")}
    command = [sys.executable, "-c", CHILD, server.url, str(path), str(count)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _ask(server: Server, path: Path, count: int) -> int:
    """What `CHILD` does; how many answers came."""
    settings = LLMSettings(base_url=server.url, concurrency=CONCURRENCY)
    requests = [_request(f"item {i}") for i in range(count)]
    found = runner.ask(Workspace.open(path), OpenAIServer("stub", settings), requests, settings)
    return sum(isinstance(result, Answer) and result.text.startswith("word ") for result in found)


def _request(text: str) -> Request:
    return Request(Prompt((Message("user", text),), Query(text)), sampling=Sampling(max_tokens=8))


def _keys(server: Server, count: int) -> dict[bytes, str]:
    identity = OpenAIServer("stub", LLMSettings(base_url=server.url)).identity()
    return {call_key(identity, _request(text)): text for text in (f"item {i}" for i in range(count))}


def _wait_for(server: Server, marker: str, more: int) -> None:
    seen = len(server.asked(marker))
    deadline = time.monotonic() + PATIENCE
    while len(server.asked(marker)) < seen + more:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_after_kill_9_only_calls_in_flight_are_asked_again(tmp_path: Path) -> None:
    count, kills = 160, 4
    path = tmp_path / "w"
    Workspace.create(path)
    importlib.import_module("openai")  # once, and not in each child
    chance = random.Random(5)
    with Server(delay=0.03) as server:
        keys = _keys(server, count)
        committed: set[str] = set()
        for _ in range(kills):
            before = len(server.asked("item"))
            child = begun(lambda: _ask(server, path, count))
            _wait_for(server, "item", chance.randint(10, 30))
            time.sleep(chance.uniform(0, 0.1))
            kill(child)
            time.sleep(0.1)  # replies still on their way are sent to nobody
            asked = [call.text for call in server.asked("item")[before:]]
            assert not committed & set(asked)  # nothing that was safe is asked again
            found = calls.lookup(Workspace.open(path), keys)
            committed |= {keys[key] for key in found}
            assert len(set(asked) - committed) <= CONCURRENCY  # what is lost was in flight
        before = len(server.asked("item"))
        assert _ask(server, path, count) == count
        assert not committed & {call.text for call in server.asked("item")[before:]}
        assert {call.text for call in server.asked("item")} == set(keys.values())
        assert len(server.asked("item")) <= count + kills * CONCURRENCY


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_keeps_every_call_that_was_paid(tmp_path: Path) -> None:
    count = 400
    path = tmp_path / "w"
    Workspace.create(path)
    with Server(delay=0.05) as server:
        child = _start(server, path, count)
        _wait_for(server, "item", 30)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE)
        assert child.returncode == 130, err
        assert out.strip() == "cancelled"
        assert "Traceback" not in err
        paid = {call.text for call in server.asked("item") if call.answered}
        assert 20 <= len(paid) < count
        keys = _keys(server, count)
        assert {keys[key] for key in calls.lookup(Workspace.open(path), keys)} == paid


@pytest.mark.parametrize("processes", [0, 2])
def test_what_threads_and_processes_ask_at_once_is_paid_once(tmp_path: Path, processes: int) -> None:
    count, path = 120, tmp_path / "w"
    Workspace.create(path)
    with Server(delay=0.02) as server:
        both = [_start(server, path, count) for _ in range(processes)]
        if both:
            _wait_for(server, "item", 10)
        with ThreadPoolExecutor(2) as threads:
            answered = [*threads.map(lambda _: _ask(server, path, count), range(2))]
        told = [child.communicate(timeout=PATIENCE) for child in both]
        assert told == [(f"{count}\n", "")] * processes and answered == [count, count]
        assert sorted(call.text for call in server.asked("item")) == sorted(f"item {i}" for i in range(count))


def test_what_a_killed_process_was_asking_is_asked_by_the_other(tmp_path: Path) -> None:
    count, path = 60, tmp_path / "w"
    Workspace.create(path)
    with Server(delay=0.05) as server:
        child = _start(server, path, count)
        _wait_for(server, "item", 10)
        with ThreadPoolExecutor(1) as threads:
            other = threads.submit(_ask, server, path, count)
            _wait_for(server, "item", 10)
            child.kill()
            assert child.wait(PATIENCE) == -signal.SIGKILL
            assert other.result(PATIENCE) == count
        assert len(server.asked("item")) <= count + CONCURRENCY


def test_who_came_and_went_between_two_claims_is_known(tmp_path: Path) -> None:
    """Its answers may have come since they were looked up."""
    Workspace.create(tmp_path / "w")
    with claims_in(tmp_path / "w") as claims:
        assert claims.take(b"1234567") and not claims.others
        came = "import pathlib, sys\nfrom icl_curate.engine.llm.claims import claims_in\n"
        came += "with claims_in(pathlib.Path(sys.argv[1])): pass"
        assert subprocess.run([sys.executable, "-c", came, str(tmp_path / "w")], check=False).returncode == 0
        assert claims.take(b"7654321") and claims.others
