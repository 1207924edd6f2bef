"""What each reader takes of a reply."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import CurateError, UsageError
from icl_curate.engine.grading.readers import READERS, reader_named

CHOICES = ("Graz", "Linz", "Wien")


@pytest.mark.parametrize("name", ["final", "letter", "number"])
@pytest.mark.parametrize("unit", ["\n", ": \n", "```\n", " ", "(", "答案", "答案\n", "选"])
def test_a_reply_of_one_thing_alone_is_read(name: str, unit: str) -> None:
    find = reader_named(name).find
    assert find is not None and find(unit * (100_000 // len(unit)), CHOICES) is None


@pytest.mark.parametrize(
    ("name", "reply", "answer"),
    [
        ("text", " a\nb ", "a\nb"),
        ("line", "\n a \nb", "a"),
        ("last-line", "a\n b \n\n", "b"),
        ("number", "It costs $1,200.50, not 7 (see v1.2)", "7"),
        ("number", "so x = −5.", "-5"),
        ("number", "That is 50 percent.", "50%"),
        ("number", "version v1.2 alone", None),
        ("number", "The distance is 5km.", "5"),
        ("number", "It weighs 1,200.5kg", "1,200.5"),
        ("number", "at 5°C", "5"),
        ("number", "The 1st, 2nd and 3rd of A12 in 3D by 5kmx", None),
        ("number", "一共有12个苹果。", "12"),
        ("number", "答案是-12。", "-12"),
        ("number", "答えは１２です。", "12"),
        ("number", "답은 12입니다.", "12"),
        ("number", "3.5千克", "3.5"),
        ("number", "12万, 3分之1, 3만5000, 百分之12", None),
        ("final", "7 and 5 make 12.\n#### 12", "12"),
        ("final", "no mark", None),
        ("final", "The answer is 42.", "42."),
        ("final", "the final answer is B", "B"),
        ("final", "The answer is 5? No, wait. The answer is 7.", "7."),
        ("final", "The answer is not 5, as that is odd. So the answer is 8", "8"),
        ("letter", "I think (B) because A is far", "Linz"),
        ("letter", "A) is wrong.\nThe answer is C", "Wien"),
        ("letter", "B", "Linz"),
        ("letter", "I say so.", None),
        ("letter", "**B**", "Linz"),
        ("letter", "Z", None),
        ("letter", "A太远。\n答案是B。", "Linz"),
        ("letter", "我选（C）", "Wien"),
        ("letter", "Die Antwort ist B", "Linz"),
        ("json", 'So: {"b": 2, "a": [1.0]}', '{"a": [1], "b": 2}'),
        ("json:label", '{"label": "billing", "why": "money"}', "billing"),
        ("json:labels.1", '{"labels": ["a", "b"]}', "b"),
        ("json:label", '{"team": "billing"}', None),
        (r"regex:<team>(.*?)</team>", "<team>a</team> no, <team>b</team>", "b"),
        (r"regex:\d+", "1 2 33", "33"),
        (r"regex:^\d+$", "a\n12\nb", "12"),
        ("regex:x", "abc", None),
        ("grading_own:shout", "billing", "BILLING"),
    ],
)
def test_a_reader_takes_its_part(name: str, reply: str, answer: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    own(monkeypatch)
    find = reader_named(name).find
    assert find is not None
    assert find(reply, CHOICES) == answer


def own(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import ModuleType

    module = ModuleType("grading_own")
    module.shout = str.upper  # type: ignore[attr-defined]
    module.count = len  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "grading_own", module)


@pytest.mark.parametrize("name", ["numbers", "regex:(", "regex:", "no_such_module:f", "grading_own:missing"])
def test_what_is_no_reader_is_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own(monkeypatch)
    with pytest.raises(UsageError):
        reader_named(name)


def test_an_own_reader_returns_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    own(monkeypatch)
    find = reader_named("grading_own:count").find
    assert find is not None
    with pytest.raises(UsageError, match="returned 3"):
        find("abc", ())


@settings(deadline=None)
@given(
    st.text() | st.text("{[()]}\"':,#\\0123456789.-A \n"),
    st.sampled_from([*READERS, "json", "json:a.0", "regex:(a|b)?"]),
)
def test_no_reply_raises(reply: str, name: str) -> None:
    find = reader_named(name).find
    assert find is not None
    answer = find(reply, CHOICES)
    assert answer is None or isinstance(answer, str)


def test_a_long_row_of_digits_is_searched_at_its_end() -> None:
    """A reply of a megabyte that is nearly a number: each of its groups could end it."""
    find = reader_named("number").find
    assert find is not None
    assert find("1" + ",111" * 250_000 + "x", ()) is None
    assert find("so it is 7 " + " " * 100, ()) == "7"


def test_an_own_reader_that_raises_is_told_with_its_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "failing_reader.py").write_text("def read(reply):\n    return {}[reply]\n")
    monkeypatch.syspath_prepend(tmp_path)
    find = reader_named("failing_reader:read").find
    assert find is not None
    with pytest.raises(CurateError, match=r"read failed on 'abc': KeyError: 'abc' \(failing_reader.py, line 2\)"):
        find("abc", ())
