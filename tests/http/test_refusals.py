"""What is shown and stored of a server's texts: the user's keys in none of them, and the rest as it was."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from icl_curate.engine.http import refusals
from icl_curate.engine.http.refusals import KEY_SIZE, LLM_KEY, shorten, without_keys

PARTS = "aZ09é_-./+= "


@pytest.fixture(autouse=True)
def _own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(LLM_KEY, raising=False)
    yield
    refusals.SENT.clear()


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("x", "no example for x: exit", "no example for ***: exit"),
        ("EMPTY", "EMPTY is no key, nor 'EMPTY'; set NONEMPTY", "*** is no key, nor '***'; set NONEMPTY"),
        ("pin_42", "pin_42, pin_421", "***, pin_421"),
        ("-ab=", "key:-ab=cd", "key:***cd"),
        ("k" * KEY_SIZE, f"bad{'k' * KEY_SIZE}key", "bad***key"),
    ],
)
def test_a_short_key_is_masked_where_it_stands_alone_and_a_long_one_anywhere(
    key: str, text: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LLM_KEY, key)
    assert shorten(text) == shown


def test_an_answer_keeps_the_words_that_are_short_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LLM_KEY, "none")
    refusals.SENT.update({"x", "s" * KEY_SIZE})
    assert without_keys(f"none of x, {'s' * KEY_SIZE}") == "none of x, ***"


def test_a_key_that_holds_another_is_masked_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LLM_KEY, "abc-0123456789-abcdef")
    refusals.SENT.update({"abc", "abc-0123456789-abc"})
    assert shorten("abc-0123456789-abcdef and abc") == "*** and ***"


@given(st.text(PARTS, min_size=1, max_size=24).map(str.strip).filter(bool), st.lists(st.text(PARTS, max_size=12)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_key_is_left_as_a_token_and_no_text_without_one_changes(key: str, parts: list[str]) -> None:
    refusals.SENT.clear()
    refusals.SENT.add(key)
    for text in ("".join(parts), key.join(parts), f" {key} ".join(parts)):
        masked = without_keys(text, 1)
        if key not in text:
            assert masked == text
        if len(key) >= KEY_SIZE:
            assert key not in masked
        elif re.fullmatch(r"\w+", key):
            words, left = re.findall(r"\w+|\W", text), re.findall(r"\*{3}|\w+|\W", masked)
            assert left == ["***" if word == key else word for word in words]
        else:
            assert f" {key} " not in f" {masked} "
