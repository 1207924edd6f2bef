"""Answers written to a file and replayed from it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import duckdb
import pytest
from factories.commands import Run
from factories.gullible_world import Gullible
from factories.models import CHAT, save_model
from icl_curate.engine.backends.hf.model import LocalModel
from icl_curate.engine.backends.recorded import RecordedLLM, record
from icl_curate.engine.base.errors import LLMError, UsageError
from icl_curate.engine.base.progress import Monitor
from icl_curate.engine.llm import runner
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.pace import explain
from icl_curate.engine.llm.probing import probe
from icl_curate.engine.llm.types import Answer, Failure, LLMSettings, Request, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store.workspace import Workspace


def _request(question: str, choices: tuple[str, ...] = ()) -> Request:
    prompt = Prompt((Message("user", question),), Query(question), (), choices)
    return Request(prompt, bool(choices), Sampling(max_tokens=5))


REQUESTS = [_request("Which animal barks?"), _request("Which colour?", ("blue", "the dog"))]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Answer]]:
    folder = tmp_path_factory.mktemp("recorded")
    workspace = Workspace.create(folder / "w")
    backend = LocalModel(str(save_model(folder / "model", "llama", CHAT)), LLMSettings(dtype="float32"))
    with pytest.raises(LLMError, match="no answers"):
        record(workspace, backend, folder / "none.parquet")
    probe(workspace, backend)
    given = runner.ask(workspace, backend, REQUESTS, LLMSettings(), Budget())
    assert record(workspace, backend, folder / "answers.parquet") == 2
    return folder / "answers.parquet", [answer for answer in given if isinstance(answer, Answer)]


def test_a_recording_overwrites_nothing_that_it_should_not(tmp_path: Path) -> None:
    workspace, taken = Workspace.create(tmp_path / "w"), tmp_path / "taken.parquet"
    taken.write_text("theirs")
    database = workspace.path / "workspace.duckdb"
    for path, force, why in ((taken, False, "exists"), (tmp_path, True, "no file"), (database, True, "part of")):
        with pytest.raises(UsageError, match=why):
            record(workspace, Gullible(), path, force)
    with pytest.raises(LLMError, match="no answers"):
        record(workspace, Gullible(), taken, force=True)
    assert taken.read_text() == "theirs"


def test_a_taken_file_is_told_before_a_model_is_loaded(tmp_path: Path, run: Run) -> None:
    workspace, taken = Workspace.create(tmp_path / "w"), tmp_path / "taken.parquet"
    taken.write_text("theirs")
    done = run("llm", "record", taken, "--llm", f"hf:{tmp_path / 'none'}", "-w", workspace.path)
    assert done.code == 2 and f"{taken} exists" in done.err


def test_a_recording_sends_nothing_and_does_not_say_so(tmp_path: Path, run: Run) -> None:
    workspace = Workspace.create(tmp_path / "w")
    server = ("--llm", "openai:some", "--base-url", "http://127.0.0.1:1/v1")
    done = run("llm", "record", tmp_path / "answers.parquet", *server, "-w", workspace.path)
    assert done.code == 3 and "has no answers of openai:some" in done.err and "prompts go to" not in done.err


def test_a_replay_gives_the_answers_that_were_recorded_and_no_others(
    recording: tuple[Path, list[Answer]], tmp_path: Path
) -> None:
    file, given = recording
    backend = RecordedLLM(str(file))
    workspace = Workspace.create(tmp_path / "w")
    capabilities = probe(workspace, backend)
    assert (capabilities.logprobs, capabilities.scoring, capabilities.context_tokens) == (True, True, 512)
    replayed = runner.ask(workspace, backend, REQUESTS, LLMSettings(), Budget())
    for was, now in zip(given, replayed, strict=True):
        assert isinstance(now, Answer)
        assert (now.text, now.tokens, now.finish, now.tokens_in) == (was.text, was.tokens, was.finish, was.tokens_in)
        assert (now.logprobs, now.option_logprobs, now.entropies) == (
            was.logprobs,
            was.option_logprobs,
            was.entropies,
        )
        assert now.latency == 0.0  # nothing that differs from one recording to the next
    (other,) = asyncio.run(backend.ask([_request("Which animal purrs?")]))
    assert isinstance(other, Failure) and (other.kind, other.fatal, other.retryable) == ("missing", False, False)
    assert "llm record FILE" in explain(other, backend.spec).fix


def test_prompts_that_were_not_recorded_are_counted_and_named_and_the_others_are_answered(
    recording: tuple[Path, list[Answer]], tmp_path: Path
) -> None:
    workspace, notes = Workspace.create(tmp_path / "w"), []
    asked = [*REQUESTS, _request("Which animal purrs?"), _request("Which animal sings?")]
    backend = RecordedLLM(str(recording[0]))
    found = runner.ask(
        workspace, backend, asked, LLMSettings(), Budget(), monitor=Monitor(lambda event: notes.append(event.note))
    )
    assert [isinstance(each, Answer) for each in found] == [True, True, False, False]
    assert [each.kind for each in found if isinstance(each, Failure)] == ["missing"] * 2
    (told,) = filter(None, notes)
    assert "2 prompts" in told and "answers.parquet has no answer to this prompt for 'Which animal purrs?'" in told


def test_what_is_no_recording_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("no")
    os.mkfifo(tmp_path / "pipe.parquet")
    details = json.dumps({"identity": {}, "capabilities": {}})
    for name, told, tokens in (("told", "[]", "['a']"), ("empty", "{}", "['a']"), ("typed", details, "17")):
        values = (
            f"'k'::BLOB AS key, '' AS llm, '' AS model, '' AS text, {tokens} AS tokens, [0.0] AS logprobs,"
            " [[0.0]] AS option_logprobs, '' AS finish, 1 AS tokens_in, 1 AS tokens_out, 0.0 AS latency,"
            " 1 AS attempts, [0.0] AS entropies"
        )
        path = tmp_path / f"{name}.parquet"
        duckdb.execute(f"COPY (SELECT {values}) TO '{path}' (KV_METADATA {{'icl-curate': '{told}'}})")
    for name in ("x.parquet", "nowhere.parquet", "pipe.parquet", "told.parquet", "empty.parquet", "typed.parquet"):
        with pytest.raises(LLMError) as caught:
            asyncio.run(RecordedLLM(str(tmp_path / name)).probe())
        assert "llm record" in caught.value.fix


def test_the_command_writes_a_file_that_the_option_reads(tmp_path: Path) -> None:
    from factories.commands import run_command

    model = save_model(tmp_path / "model", "llama", CHAT)
    rows = [{"input": f"what is {i}?", "output": ("odd" if i % 2 else "even")} for i in range(8)]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "val.jsonl").write_text(
        "".join(json.dumps(row | {"input": "is it " + row["input"]}) + "\n" for row in rows)
    )
    ways = ["-w", str(tmp_path / "w")]
    run_command(*["index", str(tmp_path / "pool.jsonl"), "--validation", str(tmp_path / "val.jsonl"), *ways])
    asked = ["evaluate", "-m", "zero,bm25", "-k", "2", "--split", "validation", "--json", *ways]
    live = json.loads(run_command(*[*asked, "--llm", f"hf:{model}"]).out)
    file = tmp_path / "answers.parquet"
    run_command(*["llm", "record", str(file), "--llm", f"hf:{model}", *ways])
    fresh = ["-w", str(tmp_path / "fresh")]
    run_command(*["index", str(tmp_path / "pool.jsonl"), "--validation", str(tmp_path / "val.jsonl"), *fresh])
    again = json.loads(run_command(*[*asked[:-2], *fresh, "--llm", f"replay:{file}"]).out)
    for name, figures in live["methods"].items():
        assert again["methods"][name]["accuracy"] == figures["accuracy"]
