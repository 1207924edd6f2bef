"""What open answers look like, the instruction that fits them, and the tokens that they take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from icl_curate.engine.base.progress import Event, Monitor
from icl_curate.engine.grading.forms import form_of, tokens_for
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.asking import request_for
from icl_curate.engine.llm.client import client_for
from icl_curate.engine.llm.graded import graded_by
from icl_curate.engine.llm.probing import UNSEEN
from icl_curate.engine.pool.prompts import INSTRUCTIONS, instruction_of
from icl_curate.engine.pool.records import Form, Query, Task
from icl_curate.engine.prompting.template import build_prompt
from icl_curate.engine.store.demonstrations import answer_tokens, task_of
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

SUMMARY = "The council met on Monday to talk about the new bridge, and agreed to pay for half of it over ten years. "
CODE = "def add(a, b):\n    return a + b\n"
OUTPUTS: dict[Form, str] = {
    "short": "Paris",
    "long": SUMMARY,
    "code": CODE,
    "json": '{"order": "A-17", "items": 2}',
    "entities": '[{"text": "Ann", "type": "PER"}]',
    "calls": '[{"name": "weather", "arguments": {"city": "Ulm"}}]',
    "final": "She has 3 + 4 = 7 apples, and eats 2 of them.\n#### 5",
    "boxed": "Half of 10 is \\boxed{5}.",
}


@pytest.mark.parametrize(("form", "output"), OUTPUTS.items())
def test_the_form_is_that_of_nearly_all_outputs(form: Form, output: str) -> None:
    task = Task("open", one_line="\n" not in output)
    assert form_of(task, [output] * 96 + ["Rome"] * 4) == form
    assert form_of(Task("labels"), [output] * 5) == form_of(task, []) == "short"


def test_numbers_and_short_answers_keep_their_instruction() -> None:
    assert form_of(Task("open"), ["7", "1,200", "-3"]) == form_of(Task("open"), ["Paris", "the river Rhine"]) == "short"
    assert instruction_of(Task("open")) == "Answer each question with a few words and nothing else."


def put(path: Path, output: str) -> str:
    path.write_text("".join(json.dumps({"input": f"what about {i}", "output": f"{output}"}) + "\n" for i in range(4)))
    return str(path)


@pytest.mark.parametrize("form", OUTPUTS)
def test_a_pool_asks_for_what_its_outputs_are(tmp_path: Path, form: Form) -> None:
    store = Workspace.create(tmp_path / "w")
    index_pool(store, IndexPlan(paths=(put(tmp_path / "p.jsonl", OUTPUTS[form]),)))
    assert task_of(store).form == form
    assert build_prompt(Query("?"), [], task_of(store)).messages[0].content == INSTRUCTIONS[form]


@pytest.mark.parametrize(("queries", "form", "metric"), [(20, "short", "accuracy"), (19, "long", "rouge-l")])
def test_verified_queries_say_what_answers_are_where_there_are_enough(
    tmp_path: Path, queries: int, form: Form, metric: str
) -> None:
    long = "so that nobody would call it\nshort, " * 8
    pool = [{"input": f"text {i}", "output": long if i % 10 == 0 else f"name {i}"} for i in range(100)]
    asked = [{"input": f"query {i}", "output": f"name {i}"} for i in range(queries)]
    for name, rows in (("pool", pool), ("queries", asked)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    workspace = Workspace.create(tmp_path / "w")
    files = (str(tmp_path / "pool.jsonl"),), (str(tmp_path / "queries.jsonl"),)
    index_pool(workspace, IndexPlan(paths=files[0], validation=files[1]))
    assert task_of(workspace).form == form and graded_by(workspace, Settings()).metric == metric
    assert (answer_tokens(workspace) or 0) > 64, "what is shown may be long"


def test_tokens_fit_all_but_the_longest_outputs() -> None:
    assert tokens_for([]) == tokens_for(["word " * 64] * 99 + ["word " * 900]) == 64
    assert tokens_for(["word " * 65]) == tokens_for(["word " * 85]) == 128
    assert [tokens_for(["word " * n]) for n in (100, 150, 171, 300)] == [192, 256, 384, 512]
    assert tokens_for(["猫" * 260]) > 64


def test_a_final_answer_leaves_room_to_reason() -> None:
    """With 64 tokens, as its rows have, Qwen2.5-Coder-0.5B ended none of 96 of 100 answers to a pool of GSM8K."""
    assert tokens_for(["3 + 4 = 7\n#### 7"], "final") == tokens_for(["it is \\boxed{7}"], "boxed") == 256
    assert tokens_for(["word " * 300], "final") == tokens_for(["word " * 300]) == 512


@pytest.mark.parametrize(("times", "given", "wanted"), [(2, None, 64), (8, None, 384), (8, 64, 64), (2, 9, 9)])
def test_answers_have_room_unless_the_user_says_how_much(
    tmp_path: Path, times: int, given: int | None, wanted: int
) -> None:
    store = Workspace.create(tmp_path / "w")
    index_pool(store, IndexPlan(paths=(put(tmp_path / "p.jsonl", SUMMARY * times),)))
    events: list[Event] = []
    with client_for(store, Settings(max_tokens=given), Monitor(events.append), dry_run=True) as llm:
        request = request_for(build_prompt(Query("?"), [], task_of(store)), llm.settings, UNSEEN)
    assert request.sampling.max_tokens == wanted
    assert any("answers get up to 384 tokens" in event.note for event in events) == (wanted == 384)


def test_a_workspace_of_an_earlier_release_is_described_by_the_next_index(tmp_path: Path) -> None:
    store = Workspace.create(tmp_path / "w")
    path = put(tmp_path / "p.jsonl", SUMMARY * 4)
    index_pool(store, IndexPlan(paths=(path,)))
    with store.write() as con:
        con.execute("DELETE FROM meta WHERE key IN ('form', 'answer_tokens')")
    assert task_of(store).form == "short"
    with client_for(store, Settings(), dry_run=True) as llm:
        assert llm.settings.answer_tokens == 64
    assert index_pool(store, IndexPlan(paths=(path,))).unchanged_files == 1
    assert task_of(store).form == "long"
