"""Named fields of queries, and what a prompt may read of them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.pool.fields import check_reads, leak, query_of, require
from icl_curate.engine.pool.records import Demonstration, Message, Query

SAMPLE = Path(__file__).parents[2] / "sample_data"
WORDS = (
    "card",
    "parcel",
    "refund",
    "invoice",
    "parts",
    "water",
    "password",
    "coffee",
    "pump",
    "late",
    "pod",
    "money",
    "gift",
)
LABELS = ("late_parcel", "refund", "card_declined", "address")


def rows(count: int = 80, **columns: Sequence[Any]) -> list[Query]:
    """Queries with four labels; ``columns`` are values by label, or one for each query."""
    asked = []
    for i in range(count):
        place = i % len(LABELS)
        fields = {name: values[place if len(values) == len(LABELS) else i] for name, values in columns.items()}
        words = " ".join(WORDS[(i * step + step) % len(WORDS)] for step in (1, 3, 5, 7))
        asked.append(Query(f"{words} {i}", answers=(LABELS[place],), fields=fields))
    return asked


def test_a_record_of_a_caller_is_a_query_with_fields() -> None:
    turns = [{"role": "user", "content": "2+2?"}]
    asked = query_of(
        {"input": "q", "options": ["a"], "context": "c", "history": turns, "tier": "gold", "n": 3, "__class__": "x"}
    )
    assert (asked.options, asked.context, asked.history) == (("a",), "c", (Message("user", "2+2?"),))
    assert asked.fields == {"tier": "gold", "n": 3, "__class__": "x"}
    assert query_of({"input": "q"}) == Query("q") and hash(asked) and pickle.loads(pickle.dumps(asked)) == asked
    assert asked != query_of({"input": "q", "options": ["a"], "context": "c", "history": turns, "tier": "silver"})


@pytest.mark.parametrize(
    "record", [{}, {"input": " "}, {"input": 1}, {"input": "q", "options": "a"}, {"input": "q", "history": "a"}]
)
def test_a_record_of_another_shape_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        query_of(record)


TOLD = {"output": "a", "Answers": ["a"], "rationale": "for", "reasoning": "for", "Explanation": "for", "COT": "for"}


def test_a_query_never_has_what_tells_its_answer_by_name_and_a_demonstration_has() -> None:
    shot = Demonstration(0, "a", "q", "o", "s", metadata={"tier": "gold", **TOLD})
    assert shot.as_query().fields == {"tier": "gold"} == query_of({"input": "q", "tier": "gold", **TOLD}).fields
    assert shot.fields == {"tier": "gold", **TOLD}
    for name in TOLD:
        with pytest.raises(UsageError, match="it tells the answer"):
            check_reads([name], [shot.as_query()])


def test_a_query_without_a_field_that_was_judged_is_refused_by_name() -> None:
    asked = query_of({"input": "q", "teir": "gold", "none": None, "empty": ""})
    require(asked, {"input", "empty"})
    with pytest.raises(UsageError, match=r"no field 'tier'.*did you mean 'teir'"):
        require(asked, {"tier"})
    with pytest.raises(UsageError) as null:
        require(asked, {"none"})
    assert "did you mean" not in null.value.what
    for name in ("none", "__class__", "row", "answers"):  # what a query has besides is no field
        with pytest.raises(UsageError, match=f"no field '{name}'"):
            require(asked, {name})


def test_a_field_must_be_in_99_of_100_queries() -> None:
    tiers: list[Any] = ["gold", "silver", "lead"] * 66 + ["gold"] * 2
    check_reads({"tier"}, rows(200, tier=[*tiers[2:], None, None]))
    with pytest.raises(UsageError, match=r"98.5% of 200 .* have the field 'tier'"):
        check_reads({"tier"}, rows(200, tier=[*tiers[3:], None, None, None]))
    with pytest.raises(UsageError, match=r"0.0% of 200 .* the field 'teir'.*did you mean 'tier'"):
        check_reads({"teir"}, rows(200, tier=tiers))
    check_reads({"tier"}, [])


@pytest.mark.parametrize(
    "column",
    [
        [label.replace("_", " ").title() for label in LABELS],  # label_text
        [{"text": label, "start": 3} for label in LABELS],  # in an object
        [["other", label] for label in LABELS],
        [f"The customer writes; so it is {label}." for label in LABELS],  # a rationale of another name
        [0, 1, 2, 3],  # the numbers of the labels
        ["P", "R", "C", "A"],
    ],
)
def test_a_field_that_tells_the_output_is_refused_by_name(column: Sequence[Any]) -> None:
    with pytest.raises(UsageError, match="the field 'entities' tells the answer"):
        check_reads({"entities", "input"}, rows(entities=column))
    with pytest.raises(UsageError, match="the field 'entities' tells the answer"):  # with a default, too
        check_reads({"input"}, rows(entities=column), {"entities"})
    check_reads({"input"}, rows(entities=column), {"another"})


@pytest.mark.parametrize(
    "column",
    [
        [", ".join(LABELS)] * len(LABELS),  # all labels in each row tell nothing
        [dict.fromkeys(LABELS, 0)] * len(LABELS),
        ["gold", "gold", "silver", "gold"],  # of fewer values than labels
        list(range(80)),  # as a number of the row
        ["de", "en", "fr"] * 26 + ["de", "en"],
        ["x" * 1_000_000] * len(LABELS),
    ],
)
def test_a_field_that_tells_no_output_is_no_leak(column: Sequence[Any]) -> None:
    check_reads({"tier"}, rows(tier=column))


def test_the_input_may_hold_the_output_as_often_as_a_field() -> None:
    asked = [Query(f"who is in {word}: {word}?", answers=(word,), fields={"title": f"about {word}"}) for word in WORDS]
    assert leak("title", asked) == ""
    short = [Query("who?", answers=query.answers, fields=query.fields) for query in asked]
    assert leak("title", short) == "it holds the output in 100% of the queries, their input in 0%"
    assert leak("title", short[:4]) == ""  # too few to say
    assert leak("title", [Query("wer?", answers=("北京",), fields={"title": "我在北京"}), *short]) != ""


def test_an_output_of_json_leaks_by_its_values_whatever_their_order() -> None:
    asked = [
        Query(
            f"{word} is here",
            answers=(json.dumps([{"text": word, "type": f"K{i % 3}"}]),),
            fields={"spans": [{"label": f"K{i % 3}", "value": word}], "kinds": ["K0", "K1", "K2"], "words": [word]},
        )
        for i, word in enumerate(WORDS)
    ]
    assert "holds the output in 100%" in leak("spans", asked)
    assert leak("kinds", asked) == leak("words", asked) == ""


@pytest.mark.parametrize("name", ["facts", "support"])
def test_fields_of_the_sample_data_are_no_leak(name: str) -> None:
    asked = []
    for path in [SAMPLE / name / "validation.jsonl", SAMPLE / name / "test.jsonl", *(SAMPLE / name / "pool").iterdir()]:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            fields = {key: value for key, value in row.items() if key not in ("input", "output", "answers", "context")}
            asked.append(Query(row["input"], answers=(row["output"],), fields=fields))
    names = {name for query in asked for name in query.fields}
    assert names and not {name for name in names if leak(name, asked)}
