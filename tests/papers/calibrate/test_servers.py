"""Calibration over real HTTP: log-probabilities of every shape, servers without them, kill -9 and resume."""

from __future__ import annotations

import importlib
import math
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from factories.calibrate_world import workspace_of
from factories.commands import run_command
from factories.killing import begun, kill
from factories.patience import PATIENCE
from factories.servers import Call, Reply, Server, ok
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.base.errors import LLMError
from icl_curate.engine.http import refusals
from icl_curate.engine.llm import probing
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import LLMSettings
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.results import SetCalibration
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.store.settings import Settings

MARK = "zebra"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST", 0.01)


def query(name: str) -> Mapping[str, str]:
    return {"id": name, "input": f"Which {MARK} is {name}?", "output": "x", "context": f"One {name}.\n\nTwo {name}."}


def state(path: Path, server: Server, *names: str, **plan: Any) -> SetCalibration:
    workspace = workspace_of(path, [query(name) for name in names])
    settings = Settings(llm="openai:stub", base_url=server.url, attempts=3)
    backend = OpenAIServer("stub", LLMSettings(base_url=server.url))
    chosen = CalibrationPlan(**({"rounds": 1, "split": "validation"} | plan))
    llm = LLMClient(workspace, backend, settings)
    return Calibration.prepare(llm, queries_of(workspace, "validation"), chosen).ask(Budget())


def test_a_dry_run_prices_nothing_that_a_probe_has_found_to_be_refused(tmp_path: Path) -> None:
    with Server(logprobs=False) as server:
        workspace = workspace_of(tmp_path / "one", [query("one")])
        settings = Settings(llm="openai:stub", base_url=server.url, attempts=3)

        def planned() -> int:
            backend = OpenAIServer("stub", LLMSettings(base_url=server.url))
            llm = LLMClient(workspace, backend, settings, dry_run=True)
            plan = CalibrationPlan(rounds=1, split="validation")
            return Calibration.prepare(llm, queries_of(workspace, "validation"), plan).cost().to_ask

        assert planned() > 0 and server.calls == []  # not known yet
        probing.probe(workspace, OpenAIServer("stub", LLMSettings(base_url=server.url)))
        with pytest.raises(LLMError, match="log-probabilities"):
            planned()


def chat(text: str, logprobs: Any) -> Reply:
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop", "logprobs": logprobs}
    return ok({"model": "m", "choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})


def tokens(*pairs: tuple[str, float]) -> dict[str, Any]:
    return {
        "content": [{"token": token, "logprob": value, "bytes": None, "top_logprobs": []} for token, value in pairs]
    }


CHAT: dict[str, tuple[Reply, float | None]] = {
    "plain": (chat("New York", tokens(("New", -0.1), (" York", -0.2))), 1 - math.exp(-0.3)),
    "ended": (chat("Rome", tokens(("Rome", -0.1), ("<|eot|>", -3.0))), 1 - math.exp(-0.1)),  # no token of the answer
    "bytes": (chat("é", tokens(("bytes:\\xc3", -0.2), ("bytes:\\xa9", -0.4))), 1 - math.exp(-0.6)),
    "certain": (chat("Rome", tokens(("Rome", 0.0))), 0.0),
    "empty": (chat("", tokens()), 1.0),
    "missing": (chat("Rome", None), None),  # a server that gives them left them out: no answer
    "impossible": (chat("Rome", tokens(("Rome", -9999.0))), None),
}


def test_chat_replies_of_every_shape_are_scored_by_their_tokens(tmp_path: Path) -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        name = next((name for name in CHAT if f"{MARK} is {name}?" in call.text), None)
        return CHAT[name][0] if name else None

    with Server(fault=fault) as server:
        done = state(tmp_path / "w", server, *CHAT)
    for told, (_, uncertainty) in zip(done.queries, CHAT.values(), strict=True):
        if uncertainty is None:
            assert (told.rounds, told.final) == ((), None)
            assert told.failure.startswith("malformed")
        else:
            assert [round_.uncertainty for round_ in told.rounds] == pytest.approx([uncertainty] * 2)
    known = [uncertainty for _, uncertainty in CHAT.values() if uncertainty is not None]
    assert done.means["documents"] == pytest.approx(sum(known) / len(known))


def test_completions_are_scored_where_there_is_no_chat(tmp_path: Path) -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        if MARK not in call.text:
            return None
        found = {"tokens": [" New", " York"], "token_logprobs": [-0.1, -0.2], "text_offset": [0, 4]}
        choice = {"index": 0, "text": " New York", "finish_reason": "stop", "logprobs": found}
        return ok({"model": "m", "choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})

    with Server(
        chat=False, fault=lambda s, c, n: None if c.path.endswith("/chat/completions") else fault(s, c, n)
    ) as server:
        done = state(tmp_path / "w", server, "plain")
        prompts = [call.body["prompt"] for call in server.asked(MARK) if call.path.endswith("/v1/completions")]
    assert [t.uncertainty for t in done.queries[0].rounds] == pytest.approx([1 - math.exp(-0.3)] * 2)
    assert [t.answer for t in done.queries[0].rounds] == ["New York"] * 2
    assert all(prompt.endswith("\nAnswer:") for prompt in prompts)


def test_a_server_without_log_probabilities_is_refused_before_the_first_question(tmp_path: Path) -> None:
    with Server(logprobs=False) as server:
        with pytest.raises(LLMError, match="needs log-probabilities") as refused:
            state(tmp_path / "w", server, "a")
        assert server.asked(MARK) == []
        assert "--uncertainty self-consistency" in refused.value.fix
        assert "icl-curate llm check --llm openai:stub" in refused.value.fix  # that found none may have been a glitch
        with pytest.raises(LLMError, match="needs entropies"):
            state(tmp_path / "e", server, "a", estimator="entropy")
        done = state(tmp_path / "s", server, "a", estimator="self-consistency", samples=3)
        sampled = [call for call in server.asked(MARK) if call.body.get("temperature") == 0.7]
        seeds = {call.body.get("seed") for call in sampled}
    assert len(sampled) == (1 + 2 + 1) * 3
    assert len(seeds) == 3
    assert [t.uncertainty for t in done.queries[0].rounds] == [0.0, 0.0]  # this server repeats itself


CONCURRENCY = 4


def test_after_kill_9_only_calls_in_flight_are_asked_again(tmp_path: Path) -> None:
    names, rounds, kills = [f"n{i}" for i in range(6)], 2, 2
    workspace_of(tmp_path / "w", [query(name) for name in names])
    total = len(names) * (1 + 2 + rounds)
    importlib.import_module("openai")  # once, and not in each child
    chance = random.Random(2)
    with Server(delay=0.02) as server:
        command = (
            "calibrate", "--split", "validation", "--rounds", rounds, "--llm", "openai:stub", "--base-url", server.url,
            "-j", CONCURRENCY, "-w", tmp_path / "w", "--json",
        )  # fmt: skip
        for _ in range(kills):
            child = begun(lambda: run_command(*command))
            goal = len(server.asked(MARK)) + chance.randint(6, 10)
            deadline = time.monotonic() + PATIENCE
            while len(server.asked(MARK)) < goal:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            kill(child)
            time.sleep(0.1)
        done = run_command(*command)
        assert done.code == 0, done.err
        asked = [call.text for call in server.asked(MARK)]
    told = done.json
    assert (told["calls"], len(set(asked))) == (total, total)
    assert 0 < told["cached_calls"] < total
    assert len(asked) - total <= kills * CONCURRENCY  # nothing that was safe is paid again
    assert all(len(q["rounds"]) == rounds + 1 for q in told["queries"])
