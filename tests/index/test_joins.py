"""Columns that ``--map`` makes of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.questions import read_questions
from icl_curate.engine.index.readers.records import BadRecord
from icl_curate.engine.index.rows import Mapper, Row

PAIR = {"premise": "It rains.", "hypothesis": "It is wet.", "label": "yes", "meta": {"hint": "soil"}, "{odd}": "x"}


def read(record: dict[str, Any], pattern: str) -> str:
    (row,) = Mapper({"input": pattern}).rows(record)
    return row.input if isinstance(row, Row) else row.reason


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("{premise} / {hypothesis}", "It rains. / It is wet."),
        ("{premise}\n{meta.hint?}{nothing?}", "It rains.\nsoil"),
        ("{{{premise}}}", "{It rains.}"),
        ("{odd}", "x"),
        ("meta.hint", "soil"),
    ],
)
def test_columns_in_one_text(pattern: str, text: str) -> None:
    assert read(PAIR, pattern) == text


def test_what_is_joined_stays_metadata_and_what_is_missing_is_told() -> None:
    (row,) = Mapper({"input": "{premise} / {hypothesis}"}).rows(PAIR)
    assert isinstance(row, Row)
    assert {"premise", "hypothesis"} <= json.loads(row.metadata).keys()
    assert "there is no column '{premise} / {other}'" in read(PAIR, "{premise} / {other}")
    (bad,) = Mapper({"input": "{premise} / {hypothesis}"}).rows(PAIR | {"hypothesis": " "})
    assert bad == BadRecord("empty hypothesis")


@pytest.mark.parametrize("pattern", ["{premise", "{} / {x}", "{?}"])
def test_a_malformed_join_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        Mapper({"input": pattern})


def test_a_field_given_twice_names_the_join(tmp_path: Path, run: Run) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps(PAIR) + "\n")
    twice = run("index", tmp_path / "p.jsonl", "--map", "input=premise", "--map", "input=hypothesis")
    assert (twice.code, "--map 'input={premise} / {hypothesis}'" in twice.err) == (2, True)


def test_other_names_are_fields_of_that_name() -> None:
    flags = {
        "input": "hypothesis",
        "premise": "premise",
        "hint": "meta.hint",
        "both": "{premise} {hypothesis}",
        "x": "no",
    }
    (row,) = Mapper(flags).rows(PAIR)
    assert isinstance(row, Row)
    assert json.loads(row.metadata) == {
        "meta": {"hint": "soil"}, "{odd}": "x",
        "premise": "It rains.", "hint": "soil", "both": "It rains. It is wet.",
    }  # fmt: skip
    assert Mapper(flags).fields((*PAIR, "meta.hint"))["hint"] == "meta.hint"


@pytest.mark.parametrize("name", ["inptu", "answer", "contexts", "messages", "__class__", "a b", "", "é", "a" * 65])
def test_a_name_that_is_misspelt_or_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="unknown field"):
        Mapper({name: "premise"})


MADE = {"q": "a b", "toxic": 1, "threat": 0, "tr": {"en": "hi", "de": "hallo", "n": 2}, "l": [{"t": "a"}], "tier": "x"}


@pytest.mark.parametrize(
    ("output", "gone"),
    [
        ("toxic+threat", {"toxic", "threat"}),
        ("{q} {tier?}", {"tier"}),
        ("l.0.t", {"l"}),
        ("tr.de", set()),
        ("{tr.de}, {tr.en}, {tr.n}", {"tr"}),
    ],
)
def test_what_an_output_is_made_of_is_no_field(output: str, gone: set[str]) -> None:
    (row,) = Mapper({"input": "q", "output": output}).rows(MADE)
    assert isinstance(row, Row)
    assert json.loads(row.metadata).keys() == MADE.keys() - {"q"} - gone
    assert "hallo" not in row.metadata or "tr" not in output
    (row,) = Mapper({"input": "q", "output": "tier", "answers": output}).rows(MADE)
    assert isinstance(row, Row) and json.loads(row.metadata).keys() == MADE.keys() - {"q", "tier"} - gone


NLI = [
    {"sentence1": f"{who} walks through the {where}.", "sentence2": f"{who} {does}.", "label": label}
    for who in ("A man", "The old woman", "Nobody", "My neighbour's dog")
    for where in ("park", "long street at night", "museum of modern art")
    for does, label in (("moves on foot", "yes"), ("is asleep on a bench", "no"), ("has missed a train", "maybe"))
]


def test_pairs_are_told_apart_by_a_join_and_without_an_input_the_message_has_it(tmp_path: Path, run: Run) -> None:
    (tmp_path / "nli.jsonl").write_text("".join(json.dumps(row) + "\n" for row in NLI))
    index = ("index", tmp_path / "nli.jsonl", "--no-encode", "--json", "-w")
    refused = run("index", tmp_path / "nli.jsonl", "--no-encode", "-w", tmp_path / "none")
    join = "input={sentence1} / {sentence2}"
    assert (refused.code, f"--map 'nli.jsonl::{join}'" in refused.err) == (2, True)
    assert f"--map '{join}'" in run("index", tmp_path / "nli.jsonl", "--peek").out
    one = run(*index, tmp_path / "one", "--map", "input=sentence1").json
    both = run(*index, tmp_path / "both", "--map", join).json
    assert one["duplicates"] >= 24 and both["duplicates"] == 0
    assert both["demonstrations"] == len(NLI)


@pytest.mark.parametrize("column", ["image", "scan"])
def test_a_row_with_a_picture_is_refused_whatever_its_column_is_called(column: str) -> None:
    (bad,) = Mapper({}).rows({"input": "what is it?", "output": "a cat", column: {"bytes": b"\xff", "path": None}})
    assert bad == BadRecord(f"an image that would not be read (column {column})")
    (bad,) = Mapper({"photo": column}).rows({"input": "what?", "output": "a", column: "data:image/png;base64,AAAA"})
    assert bad == BadRecord("an image that would not be read (column photo)")


def test_a_field_that_is_no_unicode_is_refused() -> None:
    (bad,) = Mapper({}).rows({"input": "q", "output": "a", "tier": "gold \ud800"})
    assert bad == BadRecord("not valid Unicode: a lone surrogate")
    (row,) = Mapper({}).rows({"input": "q", "output": "a", "tier": "gold \U0001f600", "path": "c:\\udir"})
    assert isinstance(row, Row)


def test_an_answer_of_production_within_an_object_is_no_field_of_its_query(tmp_path: Path) -> None:
    (path := tmp_path / "q.jsonl").write_text('{"input": "i", "meta": {"answered": "x", "tier": "gold"}}\n')
    (question,) = read_questions([str(path)], answer_field="meta.answered").asked
    assert (question.answered, question.query.fields) == ("x", {"meta": {"tier": "gold"}})
