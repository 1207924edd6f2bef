"""Servers that answer the probe and then fail: nothing was measured, so nothing is told, stored as done or decided."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from factories.commands import Ran, Run
from factories.copies import indexed, lines
from factories.servers import Call, Reply, Server, error, ok
from icl_curate.engine.select.lock import FILE
from icl_curate.engine.store import runs
from icl_curate.engine.store.versions import versions
from icl_curate.engine.store.workspace import Workspace

LABELS = ("billing", "refunds", "delivery")
ASKED = "ticket"
"""Is in every text of the pool, and in no probe."""

COMMANDS = {
    "evaluate": ("evaluate", "-m", "bm25,zero", "--split", "validation", "--seeds", 1),
    "tune": ("tune", "-m", "bm25"),
    "calibrate": ("calibrate", "--split=validation", "-r", 1, "--uncertainty", "self-consistency", "-m", "bm25"),
    "sources": ("train", "sources", "--depth", 2, "--ranking", "bm25"),
    "rows": ("train", "rows", "--ranking", "bm25"),
    "datamodel": ("train", "datamodel", "--ranking", "bm25", "--prompts", 3),
    "curate": ("curate", "--max-calls", 140, "-m", "bm25", "--yes"),
    "preview": ("preview", "a ticket about nothing", "--answer", "-m", "bm25"),
    "watch": ("watch", "asked.jsonl", "--ask", "-m", "bm25"),
}


def filtered(server: Server, call: Call) -> Reply:
    body = server.chat_reply(call)
    body["choices"][0] |= {"finish_reason": "content_filter", "message": {"role": "assistant", "content": None}}
    return ok(body)


FAULTS: dict[str, Callable[[Server, Call], Reply]] = {
    "400": lambda server, call: error(400, "thinking is not supported by this model"),
    "429": lambda server, call: error(429, "slow down", "rate_limit_exceeded"),
    "500": lambda server, call: error(500, "out of order"),
    "an error in a 200": lambda server, call: ok({"error": {"message": "the upstream is gone"}}),
    "filtered": filtered,
}


def labelled(server: Server, call: Call) -> Reply:
    """A good answer, right for two tickets of three."""
    body = server.chat_reply(call)
    number = int(call.text.rsplit("number ", 1)[1].split()[0])
    body["choices"][0]["message"]["content"] = LABELS[number % 3 if number % 3 else 1]
    return ok(body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("ICL_CURATE_ATTEMPTS", "1")
    with Server(logprobs=False) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    def rows(name: str, count: int) -> list[dict[str, str]]:
        return [
            {"id": f"{name}{i}", "input": f"ticket {name} number {i} of them", "output": LABELS[i % 3],
             "source": f"s{i % 2}"}
            for i in range(count)
        ]  # fmt: skip

    (tmp_path / "asked.jsonl").write_text(lines(rows("w", 12)))
    return indexed(tmp_path / "w", pool=lines(rows("p", 24)), validation=lines(rows("q", 20)))


def asking(run: Run, workspace: Workspace, server: Server, name: str, *more: object) -> Ran:
    words = [workspace.path.parent / word if str(word).endswith(".jsonl") else word for word in COMMANDS[name]]
    return run(*words, *more, "-k", 2, "--llm", "openai:stub", "--base-url", server.url, "-w", workspace.path)


EACH = ("400", "500", "filtered")
"""A refusal, a failure and a reply without an answer: what commands tell apart. One command meets all `FAULTS`."""


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name in COMMANDS for fault in (FAULTS if name == "evaluate" else EACH)]
)
def test_where_no_prompt_is_answered_the_command_ends_with_the_reason_and_its_run_is_not_done(
    run: Run, workspace: Workspace, server: Server, name: str, fault: str
) -> None:
    server.fault = lambda server, call, seen: FAULTS[fault](server, call) if ASKED in call.text else None
    ran = asking(run, workspace, server, name)
    assert ran.code == 3 and (name == "curate" or not ran.out), ran
    [line] = [line for line in ran.err.splitlines() if line.startswith("error:")]
    told = {"400": "thinking is not supported", "429": "slow down", "500": "out of order"}
    assert told.get(fault, {"filtered": "content filter"}.get(fault, "upstream is gone")) in line
    # what may be charged ends after twenty in a row
    assert "0.000" not in ran.err and ("no answer to" in line or "gives no answers: 20" in line)
    assert [one.status for one in runs.runs(workspace)] == ["failed"] * len(runs.runs(workspace))


@pytest.mark.parametrize("name", ["evaluate", "tune", "curate", "rows"])
def test_a_server_whose_answers_are_all_empty_is_given_up_after_twenty(
    run: Run, workspace: Workspace, server: Server, name: str
) -> None:
    def empty(server: Server, call: Call, seen: int) -> Reply | None:
        body = server.chat_reply(call)
        body["choices"][0]["message"]["content"] = " "
        return ok(body) if ASKED in call.text else None

    server.fault = empty
    ran = asking(run, workspace, server, name, "--max-calls", 2000)
    assert ran.code == 3 and "gives no answers: 20 empty of 20 replies in a row" in ran.err, ran
    assert len([call for call in server.calls if ASKED in call.text]) < 40


def some_fail(server: Server, bad: int, ways: Callable[[Server, Call], Reply]) -> None:
    """Of ten validation queries so many get no answer, the others a good one."""

    def fault(server: Server, call: Call, seen: int) -> Reply | None:
        if ASKED not in call.text:
            return None
        number = int(call.text.rsplit("number ", 1)[1].split()[0])
        return ways(server, call) if number % 10 < bad else labelled(server, call)

    server.fault = fault


def test_what_failed_is_missing_and_widens_the_figure(run: Run, workspace: Workspace, server: Server) -> None:
    some_fail(server, 1, FAULTS["429"])
    ran = asking(run, workspace, server, "evaluate", "--json")
    zero = ran.json["methods"]["zero"]
    states = zero["outcomes"]
    assert (states["failed"], states["right"] + states["wrong"]) == (2, 18)
    assert zero["accuracy"] == states["right"] / 18
    told = asking(run, workspace, server, "evaluate").out
    low, high = states["right"] / 20, (states["right"] + 2) / 20
    assert f"{low:.3f}–{high:.3f}" in told and "slow down" in told
    assert "36 answers of openai:stub, 36 from the cache, 4 prompts without an answer" in " ".join(told.split())
    assert "WARNING" not in told and zero["versus"] is not None


def test_what_was_refused_counts_as_not_right_and_is_told_apart(run: Run, workspace: Workspace, server: Server) -> None:
    some_fail(server, 3, FAULTS["400"])
    zero = asking(run, workspace, server, "evaluate", "--json").json["methods"]["zero"]
    states = zero["outcomes"]
    assert (states["refused"], states["failed"]) == (6, 0)
    assert zero["accuracy"] == states["right"] / 20
    assert "thinking is not supported" in states["reason"]


@pytest.mark.parametrize("name", ["tune", "evaluate", "curate"])
def test_where_the_server_refuses_most_requests_there_is_no_figure(
    run: Run, workspace: Workspace, server: Server, name: str
) -> None:
    some_fail(server, 9, FAULTS["400"])
    ran = asking(run, workspace, server, name)
    assert ran.code == 3 and "thinking is not supported" in ran.err, ran


@pytest.mark.parametrize("name", ["tune", "sources", "calibrate", "evaluate", "curate"])
def test_where_more_than_a_tenth_failed_nothing_is_decided(
    run: Run, workspace: Workspace, server: Server, name: str
) -> None:
    some_fail(server, 3, FAULTS["429"])
    ran = asking(run, workspace, server, name)
    assert "too many to decide anything" in " ".join((ran.out + ran.err).split())
    assert ran.code == (3 if name == "sources" else 0)
    if name == "evaluate":
        shown = asking(run, workspace, server, name, "--json").json["methods"]
        assert all("versus" not in row for row in shown.values())
    if name == "tune":
        assert json.loads(asking(run, workspace, server, name, "--json").out)["worth_it"] is False


def test_where_every_reply_is_unusable_the_zero_is_true_and_loud(
    run: Run, workspace: Workspace, server: Server
) -> None:
    def odd(server: Server, call: Call) -> Reply:
        body = server.chat_reply(call)
        body["choices"][0]["message"]["content"] = "I would rather talk of the weather"
        return ok(body)

    server.fault = lambda server, call, seen: odd(server, call) if ASKED in call.text else None
    ran = asking(run, workspace, server, "evaluate")
    assert ran.code == 0 and "0.000" in ran.out
    assert "NO reply could be read, such as: I would rather talk of the weather" in " ".join(ran.out.split())


@pytest.mark.parametrize(
    "command", [("train", "sources"), ("tune",), ("train", "topics"), ("calibrate", "--split=validation")]
)
def test_where_nothing_is_indexed_yet_that_is_said_before_the_llm_is_loaded(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    Workspace.create(tmp_path / "w")
    done = run(*command, "-w", tmp_path / "w", "--llm", f"hf:{tmp_path / 'absent.gguf'}", "--max-calls", 10)
    assert done.code == 2 and " POOL.jsonl" in done.err and "absent.gguf" not in done.err


def test_a_curation_that_measured_nothing_locks_nothing(run: Run, workspace: Workspace) -> None:
    words = ("curate", "--max-calls", 1, "-m", "bm25", "-k", 2, "--llm", "offline", "--yes", "-w", workspace.path)
    done = run(*words)
    assert done.code == 0 and "nothing was measured; give a higher --max-calls" in done.out
    assert "serve with" not in done.out and "locked" not in done.out
    assert not versions(workspace) and not (workspace.path / FILE).exists()
