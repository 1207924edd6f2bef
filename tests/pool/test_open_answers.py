"""Which open answers are the same."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from icl_curate.engine.pool.answers import is_correct, meaning
from icl_curate.engine.pool.open_answers import after_thinking, json_form, unfenced

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
DIFFERENT = [
    ("35", "3.5"),
    ("-5", "5"),
    ("9007199254740993", "9007199254740992"),
    ("1" * 50 + "1", "1" * 50 + "2"),
    ("50%", "50"),
    ("10:30", "1030"),
    ("1,5", "15"),
    ("007", "7"),
    ("10²", "102"),
    ("€29", "29"),
    ("<5", "5"),
    ("v1.2", "v12"),
    ("1.10.2", "1.1.02"),
    ("2024-01-05", "20240105"),
    ("1/2", "12"),
    ("x + 1", "x - 1"),
    ("x+1", "x-1"),
    ("a-b", "a/b"),
    ("a<b", "a>b"),
    ("SELECT a FROM t WHERE b < 3", "SELECT a FROM t WHERE b > 3"),
    ("C#", "C"),
    ("C++", "C"),
    ("C++", "C#"),
    ("O-", "O+"),
    ("A+", "A-"),
    ("?", "!"),
    ("a", "the"),
    ("。", "？"),
    ("10½", "101/2"),
    ("–5", "5"),
    ('{"a": 1}', '{"a": true}'),
    ('{"a": null}', "{}"),
    ("[1, 2]", "[2, 1]"),
    ("[1.0, 2]", "[10, 2]"),
    ("So many.\n#### 17", "So many.\n#### 18"),
]
SAME = [
    ("1,000", "1000"),
    ("−5", "-5"),
    ("$29.00", "29"),
    ("-$5", "-5"),
    (".5", "0.50"),
    ("1e3", "1000"),
    ("50 %", "50%"),
    ("x+1", "x + 1"),
    ("(5)", "5"),
    ("–5", "-5"),
    ("1939–1945", "1939-1945"),
    ("½", "1/2"),
    ("10½", "10 1/2"),
    ("McDonald’s", "McDonald's"),
    ("Oslo—Norway", "Oslo - Norway"),
    ("the year —1945", "year 1945"),
    ("A.", "A"),
    ("(a)", "A"),
    ("12.", "12"),
    ("#1", "1"),
    ("The Beatles.", "beatles"),
    ("**Paris**", "paris"),
    ("Eiffel-Tower", "eiffeltower"),
    ("Paris - France", "Paris, France"),
    ('{"b": [1, 2.0], "a": "x"}', '{\n "a":"x","b":[1.0,2]}'),
    ('```json\n{"a": 1}\n```', '{"a":1}'),
    ("Here:\n```\nParis\n```", "Paris"),
    ("<think>7?</think>\n8", "8"),
    ("She has 18 left.\n#### 18", "9 + 9\n#### 18"),
    ("9 + 9\n#### 1,800", "1800"),
    ("「北京」。", "北京"),
    ("北京 。", "北京"),
    ("¿París?", "París"),
    ("दिल्ली।", "दिल्ली"),
    ("القاهرة؟", "القاهرة"),
    ("„Köln“", "Köln"),
    ("That makes \\boxed{18}.", "Nine and nine. So the answer is 18."),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_answers_are_wrong(one: str, other: str) -> None:
    assert not is_correct(one, [other]) and not is_correct(other, [one])


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_answer_is_right(one: str, other: str) -> None:
    assert is_correct(one, [other]) and is_correct(other, [one])


@UNHURRIED
@given(st.text(max_size=30), st.text(max_size=30))
def test_answers_are_the_same_if_they_share_their_key(one: str, other: str) -> None:
    assert is_correct(one, [one])
    assert is_correct(one, [other]) == is_correct(other, [one]) == (meaning(one) == meaning(other))


@UNHURRIED
@given(st.decimals(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False, allow_infinity=False))
def test_numbers_are_the_same_if_they_are_equal(one: Decimal, other: Decimal) -> None:
    texts = [f"{value:f}" for value in (one, other)]
    assert is_correct(texts[0], [texts[1]]) == (one == other)


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
INNER = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.text(max_size=3), LEAVES, max_size=3)
JSON = st.lists(INNER, max_size=3) | st.dictionaries(st.text(max_size=3), INNER, max_size=3)


@UNHURRIED
@given(JSON, JSON)
def test_json_is_the_same_however_it_is_written(one: object, other: object) -> None:
    written = json.dumps(one, indent=1), json.dumps(one, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert is_correct(written[0], [written[1]])
    form = json_form(written[0])
    assert form and json.loads(form) == one and json_form(form) == form
    if json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True):
        assert not is_correct(written[0], [json.dumps(other)])


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a": 1e99999999999999999999}',
        "1e99999",
        "9" * 6000,
        "[" + "9" * 6000 + "]",
        "[NaN]",
        "\\boxed{" * 1000,
        "####",
        "`" * 10_000,
        "</think>",
        "\ud800",
        '["\\ud800"]',
        "٣ ½ ①",
        "a" * 200_000,
        "the answer is " * 5000,
        "\n" * 100_000 + "the answer is",
        ":" * 100_000 + "x",
        "```\n" + " " * 100_000,
        "~" * 100_000,
        "so the answer is x " * 5000 + "\nx",
    ],
)
def test_no_text_is_too_odd_to_grade(text: str) -> None:
    assert is_correct(text, [text])
    assert not is_correct(text, ["some other answer"])


def test_what_was_thought_is_not_said() -> None:
    assert after_thinking("<think>a</think>b") == "b"
    assert after_thinking("a</THINK>\n<thinking>b</thinking>c") == "c"
    assert after_thinking("no tag < here > </b>") == "no tag < here > </b>"
    for cut in ("<think>", "<think>billing", "a</think><reasoning kind='x'>b", "<thought>\n"):
        assert after_thinking(cut) is None


def test_a_fence_is_taken_off_where_it_is_all_there_is() -> None:
    assert unfenced("```\nbilling\n```") == "billing"
    assert unfenced("Sure:\n\n~~~sql\nSELECT 1\n\nFROM a\n~~~\n") == "SELECT 1\n\nFROM a"
    for text in ("a\n```\nb\n```", "```\na\n```\nb", "```a```", "plain"):
        assert unfenced(text) == text
