"""Every kind of task goes from a file to an export with the built-in reader, which proves that the code runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run

CITIES = ["Ulm", "Graz", "Bern", "Rome", "Oslo"]
TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
LONG = "The council of {0} met on Monday to talk about the bridge over the river, and agreed to pay for half of it. "


def sets(i: int) -> dict[str, Any]:
    labels = [name for k, name in enumerate(("billing", "delivery", "account")) if i >> k & 1]
    return {"text": f"ticket {i} about {' and '.join(labels) or 'nothing'}", "labels": labels}


def calls(i: int) -> dict[str, Any]:
    city = CITIES[i % 5]
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city})}}
    answer = {"content": "Hello!"} if i % 4 == 0 else {"content": None, "tool_calls": [call]}
    asked = f"hello there {i}" if i % 4 == 0 else f"how is the weather in {city} on day {i}"
    messages = [{"role": "user", "content": asked}, {"role": "assistant", **answer}]
    return {"messages": messages, "tools": [{"type": "function", "function": TOOL}]}


def entities(i: int) -> dict[str, Any]:
    found = [] if i % 6 == 0 else [{"text": CITIES[i % 5], "type": "CITY"}]
    return {"text": f"note {i}: Ann is in {CITIES[i % 5]}", "entities": found}


def objects(i: int) -> dict[str, Any]:
    return {"input": f"order {i} of {i % 7} pens to {CITIES[i % 5]}", "output": {"city": CITIES[i % 5], "n": i % 7}}


def final(i: int) -> dict[str, Any]:
    return {"question": f"{i} times {i % 11} and 1 apples?", "answer": f"There are {i % 11} + 1.\n#### {i % 11 + 1}"}


def texts(i: int) -> dict[str, Any]:
    return {"document": i, "text": f"minutes {i} of {CITIES[i % 5]}", "summary": LONG.format(CITIES[i % 5]) * 4}


KINDS = {
    "sets": (sets, "sets", "labels"),
    "calls": (calls, "open", "calls"),
    "entities": (entities, "open", "entities"),
    "json": (objects, "open", "json-f1"),
    "final": (final, "open", "number"),
    "long": (texts, "open", "rouge-l"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_task_from_index_to_export(kind: str, tmp_path: Path, run: Run) -> None:
    make, task, metric = KINDS[kind]
    for name, first, count in (("pool", 0, 40), ("dev", 100, 12), ("test", 200, 12)):
        rows = [{"id": f"{name}{i}", **make(i)} for i in range(first, first + count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    held_out = ("--validation", tmp_path / "dev.jsonl", "--test", tmp_path / "test.jsonl")
    at = ("--workspace", tmp_path / "w")
    index = run("index", tmp_path / "pool.jsonl", *held_out, "--no-encode", "--json", *at)
    assert (index.code, index.json["task"], index.json["skipped"]) == (0, task, [])
    assert run("check", "--json", *at).code == 0
    compared = run("evaluate", "--methods", "zero,bm25", "--seeds", 1, "--json", *at)
    assert (compared.code, compared.json["metric"]) == (0, metric), compared.err
    figures = compared.json["methods"]["bm25"]
    assert 0 < figures["accuracy"] <= 1
    shown = run("evaluate", "--methods", "zero,bm25", "--seeds", 1, *at)
    assert f"{figures['accuracy']:.3f}" in shown.out  # no other column took its place

    assert run("export", tmp_path / "once.jsonl", *at).code == 0
    again = ("--workspace", tmp_path / "again")
    read = run("index", tmp_path / "once.jsonl", "--no-encode", "--json", *again)
    assert (read.json["task"], read.json["demonstrations"], read.json["skipped"]) == (task, 40, [])
    assert run("export", tmp_path / "twice.jsonl", *again).code == 0
    assert (tmp_path / "twice.jsonl").read_text() == (tmp_path / "once.jsonl").read_text()
