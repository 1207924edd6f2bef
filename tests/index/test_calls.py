"""Tool calls: from chats and tables to outputs, what the LLM reads of the tools, and back to a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from icl_curate.engine.export.corpus import ExportPlan, export
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.index.readers.records import BadRecord
from icl_curate.engine.index.rows import Mapper, Row
from icl_curate.engine.pool.records import Query, history_of
from icl_curate.engine.prompting.template import build_prompt
from icl_curate.engine.store.demonstrations import active_rows, fetch, task_of
from icl_curate.engine.store.workspace import Workspace

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "weather", "description": "Weather of a city", "parameters": CITY}
ALARM = {"name": "alarm", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": ALARM}]


def said(role: str, content: str | None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def calling(*calls: tuple[str, dict[str, Any]], content: str | None = None) -> dict[str, Any]:
    named = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for i, (name, arguments) in enumerate(calls)
    ]
    return said("assistant", content, tool_calls=named)


ULM = [{"name": "weather", "arguments": {"city": "Ulm"}}]
BOTH = [*ULM, {"name": "weather", "arguments": {"city": "Graz"}}]
CHATS = [
    [said("system", "Be brief."), said("user", "Weather in Ulm?"), calling(("weather", {"city": "Ulm"}))],
    [said("system", "Be brief."), said("user", "Wake me at 7"), calling(("alarm", {"at": "7:00"}), content="Sure.")],
    [said("system", "Be brief."), said("user", "Thanks!"), said("assistant", "You are welcome.")],
    [
        said("system", "Be brief."), said("user", "Ulm and Graz?"),
        calling(("weather", {"city": "Ulm"}), ("weather", {"city": "Graz"})),
        said("tool", "rain", tool_call_id="c0"), said("tool", "sun", tool_call_id="c1"),
        said("assistant", "Rain, then sun."), said("user", "Wake me at 8"), calling(("alarm", {"at": "8:00"})),
    ],
]  # fmt: skip


def chats(n: int) -> list[dict[str, Any]]:
    return [{"id": f"c{i}", "messages": CHATS[i % len(CHATS)], "tools": TOOLS} for i in range(n)]


def read(rows: list[dict[str, Any]]) -> list[Row | BadRecord]:
    mapper = Mapper({})
    mapper.survey(rows)
    return [row for record in rows for row in mapper.rows(record)]


def rows_of(rows: list[dict[str, Any]]) -> list[Row]:
    return [row for row in read(rows) if isinstance(row, Row)]


def test_answers_that_call_are_json_and_what_was_said_beside_them_is_kept() -> None:
    rows = rows_of(chats(4))
    assert [row.output for row in rows] == [
        json.dumps(ULM),
        '[{"name": "alarm", "arguments": {"at": "7:00"}}]',
        "[]",
        json.dumps(BOTH),
        '[{"name": "alarm", "arguments": {"at": "8:00"}}]',
    ]
    assert [json.loads(row.metadata).get("said") for row in rows] == [None, "Sure.", "You are welcome.", None, None]
    history = history_of(rows[-1].history) or ()
    assert [(turn.role, turn.content) for turn in history[1:]] == [
        ("user", "Ulm and Graz?"), ("assistant", json.dumps(BOTH)), ("tool", "rain\nsun"),
        ("assistant", "Rain, then sun."),
    ]  # fmt: skip


def test_the_llm_reads_the_tools_once_where_all_have_the_same(tmp_path: Path) -> None:
    store = pool(tmp_path, chats(8))
    task, shots = task_of(store), fetch(store, active_rows(store))[:3]
    assert task.form == "calls"
    prompt = build_prompt(shots[0].as_query(), shots[1:], task)
    opening = prompt.messages[0].content
    assert opening.startswith("Be brief.\n\nYou can call these tools:\n")
    assert [json.loads(line) for line in opening.splitlines()[3:5]] == [WEATHER, ALARM]
    assert "or [] if none is" in opening.splitlines()[5]
    assert prompt.text.count('"description": "Weather of a city"') == 1
    typed = build_prompt(Query("Weather in Bern?"), shots[1:], task)
    assert typed.messages[0].content == opening


def test_other_tools_stand_with_the_question_that_has_them(tmp_path: Path) -> None:
    rows = [{**row, "tools": TOOLS[i % 2 :]} for i, row in enumerate(chats(8))]
    store = pool(tmp_path, rows)
    shots = fetch(store, active_rows(store))
    prompt = build_prompt(shots[1].as_query(), shots[:1], task_of(store))
    asked = [message.content for message in prompt.messages if message.role == "user"]
    assert [text.count('"name": "weather", "desc') for text in (prompt.messages[0].content, *asked)] == [0, 1, 0]


def test_results_of_tools_are_turns_that_can_be_read(tmp_path: Path) -> None:
    store = pool(tmp_path, chats(8))
    last = fetch(store, active_rows(store))[4]
    turns = build_prompt(last.as_query(), [], task_of(store)).messages
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert turns[3].content == "Tool result: rain\nsun\nAnswer:"


def test_where_few_answers_call_the_others_stay_as_they_are() -> None:
    talk = [{"messages": [said("user", f"Hello {i}"), said("assistant", "Hi!")], "tools": TOOLS} for i in range(6)]
    rows = rows_of([*talk, {"messages": CHATS[0], "tools": TOOLS}])
    assert [row.output for row in rows] == ["Hi!"] * 6 + [json.dumps(ULM)]
    assert "and else in words." in (rows[0].history or "")
    assert rows_of(talk)[0].history == "[]"  # nothing is called, and tools are metadata


@pytest.mark.parametrize(
    "record",
    [
        {"query": "q", "tools": json.dumps(TOOLS), "answers": json.dumps(ULM)},
        {"query": "q", "tools": [WEATHER, ALARM], "output": ULM},
        {"query": "q", "functions": TOOLS, "output": [{"function": {**ULM[0], "arguments": '{"city": "Ulm"}'}}]},
        {
            "conversations": [
                {"from": "human", "value": "q"},
                {"from": "function_call", "value": json.dumps(ULM[0])},
                {"from": "observation", "value": "rain"},
                {"from": "gpt", "value": "It rains."},
            ],
            "tools": json.dumps([WEATHER, ALARM]),
        },
        {"messages": [said("user", "q"), said("assistant", None, function_call=ULM[0])], "tools": TOOLS},
    ],
)
def test_calls_in_their_many_forms(record: dict[str, Any]) -> None:
    (row,) = rows_of([record])
    (system,) = history_of(row.history) or ()
    assert (row.input, row.output, row.answers) == ("q", json.dumps(ULM), [])
    assert [json.loads(line) for line in system.content.splitlines()[1:3]] == [WEATHER, ALARM]


def test_no_call_is_an_answer_of_a_table_too() -> None:
    rows = [{"query": "q", "tools": [WEATHER], "answers": each} for each in (ULM, "[]", [])]
    assert [row.output for row in rows_of(rows)] == [json.dumps(ULM), "[]", "[]"]


def test_what_cannot_be_a_call_is_told() -> None:
    broken = [said("user", "q"), said("assistant", None, tool_calls=[{"function": {"name": "f", "arguments": "{"}}])]
    assert read([{"messages": broken}]) == [BadRecord("the arguments of f are not JSON")]


def pool(folder: Path, rows: list[dict[str, Any]], name: str = "w") -> Workspace:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = Workspace.create(folder / name)
    report = index_pool(store, IndexPlan(paths=(str(path),)))
    assert report.skipped == ()
    return store


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_an_export_is_read_back_as_the_same_calls(tmp_path: Path, form: str) -> None:
    store = pool(tmp_path, chats(8))
    out = tmp_path / f"out.{form}"
    export(store, ExportPlan(out=out, format=form))
    again = Workspace.create(tmp_path / "again")
    assert index_pool(again, IndexPlan(paths=(str(out),))).skipped == ()
    one, other = ({row.id: row for row in fetch(each, active_rows(each))} for each in (store, again))
    for name, row in one.items():
        other_row = other[name]
        assert (row.input, row.output, row.history) == (other_row.input, other_row.output, other_row.history)
        assert row.metadata.get("said") == other_row.metadata.get("said")
    assert task_of(again) == task_of(store)


def test_chats_get_their_calls_back(tmp_path: Path) -> None:
    store = pool(tmp_path, chats(4))
    export(store, ExportPlan(out=tmp_path / "chat.jsonl", format="chat"))
    lines = [json.loads(line) for line in (tmp_path / "chat.jsonl").read_text().splitlines()]
    assert [line["tools"] for line in lines] == [TOOLS] * 5
    assert [line["messages"] for line in lines[:3]] == [_named(chat) for chat in CHATS[:3]]
    assert _named(lines[4]["messages"]) == _named(CHATS[3])


def _named(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with ids of calls as exports give them."""
    renamed, ids = [], dict[str, str]()
    for place, message in enumerate(messages):
        message = dict(message)
        if "tool_calls" in message:
            calls = message["tool_calls"]
            ids = {call["id"]: f"call_{place}_{i}" for i, call in enumerate(calls)}
            message["tool_calls"] = [{**call, "id": ids[call["id"]]} for call in calls]
        if "tool_call_id" in message:
            message["tool_call_id"] = ids[message["tool_call_id"]]
        renamed.append(message)
    return renamed
