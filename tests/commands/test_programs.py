"""A template function and a program through the commands: those run that the user names, and no others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Ran, Run, run_process
from factories.gullible_world import make_held_world
from factories.jobs_world import QUERIES, leave_nothing_running, make_pool
from factories.own_code import Make, modules
from factories.servers import Call, Server, ok
from icl_curate import Selector
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.pool.records import Query
from icl_curate.engine.select.lock import FILE
from icl_curate.engine.store.overview import CURATION
from icl_curate.engine.store.settings import CONFIG
from icl_curate.engine.store.workspace import Workspace
from icl_curate.serving.service import Ask, Service


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_pool(tmp_path)


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "own"))
    yield from modules(tmp_path / "own", monkeypatch)


PROMPT = """
def prompt(query, shots):
    shown = "".join(f"<shot>{shot['input']} is {shot['output']}</shot>" for shot in shots)
    return [{"role": "system", "content": shown}, {"role": "user", "content": f"<ask>{query['input']}</ask>"}]
prompt.icl_answer = "<out>{{ output }}</out>"
"""


def _wrapped(server: Server, call: Call, seen: int) -> Any:
    if "<ask>" not in call.text:
        return None
    message = {"role": "assistant", "content": "It is <out>o1</out>."}
    return ok({"model": "stub-1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}})


def test_a_prompt_by_a_function_is_what_is_sent_and_read(workspace: Workspace, named: Make, run: Run) -> None:
    template = named(PROMPT) + ":prompt"
    with Server(fault=_wrapped, logprobs=False) as server:
        line = ("evaluate", "-m", "bm25", "-k", 2, "--template", template, "-w", workspace.path, "--json")
        planned = run(*line, "--llm", "openai:stub", "--base-url", server.url, "--dry-run")
        assert planned.code == 0 and not server.calls, planned.err
        done = run(*line, "--llm", "openai:stub", "--base-url", server.url)
        sent = [call.body["messages"] for call in server.asked("<ask>")]
        again = run(*line, "--llm", "openai:stub", "--base-url", server.url)
        assert len(server.asked("<ask>")) == len(sent) == planned.json["to_ask"] == 2 * QUERIES  # without shots, too
    assert done.json["methods"]["bm25"]["accuracy"] == pytest.approx(1 / 3)
    assert done.json["graded_by"]["template"].startswith(f"{template} (")
    assert again.json["methods"]["bm25"]["cached_calls"] == QUERIES
    assert {messages[0]["content"].count("<shot>") for messages in sent} == {0, 2}
    assert sent[0][1]["content"].startswith("<ask>query")


SPY = "open({mark!r}, 'w').close()\ndef run(query, shots): return 'x'\n"


@pytest.mark.parametrize("line", ["template = '{}:run'", "llm = 'program:{}:run'", "template = 'program:{}:run'"])
def test_a_workspace_that_names_code_has_none_of_it_imported(
    workspace: Workspace, named: Make, run: Run, tmp_path: Path, line: str
) -> None:
    mark = tmp_path / "imported"
    spy = named(SPY.format(mark=str(mark)))
    (workspace.path / CONFIG).write_text(line.format(spy))
    for command in (
        ["status"],
        ["evaluate", "-m", "bm25"],
        ["evaluate", "-m", "bm25", "--llm", "offline", "--template", "auto"],
        ["preview", "query", "-m", "bm25", "--answer"],
        ["check"],
        ["curate", "--dry-run"],
        ["export", tmp_path / "out.jsonl"],
        ["lock", "-m", "bm25"],
        ["llm", "check"],
    ):
        done = run(*command, "-w", workspace.path)
        if command != ["status"]:
            assert done.code == 2 and "which only you may" in done.err, (command, done.err)
    with pytest.raises(UsageError, match="which only you may"):
        Selector(workspace.path)
    assert not mark.exists()
    if line.startswith("llm"):  # the same word of the user's own lets it run
        (workspace.path / CONFIG).unlink()
        assert run("evaluate", "-m", "bm25", "--llm", f"program:{spy}:run", "-w", workspace.path).code == 0
        assert mark.exists()


def test_a_lock_names_no_code(
    workspace: Workspace, named: Make, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("lock", "-m", "bm25", "-w", workspace.path).code == 0
    lock, mark = workspace.path / FILE, tmp_path / "imported"
    spy = named(SPY.format(mark=str(mark)))
    written = json.loads(lock.read_text())
    written["settings"]["template"] = f"{spy}:run"
    lock.write_text(json.dumps(written))
    with pytest.raises(UsageError, match=f"the lock names the template {spy}:run, which only you may"):
        Selector.locked(workspace.path)
    assert run("lock", "--check", "-w", workspace.path).code == 2
    assert not mark.exists()


def test_an_unfinished_curation_names_no_code(named: Make, run: Run, tmp_path: Path) -> None:
    world, mark = make_held_world(tmp_path / "w2"), tmp_path / "imported"
    spy = named(SPY.format(mark=str(mark)))
    written = json.loads((world.path / CURATION).read_text()) | {"limit": 0}
    del written["key"]["graded_by"]
    (world.path / CURATION).write_text(json.dumps(written | {"key": written["key"] | {"k": -3}}))
    refused = run("curate", "--reject", "-w", world.path)
    assert refused.code == 2 and "k is -3" in refused.err
    (world.path / CURATION).write_text(json.dumps(written | {"key": written["key"] | {"llm": f"program:{spy}:run"}}))
    for line in (["status"], ["report"], ["curate"], ["curate", "--reject"], ["lock", "--check"]):
        assert run(*line, "-w", world.path).code in (0, 2), line
    assert (world.path / FILE).exists() and not mark.exists()


def test_a_lock_of_a_template_function_serves_that_version_alone(
    workspace: Workspace, named: Make, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = named(PROMPT) + ":prompt"
    monkeypatch.setenv("ICL_CURATE_TEMPLATE", template)
    assert run("lock", "-m", "bm25", "-k", 3, "-w", workspace.path).code == 0
    lock = workspace.path / FILE
    written = json.loads(lock.read_text())
    assert written["settings"]["template"] == template
    prompt = Selector.locked(workspace.path).prompt("query1 tells what")
    assert prompt.messages[-1].content == "<ask>query1 tells what</ask>"
    written["graded_by"]["template"] = f"{template} (000000000000)"
    lock.write_text(json.dumps(written))
    with pytest.raises(UsageError, match=f"{template} has changed since it was judged") as changed:
        Selector.locked(workspace.path)
    assert changed.value.fix == f"icl-curate lock --method bm25 --shots 3 --template {template}"


def test_a_lock_of_a_program_selects_but_has_no_prompt(
    workspace: Workspace, named: Make, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = named("def answer(query, shots): return 'o1'") + ":answer"
    monkeypatch.setenv("ICL_CURATE_LLM", f"program:{program}")
    assert run("lock", "-m", "bm25", "-w", workspace.path).code == 0
    for llm in (f"program:{program}", "offline"):  # a service does not name the program
        monkeypatch.setenv("ICL_CURATE_LLM", llm)
        selector = Selector.locked(workspace.path)
        assert selector.select("query1 tells what")
        with pytest.raises(UsageError, match=f"the program {program}, which makes its own prompts"):
            selector.prompt("query1 tells what")
    service = Service(workspace.path, selector.settings, locked=True)
    try:
        ask = Ask((Query("query1 tells what"),), "bm25", 3)
        assert isinstance(service.answer([ask])[0], list)
        assert isinstance(service.answer([replace(ask, prompts=True)])[0], UsageError)
    finally:
        service.close()


def _process(*arguments: object, path: Path) -> Ran:
    """A command that finds modules in this folder, and no compiled ones: two edits may be of the same second."""
    os.environ |= {"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    return run_process(*arguments)


def test_a_changed_helper_asks_again_and_is_not_what_was_locked(workspace: Workspace, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "answering.py").write_text("from helping import WORD\ndef answer(query, shots): return WORD\n")
    (own / "helping.py").write_text("WORD = 'o1'\n")
    (own / "beside.py").write_text("")
    line = ("evaluate", "-m", "bm25", "--llm", "program:answering:answer", "-w", workspace.path, "--json")

    def used() -> tuple[int, float]:
        done = _process(*line, path=own)
        assert done.code == 0, done.err
        measured = done.json["methods"]["bm25"]
        return measured["cached_calls"], round(measured["accuracy"], 3)

    assert used() == (0, 0.333)
    (workspace.path.parent / "user.toml").write_text("llm = 'program:answering:answer'\nmethod = 'bm25'\n")
    os.environ["ICL_CURATE_CONFIG"] = str(workspace.path.parent / "user.toml")
    assert _process("lock", "-w", workspace.path, path=own).code == 0
    (own / "beside.py").write_text("CHANGED = 1\n")
    assert used() == (QUERIES, 0.333)
    assert _process("lock", "--check", "-w", workspace.path, path=own).code == 0
    (own / "helping.py").write_text("WORD = 'nothing of the kind'\n")
    assert used() == (0, 0.0)
    changed = _process("lock", "--check", "-w", workspace.path, path=own)
    assert changed.code == 2 and "program:answering:answer has changed since it was judged" in changed.err


def test_a_job_carries_the_code_that_was_named(workspace: Workspace, named: Make, run: Run) -> None:
    program = "program:" + named("def answer(query, shots): return shots[0]['output'] if shots else 'o1'") + ":answer"
    try:
        begun = run("evaluate", "-m", "bm25", "--llm", program, "-w", workspace.path, "--background", "--json")
        assert begun.code == 0, begun.err
        done = run("jobs", "follow", "-w", workspace.path, "--json")
        assert done.code == 0 and done.json["llm"] == program, done.err
    finally:
        leave_nothing_running(workspace)


def test_a_budget_of_dollars_wants_a_program_that_says_what_it_costs(
    workspace: Workspace, named: Make, run: Run
) -> None:
    module = named(
        "from icl_curate import Reply\n"
        "def tells(query, shots): return Reply('o1', cost=0.001)\n"
        "def answer(query, shots): return 'o1'\n"
    )
    line = ("evaluate", "-m", "bm25", "-w", workspace.path, "--max-cost", "1")
    refused = run(*line, "--llm", f"program:{module}:answer")
    assert refused.code == 2 and "does not say what its runs cost" in refused.err and "--max-calls" in refused.err
    assert run(*line, "--llm", f"program:{module}:tells").code == 0
    dry = run(*line, "--llm", f"program:{module}:tells", "--dry-run", "--json")
    assert dry.json["cost"] is None and "the program" in dry.json["destination"]
    assert "known when its runs are done" in run(*line, "--llm", f"program:{module}:tells", "--dry-run").out


def test_methods_that_ask_in_their_own_words_refuse_a_program(workspace: Workspace, named: Make, run: Run) -> None:
    program = "program:" + named("def answer(query, shots): return 'o1'") + ":answer"
    for more in (["-m", "rerank"], ["-m", "bm25", "--metric", "judge"]):
        done = run("evaluate", *more, "--llm", program, "-w", workspace.path)
        assert done.code == 3 and "needs answers to free instructions" in done.err, done.err


def test_a_prompt_beside_a_program_is_refused_before_the_program_is_imported(
    workspace: Workspace, named: Make, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "imported"
    program = f"program:{named(SPY.format(mark=str(mark)))}:run"
    (tmp_path / "own.jinja").write_text("{{ query.input }}")
    line = ("evaluate", "-m", "bm25", "--llm", program, "-w", workspace.path)
    for name, value in (("template", "xml"), ("template", str(tmp_path / "own.jinja")), ("prompt-format", "SQ-A")):
        done = run(*line, f"--{name}", value)
        assert done.code == 2 and "makes its own prompts" in done.err and "set it to 'auto'" in done.err, done.err
    monkeypatch.setenv("ICL_CURATE_INSTRUCTION", "Answer.")
    assert "instruction is 'Answer.', but the program" in run(*line).err
    monkeypatch.delenv("ICL_CURATE_INSTRUCTION")
    assert not mark.exists()
    monkeypatch.setenv("ICL_CURATE_TEMPLATE", "xml")  # what stands in a file is set aside by a flag
    assert run(*line, "--template", "auto").code == 0


def test_a_chat_export_has_the_turns_of_a_function_and_not_what_a_program_is_given(
    workspace: Workspace, named: Make, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = named(PROMPT)
    out = tmp_path / "chat.jsonl"
    done = run("export", out, "-f", "chat", "--template", f"{module}:prompt", "-w", workspace.path)
    assert done.code == 0, done.err
    assert "<ask>shot" in out.read_text()
    monkeypatch.setenv("ICL_CURATE_LLM", f"program:{module}:prompt")
    assert run("export", out, "-f", "chat", "--force", "-w", workspace.path).code == 0
    assert "Question: shot" in out.read_text()


def test_what_a_program_reads_is_wanted_of_every_query(workspace: Workspace, named: Make) -> None:
    program = named("def answer(query, shots): return ''\nanswer.icl_reads = ['tier']") + ":answer"
    selector = Selector(workspace.path, method="bm25", llm=f"program:{program}")
    with pytest.raises(UsageError, match="no field 'tier'"):
        selector.select("shot tells")
    assert selector.select({"input": "shot tells", "tier": "gold"})


def test_a_function_has_no_text_to_show(workspace: Workspace, named: Make, run: Run) -> None:
    name = named(PROMPT) + ":prompt"
    shown, checked = (run("template", verb, name, "-w", workspace.path) for verb in ("show", "check"))
    assert shown.code == 2 and "is code, and no text" in shown.err
    assert checked.code == 0 and "<shot>" in checked.out


def test_a_program_that_reads_a_field_that_tells_the_answer_is_not_run(named: Make, run: Run, tmp_path: Path) -> None:
    rows = [{"input": f"ticket {i} of late", "output": f"team {i % 3}", "told": f"team {i % 3}"} for i in range(40)]
    for name, part in (("pool", rows[:20]), ("test", rows[20:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    files = (tmp_path / "pool.jsonl", "--test", tmp_path / "test.jsonl")
    assert run("index", *files, "-w", tmp_path / "w", "--no-encode").code == 0
    mark = tmp_path / "ran"
    program = named(
        f"def answer(query, shots):\n    open({str(mark)!r}, 'w').close()\n    return query['told']\n"
        "answer.icl_reads = ['told']\n"
    )
    done = run("evaluate", "-m", "bm25", "--llm", f"program:{program}:answer", "-w", tmp_path / "w")
    assert done.code == 2 and "the field 'told' tells the answer" in done.err, done.err
    assert not mark.exists()


def test_an_object_that_its_module_lacks_is_told_so(workspace: Workspace, named: Make, run: Run) -> None:
    told = run("template", "check", named(PROMPT) + ":promt", "-w", str(workspace.path))
    assert told.code == 2 and "has no attribute 'promt'" in told.err and "PYTHONPATH" not in told.err
