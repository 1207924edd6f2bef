"""Metrics by name: their values on plain cases and against published implementations, and the default for a pool."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import CurateError, UsageError
from icl_curate.engine.grading.metrics import METRICS, metric_for, metric_named
from icl_curate.engine.grading.readers import reader_named
from icl_curate.engine.pool.records import Query, Task

OPEN = Task("open")
ORDER = json.dumps({"item": "tea", "number": 2, "id": 7})
ENTITY = json.dumps([{"text": "Ann", "type": "PER", "start": 0, "end": 3}])
ENTITY_LIST = json.dumps([{"text": "Ann", "type": "PER"}, {"text": "Graz", "type": "LOC"}])
CALL = json.dumps([{"name": "book", "arguments": {"seat": 1}}, {"name": "pay", "arguments": {}}])


def value(name: str, answer: str, *accepted: str, task: Task = OPEN) -> float:
    return metric_named(name).score(answer, Query("q", answers=accepted), task)


def key(name: str, answer: str, task: Task = OPEN) -> str:
    return metric_named(name).key(answer, Query("q"), task)


@pytest.mark.parametrize(
    ("name", "answer", "accepted", "wanted"),
    [
        ("accuracy", "The  answer", "answer", 1),
        ("accuracy", "-5", "5", 0),
        ("exact", "a \nb\n", "a\nb", 1),
        ("exact", "A", "a", 0),
        ("squad-em", "The Tea!", "tea", 1),
        ("f1", "green tea", "tea", 2 / 3),
        ("rouge-l", "a green cup of tea", "green tea", 4 / 7),
        ("number", "It is 1,000.0 in all", "1000", 1),
        ("number", "so 5 and then −5", "#### -5", 1),
        ("number", "101", "100", 0),
        ("number@0.01", "101", "100", 1),
        ("number@0.01", "101.1", "100", 0),
        ("number", "none", "100", 0),
        ("number", "12 kg", "12kg", 1),
        ("number", "12.0元。", "12", 1),
        ("number", "不是12", "12", 0),
        ("number", "12万", "12", 0),
        ("number", "百分之12", "12", 0),
        ("number", "#### 11:30", "#### 10:30", 0),
        ("number", "#### 10:30", "#### 10:30", 1),
        ("number", "1:4", "3:4", 0),
        ("number", "1/4", "3/4", 0),
        ("number", "2019-03-05", "2020-01-05", 0),
        ("number", "5-10", "10", 0),
        ("number", "15 000", "12\u2009000", 0),
        ("number", "5-3=2, at 9:30 that makes 4", "4", 1),
        ("number", "in 2019 200", "200", 1),
        ("number", "$5", "5€", 0),
        ("number", "5 €", "€5", 1),
        ("json", '{"id": 7.0, "number": 2, "item": "tea"}', ORDER, 1),
        ("json", "Here:\n```json\n" + ORDER + "\n```", ORDER, 1),
        ("json", '{"item": "tea"}', ORDER, 0),
        ("json-f1", '{"item": "tea", "number": 3, "id": 7}', ORDER, 2 / 3),
        ("json-f1@ignore=id,number", '{"item": "tea", "number": 3, "id": 1}', ORDER, 1),
        ("json-f1", "no object", ORDER, 0),
        ("labels", "b, a", "a, b", 1),
        ("labels", "a", "a, b", 2 / 3),
        ("labels", "投诉、咨询，退款。", "咨询, 投诉, 退款", 1),
        ("entities", '[{"text": "Ann", "type": "PER"}]', ENTITY, 1),
        ("entities@span", '[{"text": "Ann", "type": "PER"}]', ENTITY, 0),
        ("calls", '{"name": "pay", "arguments": {}}', CALL, 2 / 3),
        ("calls@ordered", json.dumps(json.loads(CALL)[::-1]), CALL, 1 / 2),
        ("calls", "I need no tool.", "[]", 1),
    ],
)
def test_the_value_of_an_answer(name: str, answer: str, accepted: str, wanted: float) -> None:
    assert value(name, answer, accepted) == pytest.approx(wanted)


def test_a_list_with_bullets_is_a_set_and_a_label_may_begin_with_a_number() -> None:
    leagues = Task("sets", labels=("1. Bundesliga", "2. Bundesliga"))
    assert value("labels", "1. Bundesliga", "2. Bundesliga", task=leagues) == 0
    assert value("labels", "1. Bundesliga", "2. Bundesliga", task=Task("sets")) == 0
    assert value("labels", "b, a", "1. a\n2. b") == 1


@pytest.mark.parametrize("name", ["json", "json-f1", "accuracy"])
def test_a_huge_number_is_a_number(name: str) -> None:
    huge = '{"a": 1e999999999}'
    assert value(name, huge, ORDER) == 0 and value(name, huge, huge) == 1
    assert value(name, '{"a": 1e-999999999}', '{"a": 0}') == 0
    assert key(name, huge) == key(name, '{"a": 10e999999998}')


def test_the_nearest_accepted_answer_counts() -> None:
    assert value("f1", "green tea", "coffee", "green tea") == 1
    assert value("number", "7", "6", "7") == 1


answers = st.text('ab 01.,-{}[]":#\n', max_size=12) | st.sampled_from([ORDER, ENTITY, CALL, "a, b", "1,000"])


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([*METRICS]), answers, answers)
def test_values_are_from_0_to_1_and_1_on_what_can_be_read(name: str, answer: str, accepted: str) -> None:
    metric = metric_named(name)
    assert 0 <= value(name, answer, accepted) <= 1
    if value(name, accepted, accepted) > 0:
        assert value(name, accepted, accepted) == 1
    if metric.binary:
        assert value(name, answer, accepted) in (0, 1)
        assert value(name, answer, accepted) == value(name, accepted, answer)


@settings(deadline=None, max_examples=200)
@example("[0", "0")
@given(answers, answers)
def test_the_same_answers_share_a_key(answer: str, accepted: str) -> None:
    for name in ("json", "json-f1", "labels", "accuracy", "number", "entities", "calls", "calls@ordered"):
        if key(name, answer) == key(name, accepted) and value(name, accepted, accepted):
            assert value(name, answer, accepted) == 1, name
        elif name != "labels":  # none are known here
            assert value(name, answer, accepted) < 1, name


SETS = Task("sets", labels=("1. a", "2. a", "Billing"))


@pytest.mark.parametrize(
    ("name", "one", "other", "same"),
    [
        ("labels", "Billing, 1. a", "- 1. a\n- billing", True),
        ("labels", "1. a", "2. a", False),
        ("number", "It costs 5 dollars", "5.0", True),
        ("number", "$5", "5", True),
        ("number", "5%", "5", False),
        ("entities", ENTITY_LIST, json.dumps(json.loads(ENTITY_LIST)[::-1]), True),
        ("entities", '{"PER": ["Ann"]}', ENTITY, True),
        ("entities@span", '[{"text": "Ann", "type": "PER"}]', ENTITY, False),
        ("calls", CALL, CALL.replace("arguments", "parameters"), True),
        ("calls", CALL, json.dumps(json.loads(CALL)[::-1]), True),
        ("calls@ordered", CALL, json.dumps(json.loads(CALL)[::-1]), False),
        ("json-f1", '{"a": [1, 2]}', '{"a": [2, 1]}', True),
        ("json", '{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ("json-f1@ignore=id", ORDER, ORDER.replace("7", "8"), True),
        ("json-f1", ORDER, ORDER.replace("7", "8"), False),
    ],
)
def test_a_vote_holds_the_same_what_the_metric_holds_the_same(name: str, one: str, other: str, same: bool) -> None:
    task = SETS if name == "labels" else OPEN
    assert (key(name, one, task) == key(name, other, task)) == same == (value(name, one, other, task=task) == 1)


@pytest.mark.parametrize(
    "name",
    ["nothing", "accuracy@1", "number@x", "number@-1", "json-f1@id", "entities@order", "calls@span", "no_such:f"],
)
def test_what_is_no_metric_is_said(name: str) -> None:
    with pytest.raises(UsageError):
        metric_named(name)


def test_a_function_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_metrics")
    module.short = lambda answer, accepted: len(answer) <= 3  # type: ignore[attr-defined]
    module.far = lambda answer, accepted: 2.0  # type: ignore[attr-defined]
    module.knows = lambda answer, accepted, query: float(query.input == "q")  # type: ignore[attr-defined]
    module.numbers = lambda answer, accepted: kinds[answer]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_metrics", module)
    assert value("own_metrics:short", "abc", "x") == 1
    kinds = {"a": np.float32(0.5), "b": np.bool_(True), "c": np.array(0.25), "d": Decimal("0.5"), "e": True}
    assert [value("own_metrics:numbers", kind, "x") for kind in kinds] == [0.5, 1, 0.25, 0.5, 1]
    kinds |= {"nan": np.float32("nan"), "none": None, "text": "1", "more": np.float64(1.5)}  # type: ignore[dict-item]
    for kind in ("nan", "none", "text", "more"):
        with pytest.raises(UsageError, match="returned"):
            value("own_metrics:numbers", kind, "x")
    assert value("own_metrics:knows", "abc", "x") == 1
    with pytest.raises(UsageError, match=r"returned 2\.0"):
        value("own_metrics:far", "abc", "x")


def test_a_function_that_is_awaited_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("awaited_metrics")
    exec("async def later(answer, accepted): return 1.0", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(UsageError, match="awaited_metrics:later is async"):
        metric_named("awaited_metrics:later")


def test_an_error_of_the_users_own_function_is_one_line_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_metrics")
    module.parses = lambda answer, accepted: json.loads(answer)["mark"]  # type: ignore[attr-defined]
    module.alone = lambda answer: 1.0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_metrics", module)
    with pytest.raises(
        CurateError, match=r"own_metrics:parses failed on 'a⏎b': JSONDecodeError: .* \(test_metrics\.py, line \d+\)"
    ):
        value("own_metrics:parses", "a\nb", "x")
    with pytest.raises(CurateError, match=r"own_metrics:alone failed .* TypeError: .*takes 1 positional"):
        value("own_metrics:alone", "a", "x")


def test_right_is_what_reaches_the_least() -> None:
    assert metric_named("f1").is_right(0.5) and not metric_named("f1", 0.8).is_right(0.5)
    assert not metric_named("accuracy", 0.5).is_right(0.5)


def test_what_is_misspelt_is_told() -> None:
    for named, name, meant in (
        (metric_named, "jsn-f1", "json-f1"), (reader_named, "lien", "line"), (reader_named, "jsn:item", "json:item"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=f"did you mean '{meant}'"):
            named(name)


@pytest.mark.parametrize(
    ("outputs", "metric"),
    [
        ([CALL] * 20, "calls"),
        ([ENTITY] * 20, "entities"),
        ([ORDER] * 20, "json-f1"),
        ([ORDER] * 18 + ["text"] * 2, "accuracy"),
        (["12", "-3.5", "$1,000"] * 10, "number"),
        (["7 and 5 make 12.\n#### 12"] * 20, "number"),
        (["In all.\n#### 12 apples", "#### $1,000", "#### 1e3"] * 10, "number"),
        (["Then.\n#### 10:30"] * 20, "final"),
        (["Then.\n#### 3 of 4"] * 20, "final"),
        (["Graz", "the river Mur", "1945"] * 10, "accuracy"),
        (["A long answer of more than a dozen words that nobody would call short at all, really."] * 20, "rouge-l"),
        ([], "accuracy"),
    ],
)
def test_the_metric_that_fits_the_outputs(outputs: list[str], metric: str) -> None:
    task = Task("open", one_line=not any("\n" in output for output in outputs))
    name, why = metric_for(task, outputs)
    assert name == metric and why
    assert metric_for(Task("labels", ("a", "b")), outputs)[0] == "accuracy"
