"""Answers with parts: what is read from a text, and F1 against independent references."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.grading.structured import (
    as_text,
    at_path,
    calls_f1,
    calls_in,
    entities_f1,
    entities_in,
    json_f1,
    json_in,
    labels_in,
    matched,
    matched_in_order,
    without,
)

UNHURRIED = settings(deadline=None, max_examples=200)

scalars = st.none() | st.booleans() | st.integers(-5, 5).map(Decimal) | st.sampled_from(["", "a", "b", "ä", "1"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Here it is:\n```json\n{"a": [1, 2]}\n```', {"a": [1, 2]}),
        ('First ```\n{"a": 1}\n``` then\n```\n{"a": 2}\n```\nDone.', {"a": 2}),
        ('The object is {"a": {"b": null}} as asked.', {"a": {"b": None}}),
        ('[broken {"a": 1}', {"a": 1}),
        ('As the source [1] says, and [23]: {"a": 1}', {"a": 1}),
        ("As it says, [1, 2], not [3]", [1, 2]),
        ('Sorted: [3, 7]. I began with {"a": 1}', [3, 7]),
        ('It calls nothing: [], not {"a": 1}', []),
        ('"text"', "text"),
    ],
)
def test_a_json_value_is_read_from_what_surrounds_it(text: str, value: Any) -> None:
    assert json_in(text) == value


@pytest.mark.parametrize("text", ["", "billing", "{", "[" * 100_000, '{"a": }', "{'a': 1}"])
def test_what_is_no_json_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        json_in(text)


def test_a_path_leads_to_a_part() -> None:
    value = {"result": {"labels": ["a", {"b": Decimal("1.50")}]}}
    assert as_text(at_path(value, "result.labels.0")) == "a"
    assert as_text(at_path(value, "result.labels.-1.b")) == "1.5"
    for path in ("result.labels.2", "result.nothing", "result.labels.b", ""):
        with pytest.raises(KeyError):
            at_path(value, path)


def test_ignored_fields_are_left_out_at_any_depth() -> None:
    assert without({"id": 1, "a": [{"id": 2, "b": 3}]}, {"id"}) == {"a": [{"b": 3}]}


def leaf_paths(value: Any, path: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
    """Leaves with their paths, where no list is inside: an independent count."""
    if isinstance(value, dict) and value:
        return [leaf for key, inner in value.items() for leaf in leaf_paths(inner, (*path, key))]
    return [(*path, repr(value))]


flat = st.recursive(scalars, lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, min_size=1, max_size=3))


@UNHURRIED
@given(flat, flat)
def test_json_f1_is_that_of_the_leaves_with_their_paths(one: Any, other: Any) -> None:
    given, wanted = set(leaf_paths(one)), set(leaf_paths(other))
    assert json_f1(one, other) == pytest.approx(2 * len(given & wanted) / (len(given) + len(wanted)))


@UNHURRIED
@given(values, values)
def test_json_f1_is_symmetric_and_one_on_itself(one: Any, other: Any) -> None:
    assert json_f1(one, one) == 1
    assert 0 <= json_f1(one, other) <= 1
    assert json_f1(one, other) == pytest.approx(json_f1(other, one))


@UNHURRIED
@given(st.lists(values, max_size=4), st.randoms())
def test_json_f1_takes_lists_in_any_order(members: list[Any], chance: Any) -> None:
    shuffled = [*members]
    chance.shuffle(shuffled)
    assert json_f1(members, shuffled) == 1


def test_numbers_are_compared_as_numbers_and_not_with_truths() -> None:
    assert json_f1(json_in("1.0"), json_in("1")) == 1
    assert json_f1(json_in("9007199254740993"), json_in("9007199254740992")) == 0
    assert json_f1(json_in("[1]"), json_in("[true]")) == 0


weights = st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=0, max_size=3)


@UNHURRIED
@given(weights)
def test_the_best_matching_is_that_of_all_matchings(table: list[list[int]]) -> None:
    rows, columns = range(len(table)), range(3)
    best = max(
        sum(table[i][j] for i, j in zip(rows, places, strict=False)) for places in itertools.permutations(columns)
    )
    assert matched(rows, columns, lambda i, j: table[i][j]) == best


@UNHURRIED
@given(weights)
def test_the_best_matching_in_order_is_that_of_all_subsequences(table: list[list[int]]) -> None:
    rows, columns = range(len(table)), range(3)
    best = max(
        sum(table[i][j] for i, j in zip(chosen, places, strict=True))
        for size in range(len(table) + 1)
        for chosen in itertools.combinations(rows, size)
        for places in itertools.combinations(columns, size)
    )
    assert matched_in_order(rows, columns, lambda i, j: table[i][j]) == best


LABELS = ("billing", "card_arrival", "lost, or stolen")


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("billing, card arrival", {"billing", "card_arrival"}),
        ("- Billing\n- card_arrival", {"billing", "card_arrival"}),
        ("1. billing; 2) other", {"billing", "other"}),
        ('["billing", "lost, or stolen"]', {"billing", "lost, or stolen"}),
        ("lost, or stolen", {"lost, or stolen"}),
        ("none", set()),
        ("", set()),
    ],
)
def test_labels_are_read_however_they_are_listed(text: str, labels: set[str]) -> None:
    assert labels_in(text, LABELS) == labels


def test_a_number_may_be_the_labels_own() -> None:
    leagues = ("1. Bundesliga", "2. Bundesliga", "Serie A")
    assert labels_in("1. Bundesliga", leagues) == {"1. Bundesliga"}
    assert labels_in("- 2. bundesliga\n- Serie A", leagues) == {"2. Bundesliga", "Serie A"}
    assert labels_in("1. 2. Bundesliga\n2. Serie A", leagues) == {"2. Bundesliga", "Serie A"}


ANN, GRAZ = {"text": "Ann", "type": "PER", "start": 0, "end": 3}, {"text": "Graz", "type": "LOC", "start": 9, "end": 13}


def test_entities_are_read_as_a_list_or_by_type() -> None:
    by_type = entities_in('{"PER": ["Ann"], "LOC": "Graz"}')
    assert entities_f1(by_type, [ANN, GRAZ], span=False) == 1
    assert entities_f1(entities_in(json.dumps([ANN])), [ANN, GRAZ], span=True) == pytest.approx(2 / 3)
    assert entities_in(json.dumps(ANN)) == [ANN]
    with pytest.raises(ValueError, match="entities"):
        entities_in("[1, 2]")


def test_an_entity_counts_with_its_type_and_as_often_as_it_is_named() -> None:
    assert entities_f1([{**ANN, "type": "LOC"}], [ANN], span=False) == 0
    assert entities_f1([ANN, ANN], [ANN], span=False) == pytest.approx(2 / 3)
    assert entities_f1([{**ANN, "start": 5, "end": 8}], [ANN], span=True) == 0
    assert entities_f1([], [], span=False) == 1


def test_calls_are_read_from_either_form() -> None:
    native = '[{"type": "function", "function": {"name": "book", "arguments": "{\\"seat\\": 1}"}}]'
    plain = 'I call {"name": "book", "parameters": {"seat": 1.0}}'
    assert calls_f1(calls_in(native), calls_in(plain), ordered=False) == 1
    assert calls_in(f'{{"role": "assistant", "tool_calls": {native}}}') == calls_in(native)
    assert calls_in('{"content": "Hello", "tool_calls": null}') == calls_in("There is nothing to call.") == []
    for empty in ('""', "null", "{}"):
        assert calls_in(f'{{"name": "pay", "arguments": {empty}}}') == [{"name": "pay", "arguments": {}}]
    with pytest.raises(ValueError, match="tool call"):
        calls_in('{"seat": 1}')


def test_calls_count_by_name_and_arguments() -> None:
    book = {"name": "book", "arguments": {"seat": Decimal(1), "row": "a"}}
    half = {"name": "book", "arguments": {"seat": Decimal(1), "row": "b"}}
    pay = {"name": "pay", "arguments": {}}
    assert calls_f1([half], [book], ordered=False) == pytest.approx(0.5)
    assert calls_f1([pay], [book], ordered=False) == 0
    assert calls_f1([pay, book], [book, pay], ordered=False) == 1
    assert calls_f1([pay, book], [book, pay], ordered=True) == pytest.approx(0.5)
    assert calls_f1([], [], ordered=True) == 1
