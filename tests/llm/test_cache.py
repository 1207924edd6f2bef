"""The cache key and the call tables."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.usage import LLMUsage, usage_in
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.llm.cache import call_key, dump_capabilities, load_capabilities, to_answer, to_call
from icl_curate.engine.llm.types import Answer, Capabilities, Request, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Demonstration, Message, Query
from icl_curate.engine.store import calls
from icl_curate.engine.store.workspace import Workspace

IDENTITY = {"backend": "openai", "model": "m", "base_url": "http://localhost:8000/v1", "endpoint": "auto"}
PROMPT = Prompt((Message("system", "Answer."), Message("user", "Is it? é 日本")), Query("Is it?"), (), ("yes", "no"))
BASE = Request(PROMPT, sampling=Sampling(max_tokens=8))

DRAWN = Sampling(max_tokens=8, temperature=0.7, repeat=1)

# What the keys stand for must not change by accident: every workspace's cache would be lost.
GOLDEN: list[tuple[Request, dict[str, Any], str]] = [
    (BASE, IDENTITY, "0cc6e3aabe8267c47577b01c9fc8873d"),
    (replace(BASE, score=True), IDENTITY, "b3bee5b2cd17f5abbf0dbee0a2b3ac8d"),
    (
        replace(BASE, sampling=Sampling(max_tokens=8, temperature=0.7, repeat=1)),
        IDENTITY,
        "d4e3b76dacc718397cc38c25e80fb3c5",
    ),
    (BASE, {"backend": "offline", "encoder": "x"}, "3abde7598f17d2812dd750f9677a696a"),
]


@pytest.mark.parametrize(("request_", "identity", "key"), GOLDEN)
def test_golden_keys(request_: Request, identity: dict[str, Any], key: str) -> None:
    assert call_key(identity, request_).hex() == key


def test_the_key_changes_with_everything_that_can_change_the_answer_and_with_nothing_else() -> None:
    sampling = BASE.sampling
    others = [
        replace(BASE, score=True),
        replace(BASE, prompt=replace(PROMPT, choices=("no", "yes"))),
        replace(BASE, prompt=replace(PROMPT, choices=())),
        replace(BASE, prompt=replace(PROMPT, messages=PROMPT.messages[1:])),
        replace(BASE, prompt=replace(PROMPT, messages=(Message("user", "Answer."), PROMPT.messages[1]))),
        replace(BASE, sampling=replace(sampling, max_tokens=9)),
        replace(BASE, sampling=replace(sampling, temperature=0.1)),
        replace(BASE, sampling=replace(sampling, top_p=0.9)),
        replace(BASE, sampling=replace(sampling, seed=1)),
        replace(BASE, sampling=replace(sampling, stop=("\n",))),
        replace(BASE, sampling=replace(sampling, repeat=1)),
    ]
    keys = {call_key(IDENTITY, request) for request in [BASE, *others]}
    keys |= {call_key({**IDENTITY, field: "other"}, BASE) for field in IDENTITY}
    assert len(keys) == 1 + len(others) + len(IDENTITY)
    shown = (Demonstration(0, "a", "i", "o", "s"),)
    same = [
        replace(BASE, prompt=replace(PROMPT, query=Query("Is it?", answers=("yes",), id="7", row=7))),
        replace(BASE, prompt=replace(PROMPT, demonstrations=shown)),
        replace(BASE, sampling=replace(sampling, temperature=0)),
    ]
    assert {call_key(dict(reversed(IDENTITY.items())), request) for request in same} == {call_key(IDENTITY, BASE)}


finite = st.floats(max_value=0, allow_nan=False, allow_infinity=False)
answers = st.builds(
    Answer,
    text=st.text().filter(lambda text: not any(0xD800 <= ord(c) < 0xE000 for c in text)),
    logprobs=st.lists(finite, max_size=4).map(tuple),
    option_logprobs=st.lists(st.lists(finite, max_size=3).map(tuple), max_size=3).map(tuple),
    finish=st.sampled_from(["stop", "length"]),
    tokens_in=st.integers(0, 2**40),
    tokens_out=st.integers(0, 2**40),
    latency=st.floats(0, 1e6),
    attempts=st.integers(1, 9),
    model=st.just("m"),
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.create(tmp_path_factory.mktemp("calls") / "w")


def test_answers_come_back_as_they_went_in(workspace: Workspace) -> None:
    @given(st.lists(answers, min_size=1, max_size=40))
    def check(batch: list[Answer]) -> None:
        nonlocal number
        stored = {}
        for answer in batch:
            number += 1
            tokens = tuple(f"t{i}" for i in range(len(answer.logprobs)))
            stored[number.to_bytes(16, "big")] = replace(answer, tokens=tokens)
        calls.record(workspace, [to_call(key, "llm", answer) for key, answer in stored.items()])
        missing = (10**9 + number).to_bytes(16, "big")
        found = calls.lookup(workspace, [*stored, missing, *stored])
        assert {key: to_answer(call) for key, call in found.items()} == {
            key: replace(answer, cached=True) for key, answer in stored.items()
        }

    from hypothesis import settings

    number = 0
    settings(max_examples=15, deadline=None)(check)()


def _call(key: int, llm: str = "a", logprobs: tuple[float, ...] = (-1.0,)) -> calls.Call:
    answer = Answer("x", tuple("t" for _ in logprobs), logprobs, tokens_in=10, tokens_out=2, model="m")
    return to_call(key.to_bytes(16, "big"), llm, answer)


def test_writing_a_batch_twice_keeps_the_first(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    calls.record(workspace, [_call(1), _call(2)])
    calls.record(workspace, [replace(_call(2), text="other"), _call(3)])
    found = calls.lookup(workspace, [_call(i).key for i in (1, 2, 3)])
    assert len(found) == 3
    assert found[_call(2).key].text == "x"


def test_usage_failures_and_forgetting(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    failure = calls.FailedCall(_call(9).key, "b", "refusal", "no")
    calls.record(workspace, [_call(1), _call(2, "b"), _call(3, "b", ())], [failure, failure])
    assert usage_in(workspace) == [LLMUsage("a", 1, 10, 2, 0, 0), LLMUsage("b", 2, 20, 4, 1, 2)]
    calls.forget_without_logprobs(workspace, "b")
    assert usage_in(workspace) == [LLMUsage("a", 1, 10, 2, 0, 0), LLMUsage("b", 1, 10, 2, 0, 0)]
    assert calls.lookup(workspace, []) == {}


def test_capabilities_are_kept_by_identity(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    found = Capabilities(True, False, context_tokens=4096, notes=("é",), details={"dialect": {"without": ["seed"]}})
    assert calls.capabilities(workspace, "one") is None
    calls.save_capabilities(workspace, "one", dump_capabilities(replace(found, logprobs=False)))
    calls.save_capabilities(workspace, "one", dump_capabilities(found))
    text = calls.capabilities(workspace, "one")
    assert text is not None
    assert load_capabilities(text) == found


@pytest.mark.parametrize(("endpoint", "served"), [("chat", False), ("completions", True)])
def test_a_probe_of_before_says_by_its_endpoint_whether_the_served_prompt_is_scored(
    endpoint: str, served: bool
) -> None:
    stored = json.loads(dump_capabilities(Capabilities(True, True, details={"dialect": {"endpoint": endpoint}})))
    del stored["apart"]
    assert load_capabilities(json.dumps(stored)).scores_served is served


def test_uncertainty_of_stored_numbers_is_exact() -> None:
    answer = Answer("x", ("a", "b"), (math.log(0.5), math.log(0.8)))
    assert answer.uncertainty == pytest.approx(1 - 0.4)
    options = Answer("x", option_logprobs=((math.log(0.2), math.log(0.5)), (math.log(0.3),)))
    assert options.uncertainty == pytest.approx(1 - 0.3 / 0.4)
