"""Records in the shapes people keep them in become the demonstrations they mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from icl_curate.engine.errors import UsageError
from icl_curate.engine.index.readers.records import BadRecord
from icl_curate.engine.index.rows import LONGEST, Mapper, Row


def one(record: dict[str, Any], columns: dict[str, str] | None = None) -> Row:
    (row,) = Mapper(columns or {}).rows(record)
    assert isinstance(row, Row), row
    return row


def why(record: dict[str, Any], columns: dict[str, str] | None = None) -> str:
    (row,) = Mapper(columns or {}).rows(record)
    assert isinstance(row, BadRecord), row
    return row.reason


@pytest.mark.parametrize("asked", ["input", "question", "text", "prompt", "Question", "QUERY", "problem", "utterance"])
@pytest.mark.parametrize("answered", ["output", "answer", "label", "target", "completion", "Response", "answerKey"])
def test_columns_are_found_by_name(asked: str, answered: str) -> None:
    row = one({asked: " a ", answered: "b", "lang": "en", "empty": None})
    assert (row.input, row.output, json.loads(row.metadata)) == ("a", "b", {"lang": "en"})


def test_named_columns_win_and_an_unknown_field_is_refused() -> None:
    record = {"input": "x", "utterance": "a", "output": "y", "intent": "b"}
    row = one(record, {"input": "utterance", "output": "intent"})
    assert (row.input, row.output, json.loads(row.metadata)) == ("a", "b", {"input": "x", "output": "y"})
    assert "missing field: input" in why(record, {"input": "nowhere"})
    with pytest.raises(UsageError, match="inptu"):
        Mapper({"inptu": "x"})


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        ({"question": "q", "choices": ["x", "y", "z"], "answer": "y"}, "y"),
        ({"question": "q", "choices": ["x", "y", "z"], "answer": " Y "}, "y"),
        ({"question": "q", "choices": ["x", "y", "z"], "answer": "(B)"}, "y"),
        ({"question": "q", "choices": ["x", "y", "z"], "answer": "b."}, "y"),
        ({"question": "q", "choices": ["x", "y", "z"], "answer": 1}, "y"),
        ({"question": "q", "choices": ["x", "y", "z"], "answer": "B) y"}, "y"),
        ({"question": "q", "choices": {"label": ["1", "2", "3"], "text": ["x", "y", "z"]}, "answerKey": "2"}, "y"),
        (
            {
                "question": "q",
                "choices": [{"label": c, "text": t} for c, t in zip("ABC", "xyz", strict=True)],
                "answerKey": "B",
            },
            "y",
        ),
        ({"question": "q", "options": {"A": "x", "B": "y", "C": "z"}, "answer": "B"}, "y"),
        ({"question": "q", "options": "x|y|z", "answer": "y"}, "y"),
        ({"question": "q", "options": "(A) x\n(B) y\n(C) z", "answer": "B"}, "y"),
        ({"question": "q", "options": "['x', 'y', 'z']", "answer": "C"}, "z"),
        ({"question": "q", "A": "x", "B": "y", "C": "z", "answer": "B"}, "y"),
        ({"question": "q", "option1": "x", "option2": "y", "option3": "z", "answer": "y"}, "y"),
        ({"question": "q", "choices": ["1", "2", "3"], "answer": 2}, "2"),  # the text before the index
    ],
)
def test_options_in_their_many_forms(record: dict[str, Any], wanted: str) -> None:
    row = one(record)
    assert row.options in (["x", "y", "z"], ["1", "2", "3"])
    assert row.output == wanted
    assert row.metadata == "{}"


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), (True, "true"), (False, "false"), (0.5, "0.5"), (["a", "b"], "a"), (0, "0")]
)
def test_outputs_that_are_no_text_become_it(value: object, text: str) -> None:
    assert one({"input": "q", "output": value}).output == text


@pytest.mark.parametrize(
    ("record", "output", "answers"),
    [
        ({"question": "q", "answers": ["a", "b", "b", "a"]}, "a", ["b"]),
        ({"question": "q", "answer": ["a", "b"]}, "a", ["b"]),
        ({"question": "q", "answer": "b", "answers": ["a", "b"]}, "b", ["a"]),
        ({"question": "q", "answers": {"text": ["a", "c"], "answer_start": [1, 2]}}, "a", ["c"]),
        ({"question": "q", "answers": '["a", "c"]'}, "a", ["c"]),
        ({"question": "q", "answer": "a", "aliases": ["c", ""]}, "a", ["c"]),
    ],
)
def test_accepted_answers(record: dict[str, Any], output: str, answers: list[str]) -> None:
    row = one(record)
    assert (row.output, row.answers) == (output, answers)


@pytest.mark.parametrize(
    "context",
    [
        "T\none two\n\nthree",
        ["T\none two", "three"],
        [{"title": "T", "text": "one two"}, {"text": "three"}],
        [["T", ["one", "two"]], "three"],
        {"title": ["T", ""], "sentences": [["one", "two"], ["three"]]},
    ],
)
def test_contexts_are_one_text_with_blank_lines_between_documents(context: object) -> None:
    row = one({"question": "q", "answer": "a", "context": context})
    assert [part.strip() for part in row.context.split("\n\n")] == ["T\none two", "three"]


def test_alpaca_and_dolly() -> None:
    assert one({"instruction": "Translate.", "input": "ja", "output": "yes"}).input == "Translate.\n\nja"
    assert one({"instruction": "Say it.", "input": "", "output": "it"}).input == "Say it."
    row = one({"instruction": "Why?", "context": "c", "response": "so"})
    assert (row.input, row.context, row.output) == ("Why?", "c", "so")


TURNS = [
    ("system", "be brief"),
    ("user", "u1"),
    ("assistant", "a1"),
    ("user", "u2"),
    ("assistant", "a2"),
    ("user", "u3"),
]


@pytest.mark.parametrize(
    "record",
    [
        {"id": "c", "messages": [{"role": role, "content": text} for role, text in TURNS]},
        {"id": "c", "messages": [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in TURNS]},
        {"id": "c", "messages": json.dumps([{"role": role, "content": text} for role, text in TURNS])},
        {
            "id": "c",
            "conversations": [
                {"from": {"user": "human", "assistant": "gpt"}.get(role, role), "value": text} for role, text in TURNS
            ],
        },
        {
            "id": "c",
            "prompt": [{"role": role, "content": text} for role, text in TURNS[:2]],
            "completion": [{"role": role, "content": text} for role, text in TURNS[2:]],
        },
    ],
)
def test_conversations_are_one_demonstration_a_turn(record: dict[str, Any]) -> None:
    rows = Mapper({}).rows(record)
    assert [(row.id, row.input, row.output) for row in rows if isinstance(row, Row)] == [
        ("c#1", "u1", "a1"),
        ("c#2", "u2", "a2"),
    ]
    assert all(json.loads(row.metadata) == {"system": "be brief"} for row in rows if isinstance(row, Row))


def test_one_turn_keeps_its_id_and_none_is_bad() -> None:
    row = one({"id": 7, "messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})
    assert row.id == "7"
    assert "no user message" in why({"messages": [{"role": "user", "content": "u"}]})
    assert "not an object" in why({"messages": ["u", "a"]})
    assert "not a list" in why({"messages": 5})


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"input": "a"}, "missing field: output"),
        ({"output": "a"}, "missing field: input"),
        ({"input": " ", "output": "a"}, "empty input"),
        ({"input": None, "output": "a"}, "empty input"),
        ({"input": "a", "output": ""}, "empty output"),
        ({"input": "a", "output": float("nan")}, "empty output"),
        ({"input": "a", "output": []}, "empty output"),
        ({"input": 5, "output": "a"}, "input is a number, not text"),
        ({"input": ["a"], "output": "a"}, "input is a list, not text"),
        ({"input": "a", "output": {"b": 1}}, "output is not text"),
        ({"input": "a\0", "output": "a"}, "NUL"),
        ({"input": "a\ud800", "output": "a"}, "surrogate"),
        ({"input": "a" * (LONGEST + 1), "output": "a"}, "characters"),
        ({"input": "a", "output": "w", "options": ["x", "y"]}, "answer not among the options: 'w'"),
        ({"input": "a", "output": 2, "options": ["x", "y"]}, "answer not among the options"),
        ({"input": "a", "output": "x", "options": 4}, "options are a number, not a list"),
        ({"input": "a", "output": "x", "options": ["x", None]}, "empty option"),
    ],
)
def test_why_a_row_is_bad(record: dict[str, Any], says: str) -> None:
    assert says in why(record)


def test_the_digest_is_over_everything_but_the_split() -> None:
    base = {"id": "i", "input": "a", "output": "x", "options": ["x", "y"], "context": "c", "answers": ["z"], "m": 1}
    changes: list[dict[str, Any]] = [
        {"id": "j"}, {"input": "b"}, {"output": "y"}, {"options": ["x", "z"]}, {"context": "d"}, {"answers": ["w"]},
        {"m": 2}, {"options": ["x"]},
    ]  # fmt: skip
    digests = {one(base | change).digest("s") for change in [{}, *changes]} | {one(base).digest("t")}
    assert len(digests) == len(changes) + 2
    assert one(base | {"split": "test"}).digest("s") == one(base).digest("s")


@pytest.mark.parametrize(
    ("name", "split"), [("train", "pool"), ("Dev", "validation"), ("val", "validation"), ("test", "test"), ("x", None)]
)
def test_known_split_names(name: str, split: str | None) -> None:
    row = one({"input": "a", "output": "b", "split": name})
    assert row.split == split
    assert json.loads(row.metadata) == ({} if split else {"split": name})
