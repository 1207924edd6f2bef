"""Records in the shapes people keep them in become the demonstrations they mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.readers.records import BadRecord
from icl_curate.engine.index.rows import LONGEST, Mapper, Row


def one(record: dict[str, Any], columns: dict[str, str] | None = None) -> Row:
    (row,) = mapper(record, columns).rows(record)
    assert isinstance(row, Row), row
    return row


def why(record: dict[str, Any], columns: dict[str, str] | None = None) -> str:
    (row,) = mapper(record, columns).rows(record)
    assert isinstance(row, BadRecord), row
    return row.reason


def mapper(record: dict[str, Any], columns: dict[str, str] | None = None) -> Mapper:
    """A mapper for a file with this record alone."""
    made = Mapper(columns or {})
    made.survey([record])
    return made


def outputs(records: list[dict[str, Any]], labels: tuple[str, ...] = ()) -> list[str]:
    """What the answers of a file with these records are read as; the reason where one is not."""
    made = Mapper({}, labels)
    made.survey(records)
    found = [row for record in records for row in made.rows(record)]
    return [row.output if isinstance(row, Row) else row.reason for row in found]


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
        ({"question": "q", "choices": ["1", "2", "3"], "answer": 2}, "3"),  # a number beside texts is a place
        ({"question": "q", "choices": ["1", "2", "3"], "answer": "2"}, "2"),
        ({"question": "q", "choices": [1, 2, 3], "answer": 2}, "2"),
        ({"question": "q", "choices": ["x", "y", "z"], "answer": 3}, "z"),  # counted from 1
        ({"question": "q", "choices": ["x", "y", "z"], "answer": 1.0}, "y"),
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
        {"id": "c", "conversation": {"model": "m", "messages": [{"role": role, "content": t} for role, t in TURNS]}},
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
    system = ["system", "be brief"]
    earlier = [[system], [system, ["user", "u1"], ["assistant", "a1"]]]
    assert [json.loads(row.history or "") for row in rows if isinstance(row, Row)] == earlier
    assert all(row.metadata == "{}" for row in rows if isinstance(row, Row))


def test_what_a_number_means_is_decided_for_the_file_and_not_for_the_row() -> None:
    """As MMLU has it: the place of the right one among choices, some of which are numbers themselves."""
    sums = {"question": "1 + 3?", "choices": ["1", "2", "3", "4"], "answer": 3}
    words = {"question": "who?", "choices": ["a", "b", "c", "d"], "answer": 0}
    assert outputs([sums]) == ["4"]
    assert outputs([words, sums]) == ["a", "4"]
    assert outputs([each | {"answer": str(each["answer"])} for each in (words, sums)]) == ["a", "4"]  # as in a CSV file
    assert outputs([sums | {"answer": "3"}, sums | {"answer": "4"}]) == ["3", "4"]
    prices = [{"question": "how much?", "choices": ["3", "4", "5"], "answer": n} for n in (3, 5)]
    assert outputs(prices) == ["3", "5"]  # no place, so a text
    counted = [{"question": "q", "choices": ["x", "y", "z"], "answer": n} for n in (1, 3, 2)]
    assert outputs(counted) == ["x", "z", "y"]
    labelled = {"question": "q", "choices": {"label": ["1", "2"], "text": ["x", "y"]}, "answerKey": "1"}
    assert outputs([labelled, labelled | {"answerKey": "2"}]) == ["x", "y"]


def test_labels_given_as_numbers_get_their_names() -> None:
    rows = [{"text": f"t{n}", "label": n} for n in (0, 1, -1, 2)]
    names = ("entailment", "neutral", "contradiction")
    told = ["entailment", "neutral", "label -1 has no name: the row is not labelled", "contradiction"]
    assert outputs(rows, names) == told
    assert outputs([{"text": "t", "labels": [0, 2]}, {"text": "t", "label": "1"}], names) == [
        "entailment, contradiction",
        "neutral",
    ]
    assert outputs([{"text": "t", "label": 3}], names) == ["label 3 has no name"]
    odd = ["1.0", 2.0, " 1 ", 1.9, "-1.0", True, "2x", float("inf")]
    assert outputs([{"text": "t", "label": label} for label in odd], names) == [
        *(
            "neutral",
            "contradiction",
            "neutral",
            "label 1.9 has no name",
            "label -1.0 has no name: the row is not labelled",
        ),
        *("label True has no name", "2x", "output is not a finite number"),
    ]


@pytest.mark.parametrize(("asked", "answered"), [
    ("inputs", "targets"), ("user_input", "reference"), ("question", "reference_answer"), ("text", "labels"),
    ("article", "highlights"), ("prompt", "chosen"), ("question", "ground_truth"), ("text", "summary"),
])  # fmt: skip
def test_names_of_other_tools(asked: str, answered: str) -> None:
    assert (one({asked: "a", answered: "b"}).input, one({asked: "a", answered: "b"}).output) == ("a", "b")


def test_several_labels_are_one_answer_and_several_answers_are_accepted_ones() -> None:
    row = one({"text": "t", "labels": ["sport", "politics"]})
    assert (row.output, row.answers) == ("sport, politics", [])
    row = one({"question": "q", "answers": ["sport", "politics"]})
    assert (row.output, row.answers) == ("sport", ["politics"])
    assert one({"text": "t", "labels": []}).output == "none"


def test_an_object_is_its_json() -> None:
    found = {"city": "Ulm", "n": [1, 2]}
    assert json.loads(one({"input": "q", "output": found}).output) == found
    assert one({"question": "q", "answer": {"value": "x", "aliases": ["y"]}}).output == "x"


def test_what_an_llm_is_not_to_learn_or_cannot_be_shown_is_no_demonstration() -> None:
    def said(role: str, content: object, **more: object) -> dict[str, object]:
        return {"role": role, "content": content, **more}

    turns = [said("user", "u1"), said("assistant", "a1", weight=0)]
    turns += [said("user", "u2"), said("assistant", "a2", weight=1)]
    row = one({"messages": turns})
    assert (row.input, row.output) == ("u2", "a2")
    assert json.loads(row.history or "") == [["user", "u1"], ["assistant", "a1"]]
    assert "weight 0" in why({"messages": turns[:2]})
    picture = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": "x"}}]
    seen = [*turns[2:], said("user", picture), said("assistant", "cat"), said("user", "sure?"), said("assistant", "y")]
    rows = Mapper({}).rows({"messages": seen})
    assert [row.output if isinstance(row, Row) else row.reason for row in rows] == [
        "a2", *["a message has parts that are not text: image_url"] * 2
    ]  # fmt: skip
    called = [said("user", "u"), said("assistant", None, tool_calls=[{"id": "1"}]), said("tool", "4")]
    assert "a tool call has no name" in why({"messages": [*called, said("assistant", "4")]})


def test_alpaca_with_a_system_prompt_and_history() -> None:
    record = {"instruction": "And 3+3?", "input": "", "output": "6", "system": "Count.", "history": [["2+2?", "4"]]}
    row = one(record)
    assert (row.input, row.output, row.metadata) == ("And 3+3?", "6", "{}")
    assert json.loads(row.history or "") == [["system", "Count."], ["user", "2+2?"], ["assistant", "4"]]
    assert one({"input": "q", "output": "a"}).history is None
    assert "history" in why(record | {"history": 5})


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
        ({"input": "a", "output": float("nan")}, "output is not a finite number"),
        ({"input": "a", "output": float("inf")}, "output is not a finite number"),
        ({"input": "a", "output": {"x": [float("nan")]}}, "output is not a finite number"),
        ({"input": "a", "output": [{"x": 1e999}]}, "output is not a finite number"),
        ({"input": "a", "output": [{"name": "f", "arguments": {"x": 1e999}}]}, "output is not a finite number"),
        ({"input": "a", "output": []}, "empty output"),
        ({"input": 5, "output": "a"}, "input is a number, not text"),
        ({"input": ["a"], "output": "a"}, "input is a list, not text"),
        ({"input": "a\0", "output": "a"}, "NUL"),
        ({"input": "a\ud800", "output": "a"}, "surrogate"),
        ({"input": "a" * (LONGEST + 1), "output": "a"}, "characters"),
        ({"input": "a", "output": "w", "options": ["x", "y"]}, "answer not among the options: 'w'"),
        ({"input": "a", "output": 3, "options": ["x", "y"]}, "answer not among the options"),
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


@pytest.mark.parametrize(
    "found",
    [
        [{"text": "Bob", "type": "PERSON"}, {"text": "Graz", "type": "CITY"}],
        [{"text": "Bob", "label": "PER", "start": 0, "end": 3}],
        {"text": "Bob", "type": "PERSON"},
        {"value": 5, "unit": "kg"},
        {"order": "A-17", "items": [{"name": "pen", "n": 2}]},
    ],
)
@pytest.mark.parametrize("column", ["output", "answer", "entities", "label"])
def test_objects_are_never_their_first_text(found: Any, column: str) -> None:
    row = one({"text": "t", column: found})
    assert (row.output, row.answers) == (json.dumps(found), [])


def test_an_empty_list_is_an_output_among_lists_of_objects() -> None:
    rows = [{"text": "t", "entities": each} for each in ([{"text": "Bob", "type": "PER"}], [], "[]")]
    assert outputs(rows)[1:] == ["[]", "[]"]
    assert outputs([{"text": "t", "output": []}]) == ["empty output"]
